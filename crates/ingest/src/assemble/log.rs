//! What NCCL says about itself, each statement once.

use crate::facts::WarnLine;
use crate::nccl_log::{ChoiceLine, NetLine, PatternLine, Version};
use busbw_model::{
    EnvOrigin, EnvSetting, ErrorStep, GraphPattern, NcclLog, NetworkLine, NetworkStatement, Nic, Remark, RemarkKind,
    SourceLine, Speaker, TuningChoice, VersionLine, Warning,
};
use rustc_hash::FxHashMap;

/// Different warnings, steps, remarks or notes beyond this number only count.
const MOST_KEPT: usize = 10_000;

/// Host, process and device: who warns.
type Gpu = (Box<str>, u64, Option<u32>);

/// A [`NcclLog`] in the making, with what makes its statements unique.
#[derive(Default)]
pub(crate) struct LogBuilder {
    pub log: NcclLog,
    pub remarks: Vec<Remark>,
    /// NICs that hosts list, by host.
    pub nics: FxHashMap<String, Vec<Nic>>,
    env: FxHashMap<(String, String, bool), usize>,
    networks: FxHashMap<(Option<String>, String, String), usize>,
    warnings: FxHashMap<(Option<Gpu>, String), usize>,
    steps: FxHashMap<(Option<Box<str>>, String, u32), usize>,
    choices: FxHashMap<(Option<&'static str>, u64, String, String), usize>,
    seen_remarks: FxHashMap<(RemarkKind, String), usize>,
    seen_notes: FxHashMap<String, ()>,
}

impl LogBuilder {
    pub fn version(&mut self, version: Version, source: SourceLine) {
        if !self.log.versions.iter().any(|v| v.version == version.version) {
            let Version { version, cuda, library } = version;
            self.log.versions.push(VersionLine { version, cuda, library, source });
        }
    }

    pub fn env(&mut self, (name, value): (String, String), origin: EnvOrigin, host: Option<&str>, source: SourceLine) {
        let key = (name, value, origin == EnvOrigin::NcclLog);
        let index = match self.env.get(&key) {
            Some(index) => *index,
            None if self.log.env.len() >= MOST_KEPT => return,
            None => {
                let (name, value) = (key.0.clone(), key.1.clone());
                self.log.env.push(EnvSetting { name, value, origin, source, hosts: Vec::new() });
                self.env.insert(key, self.log.env.len() - 1);
                self.log.env.len() - 1
            }
        };
        let hosts = &mut self.log.env[index].hosts;
        if let Some(host) = host
            && hosts.last().map(String::as_str) != Some(host)
            && !hosts.iter().any(|h| h == host)
        {
            hosts.push(host.to_string());
        }
    }

    pub fn network(&mut self, line: NetLine, host: Option<&str>, source: SourceLine) {
        if let (NetworkStatement::Using(nics), Some(host)) = (&line.statement, host)
            && line.network != "Bootstrap"
        {
            let known = self.nics.entry(host.to_string()).or_default();
            for nic in nics {
                if !known.iter().any(|n| n.name == nic.name && n.port == nic.port) {
                    known.push(nic.clone());
                }
            }
        }
        // Notes are many and alike on all hosts; lists and choices are told host by host.
        let host = match &line.statement {
            NetworkStatement::Note(_) => None,
            _ => host.map(str::to_string),
        };
        let statement = match &line.statement {
            NetworkStatement::Note(note) => without_numbers(note),
            other => format!("{other:?}"),
        };
        let key = (host, line.network, statement);
        if !self.networks.contains_key(&key) && self.log.networks.len() < MOST_KEPT {
            let (host, network) = (key.0.clone(), key.1.clone());
            self.log.networks.push(NetworkLine { network, statement: line.statement, host, source });
            self.networks.insert(key, self.log.networks.len() - 1);
        }
    }

    pub fn warning(&mut self, line: WarnLine, speaker: Option<Speaker>, source: SourceLine) {
        let who = speaker.as_ref().map(|s| (s.host.clone(), s.pid, s.device));
        let key = (who, format!("{} {}", line.site.as_deref().unwrap_or(""), without_numbers(&line.message)));
        match self.warnings.get(&key) {
            Some(index) => self.log.warnings[*index].count += 1,
            None if self.log.warnings.len() < MOST_KEPT => {
                self.warnings.insert(key, self.log.warnings.len());
                let WarnLine { site, message, .. } = line;
                self.log.warnings.push(Warning { source, speaker, site, message, count: 1 });
            }
            None => {}
        }
    }

    pub fn error_step(&mut self, site: String, result: u32, speaker: Option<Speaker>, source: SourceLine) {
        let key = (speaker.as_ref().map(|s| s.host.clone()), site.clone(), result);
        match self.steps.get(&key) {
            Some(index) => self.log.error_steps[*index].count += 1,
            None if self.log.error_steps.len() < MOST_KEPT => {
                self.steps.insert(key, self.log.error_steps.len());
                self.log.error_steps.push(ErrorStep { source, speaker, site, result, count: 1 });
            }
            None => {}
        }
    }

    pub fn choice(&mut self, line: ChoiceLine, source: &SourceLine) {
        let ChoiceLine { collective, bytes, algorithm, protocol, time_us } = line;
        let key = (collective.map(|c| c.name()), bytes.0, algorithm.clone(), protocol.clone());
        match self.choices.get(&key) {
            Some(index) => self.log.tuning[*index].count += 1,
            None if self.log.tuning.len() < MOST_KEPT => {
                self.choices.insert(key, self.log.tuning.len());
                let place = source.place;
                self.log.tuning.push(TuningChoice { collective, bytes, algorithm, protocol, time_us, place, count: 1 });
            }
            None => {}
        }
    }

    pub fn pattern(&mut self, line: PatternLine, source: SourceLine) {
        let PatternLine { pattern, cross_nic, channels, bw, types } = line;
        let (bw_intra, bw_inter) = bw.unzip();
        let (type_intra, type_inter) = types.unzip();
        let new = GraphPattern { pattern, cross_nic, channels, bw_intra, bw_inter, type_intra, type_inter, source };
        let same = |old: &GraphPattern| GraphPattern { source: new.source.clone(), ..old.clone() } == new;
        if self.log.patterns.len() < MOST_KEPT && !self.log.patterns.iter().any(same) {
            self.log.patterns.push(new);
        }
    }

    pub fn gpu_direct(&mut self, source: SourceLine) {
        let message = source.text.split("NCCL INFO ").last().unwrap_or_default();
        let key = without_numbers(message);
        if self.seen_notes.len() < MOST_KEPT && self.seen_notes.insert(key, ()).is_none() {
            self.log.gpu_direct.push(source);
        }
    }

    pub fn remark(&mut self, kind: RemarkKind, source: SourceLine) {
        let key = (kind, without_numbers(&source.text));
        match self.seen_remarks.get(&key) {
            Some(index) => self.remarks[*index].count += 1,
            None if self.remarks.len() < MOST_KEPT => {
                self.seen_remarks.insert(key, self.remarks.len());
                self.remarks.push(Remark { kind, source, count: 1 });
            }
            None => {}
        }
    }
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
