//! Command lines that start the processes of a job, as the input shows them.

use crate::case::Case;
use crate::lines::Line;
use busbw_model::{Place, Speaker};

/// A launcher's command line, with the number of processes that it asks for.
pub(super) struct Launch<'a> {
    pub line: &'a Line<'a>,
    pub processes: usize,
}

impl<'a> Launch<'a> {
    /// The commands of all inputs, in order.
    pub fn all(case: &'a Case) -> Vec<Self> {
        case.lines.iter().filter_map(Launch::read).collect()
    }

    pub fn place(&self) -> Place {
        self.line.source.place
    }

    fn read(line: &'a Line<'a>) -> Option<Self> {
        const LAUNCHERS: [&str; 4] = ["mpirun", "mpiexec", "srun", "prun"];
        if line.speaker != Speaker::Program || !LAUNCHERS.iter().any(|launcher| line.text.contains(launcher)) {
            return None;
        }
        let words: Vec<&str> = line.text.split_whitespace().collect();
        let at = words.iter().position(|word| LAUNCHERS.iter().any(|launcher| word.ends_with(launcher)))?;
        let processes = processes(words[at], &words[at + 1..]);
        (words.len() > at + 1).then_some(Launch { line, processes })
    }
}

/// How many processes a launcher's options ask for. What follows the program's name is the program's: `-n 20` of
/// nccl-tests are iterations.
fn processes(launcher: &str, words: &[&str]) -> usize {
    let own = words.iter().take_while(|word| !word.contains("_perf"));
    let options: Vec<&str> = own.flat_map(|word| option(word)).collect();
    let after = |flags: &[&str]| options.windows(2).find(|pair| flags.contains(&pair[0])).map(|pair| pair[1]);
    let number = |flags: &[&str]| after(flags).and_then(|count| count.parse::<usize>().ok());
    let listed = after(&["-H", "-host", "--host", "-hosts", "--hosts"]);
    let asked = match launcher.ends_with("srun") {
        // Slurm's `-c` are cores of each task.
        true => number(&["-n", "--ntasks"])
            .or(number(&["-N", "--nodes"])
                .map(|nodes| nodes.saturating_mul(number(&["--ntasks-per-node"]).unwrap_or(1)))),
        false => number(&["-np", "-n", "--np", "-c"])
            .or(listed.map(|list| list.split(',').map(slots).fold(0, usize::saturating_add))),
    };
    asked.unwrap_or(1)
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
    fn the_number_of_processes_is_the_launchers_and_not_the_programs() {
        let cases = [
            ("mpirun -np 16 --hostfile hosts ./all_reduce_perf -b 8 -e 8G -f 2 -g 1", 16),
            ("mpirun -H nodeA,nodeB ./all_reduce_perf -n 20 -c 1", 2),
            ("mpirun -H nodeA:8,nodeB:8 ./all_reduce_perf -g 1", 16),
            ("mpiexec -x NCCL_DEBUG=INFO ./all_reduce_perf -n 20", 1),
            ("srun -N 2 --ntasks-per-node=8 -c 12 ./all_reduce_perf", 16),
            ("srun --ntasks=4 --mpi=pmix ./all_reduce_perf", 4),
            ("srun -c 8 ./all_reduce_perf -g 8", 1),
        ];
        for (text, expected) in cases {
            let (launcher, options) = text.split_once(' ').expect("a command");
            let words: Vec<&str> = options.split(' ').collect();
            assert_eq!(processes(launcher, &words), expected, "{text}");
        }
    }
}
