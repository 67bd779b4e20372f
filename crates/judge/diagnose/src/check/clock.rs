//! Clocks and the speed of cores.

use super::sheet::Sheet;
use busbw_model::node::Known;
use busbw_model::{Code, NodeFacts};

pub(super) fn check(node: &NodeFacts, sheet: &mut Sheet) {
    match &node.clock {
        Known::Unknown(why) => sheet.skip("clock", why),
        Known::Known(clock) if clock.synchronised => {
            sheet.ok("clock", format!("synchronised, within {:.1} ms", clock.error_us as f64 / 1000.0));
        }
        Known::Known(_) => {
            let remedy = "Times in the logs of several nodes cannot be compared: `sudo systemctl enable --now chronyd`";
            sheet.warn("clock", "not synchronised", None, remedy);
        }
    }
    let slow: Vec<String> = node
        .governors
        .iter()
        .filter(|(governor, _)| governor.as_str() != "performance" && governor.as_str() != "schedutil")
        .map(|(governor, cores)| format!("{governor} on {cores} cores"))
        .collect();
    if node.governors.is_empty() {
        sheet.skip("governor", "the kernel shows none, as in most virtual machines");
    } else if slow.is_empty() {
        sheet.ok("governor", node.governors.keys().cloned().collect::<Vec<_>>().join(", "));
    } else {
        let remedy =
            "Cores that slow down between messages delay each message: `sudo cpupower frequency-set -g performance`";
        sheet.warn("governor", slow.join(", "), Some(Code::StragglerNode), remedy);
    }
}
