//! Findings: what the rules conclude, with evidence and remedy.

use crate::culprit::{Culprit, Suspects};
use crate::environment::Variable;
use crate::peers::PeerGroup;
use crate::place::SourceLine;
use crate::units::{Bytes, GBps};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Hands all codes to a macro, each by its name in Rust, its name elsewhere and what it means.
#[macro_export]
macro_rules! codes {
    ($of:ident) => {
        $of! {
            NetSocketFallback "net.socket-fallback" "traffic between nodes goes over TCP sockets instead of RDMA"
            NetWrongInterface "net.wrong-interface" "NCCL uses an interface that does not lead to the other nodes"
            NetUnreachable "net.unreachable" "ranks cannot reach each other"
            NetPlugin "net.plugin" "the network plugin is missing, fails or does not fit"
            GdrDisabled "gdr.disabled" "NICs do not read and write GPU memory directly"
            PcieAcs "pcie.acs" "PCIe access control (ACS) or the IOMMU is between devices"
            NicFar "nic.far" "GPUs reach their NIC through the CPU or another NUMA node"
            NicUnused "nic.unused" "NICs of the node carry no traffic"
            PcieDegraded "pcie.degraded" "a PCIe link runs below its width or speed"
            TopoVirtualized "topo.virtualized" "a virtual machine hides the real topology"
            P2pDisabled "p2p.disabled" "GPUs of one node do not talk directly"
            NvlinkFabric "nvlink.fabric" "NVLink, NVSwitch or the fabric manager is not working"
            FabricCongestion "fabric.congestion" "flows share links of the fabric unevenly"
            RoceConfig "roce.config" "RoCE settings (GID, MTU, traffic class) do not fit"
            IbTransportError "ib.transport-error" "an RDMA transfer failed"
            LimitsMemlock "limits.memlock" "the limit of locked memory is too low"
            LimitsShm "limits.shm" "/dev/shm is too small"
            LimitsFiles "limits.files" "the limit of open files is too low"
            EnvOverride "env.override" "an environment variable overrides what NCCL would choose"
            ChannelsTooFew "channels.too-few" "too few channels to fill the links"
            VersionMismatch "version.mismatch" "ranks or libraries have versions that do not fit"
            GpuDuplicate "gpu.duplicate" "two ranks use one GPU"
            GpuError "gpu.error" "a GPU or the CUDA driver reports an error"
            HangMismatch "hang.mismatch" "ranks wait for different collectives"
            RankFailed "rank.failed" "a rank's program failed: an exception of its own"
            PeerDied "peer.died" "a rank went away; others notice"
            MpiLaunch "mpi.launch" "the launcher did not start one communicator of all ranks"
            NicRate "nic.rate" "a NIC runs below its rate"
            StragglerNode "straggler.node" "one node is slower than the others"
            StragglerRank "straggler.rank" "one rank takes longer for each step than the others"
            LoadUneven "load.uneven" "ranks send or receive unequal amounts: the busiest decides how long an exchange takes"
            LatencyHigh "latency.high" "small messages take many times as long as such hardware needs"
            SocketTuning "socket.tuning" "sockets carry less than they could"
            DataCorruption "data.corruption" "results were wrong"
            TableContradiction "table.contradiction" "figures of a table contradict each other: the output was cut or edited"
            OkAsExpected "ok.as-expected" "the run does what such hardware does"
        }
    };
}

macro_rules! declare {
    ($($code:ident $name:literal $meaning:literal)*) => {
        /// What a finding is about. The codes are a contract: programs outside this repository match on them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[allow(missing_docs)] // documented once, in docs/findings.md and in `Code::meaning`
        pub enum Code {
            $(#[serde(rename = $name)] $code,)*
        }

        impl Code {
            /// Every code with what it means, in a few words.
            pub const ALL: [(Code, &'static str, &'static str); [$($name),*].len()] =
                [$((Code::$code, $name, $meaning)),*];
        }
    };
}

codes!(declare);

impl Code {
    /// The code that is written so; `None` for a text that is no code.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, text, _)| *text == name).map(|(code, ..)| *code)
    }

    /// The code as text: `fabric.congestion`.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(code, ..)| *code == self).map_or("", |(_, text, _)| text)
    }

    /// What the code means, in a few words.
    pub fn meaning(self) -> &'static str {
        Self::ALL.iter().find(|(code, ..)| *code == self).map_or("", |(.., meaning)| meaning)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

named! {
    /// How much a finding matters. Ordered: an error weighs most.
    pub enum Severity {
        /// Worth knowing; nothing to fix.
        Info = "info",
        /// Costs speed or will cost a run.
        Warning = "warning",
        /// The run failed, or its results are wrong.
        Error = "error",
    }
    /// `error`, `warning` or `info`.
    as_str
}

/// A conclusion of a rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The finding's code: `docs/findings.md` lists them.
    pub code: Code,
    /// How much it matters.
    pub severity: Severity,
    /// How sure the rule is, from 0 to 1.
    pub confidence: f64,
    /// One line: what is the matter.
    pub title: String,
    /// What it means and how busbw knows, for a newcomer to NCCL. Paragraphs are separated by an empty line.
    pub explanation: String,
    /// The lines that show it, the most telling first.
    pub evidence: Vec<Evidence>,
    /// What to do, in order; text in backquotes can be pasted into a shell.
    pub remedy: Vec<String>,
    /// The gain that the remedy should bring, if known.
    pub expected_gain: Option<Gain>,
    /// Whom it accuses, where it is about a rank for which the others wait.
    pub suspects: Option<Suspects>,
    /// What else may be the cause, the likeliest first: what is shown has several known causes.
    pub alternatives: Vec<Alternative>,
    /// A note that is the cause if a table of the run is slow: by itself it costs nothing that can be seen.
    pub if_slow: bool,
}

impl Finding {
    /// One that no line shows, and for which nothing is to be done.
    pub fn new(
        code: Code,
        severity: Severity,
        confidence: f64,
        title: impl Into<String>,
        explanation: impl Into<String>,
    ) -> Self {
        let (title, explanation, evidence, remedy) = (title.into(), explanation.into(), Vec::new(), Vec::new());
        let (expected_gain, suspects, alternatives, if_slow) = (None, None, Vec::new(), false);
        Finding {
            code,
            severity,
            confidence,
            title,
            explanation,
            evidence,
            remedy,
            expected_gain,
            suspects,
            alternatives,
            if_slow,
        }
    }
}

/// Another cause of what a finding shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Alternative {
    /// The code of the finding that it would be.
    pub code: Code,
    /// In how many of all cases that show the same it is the cause, from 0 to 1.
    #[schemars(range(min = 0, max = 1))]
    pub share: f64,
    /// What would be the matter, in a few words.
    pub cause: String,
    /// What tells it apart; text in backquotes can be pasted into a shell.
    pub tell: String,
}

/// A finding that busbw made before and kept as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedFinding {
    /// The host that it is about, where it is about one.
    pub host: Option<String>,
    /// The finding's code: `docs/findings.md` lists them.
    pub code: Code,
    /// How much it matters.
    pub severity: Severity,
    /// What it says, in a line.
    pub text: String,
    /// Why, where the answer has it.
    pub explanation: String,
    /// What to do, the same.
    pub remedy: Vec<String>,
    /// The input.
    pub source: SourceLine,
}

/// A line that shows a finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// The line.
    pub source: SourceLine,
    /// What to see in it, in a few words.
    pub note: Option<String>,
}

impl Evidence {
    /// A line without a note.
    pub fn new(source: SourceLine) -> Self {
        Evidence { source, note: None }
    }

    /// A line with what to see in it. A note that repeats a figure or a name of the line points at it.
    pub fn noted(source: SourceLine, note: impl Into<String>) -> Self {
        Evidence { source, note: Some(note.into()) }
    }
}

/// What a remedy should gain.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Gain {
    /// busbw now, GB/s.
    #[serde(rename = "from_busbw_gbs")]
    pub from_busbw: GBps,
    /// busbw to expect, GB/s: the low and the high end.
    #[serde(rename = "to_busbw_gbs")]
    pub to_busbw: (GBps, GBps),
    /// Where the figure comes from.
    pub basis: String,
}

named! {
    /// The state of the run as a whole.
    #[derive(Default)]
    pub enum Verdict {
        /// Speed or machines were judged and passed.
        Healthy = "healthy",
        /// Ranks came up and nothing is wrong; there is no measurement of speed to judge.
        NoErrors = "no-errors",
        /// It works, but slower than it should, or with a fault that costs later.
        Degraded = "degraded",
        /// The run or a machine failed, or results are wrong.
        Failed = "failed",
        /// Speed or end cannot be judged from what is given.
        #[default]
        Inconclusive = "inconclusive",
    }
    /// The word in JSON: `healthy`, `no-errors`, `degraded`, `failed` or `inconclusive`.
    as_str
}

impl Verdict {
    /// The words of the first line of text and page.
    pub fn title(self) -> &'static str {
        match self {
            Verdict::Healthy => "HEALTHY",
            Verdict::NoErrors => "NO ERRORS",
            Verdict::Degraded => "DEGRADED",
            Verdict::Failed => "FAILED",
            Verdict::Inconclusive => "UNDECIDED",
        }
    }

    /// The exit status of a command that ends with this verdict; 2 is for bad usage.
    pub fn exit_status(self) -> u8 {
        match self {
            Verdict::Healthy | Verdict::NoErrors => 0,
            Verdict::Degraded | Verdict::Failed => 1,
            Verdict::Inconclusive => 3,
        }
    }
}

/// Something that was judged, how, and how it came out. What is not listed was not judged.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Judged {
    /// What kind of thing it is: the verdict asks for it.
    #[serde(skip)]
    pub subject: Subject,
    /// What was judged: `all_reduce on 16 ranks`.
    pub what: String,
    /// Against what, with the figures: `99% of the 486 GB/s expected`.
    pub how: String,
    /// Measured and expected speed, if speed was judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<Reached>,
    /// The result: passed, failed or undecided.
    pub outcome: Judgement,
    /// What would decide it, as a sentence that ends in a question or a command; for what is undecided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
}

impl Judged {
    /// Something of which no speed was measured, and that leaves nothing open.
    pub fn new(subject: Subject, what: impl Into<String>, how: impl Into<String>, outcome: Judgement) -> Self {
        Judged { subject, what: what.into(), how: how.into(), speed: None, outcome, question: None }
    }

    /// Something that only the answer to a question would decide.
    pub fn open(
        subject: Subject,
        what: impl Into<String>,
        how: impl Into<String>,
        question: impl Into<String>,
    ) -> Self {
        Judged { question: Some(question.into()), ..Judged::new(subject, what, how, Judgement::Undecided) }
    }
}

/// Measured and expected speed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Reached {
    /// busbw that was measured with large messages, GB/s.
    #[serde(rename = "measured_busbw_gbs")]
    pub measured: GBps,
    /// busbw that was expected there, GB/s.
    #[serde(rename = "expected_busbw_gbs")]
    pub expected: GBps,
}

impl Reached {
    /// The measured speed as a share of the expected one.
    pub fn share(&self) -> f64 {
        self.measured.0 / self.expected.0
    }
}

/// What can be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A measured bandwidth or latency.
    Speed,
    /// The data that arrived.
    Results,
    /// Whether ranks came up, and how the run ended.
    Course,
    /// What a machine is.
    Host,
}

/// How something came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Judgement {
    /// Nothing is wrong.
    Passed,
    /// Not as it should be: a finding says what is wrong.
    Failed,
    /// What is known allows both.
    Undecided,
}

/// The speed that such a machine should reach, if known.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Expected {
    /// busbw, GB/s.
    #[serde(rename = "busbw_gbs")]
    pub busbw: GBps,
    /// Size that it is said for, bytes.
    #[serde(rename = "size_bytes")]
    pub at: Option<Bytes>,
    /// What limits the speed: `4 NICs of 50 GB/s`.
    pub bottleneck: String,
    /// How the figure was computed, and what was assumed.
    pub why: String,
}

/// What a prediction expects of a measured table, size by size.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedTable {
    /// Which of [`Run::tables`](crate::Run::tables).
    pub table: usize,
    /// One row per size of the table, in its order.
    pub rows: Vec<ExpectedRow>,
}

impl ExpectedTable {
    /// What is expected at a size.
    pub fn at(&self, size: Bytes) -> Option<&ExpectedRow> {
        self.rows.iter().find(|row| row.size == size)
    }
}

/// What is expected at one size.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ExpectedRow {
    /// Size in bytes, as the table has it.
    #[serde(rename = "size_bytes")]
    pub size: Bytes,
    /// Expected busbw in GB/s.
    #[serde(rename = "busbw_gbs")]
    pub busbw: GBps,
    /// What nine of ten such machines should show, in GB/s.
    #[serde(rename = "busbw_gbs_band")]
    pub band: (GBps, GBps),
    /// The busbw in GB/s that the hardware cannot exceed.
    #[serde(rename = "limit_busbw_gbs")]
    pub limit: GBps,
    /// What limits it, in words.
    pub bottleneck: String,
}

/// The answer: verdict and findings, the one to act on first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Diagnosis {
    /// The verdict, which decides the exit status.
    pub verdict: Verdict,
    /// One sentence that says it.
    pub summary: String,
    /// What was judged, how, and how it came out.
    pub judged: Vec<Judged>,
    /// Findings, ordered: the first is the one to act on.
    pub findings: Vec<Finding>,
    /// The ranks for which the others wait, as the first finding has it.
    pub culprit: Option<Culprit>,
    /// What such a machine should reach.
    pub expected: Option<Expected>,
    /// The expected figures of tables, where known.
    pub expected_tables: Vec<ExpectedTable>,
    /// Every variable that was seen, in order of appearance.
    pub variables: Vec<Variable>,
    /// What to run next where the inputs leave a question open.
    pub advice: Vec<Advice>,
    /// Comparison of nodes and pairs that ran the same measurement.
    pub peers: Vec<PeerGroup>,
}

/// One thing to run next, and what its output will tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Advice {
    /// The question that is open.
    pub question: String,
    /// The command line that answers it.
    pub command: String,
    /// What to do with the output.
    pub then: String,
}

impl Diagnosis {
    /// What is expected of table `table` of the run.
    pub fn expected_table(&self, table: usize) -> Option<&ExpectedTable> {
        self.expected_tables.iter().find(|expected| expected.table == table)
    }

    /// Whether any finding is an error or a warning: the exit status of `busbw explain` is 1 then.
    pub fn has_problems(&self) -> bool {
        self.findings.iter().any(|f| f.severity >= Severity::Warning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_names_and_meanings() {
        for (code, text, meaning) in Code::ALL {
            assert_eq!(code.as_str(), text);
            assert!(!meaning.is_empty() && text.contains('.'), "{text}");
        }
    }
}
