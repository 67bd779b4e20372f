//! NCCL's plugins as they were found: what they offer as network, tuner and profiler, whether they keep NCCL's rules, what they reach.

use crate::link::LinkLatency;
use crate::statistics::median;
use crate::units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Plugins tested by NCCL's rules and compared, between two ends.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginRun {
    /// The hosts of sender and receiver.
    pub hosts: [String; 2],
    /// A report for each plugin, in the order in which they were given.
    pub plugins: Vec<PluginReport>,
    /// Messages under way at once while bandwidth was measured.
    pub in_flight: usize,
}

/// One plugin.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginReport {
    /// How it is called in tables: its file's name, or its network's where those differ, with the settings it was given.
    pub label: String,
    /// Path of the plugin's library.
    pub path: String,
    /// Variables that it was given.
    pub settings: Vec<(String, String)>,
    /// What it says of itself; or why it cannot be used at all.
    pub offer: Result<PluginOffer, UnusablePlugin>,
    /// NCCL's rules, and whether it keeps them.
    pub rules: Vec<RuleReport>,
    /// What it reaches; or why nothing could be measured.
    pub figures: Result<PluginFigures, String>,
}

impl PluginReport {
    /// Whether it can be used and keeps every rule that was tried.
    pub fn keeps_the_rules(&self) -> bool {
        self.offer.is_ok() && self.rules.iter().all(|rule| !matches!(rule.outcome, RuleOutcome::Broken(_)))
    }
}

/// Why a plugin cannot be used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnusablePlugin {
    /// What failed.
    pub why: String,
    /// What it logged until then, by NCCL's logger.
    pub logged: Vec<String>,
}

/// What a plugin's file offers to NCCL.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PluginOffer {
    /// Its network, where it has one.
    pub network: Option<NetworkOffer>,
    /// Its tuner, where it has one.
    pub tuner: Option<PartOffer>,
    /// Its profiler, where it has one.
    pub profiler: Option<PartOffer>,
}

/// What a plugin's network says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetworkOffer {
    /// The network's name (`ncclNet_t.name`).
    pub name: String,
    /// The version of the interface that was used.
    pub version: u8,
    /// All versions that it exports.
    pub versions: Vec<u8>,
    /// Its devices.
    pub devices: Vec<PluginDevice>,
    /// What it said while it started, by NCCL's logger.
    pub said: Vec<String>,
}

/// A tuner or profiler in a plugin's file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartOffer {
    /// Its name, as it gives it.
    pub name: String,
    /// All versions of the interface that the file exports, the newest first.
    pub versions: Vec<u8>,
}

/// A device of a plugin (`ncclNetProperties_t`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PluginDevice {
    /// Name of the device, as the plugin gives it.
    pub name: String,
    /// Its PCI device's path in `/sys`.
    pub pci_path: Option<String>,
    /// Its speed in Mbit/s.
    pub speed_mbps: i32,
    /// Its latency in µs, 0 where the plugin leaves it to NCCL.
    pub latency_us: f32,
    /// Most receives in one request.
    pub most_grouped: i32,
    /// Most connections at once.
    pub most_connections: i32,
    /// Whether it sends from a GPU's memory.
    pub gpu_memory: bool,
}

/// A rule of NCCL's for plugins.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleReport {
    /// Name of the rule, as `--rule` takes it.
    pub rule: &'static str,
    /// What it asks for.
    pub asks: &'static str,
    /// Where NCCL's source shows it, by version, the newest first.
    pub sources: Vec<String>,
    /// Whether it is kept.
    pub outcome: RuleOutcome,
}

/// Whether a rule is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RuleOutcome {
    /// The rule is kept; with what was seen, if that is of interest.
    Kept(String),
    /// It is kept as far as NCCL goes; with what was seen beyond that.
    Noted(Breach),
    /// It is not.
    Broken(Breach),
    /// What breaks another rule stops the test of this one: which.
    Untested(String),
    /// The plugin does not offer what the rule is about.
    NotOffered(String),
}

impl RuleOutcome {
    /// What the plugin did against the rule, whether that breaks it or is worth a note.
    pub fn breach(&self) -> Option<&Breach> {
        match self {
            RuleOutcome::Noted(breach) | RuleOutcome::Broken(breach) => Some(breach),
            RuleOutcome::Kept(_) | RuleOutcome::Untested(_) | RuleOutcome::NotOffered(_) => None,
        }
    }
}

/// What a plugin did against a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Breach {
    /// What happened.
    pub seen: String,
    /// Whether NCCL would stumble over it.
    pub stumbles: bool,
    /// The consequence within NCCL, or why there is none.
    pub why: String,
}

/// What a plugin reaches.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PluginFigures {
    /// One way, by message size, the smallest first.
    pub bandwidth: Vec<PluginBandwidth>,
    /// Half a round trip of 8 bytes.
    pub latency: Option<LinkLatency>,
    /// Messages of 8 bytes a second, one way.
    pub messages_per_second: Option<f64>,
}

/// What a plugin reaches at a size.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginBandwidth {
    /// The message's size.
    pub size: Bytes,
    /// GB/s of each repetition, in their order.
    pub gb_per_s: Vec<f64>,
    /// Seconds of processor time that sender and receiver took together for 10^9 bytes, polling as NCCL does included, of
    /// each repetition.
    pub cpu_s_per_gb: Vec<f64>,
}

impl PluginBandwidth {
    /// The median bandwidth in GB/s; 0 without repetitions.
    pub fn gb_per_s_median(&self) -> f64 {
        median(self.gb_per_s.iter().copied()).unwrap_or(0.0)
    }

    /// The median processor time in seconds for 10^9 bytes; 0 without repetitions.
    pub fn cpu_s_per_gb_median(&self) -> f64 {
        median(self.cpu_s_per_gb.iter().copied()).unwrap_or(0.0)
    }
}
