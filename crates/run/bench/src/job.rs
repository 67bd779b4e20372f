//! A whole run: starts the job or takes this process's place in it, and measures with each of its ranks.

use crate::backend::JobBackend;
use crate::backend::cpu::{self, Cpu};
use crate::backend::nccl::{self, Nccl};
use crate::flags::BackendName;
use crate::traffic::{PATTERNS, Traffic};
use crate::{Context, Error, Flags, Outcome, Result};
use busbw_gpu::cuda::Cuda;
use busbw_launch::{Invocation, JobRank, Rendezvous, Settings, Started};
use busbw_model::Collective;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Where a run comes from: this program and how it was called.
pub struct Call {
    pub collective: Collective,
    pub flags: Flags,
    /// The CUDA driver, if [`Flags::settle_backend`] opened it.
    pub driver: Option<Arc<Cuda>>,
    /// This program, to start ranks with.
    pub program: PathBuf,
    /// The arguments that it got, without its name.
    pub arguments: Vec<OsString>,
}

/// What a rank that waits without end has for a timeout: a year.
const NO_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

type Variable<'a> = &'a (dyn Fn(&str) -> Option<String> + Sync);

/// Runs it; gives the exit status. Rank 0 writes to `out`.
pub fn run(call: &Call, variable: Variable<'_>, out: &mut (dyn Write + Send)) -> Result<i32> {
    call.flags.check()?;
    if call.flags.backend == Some(BackendName::Cpu) {
        cpu::check_settings(&call.flags, variable)?;
    }
    if let Some(load) = call.flags.load.as_ref().filter(|_| call.collective != Collective::AllToAllV) {
        return Err(Error::flag("--load", load, format!("is for alltoallv, not for {}", call.collective)));
    }
    if let Some(list) = &call.flags.hosts {
        return on_hosts(call, list, variable, out);
    }
    let job_rank = JobRank::detect(variable)?;
    match call.flags.np.map(|np| np as usize) {
        // Within a job of several, this says that there are others than asked for.
        Some(np) if np != job_rank.size => start_local(call, np, variable),
        _ => measure(call, &job_rank, variable, out),
    }
}

fn start_local(call: &Call, np: usize, variable: Variable<'_>) -> Result<i32> {
    if call.flags.is_on_gpus() {
        // Check once here, or every rank would report what is missing.
        nccl::Process::check(&call.flags, call.driver.clone(), variable)?;
    }
    if let Some(load) = call.flags.load.as_ref().filter(|_| variable("NCCL_TESTS_SPLIT").is_none()) {
        let env: Vec<_> = PATTERNS.iter().filter_map(|name| Some(((*name).to_owned(), variable(name)?))).collect();
        Traffic::from_load(load, np * call.flags.ranks_per_process(), &env)?;
    }
    Ok(call.invocation().on_this_host(np, variable)?)
}

/// Prints the command line that runs this on other hosts, or runs it.
fn on_hosts(call: &Call, list: &str, variable: Variable<'_>, out: &mut dyn Write) -> Result<i32> {
    match call.invocation().on_hosts(list, variable)? {
        Started::CommandLine(line) => writeln!(out, "{line}").map_err(Error::Output).map(|()| 0),
        Started::Ended(status) => Ok(status),
        Started::Here(_) => Ok(0),
    }
}

/// Measures with every rank of this process.
fn measure(call: &Call, job_rank: &JobRank, variable: Variable<'_>, out: &mut (dyn Write + Send)) -> Result<i32> {
    let flags = &call.flags;
    if !flags.is_on_gpus() {
        let rendezvous = rendezvous(call, job_rank, variable)?;
        return every_rank(call, out, |thread| Cpu::join(&rendezvous, thread, flags, variable));
    }
    // Before the rendezvous, which starts threads: it sets variables. They are for NCCL: ranks that share a GPU are on one host.
    let host_id = variable("NCCL_HOSTID");
    let process = nccl::Process::open(flags, job_rank, call.driver.clone(), variable);
    let variable: Variable<'_> = &|name| if name == "NCCL_HOSTID" { host_id.clone() } else { variable(name) };
    if job_rank.size == 1 && process.is_err() {
        return process.map(|_| 1);
    }
    let rendezvous = rendezvous(call, job_rank, variable)?;
    every_rank(call, out, |thread| Nccl::join(&rendezvous, thread, flags, variable, &process))
}

fn rendezvous(call: &Call, job_rank: &JobRank, variable: Variable<'_>) -> Result<Rendezvous> {
    let settings = Settings {
        timeout: call.flags.patience().unwrap_or(NO_TIMEOUT),
        ranks_per_process: call.flags.ranks_per_process(),
        flags: call.spelled_flags(),
        ..Settings::default()
    };
    Ok(Rendezvous::open(job_rank, variable, settings)?)
}

/// Measures with each rank of this process in a thread of its own; `join` takes the place of one.
fn every_rank<R: JobBackend>(
    call: &Call,
    out: &mut (dyn Write + Send),
    join: impl Fn(usize) -> Result<R> + Sync,
) -> Result<i32> {
    let results = std::thread::scope(|scope| {
        let join = &join;
        let others: Vec<_> = (1..call.flags.ranks_per_process())
            .map(|thread| scope.spawn(move || one_rank(call, || join(thread), &mut std::io::sink())))
            .collect();
        let mut results = vec![one_rank(call, || join(0), out)];
        results.extend(
            others.into_iter().map(|other| other.join().unwrap_or_else(|_| Err(Error::Job("a rank panicked".into())))),
        );
        results
    });
    let outcomes = results.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(i32::from(!outcomes.iter().all(|outcome| outcome.ok)))
}

fn one_rank<R: JobBackend>(call: &Call, join: impl FnOnce() -> Result<R>, out: &mut dyn Write) -> Result<Outcome> {
    let mut rank = join()?;
    rank.begin();
    if let Some(note) = rank.note(call.collective).filter(|_| rank.describe().rank == 0 && !call.flags.prints_json()) {
        writeln!(out, "# {note}").map_err(Error::Output)?;
    }
    let context = Context::of_process(call.collective);
    match crate::run(&call.flags, call.collective, &mut rank, out, &context) {
        Ok(outcome) => rank.leave().map(|()| outcome),
        Err(error) => {
            let said = rank.fail(&error.to_string());
            Err(if matches!(error, Error::Output(_)) { error } else { Error::Job(said) })
        }
    }
}

impl Call {
    /// How its ranks are started: with the same arguments, but for those that say where.
    fn invocation(&self) -> Invocation {
        Invocation {
            hosts: self.flags.hosts.clone(),
            fewest: 1,
            np: self.flags.np.map(|np| np as usize),
            dry_run: self.flags.dry_run,
            program: self.program.clone(),
            arguments: self.arguments_on_hosts(),
        }
    }

    /// The arguments for the ranks on other hosts: all but those that say which hosts. A rank that found them would start
    /// ranks of its own.
    fn arguments_on_hosts(&self) -> Vec<OsString> {
        let mut words = self.arguments.iter();
        let mut kept = Vec::new();
        while let Some(word) = words.next() {
            let text = word.to_string_lossy();
            let (name, value) = text.split_once('=').map_or((&*text, None), |(name, value)| (name, Some(value)));
            match (is_flag(name, "--hosts"), value) {
                (true, None) => drop(words.next()),
                (true, Some(_)) => {}
                (false, _) if is_flag(name, "--dry-run") => {}
                (false, _) => kept.push(word.clone()),
            }
        }
        kept
    }

    /// The flags as they were given: the same on every rank.
    fn spelled_flags(&self) -> String {
        let words: Vec<String> = self.arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        format!("{} {}", self.collective, words.join(" "))
    }
}

/// Whether a word is this long flag, or its beginning: flags may be cut short, and one that fits several is refused.
fn is_flag(word: &str, flag: &str) -> bool {
    word.len() > "--".len() && flag.starts_with(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn hosts_are_not_told_where_they_are() {
        for (given, kept) in [
            ("bench all_reduce --hosts a:8,b:8 -b 8", "bench all_reduce -b 8"),
            ("bench all_reduce -b 8 --hosts=a,b --dry-run", "bench all_reduce -b 8"),
            ("bench all_reduce --host a:8 -b 8 --dry", "bench all_reduce -b 8"),
            ("-b 8 --ho=a,b --datatype half --hosts b", "-b 8 --datatype half"),
        ] {
            let arguments = given.split(' ').map(OsString::from).collect();
            let call = Call {
                collective: Collective::AllReduce,
                flags: Flags::default(),
                driver: None,
                program: "busbw".into(),
                arguments,
            };
            assert_eq!(call.arguments_on_hosts().join(OsStr::new(" ")), kept);
        }
    }
}
