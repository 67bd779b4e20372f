//! One turn of one contestant: runs its jobs within a limit and reads the times.

use super::plan::Step;
use super::program::{Job, Kit, Program};
use super::scenario::{Case, Contestant, RunsOn};
use crate::lab::Lab;
use crate::program::{FileError, Outcome};
use busbw_model::{BenchRow, Collective};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Mean time of one operation in µs, by size in bytes.
pub type Times = BTreeMap<u64, f64>;

/// The longest that a job may take; a sweep takes seconds.
const LIMIT: Duration = Duration::from_secs(180);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How much of what a failing job says is repeated.
const REPEATED_LINES: usize = 8;

/// Runs the jobs of a contestant for `steps`.
pub fn take(contestant: &Contestant, case: &Case, steps: &[Step], kit: &Kit, labs: &[(RunsOn, Lab)]) -> Outcome<Times> {
    let lab = labs.iter().find(|(place, _)| *place == contestant.place).map(|(_, lab)| lab);
    let mut times = Times::new();
    let mut shown = String::new();
    let mut said = String::new();
    for job in contestant.program.jobs(case, steps, kit, lab)? {
        shown = job.first().map(line).unwrap_or_default();
        // nccl-tests does not overwrite a file of its times, but writes beside it.
        let _ = fs::remove_file(kit.times_file());
        said = run(job, &kit.scratch)?;
        times.extend(match contestant.program {
            Program::Busbw => table(&fs::read(kit.times_file()).unwrap_or_default(), case.collective),
            _ => lines(&said),
        });
    }
    match steps.iter().find(|step| !times.contains_key(&step.size)) {
        Some(step) => Err(format!("{shown} printed no time for {} bytes; it printed:\n{said}", step.size).into()),
        None => Ok(times),
    }
}

/// The times of busbw's own table: out of place, but for broadcast, which is always in place in MPI and Gloo.
fn table(json: &[u8], collective: Collective) -> Times {
    let tables = busbw_ingest::read_bytes(&[("busbw.json", json)]).map(|run| run.tables).unwrap_or_default();
    let rows = tables.iter().flat_map(|table| &table.rows);
    let half = |row: &BenchRow| match collective {
        Collective::Broadcast => row.in_place.clone(),
        _ => row.out_of_place.clone(),
    };
    rows.filter_map(|row| half(row).map(|half| (row.size.0, half.time.0))).collect()
}

/// The lines `SIZE MICROSECONDS` of a peer's program; others are its library's.
fn lines(text: &str) -> Times {
    let pair = |line: &str| {
        let (size, time_us) = line.trim().split_once(' ')?;
        Some((size.parse().ok()?, time_us.parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}

/// Runs the commands of a job at the same time. Returns what the first one printed.
fn run(job: Job, scratch: &Path) -> Outcome<String> {
    let mut ranks = Ranks(Vec::new());
    for (index, mut command) in job.into_iter().enumerate() {
        let file = |kind: &str| {
            let path = scratch.join(format!("{index}.{kind}"));
            File::create(&path).map_err(FileError::at(&path))
        };
        command.stdin(Stdio::null()).stdout(file("out")?).stderr(file("err")?).process_group(0);
        end_with_this_process(&mut command);
        let shown = line(&command);
        let child = command.spawn().map_err(|error| format!("{shown} cannot be started: {error}"))?;
        ranks.0.push((shown, child));
    }
    ranks.wait(scratch)?;
    Ok(text(&scratch.join("0.out")))
}

/// A group of its own is not reached by the terminal's Ctrl-C.
fn end_with_this_process(command: &mut Command) {
    let ask = || {
        // SAFETY: prctl with PR_SET_PDEATHSIG takes a signal's number and touches no memory of this process.
        match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec, `ask` makes one system call and allocates nothing.
    unsafe { command.pre_exec(ask) };
}

/// The processes of a job, ended when dropped.
struct Ranks(Vec<(String, Child)>);

impl Ranks {
    fn wait(&mut self, scratch: &Path) -> Outcome<()> {
        let started = Instant::now();
        let mut running: Vec<usize> = (0..self.0.len()).collect();
        while !running.is_empty() {
            let mut failed = None;
            running.retain(|&index| match self.0[index].1.try_wait() {
                Ok(None) => true,
                Ok(Some(status)) if status.success() => false,
                Ok(Some(status)) => {
                    failed = Some((index, format!("ended with {status}")));
                    false
                }
                Err(error) => {
                    failed = Some((index, format!("cannot be waited for: {error}")));
                    false
                }
            });
            if started.elapsed() > LIMIT {
                failed = running.first().map(|&index| (index, format!("did not end within {LIMIT:?}")));
            }
            if let Some((index, how)) = failed {
                let said = last_lines(&text(&scratch.join(format!("{index}.err"))));
                return Err(crate::program::failed(&self.0[index].0, &how, &said));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            if matches!(child.try_wait(), Ok(Some(_))) {
                continue;
            }
            // Launchers pass SIGTERM on to their ranks. Those that do not follow are killed with their group.
            let group = format!("-{}", child.id());
            for (signal, wait) in [("TERM", Duration::from_secs(1)), ("KILL", Duration::ZERO)] {
                let _ = Command::new("kill").args(["-s", signal, "--", &group]).stderr(Stdio::null()).status();
                std::thread::sleep(wait);
            }
            let _ = child.wait();
        }
    }
}

fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(REPEATED_LINES)..].join("\n")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn times_are_the_lines_of_two_numbers() {
        let text = "8 0.1642\nWARNING: no InfiniBand\n 65536 9.7695\n1 2 3\n";
        assert_eq!(lines(text), Times::from([(8, 0.1642), (65536, 9.7695)]));
    }

    #[test]
    fn busbw_times_are_those_that_the_peers_have_too() {
        let half = |time_us: f64| format!(r#"{{"time":{time_us},"alg_bw":1.5,"bus_bw":1.5,"nwrong":null}}"#);
        let json = format!(
            r#"{{"version":3,"args":["all_reduce_perf"],"config":{{"warmup_iters":1}},"results":[{{"size":1048576,
            "count":262144,"type":"float","redop":"sum","root":"    -1","out_of_place":{},"in_place":{}}}]}}"#,
            half(0.123456),
            half(9.5)
        );
        let times = |collective| table(json.as_bytes(), collective);
        assert_eq!(times(Collective::AllReduce), Times::from([(1 << 20, 0.123456)]));
        assert_eq!(times(Collective::Broadcast), Times::from([(1 << 20, 9.5)]));
    }

    #[test]
    fn the_first_command_speaks_and_any_may_fail() {
        let scratch = tempfile::tempdir().unwrap();
        let said = run(vec![shell("echo 8 1.5"), shell("echo 8 9")], scratch.path()).unwrap();
        assert_eq!(lines(&said), Times::from([(8, 1.5)]));
        let failed = run(vec![shell("sleep 100"), shell("echo no room >&2; exit 3")], scratch.path()).unwrap_err();
        let failed = failed.to_string();
        assert!(failed.contains("exit status: 3") && failed.contains("no room"), "{failed}");
    }
}
