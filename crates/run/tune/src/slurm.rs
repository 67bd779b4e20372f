//! Trials as Slurm jobs: a script for the job and one for its nodes, written for each trial, submitted by sbatch.
//!
//! A job leaves a file in its trial's folder when it has ended, with exit status and times. That, not the queue, says how it
//! went: the folder outlives busbw, and the next busbw finds jobs that the last one submitted.

use crate::outputs::quoted;
use crate::runner::{Ended, LOG, Workload};
use crate::space::Setting;
use crate::store::{Key, Store};
use crate::sweep::{Sweep, SweepError, Watcher};
use sha2::{Digest, Sha256};
use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The file that a job leaves when it has ended: exit status, begin and end in seconds.
const ENDED: &str = "ended";
/// Where in a template the job's command goes.
const RUN: &str = "{run}";
/// Looks at the queue without the job before it counts as lost: a file may arrive late on a network file system.
const LOOKS: u32 = 5;

#[derive(Debug, Clone)]
pub struct Jobs {
    /// Jobs in the queue at the same time.
    pub at_once: NonZeroUsize,
    /// Options of sbatch: `--partition=gpu`, `--nodes=2`.
    pub options: Vec<String>,
    /// A script to begin with: its `#SBATCH` lines and what prepares the job; `{run}` in it is where the trial runs.
    pub template: Option<String>,
    /// How often to look at the queue.
    pub look_every: Duration,
}

/// Why jobs do not work.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// A program of Slurm's cannot be run.
    #[error("{program}: {source}; --slurm needs Slurm's programs on PATH")]
    Program {
        /// Its name: `sbatch`.
        program: &'static str,
        source: io::Error,
    },
    #[error("sbatch: {0}")]
    Refused(String),
    #[error("no Slurm controller answers ({0}); ask `scontrol ping`, or leave out --slurm")]
    NoController(String),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
}

/// A job under way.
struct Job {
    key: Key,
    id: u64,
    folder: PathBuf,
    /// What the queue said of it last.
    told: String,
    since: Instant,
    /// Looks at the queue in which it was not there.
    absent: u32,
}

impl Jobs {
    /// Runs trials as jobs, all at the same time. Those that were interrupted are not among the results.
    pub(crate) fn run(
        &self,
        sweep: &Sweep,
        keys: &[Key],
        store: &Store,
        watcher: &dyn Watcher,
    ) -> Result<Vec<(Key, Ended, Duration)>, SweepError> {
        let mut waiting = Vec::new();
        for key in keys {
            let setting = &sweep.settings[key.setting];
            let id = match self.adopt(*key, store)? {
                Some(id) => id,
                None => self.submit(*key, setting, sweep.workload, store)?,
            };
            watcher.begins(*key, setting);
            let folder = store.trial_folder(*key);
            waiting.push(Job { key: *key, id, folder, told: String::new(), since: Instant::now(), absent: 0 });
        }
        let mut done = Vec::new();
        while !waiting.is_empty() {
            if watcher.stop() {
                cancel(&waiting, store)?;
                break;
            }
            let mut still = Vec::new();
            for mut job in waiting {
                match job.look(sweep.workload, watcher)? {
                    Some((ended, time)) => done.push((job.key, ended, time)),
                    None => still.push(job),
                }
            }
            waiting = still;
            if !waiting.is_empty() {
                thread::sleep(self.look_every);
            }
        }
        Ok(done)
    }

    /// The job of a trial that an earlier busbw submitted and that is in the queue, or has ended with a result.
    fn adopt(&self, key: Key, store: &Store) -> Result<Option<u64>, SweepError> {
        let folder = store.trial_folder(key);
        let known = store.job_under_way(key)?;
        // busbw was killed between sbatch and the entry in the store: find the job by its name.
        let id = match known {
            Some(id) => Some(id),
            None => job_named(&job_name(&folder))?,
        };
        let Some(id) = id else { return Ok(None) };
        let alive = folder.join(ENDED).exists() || place_in_queue(id)?.is_some();
        if alive && known.is_none() {
            store.begin(key)?;
            store.submitted(key, id)?;
        }
        Ok(alive.then_some(id))
    }

    fn submit(&self, key: Key, setting: &Setting, workload: &Workload, store: &Store) -> Result<u64, SweepError> {
        let folder = store.trial_folder(key);
        let script = self.write(&folder, setting, workload)?;
        store.begin(key)?;
        // sbatch reads %j and its like in the name of a file.
        let output = format!("--output={}", folder.join(LOG).display().to_string().replace('%', "%%"));
        let name = format!("--job-name={}", job_name(&folder));
        let mut command = Command::new("sbatch");
        command.args(["--parsable", "--no-requeue", &output, &name]).args(&self.options).arg(script);
        let ran = command.stdin(Stdio::null()).output();
        let ran = ran.map_err(|source| JobError::Program { program: "sbatch", source })?;
        // `123`, or `123;cluster` on one of several clusters.
        let answer = String::from_utf8_lossy(&ran.stdout);
        let id = answer.trim().split(';').next().and_then(|id| id.parse().ok());
        let Some(id) = id.filter(|_| ran.status.success()) else {
            let said = String::from_utf8_lossy(&ran.stderr);
            return Err(JobError::Refused(said.trim().trim_start_matches("sbatch: ").replace('\n', " ")).into());
        };
        store.submitted(key, id)?;
        Ok(id)
    }

    /// Writes the scripts of a trial; returns that of the job.
    fn write(&self, folder: &Path, setting: &Setting, workload: &Workload) -> Result<PathBuf, JobError> {
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |source| JobError::File { path, source }
        };
        // Remove what an interrupted job left, or it would be read as this job's result.
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(folder)(error)),
            _ => fs::create_dir_all(folder).map_err(failed(folder))?,
        }
        let (job, node) = (folder.join("job.sh"), folder.join("node.sh"));
        fs::write(&node, node_script(setting, workload)).map_err(failed(&node))?;
        fs::write(&job, self.job_script(folder, &node, setting, workload)).map_err(failed(&job))?;
        Ok(job)
    }

    fn job_script(&self, folder: &Path, node: &Path, setting: &Setting, workload: &Workload) -> String {
        let run = run_lines(folder, node, setting, workload);
        let template = self.template.as_deref().unwrap_or("#!/bin/bash\n");
        if template.contains(RUN) { template.replace(RUN, &run) } else { format!("{template}\n{run}") }
    }
}

/// What the job does: run the node's script on every node, and say how it ended.
fn run_lines(folder: &Path, node: &Path, setting: &Setting, workload: &Workload) -> String {
    let exports: String =
        setting.assignments.iter().map(|(name, value)| format!("export {name}={}\n", quoted(value))).collect();
    let (node, ended) = (quoted(&node.display().to_string()), quoted(&folder.join(ENDED).display().to_string()));
    // A command that starts ranks by itself runs once, in the job.
    let launch = if workload.launcher().is_some() { "" } else { "srun --ntasks-per-node=1 --kill-on-bad-exit=1 " };
    format!(
        "{exports}busbw_began=$(date +%s.%N)\n\
         timeout --kill-after=10 {} {launch}bash {node}\n\
         busbw_status=$?\n\
         echo \"$busbw_status $busbw_began $(date +%s.%N)\" > {ended}.new && mv {ended}.new {ended}\n",
        limit(workload).as_secs()
    )
}

fn node_script(setting: &Setting, workload: &Workload) -> String {
    let words: Vec<String> = workload.words_for(setting).iter().map(|word| quoted(word)).collect();
    format!("#!/bin/bash\nexec {}\n", words.join(" "))
}

/// The same for the same trial of the same store, and no other.
fn job_name(folder: &Path) -> String {
    let hash = Sha256::digest(folder.as_os_str().as_encoded_bytes());
    format!("busbw-{:02x}{:02x}{:02x}{:02x}{:02x}", hash[0], hash[1], hash[2], hash[3], hash[4])
}

impl Job {
    /// How it ended; `None` while it has not.
    fn look(&mut self, workload: &Workload, watcher: &dyn Watcher) -> Result<Option<(Ended, Duration)>, JobError> {
        if let Some(ended) = read_ended(&self.folder.join(ENDED), limit(workload)) {
            return Ok(Some(ended));
        }
        let place = place_in_queue(self.id)?;
        self.absent = if place.is_some() { 0 } else { self.absent + 1 };
        self.tell(place.as_deref().unwrap_or_default(), watcher);
        Ok((self.absent >= LOOKS).then(|| {
            let reason = format!(
                "job {} ended without a result: it was cancelled, reached its time limit, or its node failed",
                self.id
            );
            (Ended::Badly(reason), Duration::ZERO)
        }))
    }

    /// Tells what the queue says where that is new, and is not only that the job runs.
    fn tell(&mut self, place: &str, watcher: &dyn Watcher) {
        if !place.is_empty() && place != self.told {
            if !self.told.is_empty() || place != RUNNING {
                let waited = self.since.elapsed().as_secs();
                watcher.queued(&format!("job {}: {place}, {waited} s after it was submitted", self.id));
            }
            self.told = place.to_owned();
        }
    }
}

/// A job that has begun.
const RUNNING: &str = "RUNNING";

/// The time that a trial has, as `timeout` is told it.
fn limit(workload: &Workload) -> Duration {
    Duration::from_secs(workload.limit.as_secs().max(1))
}

/// Reads `0 1700000000.1 1700000009.5`.
fn read_ended(path: &Path, limit: Duration) -> Option<(Ended, Duration)> {
    let text = fs::read_to_string(path).ok()?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let [status, began, ended] = words[..] else { return None };
    let seconds = ended.parse::<f64>().ok()? - began.parse::<f64>().ok()?;
    let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    Some(match status {
        "0" => (Ended::Well, time),
        // What `timeout` returns when it ended the command, and when it had to kill it. A command that was killed sooner, for its
        // memory perhaps, returns 137 too.
        "124" | "137" if time >= limit => (Ended::TimedOut, time),
        other => (Ended::Badly(format!("exit status {other}")), time),
    })
}

/// State and reason of a job that waits or runs: `PENDING (Resources, begins 2026-11-24T12:00:00)`. A controller that does not
/// answer says nothing against it.
fn place_in_queue(id: u64) -> Result<Option<String>, JobError> {
    let format = "%T|%r|%S";
    let ran = Command::new("squeue").args(["-h", "-o", format, "-j", &id.to_string()]).stdin(Stdio::null()).output();
    let ran = ran.map_err(|source| JobError::Program { program: "squeue", source })?;
    if !ran.status.success() {
        let is_gone = String::from_utf8_lossy(&ran.stderr).contains("Invalid job id");
        return Ok((!is_gone).then(String::new));
    }
    Ok(place(String::from_utf8_lossy(&ran.stdout).trim()))
}

/// Reads `PENDING|Resources|N/A`.
fn place(line: &str) -> Option<String> {
    let mut words = line.split('|');
    let state = words.next()?;
    let known = ["PENDING", RUNNING, "CONFIGURING", "COMPLETING", "SUSPENDED"].contains(&state);
    let reason = words.next().filter(|reason| state == "PENDING" && *reason != "None");
    let start = words.next().filter(|start| reason.is_some() && *start != "N/A");
    let why: Vec<String> =
        reason.map(str::to_owned).into_iter().chain(start.map(|at| format!("begins {at}"))).collect();
    known.then(|| if why.is_empty() { state.to_owned() } else { format!("{state} ({})", why.join(", ")) })
}

/// Asks whether Slurm answers: sbatch tries for a minute before it says no.
pub fn ask_the_controller() -> Result<(), JobError> {
    let ran = Command::new("scontrol").arg("ping").stdin(Stdio::null()).output();
    let ran = ran.map_err(|source| JobError::Program { program: "scontrol", source })?;
    if ran.status.success() {
        return Ok(());
    }
    let said = [ran.stdout, ran.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    // The last line is the one that ends it; where a controller is down, the first, before a banner.
    let lines = || said.lines().map(str::trim).filter(|line| line.starts_with(|c: char| c.is_ascii_alphabetic()));
    let why =
        lines().find(|line| line.ends_with("DOWN")).or_else(|| lines().next_back()).unwrap_or("scontrol ping failed");
    Err(JobError::NoController(why.to_owned()))
}

/// The job of a name that waits or runs; one that was cancelled is on its way out of the queue for a while and does not count.
fn job_named(name: &str) -> Result<Option<u64>, JobError> {
    let arguments = ["-h", "-o", "%A", "-t", "PENDING,CONFIGURING,RUNNING,SUSPENDED", "-n", name];
    let ran = Command::new("squeue").args(arguments).stdin(Stdio::null()).output();
    let ran = ran.map_err(|source| JobError::Program { program: "squeue", source })?;
    Ok(String::from_utf8_lossy(&ran.stdout).lines().find_map(|line| line.trim().parse().ok()))
}

/// Ends jobs. Their trials were stopped and did not fail, so the next busbw must not take these jobs for theirs.
fn cancel(jobs: &[Job], store: &Store) -> Result<(), SweepError> {
    let ids = jobs.iter().map(|job| job.id.to_string());
    // A job that has already ended is fine.
    let _ = Command::new("scancel").args(ids).stdin(Stdio::null()).stderr(Stdio::null()).status();
    jobs.iter().try_for_each(|job| Ok(store.cancelled(job.key)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_hold_the_setting_and_the_command() {
        let jobs = Jobs {
            at_once: NonZeroUsize::MIN,
            options: Vec::new(),
            template: Some("#!/bin/bash\n#SBATCH --exclusive\nmodule load cuda\n{run}cleanup\n".into()),
            look_every: Duration::ZERO,
        };
        let setting = Setting { assignments: vec![("NCCL_SOCKET_NTHREADS".into(), "8".into())] };
        let workload = Workload { words: vec!["train".into(), "--name=a b".into()], limit: Duration::from_secs(60) };
        let folder = tempfile::tempdir().unwrap();
        let path = jobs.write(&folder.path().join("trial"), &setting, &workload).unwrap();
        let script = fs::read_to_string(path).unwrap();
        let order = ["#SBATCH --exclusive", "module load cuda", "export NCCL_SOCKET_NTHREADS=8", "srun", "cleanup"];
        let places: Vec<usize> = order.iter().map(|part| script.find(part).expect(part)).collect();
        assert!(places.is_sorted(), "{script}");
        assert_eq!(node_script(&setting, &workload), "#!/bin/bash\nexec train '--name=a b'\n");
    }

    #[test]
    fn the_queue_tells_state_and_reason() {
        for (line, told) in [
            ("PENDING|PartitionNodeLimit|N/A", Some("PENDING (PartitionNodeLimit)")),
            ("PENDING|Resources|2026-11-24T12:00:00", Some("PENDING (Resources, begins 2026-11-24T12:00:00)")),
            ("PENDING|None|N/A", Some("PENDING")),
            ("RUNNING|None|2026-11-24T12:00:00", Some("RUNNING")),
            ("COMPLETED|None|N/A", None),
            ("", None),
        ] {
            assert_eq!(place(line).as_deref(), told, "{line}");
        }
    }

    #[test]
    fn the_file_of_a_job_says_how_it_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(ENDED);
        let limit = Duration::from_secs(60);
        assert_eq!(read_ended(&path, limit), None);
        let cases = [
            ("0 10.5 12.5", Some(Ended::Well)),
            ("124 1 61", Some(Ended::TimedOut)),
            ("137 1 71.5", Some(Ended::TimedOut)),
            ("137 1 2", Some(Ended::Badly("exit status 137".into()))),
            ("3 1 2", Some(Ended::Badly("exit status 3".into()))),
            ("0 10.5", None),
        ];
        for (text, ended) in cases {
            fs::write(&path, text).unwrap();
            assert_eq!(read_ended(&path, limit).map(|(ended, _)| ended), ended, "{text}");
        }
    }
}
