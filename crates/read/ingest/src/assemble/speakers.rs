//! Who speaks: hosts, processes and threads, torn names set right.

use crate::facts::SpeakerFact;
use busbw_model::LogPrefix;
use rustc_hash::FxHashMap;

/// Index of a speaker over all inputs.
pub(crate) type SpeakerId = u32;
/// Index of a process over all inputs.
pub(crate) type ProcessId = u32;
/// Index of a host name as printed.
pub(crate) type HostId = u32;

/// How many hosts that have a process of one number are compared with a torn name: pods all have process 28.
const MOST_OF_A_PID: usize = 1024;
/// Names are compared with each other to find torn ones where there are no more hosts than this: no job has as many.
const MOST_COMPARED: usize = 20_000;

/// Every host, process and thread met so far.
#[derive(Default)]
pub(crate) struct Speakers {
    hosts: Vec<Host>,
    host_ids: FxHashMap<Box<str>, HostId>,
    processes: Vec<(HostId, u64)>,
    process_ids: FxHashMap<(HostId, u64), ProcessId>,
    /// The hosts that have a process of a number: one, and others where several do.
    hosts_of_pid: FxHashMap<u64, (HostId, Vec<HostId>)>,
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

    fn count(&mut self, form: u32, lines: u32, clean_lines: u32) {
        self.lines += u64::from(lines);
        self.clean_lines += u64::from(clean_lines);
        if let Some((_, of_name)) = self.names.get_mut(form as usize) {
            *of_name += u64::from(lines);
        }
    }

    /// The index of a form of the name.
    fn form(&mut self, name: &str) -> u32 {
        let known = self.names.iter().position(|(known, _)| &**known == name);
        let form = known.unwrap_or_else(|| {
            self.names.push((name.into(), 0));
            self.names.len() - 1
        });
        form as u32
    }
}

/// A host and the form in which its name was printed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PrintedHost {
    host: HostId,
    form: u32,
}

/// A thread and the GPU it works for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownSpeaker {
    pub process: ProcessId,
    pub tid: u64,
    pub device: Option<u32>,
}

impl Speakers {
    /// The id of a speaker of a host, and the form in which the name of the host was printed.
    pub fn intern(&mut self, name: &str, fact: &SpeakerFact) -> (SpeakerId, PrintedHost) {
        let host = self.host(name, fact.pid);
        let printed = PrintedHost { host, form: self.hosts[host as usize].form(name) };
        let process = *self.process_ids.entry((host, fact.pid)).or_insert_with(|| {
            self.processes.push((host, fact.pid));
            self.hosts_of_pid.entry(fact.pid).and_modify(|(_, more)| more.push(host)).or_insert((host, Vec::new()));
            self.processes.len() as u32 - 1
        });
        let speaker = *self.speaker_ids.entry((process, fact.tid, fact.device)).or_insert_with(|| {
            self.speakers.push(KnownSpeaker { process, tid: fact.tid, device: fact.device });
            self.speakers.len() as u32 - 1
        });
        (speaker, printed)
    }

    /// Counts lines, all and those whose prefix nothing ran into.
    pub fn count(&mut self, printed: PrintedHost, lines: u32, clean_lines: u32) {
        self.hosts[printed.host as usize].count(printed.form, lines, clean_lines);
    }

    /// A host by name. A name that other output ran into, or that lost its beginning, is the host that has the same
    /// process: `sumnode-27:433602` is `node-27:433602`. What is left of a name (`n0`) may be left of several hosts'.
    fn host(&mut self, name: &str, pid: u64) -> HostId {
        let known = self.host_ids.get(name).copied();
        if let Some(id) = known
            && (self.hosts[id as usize].name() == name || self.process_ids.contains_key(&(id, pid)))
        {
            return id;
        }
        let same = self.hosts_of_pid.get(&pid).and_then(|(host, more)| {
            std::iter::once(host)
                .chain(more)
                .take(MOST_OF_A_PID)
                .copied()
                .find(|id| one_ends_with_other(self.hosts[*id as usize].name(), name))
        });
        let id = same.or(known).unwrap_or_else(|| {
            self.hosts.push(Host { names: Vec::new(), lines: 0, clean_lines: 0 });
            self.hosts.len() as u32 - 1
        });
        self.host_ids.entry(name.into()).or_insert(id);
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

    pub fn host_name_of(&self, speaker: SpeakerId) -> &str {
        self.host_name(self.host_of(self.get(speaker).process))
    }

    /// The speaker as the model shows it.
    pub fn model(&self, speaker: SpeakerId) -> LogPrefix {
        let KnownSpeaker { process, tid, device } = self.get(speaker);
        LogPrefix { host: self.host_name_of(speaker).into(), pid: self.pid(process), tid, device }
    }

    /// The real hosts, in order of appearance: `real[id]` is the index among them, or `None` for a name that only
    /// stands where other output ran into it.
    pub fn real_hosts(&self) -> (Vec<String>, Vec<Option<u32>>) {
        let any_clean = self.hosts.iter().any(|h| h.clean_lines > 0);
        let busiest = self.hosts.iter().map(|h| h.lines).max().unwrap_or(0);
        let mut names: Vec<String> = Vec::new();
        let mut indices: Vec<Option<u32>> = Vec::with_capacity(self.hosts.len());
        for (id, host) in self.hosts.iter().enumerate() {
            let rare = host.lines * 20 < busiest && self.hosts.len() <= MOST_COMPARED;
            let damaged = rare
                && self.hosts.iter().enumerate().any(|(other, o)| {
                    other != id && o.lines > host.lines && one_ends_with_other(o.name(), host.name())
                        || host.lines * 20 < o.lines && self.lost_its_middle(id as HostId, other as HostId)
                });
            let torn = any_clean && host.clean_lines == 0 || damaged;
            indices.push((!torn).then_some(names.len() as u32));
            if !torn {
                names.push(host.name().to_string());
            }
        }
        (names, indices)
    }

    /// Whether a host's name is the two ends of another's (`x3006c0sn0` of `x3006c0s25b0n0`) and its processes are the
    /// other's: a line that another rank wrote over.
    fn lost_its_middle(&self, torn: HostId, whole: HostId) -> bool {
        let (torn_name, whole_name) = (self.hosts[torn as usize].name(), self.hosts[whole as usize].name());
        let same = |(a, b): &(u8, u8)| a == b;
        let start = torn_name.bytes().zip(whole_name.bytes()).take_while(same).count();
        let end = torn_name.bytes().rev().zip(whole_name.bytes().rev()).take_while(same).count();
        torn_name.len() < whole_name.len()
            && start + end >= torn_name.len()
            && self
                .processes
                .iter()
                .filter(|(host, _)| *host == torn)
                .all(|(_, pid)| self.process_ids.contains_key(&(whole, *pid)))
    }
}

/// Whether one name is the end of the other: what is left of a name whose beginning was cut or run into.
fn one_ends_with_other(a: &str, b: &str) -> bool {
    a != b && (a.ends_with(b) || b.ends_with(a))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speak(speakers: &mut Speakers, host: &str, pid: u64, lines: (u32, u32)) -> SpeakerId {
        let fact = SpeakerFact { host: 0, pid, tid: pid, device: Some(0) };
        let (id, printed) = speakers.intern(host, &fact);
        speakers.count(printed, lines.0, lines.1);
        id
    }

    #[test]
    fn a_name_that_output_ran_into_is_its_host() {
        let mut speakers = Speakers::default();
        let real = speak(&mut speakers, "oneflow-27", 433602, (100, 100));
        for torn in ["sumoneflow-27", "-1oneflow-27", "flow-27"] {
            assert_eq!(speak(&mut speakers, torn, 433602, (1, 1)), real, "{torn}");
        }
        assert_eq!(speakers.real_hosts().0, ["oneflow-27"]);
    }

    #[test]
    fn the_torn_name_may_come_first() {
        let mut speakers = Speakers::default();
        let torn = speak(&mut speakers, "sumoneflow-27", 433602, (1, 1));
        assert_eq!(speak(&mut speakers, "oneflow-27", 433602, (100, 100)), torn);
        assert_eq!(speakers.real_hosts().0, ["oneflow-27"]);
    }

    #[test]
    fn hosts_with_like_names_stay_apart() {
        let mut speakers = Speakers::default();
        speak(&mut speakers, "gpu-node1", 10, (50, 50));
        speak(&mut speakers, "node1", 20, (50, 50));
        assert_eq!(speakers.real_hosts().0, ["gpu-node1", "node1"]);
    }

    /// Polaris: ranks write over each other without any lock.
    #[test]
    fn what_is_left_of_a_name_belongs_to_the_host_with_the_process() {
        let mut speakers = Speakers::default();
        let one = speak(&mut speakers, "x3001c0s25b0n0", 3839891, (100, 100));
        let other = speak(&mut speakers, "x3001c0s25b1n0", 3846764, (100, 100));
        assert_eq!(speak(&mut speakers, "n0", 3846764, (1, 1)), other);
        assert_eq!(speak(&mut speakers, "n0", 3839891, (1, 1)), one);
        speak(&mut speakers, "xn0", 3839891, (1, 1));
        let hosts = vec!["x3001c0s25b0n0".to_string(), "x3001c0s25b1n0".to_string()];
        assert_eq!(speakers.real_hosts(), (hosts, vec![Some(0), Some(1), None]));
    }

    #[test]
    fn pods_with_equal_process_ids_stay_apart() {
        let mut speakers = Speakers::default();
        speak(&mut speakers, "worker-11", 28, (100, 100));
        speak(&mut speakers, "worker-1", 28, (60, 60));
        assert_eq!(speakers.real_hosts().0, ["worker-11", "worker-1"]);
    }

    #[test]
    fn a_name_seen_only_in_torn_lines_is_no_host() {
        let mut speakers = Speakers::default();
        speak(&mut speakers, "80node1", 7, (1, 0));
        speak(&mut speakers, "node1", 8, (300, 300));
        assert_eq!(speakers.real_hosts(), (vec!["node1".to_string()], vec![None, Some(0)]));
    }
}
