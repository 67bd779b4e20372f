//! Interfaces that NCCL uses for its sockets and that do not reach other nodes.

use super::found;
use crate::case::{Case, network_of};
use crate::interfaces::LocalInterface;
use crate::lines::Line;
use busbw_model::{Communicator, EnvSetting, Evidence, Finding, NetworkLine, Nic, Severity, Speaker};
use std::collections::HashSet;
use std::fmt::Display;

/// The variable that names interfaces.
const IFNAME: &str = "NCCL_SOCKET_IFNAME";

/// Interfaces that NCCL lists and that cannot reach another node: the first above all, over which ranks meet.
pub fn taken(case: &Case) -> Vec<Finding> {
    if stays_on_node(case) {
        return Vec::new();
    }
    let failure = failure(case);
    let set = case.run.nccl.env_value(IFNAME);
    let apart = failure.is_some() || hosts(case) > 1;
    let networked = case.run.communicators.iter().any(|comm| network_of(comm).is_some());
    let meant = |nic: &Nic| set.is_some_and(|set| names(set, &nic.name));
    let misleading = |taken: &UselessInterface| match taken.inner {
        // NCCL leaves loopback aside where it has another interface, and needs no other on one host.
        LocalInterface::Loopback => taken.first && apart,
        LocalInterface::LinkLocal => (taken.first || apart) && !meant(taken.nic),
        LocalInterface::Containers => (taken.first || apart || networked) && !meant(taken.nic),
    };
    let worst = listed(case)
        .into_iter()
        .filter(misleading)
        .max_by_key(|taken| (taken.first, taken.count, std::cmp::Reverse(taken.line.source.place)));
    worst.map(|taken| taken.finding(set, failure.filter(|line| taken.could_fail(line)))).into_iter().collect()
}

/// An address that was never filled in, to which NCCL connects all the same: `connecting to address  with family 59936 is
/// neither AF_INET(2) nor AF_INET6(10)` (`src/misc/socket.cc`).
pub fn without_address(case: &Case) -> Vec<Finding> {
    let family = |line: &Line| {
        let (_, rest) = line.text.split_once("with family ")?;
        rest.contains("is neither AF_INET").then(|| rest.split(' ').next().unwrap_or_default().to_string())
    };
    let Some((line, family)) = case.lines.iter().find_map(|line| Some((line, family(line)?))) else {
        return Vec::new();
    };
    let set = case.run.nccl.env_value(IFNAME);
    let evidence = std::iter::once(Evidence::noted(line.source.clone(), format!("family {family}")));
    let setting = set.map(|set| Evidence::new(set.source.clone()));
    let evidence: Vec<Evidence> = evidence.chain(setting).collect();
    let value = set.map_or("", |set| &set.value);
    let id = if set.is_some() { "interface.none" } else { "interface.no-address" };
    vec![found(id, &[("value", &value), ("family", &family)], evidence)]
}

/// Whether no connection leaves the node: as communicators say, or as all their connections show.
fn stays_on_node(case: &Case) -> bool {
    let within = |comm: &Communicator| {
        let transports = &comm.transports;
        !transports.is_empty() && transports.iter().all(|transport| !transport.kind.is_network())
    };
    let stays = |comm: &Communicator| match comm.nnodes {
        Some(nodes) => nodes == 1,
        None => hosts(case) == 1 && within(comm),
    };
    !case.run.communicators.is_empty() && case.run.communicators.iter().all(stays)
}

/// How many hosts the input shows.
fn hosts(case: &Case) -> usize {
    let told = case.run.communicators.iter().filter_map(|comm| comm.nnodes).max().unwrap_or(0);
    case.run.nodes.len().max(told as usize)
}

/// A connection of NCCL's that failed. What is tried again counts as long as no communicator stands.
fn failure<'a>(case: &'a Case) -> Option<&'a Line<'a>> {
    const CONNECT: [&str; 3] = ["onnect to ", "Call to connect", "onnect returned"];
    const SOCKETS: [&str; 2] = ["socketStartConnect", "socketPollConnect"];
    const FAILED: [&str; 6] = ["failed", "refused", "timed out", "timeout", "No route to host", "unreachable"];
    let holds = |line: &Line, words: &[&str]| words.iter().any(|word| line.text.contains(word));
    let stands = case.run.communicators.iter().any(Communicator::came_up);
    case.lines.iter().find(|line| {
        let connects = holds(line, &SOCKETS) || line.speaker != Speaker::Program && holds(line, &CONNECT);
        let again = stands && line.text.contains("retrying");
        connects && holds(line, &FAILED) && !again
    })
}

/// Whether a setting names an interface: by a prefix, or whole behind `=`. What stands behind `^` is left out instead.
fn names(set: &EnvSetting, interface: &str) -> bool {
    let value = set.value.trim_matches('"');
    let fits = |part: &str| match part.strip_prefix('=') {
        Some(whole) => interface == whole,
        None => !part.is_empty() && interface.starts_with(part),
    };
    !value.starts_with('^') && value.split(',').any(fits)
}

/// An interface of a list that leads to no other node.
struct UselessInterface<'a> {
    line: &'a NetworkLine,
    nic: &'a Nic,
    inner: LocalInterface,
    /// It is the first that its host lists.
    first: bool,
    /// How many its list holds.
    count: usize,
}

/// Every such interface, in the order of the input.
fn listed<'a>(case: &Case<'a>) -> Vec<UselessInterface<'a>> {
    let mut begun: HashSet<Option<&str>> = HashSet::new();
    let mut found = Vec::new();
    let of_sockets = |line: &&NetworkLine| matches!(line.network.as_str(), "Socket" | "Bootstrap");
    for line in case.run.nccl.networks.iter().filter(of_sockets) {
        for nic in line.listed() {
            let first = begun.insert(line.host.as_deref());
            let inner = LocalInterface::of(&nic.name, nic.address.as_deref());
            found.extend(inner.map(|inner| UselessInterface { line, nic, inner, first, count: line.listed().len() }));
        }
    }
    found
}

impl UselessInterface<'_> {
    /// Whether the failure may be this interface's: the address that the line names, if any, leads nowhere either, or lies
    /// in the same network.
    fn could_fail(&self, line: &Line) -> bool {
        let address = line.text.split_once("onnect to ").and_then(|(_, rest)| rest.split('<').next());
        let Some(address) = address.filter(|text| text.contains(['.', ':'])) else { return true };
        let network = |text: &str| text.rsplitn(3, '.').nth(2).map(str::to_string);
        let own = self.nic.address.as_deref().and_then(network);
        LocalInterface::of("", Some(address)).is_some() || own.is_some() && own == network(address)
    }

    fn finding(&self, set: Option<&EnvSetting>, failure: Option<&Line>) -> Finding {
        let (name, why) = (&self.nic.name, self.inner.why());
        let address = self.nic.address.as_ref().map_or(String::new(), |address| format!(" ({address})"));
        let excluding = set.filter(|set| set.value.starts_with('^') && self.inner == LocalInterface::Loopback);
        let severity = if failure.is_some() { Severity::Error } else { Severity::Warning };
        let confidence = match (self.count, failure) {
            (_, Some(_)) => 0.93,
            (1, None) if self.inner != LocalInterface::Loopback => 0.75,
            (_, None) => 0.92,
        };
        let id = match (self.inner, excluding) {
            (LocalInterface::Loopback, Some(_)) => "interface.loopback-admitted",
            (LocalInterface::Loopback, None) => "interface.loopback",
            _ => "interface.taken",
        };
        let value = excluding.map_or("", |set| &set.value);
        let words: [(&str, &dyn Display); 4] =
            [("name", name), ("address", &address), ("why", &why), ("value", &value)];
        let shown = Evidence::noted(self.line.source.clone(), format!("{name}: {why}"));
        let setting = excluding.map(|set| Evidence::noted(set.source.clone(), "lo is not excluded"));
        let failed = failure.map(|line| Evidence::new(line.source.clone()));
        let evidence = std::iter::once(shown).chain(setting).chain(failed).collect();
        Finding { severity, confidence, ..found(id, &words, evidence) }
    }
}
