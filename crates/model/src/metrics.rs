//! Metrics in Prometheus' text format, version 0.0.4 (docs/instrumenting/exposition_formats.md of prometheus/docs).

use std::collections::BTreeMap;
use std::fmt;

/// Labels of a series: names and values.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// Metrics by name. What is added under the same name and labels adds up, since a series may stand in an answer once only.
///
/// ```
/// let mut metrics = busbw_model::metrics::Metrics::default();
/// metrics.gauge("busbw_ranks", "Ranks.", &[("host", "a")], 2.0);
/// metrics.gauge("busbw_ranks", "Ranks.", &[("host", "a")], 2.0);
/// assert_eq!(metrics.to_string(), "# HELP busbw_ranks Ranks.\n# TYPE busbw_ranks gauge\nbusbw_ranks{host=\"a\"} 4\n");
/// ```
#[derive(Debug, Clone, Default)]
pub struct Metrics(BTreeMap<String, Metric>);

#[derive(Debug, Clone)]
struct Metric {
    kind: &'static str,
    help: String,
    series: BTreeMap<String, f64>,
}

impl Metrics {
    /// Adds to what only grows, until it is reset.
    pub fn counter(&mut self, name: &str, help: &str, labels: Labels<'_>, value: f64) {
        self.add("counter", name, help, labels, value);
    }

    /// Adds to what goes up and down.
    pub fn gauge(&mut self, name: &str, help: &str, labels: Labels<'_>, value: f64) {
        self.add("gauge", name, help, labels, value);
    }

    /// Sets what goes up and down: what was measured last counts.
    pub fn set(&mut self, name: &str, help: &str, labels: Labels<'_>, value: f64) {
        self.gauge(name, help, labels, 0.0);
        if let Some(series) = self.0.get_mut(name).and_then(|metric| metric.series.get_mut(&written(labels))) {
            *series = value;
        }
    }

    /// Adds to what other programs serve without a type.
    pub fn untyped(&mut self, name: &str, help: &str, labels: Labels<'_>, value: f64) {
        self.add("untyped", name, help, labels, value);
    }

    /// Adds a series for each of several states: 1 for the one that is, 0 for the others, so that no series comes and goes.
    pub fn state(&mut self, name: &str, help: &str, label: &str, states: &[&str], is: &str) {
        for state in states {
            self.gauge(name, help, &[(label, state)], f64::from(u8::from(*state == is)));
        }
    }

    fn add(&mut self, kind: &'static str, name: &str, help: &str, labels: Labels<'_>, value: f64) {
        let new = || Metric { kind, help: help.to_owned(), series: BTreeMap::new() };
        let metric = self.0.entry(name.to_owned()).or_insert_with(new);
        *metric.series.entry(written(labels)).or_default() += value;
    }
}

/// `{device="eth0"}`; nothing without labels.
fn written(labels: Labels<'_>) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}}", labels.join(","))
}

impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, Metric { kind, help, series }) in &self.0 {
            let help = help.replace('\\', "\\\\").replace('\n', "\\n");
            writeln!(f, "# HELP {name} {help}\n# TYPE {name} {kind}")?;
            for (labels, value) in series {
                writeln!(f, "{name}{labels} {value}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_end_a_value_is_escaped() {
        let mut metrics = Metrics::default();
        metrics.untyped("a", "back\\slash\nline", &[("name", "quote\" back\\slash\nline")], 0.5);
        let written = metrics.to_string();
        assert!(written.starts_with("# HELP a back\\\\slash\\nline\n# TYPE a untyped\n"), "{written}");
        assert!(written.ends_with("a{name=\"quote\\\" back\\\\slash\\nline\"} 0.5\n"), "{written}");
    }

    #[test]
    fn every_state_has_a_series() {
        let mut metrics = Metrics::default();
        metrics.state("a", "A.", "state", &["up", "down"], "down");
        assert!(metrics.to_string().ends_with("a{state=\"down\"} 1\na{state=\"up\"} 0\n"));
    }
}
