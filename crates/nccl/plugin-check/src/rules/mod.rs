//! NCCL's rules for plugins, each as a test case with two ends: those for networks here, the others in files of their own.

mod connecting;
mod ending;
mod messages;
mod profiler;
mod requests;
mod sizes;
mod tuner;

use crate::api::{Memory, Profiler, Tuner};
use crate::case::{Case, CaseResult, End, Stop};
use crate::surroundings::Surroundings;
use crate::wire::Wrong;
use busbw_model::{Breach, RuleOutcome};

/// A rule: its name, what it asks for, what it is to NCCL, and the test case that shows whether it is kept.
pub(crate) struct Rule {
    pub name: &'static str,
    pub asks: &'static str,
    pub nccl: Nccl,
    pub source: Source,
    pub run: Run,
}

/// A test case, by the part of a plugin's file that it is about; tuners and profilers are tried in each version that the file has.
#[derive(Clone, Copy)]
pub(crate) enum Run {
    Network(fn(&mut Case) -> CaseResult<RuleOutcome>),
    Tuner(Surroundings, fn(&mut Case<Tuner>) -> CaseResult<RuleOutcome>),
    Profiler(Surroundings, fn(&mut Case<Profiler>) -> CaseResult<RuleOutcome>),
}

impl Run {
    /// What the process that loads the plugin is to find.
    pub fn surroundings(&self) -> Surroundings {
        match self {
            Run::Network(_) => Surroundings::AsTheyAre,
            Run::Tuner(surroundings, _) | Run::Profiler(surroundings, _) => *surroundings,
        }
    }
}

/// What a rule is to NCCL.
pub(crate) enum Nccl {
    /// NCCL does what the rule tests: what comes of a plugin that breaks it.
    Relies(&'static str),
    /// NCCL never does what the rule tests, and why: what is seen is a note.
    Never(&'static str),
}

/// A line of NCCL's source that shows what NCCL does, in the newest version that was read and in the oldest where it is alike.
pub(crate) struct Source {
    pub newest: &'static str,
    pub oldest: Option<&'static str>,
}

impl Source {
    /// The versions that were read, of the 2.18 that busbw supports at least to the newest.
    const NEWEST: &'static str = "2.30.7";
    const OLDEST: &'static str = "2.18.6";

    pub fn lines(&self) -> Vec<String> {
        let oldest = self.oldest.map(|line| format!("{line} (NCCL {})", Self::OLDEST));
        [format!("{} (NCCL {})", self.newest, Self::NEWEST)].into_iter().chain(oldest).collect()
    }
}

/// The rules for networks, in the order in which they are tried: what later ones build on comes first.
const NETWORK: &[Rule] = &[
    Rule {
        name: "connect",
        asks: "connect and accept return at once, and are called again until the other end is there",
        nccl: Nccl::Relies(
            "one thread of NCCL's connects all channels of a rank: while a call waits, no other connection comes up, and \
             ncclCommAbort is not heard",
        ),
        source: Source { newest: "src/transport/net.cc:1071", oldest: Some("src/transport/net.cc:724") },
        run: Run::Network(connecting::without_waiting),
    },
    Rule {
        name: "listen",
        asks: "an unused listener can be closed, and a connection outlives its listener",
        nccl: Nccl::Relies(
            "NCCL closes a listener as soon as accept gave a connection, or when it gives up before that",
        ),
        source: Source { newest: "src/transport/net.cc:1090", oldest: Some("src/transport/net.cc:735") },
        run: Run::Network(connecting::listeners),
    },
    Rule {
        name: "order",
        asks: "messages of one tag arrive in the order in which they were sent, whole",
        nccl: Nccl::Relies("what arrives is the data of a collective: the result is wrong, and nothing says so"),
        source: Source { newest: "src/transport/net.cc:1590", oldest: Some("src/transport/net.cc:1112") },
        run: Run::Network(messages::in_order),
    },
    Rule {
        name: "sizes",
        asks: "a message may be smaller than its room, or empty; test tells its size",
        nccl: Nccl::Relies("NCCL receives into rooms of a fixed size, and messages are often smaller"),
        source: Source { newest: "src/transport/net.cc:1641", oldest: Some("src/transport/net.cc:1149") },
        run: Run::Network(sizes::smaller_than_room),
    },
    Rule {
        name: "truncation",
        asks: "a message larger than its room is an error, and nothing is written beyond the room",
        nccl: Nccl::Relies(
            "where ranks disagree about counts, NCCL_PROTO or NCCL_ALGO: memory is overwritten or data is lost, and \
             no error says so",
        ),
        source: Source { newest: "plugins/net/README.md:388", oldest: Some("ext-net/README.md:323") },
        run: Run::Network(messages::larger_than_room),
    },
    Rule {
        name: "tags",
        asks: "grouped receives match sends by tag, in any order of the sends",
        nccl: Nccl::Relies(
            "NCCL groups receives from several ranks where maxRecvs allows it: data goes to the wrong rank",
        ),
        source: Source { newest: "src/transport/net.cc:1575", oldest: Some("src/transport/net.cc:1103") },
        run: Run::Network(messages::by_tag),
    },
    Rule {
        name: "requests",
        asks: "as many requests as a connection may have (32; 8 in version 6) are accepted before any is tested",
        nccl: Nccl::Relies("NCCL keeps several requests in flight on a connection, and an error ends the job"),
        source: Source { newest: "src/transport/net.cc:1416", oldest: Some("src/transport/net.cc:991") },
        run: Run::Network(requests::as_many_as_nccl),
    },
    Rule {
        name: "busy",
        asks: "one request too many returns null, to be tried again, not an error",
        nccl: Nccl::Never("NCCL never has more than NCCL_NET_MAX_REQUESTS on a connection"),
        source: Source { newest: "src/include/plugin/nccl_net.h:37", oldest: Some("src/include/nccl_net.h:20") },
        run: Run::Network(requests::busy),
    },
    Rule {
        name: "both-ways",
        asks: "connections in both directions carry large messages at the same time",
        nccl: Nccl::Relies(
            "one thread of NCCL's works on all connections of a rank: a call that waits for one stops the others",
        ),
        source: Source { newest: "src/proxy.cc:980", oldest: Some("src/proxy.cc:856") },
        run: Run::Network(requests::both_ways),
    },
    Rule {
        name: "flush",
        asks: "iflush of what was received ends",
        nccl: Nccl::Never("NCCL flushes GPU memory only, and this test has the host's"),
        source: Source { newest: "src/transport/net.cc:1637", oldest: Some("src/transport/net.cc:1145") },
        run: Run::Network(requests::flush),
    },
    Rule {
        name: "contexts",
        asks: "each communicator has its own context, and ending one does not affect the others (version 11 on)",
        nccl: Nccl::Relies("NCCL starts and ends a context with each communicator of a process"),
        source: Source { newest: "src/plugin/net.cc:309", oldest: None },
        run: Run::Network(connecting::contexts),
    },
    Rule {
        name: "peer-death",
        asks: "when the other process dies, test returns an error",
        nccl: Nccl::Relies(
            "NCCL waits for a receive without limit: without an error of test the job hangs until something aborts it",
        ),
        source: Source { newest: "src/proxy.cc:982", oldest: None },
        run: Run::Network(ending::peer_death),
    },
    Rule {
        name: "close",
        asks: "close returns while requests are in flight, and the other end gets an error or its data",
        nccl: Nccl::Relies(
            "ncclCommAbort closes connections whatever is in flight: without this it hangs, or the other end does",
        ),
        source: Source { newest: "src/proxy.cc:1932", oldest: Some("src/proxy.cc:1543") },
        run: Run::Network(ending::close_under_way),
    },
];

pub(crate) fn all() -> impl Iterator<Item = &'static Rule> {
    NETWORK.iter().chain(tuner::RULES).chain(profiler::RULES)
}

pub fn rule_names() -> impl Iterator<Item = &'static str> {
    all().map(|rule| rule.name)
}

fn kept(seen: impl Into<String>) -> RuleOutcome {
    RuleOutcome::Kept(seen.into())
}

/// What NCCL does not stumble over, and why.
fn noted(seen: impl Into<String>, why: &str) -> RuleOutcome {
    RuleOutcome::Noted(Breach { seen: seen.into(), stumbles: false, why: why.to_owned() })
}

fn wrong<T>(what: impl Into<String>) -> CaseResult<T> {
    Err(Stop::Wrong(what.into().into()))
}

/// Looks at the bytes of a message and nothing else: which size test told is a matter of its own.
fn arrived(seed: u64, len: usize, memory: Memory) -> CaseResult<()> {
    match memory.differs(len, seed) {
        Some(at) => Err(Stop::Wrong(Wrong {
            cause: "a message arrived out of order, cut or changed".into(),
            detail: format!("message {seed} of {len} bytes differs at byte {at}"),
        })),
        None if !memory.guards_hold() => wrong(format!("message {seed} of {len} bytes was written beyond its room")),
        None => Ok(()),
    }
}

/// Closes an end, once the other end is as far.
fn close(case: &mut Case, end: End) -> CaseResult<()> {
    case.barrier()?;
    match end {
        End::Sender(sender) => case.plugin.close_send(sender)?,
        End::Receiver(receiver) => case.plugin.close_recv(receiver)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_docs_have_each_rule_with_its_lines_of_source() {
        let docs = include_str!("../../../../../docs/plugin-check.md");
        for rule in all() {
            let row = docs.lines().find(|line| line.starts_with(&format!("| {} |", rule.name))).unwrap_or_default();
            for line in [Some(rule.source.newest), rule.source.oldest].into_iter().flatten() {
                assert!(row.contains(&format!("`{line}`")), "{}: {line} is not in {row:?}", rule.name);
            }
        }
    }
}
