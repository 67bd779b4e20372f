//! What a program that passes a log on puts in front of its lines: journald, stern, `aws logs tail`, `cat -n`, `grep -n` and others.
//!
//! None of them is known here. Where lines of programs do not stand at the beginning of theirs, what stands in front of them is
//! looked for in front of all others.

use crate::clean::without_escapes;
use crate::cursor::lossy;
use crate::launcher::peel;
use crate::logger;
use aho_corasick::{AhoCorasick, MatchKind};
use memchr::{memchr, memrchr};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::LazyLock;

/// What lines of programs begin with, or behind NCCL's own prefix hold.
const BEGINNINGS: [&str; 12] = [
    TRACEBACK,
    NCCL,
    "# nThread ",
    "# Using devices",
    "# nccl-tests version ",
    "NCCL version ",
    "terminate called after throwing an instance of ",
    "slurmstepd: error: ",
    "[rank",
    "Fatal Python error: ",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError",
    "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
];
const TRACEBACK: &str = "Traceback (most recent call last):";
/// A frame stands behind it.
const FRAME: &str = "  File \"";
/// Lines in which one stands.
const FARTHEST_FRAME: usize = 64;
const NCCL: &str = "] NCCL INFO ";
/// What no program's own logger writes: the frames of a traceback, each in a line with a prefix, NCCL's lines, the head of a table.
const OF_OTHERS: [&str; 4] = [TRACEBACK, NCCL, "# nThread ", "# Using devices"];

/// Leftmost: only so does the search skip with vector instructions, and every block is searched whole.
static STARTS: LazyLock<Option<AhoCorasick>> =
    LazyLock::new(|| AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(BEGINNINGS).ok());

/// Beginnings that are tried in a block: the first shows it, unless somebody quotes it.
const MOST_TRIED: usize = 6;
/// Those of one kind: the first may stand in a line that is damaged.
const TRIED_OF_ONE: usize = 2;
/// What is longer is no prefix.
const LONGEST: usize = 256;
/// Of the lines, how many per cent have it. Those that a terminal wrapped, or a program wrote without a line end, do not.
const NEARLY_ALL: usize = 80;
/// Lines beside the one that shows it that have the very same names in it: what one line says in its first words does not recur.
const RECURS: usize = 2;

/// The form of a prefix that the lines of an input share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PassedOn {
    words: Vec<Word>,
    /// What stands between the last word and the line itself, whose own indent follows.
    behind: Box<[u8]>,
}

/// A word of a prefix: its punctuation, with [`DIGITS`] and [`NAME`] for what may differ.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Word {
    form: Box<[u8]>,
    tells: Tells,
    /// The names in it, where all lines have the same.
    always: Option<Vec<u8>>,
}

/// Whether a word distinguishes streams: it has names in it, and differs between lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tells {
    Nothing,
    /// Its numbers count lines: `out/train.log:17:`.
    ByNames,
    /// Its numbers belong to the name: `train[4242]:`.
    Whole,
}

/// How many lines have each name.
type Names = FxHashMap<Vec<u8>, usize>;

const DIGITS: u8 = b'0';
const NAME: u8 = b'a';

impl PassedOn {
    /// That of a block's lines, if they have one.
    pub fn of(block: &[u8]) -> Option<Self> {
        let mut tried = [0; BEGINNINGS.len()];
        let (mut own, mut end) = (0, 0);
        for found in STARTS.as_ref()?.find_iter(block) {
            // A line begins once: what stands behind NCCL's own prefix is its message.
            if found.start() < end {
                continue;
            }
            let start = memrchr(b'\n', &block[..found.start()]).map_or(0, |end| end + 1);
            let line = line_at(block, start);
            end = start + line.len();
            let pattern = found.pattern().as_usize();
            if tried[pattern] == TRIED_OF_ONE {
                continue;
            }
            tried[pattern] += 1;
            if tried.iter().sum::<usize>() > MOST_TRIED {
                return None;
            }
            match front(line, found.start() - start) {
                // A line as its program printed it, or a text in JSON, which is unwrapped as a whole. One may have lost its front.
                Some(front) if front.is_empty() || front.contains(&b'"') => {
                    own += 1;
                    if own > 1 {
                        return None;
                    }
                }
                Some(front) => {
                    let beginning = BEGINNINGS[pattern];
                    let is_traceback = beginning == TRACEBACK;
                    let learnt = Self::learn(front, block, OF_OTHERS.contains(&beginning));
                    if let Some(form) = learnt.filter(|form| !is_traceback || form.is_before_frames(&block[start..])) {
                        return Some(form);
                    }
                }
                None => {}
            }
        }
        Self::of_syslog(block)
    }

    /// That of syslog's files and journald's short form (RFC 3164), `Nov 25 10:00:00 gpu-7 train[4242]: `, where one program wrote all of them: it is known
    /// without a line of a program behind it.
    fn of_syslog(block: &[u8]) -> Option<Self> {
        const MONTHS: [&[u8]; 12] =
            [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
        let line = block.split(|b| *b == b'\n').find(|line| !line.trim_ascii().is_empty())?;
        let end = memchr(b']', line)? + "]: ".len();
        let front = line.get(..end).filter(|front| front.ends_with(b"]: "))?;
        let words: Vec<&[u8]> = split_words(front).collect();
        let [month, day, time, _, _] = words[..] else { return None };
        let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
        let is_dated = MONTHS.contains(&month) && is_number(day) && time.split(|b| *b == b':').all(is_number);
        // Learning reads the whole block.
        let learnt = is_dated.then(|| Self::learn(front, block, false))??;
        learnt.words.last().is_some_and(|tag| tag.always.is_some()).then_some(learnt)
    }

    /// Whether it stands before the frames of a traceback as well, which other streams' lines may part from its head.
    fn is_before_frames(&self, traceback: &[u8]) -> bool {
        let mut lines = traceback.split(|b| *b == b'\n').take(FARTHEST_FRAME);
        let is_frame = |rest: &[u8]| peel(&lossy(rest)).text.starts_with(FRAME);
        lines.any(|line| self.split(line).is_some_and(|(_, rest)| is_frame(rest)))
    }

    /// The form of a prefix that nearly all lines have. `of_others`: a logger passes on in it what other programs print.
    fn learn(front: &[u8], block: &[u8], of_others: bool) -> Option<Self> {
        let body = front.trim_ascii_end();
        let words =
            split_words(body).map(|word| Word { form: form_of(word), tells: Tells::Nothing, always: None }).collect();
        let mut form = PassedOn { words, behind: front[body.len()..].into() };
        let names: Vec<Vec<u8>> = form.named(front)?.into_iter().map(names_in).collect();
        let (mut lines, mut with, mut alike) = (0, 0, 0);
        let mut met = vec![Names::default(); names.len()];
        let mut words: Vec<FxHashSet<&[u8]>> = vec![FxHashSet::default(); names.len()];
        for line in block.split(|b| *b == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
            lines += 1;
            let Some(named) = form.named(line) else { continue };
            with += 1;
            let of_line: Vec<Vec<u8>> = named.iter().map(|word| names_in(word)).collect();
            alike += usize::from(of_line == names);
            words.iter_mut().zip(named).for_each(|(words, word)| _ = words.insert(word));
            met.iter_mut().zip(of_line).for_each(|(met, names)| *met.entry(names).or_default() += 1);
        }
        // At one level, a program passes on what another prints; at several, it may log messages of its own.
        let at_levels = |names: &Names| names.len() > 1 && names.keys().any(|name| is_level(name));
        let is_own = |names: &Names| !of_others && at_levels(names) || names.keys().any(|name| is_of_glog(name));
        let own = met.iter().any(is_own);
        if with * 100 < lines * NEARLY_ALL || alike <= RECURS || own {
            return None;
        }
        let named = form.words.iter_mut().filter(|word| word.is_name());
        for (word, (met, words)) in named.zip(met.iter().zip(words)) {
            // A number that hardly recurs counts the lines.
            let counts = words.len() * 2 > with;
            // What lacks a name that nearly all have has no prefix, such as a table of pods among their output. Numbers tell pods and hosts apart.
            let is_common = |(name, lines): &(&Vec<u8>, &usize)| {
                *lines * 100 >= with * NEARLY_ALL && !name.iter().any(u8::is_ascii_digit) && !is_level(name)
            };
            word.always = met.iter().find(is_common).map(|(name, _)| name.clone());
            word.tells = match if counts { met.len() } else { words.len() } {
                0 | 1 => Tells::Nothing,
                _ if word.always.is_some() || at_levels(met) => Tells::Nothing,
                _ if counts => Tells::ByNames,
                _ => Tells::Whole,
            };
        }
        Some(form)
    }

    /// What tells the stream of a line, and the line behind the prefix; `None` where a line does not have it.
    pub fn split<'l>(&self, line: &'l [u8]) -> Option<(String, &'l [u8])> {
        let mut told = String::new();
        let rest = self.words_of(line, |word, found| {
            let name = match word.tells {
                Tells::Nothing => return,
                Tells::ByNames => names_in(found).into(),
                Tells::Whole => without_escapes(found),
            };
            if !told.is_empty() {
                told.push(' ');
            }
            told.push_str(&lossy(&name));
        })?;
        Some((told, rest))
    }

    /// The words of a line's prefix that hold names.
    fn named<'l>(&self, line: &'l [u8]) -> Option<Vec<&'l [u8]>> {
        let mut names = Vec::new();
        self.words_of(line, |word, name| names.extend(word.is_name().then_some(name)))?;
        Some(names)
    }

    /// Takes each word of a line's prefix; what stands behind it.
    fn words_of<'l>(&self, line: &'l [u8], mut take: impl FnMut(&Word, &'l [u8])) -> Option<&'l [u8]> {
        let mut rest = line;
        for (number, word) in self.words.iter().enumerate() {
            rest = rest.trim_ascii_start();
            let is_last = number + 1 == self.words.len();
            let end = match is_last && self.behind.is_empty() {
                true => word.length_in(rest)?,
                false => rest.iter().position(|b| matches!(b, b' ' | b'\t')).unwrap_or(rest.len()),
            };
            let (found, behind) = rest.split_at(end);
            let lacks = |names: &Vec<u8>| names_in(found) != *names;
            if !pieces(found).eq(word.form.iter().copied()) || word.always.as_ref().is_some_and(lacks) {
                return None;
            }
            take(word, found);
            rest = behind;
        }
        // Of an empty line the prefix may have lost its blanks.
        rest.strip_prefix(&*self.behind).or_else(|| rest.trim_ascii().is_empty().then_some(&[]))
    }
}

impl Word {
    fn is_name(&self) -> bool {
        self.form.contains(&NAME)
    }

    /// How much of a text, with more behind it, has this form.
    fn length_in(&self, text: &[u8]) -> Option<usize> {
        let mut at = 0;
        for &piece in &self.form {
            let run = |is_of: fn(&u8) -> bool| text[at..].iter().take_while(|b| is_of(b)).count();
            let length = match piece {
                DIGITS | NAME => run(is_of_name),
                other => usize::from(text.get(at) == Some(&other)),
            };
            if length == 0 {
                return None;
            }
            at += length;
        }
        Some(at)
    }
}

/// A word with what may differ between lines taken out: numbers, and names with letters in them.
fn form_of(word: &[u8]) -> Box<[u8]> {
    pieces(word).collect()
}

fn pieces(word: &[u8]) -> impl Iterator<Item = u8> {
    let mut rest = word;
    std::iter::from_fn(move || {
        let first = *rest.first()?;
        let length = rest.iter().take_while(|b| is_of_name(b)).count();
        let (run, behind) = rest.split_at(length.max(1));
        rest = behind;
        Some(match length {
            0 => first,
            _ if is_number(run) => DIGITS,
            _ => NAME,
        })
    })
}

/// The names in a word, without its numbers and marks.
fn names_in(word: &[u8]) -> Vec<u8> {
    let runs = word.split(|b| !is_of_name(b)).filter(|run| !run.is_empty() && !is_number(run));
    runs.collect::<Vec<_>>().join(&b' ')
}

fn is_of_name(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_./@".contains(byte) || *byte >= 0x80
}

/// A number, an address, or a part of a time as ISO 8601 writes it.
fn is_number(run: &[u8]) -> bool {
    run[0].is_ascii_digit() && run.iter().all(|b| b.is_ascii_digit() || b"-./TZ".contains(b))
}

/// Whether a word says how bad the line is.
fn is_level(word: &[u8]) -> bool {
    logger::level_of(&lossy(&without_escapes(word))).is_some()
}

/// Whether a word is a level and a date as glog writes them, `E1125`: who speaks so is known by it.
fn is_of_glog(word: &[u8]) -> bool {
    matches!(word, [b'D' | b'I' | b'W' | b'E' | b'F' | b'C', date @ ..] if date.len() == 4 && date.iter().all(u8::is_ascii_digit))
}

/// Whether a text begins as lines of programs do, behind their launchers' labels.
pub(crate) fn begins(text: &str) -> bool {
    let line = line_at(text.as_bytes(), 0);
    let found = STARTS.as_ref().and_then(|starts| starts.find(line));
    found.is_some_and(|found| front(line, found.start()).is_some_and(<[u8]>::is_empty))
}

fn split_words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|b| matches!(b, b' ' | b'\t')).filter(|word| !word.is_empty())
}

fn line_at(block: &[u8], start: usize) -> &[u8] {
    let rest = block.get(start..).unwrap_or_default();
    let line = &rest[..memchr(b'\n', rest).unwrap_or(rest.len())];
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// What stands in front of the line that a program printed, with its launcher's labels, where `at` is what its lines begin with. Empty where
/// nothing does.
fn front(line: &[u8], at: usize) -> Option<&[u8]> {
    let at = if line[at..].starts_with(NCCL.as_bytes()) { start_of_speaker(line, at)? } else { at };
    if at > LONGEST {
        return None;
    }
    let whole = std::str::from_utf8(line).ok()?;
    let text = peel(whole.get(at..)?).text.len();
    let begins = |from: &usize| whole.get(*from..).is_some_and(|own| peel(own).text.len() == text);
    let after_break = |from: &usize| *from == 0 || matches!(line[from - 1], b' ' | b'\t' | b':' | b'|');
    let from = (0..=at).filter(after_break).find(begins).unwrap_or(at);
    let front = &line[..from];
    Some(if front.trim_ascii().is_empty() { &[] } else { front })
}

/// Where `host:pid:tid [0` begins that ends at `at`.
fn start_of_speaker(line: &[u8], at: usize) -> Option<usize> {
    let behind =
        |from: usize, is_of: fn(u8) -> bool| line[..from].iter().rposition(|b| !is_of(*b)).map_or(0, |at| at + 1);
    let tid = behind(memrchr(b' ', &line[..at])?, |b| b.is_ascii_digit());
    let pid = behind(tid.checked_sub(1)?, |b| b.is_ascii_digit());
    Some(behind(pid.checked_sub(1)?, |b| b.is_ascii_alphanumeric() || b"-._".contains(&b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: [&str; 8] = [
        "Loading data",
        "step 10, loss 0.5, 213 ms",
        "step 20, loss 0.4, 214 ms",
        "Traceback (most recent call last):",
        "  File \"/app/train.py\", line 12, in <module>",
        "    main()",
        "",
        "ValueError: bad batch 17",
    ];

    fn text_of(line: &[u8]) -> String {
        String::from_utf8_lossy(line).into_owned()
    }

    /// The output of two ranks, each line as `front` has it: by its number, and whose it is.
    fn passed(front: impl Fn(usize, usize) -> String) -> Vec<u8> {
        let lines = OUTPUT.iter().enumerate().flat_map(|(number, line)| [(number, 0, line), (number, 1, line)]);
        lines.map(|(number, rank, line)| format!("{}{line}\n", front(number, rank))).collect::<String>().into_bytes()
    }

    #[test]
    fn one_programs_lines_in_syslog_are_known_by_their_form() {
        let lines = |tags: [&str; 2]| -> String {
            let line = |number| {
                format!("Nov 25 10:00:{number:02} gpu-7 {}[{}]: step {number}\n", tags[number % 2], 42 + number % 2)
            };
            (10_usize..30).map(line).collect()
        };
        let form = PassedOn::of(lines(["train", "train"]).as_bytes()).expect("a prefix");
        let line = form.split(b"Nov 25 10:00:40 gpu-7 train[42]: Signal: Bus error (7)");
        assert_eq!(line.map(|(_, rest)| text_of(rest)).as_deref(), Some("Signal: Bus error (7)"));
        for other in [lines(["train", "sshd"]), lines(["train", "train"]).replace("Nov", "See")] {
            assert_eq!(PassedOn::of(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn what_programs_put_in_front_is_taken_off() {
        type Front = fn(usize, usize) -> String;
        let fronts: [(Front, &str); 9] = [
            (|n, _| format!("Nov 25 10:00:{n:02} gpu-7 train[4242]: "), ""),
            (|n, rank| format!("2026-11-25T10:00:{n:02}+0000 gpu-{rank} train[4242]: "), "gpu-1"),
            (|_, rank| format!("train-worker-{rank}-x7k2p pytorch "), "train-worker-1-x7k2p"),
            (|n, rank| format!("train-{rank} pytorch 2026-11-25T10:00:{n:02}.123456789Z "), "train-1"),
            (|n, rank| format!("2026-11-25T10:00:{n:02}.123000+00:00 job/{rank}/abcdef "), "job/1/abcdef"),
            (|n, rank| format!("{:6}\t", 2 * n + rank), ""),
            (|n, rank| format!("{}:", 2 * n + rank), ""),
            (|n, rank| format!("logs/train.log:{}:", 2 * n + rank), ""),
            (|_, rank| format!("\x1b[3{rank}mtrain-{rank}\x1b[0m \x1b[35mmain\x1b[0m "), "train-1"),
        ];
        for (front, stream) in fronts {
            let text = passed(front);
            let form = PassedOn::of(&text).unwrap_or_else(|| panic!("{}", front(1, 1)));
            let last = text.split(|b| *b == b'\n').rev().nth(1).unwrap();
            assert_eq!(form.split(last).unwrap().0, stream, "{}", front(1, 1));
            let lines = text.split(|b| *b == b'\n').filter_map(|line| form.split(line)).map(|(_, line)| line);
            let found: Vec<String> = lines.step_by(2).map(|line| peel(&text_of(line)).text.to_string()).collect();
            assert_eq!(found, OUTPUT, "{}", front(1, 1));
        }
    }

    #[test]
    fn what_a_program_says_itself_stays() {
        let logged = |n: usize, _| format!("2026-11-25 10:00:{n:02},123 - root - {} - ", ["INFO", "ERROR"][n % 2]);
        assert!(PassedOn::of(&passed(|n, _| format!("2026-11-25 10:00:{n:02},123 - pump - INFO - "))).is_some());
        assert!(PassedOn::of(&passed(logged)).is_some());
        let glog = |n: usize, _| format!("E1125 10:00:{n:02}.123456 4242 api.py:869] ");
        let of_rank = |n: usize| format!("{}[rank{}]: step {n}\n", logged(n, 0), n % 4);
        assert_eq!(PassedOn::of((0..20).map(of_rank).collect::<String>().as_bytes()), None);
        assert_eq!(PassedOn::of(&passed(|_, _| "      \"".to_string())), None);
        assert_eq!(PassedOn::of(&passed(glog)), None);
        assert_eq!(PassedOn::of(&passed(|_, _| String::new())), None);
        assert_eq!(PassedOn::of(&passed(|_, rank| format!("[rank{rank}]: "))), None);
        // One line that quotes another's.
        let quoted = [OUTPUT[0], OUTPUT[1], OUTPUT[2], "The worker said Traceback (most recent call last):", OUTPUT[2]];
        assert_eq!(PassedOn::of(quoted.join("\n").as_bytes()), None);
    }

    #[test]
    fn lines_of_nccl_show_it_as_well() {
        for front in
            ["gpu-0 job main ", "    17\t", "17:", "out/train.log:17:", "[stderr]", "Mon Jan  5 10:00:02 2026<stdout>:"]
        {
            let line = |n| format!("{front}node:12:34 [{n}] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n");
            let text: String = (0..8).map(line).collect();
            let form = PassedOn::of(text.as_bytes()).unwrap_or_else(|| panic!("{front}"));
            let rest = form.split(text.as_bytes()).map(|(_, line)| line);
            assert!(rest.is_some_and(|line| line.starts_with(b"node:12:34 [0] NCCL INFO")), "{front}");
        }
        let own: String = (0..8).map(|n| format!("node:12:34 [{n}] NCCL INFO Bootstrap : Using eth0\n")).collect();
        assert_eq!(PassedOn::of(own.as_bytes()), None);
        // What stands before the first line, without an end of its own, is in front of no other.
        let versions: String = (0..8).map(|n| format!("node:12:34 [{n}] NCCL INFO NCCL version 2.30.7\n")).collect();
        assert_eq!(PassedOn::of(format!("$ {own}{versions}").as_bytes()), None);
        assert_eq!(PassedOn::of(&format!("{own}{versions}").as_bytes()[6..]), None);
    }

    /// NCCL's version stands behind its prefix, where other processes write it at the start of a line.
    #[test]
    fn a_damaged_first_line_does_not_decide() {
        let own = [
            "node01:6733:6733 [0] NCCL INFO Bootstrap : Using eth0",
            "node01:6736:6736 [3] NCCL INFO comm 0x7fb6 rank 3 nranks 16 cudaDev 3 busId 800000 - Init START",
            "node02:6764:6764 [4] NCCL INFO NCCL version 2.30.7+cuda12.9",
            "node02:6764:6764 [4] NCCL INFO Using network Socket",
            "node02:6743:6743 [1] NCCL INFO Rank 9: 0 CollNet devices",
        ];
        for junk in ["", "+ ", "100%|", "\u{1b}[?2004l"] {
            assert_eq!(PassedOn::of(format!("{junk}{}", own.join("\n")).as_bytes()), None, "{junk}");
        }
        let passed = own.map(|line| format!("gpu-0 job main {line}\n")).concat().repeat(2);
        let whole = PassedOn::of(passed.as_bytes());
        assert!(whole.is_some());
        for damaged in [format!("+ {passed}"), passed.replacen("gpu-0 job main ", "", 1), passed[20..].to_string()] {
            assert_eq!(PassedOn::of(damaged.as_bytes()), whole, "{damaged}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_taken_without_panic(text in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let text = [b"a b Traceback (most recent call last):\na b   File \"\na b c\na b d\n".as_slice(), &text].concat();
            if let Some(form) = PassedOn::of(&text) {
                let _ = form.split(&text);
            }
        }
    }
}
