//! A job's ranks as their processes show them at one moment: states, waits, processor time, bytes, sockets.
//!
//! A [`JobSample`] holds raw numbers and the time they were read, nothing computed, as [`crate::counters`] does: who waits for whom and
//! what a standstill is, is found elsewhere, and tested without a job.

mod connection;
mod diag;
mod end;
mod members;
mod sockets;
mod stat;

pub use connection::{Connection, Timer};
pub use end::{Ended, Ends};
pub use members::{Identity, Members, Scope};
pub use stat::{Io, Stat};

use crate::Root;
use crate::counters::now_us;
use busbw_model::ProcessState;
use sockets::Sockets;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// What was read of a job at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobSample {
    /// Microseconds since 1970.
    pub time_us: u64,
    /// In order of rank.
    pub ranks: Vec<RankSample>,
    /// Processes of the job, those that are no ranks too.
    pub processes: usize,
    /// Processes whose environment this user may not read.
    pub unreadable: usize,
    /// Addresses that are this host's, as the ranks see them.
    pub own_addresses: BTreeSet<IpAddr>,
    /// Interfaces without a carrier that have an address which a rank uses.
    pub without_carrier: Vec<String>,
}

/// What was read of a rank.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RankSample {
    pub identity: Identity,
    pub pid: u32,
    /// The host that it runs on, as far as its process tells.
    pub host: Option<String>,
    pub state: ProcessState,
    /// Processor time of its process in microseconds, user and system.
    pub cpu_us: u64,
    /// The same of the processes that it started, such as loaders of data.
    pub helpers_cpu_us: u64,
    /// How often its main thread gave up its core by itself.
    pub switches: Option<u64>,
    /// The system call that its main thread is in, by number; none where it runs or this user may not know.
    pub system_call: Option<i64>,
    /// The function of the kernel in which its main thread waits.
    pub kernel_function: Option<String>,
    /// What it read and wrote; none where this user may not know.
    pub io: Option<Io>,
    /// Its TCP connections.
    pub connections: Vec<Connection>,
    /// Whether it has opened a GPU.
    pub on_gpu: bool,
    /// Whether this user may read its stack and descriptors.
    pub readable: bool,
}

/// Reads a job again and again.
#[derive(Debug)]
pub struct JobReader {
    root: Root,
    members: Members,
    sockets: Sockets,
    about: BTreeMap<u32, About>,
}

/// What does not change as long as a process runs.
#[derive(Debug, Clone, Default)]
struct About {
    host: Option<String>,
    names: BTreeMap<IpAddr, String>,
}

impl JobReader {
    pub fn new(root: Root, scope: Scope) -> Self {
        JobReader { root, members: Members::of(scope), sockets: Sockets::default(), about: BTreeMap::new() }
    }

    /// Reads all ranks. What is gone between two looks is left out.
    pub fn read(&mut self) -> JobSample {
        self.members.look(&self.root);
        let ranks = self.members.ranks();
        self.about.retain(|pid, _| ranks.iter().any(|(rank, _)| rank == pid));
        self.sockets.begin();
        let mut sample = JobSample {
            time_us: now_us(),
            processes: self.members.len(),
            unreadable: self.members.unreadable(),
            ..JobSample::default()
        };
        for (pid, identity) in ranks {
            sample.ranks.extend(self.rank(pid, identity));
        }
        sample.ranks.sort_by_key(|rank| (rank.identity.rank, rank.pid));
        for rank in &sample.ranks {
            sample.own_addresses.extend(self.sockets.own_addresses(&self.root, rank.pid));
        }
        let used: BTreeSet<IpAddr> =
            sample.ranks.iter().flat_map(|rank| &rank.connections).map(|one| one.local.ip()).collect();
        sample.without_carrier = self.sockets.without_carrier(&self.root, &used, &sample.ranks);
        sample
    }

    fn rank(&mut self, pid: u32, identity: Identity) -> Option<RankSample> {
        let root = &self.root;
        let stat = Stat::read(root, pid)?;
        let about = self.about.entry(pid).or_insert_with(|| About::read(root, pid));
        let helpers = self.members.helpers(pid);
        let (inodes, on_gpu) = sockets::descriptors(root, pid).unwrap_or_default();
        Some(RankSample {
            identity,
            pid,
            host: about.host.clone(),
            state: stat.state,
            cpu_us: stat.cpu_us,
            helpers_cpu_us: helpers.filter_map(|pid| Stat::read(root, pid)).map(|stat| stat.cpu_us).sum(),
            switches: stat::switches(root, pid),
            system_call: stat::system_call(root, pid),
            kernel_function: stat::kernel_function(root, pid),
            io: Io::read(root, pid),
            readable: root.exists(&format!("/proc/{pid}/fd/0")) || !inodes.is_empty(),
            connections: self.sockets.of(root, pid, &inodes),
            on_gpu,
        })
    }

    /// What the hosts file of a rank calls an address.
    pub fn name_of(&self, pid: u32, address: IpAddr) -> Option<&str> {
        self.about.get(&pid)?.names.get(&address).map(String::as_str)
    }

    /// The processes of the job, the ranks too.
    pub fn processes(&self) -> Vec<u32> {
        self.members.all()
    }
}

impl About {
    fn read(root: &Root, pid: u32) -> Self {
        let variable = |name: &str| {
            let environment = members::environment(root, pid)?;
            environment.into_iter().find_map(|(key, value)| (key == name).then_some(value))
        };
        let own = |pid: &str| root.link_name(&format!("/proc/{pid}/ns/uts"));
        let here = own("self").is_some() && own("self") == own(&pid.to_string());
        let named = || root.value("/proc/sys/kernel/hostname");
        let host = if here { named() } else { None };
        // In a pod the variable is its name; where ranks have a name space of their own, the name is not to be had otherwise.
        let host = host.or_else(|| variable("BUSBW_HOST")).or_else(|| variable("SLURMD_NODENAME"));
        About { host, names: hosts_file(root, pid) }
    }
}

/// Addresses by name, as the process's own /etc/hosts has them.
fn hosts_file(root: &Root, pid: u32) -> BTreeMap<IpAddr, String> {
    let text = root.value(&format!("/proc/{pid}/root/etc/hosts")).unwrap_or_default();
    let mut names = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        if let (Some(Ok(address)), Some(name)) = (words.next().map(str::parse::<IpAddr>), words.next())
            && !address.is_loopback()
        {
            names.entry(address).or_insert_with(|| name.to_owned());
        }
    }
    names
}
