//! The answer of `busbw plugin check`.

use busbw_model::answer::Answer;
use busbw_model::{
    Breach, LinkLatency, PartOffer, PluginDevice, PluginFigures, PluginOffer, PluginReport, PluginRun, RuleOutcome,
    RuleReport,
};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;

/// Writes the JSON of plugins that were tried, with a closing line feed. No number is rounded.
pub fn write_net_plugins(run: &PluginRun, out: &mut dyn io::Write) -> io::Result<()> {
    super::write(&Plugins::new(run), out)
}

/// What `busbw plugin check --json` prints. Bandwidths are GB/s, 10^9 bytes per second (_gb_per_s), latencies are microseconds (_us). No
/// number is rounded; a number that is not finite is null. Readers must accept fields that are not described here: they may be
/// added without a new schema name.
#[derive(Serialize, JsonSchema)]
pub(super) struct Plugins<'a> {
    /// The sender's host, then the receiver's.
    hosts: &'a [String; 2],
    /// Messages under way while bandwidth was measured.
    #[schemars(range(min = 1))]
    in_flight: usize,
    /// In the order of the flags.
    plugins: Vec<Plugin<'a>>,
}

impl Answer for Plugins<'_> {
    const SCHEMA: &'static str = "busbw.net/1";
}

/// A plugin that was tried.
#[derive(Serialize, JsonSchema)]
struct Plugin<'a> {
    /// How it is called in tables.
    label: &'a str,
    /// The file.
    path: &'a str,
    /// Variables that its processes were given.
    settings: BTreeMap<&'a str, &'a str>,
    /// It can be used, and no rule that was tried is broken.
    keeps_the_rules: bool,
    /// What it says of itself; null where it cannot be used.
    offer: Option<Offer<'a>>,
    /// Why it cannot be used, or failed while it was measured.
    error: Option<&'a str>,
    /// What it logged until it turned out that it cannot be used, with NCCL's level before each line; empty where it can be used.
    logged: &'a [String],
    /// NCCL's rules, and whether it keeps them.
    rules: Vec<Rule<'a>>,
    /// One way, by message size, the smallest first.
    bandwidth: Vec<Bandwidth<'a>>,
    /// Half a round trip of 8 bytes.
    latency_us: Option<LinkLatency>,
    /// Messages of 8 bytes, one way.
    messages_per_second: Option<f64>,
}

/// What a plugin says of itself.
#[derive(Serialize, JsonSchema)]
struct Offer<'a> {
    /// The network's name (`ncclNet_t.name`); null where the file has no network.
    network: Option<&'a str>,
    /// The version of the network's interface that was used; null where the file has no network.
    version: Option<u8>,
    /// All versions of the network's interface that it exports.
    versions: &'a [u8],
    /// Its network's devices.
    devices: &'a [PluginDevice],
    /// What the network said while it started, by NCCL's logger.
    said: &'a [String],
    /// The tuner in the same file; null where there is none.
    tuner: Option<&'a PartOffer>,
    /// The profiler in the same file; null where there is none.
    profiler: Option<&'a PartOffer>,
}

/// A rule of NCCL's for plugins.
#[derive(Serialize, JsonSchema)]
struct Rule<'a> {
    /// Its short name.
    rule: &'static str,
    /// What the rule asks for.
    asks: &'static str,
    /// Lines of NCCL's source that show what NCCL does, the newest version first.
    sources: &'a [String],
    /// Whether it is kept. Noted: it is as far as NCCL goes, and more was seen. Untested: what breaks another rule stops the test, and
    /// `seen` names that rule.
    #[schemars(extend("enum" = ["kept", "noted", "broken", "untested", "not-offered"]))]
    outcome: &'static str,
    /// What happened, where that is worth telling.
    seen: &'a str,
    /// Whether NCCL would stumble over what was seen; null unless the rule is broken or noted.
    stumbles: Option<bool>,
    /// The consequence within NCCL, or why there is none.
    why: Option<&'a str>,
}

/// What a plugin reaches at a size.
#[derive(Serialize, JsonSchema)]
struct Bandwidth<'a> {
    /// The message's size.
    #[schemars(range(min = 1))]
    size_bytes: u64,
    /// The median of the repetitions.
    gb_per_s: f64,
    /// Each repetition, in their order.
    repetitions_gb_per_s: &'a [f64],
    /// Seconds of processor time of both ends for 10^9 bytes, median.
    cpu_s_per_gb: f64,
}

impl<'a> Plugins<'a> {
    fn new(run: &'a PluginRun) -> Self {
        let plugins = run.plugins.iter().map(Plugin::new).collect();
        Plugins { hosts: &run.hosts, in_flight: run.in_flight, plugins }
    }
}

impl<'a> Plugin<'a> {
    fn new(plugin: &'a PluginReport) -> Self {
        let (figures, unusable) = (plugin.figures.as_ref().ok(), plugin.offer.as_ref().err());
        Plugin {
            label: &plugin.label,
            path: &plugin.path,
            settings: plugin.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            keeps_the_rules: plugin.keeps_the_rules(),
            offer: plugin.offer.as_ref().ok().map(Offer::new),
            error: unusable.map(|unusable| &unusable.why).or(plugin.figures.as_ref().err()).map(String::as_str),
            logged: unusable.map(|unusable| unusable.logged.as_slice()).unwrap_or_default(),
            rules: plugin.rules.iter().map(Rule::new).collect(),
            bandwidth: figures.map(bandwidth).unwrap_or_default(),
            latency_us: figures.and_then(|figures| figures.latency),
            messages_per_second: figures.and_then(|figures| figures.messages_per_second),
        }
    }
}

impl<'a> Offer<'a> {
    fn new(offer: &'a PluginOffer) -> Self {
        let network = offer.network.as_ref();
        Offer {
            network: network.map(|network| network.name.as_str()),
            version: network.map(|network| network.version),
            versions: network.map_or(&[], |network| &network.versions),
            devices: network.map_or(&[], |network| &network.devices),
            said: network.map_or(&[], |network| &network.said),
            tuner: offer.tuner.as_ref(),
            profiler: offer.profiler.as_ref(),
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
            RuleOutcome::Noted(Breach { seen, .. }) => ("noted", seen),
            RuleOutcome::Broken(Breach { seen, .. }) => ("broken", seen),
            RuleOutcome::Untested(rule) => ("untested", rule),
            RuleOutcome::NotOffered(why) => ("not-offered", why),
        };
        let breach = rule.outcome.breach();
        Rule {
            rule: rule.rule,
            asks: rule.asks,
            sources: &rule.sources,
            outcome,
            seen,
            stumbles: breach.map(|breach| breach.stumbles),
            why: breach.map(|breach| breach.why.as_str()),
        }
    }
}
