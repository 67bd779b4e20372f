//! How a rank joins the job: its rank, its GPU, its communicator.

use crate::backend::cpu::Cpu;
use crate::backend::nccl::check::{self, Checker};
use crate::backend::nccl::group_calls::Caller;
use crate::backend::nccl::guard::Guard;
use crate::backend::nccl::memory::Kind;
use crate::backend::nccl::progress::Progress;
use crate::backend::nccl::{Nccl, Parts, Process, failed};
use crate::backend::{Backend as _, Device, JobBackend as _};
use crate::{Error, Flags, Result};
use busbw_gpu::cuda::{Context, Stream};
use busbw_gpu::nccl::{Communicator, Feature};
use busbw_launch::Rendezvous;
use busbw_nccl_abi::library::{Config, UNIQUE_ID_BYTES, UniqueId};
use busbw_transport::{Cancellation, Exchange as _};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Settings of the engine that NCCL reads too, with other values: the engine only carries small exchanges here.
const NCCLS_OWN: [&str; 3] = ["NCCL_ALGO", "NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD"];

impl Nccl {
    /// Takes the place of this process's rank-thread number `thread` in its job, and connects its GPU to those of its group.
    pub fn join(
        rendezvous: &Rendezvous,
        thread: usize,
        flags: &Flags,
        variable: Variable<'_>,
        process: &Result<Process>,
    ) -> Result<Self> {
        let plain = Flags { algo: None, threads: None, sockets: None, ..flags.clone() };
        let own = |name: &str| if NCCLS_OWN.contains(&name) { None } else { variable(name) };
        let mut engine = Cpu::join(rendezvous, thread, &plain, &own)?;
        // A host that lacks what others have is at fault; where all lack it, nothing is.
        let lacks = matches!(process, Err(Error::Missing(_)));
        let all_lack = engine.world().all_gather(&[u8::from(lacks)])?.iter().all(|told| told == &[1]);
        let process = match process {
            Ok(process) => process,
            Err(error) if all_lack => return Err(Error::Missing(error.to_string())),
            Err(error) => return Err(Error::Job(engine.fail(&error.to_string()))),
        };
        match connect(&mut engine, thread, flags, process) {
            Ok(parts) => Ok(Nccl { engine, parts }),
            Err(error) => Err(Error::Job(engine.fail(&error.to_string()))),
        }
    }
}

fn connect(engine: &mut Cpu, thread: usize, flags: &Flags, process: &Process) -> Result<Parts> {
    let cancel = Arc::clone(engine.world().cancellation());
    let seen = engine.describe();
    let gpu = process.device(seen.device, thread)?.open().map_err(failed)?;
    gpu.make_current().map_err(failed)?;
    let ranks_on_gpu = count_sharing(engine, &gpu, flags)?;
    let stream = if flags.stream_null > 0 { Stream::null(&gpu) } else { Stream::new(&gpu).map_err(failed)? };
    let stream = Arc::new(stream);
    let (rank, nranks) = (engine.rank(), engine.nranks());
    let id = share_id(engine, process, seen.group, rank)?;
    let communicator = Arc::new(begin(process, thread, &cancel, (id, rank, nranks), (&gpu, flags))?);
    let (checker, no_checker) = checker(process, &stream);
    let (group, number) = process.running(thread);
    let guard = Guard::over(&communicator, &cancel)
        .map_err(|error| Error::Job(format!("a thread that watches over NCCL cannot be started: {error}")))?;
    let device = gpu.device();
    let device = Device { device: device.index, bus_id: device.bus_id.clone(), name: device.name.clone(), ..seen };
    Ok(Parts {
        graph: None,
        checker,
        marks: Vec::new(),
        spare_marks: Vec::new(),
        progress: Progress::new(&cancel),
        guard,
        caller: Caller::new(group, number, &cancel),
        communicator,
        stream,
        cancel,
        premul_sums: HashMap::new(),
        memory: Kind::of(flags),
        device,
        libraries: process.libraries(),
        no_checker,
        ranks_on_gpu,
        rank,
        capturing: false,
    })
}

/// How many ranks have this rank's GPU.
fn count_sharing(engine: &mut Cpu, gpu: &Context, flags: &Flags) -> Result<usize> {
    let (rank, bus_id) = (engine.describe().rank, &gpu.device().bus_id);
    let places = engine.world().all_gather(bus_id.as_bytes())?;
    let ranks = engine.world().ranks();
    let is_here = |other: &usize| ranks[*other].host_id == ranks[rank].host_id && places[*other] == bus_id.as_bytes();
    let sharing: Vec<usize> = (0..places.len()).filter(is_here).collect();
    match sharing[..] {
        [first, second, ..] if !flags.share_gpus => {
            let host = &ranks[rank].host;
            let remedy = "start fewer ranks, or give --share-gpus, which lets them share it over the network";
            Err(Error::Setting(format!(
                "ranks {first} and {second} on {host} have the same GPU, {} [{bus_id}]: {remedy}",
                gpu.device().name
            )))
        }
        _ => Ok(sharing.len()),
    }
}

/// The id of the group's communicator, from its first rank.
fn share_id(engine: &mut Cpu, process: &Process, group: u32, rank: usize) -> Result<UniqueId> {
    let mut mine = group.to_le_bytes().to_vec();
    if rank == 0 {
        mine.extend(process.nccl.unique_id().map_err(failed)?.internal);
    }
    let all = engine.world().all_gather(&mine)?;
    let of_group = |bytes: &Vec<u8>| {
        let (color, id) = bytes.split_first_chunk::<4>()?;
        (u32::from_le_bytes(*color) == group).then(|| id.first_chunk::<UNIQUE_ID_BYTES>().copied()).flatten()
    };
    let found = all.iter().find_map(of_group);
    let internal = found.ok_or_else(|| Error::Job(format!("no rank of group {group} gave NCCL's id")))?;
    Ok(UniqueId { internal })
}

/// Begins the communicator, together with those of the ranks that begin with this one.
fn begin(
    process: &Process,
    thread: usize,
    cancel: &Arc<Cancellation>,
    (id, rank, nranks): (UniqueId, usize, usize),
    (gpu, flags): (&Context, &Flags),
) -> Result<Communicator> {
    let (group, number) = process.beginning(thread);
    let caller = Caller::new(group, number, cancel);
    let (nccl, gpu, policy) = (Arc::clone(&process.nccl), gpu.clone(), flags.cta_policy);
    let begun = Arc::new(Mutex::new(None));
    let place = Arc::clone(&begun);
    let join = Box::new(move || {
        gpu.make_current()?;
        let pending = Communicator::join(&nccl, id, rank, nranks, &mut config(&nccl, policy))?;
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(pending);
        Ok(None)
    });
    // End before the job's own time-out, whose message says less.
    caller.together_apart(join, flags.patience().map(|most| most - most / 10))?;
    let pending = begun.lock().unwrap_or_else(PoisonError::into_inner).take();
    pending.map(|pending| pending.ready()).ok_or_else(|| Error::Job("NCCL gave no communicator".into()))
}

fn config(nccl: &busbw_gpu::nccl::Nccl, cta_policy: Option<u8>) -> Config {
    let mut config = Config::for_version(nccl.version_code());
    if let Some(policy) = cta_policy {
        config.cta_policy = policy.into();
    }
    if nccl.has(Feature::ZeroCtaPolicy) {
        // As nccl-tests does (`initComms` of its `src/common.cu`).
        config.nvlink_centric_sched = 1;
    }
    config
}

/// What checks on the GPU, or why nothing does.
fn checker(process: &Process, stream: &Arc<Stream>) -> (Option<Checker>, Option<String>) {
    let capability = stream.gpu().device().capability;
    let compiled = match &process.nvrtc {
        Ok(nvrtc) => check::compile(nvrtc, capability),
        Err(why) => Err(why.clone()),
    };
    let loaded = compiled.and_then(|code| Checker::new(stream, &code).map_err(|error| error.to_string()));
    match loaded {
        Ok(checker) => (Some(checker), None),
        Err(why) => (None, Some(why)),
    }
}
