//! NCCL's rules for net plugins, each as a test case with two ends.

mod connecting;
mod ending;
mod messages;
mod requests;

use crate::case::{Case, CaseResult, Stop};
use busbw_model::RuleOutcome;

/// A rule: its name, what it asks for, and the test case that shows whether it is kept.
pub(crate) struct Rule {
    pub name: &'static str,
    pub asks: &'static str,
    pub run: fn(&mut Case) -> CaseResult<RuleOutcome>,
}

/// All rules, in the order in which they are tried: what later ones build on comes first.
pub(crate) const ALL: &[Rule] = &[
    Rule {
        name: "connect",
        asks: "connect and accept return at once, and are called again until the other end is there",
        run: connecting::without_waiting,
    },
    Rule {
        name: "listen",
        asks: "an unused listener can be closed, and a connection outlives its listener",
        run: connecting::listeners,
    },
    Rule {
        name: "order",
        asks: "messages of one tag arrive in the order in which they were sent, whole",
        run: messages::in_order,
    },
    Rule {
        name: "sizes",
        asks: "a message may be smaller than its room, or empty; test returns its size",
        run: messages::smaller_than_room,
    },
    Rule {
        name: "truncation",
        asks: "a message larger than its room is an error, and nothing is written beyond the room",
        run: messages::larger_than_room,
    },
    Rule {
        name: "tags",
        asks: "grouped receives match sends by tag, in any order of the sends",
        run: messages::by_tag,
    },
    Rule {
        name: "requests",
        asks: "as many requests as NCCL keeps in flight (32; 8 in version 6) are accepted before any is tested",
        run: requests::as_many_as_nccl,
    },
    Rule {
        name: "busy",
        asks: "one request too many returns null, to be tried again, not an error",
        run: requests::busy,
    },
    Rule {
        name: "both-ways",
        asks: "connections in both directions carry large messages at the same time",
        run: requests::both_ways,
    },
    Rule { name: "flush", asks: "iflush of what was received ends", run: requests::flush },
    Rule {
        name: "contexts",
        asks: "each communicator has its own context, and ending one does not affect the others (version 11 on)",
        run: connecting::contexts,
    },
    Rule {
        name: "close",
        asks: "close returns while requests are in flight, and the other end gets an error or its data",
        run: ending::close_under_way,
    },
    Rule { name: "peer-death", asks: "when the other process dies, test returns an error", run: ending::peer_death },
];

pub fn rule_names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|rule| rule.name)
}

fn kept(seen: impl Into<String>) -> RuleOutcome {
    RuleOutcome::Kept(seen.into())
}

fn wrong<T>(what: impl Into<String>) -> CaseResult<T> {
    Err(Stop::Wrong(what.into()))
}
