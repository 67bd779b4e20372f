//! Finds which readers may need a line, by the words in it: NCCL's diagnostics and RAS, PyTorch's watchdog, commands of the system, ends of
//! processes, speakers. Runs once over each line that is no message of NCCL's log, so that no reader searches lines that nobody wants.

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use busbw_model::Words;
use std::sync::LazyLock;

/// Who may want a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// PyTorch's reader, which wants the line with its labels: they name the rank.
    pub torch: bool,
    pub other: bool,
    /// [`crate::ends::read`].
    pub end: bool,
    /// [`crate::speaker::of`].
    pub speaker: bool,
    /// It may set variables of NCCL's.
    pub variables: bool,
    /// It is a bar of tqdm, which a process that ends prints once more: `45%|████▌     | 45/100 [00:01<…]`.
    pub progress: bool,
}

/// What begins a line of a command's output, or is a prompt with a command.
const BEGINNINGS: [&[u8]; 6] = [b"GPU", b" GPU", b"DEAD", b"max ", b"stack size", b"Max "];

/// `rules/words.toml`.
pub(crate) static KNOWN: LazyLock<Words> = LazyLock::new(|| {
    toml::from_str(include_str!("../../../../rules/words.toml"))
        .unwrap_or_else(|error| unreachable!("diagnose's build script read this file: {error}"))
});

/// All words, and whose each is. A table of states: it is walked once for every byte of an ordinary log.
static WORDS: LazyLock<Option<(AhoCorasick, Vec<Wanted>)>> = LazyLock::new(|| {
    let none = Wanted::default();
    let (variables, progress) = (["NCCL_".to_string()], ["%|".to_string()]);
    let lists: [(&[String], Wanted); 8] = [
        (&KNOWN.torch, Wanted { torch: true, ..none }),
        (&KNOWN.other, Wanted { other: true, ..none }),
        (&KNOWN.ends, Wanted { end: true, ..none }),
        (&KNOWN.speakers, Wanted { speaker: true, ..none }),
        (&KNOWN.launchers, Wanted { speaker: true, ..none }),
        (&KNOWN.ssh, Wanted { speaker: true, ..none }),
        (&variables, Wanted { variables: true, ..none }),
        (&progress, Wanted { progress: true, ..none }),
    ];
    let versions =
        KNOWN.versions.iter().flat_map(|(_, words)| words).map(|word| (word, Wanted { other: true, ..none }));
    let of_all = lists.iter().flat_map(|(list, whose)| list.iter().map(|word| (word, *whose))).chain(versions);
    let (words, whose): (Vec<&String>, _) = of_all.unzip();
    let automaton = AhoCorasick::builder().kind(Some(AhoCorasickKind::DFA)).build(words).ok()?;
    Some((automaton, whose))
});

/// Who may want a line; nobody wants most.
pub(crate) fn of(line: &[u8]) -> Wanted {
    let other = BEGINNINGS.iter().any(|start| line.starts_with(start)) || is_prompt(line);
    let mut wanted = Wanted { other, ..Wanted::default() };
    let Some((automaton, whose)) = &*WORDS else { return wanted };
    for found in automaton.find_overlapping_iter(line) {
        let Wanted { torch, other, end, speaker, variables, progress } = whose[found.pattern().as_usize()];
        wanted.torch |= torch;
        wanted.other |= other;
        wanted.end |= end;
        wanted.speaker |= speaker;
        wanted.variables |= variables;
        wanted.progress |= progress;
    }
    wanted
}

/// `root@node1:~# ibstat`: the commands that follow speak of that host.
fn is_prompt(line: &[u8]) -> bool {
    let start = &line[..line.len().min(80)];
    let at = memchr::memchr(b'@', start);
    at.is_some_and(|at| {
        memchr::memmem::find(&start[at..], b"# ").or(memchr::memmem::find(&start[at..], b"$ ")).is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_to_who_may_read_them() {
        let none = Wanted::default();
        let other = Wanted { other: true, ..none };
        let cases = [
            (
                "[rank0]:[E] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(",
                Wanted { torch: true, ..none },
            ),
            ("n:1 NCCL DIAG [OK] p2p: fine", other),
            ("\t\tState: Active", other),
            ("root@node1:~# ibstat", other),
            ("step 12, loss 0.25, 3.1 s", none),
            (" 45%|####    | 45/100 [00:01<00:02]", Wanted { progress: true, ..none }),
            ("NCCL_DEBUG=INFO ./train", Wanted { variables: true, ..none }),
            ("srun: error: node1: task 3: Exited with exit code 1", Wanted { end: true, speaker: true, ..none }),
            ("      8388608       2097152     float     sum      -1   123.4   68.0  127.5      0", none),
        ];
        for (line, expected) in cases {
            assert_eq!(of(line.as_bytes()), expected, "{line}");
        }
    }
}
