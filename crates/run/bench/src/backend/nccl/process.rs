//! What the ranks of a process have in common: the libraries, the GPUs, who calls NCCL with whom.

use crate::backend::Library;
use crate::backend::nccl::environment::{Placement, settings};
use crate::backend::nccl::group_calls::GroupCalls;
use crate::{Error, Flags, Result};
use busbw_gpu::cuda::{Cuda, Device, Vendor};
use busbw_gpu::nccl::{Feature, Nccl};
use busbw_gpu::nvrtc::Nvrtc;
use busbw_launch::{JobRank, host};
use std::sync::Arc;

type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;
/// The driver, if it was opened to choose the backend.
type Driver = Option<Arc<Cuda>>;

/// A process with GPUs.
pub struct Process {
    pub nccl: Arc<Nccl>,
    /// The compiler of kernels, or why there is none.
    pub nvrtc: std::result::Result<Nvrtc, String>,
    cuda: Arc<Cuda>,
    devices: Vec<Device>,
    /// Ranks whose communicators begin together.
    beginning: Vec<Arc<GroupCalls>>,
    /// Ranks whose operations are called together.
    running: Vec<Arc<GroupCalls>>,
    /// The number of the first GPU (`NCCL_TESTS_DEVICE`), where ranks do not count through them.
    first_device: Option<usize>,
}

impl Process {
    /// Looks whether libraries and GPUs are there, before ranks are started that would all miss them.
    pub fn check(flags: &Flags, driver: Driver, variable: Variable<'_>) -> Result<()> {
        let (_, devices, nccl) = libraries(flags, driver, variable)?;
        let ranks = flags.ranks_per_process();
        check_sharing(flags, Placement { host: "", first_rank: 0, ranks, gpus: devices.len() }, &nccl)
    }

    /// Opens the libraries, and sets the variables that NCCL is to find. Called while this process has one thread.
    pub fn open(flags: &Flags, job_rank: &JobRank, driver: Driver, variable: Variable<'_>) -> Result<Self> {
        let ranks = flags.ranks_per_process();
        let (cuda, devices, nccl) = libraries(flags, driver, variable)?;
        let name = host::name(variable);
        let placement = Placement { host: &name, first_rank: job_rank.local_rank * ranks, ranks, gpus: devices.len() };
        check_sharing(flags, placement, &nccl)?;
        for (name, value) in settings(flags, placement, variable) {
            // SAFETY: this process has started no thread that could read the environment at this moment.
            unsafe { std::env::set_var(name, value) };
        }
        let groups = |number: usize, size: usize| (0..number).map(|_| GroupCalls::new(&nccl, size)).collect();
        let (threads, gpus) = (flags.nthreads as usize, flags.ngpus as usize);
        Ok(Process {
            nvrtc: compiler(cuda.vendor(), variable),
            beginning: if flags.parallel_init > 0 { groups(threads, gpus) } else { groups(1, ranks) },
            running: groups(threads, gpus),
            first_device: first_device(variable)?,
            cuda,
            devices,
            nccl,
        })
    }

    /// The GPU of rank `local_rank` of its host, number `thread` of its process.
    pub fn device(&self, local_rank: usize, thread: usize) -> Result<&Device> {
        let count = self.devices.len();
        match self.first_device {
            None => Ok(&self.devices[local_rank % count]),
            Some(first) => self.devices.get(first + thread).ok_or_else(|| {
                let allowed = format!("GPUs are 0 to {}, and {} are asked for", count - 1, first + thread + 1);
                Error::Setting(format!("NCCL_TESTS_DEVICE={first}: {allowed}"))
            }),
        }
    }

    /// The group of calls in which rank-thread `thread` begins, and its number there.
    pub fn beginning(&self, thread: usize) -> (&Arc<GroupCalls>, usize) {
        member(&self.beginning, thread)
    }

    /// The group of calls in which rank-thread `thread` runs, and its number there.
    pub fn running(&self, thread: usize) -> (&Arc<GroupCalls>, usize) {
        member(&self.running, thread)
    }

    pub fn libraries(&self) -> Vec<Library> {
        let (nccl, vendor) = (&self.nccl, self.cuda.vendor());
        let shown = |(major, minor): (i32, i32)| format!("{major}.{minor}");
        let library = |name, version, code, path: &std::path::Path| Library {
            name,
            version,
            code,
            path: path.display().to_string(),
        };
        let mut libraries = vec![
            library(vendor.either("nccl", "rccl"), nccl.version().to_string(), nccl.version_code(), nccl.path()),
            library(vendor.either("cuda driver", "hip"), shown(self.cuda.version()), 0, self.cuda.path()),
        ];
        libraries
            .extend(self.nvrtc.as_ref().ok().map(|nvrtc| library("nvrtc", shown(nvrtc.version()), 0, nvrtc.path())));
        libraries
    }
}

/// The kernels of checks are CUDA's: on AMD's GPUs, cores check.
fn compiler(vendor: Vendor, variable: Variable<'_>) -> std::result::Result<Nvrtc, String> {
    match vendor {
        Vendor::Nvidia => Nvrtc::open(variable).map_err(|error| error.to_string()),
        Vendor::Amd => Err("the kernels of checks are for CUDA".into()),
    }
}

fn member(groups: &[Arc<GroupCalls>], thread: usize) -> (&Arc<GroupCalls>, usize) {
    let size = groups[0].size();
    (&groups[thread / size], thread % size)
}

/// Libraries and GPUs that are missing stop a job before it starts.
fn unusable(error: busbw_gpu::Error) -> Error {
    let told = format!("--backend nccl: {error}");
    if error.is_missing() { Error::Missing(told) } else { Error::Setting(told) }
}

/// The driver, its GPUs, and NCCL in a version that has what the flags ask for.
fn libraries(flags: &Flags, driver: Driver, variable: Variable<'_>) -> Result<(Arc<Cuda>, Vec<Device>, Arc<Nccl>)> {
    let cuda = driver.map_or_else(|| Cuda::open(variable), Ok).map_err(unusable)?;
    let devices = cuda.devices().map_err(unusable)?;
    let nccl = Nccl::open(cuda.vendor(), flags.nccl_library.as_deref(), variable).map_err(unusable)?;
    check_version(flags, &nccl)?;
    Ok((cuda, devices, nccl))
}

fn check_version(flags: &Flags, nccl: &Nccl) -> Result<()> {
    let registration = match flags.local_register {
        0 => None,
        1 => Some(("-R 1", Feature::LocalRegistration)),
        _ => Some(("-R 2", Feature::SymmetricRegistration)),
    };
    let policy = match flags.cta_policy {
        None => None,
        Some(2) => Some(("-x 2", Feature::ZeroCtaPolicy)),
        Some(_) => Some(("-x", Feature::CtaPolicy)),
    };
    let needs = [registration, policy].into_iter().flatten();
    needs
        .map(|(what, feature)| nccl.needs(what, feature))
        .find(|needed| needed.is_err())
        .unwrap_or(Ok(()))
        .map_err(told)
}

fn told(error: busbw_gpu::Error) -> Error {
    Error::Setting(error.to_string())
}

/// Ranks of one process on one GPU need a version that lets them.
fn check_sharing(flags: &Flags, placement: Placement<'_>, nccl: &Nccl) -> Result<()> {
    let Placement { ranks, gpus, .. } = placement;
    if !placement.shares_within() {
        return Ok(());
    }
    if !flags.share_gpus {
        let remedy = "give -t and -g less, or --share-gpus, which lets ranks share GPUs over the network";
        let plural = if gpus == 1 { "" } else { "s" };
        return Err(Error::Setting(format!("-t x -g is {ranks}, and this process sees {gpus} GPU{plural}: {remedy}")));
    }
    nccl.needs(
        "--share-gpus with several ranks of a process on one GPU (-t, -g; --np needs it not)",
        Feature::SharedGpu,
    )
    .map_err(told)
}

fn first_device(variable: Variable<'_>) -> Result<Option<usize>> {
    let Some(text) = variable("NCCL_TESTS_DEVICE") else { return Ok(None) };
    let number = text.trim().parse().map(Some);
    number.map_err(|_| Error::Setting(format!("NCCL_TESTS_DEVICE={text}: the number of a GPU is expected")))
}
