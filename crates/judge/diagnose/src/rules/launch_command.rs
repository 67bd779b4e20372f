//! Command lines that start the processes of a job, as the input shows them.

use crate::lines::Line;
use busbw_model::{BenchTable, Place, Speaker};
use std::collections::BTreeSet;

/// A launcher's command line, with the number of processes that it asks for.
pub(crate) struct Launch<'l> {
    pub line: &'l Line<'l>,
    pub processes: usize,
    /// The hosts that they are spread over, where the options tell.
    hosts: Option<usize>,
}

/// On how many hosts the command above a table started its ranks.
pub(crate) fn hosts_of(table: &BenchTable, lines: &[Line]) -> Option<u32> {
    let launches = Launch::all(lines);
    let launch = launches.iter().rfind(|launch| table.place.is_after(launch.place()))?;
    // A process of nccl-tests may have several ranks; other commands are of other jobs.
    let (ranks, processes) = (table.nranks? as usize, launch.processes);
    let is_its = ranks == processes || launch.line.text.contains("_perf") && ranks.is_multiple_of(processes);
    launch.hosts.filter(|_| is_its).and_then(|hosts| u32::try_from(hosts).ok())
}

impl<'l> Launch<'l> {
    /// The commands of all inputs, in order.
    pub fn all(lines: &'l [Line<'l>]) -> Vec<Self> {
        lines.iter().filter_map(Launch::read).collect()
    }

    pub fn place(&self) -> Place {
        self.line.source.place
    }

    fn read(line: &'l Line<'l>) -> Option<Self> {
        const LAUNCHERS: [&str; 4] = ["mpirun", "mpiexec", "srun", "prun"];
        if line.speaker != Speaker::Program || !LAUNCHERS.iter().any(|launcher| line.text.contains(launcher)) {
            return None;
        }
        let words: Vec<&str> = line.text.split_whitespace().collect();
        let at = words.iter().position(|word| LAUNCHERS.iter().any(|launcher| word.ends_with(launcher)))?;
        let (processes, hosts) = asked(words[at], &words[at + 1..]);
        (words.len() > at + 1).then_some(Launch { line, processes, hosts })
    }
}

/// How many processes a launcher's options ask for, and on how many hosts. What follows the program's name is the program's: `-n 20` of
/// nccl-tests are iterations.
fn asked(launcher: &str, words: &[&str]) -> (usize, Option<usize>) {
    let own = words.iter().take_while(|word| !word.contains("_perf"));
    let options: Vec<&str> = own.flat_map(|word| option(word)).collect();
    let after = |flags: &[&str]| options.windows(2).find(|pair| flags.contains(&pair[0])).map(|pair| pair[1]);
    let number = |flags: &[&str]| after(flags).and_then(|count| count.parse::<usize>().ok()).filter(|count| *count > 0);
    if launcher.ends_with("srun") {
        // Slurm's `-c` are cores of each task.
        let (tasks, nodes, each) =
            (number(&["-n", "--ntasks"]), number(&["-N", "--nodes"]), number(&["--ntasks-per-node"]));
        let processes = tasks.or(nodes.map(|nodes| nodes.saturating_mul(each.unwrap_or(1)))).unwrap_or(1);
        return (processes, nodes.or(tasks.zip(each).map(|(tasks, each)| tasks.div_ceil(each))));
    }
    let listed: Vec<&str> =
        after(&["-H", "-host", "--host", "-hosts", "--hosts"]).into_iter().flat_map(|list| list.split(',')).collect();
    let all = || Some(listed.iter().copied().map(slots).fold(0, usize::saturating_add)).filter(|slots| *slots > 0);
    let processes = number(&["-np", "-n", "--np", "-c"]).or_else(all);
    let mapped =
        after(&["--map-by", "-map-by"]).and_then(|how| how.strip_prefix("ppr:")?.split_once(":node")?.0.parse().ok());
    let each =
        number(&["-N", "-npernode", "--npernode", "-ppn", "--ppn", "-perhost"]).or(mapped.filter(|each| *each > 0));
    // A host file, or the scheduler, may tell how many there are: then nothing here tells the hosts.
    let hosts = |processes: usize| each.map(|each| processes.div_ceil(each)).or_else(|| filled(&listed, processes));
    (processes.unwrap_or(1), processes.and_then(hosts))
}

/// The hosts of a list that so many processes fill, one after the other; none where the list tells no slots of them and has too few names.
fn filled(listed: &[&str], processes: usize) -> Option<usize> {
    let (mut hosts, mut room) = (BTreeSet::new(), 0_usize);
    for host in listed {
        if room < processes {
            hosts.insert(host.split(':').next().unwrap_or(host));
            room = room.saturating_add(slots(host));
        }
    }
    (room >= processes && processes > 0).then_some(hosts.len())
}

/// `--ntasks=8` as `--ntasks 8`.
fn option<'w>(word: &'w str) -> impl Iterator<Item = &'w str> + use<'w> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) if name.starts_with('-') => (name, Some(value)),
        _ => (word, None),
    };
    std::iter::once(name).chain(value)
}

/// The processes of a host: `nodeA` one, `nodeA:8` eight.
fn slots(host: &str) -> usize {
    host.rsplit_once(':').and_then(|(_, slots)| slots.parse().ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_processes_and_hosts_are_the_launchers_and_not_the_programs() {
        let cases = [
            ("mpirun -np 16 --hostfile hosts ./all_reduce_perf -b 8 -e 8G -f 2 -g 1", 16, None),
            ("mpirun -H nodeA,nodeB ./all_reduce_perf -n 20 -c 1", 2, Some(2)),
            ("mpirun -H nodeA:8,nodeB:8 ./all_reduce_perf -g 1", 16, Some(2)),
            ("mpirun -np 8 -H nodeA:8,nodeB:8 ./all_reduce_perf -g 1", 8, Some(1)),
            ("mpirun -np 16 -H nodeA,nodeB ./all_reduce_perf -g 1", 16, None),
            ("mpirun -np 32 -N 8 ./all_reduce_perf -g 1", 32, Some(4)),
            ("mpirun -N 8 --hostfile hosts ./all_reduce_perf -g 1", 1, None),
            ("srun --ntasks-per-node=8 ./all_reduce_perf", 1, None),
            ("mpirun -np 4 --map-by ppr:2:node ./all_reduce_perf -g 4", 4, Some(2)),
            ("mpiexec -x NCCL_DEBUG=INFO ./all_reduce_perf -n 20", 1, None),
            ("srun -N 2 --ntasks-per-node=8 -c 12 ./all_reduce_perf", 16, Some(2)),
            ("srun --ntasks=4 --mpi=pmix ./all_reduce_perf", 4, None),
            ("srun -c 8 ./all_reduce_perf -g 8", 1, None),
        ];
        for (text, processes, hosts) in cases {
            let (launcher, options) = text.split_once(' ').expect("a command");
            let words: Vec<&str> = options.split(' ').collect();
            assert_eq!(asked(launcher, &words), (processes, hosts), "{text}");
        }
    }
}
