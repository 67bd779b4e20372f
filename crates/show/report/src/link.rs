//! What text and page share of links: words, and how a figure compares with the others.

use crate::words::counted;
use busbw_model::{LinkFigures, LinkRun, LinkTransport, gbit, upper_quartile};
use std::collections::BTreeMap;

/// How a figure compares with what the faster links reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Good,
    Low,
    FarBelow,
}

impl Level {
    /// What stands before a figure where there are no colours.
    pub fn mark(self) -> &'static str {
        match self {
            Level::Good => "",
            Level::Low => "-",
            Level::FarBelow => "!",
        }
    }
}

/// Below this share of what the faster links reach, a figure is low, and far below it.
const LOW: f64 = 0.9;
const FAR_BELOW: f64 = 0.7;

/// What figures are compared with: the upper half of them, because the median itself is slow where several are.
pub(crate) struct Scale {
    /// The third quarter's end; none of two figures, as the two directions of a single pair are not compared.
    upper: Option<f64>,
    least: f64,
}

impl Scale {
    pub fn of(all: impl Iterator<Item = f64>) -> Self {
        let all: Vec<f64> = all.filter(|value| value.is_finite()).collect();
        let upper = upper_quartile(all.iter().copied()).filter(|_| all.len() > 2);
        Scale { upper, least: all.into_iter().reduce(f64::min).unwrap_or(0.0) }
    }

    pub fn level(&self, value: f64) -> Level {
        match value / self.upper.unwrap_or(value) {
            share if share < FAR_BELOW => Level::FarBelow,
            share if share < LOW => Level::Low,
            _ => Level::Good,
        }
    }

    /// What the marks mean; nothing where there is none.
    pub fn legend(&self) -> String {
        let Some(upper) = self.upper.filter(|_| self.level(self.least) != Level::Good) else { return String::new() };
        format!(
            "- below {} and ! below {} Gbit/s: 90% and 70% of what the faster links reach",
            gbit(LOW * upper),
            gbit(FAR_BELOW * upper)
        )
    }
}

pub(crate) fn cell(value: Option<f64>) -> String {
    value.map_or_else(|| "·".into(), gbit)
}

/// What was lost on the way, if anything.
pub(crate) fn loss(figures: &LinkFigures) -> Option<String> {
    if !figures.losses.is_empty() {
        let counters: Vec<String> = figures.losses.iter().map(|(name, by)| format!("{name} +{by}")).collect();
        return Some(format!("packets lost or out of order: {}", counters.join(", ")));
    }
    let share = figures.resent_share.filter(|share| *share >= 0.001)?;
    Some(format!("TCP retransmitted {:.1}% of segments", share * 100.0))
}

/// `3 ends, TCP over eth0, NICs of 25 Gbit/s`.
pub(crate) fn about(run: &LinkRun) -> String {
    let how = match run.transport {
        LinkTransport::Tcp => "TCP",
        LinkTransport::Rdma => "RDMA (perftest)",
    };
    let mut nics: Vec<&str> = run.ends.iter().map(|end| end.nic.as_str()).collect();
    nics.sort_unstable();
    nics.dedup();
    let mut rates: Vec<String> =
        run.ends.iter().filter_map(|end| end.rate_gbit_s).map(|rate| format!("{rate} Gbit/s")).collect();
    rates.sort_unstable();
    rates.dedup();
    let rate = if rates.is_empty() { String::new() } else { format!(", NICs of {}", rates.join(" and ")) };
    format!("{}, {how} over {}{rate}", counted(run.ends.len(), "end"), nics.join(", "))
}

/// What the hosts tell of the settings that keep RoCE lossless, those that tell the same together.
pub(crate) fn quality_of_service(run: &LinkRun) -> Option<String> {
    let mut by_setting: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (number, end) in run.ends.iter().enumerate() {
        if let Some(setting) = &end.quality_of_service {
            by_setting.entry(setting).or_default().push(run.name(number));
        }
    }
    let parts: Vec<String> = match by_setting.iter().next() {
        None => return None,
        Some((setting, ends)) if ends.len() == run.ends.len() => vec![(*setting).to_owned()],
        Some(_) => by_setting.iter().map(|(setting, ends)| format!("{}: {setting}", ends.join(", "))).collect(),
    };
    Some(format!("RoCE settings: {}", parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_compare_with_the_faster_links() {
        let all = [9.4, 9.2, 8.0, 1.0, 1.0, 0.9, 9.3, 9.4];
        for (value, expected) in [(9.4, Level::Good), (8.0, Level::Low), (1.0, Level::FarBelow)] {
            assert_eq!(Scale::of(all.into_iter()).level(value), expected, "{value}");
        }
        assert!(Scale::of(all.into_iter()).legend().starts_with("- below 8.46 and ! below 6.58 Gbit/s"));
        assert_eq!(Scale::of([9.4, 1.3].into_iter()).legend(), "");
        assert_eq!(Scale::of([9.4, 9.3, 9.2].into_iter()).legend(), "");
    }
}
