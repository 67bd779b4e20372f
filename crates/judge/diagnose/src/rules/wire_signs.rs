//! What keeps RoCE below its rate, as the tools of the wire tell beside their figures: a small MTU, counters that should not rise.
//! Notes: the MTU costs some hundredths, and one sample does not say over what time it counts.

use super::{found, wire_test::port_rate};
use crate::case::Case;
use crate::check::counters::should_not_rise;
use busbw_model::counters::Cause;
use busbw_model::{Evidence, Finding, PerfTest, RdmaSample, RdmaValue};
use std::collections::BTreeMap;
use std::fmt::Display;

/// The largest MTU of RoCE.
const LARGEST_MTU: u32 = 4096;
/// What the wire carries beside a packet's payload: preamble, Ethernet, its check and gap 38, IPv4 20, UDP 8, BTH 12, check 4
/// (InfiniBand Architecture Specification, annex A17: RoCEv2).
const AROUND_PAYLOAD: u32 = 82;

/// Tests that ran over RoCE with small packets.
pub fn small_packets(case: &Case) -> Vec<Finding> {
    let mut devices: Vec<&str> = Vec::new();
    let tests = case.run.perftests.iter().filter(|test| test.link_type.as_deref() == Some("Ethernet"));
    let findings = tests.filter_map(|test| {
        let device = test.device.as_deref().unwrap_or("the device");
        let finding = of_test(case, test, device).filter(|_| !devices.contains(&device))?;
        devices.push(device);
        Some(finding)
    });
    findings.collect()
}

fn of_test(case: &Case, test: &PerfTest, device: &str) -> Option<Finding> {
    let mtu = test.mtu.filter(|mtu| *mtu < LARGEST_MTU)?;
    let share = |mtu: u32| f64::from(mtu) / f64::from(mtu + AROUND_PAYLOAD);
    let percent = |mtu| format!("{:.0}%", 100.0 * share(mtu));
    let most = match port_rate(case, test.device.as_deref()) {
        Some((_, rate)) => format!("{:.0} of {rate} Gbit/s", rate * share(mtu)),
        None => format!("{} of the port's rate", percent(mtu)),
    };
    let (now, best) = (percent(mtu), percent(LARGEST_MTU));
    let words: [(&str, &dyn Display); 5] =
        [("mtu", &mtu), ("device", &device), ("most", &most), ("now", &now), ("best", &best)];
    let evidence = test.mtu_line.iter().cloned().map(Evidence::new).collect();
    Some(found("wire.mtu", &words, evidence))
}

/// Counters of the last sample of an RDMA monitor that should not rise, by their cause.
pub fn counted(case: &Case) -> Vec<Finding> {
    let mut by_cause: BTreeMap<&str, (&Cause, Vec<&RdmaValue>)> = BTreeMap::new();
    for value in case.run.rdma_samples.last().into_iter().flat_map(|sample: &RdmaSample| &sample.values) {
        let known = should_not_rise(&value.name).filter(|(counter, _)| value.total > counter.per_second);
        if let Some((_, cause)) = known {
            by_cause.entry(&cause.name).or_insert((cause, Vec::new())).1.push(value);
        }
    }
    by_cause.into_values().map(|(cause, values)| of_cause(cause, &values)).collect()
}

fn of_cause(cause: &Cause, values: &[&RdmaValue]) -> Finding {
    let counters: Vec<String> = values.iter().map(|value| format!("{} {}", value.name, value.total)).collect();
    let counters = counters.join(", ");
    let words: [(&str, &dyn Display); 3] =
        [("counters", &counters), ("meaning", &cause.meaning), ("remedy", &cause.remedy)];
    let evidence = values.iter().map(|value| Evidence::new(value.source.clone())).collect();
    Finding { code: cause.code, ..found("wire.counters", &words, evidence) }
}
