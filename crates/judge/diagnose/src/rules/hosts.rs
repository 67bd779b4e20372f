//! What is known of the machines, judged as `busbw check` judges it: whatever a run of some time measured.

use super::found;
use crate::case::Case;
use crate::check::{KNOWN_FAULTS, QOS, check_by, odd_ones};
use crate::expectation::costs_speed;
use crate::words::listed;
use busbw_model::node::Hello;
use busbw_model::{
    BenchTable, CheckItem, Code, Evidence, FactLine, Finding, InputKind, Judged, Judgement, NodeFacts, OddOne, Outcome,
    Severity, SourceLine, Subject,
};
use std::borrow::Cow;
use std::fmt::Display;

/// Devices and lines of evidence that a finding shows at most.
const MOST_SHOWN: usize = 6;

/// What was checked of a machine.
type Item<'a> = (&'a NodeFacts, CheckItem);

/// The checks of the machines whose facts are known. For a machine that only commands show, only checks with a line of theirs.
fn checked<'a>(case: &Case<'a>) -> Vec<Item<'a>> {
    let machines = case.run.machines.iter();
    let items = machines.flat_map(|machine| {
        let checked = check_by(std::slice::from_ref(machine), &Hello::default(), case.book);
        checked.items.into_iter().map(move |item| (machine, item))
    });
    items.filter(|(machine, item)| machine.saved.is_some() || lines(machine, item).next().is_some()).collect()
}

fn lines<'a>(machine: &'a NodeFacts, item: &'a CheckItem) -> impl Iterator<Item = &'a FactLine> {
    machine.lines_of(&item.item, item.device.as_deref())
}

/// A finding per item that is not as it should be, whatever the number of machines and devices.
pub fn rule(case: &Case) -> Vec<Finding> {
    let mut kinds: Vec<(Cow<'static, str>, Severity, Code, Vec<Item>)> = Vec::new();
    for (machine, item) in checked(case) {
        let Some((severity, code)) = severity(case, machine, &item) else { continue };
        match kinds.iter_mut().find(|kind| (&kind.0, kind.1, kind.2) == (&item.item, severity, code)) {
            Some((.., alike)) => alike.push((machine, item)),
            None => kinds.push((item.item.clone(), severity, code, vec![(machine, item)])),
        }
    }
    let of_items = kinds.into_iter().filter_map(|(name, severity, code, items)| {
        let (_, first) = items.first()?;
        let mut subjects: Vec<String> = items.iter().map(|(_, item)| subject(item)).collect();
        subjects.retain(|subject| !subject.is_empty());
        let subjects = listed(subjects.iter(), 2);
        let title = format!("{subjects}{}{name} {}", if subjects.is_empty() { "" } else { ": " }, first.detail);
        let evidence = items.iter().flat_map(|(machine, item)| evidence(machine, item)).take(MOST_SHOWN).collect();
        let confidence = if severity == Severity::Error { 0.88 } else { 0.75 };
        let words: [(&str, &dyn Display); 2] = [("title", &title), ("remedy", &first.remedy.as_deref()?)];
        let if_slow = severity == Severity::Info && costs_speed(code);
        Some(Finding { code, severity, confidence, if_slow, ..found("hosts.checked", &words, evidence) })
    });
    of_items.chain(differences(case)).chain(fewer_hcas(case)).collect()
}

/// What `check` fails is an error, and what it warns of a warning. ACS costs speed, and processes that were killed are
/// missed: a table that is complete shows that neither did much. RoCE that may lose packets matters to a run that uses it.
fn severity(case: &Case, machine: &NodeFacts, item: &CheckItem) -> Option<(Severity, Code)> {
    let of_run = |found: Severity| if is_elsewhere(case, machine) { Severity::Info } else { found };
    found_severity(case, machine, item).map(|(severity, code)| (of_run(severity), code))
}

/// Whether a command shows another machine than those that a table names. Facts that somebody saved, and gives beside a run, are of it.
fn is_elsewhere(case: &Case, machine: &NodeFacts) -> bool {
    let hosts: Vec<&str> = case.run.tables.iter().flat_map(BenchTable::hosts).collect();
    machine.partial && !machine.may_be_of(&hosts)
}

fn found_severity(case: &Case, machine: &NodeFacts, item: &CheckItem) -> Option<(Severity, Code)> {
    let measured = case.run.tables.iter().any(|table| table.finished && !table.rows.is_empty());
    if item.item == QOS && item.remedy.is_some() {
        let severity = if measured { Severity::Info } else { Severity::Warning };
        let nics = || case.run.nodes.iter().flat_map(|node| &node.nics);
        return nics().any(|nic| nic.link.as_deref() == Some("RoCE")).then_some((severity, Code::RoceConfig));
    }
    let code = item.code.filter(|code| *code != Code::PeerDied || was_of_run(case, machine))?;
    let harmless = match code {
        Code::PcieAcs => measured,
        Code::PeerDied => measured || case.refuters.ended_well(),
        _ => false,
    };
    match item.outcome {
        // It can hit; whether it did, its own text tells.
        Outcome::Warn if item.item == KNOWN_FAULTS => Some((Severity::Info, code)),
        Outcome::Fail if !harmless => Some((Severity::Error, code)),
        Outcome::Fail | Outcome::Warn => Some((Severity::Warning, code)),
        Outcome::Ok | Outcome::Skip => None,
    }
}

/// Whether a process that the kernel killed for memory, `1234 (python)`, may be one of the run.
fn was_of_run(case: &Case, machine: &NodeFacts) -> bool {
    machine.memory_kills.iter().any(|process| {
        let (pid, name) = process.split_once(" (").unwrap_or((process, ""));
        case.refuters.may_be_of_run(pid.parse().ok(), name)
    })
}

/// `node1 mlx5_0/1`.
fn subject(item: &CheckItem) -> String {
    let parts = [Some(item.host.as_str()), item.device.as_deref()];
    parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// The lines of commands, first those that speak of what was found; or what the saved facts hold.
fn evidence(machine: &NodeFacts, item: &CheckItem) -> Vec<Evidence> {
    let found: Vec<&str> = item.detail.split([' ', ',']).filter(|word| word.len() > 3).collect();
    let mut told: Vec<&FactLine> = lines(machine, item).collect();
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
    let is_of_run = |machine: &&NodeFacts| !machine.host.is_empty() && !is_elsewhere(case, machine);
    let named = case.run.machines.iter().filter(is_of_run);
    let nodes: Vec<NodeFacts> = named.cloned().collect();
    odd_ones(&nodes).into_iter().filter_map(|(id, OddOne { item, majority, differ, .. })| {
        let differ = listed(differ.iter().map(|(host, value)| format!("{host} {value}")), MOST_SHOWN);
        let others = majority.map_or(String::new(), |value| format!(", the others {value}"));
        Some(found(id?, &[("item", &item), ("differ", &differ), ("others", &others)], Vec::new()))
    })
}

/// Hosts on which commands list fewer HCAs of a kind than on the others. Who asked for one HCA alone misses no more than half.
fn fewer_hcas(case: &Case) -> Option<Finding> {
    let machines = || case.run.machines.iter().filter(|machine| machine.partial && !is_elsewhere(case, machine));
    let types = || machines().flat_map(|machine| &machine.rdma).filter_map(|device| device.hca_type.as_deref());
    types().find_map(|kind| {
        let count = |machine: &NodeFacts| guids(machine, kind).len();
        let shown = || machines().filter(|machine| count(machine) > 0);
        let as_many = |most: usize| shown().filter(move |machine| count(machine) == most);
        let most = shown().map(count).max_by_key(|most| (as_many(*most).count(), *most))?;
        let is_short = |machine: &&NodeFacts| {
            let short = count(machine) < most && 2 * count(machine) > most;
            short && as_many(most).all(|other| is_other(machine, other, kind))
        };
        let short: Vec<&NodeFacts> = shown().filter(is_short).collect();
        let named = |machine: &NodeFacts| format!("{} {}", name(case, machine), count(machine));
        let evidence: Vec<Evidence> =
            short.iter().filter_map(|machine| Some(Evidence::new(machine.lines.first()?.source.clone()))).collect();
        let differ = listed(short.iter().map(|machine| named(machine)), MOST_SHOWN);
        let words: [(&str, &dyn Display); 3] = [("kind", &kind), ("differ", &differ), ("most", &most)];
        (!short.is_empty()).then(|| found("differs.fewer-hcas", &words, evidence))
    })
}

/// The GUIDs of a machine's HCAs of a kind.
fn guids<'a>(machine: &'a NodeFacts, kind: &str) -> Vec<Option<&'a str>> {
    let alike = machine.rdma.iter().filter(|device| device.hca_type.as_deref() == Some(kind));
    alike.map(|device| device.system_guid.as_deref()).collect()
}

/// Whether two machines are known to be two: by their names, or because they share no HCA.
fn is_other(one: &NodeFacts, other: &NodeFacts, kind: &str) -> bool {
    let (own, others) = (guids(one, kind), guids(other, kind));
    let is_named = !one.host.is_empty() && !other.host.is_empty();
    is_named || own.iter().all(|guid| guid.is_some() && !others.contains(guid))
}

/// The name of a machine, else of the input that shows it.
fn name<'a>(case: &Case<'a>, machine: &'a NodeFacts) -> &'a str {
    let input = || case.run.inputs.get(machine.lines.first()?.source.place.input as usize);
    let file = || Some(input()?.path.rsplit('/').next().unwrap_or_default());
    Some(machine.host.as_str()).filter(|host| !host.is_empty()).or_else(file).unwrap_or("the machine")
}

/// Each machine, by what was checked of it.
pub(crate) fn judge(case: &Case) -> Vec<Judged> {
    let mut judged: Vec<(&NodeFacts, Vec<CheckItem>)> = Vec::new();
    for (machine, item) in checked(case) {
        match judged.last_mut().filter(|(known, _)| std::ptr::eq::<NodeFacts>(*known, machine)) {
            Some((_, items)) => items.push(item),
            None => judged.push((machine, vec![item])),
        }
    }
    let judged = judged.into_iter().filter_map(|(machine, items)| {
        let passed = items.iter().filter(|item| item.outcome == Outcome::Ok).count();
        let fails =
            |item: &&CheckItem| severity(case, machine, item).is_some_and(|(severity, _)| severity > Severity::Info);
        let failed = items.iter().filter(fails).count();
        let minor = items.iter().filter(|item| item.remedy.is_some() && !fails(item));
        let minor: String = minor.map(|item| format!(", {} {}", item.item, item.detail)).collect();
        let what = Some(machine.host.as_str()).filter(|host| !host.is_empty()).unwrap_or("the machine");
        let open = items.iter().find_map(|item| question(case, machine, item, passed == 0));
        let (outcome, how) = match (failed, passed) {
            (0, 0) if open.is_none() => return None,
            (0, _) if open.is_some() => (Judgement::Undecided, format!("{passed} checks passed{minor}")),
            (0, 1) => (Judgement::Passed, format!("1 check passed{minor}")),
            (0, _) => (Judgement::Passed, format!("{passed} checks passed{minor}")),
            _ => (Judgement::Failed, format!("{failed} of {} checks failed{minor}", passed + failed)),
        };
        let question = open.filter(|_| outcome == Judgement::Undecided);
        Some(Judged { question, ..Judged::new(Subject::Host, what, how, outcome) })
    });
    let judged: Vec<Judged> = judged.collect();
    let of_run = run_unseen(case).filter(|_| !judged.is_empty());
    judged.into_iter().chain(of_run).collect()
}

/// The input names a run but not its outcome: sound machines do not make it healthy.
fn run_unseen(case: &Case) -> Option<Judged> {
    let is_of_run =
        |kind: &InputKind| !kind.is_of_tool() && !matches!(kind, InputKind::TopoMatrix | InputKind::TopoXml);
    let tells = case.run.inputs.iter().flat_map(|input| &input.kinds).any(is_of_run);
    let is_seen = !case.run.tables.is_empty() || case.run.communicators.iter().any(|comm| comm.came_up());
    let how = "the input does not show how it went";
    (tells && !is_seen).then(|| Judged::new(Subject::Course, "the run", how, Judgement::Undecided))
}

/// Facts from commands that no check can judge, if there is no run to judge either; a note if there is nothing else.
fn question(case: &Case, machine: &NodeFacts, item: &CheckItem, alone: bool) -> Option<String> {
    let why = match item.outcome {
        Outcome::Skip => item.why.clone()?,
        Outcome::Warn if alone && item.code.is_none() => format!("{}: does a run suffer? Give its output", item.detail),
        _ => return None,
    };
    let is_open = machine.partial && case.run.tables.is_empty() && case.run.communicators.is_empty();
    is_open.then(|| format!("{} {} {why}", subject(item), item.item).trim_start().to_string())
}
