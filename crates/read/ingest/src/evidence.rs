//! Finds which readers may need a line, by the words in it: NCCL's diagnostics and RAS, PyTorch's watchdog, commands of the system, ends of
//! processes, speakers. Runs over each line that is no message of NCCL's log, so that no reader searches lines that nobody wants.
//!
//! Most lines have the wording of an earlier one, whose [`Found`] their reader remembers: a word without digits stands in all lines of a
//! wording or in none. Only the few words with digits are searched for again.

use crate::wording::without_numbers;
use aho_corasick::packed::Searcher;
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
    /// It may be of a shell, and set variables of NCCL's or start a run.
    pub variables: bool,
    /// It is a bar of tqdm, which a process that ends prints once more.
    pub progress: bool,
}

/// What begins a line of a command's output, or is a prompt with a command.
const BEGINNINGS: [&[u8]; 8] = [b"GPU", b" GPU", b"DEAD", b"max ", b"stack size", b"Max ", b"Fabric", b"Aggregate"];

/// What stands in lines of a shell that set variables of NCCL's, or start another run.
const SHELL: [&str; 11] =
    ["NCCL_", "_perf ", "mpirun ", "mpiexec ", "srun ", "sbatch ", "torchrun ", "horovodrun ", "$ ", "~# ", "~ # "];

/// What stands in bars of tqdm, with and without a total: `45%|████▌     | 45/100 [00:01<…]`, `29948it [35:34,  7.00s/it]`.
const BARS: [&str; 4] = ["%|", "it [", "it/s, ", "s/it, "];

/// `rules/words.toml`.
pub(crate) static KNOWN: LazyLock<Words> = LazyLock::new(|| {
    toml::from_str(include_str!("../../../../rules/words.toml"))
        .unwrap_or_else(|error| unreachable!("diagnose's build script read this file: {error}"))
});

/// Words to search for, and whose each is.
struct Lists {
    /// States and where each byte leads; as a table of all bytes it would take longer to build than most logs take to read.
    words: Option<AhoCorasick>,
    whose: Vec<Wanted>,
    /// Looks at many bytes at a time; there is none for many words.
    quick: Option<Searcher>,
}

/// The words, by whether they have digits.
struct Known {
    without: Lists,
    with: Lists,
    /// Those with digits, as [`without_numbers`] leaves them.
    wordings: Lists,
}

static LISTS: LazyLock<Known> = LazyLock::new(|| {
    let none = Wanted::default();
    let (shell, progress) = (SHELL.map(str::to_string), BARS.map(str::to_string));
    let lists: [(&[String], Wanted); 9] = [
        (&KNOWN.torch, Wanted { torch: true, ..none }),
        (&KNOWN.other, Wanted { other: true, ..none }),
        (&KNOWN.ends, Wanted { end: true, ..none }),
        (&KNOWN.done, Wanted { end: true, ..none }),
        (&KNOWN.speakers, Wanted { speaker: true, ..none }),
        (&KNOWN.launchers, Wanted { speaker: true, ..none }),
        (&KNOWN.ssh, Wanted { speaker: true, ..none }),
        (&shell, Wanted { variables: true, ..none }),
        (&progress, Wanted { progress: true, ..none }),
    ];
    let versions =
        KNOWN.versions.iter().flat_map(|(_, words)| words).map(|word| (word, Wanted { other: true, ..none }));
    let of_all = lists.iter().flat_map(|(list, whose)| list.iter().map(|word| (word, *whose))).chain(versions);
    let bytes = of_all.map(|(word, whose)| (word.as_bytes().to_vec(), whose));
    let (with, without): (Vec<_>, Vec<_>) = bytes.partition(|(word, _)| word.iter().any(u8::is_ascii_digit));
    let wordings = with.iter().map(|(word, whose)| (without_numbers(word), *whose)).collect();
    Known { without: Lists::of(without), with: Lists::of(with), wordings: Lists::of(wordings) }
});

impl Lists {
    fn of(words: Vec<(Vec<u8>, Wanted)>) -> Lists {
        let (words, whose): (Vec<_>, Vec<_>) = words.into_iter().unzip();
        let quick = Searcher::new(&words);
        Lists {
            words: AhoCorasick::builder().kind(Some(AhoCorasickKind::ContiguousNFA)).build(words).ok(),
            whose,
            quick,
        }
    }

    /// Who may want a line for its words.
    fn find(&self, line: &[u8]) -> Wanted {
        let Some(words) = &self.words else { return Wanted::default() };
        if self.quick.as_ref().is_some_and(|quick| quick.find(line).is_none()) {
            return Wanted::default();
        }
        let found = words.find_overlapping_iter(line).map(|found| self.whose[found.pattern().as_usize()]);
        found.fold(Wanted::default(), Wanted::or)
    }
}

impl Wanted {
    fn or(self, more: Wanted) -> Wanted {
        Wanted {
            torch: self.torch | more.torch,
            other: self.other | more.other,
            end: self.end | more.end,
            speaker: self.speaker | more.speaker,
            variables: self.variables | more.variables,
            progress: self.progress | more.progress,
        }
    }
}

/// What words stand in lines that differ in no more than the digits of their numbers. They begin alike, and no beginning has digits.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    without_digits: Wanted,
    /// Words with digits may stand in them.
    may_have_digits: bool,
    /// They may be a prompt.
    may_be_prompt: bool,
}

impl Found {
    pub fn of(line: &[u8]) -> Found {
        let may_have_digits = LISTS.wordings.find(&without_numbers(line)) != Wanted::default();
        let without_digits = LISTS.without.find(line).or(of_beginning(line));
        Found { without_digits, may_have_digits, may_be_prompt: memchr::memchr(b'@', line).is_some() }
    }

    /// Who may want one of the lines; nobody wants most.
    pub fn wanted(self, line: &[u8]) -> Wanted {
        let with_digits = if self.may_have_digits { LISTS.with.find(line) } else { Wanted::default() };
        let other = self.may_be_prompt && is_prompt(line);
        self.without_digits.or(with_digits).or(Wanted { other, variables: other, ..Wanted::default() })
    }
}

/// Who may want a line; nobody wants most.
pub(crate) fn of(line: &[u8]) -> Wanted {
    Found::of(line).wanted(line)
}

fn of_beginning(line: &[u8]) -> Wanted {
    Wanted { other: BEGINNINGS.iter().any(|start| line.starts_with(start)), ..Wanted::default() }
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
            ("root@node1:~# ibstat", Wanted { variables: true, ..other }),
            ("step 12, loss 0.25, 3.1 s", none),
            (" 45%|####    | 45/100 [00:01<00:02]", Wanted { progress: true, ..none }),
            ("29948it [35:34,  7.00s/it]", Wanted { progress: true, ..none }),
            ("NCCL_DEBUG=INFO ./train", Wanted { variables: true, ..none }),
            ("srun: error: node1: task 3: Exited with exit code 1", Wanted { end: true, speaker: true, ..none }),
            ("      8388608       2097152     float     sum      -1   123.4   68.0  127.5      0", none),
        ];
        for (line, expected) in cases {
            assert_eq!(of(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn lines_of_a_wording_differ_where_a_word_has_digits() {
        let none = Wanted::default();
        let speaker = Wanted { speaker: true, ..none };
        let cases = [
            ("dash: sh: 2: torchrun", "dash: sh: 1: torchrun", speaker),
            ("dash: sh: 1: torchrun", "dash: sh: 12: torchrun", none),
            ("loss 7 of 3", "loss 1 of 14", none),
        ];
        for (met, line, expected) in cases {
            let known = Found::of(met.as_bytes()).wanted(line.as_bytes());
            assert_eq!((known, of(line.as_bytes())), (expected, expected), "{line}");
        }
    }
}
