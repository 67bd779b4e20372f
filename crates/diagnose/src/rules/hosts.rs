//! What is known of the machines, judged as `busbw check` judges it: whatever a run of some time measured.

use super::Draft;
use crate::case::Case;
use crate::check::{QOS, check, odd_ones};
use crate::words::listed;
use busbw_model::node::Hello;
use busbw_model::{
    CheckItem, Code, Evidence, Finding, InputKind, Judged, Judgement, Machine, NodeFacts, OddOne, Outcome, Severity,
    SourceLine, Subject, Told,
};

/// Devices and lines of evidence that a finding shows at most.
const MOST_SHOWN: usize = 6;
const EXPLANATION: &str =
    "`busbw check` says so of the same facts. They hold for the machine, whatever a run of some time measured.";

/// What was checked of a machine.
type Item<'a> = (&'a Machine, CheckItem);

/// What was checked of the machines and is known: of one that some commands tell of, only what a line of theirs tells.
fn checked<'a>(case: &Case<'a>) -> Vec<Item<'a>> {
    let machines = case.run.machines.iter();
    let items = machines.flat_map(|machine| {
        let checked = check(std::slice::from_ref(&machine.facts), &Hello::default());
        checked.items.into_iter().map(move |item| (machine, item))
    });
    items.filter(|(machine, item)| machine.saved.is_some() || lines(machine, item).next().is_some()).collect()
}

fn lines<'a>(machine: &'a Machine, item: &'a CheckItem) -> impl Iterator<Item = &'a Told> {
    machine.lines(item.item, item.device.as_deref())
}

/// A finding per item that is not as it should be, whatever the number of machines and devices.
pub fn rule(case: &Case) -> Vec<Finding> {
    let mut kinds: Vec<(&'static str, Severity, Code, Vec<Item>)> = Vec::new();
    for (machine, item) in checked(case) {
        let Some((severity, code)) = severity(case, &item) else { continue };
        match kinds.iter_mut().find(|kind| (kind.0, kind.1, kind.2) == (item.item, severity, code)) {
            Some((.., alike)) => alike.push((machine, item)),
            None => kinds.push((item.item, severity, code, vec![(machine, item)])),
        }
    }
    let of_items = kinds.into_iter().filter_map(|(name, severity, code, items)| {
        let (_, first) = items.first()?;
        let mut subjects: Vec<String> = items.iter().map(|(_, item)| subject(item)).collect();
        subjects.retain(|subject| !subject.is_empty());
        let subjects = listed(subjects.iter(), 2);
        let title = format!("{subjects}{}{name} {}", if subjects.is_empty() { "" } else { ": " }, first.detail);
        let evidence = items.iter().flat_map(|(machine, item)| evidence(machine, item)).take(MOST_SHOWN).collect();
        Some(finding(severity, code, title, evidence, first.outcome.remedy()?))
    });
    of_items.chain(differences(case)).collect()
}

/// What `check` fails is an error, and what it warns of a warning. ACS costs speed, and processes that were killed are
/// missed: a table that is complete shows that neither did much. RoCE that may lose packets matters to a run that uses it.
fn severity(case: &Case, item: &CheckItem) -> Option<(Severity, Code)> {
    let measured = case.run.tables.iter().any(|table| table.finished && !table.rows.is_empty());
    if item.item == QOS && item.outcome.remedy().is_some() {
        let severity = if measured { Severity::Info } else { Severity::Warning };
        let nics = || case.run.nodes.iter().flat_map(|node| &node.nics);
        return nics().any(|nic| nic.link.as_deref() == Some("RoCE")).then_some((severity, Code::RoceConfig));
    }
    let code = item.outcome.code()?;
    match item.outcome {
        Outcome::Fail { .. } if !measured || !matches!(code, Code::PcieAcs | Code::PeerDied) => {
            Some((Severity::Error, code))
        }
        Outcome::Fail { .. } | Outcome::Warn { .. } => Some((Severity::Warning, code)),
        Outcome::Ok | Outcome::Skip { .. } => None,
    }
}

fn finding(severity: Severity, code: Code, title: String, evidence: Vec<Evidence>, remedy: &str) -> Finding {
    let confidence = if severity == Severity::Error { 0.88 } else { 0.75 };
    Draft { code, severity, confidence, title, explanation: EXPLANATION.into() }.finding(evidence, &[remedy])
}

/// `node1 mlx5_0/1`.
fn subject(item: &CheckItem) -> String {
    let parts = [Some(item.host.as_str()), item.device.as_deref()];
    parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The lines of commands, first those that speak of what was found; or what the saved facts hold.
fn evidence(machine: &Machine, item: &CheckItem) -> Vec<Evidence> {
    let found: Vec<&str> = item.detail.split([' ', ',']).filter(|word| word.len() > 3).collect();
    let mut told: Vec<&Told> = lines(machine, item).collect();
    told.sort_by_key(|told| {
        let of_device = !told.device.is_empty() && item.detail.contains(&told.device);
        !of_device && !found.iter().any(|word| told.source.text.contains(word))
    });
    let told: Vec<Evidence> = told.into_iter().map(|told| Evidence::new(told.source.clone())).collect();
    let Some(place) = machine.saved.filter(|_| told.is_empty()) else { return told };
    let text = format!("{} {}: {}", subject(item), item.item, item.detail);
    vec![Evidence::new(SourceLine::new(place, text.trim_start()))]
}

/// What should be equal on all machines with a name, and is not.
fn differences(case: &Case) -> impl Iterator<Item = Finding> {
    let named = || case.run.machines.iter().filter(|machine| !machine.facts.host.is_empty());
    let nodes: Vec<NodeFacts> = named().map(|machine| machine.facts.clone()).collect();
    odd_ones(&nodes).into_iter().filter_map(|odd| {
        let OddOne { item, majority, differ, remedy, fails, code, .. } = odd;
        let differ = listed(differ.iter().map(|(host, value)| format!("{host} {value}")), MOST_SHOWN);
        let others = majority.map_or(String::new(), |value| format!(", the others {value}"));
        let title = format!("Machines differ: {item}: {differ}{others}");
        let severity = if fails { Severity::Error } else { Severity::Warning };
        Some(finding(severity, code?, title, Vec::new(), &remedy))
    })
}

/// Each machine, by what was checked of it.
pub(crate) fn judge(case: &Case) -> Vec<Judged> {
    let mut judged: Vec<(&Machine, Vec<CheckItem>)> = Vec::new();
    for (machine, item) in checked(case) {
        match judged.last_mut().filter(|(known, _)| std::ptr::eq::<Machine>(*known, machine)) {
            Some((_, items)) => items.push(item),
            None => judged.push((machine, vec![item])),
        }
    }
    let judged = judged.into_iter().filter_map(|(machine, items)| {
        let passed = items.iter().filter(|item| item.outcome == Outcome::Ok).count();
        let fails = |item: &&CheckItem| severity(case, item).is_some_and(|(severity, _)| severity > Severity::Info);
        let failed = items.iter().filter(fails).count();
        let minor = items.iter().filter(|item| item.outcome.remedy().is_some() && !fails(item));
        let minor: String = minor.map(|item| format!(", {} {}", item.item, item.detail)).collect();
        let what = Some(machine.facts.host.as_str()).filter(|host| !host.is_empty()).unwrap_or("the machine");
        let open = items.iter().find_map(|item| question(case, machine, item, passed == 0));
        let (outcome, how) = match (failed, passed) {
            (0, 0) if open.is_none() => return None,
            (0, _) if open.is_some() => (Judgement::Undecided, format!("{passed} checks passed{minor}")),
            (0, 1) => (Judgement::Passed, format!("1 check passed{minor}")),
            (0, _) => (Judgement::Passed, format!("{passed} checks passed{minor}")),
            _ => (Judgement::Failed, format!("{failed} of {} checks failed{minor}", passed + failed)),
        };
        let question = open.filter(|_| outcome == Judgement::Undecided);
        Some(Judged { subject: Subject::Host, what: what.into(), how, outcome, question })
    });
    let judged: Vec<Judged> = judged.collect();
    let of_run = run_unseen(case).filter(|_| !judged.is_empty());
    judged.into_iter().chain(of_run).collect()
}

/// A run that the input tells of without showing how it went: sound machines are no praise for it.
fn run_unseen(case: &Case) -> Option<Judged> {
    use busbw_model::InputKind::{Busbw, HostFacts, Perftest, RdmaCheck, RdmaMonitor, TopoMatrix, TopoXml};
    let of_machine = |kind: &InputKind| {
        matches!(kind, Busbw | HostFacts | Perftest | RdmaCheck | RdmaMonitor | TopoMatrix | TopoXml)
    };
    let is_of_run = |kind: &InputKind| !of_machine(kind);
    let tells = case.run.inputs.iter().flat_map(|input| &input.kinds).any(is_of_run);
    let is_seen = !case.run.tables.is_empty() || case.run.communicators.iter().any(|comm| comm.came_up());
    let (what, how) = ("the run".into(), "the input does not show how it went".into());
    let judged = Judged { subject: Subject::Course, what, how, outcome: Judgement::Undecided, question: None };
    (tells && !is_seen).then_some(judged)
}

/// What a command told and nobody can judge, where there is no run that would tell; a note, where nothing else was told.
fn question(case: &Case, machine: &Machine, item: &CheckItem, alone: bool) -> Option<String> {
    let why = match &item.outcome {
        Outcome::Skip { why } => why.clone(),
        Outcome::Warn { code: None, .. } if alone => format!("{}: does a run suffer? Give its output", item.detail),
        _ => return None,
    };
    let is_open = machine.facts.partial && case.run.tables.is_empty() && case.run.communicators.is_empty();
    is_open.then(|| format!("{} {} {why}", subject(item), item.item).trim_start().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use busbw_model::Verdict;

    /// The codes above info, with their severity, and the verdict.
    fn answer(inputs: &[(&str, &str)]) -> (Verdict, Vec<(Code, Severity)>) {
        let inputs: Vec<(&str, &[u8])> = inputs.iter().map(|(name, text)| (*name, text.as_bytes())).collect();
        let diagnosis = crate::diagnose(&busbw_ingest::read_bytes(&inputs).expect("text"));
        let above = diagnosis.findings.iter().filter(|finding| finding.severity > Severity::Info);
        (diagnosis.verdict, above.map(|finding| (finding.code, finding.severity)).collect())
    }

    fn ibstat(ports: &[(&str, &str, u32, &str)]) -> String {
        let port = |(name, state, rate, layer): &(&str, &str, u32, &str)| {
            format!(
                "CA '{name}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: {state}\n\t\tPhysical state: LinkUp\n\
                 \t\tRate: {rate}\n\t\tBase lid: 5\n\t\tSM lid: 0\n\t\tLink layer: {layer}\n"
            )
        };
        ports.iter().map(port).collect()
    }

    #[test]
    fn tools_are_judged_as_check_judges_facts() {
        use Code::{GpuError, IbTransportError, LimitsMemlock, NicRate, NvlinkFabric, PcieAcs, PcieDegraded};
        use Severity::{Error, Warning};
        let lspci = |class: &str, speed: &str, width: &str| {
            format!(
                "17:00.0 {class}: a (rev a1)\n\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM\n\tLnkSta:\tSpeed {speed}, Width {width}\n"
            )
        };
        let smi = "GPU 00000000:18:00.0\n    Product Name                          : a\n    GPU Link Info\n        PCIe Generation\n            Max                           : 5\n            Current                       : 5\n        Link Width\n            Max                           : 16x\n            Current                       : 8x\n";
        let ecc = "GPU 00000000:18:00.0\n    Product Name                          : a\n    ECC Errors\n        Volatile\n            DRAM Uncorrectable            : 3\n        Aggregate\n            DRAM Uncorrectable            : 3\n";
        let rocm =
            "==== ROCm System Management Interface ====\n===== XGMI Error status =====\nGPU[0]\t\t: XGMI Error count: ";
        let row = |index: u32, told: &str| format!("{index}  2  0x74b5,  65402  {told}  0%  auto  750.0W  90%  58%\n");
        let (warm, silent) = ("56.0°C  321.0W  NPS1, N/A, 0  2074Mhz  1300Mhz", "N/A  N/A  NPS1, N/A, 0  None  None");
        let concise = |rows: [&str; 2]| format!("==== Concise Info ====\n{}{}", row(0, rows[0]), row(1, rows[1]));
        let twice = |first: u64, second: u64| {
            format!(
                "root@a:~# ethtool -S eth0\n     rx_crc_errors_phy: {first}\nroot@a:~# ethtool -S eth0\n     rx_crc_errors_phy: {second}\n"
            )
        };
        let stage = |name: &str, errors: u32| format!("-I- {name}                0          {errors}\n");
        let nvlink = "GPU 0: NVIDIA H100 (UUID: GPU-1)\n\t Link 0: Replay Errors: 9\n\t Link 0: Recovery Errors: ";
        let cases: [(String, Option<(Code, Severity)>); 37] = [
            (format!("{rocm}0 (No errors detected since last read)\n"), None),
            (format!("{rocm}2 (Multiple errors detected since last read)\n"), Some((NvlinkFabric, Warning))),
            (concise([warm, warm]), None),
            (concise([silent, silent]), None),
            (concise([warm, silent]), Some((GpuError, Warning))),
            (twice(10, 10), None),
            (twice(10, 28), Some((NicRate, Warning))),
            ("NIC statistics:\n     rx_crc_errors_phy: 10\n".into(), None),
            (stage("Speed / Width checks", 0), None),
            (stage("Speed / Width checks", 15), Some((NicRate, Warning))),
            (stage("Subnet Manager", 1), Some((IbTransportError, Error))),
            (stage("Port Counters", 30), None),
            (format!("{nvlink}0\n"), None),
            (format!("{nvlink}2\n"), Some((NvlinkFabric, Warning))),
            (
                "GPU 00000000:18:00.0\n    Remapped Rows\n        Pending                           : Yes\n".into(),
                Some((GpuError, Warning)),
            ),
            ("root@a:~# mlnx_qos -i eth0\nPriority trust state: pcp\n\tenabled     0   0   0   0\n".into(), None),
            (smi.into(), Some((PcieDegraded, Warning))),
            (ecc.into(), Some((GpuError, Error))),
            ("|   1  NVIDIA H100 80GB HBM3   On  | 00000000:2A:00.0 Off |     7 |\n".into(), Some((GpuError, Error))),
            (
                "link mlx5_1/1 state DOWN physical_state DISABLED netdev ens1f1np1\n".into(),
                Some((IbTransportError, Error)),
            ),
            (
                "[1.0] pcieport 0000:16:02.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=a\n".into(),
                Some((PcieDegraded, Warning)),
            ),
            ("Unit nvidia-fabricmanager.service could not be found.\n".into(), Some((NvlinkFabric, Error))),
            (ibstat(&[("mlx5_0", "Active", 400, "InfiniBand"), ("mlx5_1", "Active", 400, "InfiniBand")]), None),
            (
                ibstat(&[("mlx5_0", "Active", 400, "InfiniBand"), ("mlx5_1", "Active", 100, "InfiniBand")]),
                Some((NicRate, Error)),
            ),
            (ibstat(&[("mlx5_0", "Active", 400, "InfiniBand"), ("mlx5_1", "Active", 100, "Ethernet")]), None),
            (
                ibstat(&[("mlx5_0", "Active", 400, "InfiniBand"), ("mlx5_1", "Down", 10, "InfiniBand")]),
                Some((IbTransportError, Error)),
            ),
            (
                ibstat(&[("mlx5_0", "Active", 400, "InfiniBand"), ("mlx5_1", "Down", 40, "Ethernet")]),
                Some((IbTransportError, Warning)),
            ),
            (ibstat(&[("mlx5_0", "Initializing", 400, "InfiniBand")]), Some((IbTransportError, Error))),
            (lspci("3D controller", "2.5GT/s (downgraded)", "x16 (ok)"), None),
            (lspci("3D controller", "16GT/s (ok)", "x8 (downgraded)"), Some((PcieDegraded, Warning))),
            (lspci("Infiniband controller", "8GT/s (downgraded)", "x16 (ok)"), Some((PcieDegraded, Warning))),
            (lspci("Non-Volatile memory controller", "8GT/s (downgraded)", "x4"), None),
            ("00:01.0 PCI bridge: a\n\tACSCtl:\tSrcValid+ ReqRedir+ CmpltRedir+\n".into(), Some((PcieAcs, Warning))),
            ("[1.0] NVRM: Xid (PCI:0000:17:00): 31, pid=1, name=python, Ch 8\n".into(), Some((GpuError, Warning))),
            ("[1.0] NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus.\n".into(), Some((GpuError, Error))),
            (
                "GPU 3: NVIDIA H100 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n".into(),
                Some((NvlinkFabric, Error)),
            ),
            ("max locked memory       (kbytes, -l) 64\n".into(), Some((LimitsMemlock, Warning))),
        ];
        for (text, expected) in cases {
            assert_eq!(answer(&[("paste.txt", &text)]).1, Vec::from_iter(expected), "{text}");
        }
    }

    /// RDMA may lose packets where no class has flow control: a cause of what a run over RoCE suffers, and else a note.
    #[test]
    fn flow_control_matters_to_a_run_over_roce() {
        let qos = |trust: &str, enabled: &str| {
            format!(
                "root@a:~# ibdev2netdev\nmlx5_0 port 1 ==> eth0 (Up)\nroot@a:~# mlnx_qos -i eth0\n\
                 Priority trust state: {trust}\nPFC configuration:\n\tenabled     {enabled}\n"
            )
        };
        let log = |link: &str| {
            format!(
                "a:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/{link} [RO]; OOB eth0:10.0.0.1<0>\na:1:2 [0] NCCL INFO Using network IB\n"
            )
        };
        let lossy = [(Code::RoceConfig, Severity::Warning)];
        let cases: [(&str, &str, &str, &[_]); 5] = [
            ("RoCE", "dscp", "0   0   0   0", &lossy),
            ("RoCE", "pcp", "0   0   0   1", &lossy),
            ("RoCE", "dscp", "0   0   0   1", &[]),
            ("RoCE", "pcp", "1   0   0   0", &[]),
            ("IB", "pcp", "0   0   0   0", &[]),
        ];
        for (link, trust, enabled, expected) in cases {
            let (_, found) = answer(&[("run.log", &log(link)), ("qos.txt", &qos(trust, enabled))]);
            assert_eq!(found, expected, "{link} {trust} {enabled}");
        }
    }

    #[test]
    fn a_program_that_speaks_of_a_state_is_no_tool() {
        let text = ibstat(&[("mlx5_0", "Active", 400, "InfiniBand")]) + "\nepoch 1\nState: Down\nactive_mtu: 256\n";
        assert_eq!(answer(&[("run.log", &text)]), (Verdict::Healthy, Vec::new()));
    }

    #[test]
    fn a_sound_machine_is_no_praise_for_a_run_that_did_not_come_up() {
        let log =
            "host-1:1:2 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\nhost-1:1:2 [0] NCCL INFO Using network IB\n";
        let ports = ibstat(&[("mlx5_0", "Active", 400, "InfiniBand")]);
        assert_eq!(answer(&[("run.log", log), ("ibstat.txt", &ports)]), (Verdict::Inconclusive, Vec::new()));
    }

    /// What several inputs tell of one machine is judged together: memory that RDMA has to lock.
    #[test]
    fn inputs_of_one_machine_are_one() {
        let ports = format!("root@a:~# ibstat\n{}", ibstat(&[("mlx5_0", "Active", 400, "InfiniBand")]));
        let limits = "root@a:~# ulimit -a\nmax locked memory       (kbytes, -l) 64\n";
        let (_, found) = answer(&[("ports.txt", &ports), ("limits.txt", limits)]);
        assert_eq!(found, [(Code::LimitsMemlock, Severity::Error)]);
    }
}
