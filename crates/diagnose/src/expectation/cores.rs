//! Tables of ranks on CPU cores, as `busbw bench` gives them without GPUs.

use crate::case::Test;
use busbw_model::{Judged, Judgement, Subject};

/// What copies between cores of a host reach, and what sockets carry between hosts, GB/s: from a core that shares its
/// memory to a socket of a server, and from 1 Gbit/s Ethernet to all that kernel sockets carry.
const IN_A_HOST: (f64, f64) = (1.0, 100.0);
const BETWEEN_HOSTS: (f64, f64) = (0.08, 25.0);

/// Judges such a table by what cores usually reach.
pub(super) fn judged(test: &Test) -> Option<Judged> {
    if !test.on_cores() {
        return None;
    }
    let (low, high) = if test.crosses_nodes() { BETWEEN_HOSTS } else { IN_A_HOST };
    let plateau = test.curve.plateau;
    let usual = (low..=high).contains(&plateau.0);
    let where_ = if test.crosses_nodes() { "cores of several hosts" } else { "cores of a host" };
    Some(Judged {
        subject: Subject::Speed,
        what: format!("{} on CPU cores", test.table.collective.map_or("the collective", |c| c.name())),
        how: format!("{plateau}; {where_} usually reach {low} to {high}"),
        outcome: if usual { Judgement::Passed } else { Judgement::Undecided },
        question: (!usual).then(|| {
            format!(
                "{plateau} between {where_}, which usually reach {low} to {high}: was the machine busy? Run again with nothing \
                 else on it"
            )
        }),
    })
}
