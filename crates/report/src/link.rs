//! What text and page share of links: words, and how a figure compares with the others.

use busbw_model::{LinkFigures, LinkRun, LinkTransport, Micros, gbit};

/// How a figure compares with the median of all.
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

/// Below this share of the median, a figure is low, and far below it.
const LOW: f64 = 0.9;
const FAR_BELOW: f64 = 0.7;

/// How a figure compares with the upper half of `all`: where several are slow, the median is itself one of them.
pub(crate) fn level(value: f64, all: impl Iterator<Item = f64>) -> Level {
    match value / upper(all).unwrap_or(value) {
        share if share < FAR_BELOW => Level::FarBelow,
        share if share < LOW => Level::Low,
        _ => Level::Good,
    }
}

/// The third quarter's end; the two directions of a single pair are not held against each other.
fn upper(all: impl Iterator<Item = f64>) -> Option<f64> {
    let mut all: Vec<f64> = all.filter(|value| value.is_finite()).collect();
    all.sort_unstable_by(f64::total_cmp);
    all.get(all.len() * 3 / 4).copied().filter(|_| all.len() > 2)
}

/// What the marks mean; nothing where there is none.
pub(crate) fn legend(all: impl Iterator<Item = f64> + Clone) -> String {
    let Some(upper) = upper(all.clone()) else { return String::new() };
    if all.clone().all(|value| level(value, all.clone()) == Level::Good) {
        return String::new();
    }
    format!(
        "- below {} and ! below {} Gbit/s: 90% and 70% of what the faster links reach",
        gbit(LOW * upper),
        gbit(FAR_BELOW * upper)
    )
}

/// A figure that may be missing.
pub(crate) fn cell(value: Option<f64>) -> String {
    value.map_or_else(|| "·".into(), gbit)
}

/// `12.3 µs`, `1.25 ms`.
pub(crate) fn micros(time: Micros) -> String {
    if time.0 < 1000.0 { format!("{:.1} µs", time.0) } else { format!("{:.2} ms", time.0 / 1e3) }
}

/// What was lost on the way, if anything.
pub(crate) fn loss(figures: &LinkFigures) -> Option<String> {
    if !figures.losses.is_empty() {
        let counters: Vec<String> = figures.losses.iter().map(|(name, by)| format!("{name} +{by}")).collect();
        return Some(format!("packets lost or out of order: {}", counters.join(", ")));
    }
    let share = figures.resent_share.filter(|share| *share >= 0.001)?;
    Some(format!("{:.1}% of TCP's segments were sent again", share * 100.0))
}

/// `3 ends, TCP over eth0, each 25 Gbit/s`.
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
    format!("{} ends, {how} over {}{rate}", run.ends.len(), nics.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_compare_with_the_faster_links() {
        let all = [9.4, 9.2, 8.0, 1.0, 1.0, 0.9, 9.3, 9.4];
        for (value, expected) in [(9.4, Level::Good), (8.0, Level::Low), (1.0, Level::FarBelow)] {
            assert_eq!(level(value, all.into_iter()), expected, "{value}");
        }
        assert_eq!(legend([9.4, 9.3].into_iter()), "");
    }

    #[test]
    fn times_have_the_unit_that_suits_them() {
        assert_eq!([12.34, 1250.0].map(|time| micros(Micros(time))), ["12.3 µs", "1.25 ms"]);
    }
}
