//! The embedded engine: a rank on cores, over shared memory within a host and TCP between hosts.

use crate::backend::{Backend, Combine, Device, JobBackend, Memory, NicBytes};
use crate::flags::BackendName;
use crate::split::Split;
use crate::{Error, Flags, Result, host_memory, limit};
use busbw_collectives::algorithms::Choice;
use busbw_collectives::communicator::{Communicator, Options};
use busbw_collectives::{Operation, Room};
use busbw_launch::{ProcessGroup, Rendezvous};
use busbw_model::{Collective, Datatype, HostMemory, RedOp, TuningTable, counted};
use busbw_transport::host::Host;
use busbw_transport::{Cancellation, Exchange, tcp};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One rank on cores.
pub struct Cpu {
    world: ProcessGroup,
    communicator: Communicator,
    device: Device,
    ranks_on_host: usize,
    /// The group that is tested has all ranks of the job.
    is_whole: bool,
    /// Checksums were asked for.
    checksum: bool,
    /// The tuning table that is followed, in words.
    table: Option<String>,
}

impl Cpu {
    /// Takes the place of this process's rank-thread number `thread` in its job, and connects it to the ranks of its group
    /// (`NCCL_TESTS_SPLIT`). `variable` looks up the environment.
    pub fn join(
        rendezvous: &Rendezvous,
        thread: usize,
        flags: &Flags,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let cancel = Cancellation::new();
        let table = tuning_table(variable)?.map(Arc::new);
        let choice = choice(flags, variable)?.with_table(table.clone());
        let tcp = tcp_config(flags, variable)?;
        let checksum = tcp.checksum;
        let color = Split::read(variable)?.color((rendezvous.first_rank() / rendezvous.ranks_per_process()) as u32);
        let mut world = rendezvous.join(thread, Arc::clone(&cancel))?;
        same_on_all_hosts(&mut world, flags, table.as_deref())?;
        let (rank, size) = (Exchange::rank(&world), Exchange::size(&world));
        let info = world.ranks()[rank].clone();
        let ranks_on_host = world.ranks().iter().filter(|other| other.host_id == info.host_id).count();
        let local_rank = world.ranks()[..rank].iter().filter(|other| other.host_id == info.host_id).count();
        let token = world.token();
        let joined = world.split(i64::from(color), rank as i64).and_then(|mut group| {
            let mut local = group.split(info.host_id as i64, rank as i64)?;
            let host = Host::here(&info.host, info.host_id);
            let (interface_names, address_family) = (variable("NCCL_SOCKET_IFNAME"), variable("NCCL_SOCKET_FAMILY"));
            let options = Options { token, cancel, host, choice, tcp, interface_names, address_family };
            Communicator::join(&mut group, &mut local, options)
        });
        let communicator = match joined {
            Ok(communicator) => communicator,
            Err(error) => return Err(Error::Job(world.fail(&error.to_string()))),
        };
        let device = Device {
            rank,
            group: color,
            pid: info.pid,
            host: info.host.split('.').next().unwrap_or_default().to_owned(),
            device: local_rank,
            bus_id: "0000:00:00".into(),
            name: processor(),
        };
        let is_whole = communicator.size() == size;
        let told = |table: Arc<TuningTable>| {
            let path = variable(TUNING_TABLE).unwrap_or_default();
            format!("tuning table {path} ({})", counted(table.choices.len(), "choice"))
        };
        Ok(Cpu { world, communicator, device, ranks_on_host, is_whole, checksum, table: table.map(told) })
    }

    pub(super) fn world(&mut self) -> &mut ProcessGroup {
        &mut self.world
    }

    /// Runs a small operation of the engine itself, in place.
    fn reduce_small(&mut self, values: &mut [f64], redop: RedOp) -> Result<()> {
        // SAFETY: the slice outlives the communicator's use of it: where this fails, the rank leaves its job.
        let room = unsafe { Room::new(values.as_mut_ptr().cast(), size_of_val(values)) };
        let operation = Operation {
            collective: Collective::AllReduce,
            datatype: Datatype::Double,
            redop,
            count: values.len(),
            root: 0,
            send: room.data(),
            receive: room,
            counts: &[],
        };
        Ok(self.communicator.run(&operation)?)
    }
}

/// Each host chooses its backend by itself ([`Flags::settle_backend`]) and reads its own copy of the tuning table.
///
/// # Errors
/// Some hosts have another backend or table than others: which.
fn same_on_all_hosts(world: &mut ProcessGroup, flags: &Flags, table: Option<&TuningTable>) -> Result<()> {
    let backend = flags.backend.unwrap_or(BackendName::Cpu).name();
    let mine = table.map_or(backend.to_owned(), |table| format!("{backend}\n{}", table.to_toml("")));
    let all = world.all_gather(mine.as_bytes())?;
    let mut hosts: BTreeMap<Cow<'_, str>, BTreeSet<&str>> = BTreeMap::new();
    for (name, rank) in all.iter().zip(world.ranks()) {
        hosts.entry(String::from_utf8_lossy(name)).or_default().insert(&rank.host);
    }
    if hosts.len() < 2 {
        return Ok(());
    }
    let backend_of = |name: &Cow<'_, str>| name.split('\n').next().unwrap_or_default().to_owned();
    let backends: BTreeSet<String> = hosts.keys().map(backend_of).collect();
    if backends.len() < 2 {
        let each: Vec<String> = hosts.values().map(listed).collect();
        return Err(Error::Setting(format!(
            "{TUNING_TABLE}: the hosts have different tables: one on {}. Give all the same file",
            each.join("; another on ")
        )));
    }
    let each: Vec<String> =
        hosts.iter().map(|(name, hosts)| format!("{} on {}", backend_of(name), listed(hosts))).collect();
    let each = each.join("; ");
    Err(Error::Setting(format!(
        "hosts chose different backends: {each}. Give all the same, with --backend or BUSBW_BACKEND, or leave out hosts without GPUs"
    )))
}

fn listed(hosts: &BTreeSet<&str>) -> String {
    const MOST: usize = 8;
    let first = hosts.iter().take(MOST).copied().collect::<Vec<_>>().join(", ");
    if hosts.len() > MOST { format!("{first} and {} more", hosts.len() - MOST) } else { first }
}

/// Looks at settings that every rank would find wrong, before any is started.
pub fn check_settings(flags: &Flags, variable: &dyn Fn(&str) -> Option<String>) -> Result<()> {
    choice(flags, variable)?;
    tuning_table(variable)?;
    tcp_config(flags, variable)?;
    Split::read(variable)?;
    Ok(())
}

/// The variable that names a tuning table, here and for NCCL's tuner plugin.
const TUNING_TABLE: &str = TuningTable::VARIABLE;

fn choice(flags: &Flags, variable: &dyn Fn(&str) -> Option<String>) -> Result<Choice> {
    let (name, text) = match &flags.algo {
        Some(text) => ("--algo", Some(text.clone())),
        None => ("NCCL_ALGO", variable("NCCL_ALGO")),
    };
    let text = text.unwrap_or_default();
    let choice = busbw_collectives::algorithms::parse(text.trim());
    choice.map_err(|why| Error::Setting(format!("{name}={text}: {why}")))
}

/// The table that [`TUNING_TABLE`] names.
fn tuning_table(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<TuningTable>> {
    let Some(path) = variable(TUNING_TABLE).filter(|path| !path.trim().is_empty()) else { return Ok(None) };
    let failed = |why: String| Error::Setting(format!("{TUNING_TABLE}={path}: {why}"));
    let text = std::fs::read_to_string(&path).map_err(|error| failed(error.to_string()))?;
    TuningTable::parse(&text).map(Some).map_err(|error| failed(error.to_string()))
}

fn tcp_config(flags: &Flags, variable: &dyn Fn(&str) -> Option<String>) -> Result<tcp::Config> {
    let flag = |name: &str| match name {
        "NCCL_SOCKET_NTHREADS" => flags.threads.map(|n| n.to_string()),
        "NCCL_NSOCKS_PERTHREAD" => flags.sockets.map(|n| n.to_string()),
        _ => None,
    };
    let config = tcp::Config::from_env(&|name| flag(name).or_else(|| variable(name)))?;
    Ok(tcp::Config { checksum: config.checksum || flags.checksum, ..config })
}

/// The processor's name, marked as one.
fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    format!("CPU {}", name.map_or(std::env::consts::ARCH, |(_, name)| name.trim()))
}

impl Backend for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn details(&self) -> String {
        let transports = self.communicator.transports();
        self.table.iter().fold(transports, |transports, table| format!("{transports}, {table}"))
    }

    fn memory(&mut self) -> Option<HostMemory> {
        if self.hosts() == Some(1) { host_memory::measure(self.ranks_on_host) } else { None }
    }

    fn has_checksums(&self) -> bool {
        self.checksum && self.hosts() != Some(1)
    }

    fn hosts(&self) -> Option<usize> {
        let hosts: BTreeSet<u64> = self.world.ranks().iter().map(|info| info.host_id).collect();
        Some(hosts.len())
    }

    fn rank(&self) -> usize {
        self.communicator.rank()
    }

    fn nranks(&self) -> usize {
        self.communicator.size()
    }

    fn describe(&self) -> Device {
        self.device.clone()
    }

    fn available_bytes(&self) -> u64 {
        limit::share_of_host(self.ranks_on_host)
    }

    fn used_bytes(&self) -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB"));
        resident.and_then(|kib| kib.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
    }

    fn alloc(&mut self, bytes: usize) -> Result<Memory> {
        let buffer = self.communicator.alloc(bytes)?;
        Ok(Memory::new(buffer.as_ptr(), buffer.len(), Box::new(buffer)))
    }

    fn run(&mut self, operation: &Operation<'_>) -> Result<()> {
        Ok(self.communicator.run(operation)?)
    }

    fn synchronize(&mut self) -> Result<()> {
        Ok(()) // an operation is done when `run` returns
    }

    fn barrier(&mut self) -> Result<()> {
        if !self.is_whole {
            self.world.barrier()?;
        }
        // Ranks leave this within a microsecond of each other, which the process group cannot do.
        self.reduce_small(&mut [0.0], RedOp::Max)
    }

    fn all_reduce_f64(&mut self, values: &mut [f64], how: Combine) -> Result<()> {
        let ranks = Exchange::size(&self.world) as f64;
        if self.is_whole {
            let redop = match how {
                Combine::Sum | Combine::Avg => RedOp::Sum,
                Combine::Min => RedOp::Min,
                Combine::Max => RedOp::Max,
            };
            self.reduce_small(values, redop)?;
        } else {
            reduce_over_all(&mut self.world, values, how)?;
        }
        if how == Combine::Avg {
            values.iter_mut().for_each(|value| *value /= ranks);
        }
        Ok(())
    }

    fn gather(&mut self, mine: &[u8]) -> Result<Option<Vec<Vec<u8>>>> {
        let all = self.world.all_gather(mine)?;
        Ok((self.device.rank == 0).then_some(all))
    }

    fn cancellation(&self) -> Option<Arc<Cancellation>> {
        Some(Arc::clone(self.world.cancellation()))
    }

    fn nics(&mut self) -> Result<Vec<NicBytes>> {
        let table = std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
        Ok(nic_bytes(&self.device.host, &table))
    }
}

impl JobBackend for Cpu {
    fn begin(&self) {
        self.world.enter();
    }

    /// Why `collective` does not go by the algorithm that was asked for, where it does not.
    fn note(&self, collective: Collective) -> Option<String> {
        let in_vain = self.checksum && self.hosts() == Some(1);
        let in_vain = in_vain.then(|| "Checksums: none, since ranks of one host share memory".to_owned());
        let notes: Vec<String> = self.communicator.note(collective).into_iter().chain(in_vain).collect();
        (!notes.is_empty()).then(|| notes.join("\n# "))
    }

    fn leave(self) -> Result<()> {
        self.world.leave_operation();
        Ok(self.world.leave()?)
    }

    fn fail(self, reason: &str) -> String {
        self.world.fail(reason)
    }
}

fn reduce_over_all(world: &mut ProcessGroup, values: &mut [f64], how: Combine) -> Result<()> {
    let mine: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    for (rank, theirs) in world.all_gather(&mine)?.iter().enumerate() {
        let numbers = theirs.chunks_exact(8).map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap_or_default()));
        for (value, number) in values.iter_mut().zip(numbers) {
            *value = match how {
                _ if rank == 0 => number,
                Combine::Sum | Combine::Avg => *value + number,
                Combine::Min => value.min(number),
                Combine::Max => value.max(number),
            };
        }
    }
    Ok(())
}

/// What `/proc/net/dev` counts for each interface but the loopback.
fn nic_bytes(host: &str, table: &str) -> Vec<NicBytes> {
    let read = |line: &str| {
        let (name, counters) = line.split_once(':')?;
        let counters: Vec<u64> = counters.split_whitespace().map_while(|number| number.parse().ok()).collect();
        let (rx, tx) = (*counters.first()?, *counters.get(8)?);
        Some(NicBytes { host: host.to_owned(), name: name.trim().to_owned(), tx, rx })
    };
    table.lines().filter_map(read).filter(|nic| nic.name != "lo").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_counters() {
        let table = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
            lo: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n  eth0: 123456 10 0 0 0 0 0 0 654321 9 0 0 0 0 0 0\n";
        let nics = nic_bytes("h1", table);
        assert_eq!(nics, [NicBytes { host: "h1".into(), name: "eth0".into(), tx: 654_321, rx: 123_456 }]);
    }
}
