//! Which programs move data on purpose: benchmarks of collectives and tests of links, told by their command lines.

use super::Job;
use crate::Root;
use busbw_model::Collective;
use std::collections::{BTreeMap, HashMap};

/// A process runs its parent's program until it starts its own: the command lines of new ones are read this often.
const LOOKS: u8 = 3;
const LONGEST_COMMAND: usize = 200;

/// Remembers what the processes run, so that each is looked at only when it is new.
#[derive(Debug, Default)]
pub struct Jobs(HashMap<u32, Seen>);

#[derive(Debug, Default)]
struct Seen {
    looks: u8,
    job: Option<(String, String)>,
}

impl Jobs {
    pub fn read(&mut self, root: &Root) -> Vec<Job> {
        let mut before = std::mem::take(&mut self.0);
        let mut jobs: BTreeMap<(String, String), u32> = BTreeMap::new();
        for pid in root.list("/proc").iter().filter_map(|name| name.parse().ok()) {
            let mut seen = before.remove(&pid).unwrap_or_default();
            if seen.looks < LOOKS {
                seen.looks += 1;
                seen.job = arguments(root, pid).and_then(|arguments| recognise(&arguments));
            }
            if let Some(job) = &seen.job {
                *jobs.entry(job.clone()).or_default() += 1;
            }
            self.0.insert(pid, seen);
        }
        jobs.into_iter().map(|((what, command), processes)| Job { what, command, processes }).collect()
    }
}

/// The words of a process's command line; none for a thread of the kernel.
pub fn arguments(root: &Root, pid: u32) -> Option<Vec<String>> {
    let line = root.value(&format!("/proc/{pid}/cmdline"))?;
    Some(line.split('\0').filter(|word| !word.is_empty()).map(str::to_owned).collect())
}

pub fn shown(arguments: &[String]) -> String {
    arguments.join(" ").chars().filter(|c| !c.is_control()).take(LONGEST_COMMAND).collect()
}

/// What a command line moves data for, if it does, and the line to show.
fn recognise(arguments: &[String]) -> Option<(String, String)> {
    let program = arguments.first()?.rsplit('/').next()?;
    let collective = |name: &str| Collective::from_name(name).map(|collective| collective.name().to_owned());
    let what = match program.strip_suffix("_perf") {
        Some(name) => collective(name)?,
        None if program == "busbw" && arguments.get(1)? == "bench" => collective(arguments.get(2)?)?,
        None if is_link_test(program) => program.to_owned(),
        None => return None,
    };
    Some((what, shown(arguments)))
}

/// perftest's programs, UCX's, and iperf.
fn is_link_test(program: &str) -> bool {
    let perftest = program.starts_with("ib_") && (program.ends_with("_bw") || program.ends_with("_lat"));
    perftest || matches!(program, "ucx_perftest" | "iperf3" | "iperf")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_told_by_their_command_lines() {
        let cases = [
            ("./build/all_reduce_perf -b 8 -e 1G", Some("all_reduce")),
            ("/usr/local/bin/alltoall_perf", Some("alltoall")),
            ("/usr/bin/busbw bench all_gather --np 4", Some("all_gather")),
            ("busbw monitor", None),
            ("busbw bench --help", None),
            ("ib_write_bw -d mlx5_0 10.0.0.1", Some("ib_write_bw")),
            ("ib_read_lat", Some("ib_read_lat")),
            ("iperf3 -s", Some("iperf3")),
            ("lock_perf", None),
            ("mpirun -np 2 all_reduce_perf", None),
            ("bash -c all_reduce_perf", None),
        ];
        for (line, what) in cases {
            let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(recognise(&arguments).map(|(what, _)| what).as_deref(), what, "{line}");
        }
        assert_eq!(recognise(&[]), None);
    }

    #[test]
    fn ranks_are_counted_and_gone_with_their_processes() {
        let folder = tempfile::tempdir().unwrap();
        let start = |pid: u32, line: &str| {
            let process = folder.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&process).unwrap();
            std::fs::write(process.join("cmdline"), line.replace(' ', "\0")).unwrap();
        };
        start(1, "init");
        start(20, "bash");
        start(21, "all_reduce_perf -g 1");
        let root = Root::captured(folder.path()).unwrap();
        let mut jobs = Jobs::default();
        assert_eq!(jobs.read(&root)[0].processes, 1);
        // A shell that becomes the program between two looks.
        start(20, "all_reduce_perf -g 1");
        let job = Job { what: "all_reduce".into(), command: "all_reduce_perf -g 1".into(), processes: 2 };
        assert_eq!(jobs.read(&root), [job]);
        std::fs::remove_dir_all(folder.path().join("proc/20")).unwrap();
        std::fs::remove_dir_all(folder.path().join("proc/21")).unwrap();
        assert_eq!(jobs.read(&root), []);
    }
}
