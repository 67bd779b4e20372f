//! Who speaks: hosts, processes and threads, torn names set right.

use crate::facts::SpeakerFact;
use busbw_model::Speaker;
use rustc_hash::FxHashMap;

/// Index of a speaker over all inputs.
pub(crate) type SpeakerId = u32;
/// Index of a process over all inputs.
pub(crate) type ProcessId = u32;
/// Index of a host name as printed.
pub(crate) type HostId = u32;

/// Every host, process and thread met so far.
#[derive(Default)]
pub(crate) struct Speakers {
    hosts: Vec<Host>,
    host_ids: FxHashMap<Box<str>, HostId>,
    processes: Vec<(HostId, u64)>,
    process_ids: FxHashMap<(HostId, u64), ProcessId>,
    hosts_of_pid: FxHashMap<u64, Vec<HostId>>,
    speakers: Vec<KnownSpeaker>,
    speaker_ids: FxHashMap<(ProcessId, u64, Option<u32>), SpeakerId>,
}

struct Host {
    /// Every form of the name with its lines: the most frequent is the whole name.
    names: Vec<(Box<str>, u64)>,
    lines: u64,
    clean_lines: u64,
}

impl Host {
    fn name(&self) -> &str {
        self.names.iter().rev().max_by_key(|(_, lines)| *lines).map_or("", |(name, _)| name)
    }

    fn count(&mut self, name: &str, fact: &SpeakerFact) {
        self.lines += u64::from(fact.lines);
        self.clean_lines += u64::from(fact.clean_lines);
        match self.names.iter_mut().find(|(known, _)| &**known == name) {
            Some((_, lines)) => *lines += u64::from(fact.lines),
            None => self.names.push((name.into(), u64::from(fact.lines))),
        }
    }
}

/// A thread and the GPU it works for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownSpeaker {
    pub process: ProcessId,
    pub tid: u64,
    pub device: Option<u32>,
}

impl Speakers {
    /// The id of a speaker seen in a block.
    pub fn intern(&mut self, fact: &SpeakerFact) -> SpeakerId {
        let name = String::from_utf8_lossy(&fact.host);
        let host = self.host(&name, fact.pid);
        self.hosts[host as usize].count(&name, fact);
        let process = *self.process_ids.entry((host, fact.pid)).or_insert_with(|| {
            self.processes.push((host, fact.pid));
            self.hosts_of_pid.entry(fact.pid).or_default().push(host);
            self.processes.len() as u32 - 1
        });
        *self.speaker_ids.entry((process, fact.tid, fact.device)).or_insert_with(|| {
            self.speakers.push(KnownSpeaker { process, tid: fact.tid, device: fact.device });
            self.speakers.len() as u32 - 1
        })
    }

    /// A host by name. A name that other output ran into, or that lost its beginning, is the host that has the same
    /// process: `sumnode-27:433602` is `node-27:433602`.
    fn host(&mut self, name: &str, pid: u64) -> HostId {
        if let Some(id) = self.host_ids.get(name) {
            return *id;
        }
        let same = self.hosts_of_pid.get(&pid).and_then(|hosts| {
            hosts.iter().copied().find(|id| one_ends_with_other(self.hosts[*id as usize].name(), name))
        });
        let id = same.unwrap_or_else(|| {
            self.hosts.push(Host { names: Vec::new(), lines: 0, clean_lines: 0 });
            self.hosts.len() as u32 - 1
        });
        self.host_ids.insert(name.into(), id);
        id
    }

    pub fn get(&self, speaker: SpeakerId) -> KnownSpeaker {
        self.speakers[speaker as usize]
    }

    pub fn pid(&self, process: ProcessId) -> u64 {
        self.processes[process as usize].1
    }

    pub fn host_of(&self, process: ProcessId) -> HostId {
        self.processes[process as usize].0
    }

    pub fn host_name(&self, host: HostId) -> &str {
        self.hosts[host as usize].name()
    }

    /// The speaker as the model shows it.
    pub fn model(&self, speaker: SpeakerId) -> Speaker {
        let KnownSpeaker { process, tid, device } = self.get(speaker);
        Speaker { host: self.host_name(self.host_of(process)).into(), pid: self.pid(process), tid, device }
    }

    /// The real hosts, in order of appearance: `real[id]` is the index among them, or `None` for a name that only
    /// stands where other output ran into it.
    pub fn real_hosts(&self) -> (Vec<String>, Vec<Option<u32>>) {
        let any_clean = self.hosts.iter().any(|h| h.clean_lines > 0);
        let busiest = self.hosts.iter().map(|h| h.lines).max().unwrap_or(0);
        let mut names: Vec<String> = Vec::new();
        let mut indices: Vec<Option<u32>> = Vec::with_capacity(self.hosts.len());
        for (id, host) in self.hosts.iter().enumerate() {
            let rare = host.lines * 20 < busiest;
            let damaged = rare
                && self.hosts.iter().enumerate().any(|(other, o)| {
                    other != id && o.lines > host.lines && one_ends_with_other(o.name(), host.name())
                });
            let torn = any_clean && host.clean_lines == 0 || damaged;
            indices.push((!torn).then_some(names.len() as u32));
            if !torn {
                names.push(host.name().to_string());
            }
        }
        (names, indices)
    }
}

/// Whether one name is the end of the other: what is left of a name whose beginning was cut or run into.
fn one_ends_with_other(a: &str, b: &str) -> bool {
    a != b && (a.ends_with(b) || b.ends_with(a))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(host: &str, pid: u64, lines: u32, clean_lines: u32) -> SpeakerFact {
        SpeakerFact { host: host.as_bytes().into(), pid, tid: pid, device: Some(0), clean_lines, lines }
    }

    #[test]
    fn a_name_that_output_ran_into_is_its_host() {
        let mut speakers = Speakers::default();
        let real = speakers.intern(&fact("oneflow-27", 433602, 100, 100));
        for torn in ["sumoneflow-27", "-1oneflow-27", "flow-27"] {
            assert_eq!(speakers.intern(&fact(torn, 433602, 1, 1)), real, "{torn}");
        }
        assert_eq!(speakers.real_hosts().0, ["oneflow-27"]);
    }

    #[test]
    fn the_torn_name_may_come_first() {
        let mut speakers = Speakers::default();
        let torn = speakers.intern(&fact("sumoneflow-27", 433602, 1, 1));
        assert_eq!(speakers.intern(&fact("oneflow-27", 433602, 100, 100)), torn);
        assert_eq!(speakers.real_hosts().0, ["oneflow-27"]);
    }

    #[test]
    fn hosts_with_like_names_stay_apart() {
        let mut speakers = Speakers::default();
        speakers.intern(&fact("gpu-node1", 10, 50, 50));
        speakers.intern(&fact("node1", 20, 50, 50));
        assert_eq!(speakers.real_hosts().0, ["gpu-node1", "node1"]);
    }

    #[test]
    fn a_name_seen_only_in_torn_lines_is_no_host() {
        let mut speakers = Speakers::default();
        speakers.intern(&fact("80node1", 7, 1, 0));
        speakers.intern(&fact("node1", 8, 300, 300));
        assert_eq!(speakers.real_hosts(), (vec!["node1".to_string()], vec![None, Some(0)]));
    }
}
