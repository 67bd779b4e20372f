//! A table of nccl-tests: what was measured, row by row.

use crate::answer::known;
use crate::collective::{Collective, Datatype, RedOp};
use crate::host::each_once;
use crate::place::{Place, SourceLine};
use crate::skew::Skew;
use crate::units::{Bytes, GBps, Micros};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

/// One table of nccl-tests (or of a program that prints the same), from text or from its `-J` JSON.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BenchTable {
    /// Where the table begins: its first header or preamble line, else its first row.
    pub place: Place,
    /// What a launcher or a parallel shell put in front of its lines: `1,0`, `node1`; empty without one.
    pub label: String,
    /// What was measured: as the program says, else as the columns and the ratio busbw/algbw imply; `None` when both leave it open.
    pub collective: Option<Collective>,
    /// The number of ranks, from the device list, else from the ratio busbw/algbw where that is unique.
    pub nranks: Option<u32>,
    /// The device list (`#  Rank  0 Group  0 Pid … on HOST device  0 [0x0f] NAME`), in the order printed.
    pub devices: Vec<BenchDevice>,
    /// The rows in the order printed. Equal sizes may repeat.
    pub rows: Vec<BenchRow>,
    /// `# Avg bus bandwidth`, as printed.
    pub printed_avg_busbw: Option<GBps>,
    /// The line of that average where it ends with FAILED: below 90% of the user's own minimum (`NCCL_TESTS_MIN_BW`).
    pub below_minimum: Option<SourceLine>,
    /// `# Out of bounds values : N OK|FAILED`, as printed.
    pub out_of_bounds: Option<OutOfBounds>,
    /// The settings line and version lines above the table.
    pub settings: BenchSettings,
    /// Whether the program said that it finished: the average line, `concluded`, or the end of the JSON.
    pub finished: bool,
}

/// The closing check of nccl-tests.
#[derive(Debug, Clone, PartialEq)]
pub struct OutOfBounds {
    /// Number of checks that failed.
    pub count: u64,
    /// `OK` (true) or `FAILED` (false).
    pub ok: bool,
    /// The line.
    pub source: SourceLine,
}

/// One line of the device list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BenchDevice {
    /// Rank in the communicator of the test.
    pub rank: u32,
    /// The split group (`Group`, nccl-tests 2.13.4 and later), where printed.
    pub group: Option<u32>,
    /// Process id.
    pub pid: u64,
    /// Host name as printed.
    pub host: String,
    /// CUDA device index. Containers may show every GPU as device 0.
    pub device: u32,
    /// PCI bus id as printed: `0x0f` (old) or `0000:0f:00` (2.14.1 and later).
    pub bus_id: String,
    /// The GPU's name: `NVIDIA H20`.
    pub name: String,
    /// The line; line 0 of a device that no line of text lists.
    pub source: SourceLine,
}

/// What the lines above a table say about how it was measured. `None` where the line or the field was not there.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BenchSettings {
    /// The program's name without `_perf` as printed by `# Collective test starting:`, or from the JSON's arguments.
    pub program: Option<String>,
    /// Version of nccl-tests: `2.17.4`.
    pub nccl_tests_version: Option<String>,
    /// NCCL version of `nccl-library=22907`, decoded: `2.29.7`.
    pub nccl_version: Option<String>,
    /// Threads per process (`nThread`).
    pub threads: Option<u32>,
    /// GPUs per thread (`nGpus`).
    pub gpus_per_thread: Option<u32>,
    /// Smallest size (`minBytes`).
    pub min_bytes: Option<Bytes>,
    /// Largest size (`maxBytes`).
    pub max_bytes: Option<Bytes>,
    /// `step: 2(factor)`.
    pub step_factor: Option<u64>,
    /// `step: 1048576(bytes)`.
    pub step_bytes: Option<Bytes>,
    /// Warm-up iterations.
    pub warmup_iters: Option<u32>,
    /// Timed iterations.
    pub iters: Option<u32>,
    /// Whether results were checked (`validation: 1`).
    pub validation: Option<bool>,
    /// Launches of a CUDA graph (`graph`), 0 when not used.
    pub graph: Option<u32>,
    /// The time column holds the CPU time of the calls (`-C`).
    pub cpu_time: bool,
    /// `# Host memory: …`, which busbw measures before ranks on cores begin.
    pub memory: Option<HostMemory>,
}

/// What copies in a host's memory carried before a test began: `2 cores copy 14.2 GB/s, load 0.31`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostMemory {
    /// Cores that copied at once: one for each rank, as far as there are so many.
    pub cores: u32,
    /// Bytes that they copied together, per second.
    pub copy: GBps,
    /// The mean number of processes that ran or wanted to in the minute before (`/proc/loadavg`).
    pub load: f64,
}

impl std::fmt::Display for HostMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} cores copy {:.1} GB/s, load {:.2}", self.cores, self.copy.0, self.load)
    }
}

impl std::str::FromStr for HostMemory {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (cores, rest) = text.split_once(" cores copy ").ok_or(())?;
        let (copy, load) = rest.split_once(" GB/s, load ").ok_or(())?;
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite()).ok_or(());
        let (cores, copy) = (cores.trim().parse().map_err(drop)?, number(copy)?);
        (cores > 0 && copy > 0.0).then_some(HostMemory { cores, copy: GBps(copy), load: number(load)? }).ok_or(())
    }
}

/// One row: a size, measured out of place and in place.
///
/// A table that busbw kept as JSON gives its figures only: what was said of their checks and spread was judged then.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct BenchRow {
    /// Size in bytes as nccl-tests prints it; for all-gather, reduce-scatter and all-to-all that is the whole buffer of all ranks.
    #[serde(rename = "size_bytes")]
    pub size: Bytes,
    /// Number of elements, where printed.
    pub count: Option<u64>,
    /// Element type, where printed and known.
    #[serde(default, deserialize_with = "known")]
    pub datatype: Option<Datatype>,
    /// Reduction; `None` also where the collective has none.
    #[serde(default, deserialize_with = "known")]
    pub redop: Option<RedOp>,
    /// Root rank; `None` where the collective has none (printed as -1 or not at all).
    #[serde(skip_deserializing)]
    pub root: Option<i64>,
    /// The out-of-place half: measured with separate buffers.
    #[serde(default, deserialize_with = "known")]
    pub out_of_place: Option<Measure>,
    /// The in-place half: measured in one buffer; some collectives and forks print only one.
    #[serde(default, deserialize_with = "known")]
    pub in_place: Option<Measure>,
    /// For an uneven exchange (`busbw bench alltoallv --load`): what an even one takes, and who is busiest.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "known")]
    pub skew: Option<Skew>,
    /// A half was printed and is not believed: its figures are no numbers, or more than any hardware carries.
    #[serde(skip)]
    pub doubted: bool,
    /// The line (the first of them, when other output tore the row apart).
    #[serde(skip)]
    pub source: SourceLine,
}

/// One half of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measure {
    /// Mean time of one operation, microseconds; CPU time of the call with `-C`.
    #[serde(rename = "time_us")]
    pub time: Micros,
    /// Size over time, GB/s.
    #[serde(rename = "algbw_gbs")]
    pub algbw: GBps,
    /// algbw times the collective's factor, GB/s: the number to compare with hardware.
    #[serde(rename = "busbw_gbs")]
    pub busbw: GBps,
    /// The result of checking the data. In JSON the number of wrong elements; null where they were not counted.
    #[serde(rename = "wrong", skip_deserializing)]
    #[schemars(with = "Option<u64>")]
    pub check: Check,
    /// Per-iteration statistics (`-I`, nccl-tests 2.19.2 and later); absent where the table has none.
    #[serde(skip_serializing_if = "Option::is_none", skip_deserializing)]
    pub iterations: Option<IterationStats>,
}

/// Two figures of a row that cannot both be right.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Contradiction {
    /// Size over time is not algbw.
    Algbw {
        /// As printed.
        printed: GBps,
        /// Size over time.
        follows: GBps,
    },
    /// busbw is not algbw times the factor of the collective and its ranks.
    Busbw {
        /// As printed.
        printed: GBps,
        /// algbw times the factor.
        follows: GBps,
    },
    /// A size takes less time than a smaller one, by more than any shape of a curve explains.
    Time {
        /// As printed.
        printed: Micros,
        /// The smaller size.
        smaller: Bytes,
        /// Its time.
        took: Micros,
    },
}

impl std::fmt::Display for Contradiction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Contradiction::Algbw { printed, follows } => {
                write!(f, "algbw is {printed}, but size over time is {follows}")
            }
            Contradiction::Busbw { printed, follows } => {
                write!(f, "busbw is {printed}, but follows from algbw as {follows}")
            }
            Contradiction::Time { printed, smaller, took } => {
                write!(f, "it takes {:.0} µs, and {smaller} takes {:.0}", printed.0, took.0)
            }
        }
    }
}

/// By how much two figures may differ beside what rounding explains: scripts that convert tables round, too.
const AGREES: f64 = 0.03;

fn differ(printed: GBps, follows: GBps, rounded: f64) -> bool {
    (printed.0 - follows.0).abs() > AGREES * follows.0 + rounded
}

/// Half of the last digit that a figure was printed with, as far as the figure shows it.
fn half_digit(figure: f64) -> f64 {
    let is_whole = |figure: f64| (figure - figure.round()).abs() < 1e-9;
    [0.5, 0.05].into_iter().find(|half| is_whole(figure * 0.5 / half)).unwrap_or(0.005)
}

/// The last cell of a half: how the data compared with what was expected.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Check {
    /// `N/A`, or no such cell.
    #[default]
    NotDone,
    /// `#wrong`: the number of wrong elements. A count too wide for its cell is printed rounded (`1.31072e+08`).
    Wrong(u64),
    /// `error` of nccl-tests up to 2.11: the largest deviation, relative to the expected value; `5e-07` is sound for float.
    MaxError(f64),
}

impl Check {
    /// The number of wrong elements where the table counts them.
    pub fn wrong(self) -> Option<u64> {
        match self {
            Check::Wrong(count) => Some(count),
            Check::NotDone | Check::MaxError(_) => None,
        }
    }
}

impl Serialize for Check {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.wrong().serialize(serializer)
    }
}

/// Per-iteration columns of `-I`, in µs but for the last.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct IterationStats {
    /// Fastest iteration, microseconds.
    #[serde(rename = "min_us")]
    pub min: Micros,
    /// Slowest iteration, microseconds.
    #[serde(rename = "max_us")]
    pub max: Micros,
    /// 99th percentile, microseconds.
    #[serde(rename = "p99_us")]
    pub p99: Micros,
    /// Coefficient of variation in percent.
    pub cv_pct: f64,
}

/// More than any GPU's links carry, GB/s: five times what NVLink 5 gives a GPU.
const MOST_BANDWIDTH: f64 = 10_000.0;

impl Measure {
    /// Whether hardware can have measured this. A rank alone has any algbw: in place there is nothing to copy.
    pub fn is_possible(&self) -> bool {
        self.time.0 >= 0.0 && self.algbw.0 >= 0.0 && (0.0..=MOST_BANDWIDTH).contains(&self.busbw.0)
    }

    fn algbw_beside(&self, size: Bytes) -> Option<Contradiction> {
        let follows = GBps::from_transfer(size, self.time);
        let rounded = half_digit(self.algbw.0) + follows.0 * half_digit(self.time.0) / self.time.0;
        let is_other = size.0 > 0 && self.time.0 > 0.0 && differ(self.algbw, follows, rounded);
        is_other.then_some(Contradiction::Algbw { printed: self.algbw, follows })
    }

    fn busbw_beside(&self, factor: f64) -> Option<Contradiction> {
        let follows = GBps(self.algbw.0 * factor);
        let rounded = half_digit(self.busbw.0) + factor * half_digit(self.algbw.0);
        differ(self.busbw, follows, rounded).then_some(Contradiction::Busbw { printed: self.busbw, follows })
    }
}

impl BenchRow {
    /// The halves that were measured, out of place first.
    pub fn halves(&self) -> impl Iterator<Item = &Measure> {
        self.out_of_place.iter().chain(&self.in_place)
    }

    /// The better busbw of the two halves.
    pub fn best_busbw(&self) -> Option<GBps> {
        self.halves().map(|m| m.busbw).max_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// The first row with the highest busbw, either half, and this busbw.
    pub fn highest<'a>(rows: impl Iterator<Item = &'a BenchRow>) -> Option<(&'a BenchRow, GBps)> {
        let measured = rows.filter_map(|row| row.best_busbw().map(|busbw| (row, busbw)));
        measured.reduce(|best, next| if next.1.0 > best.1.0 { next } else { best })
    }

    /// The time of the better half.
    pub fn best_time(&self) -> Option<Micros> {
        self.halves().map(|half| half.time).filter(|time| time.0 > 0.0).min_by(|a, b| a.0.total_cmp(&b.0))
    }
}

impl BenchTable {
    /// The mean of busbw over all rows and both halves, as nccl-tests computes its `Avg bus bandwidth`: every size
    /// counts alike, so small sizes pull it down and it says little about a cluster's health.
    pub fn mean_busbw(&self) -> Option<GBps> {
        let halves: Vec<f64> = self.rows.iter().flat_map(BenchRow::halves).map(|m| m.busbw.0).collect();
        (!halves.is_empty()).then(|| GBps(halves.iter().sum::<f64>() / halves.len() as f64))
    }

    /// The printed average and what the rows make it, where both cannot be right: each size that the settings announce counts, and somebody may
    /// have left out rows.
    pub fn average_beside(&self) -> Option<(GBps, GBps)> {
        const ROUNDED: f64 = 0.05;
        let (printed, mean) = (self.printed_avg_busbw?, self.mean_busbw()?);
        let announced = self.announced()?;
        let least = mean.0 * self.rows.len() as f64 / announced as f64;
        let is_whole = self.rows.len() == announced;
        let is_low = printed.0 < least * (1.0 - ROUNDED) - ROUNDED;
        let is_high = is_whole && printed.0 > mean.0 * (1.0 + ROUNDED) + ROUNDED;
        (self.rows.len() <= announced && (is_low || is_high))
            .then_some((printed, if is_whole { mean } else { GBps(least) }))
    }

    /// How many sizes the settings announce.
    fn announced(&self) -> Option<usize> {
        let first = self.settings.min_bytes.filter(|first| first.0 > 0)?;
        Some(self.announced_from(first).count()).filter(|count| *count > 1)
    }

    /// The sizes that the settings announce from one of them on.
    fn announced_from(&self, first: Bytes) -> impl Iterator<Item = Bytes> {
        const MOST: usize = 4096;
        let BenchSettings { max_bytes, step_factor, step_bytes, .. } = self.settings;
        let next = move |size: &u64| match (step_factor, step_bytes) {
            (Some(factor), _) => size.checked_mul(factor),
            (None, Some(Bytes(step))) => size.checked_add(step),
            (None, None) => None,
        };
        let most = max_bytes.map_or(0, |most| most.0);
        let sizes = std::iter::successors(Some(first.0), next).take_while(move |size| *size <= most);
        sizes.take(MOST).map(Bytes)
    }

    /// The printed average, else the computed one.
    pub fn avg_busbw(&self) -> Option<GBps> {
        self.printed_avg_busbw.or_else(|| self.mean_busbw())
    }

    /// The row and the value of the highest busbw, either half.
    pub fn peak(&self) -> Option<(&BenchRow, GBps)> {
        BenchRow::highest(self.rows.iter())
    }

    /// What contradicts itself, row by row in the order of [`rows`](Self::rows), beyond what rounding explains: nccl-tests computes algbw
    /// and busbw of the time, so such a row was damaged or edited. Exchanges that move less than their size (hypercube, alltoallv) have
    /// other figures.
    pub fn contradictions(&self) -> Vec<Option<Contradiction>> {
        let whole = |collective: &Collective| !matches!(collective, Collective::HyperCube | Collective::AllToAllV);
        let Some(collective) = self.collective.filter(whole) else { return vec![None; self.rows.len()] };
        let factor = self.nranks.filter(|ranks| *ranks > 1).map(|ranks| collective.busbw_factor(ranks));
        let beside = |half: &Measure| factor.and_then(|factor| half.busbw_beside(factor));
        let busbw = |row: &BenchRow| row.halves().find_map(beside);
        // Where most rows have another factor in all that they show, it is the list of devices that is not whole. None has one above 2.
        let is_other =
            |row: &&BenchRow| row.halves().next().is_some() && row.halves().all(|half| beside(half).is_some());
        let is_known = self.rows.iter().filter(is_other).count() * 2 <= self.rows.len();
        let is_above = |one: &Contradiction| match (one, factor) {
            (Contradiction::Busbw { printed, follows }, Some(factor)) => {
                printed.0 * factor > 2.0 * follows.0 * (1.0 + AGREES)
            }
            _ => false,
        };
        // With `-C` the column holds the time of the calls, and algbw is of the time that they took.
        let by_time = |row: &BenchRow| {
            row.halves().find_map(|half| half.algbw_beside(row.size)).or_else(|| self.time_beside(row))
        };
        let by_time = |row: &BenchRow| by_time(row).filter(|_| !self.settings.cpu_time);
        let of = |row: &BenchRow| by_time(row).or_else(|| busbw(row).filter(|one| is_known || is_above(one)));
        self.rows.iter().map(of).collect()
    }

    /// A row that is more than twice as fast as every other size of bandwidth, and took less time than a smaller one.
    fn time_beside(&self, row: &BenchRow) -> Option<Contradiction> {
        const LARGE: Bytes = Bytes(16 << 20);
        const FEWEST: usize = 3;
        let (printed, fastest) = (row.best_time()?, row.best_busbw()?);
        let others = || self.rows.iter().filter(|other| other.size >= LARGE && other.size != row.size);
        let is_apart = row.size >= LARGE
            && others().count() >= FEWEST
            && others().filter_map(BenchRow::best_busbw).all(|other| fastest.0 > 2.0 * other.0);
        let slower =
            others().filter(|other| other.size < row.size).filter_map(|other| Some((other.size, other.best_time()?)));
        let (smaller, took) =
            slower.filter(|(_, took)| is_apart && took.0 > printed.0).max_by_key(|(size, _)| *size)?;
        Some(Contradiction::Time { printed, smaller, took })
    }

    /// The sizes behind the last row's that the settings announce: those of a run that did not get there.
    pub fn missing_sizes(&self) -> Vec<Bytes> {
        let Some(last) = self.rows.last() else { return Vec::new() };
        self.announced_from(last.size).filter(|size| *size > last.size).collect()
    }

    /// Host names of the device list, each once, in the order printed.
    pub fn hosts(&self) -> Vec<&str> {
        each_once(self.devices.iter().map(|device| device.host.as_str()))
    }

    /// Wrong elements over all rows and halves.
    pub fn total_wrong(&self) -> u64 {
        self.rows.iter().flat_map(BenchRow::halves).filter_map(|m| m.check.wrong()).fold(0, u64::saturating_add)
    }
}
