//! The schema `busbw.net/1`, described in `docs/schema/net-1.schema.json`.

use busbw_model::{LinkLatency, PluginFigures, PluginOffer, PluginReport, PluginRun, RuleOutcome, RuleReport};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;

/// The name of the schema.
const SCHEMA: &str = "busbw.net/1";

/// Writes the JSON of plugins that were tried, with a closing line feed. No number is rounded.
///
/// # Errors
/// What the writer returns.
pub fn write_net_plugins(run: &PluginRun, out: &mut dyn io::Write) -> io::Result<()> {
    super::write(&Document::new(run), out)
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    hosts: &'a [String; 2],
    in_flight: usize,
    plugins: Vec<Plugin<'a>>,
}

#[derive(Serialize)]
struct Plugin<'a> {
    label: &'a str,
    path: &'a str,
    settings: BTreeMap<&'a str, &'a str>,
    keeps_the_rules: bool,
    offer: Option<&'a PluginOffer>,
    error: Option<&'a str>,
    rules: Vec<Rule<'a>>,
    bandwidth: Vec<Bandwidth<'a>>,
    latency_us: Option<LinkLatency>,
    messages_per_second: Option<f64>,
}

#[derive(Serialize)]
struct Rule<'a> {
    rule: &'static str,
    asks: &'static str,
    outcome: &'static str,
    seen: &'a str,
}

#[derive(Serialize)]
struct Bandwidth<'a> {
    size_bytes: u64,
    gb_per_s: f64,
    repetitions_gb_per_s: &'a [f64],
    cpu_s_per_gb: f64,
}

impl<'a> Document<'a> {
    fn new(run: &'a PluginRun) -> Self {
        let plugins = run.plugins.iter().map(Plugin::new).collect();
        Document { schema: SCHEMA, hosts: &run.hosts, in_flight: run.in_flight, plugins }
    }
}

impl<'a> Plugin<'a> {
    fn new(plugin: &'a PluginReport) -> Self {
        let figures = plugin.figures.as_ref().ok();
        Plugin {
            label: &plugin.label,
            path: &plugin.path,
            settings: plugin.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            keeps_the_rules: plugin.keeps_the_rules(),
            offer: plugin.offer.as_ref().ok(),
            error: plugin.offer.as_ref().err().or(plugin.figures.as_ref().err()).map(String::as_str),
            rules: plugin.rules.iter().map(Rule::new).collect(),
            bandwidth: figures.map(bandwidth).unwrap_or_default(),
            latency_us: figures.and_then(|figures| figures.latency),
            messages_per_second: figures.and_then(|figures| figures.messages_per_second),
        }
    }
}

fn bandwidth(figures: &PluginFigures) -> Vec<Bandwidth<'_>> {
    let rows = figures.bandwidth.iter().map(|row| Bandwidth {
        size_bytes: row.size.0,
        gb_per_s: row.gb_per_s_median(),
        repetitions_gb_per_s: &row.gb_per_s,
        cpu_s_per_gb: row.cpu_s_per_gb_median(),
    });
    rows.collect()
}

impl<'a> Rule<'a> {
    fn new(rule: &'a RuleReport) -> Self {
        let (outcome, seen) = match &rule.outcome {
            RuleOutcome::Kept(seen) => ("kept", seen),
            RuleOutcome::Broken(what) => ("broken", what),
            RuleOutcome::NotOffered(why) => ("not-offered", why),
        };
        Rule { rule: rule.rule, asks: rule.asks, outcome, seen }
    }
}
