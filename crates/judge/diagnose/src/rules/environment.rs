//! Variables that override what NCCL would choose: `rules/environment.toml` says which values do what.

use super::found;
use super::transport::asks_for_sockets;
use crate::case::{Case, Network, network_of};
use crate::data::{self, Needs, Setting, Settings, ValueCondition};
use crate::variables::{nearest_variable, variable};
use busbw_model::node::HcaList;
use busbw_model::{
    BenchTable, Communicator, DeviceKind, EnvOrigin, EnvSetting, Evidence, Finding, NodeFacts, Severity, TopoMatrix,
    TransportKind, Variable, VariableStanding,
};
use std::fmt::Display;
use std::sync::LazyLock;

static SETTINGS: LazyLock<Vec<Setting>> = LazyLock::new(|| {
    data::built_in::<Settings>("environment.toml", include_str!("../../../../../rules/environment.toml")).setting
});

/// A finding per variable that overrides NCCL's choice.
pub fn rule(case: &Case) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for setting in &case.run.nccl.env {
        let Some(known) = overriding(case, setting) else { continue };
        let finding = finding(case, setting, known);
        if !findings.iter().any(|f| f.title == finding.title) {
            findings.push(finding);
        }
    }
    findings
}

/// Variables of what NCCL chooses by size, from the same links.
pub const CHOICES: [&str; 2] = ["NCCL_ALGO", "NCCL_PROTO"];

/// The settings that hold a machine back, or may: a choice that NCCL would make itself, and fewer NICs than such machines have GPUs for.
pub fn hindering<'a>(case: &Case<'a>) -> impl Iterator<Item = &'a EnvSetting> {
    let hurts = |setting: &EnvSetting| {
        overriding(case, setting).is_some_and(|known| known.hurts() || CHOICES.contains(&known.name.as_str()))
    };
    let takes_few = |setting: &EnvSetting| {
        let gpus =
            || case.run.tables.iter().filter_map(|table| table.nranks?.checked_div(table.hosts().len() as u32)).min();
        let named = || HcaList::parse(&setting.value).devices();
        setting.name == "NCCL_IB_HCA"
            && nics(case, &setting.value).is_none()
            && named().zip(gpus()).is_some_and(|(named, gpus)| 2 * named <= gpus as usize)
    };
    case.run.nccl.env.iter().filter(move |setting| hurts(setting) || takes_few(setting))
}

/// Sockets that a variable forces on machines of 8 GPUs, as connections show: no size was measured, but TCP carries a fraction
/// of what such machines have. Who names the interface for sockets as well means it.
pub fn forced(case: &Case) -> Vec<Finding> {
    const MANY: u32 = 8;
    let meant = case.run.nccl.env_value("NCCL_SOCKET_IFNAME").is_some() || !case.tests.is_empty();
    let large = |comm: &&Communicator| {
        let (ranks, nodes) = (comm.nranks.unwrap_or(0), comm.nnodes.unwrap_or(1));
        nodes > 1 && ranks / MANY >= nodes && network_of(comm) == Some(Network::Socket)
    };
    let Some(comm) = case.run.communicators.iter().find(large).filter(|_| !meant) else { return Vec::new() };
    let Some((setting, known)) =
        case.run.nccl.env.iter().find(|set| asks_for_sockets(set)).and_then(|set| Some((set, overriding(case, set)?)))
    else {
        return Vec::new();
    };
    let line = comm.transports.iter().find(|t| t.kind.is_network()).and_then(|t| case.run.line(t.first));
    let mut finding = finding(case, setting, known);
    finding.evidence.extend(line.map(|line| Evidence::noted(line, "what it leaves")));
    vec![finding]
}

/// Every variable that was seen, and what it means for this run.
pub fn lint(case: &Case) -> Vec<Variable> {
    let mut seen: Vec<Variable> = Vec::new();
    for setting in &case.run.nccl.env {
        let same = |known: &&mut Variable| known.name == setting.name && known.value == setting.value;
        match seen.iter_mut().find(same) {
            Some(known) => known.hosts.extend(new_hosts(&known.hosts, setting)),
            None => seen.push(judged(case, setting)),
        }
    }
    seen
}

fn new_hosts(known: &[String], setting: &EnvSetting) -> Vec<String> {
    setting.hosts.iter().filter(|host| !known.contains(host)).cloned().collect()
}

fn judged(case: &Case, setting: &EnvSetting) -> Variable {
    let known = variable(&setting.name);
    Variable {
        name: setting.name.clone(),
        value: setting.value.clone(),
        origin: setting.origin,
        place: setting.source.place,
        hosts: setting.hosts.clone(),
        meaning: known.and_then(|known| known.meaning.clone()),
        default: known.and_then(|known| known.default.clone()),
        versions: known.map(versions),
        standing: standing(case, setting),
    }
}

fn standing(case: &Case, setting: &EnvSetting) -> VariableStanding {
    if let Some((title, advice)) = without_effect(case, setting) {
        return VariableStanding::NoEffect(format!("{title}. {advice}"));
    }
    match overriding(case, setting) {
        Some(known) if known.hurts() => VariableStanding::Harmful(format!("It {}", known.effect)),
        Some(known) => VariableStanding::Overrides(format!("It {}", known.effect)),
        None if variable(&setting.name).is_some() => VariableStanding::Read,
        None => VariableStanding::OfOthers,
    }
}

/// What is known of a value that overrides NCCL's choice in such a run.
fn overriding(case: &Case, setting: &EnvSetting) -> Option<&'static Setting> {
    let known = SETTINGS.iter().find(|known| known.name == setting.name && known.when.fits(case, &setting.value));
    known.filter(|known| known.needs.met(case) && !is_disproved(case, setting))
}

/// Whether connections show that the job did not have the variable, which some command or note beside it names.
fn is_disproved(case: &Case, setting: &EnvSetting) -> bool {
    let direct = |comm: &Communicator| comm.transports.iter().any(|t| matches!(t.kind, TransportKind::P2p(_)));
    setting.name == "NCCL_P2P_DISABLE"
        && setting.origin != EnvOrigin::NcclLog
        && case.run.communicators.iter().any(direct)
}

/// `from 2.4 on`, `from 2.4 to 2.18`.
fn versions(known: &crate::Variable) -> String {
    match &known.until {
        Some(until) => format!("from {} to {until}", known.since),
        None => format!("from {} on", known.since),
    }
}

/// Settings that the NCCL of the run does not follow: misspelt variables, ones of other versions, and values that it does not take.
pub fn unknown(case: &Case) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for setting in &case.run.nccl.env {
        let Some((title, advice)) = without_effect(case, setting) else { continue };
        if !findings.iter().any(|f| f.title == title) {
            let words: [(&str, &dyn Display); 2] = [("title", &title), ("advice", &advice)];
            findings.push(found(
                "variable.unknown",
                &words,
                vec![Evidence::noted(setting.source.clone(), "no effect")],
            ));
        }
    }
    findings
}

/// Why NCCL does not follow a setting, and what to do.
fn without_effect(case: &Case, setting: &EnvSetting) -> Option<(String, String)> {
    let version = case.run.nccl.versions.first().and_then(|v| number(&v.version));
    misspelt(setting)
        .or_else(|| outdated(setting, version?))
        .or_else(|| misvalued(setting))
        .or_else(|| too_many_sockets(case, setting))
}

/// A value that is none of those that the variable takes.
fn misvalued(setting: &EnvSetting) -> Option<(String, String)> {
    let EnvSetting { name, value, .. } = setting;
    let values = &variable(name)?.values;
    let is_taken = values.is_empty() || values.iter().any(|known| known.eq_ignore_ascii_case(value.trim()));
    (!is_taken).then(|| (format!("{name} has no value {value}"), format!("Write one of {}", values.join(", "))))
}

/// Sockets of a connection at most (MAX_SOCKETS of NCCL's `src/transport/net_socket.cc`, 2.4 to 2.30), which lowers those per thread.
const MOST_SOCKETS: u64 = 64;

fn too_many_sockets(case: &Case, setting: &EnvSetting) -> Option<(String, String)> {
    let threads: u64 = case.run.nccl.env_value("NCCL_SOCKET_NTHREADS")?.value.trim().parse().ok()?;
    let sockets: u64 = setting.value.trim().parse().ok().filter(|_| setting.name == "NCCL_NSOCKS_PERTHREAD")?;
    let all = threads.checked_mul(sockets).filter(|all| *all > MOST_SOCKETS)?;
    Some((
        format!("{threads} threads with {sockets} sockets each are {all} sockets; NCCL opens {MOST_SOCKETS} at most"),
        format!(
            "NCCL lowers it by itself; set `NCCL_NSOCKS_PERTHREAD={}`, or fewer threads",
            MOST_SOCKETS / threads.clamp(1, MOST_SOCKETS)
        ),
    ))
}

fn misspelt(setting: &EnvSetting) -> Option<(String, String)> {
    let nearest = nearest_variable(&setting.name)?;
    let meaning = nearest.meaning.as_deref().map_or(String::new(), |meaning| format!(": {meaning}"));
    Some((
        format!("NCCL knows no {}", setting.name),
        format!("The nearest name is `{}`{meaning}. Check the spelling", nearest.name),
    ))
}

fn outdated(setting: &EnvSetting, version: (u32, u32)) -> Option<(String, String)> {
    let known = variable(&setting.name)?;
    let (since, until) = (number(&known.since)?, known.until.as_deref().and_then(number));
    // 2.4 is the oldest version that the list knows.
    let too_new = since > (2, 4) && version < since;
    let too_old = until.is_some_and(|until| version > until);
    (too_new || too_old).then(|| {
        (
            format!("{} has no effect on NCCL {}.{}", setting.name, version.0, version.1),
            format!("NCCL reads it {}; leave it out: `unset {}`", versions(known), setting.name),
        )
    })
}

/// `2.27.7+cuda12.4` → (2, 27).
fn number(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split(['.', '+', '-']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

impl Setting {
    /// Whether it costs speed, or a run; else it only fixes what NCCL would choose.
    fn hurts(&self) -> bool {
        self.severity >= Severity::Warning
    }
}

impl ValueCondition {
    fn fits(&self, case: &Case, value: &str) -> bool {
        let value = value.trim();
        match self {
            ValueCondition::Any => true,
            ValueCondition::Values(values) => values.iter().any(|v| v.eq_ignore_ascii_case(value)),
            ValueCondition::Below(limit) => value.parse::<i64>().is_ok_and(|number| (0..*limit).contains(&number)),
            ValueCondition::FewNics => nics(case, value).is_some_and(|(taken, all)| taken > 0 && 2 * taken <= all),
        }
    }
}

/// How many NICs NCCL_IB_HCA takes, and of how many: of the ports that a machine of the run is known to have, else of a matrix's devices,
/// else of as many as somebody told.
fn nics(case: &Case, value: &str) -> Option<(usize, usize)> {
    let list = HcaList::parse(value);
    let hosts: Vec<&str> = case.run.tables.iter().flat_map(BenchTable::hosts).collect();
    let of_machine = |machine: &NodeFacts| {
        let ports = machine.data_ports(&HcaList::parse(""));
        let taken = ports.iter().filter(|(device, port)| list.takes(&device.name, Some(port.port))).count();
        (!ports.is_empty()).then_some((taken, ports.len()))
    };
    let of_matrix = |matrix: &TopoMatrix| {
        let names: Vec<&str> = matrix.of_kind(DeviceKind::Nic).map(|device| device.name.as_str()).collect();
        (!names.is_empty()).then(|| (names.iter().filter(|name| list.takes(name, None)).count(), names.len()))
    };
    let mut machines = case.run.machines.iter().filter(|machine| machine.may_be_of(&hosts));
    let shown = machines.find_map(of_machine);
    let shown = shown.or_else(|| case.run.topo_matrices.iter().find_map(of_matrix));
    shown.or_else(|| Some((list.devices()?, case.nics?.count?)))
}

impl Needs {
    /// Whether the run is one that the variable matters to. What is not known does not rule a run out.
    fn met(self, case: &Case) -> bool {
        let comm = case.largest();
        // The list of devices tells it where no row was measured.
        let table = case.run.tables.first();
        let hosts = table.map(|table| table.hosts().len() as u32).filter(|hosts| *hosts > 0);
        let nodes = comm.and_then(|c| c.nnodes).or(hosts);
        let ranks = comm.and_then(|c| c.nranks).or_else(|| table.and_then(|table| table.nranks));
        match self {
            Needs::Nothing => true,
            Needs::Nodes => nodes.is_none_or(|n| n > 1),
            Needs::Gpus => match (nodes, ranks) {
                (Some(nodes), Some(ranks)) => ranks > nodes,
                _ => true,
            },
        }
    }
}

fn finding(case: &Case, setting: &EnvSetting, known: &Setting) -> Finding {
    let (taken, all) = nics(case, &setting.value).unwrap_or_default();
    let id = match known.when {
        ValueCondition::FewNics => "variable.nics",
        _ if known.hurts() => "variable.hurts",
        _ => "variable.fixes",
    };
    let words: [(&str, &dyn Display); 5] = [
        ("name", &setting.name),
        ("value", &setting.value),
        ("effect", &known.effect),
        ("taken", &taken),
        ("all", &all),
    ];
    let finding = found(id, &words, vec![Evidence::noted(setting.source.clone(), "set here")]);
    Finding { severity: known.severity, ..finding }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_variables_is_read() {
        assert!(SETTINGS.len() > 10);
        assert!(SETTINGS.iter().all(|s| !s.name.is_empty() && !s.effect.ends_with('.')));
    }

    #[test]
    fn every_variable_is_judged_once() {
        let text = "NCCL version 2.18.3+cuda12.2\nexport NCCL_IB_DISABLE=1 NCCL_IB_HCAS=mlx5_0 NCCL_DEBUG=INFO\n\
                    export NCCL_DEBUG=INFO NCCL_ASYNC_ERROR_HANDLING=1 NCCL_RAS_ENABLE=0\n";
        let run = busbw_ingest::read_bytes(&[("log", text.as_bytes())]).expect("text");
        let judged: Vec<(String, &str)> =
            lint(&Case::new(&run)).into_iter().map(|seen| (seen.name.clone(), seen.standing.as_str())).collect();
        let expected = [
            ("NCCL_IB_DISABLE", "harmful"),
            ("NCCL_IB_HCAS", "no effect"),
            ("NCCL_DEBUG", "read"),
            ("NCCL_ASYNC_ERROR_HANDLING", "of others"),
            ("NCCL_RAS_ENABLE", "no effect"),
        ];
        assert_eq!(judged, expected.map(|(name, standing)| (name.to_owned(), standing)));
    }

    #[test]
    fn values_are_compared_as_nccl_reads_them() {
        let (run, below) = (busbw_model::Run::default(), ValueCondition::Below(4));
        let case = Case::new(&run);
        let fit = |condition: &ValueCondition, values: &[&str]| -> Vec<bool> {
            values.iter().map(|value| condition.fits(&case, value)).collect()
        };
        assert_eq!(fit(&below, &["2", "4", "-1", "many"]), [true, false, false, false]);
        let values = ValueCondition::Values(vec!["LOC".into(), "0".into()]);
        assert_eq!(fit(&values, &["loc", "0", "SYS"]), [true, true, false]);
    }
}
