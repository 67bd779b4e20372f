//! What NCCL says about itself, each statement once.

use crate::facts::WarnLine;
use crate::launcher::{behind_logger, peel, spoken};
use crate::logger;
use crate::nccl_log::{ChoiceLine, NetLine, PatternLine, Version};
use busbw_model::{
    EnvOrigin, EnvSetting, ErrorStep, GraphPattern, LogPrefix, NcclLog, NetworkLine, NetworkStatement, Nic, Place,
    SourceLine, Speaker, Statement, TuningChoice, VersionLine, Warning,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::hash::Hash;

/// Different warnings, steps or notes beyond this number only count.
const MOST_KEPT: usize = 10_000;
/// Versions of NCCL beyond this number are no versions, and so are NICs of a host.
const MOST_VERSIONS: usize = 64;
const MOST_NICS: usize = 256;

/// Host, process and device: who warns.
type Gpu = (Box<str>, u64, Option<u32>);

/// A [`NcclLog`] in the making, with what makes its statements unique.
#[derive(Default)]
pub(crate) struct LogBuilder {
    pub log: NcclLog,
    pub statements: Vec<Statement>,
    /// NICs that hosts list, by host.
    pub nics: FxHashMap<String, Vec<Nic>>,
    env: FxHashMap<(String, String, bool), usize>,
    /// The settings, by index, that a host has told already.
    env_told: FxHashSet<(usize, Box<str>)>,
    /// The versions, by index, that a process loads for all we know.
    version_told: FxHashSet<(usize, Box<str>, u64)>,
    /// The versions, by index, that stand in the current input without the name of a process.
    unnamed_versions: Vec<usize>,
    networks: FxHashMap<(Option<String>, String, String), usize>,
    warnings: FxHashMap<(Option<Gpu>, String), usize>,
    steps: FxHashMap<(Option<Box<str>>, String, u32), usize>,
    choices: FxHashMap<(Option<&'static str>, u64, String, String), usize>,
    patterns: FxHashMap<String, usize>,
    seen_notes: FxHashMap<String, usize>,
}

impl LogBuilder {
    /// Keeps a version, and who loads it; a line without a name waits for the end of its input.
    pub fn version(&mut self, version: Version, process: Option<(&str, u64)>, source: SourceLine) {
        let versions = &mut self.log.versions;
        let known = versions.iter().position(|known| known.version == version.version);
        let index = known.unwrap_or(versions.len());
        if index >= MOST_VERSIONS {
            return;
        }
        if known.is_none() {
            let Version { version, cuda, library } = version;
            versions.push(VersionLine { version, cuda, library, processes: Vec::new(), source });
        }
        match process {
            Some((host, pid)) => self.loads(index, host, pid),
            None if self.unnamed_versions.contains(&index) => {}
            None => self.unnamed_versions.push(index),
        }
    }

    /// Ends an input: its only version without a name is that of its processes, where these are of one host.
    pub fn end(&mut self, processes: &[(&str, u64)]) {
        let one_host = processes.windows(2).all(|pair| pair[0].0 == pair[1].0);
        if let ([index], true) = (std::mem::take(&mut self.unnamed_versions).as_slice(), one_host) {
            processes.iter().for_each(|(host, pid)| self.loads(*index, host, *pid));
        }
    }

    fn loads(&mut self, version: usize, host: &str, pid: u64) {
        if self.version_told.insert((version, host.into(), pid)) {
            self.log.versions[version].processes.push((host.to_string(), pid));
        }
    }

    pub fn env(&mut self, (name, value): (String, String), origin: EnvOrigin, host: Option<&str>, source: SourceLine) {
        let key = (name, value, origin == EnvOrigin::NcclLog);
        let (name, value) = (key.0.clone(), key.1.clone());
        let new = || EnvSetting { name, value, origin, source, until: None, hosts: Vec::new() };
        let Some((index, setting)) = once(&mut self.env, &mut self.log.env, key, new) else { return };
        if let Some(host) = host
            && setting.hosts.last().map(String::as_str) != Some(host)
            && self.env_told.insert((index, host.into()))
        {
            setting.hosts.push(host.to_string());
        }
    }

    pub fn network(&mut self, line: NetLine, host: Option<&str>, source: SourceLine) {
        if let (NetworkStatement::Using(nics), Some(host)) = (&line.statement, host)
            && line.network != "Bootstrap"
        {
            let known = self.nics.entry(host.to_string()).or_default();
            for nic in nics.iter().take(MOST_NICS) {
                if known.len() < MOST_NICS && !known.iter().any(|n| n.name == nic.name && n.port == nic.port) {
                    known.push(nic.clone());
                }
            }
        }
        // Notes are many and alike on all hosts; lists, choices and plugins are reported host by host.
        let host = match &line.statement {
            NetworkStatement::Note(note) if !tells_plugin(note) => None,
            _ => host.map(str::to_string),
        };
        let statement = match &line.statement {
            NetworkStatement::Note(note) if !tells_plugin(note) => without_numbers(note),
            other => format!("{other:?}"),
        };
        let key = (host, line.network, statement);
        let (host, network) = (key.0.clone(), key.1.clone());
        let new = || NetworkLine { network, statement: line.statement, host, source };
        once(&mut self.networks, &mut self.log.networks, key, new);
    }

    /// Keeps a warning; its index, if it is kept.
    fn warning(&mut self, line: WarnLine, who: Option<LogPrefix>, place: Place) -> Option<usize> {
        let gpu = who.as_ref().map(|s| (s.host.clone(), s.pid, s.device));
        let key = (gpu, format!("{} {}", line.site.as_deref().unwrap_or(""), without_numbers(&line.message)));
        let WarnLine { site, message, text } = line;
        let new = || Warning { source: SourceLine::new(place, &text), who, site, message, count: 0 };
        once(&mut self.warnings, &mut self.log.warnings, key, new).map(|(index, _)| index)
    }

    pub fn error_step(&mut self, site: String, result: u32, who: Option<LogPrefix>, source: SourceLine) {
        let key = (who.as_ref().map(|s| s.host.clone()), site.clone(), result);
        let new = || ErrorStep { source, who, site, result, count: 0 };
        if let Some((_, step)) = once(&mut self.steps, &mut self.log.error_steps, key, new) {
            step.count += 1;
        }
    }

    pub fn choice(&mut self, line: ChoiceLine, source: &SourceLine) {
        let ChoiceLine { collective, bytes, algorithm, protocol, time_us } = line;
        let key = (collective.map(|c| c.name()), bytes.0, algorithm.clone(), protocol.clone());
        let place = source.place;
        let new = || TuningChoice { collective, bytes, algorithm, protocol, time_us, place, count: 0 };
        if let Some((_, choice)) = once(&mut self.choices, &mut self.log.tuning, key, new) {
            choice.count += 1;
        }
    }

    pub fn pattern(&mut self, line: PatternLine, source: SourceLine) {
        let key = format!("{line:?}");
        let PatternLine { pattern, cross_nic, channels, bw, types } = line;
        let (bw_intra, bw_inter) = bw.unzip();
        let (type_intra, type_inter) = types.unzip();
        let new = || GraphPattern { pattern, cross_nic, channels, bw_intra, bw_inter, type_intra, type_inter, source };
        once(&mut self.patterns, &mut self.log.patterns, key, new);
    }

    pub fn gpu_direct(&mut self, source: SourceLine) {
        let message = source.text.split("NCCL INFO ").last().unwrap_or_default();
        let key = without_numbers(message);
        once(&mut self.seen_notes, &mut self.log.gpu_direct, key, || source);
    }

    /// Keeps a line that nobody makes a fact of.
    pub fn statement(&mut self, speaker: Speaker, source: SourceLine, host: Option<String>) {
        if self.statements.len() >= MOST_KEPT {
            return;
        }
        let text = peel(&source.text).text;
        let text = if speaker == Speaker::Program { text } else { spoken(text).1 };
        let (level, message) = logger::read(text).unzip();
        let (level_said, said) = behind_logger(text).unzip();
        let level = level.or_else(|| logger::level_of(level_said?));
        let (text, message) = (said.unwrap_or(text), said.or(message));
        let behind = |text: &str| source.text.len() - text.len();
        let (begins, message) = (behind(text), behind(message.unwrap_or(text)));
        self.statements.push(Statement { speaker, host, source, level, begins, message });
    }
}

/// A warning of a worker's.
pub(crate) enum Warned {
    New(Box<WarnLine>),
    /// Its index in the log; none beyond those that are kept.
    Known(Option<usize>),
}

impl Warned {
    /// Counts a line of the warning.
    pub fn count(&mut self, log: &mut LogBuilder, who: impl FnOnce() -> Option<LogPrefix>, place: Place) {
        if let Warned::New(line) = self {
            *self = Warned::Known(log.warning(std::mem::take(&mut **line), who(), place));
        }
        if let Warned::Known(Some(index)) = self {
            log.log.warnings[*index].count += 1;
        }
    }
}

/// The statement of a key and its index: the one that is kept, a new one while there is room for it, else none.
fn once<'k, K: Eq + Hash, V>(
    known: &mut FxHashMap<K, usize>,
    kept: &'k mut Vec<V>,
    key: K,
    new: impl FnOnce() -> V,
) -> Option<(usize, &'k mut V)> {
    let index = match known.get(&key) {
        Some(index) => *index,
        None if kept.len() >= MOST_KEPT => return None,
        None => {
            known.insert(key, kept.len());
            kept.push(new());
            kept.len() - 1
        }
    };
    Some((index, kept.get_mut(index)?))
}

/// The wording of a message: runs of digits, and words that hold them after `0x`, become `N`.
pub(crate) fn without_numbers(message: &str) -> String {
    let mut plain = String::with_capacity(message.len());
    let mut hex = false;
    let mut previous = ' ';
    for c in message.chars() {
        hex = (hex && c.is_ascii_hexdigit()) || (previous == '0' && c == 'x');
        if !hex && !c.is_ascii_digit() {
            plain.push(c);
        } else if !plain.ends_with('N') {
            plain.push('N');
        }
        previous = c;
    }
    plain
}

/// Whether a note tells which network plugin a host loads, or what that chose.
fn tells_plugin(note: &str) -> bool {
    const HEADS: [&str; 5] = [
        "Initializing ",
        "Loaded net plugin ",
        "Using Libfabric version ",
        "Selected Provider is ",
        "Selected provider is ",
    ];
    HEADS.iter().any(|head| note.starts_with(head))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_differ_in_numbers_are_alike() {
        let one = without_numbers("Connect to 192.168.184.61<42427> failed, comm 0x7f00ab rank 12");
        let other = without_numbers("Connect to 10.0.0.7<9> failed, comm 0xdeadbeef rank 3");
        assert_eq!(one, other);
        assert_ne!(one, without_numbers("Connect to 10.0.0.7<9> succeeded"));
    }
}
