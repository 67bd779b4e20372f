//! Reads the text that `ncclras` and `nc host 28028` print: `rasClientRunComms` in `src/ras/client_support.cc`, NCCL 2.24 on.

use super::{launched, report_error, share, status};
use crate::TextLine;
use crate::text::leading;
use busbw_model::{RasCommunicator, RasGroup, RasJob, RasProcess, RasRank, RasReport, RasStatus, SourceLine};
use rustc_hash::FxHashMap;

/// Collects reports from lines; excerpts may begin anywhere.
///
/// ```
/// use busbw_ingest::{TextLine, ras::RasReader};
/// use busbw_model::Place;
/// let mut reader = RasReader::default();
/// for text in ["#0-0 (27a079b828ff1a75) MISMATCH", "  Rank 3 has launched up to operation 7 -- GPU 3 managed by process 9 on node 10.0.0.1"] {
///     assert!(reader.feed(&TextLine { place: Place::default(), stream: "", text }));
/// }
/// assert_eq!(reader.finish()[0].communicators[0].hash, "27a079b828ff1a75");
/// ```
#[derive(Debug, Default)]
pub struct RasReader {
    found: Vec<RasReport>,
    open: FxHashMap<Box<str>, Open>,
}

/// A report that goes on.
#[derive(Debug, Default)]
struct Open {
    report: RasReport,
    /// The communicator that lines speak of, as an index.
    comm: Option<usize>,
    /// Where the communicator of a hash stands.
    by_hash: FxHashMap<String, usize>,
    /// What the ranks listed next have in common.
    about: About,
    /// Which numbers of the job summary's next row are nodes, processes and GPUs.
    summary: Option<[usize; 3]>,
}

/// What a listed rank or process is listed for.
#[derive(Debug, Clone, PartialEq, Default)]
enum About {
    #[default]
    Nothing,
    /// Processes that did not answer, or are dead.
    Lost {
        dead: bool,
    },
    Missing,
    Status(RasStatus),
    Launched(String, u64),
    Error {
        asynchronous: bool,
        error: String,
    },
}

impl RasReader {
    /// Takes a line; true when it belongs to a report.
    pub fn feed(&mut self, line: &TextLine) -> bool {
        let text = line.text.trim();
        let source = || SourceLine::new(line.place, text);
        let begins = text == "Job summary" || text.starts_with("NCCL version") && text.contains(" compiled with CUDA ");
        if begins && self.open.get(line.stream).is_some_and(|open| open.report.job.is_some() || text != "Job summary") {
            self.found.extend(self.open.remove(line.stream).map(|open| open.report));
        }
        let mut fresh = Open::default();
        let is_open = self.open.contains_key(line.stream);
        let open = self.open.get_mut(line.stream).unwrap_or(&mut fresh);
        let belongs = begins || open.take(text, &source);
        if begins {
            open.report.nccl_version = open.report.nccl_version.take().or_else(|| version(text));
        }
        if belongs && !is_open {
            fresh.report.source = source();
            self.open.insert(line.stream.into(), fresh);
        }
        belongs
    }

    /// The reports in the order of their first lines.
    pub fn finish(mut self) -> Vec<RasReport> {
        self.found.extend(self.open.into_values().map(|open| open.report));
        self.found.sort_by_key(|report| report.source.place);
        self.found
    }
}

fn version(text: &str) -> Option<String> {
    text.strip_prefix("NCCL version ")?.split(' ').next().map(str::to_string)
}

impl Open {
    fn take(&mut self, text: &str, source: &dyn Fn() -> SourceLine) -> bool {
        self.heading(text, source)
            || self.summary(text, source)
            || self.detail(text, source)
            || self.listed(text, source)
    }

    /// Lines that say what the next ones are about.
    fn heading(&mut self, text: &str, source: &dyn Fn() -> SourceLine) -> bool {
        match text {
            "INCOMPLETE" => self.about = About::Lost { dead: false },
            "DEAD" => self.about = About::Lost { dead: true },
            "Communicator ranks have different status" => self.about = About::Status(RasStatus::Running),
            _ if text.starts_with("#") => return self.communicator(text, source).is_some(),
            _ if text.starts_with("Initialization error") || text.starts_with("Asynchronous error") => {
                self.about = About::Error { asynchronous: text.starts_with('A'), error: String::new() };
            }
            _ => {
                let operation = text.strip_prefix("Communicator ranks have different ");
                let Some(operation) = operation.and_then(|rest| rest.strip_suffix("operation counts")) else {
                    return false;
                };
                let operation = operation.trim();
                self.about =
                    About::Launched(if operation.is_empty() { "collective" } else { operation }.to_string(), 0);
            }
        }
        true
    }

    /// `#0-0 (27a079b828ff1a75) MISMATCH`.
    fn communicator(&mut self, text: &str, source: &dyn Fn() -> SourceLine) -> Option<()> {
        let (name, rest) = text.strip_prefix('#')?.split_once(" (")?;
        let (hash, _) = rest.split_once(") ")?;
        let is_name = name.split('-').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
        if !is_name || !hash.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let hash = hash.trim_start_matches('0').to_string();
        let communicators = &mut self.report.communicators;
        self.comm = Some(*self.by_hash.entry(hash).or_insert_with_key(|hash| {
            let (name, hash) = (Some(name.to_string()), hash.clone());
            communicators.push(RasCommunicator { name, hash, source: source(), ..RasCommunicator::default() });
            communicators.len() - 1
        }));
        self.about = About::Nothing;
        Some(())
    }

    /// The version, the job's size and the table of communicators.
    fn summary(&mut self, text: &str, source: &dyn Fn() -> SourceLine) -> bool {
        if let Some((runtime, driver)) = cuda(text) {
            self.report.cuda = Some((runtime, driver));
            return true;
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let is = |heads: &[&str]| words == heads;
        // The totals of the regular summary, and those of one whose nodes differ.
        if is(&["(total)", "per", "node", "per", "process", "(total)", "(total)"]) {
            self.summary = Some([0, 3, 4]);
            return true;
        }
        if is(&["(total)", "(total)", "(total)"]) {
            self.summary = Some([0, 1, 2]);
            return true;
        }
        if let Some(columns) = self.summary {
            let numbers: Vec<u32> = words.iter().filter_map(|word| word.parse().ok()).collect();
            if numbers.len() == words.len() && numbers.len() > columns[2] {
                let [nodes, processes, gpus] = columns.map(|at| numbers[at]);
                self.report.job = Some(RasJob { nodes, processes, gpus });
                self.summary = None;
                return true;
            }
        }
        if let Some(group) = group(&words, source) {
            self.report.groups.push(group);
            return true;
        }
        text.starts_with("Communicators... (") || words.starts_with(&["Group", "Comms", "Nodes", "Ranks"])
    }

    /// Counts of ranks, and ranks that stand alone.
    fn detail(&mut self, text: &str, source: &dyn Fn() -> SourceLine) -> bool {
        if let Some(rest) = text.strip_prefix("Encountered ")
            && rest.contains(" communication timeout")
        {
            self.report.timeouts = leading(rest).unwrap_or_default();
            return true;
        }
        if let Some(rest) = text.strip_prefix("Missing communicator data from ") {
            if rest.contains(" rank")
                && let Some(comm) = self.current()
            {
                comm.missing_ranks = leading(rest).unwrap_or_default();
                self.about = About::Missing;
            }
            return true;
        }
        if let Some(rest) = text.strip_prefix("The missing rank") {
            let ranks: Vec<u32> =
                rest.split(|c: char| !c.is_ascii_digit()).filter_map(|rank| rank.parse().ok()).collect();
            if let Some(comm) = self.current() {
                comm.missing.extend(ranks.into_iter().map(|rank| RasRank {
                    rank,
                    source: source(),
                    ..RasRank::default()
                }));
            }
            return true;
        }
        if text.contains(" considered dead (unreachable") {
            return true;
        }
        // `26 ranks have launched up to operation 6650`, `4 ranks have status RUNNING`, `2 ranks reported System error`
        let Some((count, rest)) = text.split_once(" ranks ") else { return false };
        let Some(count) = count.parse().ok().filter(|count| *count > 0) else { return false };
        let Some(about) = self.statement(rest) else { return false };
        self.about = about;
        self.add(count, None, source());
        true
    }

    /// A rank or a process in a list, or one that stands alone with what is said of it.
    fn listed(&mut self, text: &str, source: &dyn Fn() -> SourceLine) -> bool {
        if let Some(lost) = process(text) {
            let dead = match text.split_once("PEER_") {
                Some((_, event)) => loss(event),
                None => Some(matches!(self.about, About::Lost { dead: true })),
            };
            self.report.lost_processes.extend(dead.map(|dead| RasProcess { dead, source: source(), ..lost }));
            return true;
        }
        let Some((rank, rest)) =
            text.strip_prefix("Rank ").and_then(|rest| Some((leading(rest)?, rest.split_once(' ')?.1)))
        else {
            return false;
        };
        let (said, place) = rest.split_once("-- ").unwrap_or((rest, ""));
        if !place.starts_with("GPU ") && !place.starts_with("[process information not found]") {
            return false;
        }
        let alone = !said.trim().is_empty();
        if alone {
            match self.statement(said.trim()) {
                Some(about) => self.about = about,
                None => return false,
            }
        }
        let named = RasRank { rank, source: source(), ..located(place) };
        self.add(u32::from(alone), Some(named), source());
        true
    }

    fn statement(&self, said: &str) -> Option<About> {
        let said = said.strip_prefix("have ").or(said.strip_prefix("has ")).unwrap_or(said);
        if let Some(word) = said.strip_prefix("status ") {
            return status(word.trim()).map(About::Status);
        }
        if let Some(error) = said.strip_prefix("reported ") {
            let asynchronous = matches!(self.about, About::Error { asynchronous: true, .. });
            return Some(About::Error { asynchronous, error: error.trim().to_string() });
        }
        let operation = match &self.about {
            About::Launched(operation, _) => operation.clone(),
            _ => "collective".to_string(),
        };
        if said.starts_with("not launched any operations") {
            return Some(About::Launched(operation, 0));
        }
        let count = said.strip_prefix("launched up to operation ")?.trim().parse().ok()?;
        Some(About::Launched(operation, count))
    }

    /// Adds ranks to what they have in common: a count of them, and one that is named.
    fn add(&mut self, count: u32, named: Option<RasRank>, source: SourceLine) {
        let about = self.about.clone();
        let Some(comm) = self.current() else { return };
        let rank = named.as_ref().map(|rank| rank.rank);
        match about {
            About::Status(status) => share(&mut comm.status, status, (count, rank), &source),
            About::Launched(operation, value) => {
                if let Some(shares) = launched(&mut comm.launched, &operation) {
                    share(shares, value, (count, rank), &source);
                }
            }
            About::Error { asynchronous, error } => {
                report_error(&mut comm.errors, asynchronous, &error, (count, rank), &source);
            }
            About::Missing => {
                comm.missing.extend(named.map(|rank| RasRank { unresponsive: true, ..rank }));
                return;
            }
            About::Lost { .. } | About::Nothing => {}
        }
        comm.ranks.extend(named);
    }

    /// The communicator that lines speak of; an excerpt without its line gets one.
    fn current(&mut self) -> Option<&mut RasCommunicator> {
        if self.comm.is_none() {
            self.report.communicators.push(RasCommunicator::default());
            self.comm = Some(self.report.communicators.len() - 1);
        }
        self.report.communicators.get_mut(self.comm?)
    }
}

/// `CUDA runtime version 13000, driver version 13000`.
fn cuda(text: &str) -> Option<(u32, u32)> {
    let (runtime, driver) = text.strip_prefix("CUDA runtime version ")?.split_once(", driver version ")?;
    Some((runtime.parse().ok()?, driver.trim().parse().ok()?))
}

/// `0  8  4  1  4  32  RUNNING  OK`; ranks per node may be a range, `7-8`.
fn group(words: &[&str], source: &dyn Fn() -> SourceLine) -> Option<RasGroup> {
    let [_, communicators, nodes, _, ranks, _, now, errors] = words else { return None };
    let is_errors = |word: &str| word.split(',').all(|part| ["OK", "MISMATCH", "INCOMPLETE", "ERROR"].contains(&part));
    let number = |word: &str| word.parse::<u32>().ok();
    words[0].parse::<u32>().ok().filter(|_| is_errors(errors))?;
    Some(RasGroup {
        communicators: number(communicators)?,
        nodes: number(nodes)?,
        ranks: number(ranks)?,
        status: status(now)?,
        errors: errors.to_string(),
        source: source(),
    })
}

/// `Process 3487984 on node 172.16.64.213 managing GPU 5`, perhaps behind `PEER_DEAD: `.
fn process(text: &str) -> Option<RasProcess> {
    let (before, rest) = text.split_once("Process ")?;
    let (pid, rest) = rest.split_once(" on node ")?;
    let (host, _) = rest.split_once(" managing GPU")?;
    let is_alone = before.is_empty() || before.ends_with(": ");
    is_alone.then_some(())?;
    Some(RasProcess { pid: pid.parse().ok()?, host: host.to_string(), dead: false, source: SourceLine::default() })
}

/// Whether an event of the monitoring mode shows a lost process, and whether RAS gave it up: `PEER_DEAD` and
/// `PEER_TIMEOUT_DEAD` against `PEER_UNRESPONSIVE`.
pub(super) fn loss(event: &str) -> Option<bool> {
    let name = event.split(':').next().unwrap_or_default();
    let dead = name.ends_with("DEAD");
    (dead || name.ends_with("UNRESPONSIVE")).then_some(dead)
}

/// `GPU 3 (NVML 5) managed by process 483072 on node 172.16.64.210`.
fn located(text: &str) -> RasRank {
    let after = |words: &str| text.split_once(words).map(|(_, rest)| rest);
    RasRank {
        device: after("GPU ").and_then(leading),
        pid: after("managed by process ").and_then(|rest| rest.split(' ').next()?.parse().ok()),
        host: after(" on node ").map(|host| host.trim().to_string()),
        ..RasRank::default()
    }
}
