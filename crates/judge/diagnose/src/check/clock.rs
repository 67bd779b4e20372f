//! Clocks and the speed of cores.

use super::area_report::AreaReport;
use busbw_model::node::Known;
use busbw_model::{Code, NodeFacts};

pub(super) fn check(node: &NodeFacts, report: &mut AreaReport) {
    match &node.clock {
        Known::Unknown(why) => report.skip("clock", why),
        Known::Known(clock) if clock.synchronised => {
            report.ok("clock", format!("synchronised, within {:.1} ms", clock.error_us as f64 / 1000.0));
        }
        Known::Known(_) => {
            let remedy = "Times in the logs of several nodes cannot be compared: `sudo systemctl enable --now chronyd`";
            report.warn("clock", "not synchronised", None, remedy);
        }
    }
    let slow: Vec<String> = node
        .governors
        .iter()
        .filter(|(governor, _)| governor.as_str() != "performance" && governor.as_str() != "schedutil")
        .map(|(governor, cores)| format!("{governor} on {cores} cores"))
        .collect();
    if node.governors.is_empty() {
        report.skip("governor", "the kernel shows none, as in most virtual machines");
    } else if slow.is_empty() {
        report.ok("governor", node.governors.keys().cloned().collect::<Vec<_>>().join(", "));
    } else {
        let remedy =
            "Cores that slow down between messages delay each message: `sudo cpupower frequency-set -g performance`";
        report.warn("governor", slow.join(", "), Some(Code::LatencyHigh), remedy);
    }
}
