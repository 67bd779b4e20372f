//! Which processes are a job's, and which of them are its ranks: by the variables that launchers leave in the environment.
//!
//! Processes that a rank starts inherit its variables, and launchers may have variables of an outer launcher. So a rank is the topmost
//! process with an identity, unless a process below it has another one: then it is a launcher.

use super::stat::Stat;
use crate::Root;
use std::collections::{BTreeMap, BTreeSet};

/// A process has its parent's environment until it starts its own program: those of new ones are read this often.
const LOOKS: u8 = 3;

/// Where the job's processes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// These, and what descends from them. Processes that came to it stay, whoever becomes their parent.
    Below(Vec<u32>),
    /// Those in control groups with this in their path: `job_4242` of Slurm, the identifier of a pod.
    Group(String),
}

/// Who a process is in its job.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// Which variables say so, the most trusted first: 0 is torchrun's.
    pub precedence: usize,
    pub rank: u32,
    /// How many ranks there are.
    pub size: u32,
    /// Rank on the host.
    pub local: Option<u32>,
    /// The port of PyTorch's store, whose connections are none between ranks.
    pub store: Option<u16>,
}

/// Rank, size and rank on the host, by launcher: torchrun, Open MPI and PMIx, MPICH, Slurm.
const VARIABLES: [[&str; 3]; 4] = [
    ["RANK", "WORLD_SIZE", "LOCAL_RANK"],
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"],
    ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"],
    ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"],
];

impl Identity {
    fn of(environment: &[(String, String)]) -> Option<Self> {
        let get = |name: &str| environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let number = |name: &str| get(name)?.parse::<u32>().ok();
        VARIABLES.iter().enumerate().find_map(|(precedence, [rank, size, local])| {
            let (rank, size) = (number(rank)?, number(size)?);
            let store = get("MASTER_PORT").and_then(|port| port.parse().ok());
            (rank < size).then_some(Identity { precedence, rank, size, local: number(local), store })
        })
    }

    /// Whether both are one process of the job; the store's port changes when torchrun starts ranks again.
    fn is(&self, other: &Identity) -> bool {
        (self.precedence, self.rank, self.size, self.local) == (other.precedence, other.rank, other.size, other.local)
    }
}

#[derive(Debug, Clone, Default)]
struct Member {
    started: u64,
    parent: u32,
    looks: u8,
    identity: Option<Identity>,
    /// The variable that is asked for.
    noted: Option<String>,
    unreadable: bool,
}

/// The processes of a job, remembered so that each is looked at only while it is new.
#[derive(Debug)]
pub struct Members {
    scope: Scope,
    /// A variable of theirs that somebody asks for.
    noted: Option<&'static str>,
    known: BTreeMap<u32, Member>,
    /// Processes that are none of the job's, by when they were started.
    strangers: BTreeMap<u32, u64>,
}

impl Members {
    /// Of this job; nothing is read yet.
    pub fn of(scope: Scope) -> Self {
        Members { scope, noted: None, known: BTreeMap::new(), strangers: BTreeMap::new() }
    }

    /// With the value that this variable has for each process.
    pub fn noting(self, variable: &'static str) -> Self {
        Members { noted: Some(variable), ..self }
    }

    /// Looks for new processes, and forgets those that are gone.
    pub fn look(&mut self, root: &Root) {
        let all: Vec<u32> = root.list("/proc").iter().filter_map(|name| name.parse().ok()).collect();
        let there: BTreeSet<u32> = all.iter().copied().collect();
        self.known.retain(|pid, _| there.contains(pid));
        self.strangers.retain(|pid, _| there.contains(pid));
        let new: Vec<(u32, Stat)> = all
            .into_iter()
            .filter(|pid| !self.strangers.contains_key(pid))
            .filter_map(|pid| Some((pid, Stat::read(root, pid)?)))
            .collect();
        for (pid, stat) in &new {
            match self.known.get_mut(pid) {
                Some(member) if member.started == stat.started => member.parent = stat.parent,
                _ => {
                    self.known.remove(pid);
                }
            }
        }
        // Numbers go around, so that a child may have a smaller one than its parent.
        let mut grew = true;
        while grew {
            grew = false;
            for (pid, stat) in &new {
                if !self.known.contains_key(pid) && self.belongs(root, *pid, stat) {
                    let member = Member { started: stat.started, parent: stat.parent, ..Member::default() };
                    self.known.insert(*pid, member);
                    grew = true;
                }
            }
        }
        for (pid, stat) in new {
            if !self.known.contains_key(&pid) {
                self.strangers.insert(pid, stat.started);
            }
        }
        for (pid, member) in self.known.iter_mut().filter(|(_, member)| member.looks < LOOKS) {
            member.looks += 1;
            let environment = environment(root, *pid);
            member.unreadable = environment.is_none();
            member.identity = environment.as_deref().and_then(Identity::of);
            let named =
                |name| environment.iter().flatten().find(|(key, _)| key == name).map(|(_, value)| value.clone());
            member.noted = self.noted.and_then(named);
        }
    }

    fn belongs(&self, root: &Root, pid: u32, stat: &Stat) -> bool {
        match &self.scope {
            Scope::Below(roots) => roots.contains(&pid) || self.known.contains_key(&stat.parent),
            Scope::Group(part) => root
                .value(&format!("/proc/{pid}/cgroup"))
                .is_some_and(|groups| groups.split(['/', '\n', '.', ':']).any(|name| names(name, part))),
        }
    }

    /// The ranks: their processes and who they are.
    pub fn ranks(&self) -> Vec<(u32, Identity)> {
        let mut launchers = BTreeSet::new();
        let mut topmost = Vec::new();
        for (pid, member) in &self.known {
            let Some(identity) = &member.identity else { continue };
            match self.above(*pid) {
                Some((_, above)) if above.is(identity) => continue,
                Some((launcher, _)) => launchers.insert(launcher),
                None => false,
            };
            topmost.push((*pid, identity.clone()));
        }
        topmost.retain(|(pid, _)| !launchers.contains(pid));
        let trusted = topmost.iter().map(|(_, identity)| identity.precedence).min();
        topmost.retain(|(_, identity)| Some(identity.precedence) == trusted);
        topmost
    }

    /// The nearest process above that has an identity.
    fn above(&self, pid: u32) -> Option<(u32, &Identity)> {
        self.ancestors(pid).find_map(|pid| Some((pid, self.known.get(&pid)?.identity.as_ref()?)))
    }

    fn ancestors(&self, pid: u32) -> impl Iterator<Item = u32> {
        let parent =
            |pid: &u32| self.known.get(pid).map(|member| member.parent).filter(|pid| self.known.contains_key(pid));
        std::iter::successors(parent(&pid), parent).take(self.known.len())
    }

    /// What descends from a process.
    pub(super) fn helpers(&self, of: u32) -> impl Iterator<Item = u32> {
        self.known.keys().copied().filter(move |pid| self.ancestors(*pid).any(|above| above == of))
    }

    /// All processes, by number.
    pub fn all(&self) -> Vec<u32> {
        self.known.keys().copied().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// The variable that is noted, as a process was started with it.
    pub fn noted(&self, pid: u32) -> Option<&str> {
        self.known.get(&pid)?.noted.as_deref()
    }

    /// Processes whose environment this user may not read.
    pub fn unreadable(&self) -> usize {
        self.known.values().filter(|member| member.unreadable).count()
    }
}

/// Whether a control group's name is or ends in this: `cri-containerd-0123`, `kubepods-besteffort-pod0123`, whose dashes systemd writes
/// as underscores.
fn names(name: &str, part: &str) -> bool {
    let plain = |text: &str| text.replace('_', "-");
    let (name, part) = (plain(name), plain(part));
    name == part || name.strip_suffix(&part).is_some_and(|before| before.ends_with('-') || before.ends_with("pod"))
}

/// The variables of a process, as it was started with them.
pub(super) fn environment(root: &Root, pid: u32) -> Option<Vec<(String, String)>> {
    let bytes = root.bytes(&format!("/proc/{pid}/environ")).ok()?;
    let variables = bytes.split(|byte| *byte == 0).filter_map(|one| {
        let one = String::from_utf8_lossy(one);
        let (name, value) = one.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    });
    Some(variables.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn process(tree: &Path, pid: u32, parent: u32, environment: &str) {
        let folder = tree.join(format!("proc/{pid}"));
        fs::create_dir_all(&folder).unwrap();
        let rest = "1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 77 0 0";
        fs::write(folder.join("stat"), format!("{pid} (python) S {parent} {rest}")).unwrap();
        fs::write(folder.join("environ"), environment.replace(' ', "\0")).unwrap();
        fs::write(folder.join("cgroup"), format!("0::/system.slice/slurmstepd.scope/job_{}/step_0\n", 40 + pid % 2))
            .unwrap();
    }

    fn ranks(processes: &[(u32, u32, &str)], scope: Scope) -> Vec<(u32, u32, u32)> {
        let folder = tempfile::tempdir().unwrap();
        for (pid, parent, environment) in processes {
            process(folder.path(), *pid, *parent, environment);
        }
        let mut members = Members::of(scope);
        members.look(&Root::captured(folder.path()).unwrap());
        members.ranks().into_iter().map(|(pid, identity)| (pid, identity.rank, identity.size)).collect()
    }

    const AGENT: (u32, u32, &str) = (10, 1, "PATH=/bin");

    #[test]
    fn helpers_launchers_and_strangers_are_no_ranks() {
        let loaders = [
            AGENT,
            (11, 10, "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0"),
            (12, 10, "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1"),
            (13, 11, "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0"),
            (14, 13, "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0"),
            (20, 1, "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0"),
        ];
        assert_eq!(ranks(&loaders, Scope::Below(vec![10])), [(11, 0, 2), (12, 1, 2)]);
        // Below a single rank's own process.
        assert_eq!(ranks(&loaders, Scope::Below(vec![11])), [(11, 0, 2)]);
        // Kubeflow gives the agent RANK and WORLD_SIZE of the pods; srun gives agents SLURM_PROCID.
        for outer in ["RANK=0 WORLD_SIZE=2", "RANK=0 WORLD_SIZE=1 MASTER_PORT=1", "SLURM_PROCID=0 SLURM_NTASKS=2"] {
            let job = [(10, 1, outer), (11, 10, &*format!("{outer} RANK=0 WORLD_SIZE=1 LOCAL_RANK=0"))];
            let job = [job[0], (11, 10, job[1].2.strip_prefix("RANK=0 WORLD_SIZE=2 ").unwrap_or(job[1].2))];
            assert_eq!(ranks(&job, Scope::Below(vec![10])).len(), 1, "{outer}");
            assert_eq!(ranks(&job, Scope::Below(vec![10]))[0].0, 11, "{outer}");
        }
        // A wrapper that starts one rank is the rank's own process: the topmost.
        let wrapped = [(10, 1, "PMI_RANK=3 PMI_SIZE=4"), (11, 10, "PMI_RANK=3 PMI_SIZE=4")];
        assert_eq!(ranks(&wrapped, Scope::Below(vec![10])), [(10, 3, 4)]);
        for no_rank in ["RANK=2 WORLD_SIZE=2", "RANK=x WORLD_SIZE=2", "RANK=0"] {
            assert_eq!(ranks(&[AGENT, (11, 10, no_rank)], Scope::Below(vec![10])), [], "{no_rank}");
        }
    }

    #[test]
    fn a_slurm_job_is_a_control_group() {
        let job = [
            (10, 1, "SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_LOCALID=0"),
            (11, 1, "SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_LOCALID=0"),
            (12, 1, "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=1"),
        ];
        assert_eq!(ranks(&job, Scope::Group("job_40".into())), [(10, 0, 2), (12, 1, 2)]);
        assert_eq!(ranks(&job, Scope::Group("job_4".into())), []);
        assert!(names("kubepods-burstable-pod1b2c_3d", "1b2c-3d") && !names("job_140", "40"));
    }
}
