//! Counters of a NIC's driver: `rules/counters.toml` says which should not rise, and what it means when one does.

use super::area_report::{AreaReport, listed};
use crate::data;
use busbw_model::counters::{Cause, Counter, Counters, Family};
use busbw_model::node::{NetInterface, NicCounter};
use std::sync::LazyLock;

static KNOWN: LazyLock<Counters> =
    LazyLock::new(|| data::built_in("counters.toml", include_str!("../../../../../rules/counters.toml")));
/// Links come up and go down while a machine boots, and every cable loses a bit now and then: so few say nothing.
const FEW_IN: u64 = 1_000_000;

/// Why a counter rises that never should. What may rise at a low rate needs a rate, which `busbw monitor` measures.
fn cause(name: &str) -> Option<&'static Cause> {
    let is_it = |known: &&Counter| known.family == Family::Driver && known.name == name && known.per_second == 0.0;
    let cause = KNOWN.counter.iter().find(is_it)?.cause.as_ref()?;
    KNOWN.cause.iter().find(|known| known.name == *cause)
}

/// A counter that should not rise faster than it is allowed, by the name that RDMA devices or monitors give it, and why it does.
pub(crate) fn should_not_rise(name: &str) -> Option<(&'static Counter, &'static Cause)> {
    /// Names of RDMA monitors, and the quantity that they count.
    const OF_MONITORS: [(&str, &str); 5] = [
        ("np_ecn_marked", "ecn_marked"),
        ("out_of_seq", "out_of_sequence"),
        ("port_discards", "discards"),
        ("port_errors", "errors"),
        ("roce_retransmissions", "retransmissions"),
    ];
    let quantity = OF_MONITORS.iter().find(|(short, _)| *short == name).map_or(name, |(_, quantity)| quantity);
    let is_it = |known: &&Counter| {
        known.family == Family::Rdma && known.name == name || known.is.is_some_and(|is| is.name() == quantity)
    };
    let counter = KNOWN.counter.iter().find(|known| is_it(known) && known.cause.is_some())?;
    Some((counter, KNOWN.cause.iter().find(|known| Some(&known.name) == counter.cause.as_ref())?))
}

/// A counter that rose shows a fault that is there; a count since the machine booted is a question, unless it is small.
pub(super) fn check(interface: &NetInterface, report: &mut AreaReport) {
    const ITEM: &str = "counters";
    let known = interface.counters.iter().filter_map(|(name, counter)| Some((name, counter, cause(name)?)));
    let known: Vec<(&String, &NicCounter, &Cause)> = known.collect();
    if known.is_empty() {
        return;
    }
    let told = |what: fn(&NicCounter) -> u64, verb: &str| -> Vec<String> {
        let some = known.iter().filter(|(_, counter, _)| what(counter) > 0);
        some.map(|(name, counter, _)| format!("{name}{verb} {}", what(counter))).collect()
    };
    let rose = told(|counter| counter.rise.unwrap_or(0), " rose by");
    let open = told(|counter| if counter.rise.is_none() { counter.count } else { 0 }, "");
    let packets = interface.counters.get("rx_packets_phy").map_or(0, |packets| packets.count);
    let few = known.iter().all(|(_, counter, _)| counter.count.saturating_mul(FEW_IN) < packets);
    let first = known.iter().find(|(_, counter, _)| counter.rise.is_some_and(|rise| rise > 0));
    let report = report.about(&interface.name);
    if let Some((.., cause)) = first {
        report.warn(ITEM, listed(&rose), Some(cause.code), &cause.remedy);
    } else if !open.is_empty() && !few {
        let why = format!(
            "{} since the driver was loaded: do they rise? Look again after a minute of traffic, and give both: `ethtool -S {}`",
            listed(&open),
            if interface.name.is_empty() { "IFACE" } else { &interface.name }
        );
        report.skip(ITEM, why);
    } else {
        report.ok(ITEM, format!("errors {}", listed(&open)));
    }
}
