//! Who this process is in its job, from the variables that launchers leave in the environment.

use crate::Lookup;
use crate::derive::{self, Words};
use crate::error::BY_HAND;
use crate::{Error, Result};
use busbw_model::HostList;
use busbw_transport::Token;

/// Who started this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// A user, as the only process of the job.
    Alone,
    /// Our own local spawn, or a user by hand, with the BUSBW_* variables.
    Busbw,
    Torchrun,
    /// Open MPI's mpirun, or PRRTE's.
    OpenMpi,
    /// MPICH's mpirun (hydra).
    Mpich,
    Srun,
}

/// How the processes of the job find one another.
#[derive(Debug, Clone)]
pub enum Discovery {
    Alone,
    /// At `address` (`host:port`), where rank 0 listens.
    Fixed {
        /// Where rank 0 listens.
        address: String,
        token: Token,
        /// A descriptor that rank 0 inherited and that listens there already.
        listener: Option<i32>,
    },
    /// Through the key-value store of a PMIx server.
    Pmix {
        namespace: String,
    },
    /// Through MPICH's key-value store, at an inherited descriptor (PMI-1).
    Pmi1 {
        fd: i32,
    },
    /// Through Slurm's key-value store, at an inherited descriptor (PMI-2).
    Pmi2 {
        fd: i32,
        job: String,
    },
    /// Through the store that torchrun's agent keeps at MASTER_ADDR:MASTER_PORT (PyTorch's TCPStore).
    TcpStore {
        host: String,
        port: u16,
        /// What tells this job, and this start of it, from others that use the store.
        words: Words,
    },
    /// There is no store: rank 0 listens on ports that follow from what every process of the job knows.
    Derived {
        words: Words,
        /// Rank 0's host.
        host: String,
    },
}

/// Who this process is in its job.
#[derive(Debug, Clone)]
pub struct JobRank {
    /// This process's number, from 0.
    pub rank: usize,
    pub size: usize,
    /// This process's number on its host.
    pub local_rank: usize,
    /// How many processes there are on this host, where the launcher says so.
    pub local_size: Option<usize>,
    pub launcher: Launcher,
    pub discovery: Discovery,
    /// BUSBW_TOKEN, where a user has set it.
    pub token: Option<Token>,
}

impl JobRank {
    /// Reads the environment. Our own variables come first, then torchrun's, Open MPI's or PMIx', MPICH's and Slurm's;
    /// without any, this is a job of one process.
    ///
    /// # Errors
    /// Names the variable that is malformed, that is missing beside the others of its launcher, or that contradicts one.
    pub fn detect(look: Lookup) -> Result<JobRank> {
        let variables = Variables { look };
        let job_rank = match variables.ours()? {
            Some(job_rank) => job_rank,
            None => variables.launched()?.unwrap_or_else(JobRank::alone),
        };
        variables.with_fixed_discovery(job_rank)?.checked(&variables)
    }

    /// Whether every process of the job is on this host, as far as the launcher says.
    pub fn one_host(&self) -> bool {
        self.local_size == Some(self.size)
    }

    fn alone() -> JobRank {
        let (launcher, discovery, local_size) = (Launcher::Alone, Discovery::Alone, Some(1));
        JobRank { rank: 0, size: 1, local_rank: 0, local_size, launcher, discovery, token: None }
    }

    fn checked(mut self, variables: &Variables) -> Result<JobRank> {
        let name = self.launcher.rank_variable();
        let shown = || variables.get(name).unwrap_or_default();
        if self.size == 0 || self.rank >= self.size {
            return Err(Error::variable(name, &shown(), format!("is no rank of a job of {} processes", self.size)));
        }
        if self.size == 1 {
            self.discovery = Discovery::Alone;
            self.local_size = Some(1);
        }
        Ok(self)
    }
}

impl Launcher {
    fn rank_variable(self) -> &'static str {
        match self {
            Launcher::Alone | Launcher::Busbw => "BUSBW_RANK",
            Launcher::Torchrun => "RANK",
            Launcher::OpenMpi => "OMPI_COMM_WORLD_RANK",
            Launcher::Mpich => "PMI_RANK",
            Launcher::Srun => "SLURM_PROCID",
        }
    }
}

/// The environment, read with names of variables in errors.
struct Variables<'a> {
    look: Lookup<'a>,
}

impl Variables<'_> {
    fn get(&self, name: &str) -> Option<String> {
        (self.look)(name).filter(|value| !value.is_empty())
    }

    fn number(&self, name: &str) -> Result<Option<usize>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.trim().parse::<u32>() {
            Ok(number) => Ok(Some(number as usize)),
            Err(_) => {
                Err(Error::variable(name, &value, "is no number; unset it, or write the rank or the number of ranks"))
            }
        }
    }

    /// A number that must be there because `because` is.
    fn needed(&self, name: &str, because: &str) -> Result<usize> {
        self.number(name)?.ok_or_else(|| self.alone_is_wrong(because, name))
    }

    fn alone_is_wrong(&self, there: &str, missing: &str) -> Error {
        Error::variable(
            there,
            &self.get(there).unwrap_or_default(),
            format!("is set without {missing}: set both or neither"),
        )
    }

    /// A rank of a job of so many. `local`: the variables that name its rank on the host, and how many are there.
    fn in_job(
        &self,
        launcher: Launcher,
        (rank, size): (usize, usize),
        local: [&str; 2],
        discovery: Discovery,
    ) -> Result<JobRank> {
        let (local_rank, local_size) = (self.number(local[0])?.unwrap_or(0), self.number(local[1])?);
        Ok(JobRank { rank, size, local_rank, local_size, launcher, discovery, token: None })
    }

    /// BUSBW_RANK and its companions.
    fn ours(&self) -> Result<Option<JobRank>> {
        let Some(rank) = self.number("BUSBW_RANK")? else {
            for name in ["BUSBW_SIZE", "BUSBW_LOCAL_RANK"] {
                if self.get(name).is_some() {
                    return Err(self.alone_is_wrong(name, "BUSBW_RANK"));
                }
            }
            return Ok(None);
        };
        let size = self.needed("BUSBW_SIZE", "BUSBW_RANK")?;
        let job_rank =
            self.in_job(Launcher::Busbw, (rank, size), ["BUSBW_LOCAL_RANK", "BUSBW_LOCAL_SIZE"], Discovery::Alone)?;
        if size > 1 && self.get("BUSBW_RENDEZVOUS").is_none() {
            return Err(self.alone_is_wrong("BUSBW_RANK", "BUSBW_RENDEZVOUS and BUSBW_TOKEN"));
        }
        Ok(Some(job_rank))
    }

    /// BUSBW_TOKEN replaces the token that the launcher's way brings; BUSBW_RENDEZVOUS, beside it, the address too.
    fn with_fixed_discovery(&self, mut job_rank: JobRank) -> Result<JobRank> {
        let wrong = |e| Error::variable("BUSBW_TOKEN", "…", format!("cannot be used: {e}"));
        job_rank.token = self.get("BUSBW_TOKEN").map(|token| token.parse().map_err(wrong)).transpose()?;
        let Some(address) = self.get("BUSBW_RENDEZVOUS") else { return Ok(job_rank) };
        if job_rank.launcher == Launcher::Alone {
            let problem = "is set, but no launcher says which rank this is: set BUSBW_RANK and BUSBW_SIZE, or unset it";
            return Err(Error::variable("BUSBW_RENDEZVOUS", &address, problem));
        }
        let Some(token) = job_rank.token else { return Err(self.alone_is_wrong("BUSBW_RENDEZVOUS", "BUSBW_TOKEN")) };
        let port = address.rsplit_once(':').and_then(|(host, port)| (!host.is_empty()).then(|| port.parse::<u16>()));
        if !matches!(port, Some(Ok(1..))) {
            let problem = "is no ADDRESS:PORT, like 10.0.0.1:4711 or [fd00::1]:4711";
            return Err(Error::variable("BUSBW_RENDEZVOUS", &address, problem));
        }
        let listener = self.number("BUSBW_LISTENER")?.filter(|_| job_rank.rank == 0).map(|fd| fd as i32);
        job_rank.discovery = Discovery::Fixed { address, token, listener };
        Ok(job_rank)
    }

    fn launched(&self) -> Result<Option<JobRank>> {
        let torchrun = self.torchrun()?;
        let other = match self.open_mpi()? {
            None => self.slurm_or_mpich()?,
            found => found,
        };
        let (Some(torchrun), Some(other)) = (&torchrun, &other) else { return Ok(torchrun.or(other)) };
        // torchrun may itself be started by mpirun or srun. Without its agent, RANK and the rest were set by hand, and a
        // stale RANK=0 WORLD_SIZE=1 handed on by mpirun would make each process a job of its own.
        let by_agent = self.get("TORCHELASTIC_RUN_ID").is_some();
        if !by_agent && (torchrun.rank, torchrun.size) != (other.rank, other.size) {
            let name = other.launcher.rank_variable();
            let problem = format!(
                "of {} contradicts {name} {} of {}: unset RANK and WORLD_SIZE, or correct them",
                torchrun.size, other.rank, other.size
            );
            return Err(Error::variable("RANK", &self.get("RANK").unwrap_or_default(), problem));
        }
        if by_agent { Ok(Some(torchrun.clone())) } else { Ok(Some(other.clone())) }
    }

    fn torchrun(&self) -> Result<Option<JobRank>> {
        let there = |name| self.get(name).is_some();
        let complete = ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"].into_iter().all(there);
        if !complete {
            if there("TORCHELASTIC_RUN_ID") {
                return Err(
                    self.alone_is_wrong("TORCHELASTIC_RUN_ID", "all of RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT")
                );
            }
            // Names as common as RANK mean nothing by themselves.
            return Ok(None);
        }
        let host = self.get("MASTER_ADDR").unwrap_or_default();
        let port = self.get("MASTER_PORT").unwrap_or_default();
        let Ok(port) = port.parse::<u16>() else {
            return Err(Error::variable("MASTER_PORT", &port, "is no port; it is a number from 1 to 65535"));
        };
        let words = Words::of(self.look, derive::TORCHRUN);
        // As PyTorch itself decides it (torch/distributed/rendezvous.py): without this nobody listens there until rank 0 does.
        let discovery = match self.get("TORCHELASTIC_USE_AGENT_STORE").as_deref() {
            Some("True") => Discovery::TcpStore { host, port, words },
            _ => Discovery::Derived { words, host },
        };
        let place = (self.needed("RANK", "WORLD_SIZE")?, self.needed("WORLD_SIZE", "RANK")?);
        self.in_job(Launcher::Torchrun, place, ["LOCAL_RANK", "LOCAL_WORLD_SIZE"], discovery).map(Some)
    }

    fn open_mpi(&self) -> Result<Option<JobRank>> {
        let namespace = self.get("PMIX_NAMESPACE").filter(|_| self.get("PMIX_RANK").is_some());
        let Some(rank) = self.number("OMPI_COMM_WORLD_RANK")? else {
            if self.get("OMPI_COMM_WORLD_SIZE").is_some() {
                return Err(self.alone_is_wrong("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"));
            }
            if let (Some(namespace), None) = (&namespace, self.get("SLURM_STEP_NUM_TASKS")) {
                let problem = format!(
                    "is set, but nothing says how many ranks there are: set BUSBW_RANK and BUSBW_SIZE, and {BY_HAND}"
                );
                return Err(Error::variable("PMIX_NAMESPACE", namespace, problem));
            }
            return Ok(None);
        };
        let size = self.needed("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")?;
        let discovery = match namespace {
            Some(namespace) => Discovery::Pmix { namespace },
            None if size == 1 => Discovery::Alone,
            None if self.get("BUSBW_RENDEZVOUS").is_some() => Discovery::Alone,
            None => return Err(self.no_way("OMPI_COMM_WORLD_RANK", "PMIX_NAMESPACE and PMIX_RANK", "mpirun")),
        };
        let local = ["OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"];
        self.in_job(Launcher::OpenMpi, (rank, size), local, discovery).map(Some)
    }

    fn no_way(&self, there: &str, missing: &str, launcher: &str) -> Error {
        let value = self.get(there).unwrap_or_default();
        let problem = format!(
            "says that {launcher} started several ranks, but without {missing} they cannot find one another: {BY_HAND}"
        );
        Error::variable(there, &value, problem)
    }

    /// srun --mpi=pmi2 and MPICH set the same PMI_* variables; only Slurm's PMI_JOBID is the step's own, and only hydra
    /// counts its local ranks.
    fn slurm_or_mpich(&self) -> Result<Option<JobRank>> {
        let slurm = self.slurm()?;
        let by_hydra = self.get("MPI_LOCALRANKID").is_some() || self.get("PMI_JOBID").is_none();
        match slurm {
            Some(job_rank) if !(by_hydra && self.get("PMI_RANK").is_some()) => Ok(Some(job_rank)),
            slurm => Ok(self.mpich()?.or(slurm)),
        }
    }

    fn mpich(&self) -> Result<Option<JobRank>> {
        let Some(rank) = self.number("PMI_RANK")? else {
            if self.get("PMI_SIZE").is_some() {
                return Err(self.alone_is_wrong("PMI_SIZE", "PMI_RANK"));
            }
            return Ok(None);
        };
        let size = self.needed("PMI_SIZE", "PMI_RANK")?;
        let discovery = match self.number("PMI_FD")? {
            Some(fd) => Discovery::Pmi1 { fd: fd as i32 },
            None if size == 1 || self.get("BUSBW_RENDEZVOUS").is_some() => Discovery::Alone,
            None => return Err(self.no_way("PMI_RANK", "PMI_FD", "mpirun")),
        };
        self.in_job(Launcher::Mpich, (rank, size), ["MPI_LOCALRANKID", "MPI_LOCALNRANKS"], discovery).map(Some)
    }

    /// A task of srun. The shell of an allocation and a batch script have SLURM_NTASKS too, and the script even
    /// SLURM_PROCID=0, but neither is a step of that many tasks: that is what SLURM_STEP_NUM_TASKS says.
    fn slurm(&self) -> Result<Option<JobRank>> {
        let (Some(rank), Some(size)) = (self.number("SLURM_PROCID")?, self.number("SLURM_STEP_NUM_TASKS")?) else {
            return Ok(None);
        };
        let discovery = match (self.get("PMIX_NAMESPACE"), self.get("PMI_JOBID"), self.number("PMI_FD")?) {
            (Some(namespace), _, _) => Discovery::Pmix { namespace },
            (None, Some(job), Some(fd)) => Discovery::Pmi2 { fd: fd as i32, job },
            _ => {
                let nodes = self.get("SLURM_STEP_NODELIST").or_else(|| self.get("SLURM_NODELIST"));
                let nodes = nodes.ok_or_else(|| self.alone_is_wrong("SLURM_PROCID", "SLURM_STEP_NODELIST"))?;
                let list = HostList::parse(&nodes)
                    .map_err(|problem| Error::variable("SLURM_STEP_NODELIST", &nodes, problem))?;
                let host = list.hosts().into_iter().next().unwrap_or_default();
                Discovery::Derived { words: Words::of(self.look, derive::SLURM), host }
            }
        };
        let local_size = self.get("SLURM_GTIDS").map(|tasks| tasks.split(',').count());
        let local_rank = self.number("SLURM_LOCALID")?.unwrap_or(0);
        Ok(Some(JobRank { rank, size, local_rank, local_size, launcher: Launcher::Srun, discovery, token: None }))
    }
}
