//! Interfaces that NCCL takes for its sockets and that lead nowhere.

use super::Draft;
use crate::case::{Case, network_of};
use crate::interfaces::Inner;
use crate::lines::Line;
use busbw_model::{
    Code, Communicator, EnvSetting, Evidence, Finding, NetworkLine, NetworkStatement, Nic, Severity, Speaker,
};
use std::collections::HashSet;

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
    let misleading = |taken: &Taken| match taken.inner {
        // NCCL leaves loopback aside where it has another interface, and needs no other on one host.
        Inner::Loopback => taken.first && apart,
        Inner::LinkLocal => (taken.first || apart) && !meant(taken.nic),
        Inner::Containers => (taken.first || apart || networked) && !meant(taken.nic),
    };
    let found = listed(case).into_iter().filter(misleading);
    let worst = found.max_by_key(|taken| (taken.first, taken.count, std::cmp::Reverse(taken.line.source.place)));
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
    let finding = match set {
        Some(set) => no_such_interface(&set.value, &family).finding(
            evidence,
            &[
                &format!("See which interfaces each host has: `mpirun --map-by ppr:1:node bash -c 'hostname; ip -brief address'`, and which lacks {}", set.value),
                "Name one that all hosts have, or the beginning that their names share: `export NCCL_SOCKET_IFNAME=eth`",
                "See that the variable is the same in the job on every host: `mpirun --map-by ppr:1:node bash -c 'hostname; env | grep NCCL_SOCKET'`",
            ],
        ),
        None => no_address(&family).finding(
            evidence,
            &[
                "Look at the output of the other ranks, from the first WARN on: the rank whose address is missing says why",
                "Compare the NCCL that each host loads: `mpirun --map-by ppr:1:node bash -c 'hostname; ldconfig -p | grep libnccl'`, in Python `torch.cuda.nccl.version()`",
                "List the interfaces on every host, and inside the container: `ip -brief address`",
            ],
        ),
    };
    vec![finding]
}

fn no_such_interface(value: &str, family: &str) -> Draft {
    Draft {
        code: Code::NetWrongInterface,
        severity: Severity::Error,
        confidence: 0.88,
        title: format!("A host has no interface that {IFNAME}={value} admits"),
        explanation: format!(
            "A rank connects to an address of family {family}, which is neither IPv4 (2) nor IPv6 (10): it was never filled in. NCCL looked for \
             an interface that the setting admits, found none on that host, and went on without an address."
        ),
    }
}

fn no_address(family: &str) -> Draft {
    Draft {
        code: Code::NetUnreachable,
        severity: Severity::Error,
        confidence: 0.6,
        title: "A rank got no valid address of another".into(),
        explanation: format!(
            "A rank connects to an address of family {family}, which is neither IPv4 (2) nor IPv6 (10): it was never filled in, or \
             misread. The other rank found no interface for its sockets, left before it told its address, or loads another version of NCCL, \
             whose messages have another form."
        ),
    }
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
struct Taken<'a> {
    line: &'a NetworkLine,
    nic: &'a Nic,
    inner: Inner,
    /// It is the first that its host lists.
    first: bool,
    /// How many its list holds.
    count: usize,
}

/// Every such interface, in the order of the input.
fn listed<'a>(case: &Case<'a>) -> Vec<Taken<'a>> {
    let mut begun: HashSet<Option<&str>> = HashSet::new();
    let mut found = Vec::new();
    for line in &case.run.nccl.networks {
        let NetworkStatement::Using(nics) = &line.statement else { continue };
        if !matches!(line.network.as_str(), "Socket" | "Bootstrap") {
            continue;
        }
        for nic in nics {
            let first = begun.insert(line.host.as_deref());
            let inner = Inner::of(&nic.name, nic.address.as_deref());
            found.extend(inner.map(|inner| Taken { line, nic, inner, first, count: nics.len() }));
        }
    }
    found
}

impl Taken<'_> {
    /// Whether the failure may be this interface's: the address that the line names, if any, leads nowhere either, or lies
    /// in the same network.
    fn could_fail(&self, line: &Line) -> bool {
        let address = line.text.split_once("onnect to ").and_then(|(_, rest)| rest.split('<').next());
        let Some(address) = address.filter(|text| text.contains(['.', ':'])) else { return true };
        let network = |text: &str| text.rsplitn(3, '.').nth(2).map(str::to_string);
        let own = self.nic.address.as_deref().and_then(network);
        Inner::of("", Some(address)).is_some() || own.is_some() && own == network(address)
    }

    fn finding(&self, set: Option<&EnvSetting>, failure: Option<&Line>) -> Finding {
        let (name, why) = (&self.nic.name, self.inner.why());
        let address = self.nic.address.as_ref().map_or(String::new(), |address| format!(" ({address})"));
        let excluding = set.filter(|set| set.value.starts_with('^') && self.inner == Inner::Loopback);
        let draft = Draft {
            code: Code::NetWrongInterface,
            severity: if failure.is_some() { Severity::Error } else { Severity::Warning },
            confidence: match (self.count, failure) {
                (_, Some(_)) => 0.93,
                (1, None) if self.inner != Inner::Loopback => 0.75,
                (_, None) => 0.92,
            },
            title: format!("NCCL uses {name}{address}, {why}"),
            explanation: format!(
                "NCCL takes every interface that is up, or those that {IFNAME} names; ranks meet over the first, and connections are spread \
                 over all. {name} is {why}: a peer on another node cannot be reached through it, and connections fail or hang.{}",
                self.why_loopback(excluding)
            ),
        };
        let exclude = excluding.map(|set| {
            format!("Exclude lo as well: `export {IFNAME}={},lo` (an image may set it in /etc/nccl.conf)", set.value)
        });
        let remedy = exclude.iter().map(String::as_str).chain(REMEDY).collect::<Vec<_>>();
        let shown = Evidence::noted(self.line.source.clone(), format!("{name}: {why}"));
        let setting = excluding.map(|set| Evidence::noted(set.source.clone(), "lo is not excluded"));
        let failed = failure.map(|line| Evidence::new(line.source.clone()));
        draft.finding(std::iter::once(shown).chain(setting).chain(failed).collect(), &remedy)
    }

    /// How NCCL came to take loopback (`src/misc/socket.cc`).
    fn why_loopback(&self, excluding: Option<&EnvSetting>) -> String {
        match (self.inner, excluding) {
            (Inner::Loopback, Some(set)) => format!(
                " {IFNAME}={} excludes what it names and admits all else, and so admits lo, which NCCL by itself takes only where nothing \
                 else is up.",
                set.value
            ),
            (Inner::Loopback, None) => format!(
                " By itself NCCL takes lo only where nothing else is up. A {IFNAME} that excludes names without lo among them (`^docker0`) \
                 admits it; images set such a value in /etc/nccl.conf."
            ),
            _ => String::new(),
        }
    }
}

const REMEDY: [&str; 2] = [
    "List the interfaces with their addresses: `ip -brief address`",
    "Name the one that all nodes share: `export NCCL_SOCKET_IFNAME=eth0` (or exclude others: `export NCCL_SOCKET_IFNAME=^docker,lo,veth,virbr`)",
];
