//! What commands of the system tell of a host: ports, PCIe links, access control, services, limits, the kernel's log.

use super::Draft;
use crate::case::Case;
use crate::xid::{Fault, fault};
use busbw_model::{Code, Evidence, Fact, Finding, HostFact, Limit, LinkLayer, Severity};
use std::collections::{HashMap, HashSet};

/// Locked memory below this is a shell's default, not one for RDMA.
const LITTLE_LOCKED_MEMORY: u64 = 1 << 30;
/// What containers get of /dev/shm, and a little more.
const LITTLE_SHARED_MEMORY: u64 = 256 << 20;

/// A finding per kind of trouble.
pub fn rule(case: &Case) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for fact in &case.run.host_facts {
        let Some(trouble) = trouble(case, fact) else { continue };
        match findings.iter_mut().find(|f| f.code == trouble.code) {
            Some(known) if known.evidence.len() < 6 => known.evidence.extend(trouble.evidence),
            Some(_) => {}
            None => findings.push(trouble),
        }
    }
    findings.extend(unequal_rates(case));
    findings
}

/// What is wrong with one fact: code, severity, confidence, title, explanation, remedy.
type Trouble = (Code, Severity, f64, String, &'static str, &'static str);

/// What is wrong with one fact.
fn trouble(case: &Case, fact: &HostFact) -> Option<Finding> {
    let found = of_port(case, fact).or_else(|| of_gpu(fact)).or_else(|| of_process(fact));
    let (code, severity, confidence, title, explanation, remedy) = found?;
    let draft = Draft { code, severity, confidence, title, explanation: explanation.into() };
    Some(draft.finding(vec![Evidence::new(fact.source.clone())], &[remedy]))
}

/// Ports of NICs, PCIe links and bridges.
fn of_port(case: &Case, fact: &HostFact) -> Option<Trouble> {
    let device = &fact.device;
    Some(match &fact.fact {
        Fact::PortState(state) if state.eq_ignore_ascii_case("down") => (
            Code::IbTransportError,
            Severity::Warning,
            0.6,
            format!("A port of {device} is down"),
            "A port that is down carries nothing; NCCL leaves it out, and nodes then offer different NICs.",
            "See cable and switch port: `sudo mlxlink -d mlx5_0 -m -c`; leave unused ports out by name: `export NCCL_IB_HCA=mlx5_0,mlx5_1`",
        ),
        Fact::ActiveMtu(mtu) if *mtu < 4096 && is_ethernet(case, fact) && failed_transfer(case) => (
            Code::RoceConfig,
            Severity::Warning,
            0.7,
            format!("{device} uses an MTU of {mtu} bytes"),
            "Both ends and every switch on the way must pass the same MTU; a large RDMA packet that a switch does not pass is lost without a word.",
            "Compare the MTU of all nodes and switch ports: `ibv_devinfo | grep -E 'hca_id|active_mtu'; ip link show`",
        ),
        Fact::PcieLink(link) if link.downgraded => (
            Code::PcieDegraded,
            Severity::Warning,
            0.8,
            format!("The PCIe link of {device} runs below its capability: {} GT/s x{}", link.speed_gts, link.width),
            "The device says itself that it has fewer lanes or a lower speed than it could. Everything behind the link is limited by it. (GPUs lower the speed while idle.)",
            "Look under load, then reseat the card or move it: `sudo lspci -vv | grep -E '^[0-9a-f]|LnkCap:|LnkSta:'`",
        ),
        Fact::AcsRedirects(true) => (
            Code::PcieAcs,
            Severity::Warning,
            0.8,
            format!(
                "Access control (ACS) redirects traffic at {}",
                if device.is_empty() { "a bridge" } else { device }
            ),
            "With ACS on, requests between devices below a bridge go up to the CPU and back: P2P and GPUDirect RDMA become slow, or fail.",
            "Turn it off on the bridges above GPUs and NICs: in the BIOS, or `sudo setpci -s BRIDGE ECAP_ACS+0x6.w=0000`",
        ),
        Fact::PcieError { corrected: false, .. } => (
            Code::PcieDegraded,
            Severity::Warning,
            0.75,
            format!("PCIe reports uncorrected errors at {device}"),
            "The link loses packets: transfers are repeated or fail.",
            "Reseat the card, check riser and power, and update the firmware: `dmesg -T | grep -i aer`",
        ),
        _ => return None,
    })
}

/// GPUs, NVLink and the fabric manager.
fn of_gpu(fact: &HostFact) -> Option<Trouble> {
    let device = &fact.device;
    Some(match &fact.fact {
        Fact::FabricState(state) if !state.eq_ignore_ascii_case("completed") && !state.eq_ignore_ascii_case("n/a") => (
            Code::NvlinkFabric,
            Severity::Error,
            0.85,
            format!("The NVLink fabric of {device} is '{state}'"),
            "The fabric manager has not finished configuring the switches, so CUDA cannot use the GPUs together.",
            "See the service and its log: `systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A 3 -i fabric`",
        ),
        Fact::NvLink { link, rate_gbs: None } => (
            Code::NvlinkFabric,
            Severity::Warning,
            0.6,
            format!("NVLink {link} of {device} is inactive"),
            "A link that should be up is not: a fault of the board, or a fabric manager that has not configured it.",
            "See every link and its errors: `nvidia-smi nvlink -s; nvidia-smi nvlink -e`",
        ),
        Fact::Service { name, state } if name.contains("fabricmanager") && state != "active" => (
            Code::NvlinkFabric,
            Severity::Error,
            0.85,
            format!("{name} is {state}"),
            "Machines with NVSwitch need the fabric manager before CUDA can use the GPUs together.",
            "Start it: `sudo systemctl enable --now nvidia-fabricmanager`; its version must be the driver's",
        ),
        Fact::PeerAccess { to, status } if !["OK", "X", "N/A"].contains(&status.as_str()) => (
            Code::P2pDisabled,
            Severity::Warning,
            0.75,
            format!("{device} and {to} may not read each other's memory: {status}"),
            "CUDA refuses direct access: the chipset does not support it (CNS), the GPU or its driver does not (GNS), or it is disabled.",
            "Data then goes through host memory; see BIOS settings (ACS, IOMMU) and whether the driver supports P2P for this GPU",
        ),
        Fact::Xid { code, .. } if fault(*code) == Fault::NvLink => (
            Code::NvlinkFabric,
            Severity::Error,
            0.85,
            format!("{device} reports an NVLink error"),
            "The kernel's log has an Xid error of NVLink: a link failed, and CUDA programs on it with it.",
            "See links and errors: `nvidia-smi nvlink -e`; reset the GPUs, and have the board checked if it comes again",
        ),
        Fact::Xid { code, .. } if fault(*code) == Fault::Program => (
            Code::GpuError,
            Severity::Warning,
            0.6,
            format!("A program on {device} faulted: Xid {code}"),
            "The driver logged an exception or a page fault of a program, or that it stopped its work. The rank that ran it died, and its peers \
             wait for it; the GPU is sound.",
            "See which program and when, and run it under compute-sanitizer: `sudo dmesg -T | grep Xid`",
        ),
        Fact::Xid { code, .. } => (
            Code::GpuError,
            Severity::Error,
            0.88,
            format!("{device} reports Xid {code}"),
            "The driver logged an error of this GPU. NCCL's calls fail on its rank first and then on its peers.",
            "Look the number up in NVIDIA's list of Xid errors; see `nvidia-smi -q -d ECC,ROW_REMAPPER`; reset or drain the node",
        ),
        _ => return None,
    })
}

/// Limits, and processes that were killed.
fn of_process(fact: &HostFact) -> Option<Trouble> {
    Some(match &fact.fact {
        Fact::Limit { limit: Limit::LockedMemory, soft: Some(bytes) } if *bytes < LITTLE_LOCKED_MEMORY => (
            Code::LimitsMemlock,
            Severity::Warning,
            0.75,
            format!("Only {} kB of memory may be locked", bytes / 1024),
            "RDMA locks the memory that NICs read and write; with this limit registering it fails.",
            "`printf '* soft memlock unlimited\\n* hard memlock unlimited\\n' | sudo tee /etc/security/limits.d/rdma.conf`; Docker: `--ulimit memlock=-1`",
        ),
        Fact::SharedMemory { size, free } if *size <= LITTLE_SHARED_MEMORY || free.is_some_and(|f| f < 16 << 20) => (
            Code::LimitsShm,
            Severity::Warning,
            0.75,
            format!("/dev/shm has {} MB", size >> 20),
            "Ranks of a node share buffers in /dev/shm; several MB for every pair of them.",
            "Docker: `docker run --shm-size=8g …` or `--ipc=host`; Kubernetes: an emptyDir of medium Memory at /dev/shm",
        ),
        Fact::OutOfMemoryKill(_) => (
            Code::PeerDied,
            Severity::Error,
            0.75,
            "The kernel killed a process for lack of memory".to_string(),
            "A rank that is killed leaves its peers waiting; what they report follows from it.",
            "Give the job more host memory, or load less per rank: `dmesg -T | grep -i 'killed process'`",
        ),
        _ => return None,
    })
}

fn is_ethernet(case: &Case, fact: &HostFact) -> bool {
    case.run.host_facts.iter().any(|f| f.device == fact.device && f.fact == Fact::LinkLayer(LinkLayer::Ethernet))
}

/// Whether a transfer got no answer, so that an MTU comes into question.
fn failed_transfer(case: &Case) -> bool {
    case.lines.iter().any(|line| line.text.contains("vendor err 129"))
}

/// Ports of one link layer with different rates: compute on InfiniBand and storage on Ethernet are no siblings.
fn unequal_rates(case: &Case) -> Option<Finding> {
    let facts = || case.run.host_facts.iter();
    let port = |fact: &'_ HostFact| (fact.host.clone(), fact.device.clone());
    // A port that is down names a rate that means nothing.
    let down: HashSet<_> = facts()
        .filter(|fact| matches!(&fact.fact, Fact::PortState(state) if !state.eq_ignore_ascii_case("active")))
        .map(port)
        .collect();
    let layers: HashMap<_, LinkLayer> = facts()
        .filter_map(|fact| match fact.fact {
            Fact::LinkLayer(layer) => Some((port(fact), layer)),
            _ => None,
        })
        .collect();
    let rates: Vec<(&HostFact, Option<LinkLayer>, f64)> = facts()
        .filter_map(|fact| match fact.fact {
            Fact::RateGbps(rate) if rate > 0.0 && !down.contains(&port(fact)) => {
                Some((fact, layers.get(&port(fact)).copied(), rate))
            }
            _ => None,
        })
        .collect();
    let mut best: HashMap<Option<LinkLayer>, f64> = HashMap::new();
    for (_, layer, rate) in &rates {
        let most = best.entry(*layer).or_default();
        *most = most.max(*rate);
    }
    let (slow, layer, rate) = rates.iter().find(|(_, layer, rate)| *rate < 0.6 * best[layer])?;
    let best = best[layer];
    let draft = Draft {
        code: Code::NicRate,
        severity: Severity::Warning,
        confidence: 0.7,
        title: format!("{} runs at {rate} Gbit/s where others run at {best}", slow.device),
        explanation: "A port that came up at a lower rate than its siblings has a cable, transceiver or switch port of an older generation, \
                      or lanes that did not come up. (It may also be the NIC for management: then leave it out of NCCL_IB_HCA.)"
            .into(),
    };
    Some(draft.finding(
        vec![Evidence::new(slow.source.clone())],
        &[
            &format!("See cable and lanes: `sudo mlxlink -d {} -m -c`", name(&slow.device)),
            &format!("If it is not meant for NCCL, leave it out: `export NCCL_IB_HCA=^{}`", name(&slow.device)),
        ],
    ))
}

/// `mlx5_4` of the port `mlx5_4/1`.
fn name(device: &str) -> &str {
    device.split('/').next().unwrap_or(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_a_port_that_is_down_means_nothing() {
        let port = |name: &str, rate: u32, state: &str| {
            format!(
                "CA '{name}'\n\tCA type: MT4123\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: {state}\n\t\tRate: {rate}\n\t\tLink layer: InfiniBand\n"
            )
        };
        for (state, told) in [("Active", true), ("Down", false)] {
            let text = port("mlx5_0", 200, "Active") + &port("mlx5_1", 10, state);
            let run = busbw_ingest::read_bytes(&[("ibstat.txt", text.as_bytes())]).expect("text");
            let found = rule(&Case::new(&run));
            assert_eq!(found.iter().any(|f| f.code == Code::NicRate), told, "{state}: {found:?}");
        }
    }

    #[test]
    fn rates_are_compared_within_a_link_layer() {
        let port = |name: &str, rate: u32, layer: &str| {
            format!(
                "CA '{name}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: {rate}\n\t\tLink layer: {layer}\n"
            )
        };
        for (layer, told) in [("InfiniBand", true), ("Ethernet", false)] {
            let text = port("mlx5_0", 400, "InfiniBand") + &port("mlx5_1", 100, layer);
            let run = busbw_ingest::read_bytes(&[("ibstat.txt", text.as_bytes())]).expect("text");
            let found = rule(&Case::new(&run));
            assert_eq!(found.iter().any(|f| f.code == Code::NicRate), told, "{layer}: {found:?} {:?}", run.host_facts);
        }
    }

    /// As `busbw check` has it: what a program did to itself is no reason to take a GPU out of service.
    #[test]
    fn an_error_of_a_program_is_told_apart_from_one_of_the_gpu() {
        let cases = [(31, "A program on", Severity::Warning), (79, "reports Xid 79", Severity::Error)];
        for (code, title, severity) in cases {
            let text =
                format!("[ 9876.543210] NVRM: Xid (PCI:0000:17:00): {code}, pid=1234, name=python, Ch 00000008\n");
            let run = busbw_ingest::read_bytes(&[("dmesg.txt", text.as_bytes())]).expect("text");
            let found = rule(&Case::new(&run));
            assert!(found.iter().any(|f| f.title.contains(title) && f.severity == severity), "{code}: {found:?}");
        }
    }
}
