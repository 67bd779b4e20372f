//! What an input shows about a machine, and the lines that show it.

use crate::place::SourceLine;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// Names of hosts, each once, in the order in which they come. Ranks of a host mostly stand beside each other.
pub(crate) fn each_once<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let (mut seen, mut each) = (HashSet::new(), Vec::new());
    for name in names {
        if each.last() != Some(&name) && seen.insert(name) {
            each.push(name);
        }
    }
    each
}

/// A line that shows a fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactLine {
    /// What it is about: `mlx5_0/1` (port 1), `eth0`, `GPU 0`, `0000:17:00.0`; empty for the host itself.
    pub device: String,
    /// What is judged by it, in the words of [`crate::CheckItem::item`]; empty where nothing is judged by it alone.
    pub item: &'static str,
    /// The command whose output has this form: `ibstat`.
    pub command: &'static str,
    /// The line.
    pub source: SourceLine,
}

/// Speed and width of a PCIe link.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PcieLink {
    /// GT/s per lane.
    pub speed_gts: f64,
    /// Number of lanes.
    pub width: u32,
    /// The device itself says that it has fewer lanes than it could (`Width x8 (downgraded)`).
    #[serde(skip)]
    pub downgraded: bool,
}

impl PcieLink {
    /// Usable bandwidth in GB/s per direction before protocol headers: 8b/10b up to 5 GT/s, 128b/130b above.
    pub fn gb_per_s(&self) -> f64 {
        let coding = if self.speed_gts <= 5.0 { 8.0 / 10.0 } else { 128.0 / 130.0 };
        self.speed_gts * coding / 8.0 * f64::from(self.width)
    }
}

/// What a port speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet, so RoCE.
    Ethernet,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pcie_rates_follow_from_speed_and_width() {
        for (speed_gts, width, gbs) in [(16.0, 16, 31.5), (32.0, 16, 63.0), (8.0, 8, 7.9), (2.5, 1, 0.25)] {
            let link = PcieLink { speed_gts, width, downgraded: false };
            assert!((link.gb_per_s() - gbs).abs() < 0.05, "{link:?}: {}", link.gb_per_s());
        }
    }
}
