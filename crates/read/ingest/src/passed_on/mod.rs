//! What a program that passes a log on puts in front of its lines: journald, stern, `aws logs tail`, `cat -n`, `grep -n` and others.
//!
//! None of them is known here. Where the first words of nearly all lines have one form, they are taken off if more lines are known without them.

mod word;

use crate::clean::without_escapes;
use crate::cursor::{lossy, offset};
use crate::known::Known;
use crate::launcher::peel_labels;
use crate::prefix;
use crate::wording::wording;
use memchr::memchr;
use rustc_hash::{FxHashMap, FxHashSet};
use word::{
    DIGITS, NAME, Tells, Word, form_of, is_blank, is_level, is_of_glog, names_in, part_word, pieces, up_to_mark,
};

/// Lines of a block that show whether its lines have a prefix.
const SAMPLE: usize = 64;
/// Lines of a block that are tried with and without it, each of another wording; and wordings of an input.
const MOST_TRIED: usize = 2048;
const MOST_WORDINGS: usize = 1 << 16;
/// What of a line is tried.
const LONGEST: usize = 1024;
/// What has more words is no prefix.
const MOST_WORDS: usize = 8;
const MOST_MARKS: usize = 3;
/// Of the lines, how many per cent have it. Those that a terminal wrapped, or a program wrote without a line end, do not.
const NEARLY_ALL: usize = 80;
/// Lines that have the very same names in it: what one line says in its first words does not recur.
const RECURS: usize = 3;

/// The wordings of an input's lines that were tried.
pub(crate) type Tried = FxHashSet<u64>;

/// The form of a prefix that the lines of an input share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PassedOn {
    words: Vec<Word>,
    /// What stands between the last word and the line itself, whose own indent follows.
    behind: Box<[u8]>,
}

/// How many lines have each name.
type Names = FxHashMap<Vec<u8>, usize>;

impl PassedOn {
    /// That of a block's lines, if they have one.
    pub fn of(block: &[u8], tried: &mut Tried) -> Option<Self> {
        let printed = sample(block);
        // What NCCL's lines begin with needs no trial.
        let is_own = |line: &&&[u8]| prefix::whole(without_escapes(line).trim_ascii_start()).is_some();
        let own = printed.iter().filter(is_own).count();
        if !is_nearly_all(printed.len() - own, printed.len()) {
            return None;
        }
        let clean = without_escapes(block);
        let block = &*clean;
        // Lines of a loop have shown already what they are. All lines count: the one that shows what the front is may be the only one of its kind.
        if lines(block).all(|line| tried.contains(&wording(line))) {
            return None;
        }
        let forms = Self::candidates(&sample(block));
        if forms.is_empty() {
            return None;
        }
        let is_new = |line: &&[u8]| tried.len() < MOST_WORDINGS && tried.insert(wording(line));
        let lines: Vec<&[u8]> = lines(block).filter(is_new).take(MOST_TRIED).collect();
        let known = Known::of(lines.iter().map(|line| (false, *line)));
        let gains = forms.into_iter().filter_map(|form| {
            let behind =
                Known::of(lines.iter().map(|line| form.split(line).map_or((false, *line), |(_, rest)| (true, rest))));
            let is_tag = behind.all() == known.all() && form.is_dated() && form.behind_process();
            (behind.all() > known.all() || is_tag).then_some((behind, form))
        });
        let mut gains: Vec<(Known, Self)> = gains.collect();
        // The first of the best: what stands behind it belongs to the line.
        gains.sort_by_key(|(behind, _)| std::cmp::Reverse(behind.all()));
        gains.into_iter().find_map(|(behind, form)| {
            let learnt = form.learn(block, behind.printed > known.printed)?;
            (behind.all() > known.all() || learnt.words.last()?.always.is_some()).then_some(learnt)
        })
    }

    /// The forms that the first words of nearly all lines have, the shortest first.
    fn candidates(sample: &[&[u8]]) -> Vec<Self> {
        let mut found = Vec::new();
        let mut words: Vec<Word> = Vec::new();
        let mut rests = sample.to_vec();
        while words.len() < MOST_WORDS {
            let next: Vec<(&[u8], &[u8])> = rests.iter().map(|rest| part_word(rest)).collect();
            let mut add = |form: Box<[u8]>, behind: &[u8]| {
                let words = words.iter().cloned().chain([Word::of(form)]).collect();
                found.push(PassedOn { words, behind: behind.into() });
            };
            for mark in 0..MOST_MARKS {
                let parts = || next.iter().filter_map(|(word, _)| Some((*word, up_to_mark(word, mark)?)));
                let form = of_nearly_all(parts().map(|(_, part)| form_of(part)), sample.len());
                if let Some(form) = form.filter(|_| parts().any(|(word, part)| part.len() < word.len())) {
                    add(form, b"");
                }
            }
            let Some(form) = of_nearly_all(next.iter().map(|(word, _)| form_of(word)), sample.len()) else { break };
            let with: Vec<&[u8]> =
                next.iter().filter(|(word, _)| pieces(word).eq(form.iter().copied())).map(|(_, rest)| *rest).collect();
            let blanks = with.iter().filter(|rest| !rest.trim_ascii().is_empty()).map(|rest| {
                let behind = rest.trim_ascii_start();
                &rest[..rest.len() - behind.len()]
            });
            if let Some(behind) = blanks.min_by_key(|blanks| blanks.len()) {
                add(form.clone(), behind);
            }
            words.push(Word::of(form));
            rests = with;
        }
        let behind_labels: Vec<usize> = sample.iter().map(|line| peel_labels(&lossy(line)).text.len()).collect();
        found.retain(|form| form.is_no_label(sample, &behind_labels) && form.recurs(sample));
        found
    }

    /// Whether its names come again in other lines of a sample.
    fn recurs(&self, sample: &[&[u8]]) -> bool {
        let mut met = FxHashMap::<Vec<Vec<u8>>, usize>::default();
        let found = sample.iter().filter_map(|line| self.found(line));
        found.for_each(|found| *met.entry(found.into_iter().map(names_in).collect()).or_default() += 1);
        let again: usize = met.values().filter(|lines| **lines > 1).sum();
        again * 4 >= sample.len() && met.values().any(|lines| *lines >= RECURS)
    }

    /// Whether it takes off more than launchers' labels and times, which have forms of their own; `behind`: what these leave of each line.
    fn is_no_label(&self, sample: &[&[u8]], behind: &[usize]) -> bool {
        let rest = |line: &[u8]| self.words_of(line, |_, _| {}).map(<[u8]>::len);
        let takes_more = |(line, behind): &(&&[u8], &usize)| rest(line).is_some_and(|rest| rest < **behind);
        sample.iter().zip(behind).filter(takes_more).count() * 2 > sample.len()
    }

    /// Whether the time of day stands in it.
    fn is_dated(&self) -> bool {
        const CLOCK: &[u8] = &[DIGITS, b':', DIGITS, b':', DIGITS];
        self.words.iter().any(|word| word.form.windows(CLOCK.len()).any(|part| part == CLOCK))
    }

    /// Whether it ends as syslog's tag does: `train[4242]: `.
    fn behind_process(&self) -> bool {
        self.words.last().is_some_and(|word| *word.form == [NAME, b'[', DIGITS, b']', b':']) && !self.behind.is_empty()
    }

    /// The form with what its words tell, where nearly all lines have it. `of_others`: a logger passes on in it what other programs print.
    fn learn(mut self, block: &[u8], of_others: bool) -> Option<Self> {
        let (mut all, mut with) = (0, 0);
        let mut met = vec![Names::default(); self.words.len()];
        let mut words: Vec<FxHashSet<&[u8]>> = vec![FxHashSet::default(); self.words.len()];
        for line in lines(block) {
            all += 1;
            let Some(found) = self.found(line) else { continue };
            with += 1;
            words.iter_mut().zip(&found).for_each(|(words, word)| _ = words.insert(word));
            met.iter_mut().zip(found).for_each(|(met, word)| *met.entry(names_in(word)).or_default() += 1);
        }
        // At one level, a program passes on what another prints; at several, it may log messages of its own.
        let at_levels = |names: &Names| names.len() > 1 && names.keys().any(|name| is_level(name));
        let is_own = |names: &Names| !of_others && at_levels(names) || names.keys().any(|name| is_of_glog(name));
        if !is_nearly_all(with, all) || met.iter().any(is_own) {
            return None;
        }
        for (word, (met, words)) in self.words.iter_mut().zip(met.iter().zip(words)) {
            // A number that hardly recurs counts the lines.
            let counts = words.len() * 2 > with;
            // What lacks a name that nearly all have has no prefix, such as a table of pods among their output. Numbers tell pods and hosts apart.
            let is_common = |(name, lines): &(&Vec<u8>, &usize)| {
                is_nearly_all(**lines, with) && !name.iter().any(u8::is_ascii_digit) && !is_level(name)
            };
            word.always = met.iter().find(is_common).map(|(name, _)| name.clone()).filter(|_| word.is_name());
            word.tells = match if counts { met.len() } else { words.len() } {
                0 | 1 => Tells::Nothing,
                _ if word.always.is_some() || at_levels(met) || !word.is_name() && !word.is_rank() => Tells::Nothing,
                _ if counts => Tells::ByNames,
                _ => Tells::Whole,
            };
        }
        Some(self)
    }

    /// What tells the stream of a line, and the line behind the prefix; `None` where a line does not have it.
    pub fn split<'l>(&self, line: &'l [u8]) -> Option<(String, &'l [u8])> {
        let mut told = String::new();
        let rest = self.words_of(line, |word, found| {
            let name = match word.tells {
                Tells::Nothing => return,
                Tells::ByNames => names_in(found).into(),
                Tells::Whole => without_escapes(found.strip_suffix(b":").unwrap_or(found)),
            };
            if !told.is_empty() {
                told.push(' ');
            }
            told.push_str(&lossy(&name));
        })?;
        Some((told, rest))
    }

    /// The words of a line's prefix.
    fn found<'l>(&self, line: &'l [u8]) -> Option<Vec<&'l [u8]>> {
        let mut found = Vec::with_capacity(self.words.len());
        self.words_of(line, |_, word| found.push(word))?;
        Some(found)
    }

    /// Takes each word of a line's prefix; what stands behind it.
    fn words_of<'l>(&self, line: &'l [u8], mut take: impl FnMut(&Word, &'l [u8])) -> Option<&'l [u8]> {
        let mut rest = line;
        for (number, word) in self.words.iter().enumerate() {
            rest = rest.trim_ascii_start();
            let is_last = number + 1 == self.words.len();
            let end = match is_last && self.behind.is_empty() {
                true => word.length_in(rest)?,
                false => rest.iter().position(|b| is_blank(*b)).unwrap_or(rest.len()),
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

/// The lines of a block that hold something, as far as they show what they are.
fn lines(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    let lines = block.split(|b| *b == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let lines = lines.map(|line| &line[..line.len().min(LONGEST)]);
    lines.filter(|line| !line.trim_ascii().is_empty())
}

/// Lines from all over a block.
fn sample(block: &[u8]) -> Vec<&[u8]> {
    let mut sample = Vec::with_capacity(SAMPLE);
    let mut end = 0;
    for part in 0..SAMPLE {
        // Behind the line in which the part begins.
        let from = end.max(block.len() / SAMPLE * part);
        let skipped = if from == 0 { 0 } else { memchr(b'\n', &block[from..]).map_or(block.len(), |at| from + at) };
        let Some(line) = lines(&block[skipped..]).next() else { break };
        end = offset(line, block) + line.len();
        sample.push(line);
    }
    sample
}

fn is_nearly_all(some: usize, all: usize) -> bool {
    some * 100 >= all * NEARLY_ALL
}

/// The form that nearly all lines have.
fn of_nearly_all(forms: impl Iterator<Item = Box<[u8]>>, lines: usize) -> Option<Box<[u8]>> {
    let mut met = FxHashMap::<Box<[u8]>, usize>::default();
    forms.for_each(|form| *met.entry(form).or_default() += 1);
    met.into_iter().find(|(form, met)| is_nearly_all(*met, lines) && !form.is_empty()).map(|(form, _)| form)
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

    fn of(block: &[u8]) -> Option<PassedOn> {
        PassedOn::of(block, &mut Tried::default())
    }

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
        let form = of(lines(["train", "train"]).as_bytes()).expect("a prefix");
        let line = form.split(b"Nov 25 10:00:40 gpu-7 train[42]: Signal: Bus error (7)");
        assert_eq!(line.map(|(_, rest)| text_of(rest)).as_deref(), Some("Signal: Bus error (7)"));
        assert_eq!(of(lines(["train", "sshd"]).as_bytes()), None);
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
            let printed = passed(front);
            let (text, form) = (without_escapes(&printed), of(&printed));
            let form = form.unwrap_or_else(|| panic!("{}", front(1, 1)));
            let last = text.split(|b| *b == b'\n').rev().nth(1).unwrap();
            assert_eq!(form.split(last).unwrap().0, stream, "{}", front(1, 1));
            let lines = text.split(|b| *b == b'\n').filter_map(|line| form.split(line)).map(|(_, line)| line);
            let found: Vec<String> =
                lines.step_by(2).map(|line| peel_labels(&text_of(line)).text.to_string()).collect();
            assert_eq!(found, OUTPUT, "{}", front(1, 1));
        }
    }

    #[test]
    fn one_known_line_among_those_of_a_loop_shows_what_stands_in_front() {
        let front = |line: &str| format!("train-0-x7k2p pytorch {line}\n");
        let of_loop = front("looking for more work").repeat(2000);
        let mut tried = Tried::default();
        assert_eq!(PassedOn::of(of_loop.as_bytes(), &mut tried), None);
        let (before, behind) = of_loop.split_at(of_loop.len() / 2000 * 1005);
        let known: String = OUTPUT.iter().map(|line| front(line)).collect();
        let text = [before, &known, behind].concat();
        let form = PassedOn::of(text.as_bytes(), &mut tried).expect("a prefix");
        assert_eq!(form.split(front("a line").trim_end().as_bytes()).unwrap().1, b"a line");
    }

    #[test]
    fn what_a_program_says_itself_stays() {
        let logged = |n: usize, _| format!("2026-11-25 10:00:{n:02},123 - root - {} - ", ["INFO", "ERROR"][n % 2]);
        assert!(of(&passed(|n, _| format!("2026-11-25 10:00:{n:02},123 - pump - INFO - "))).is_some());
        assert!(of(&passed(logged)).is_some());
        let glog = |n: usize, _| format!("E1125 10:00:{n:02}.123456 4242 api.py:869] ");
        let of_rank = |n: usize| format!("{}[rank{}]: step {n}\n", logged(n, 0), n % 4);
        assert_eq!(of((0..20).map(of_rank).collect::<String>().as_bytes()), None);
        assert_eq!(of(&passed(|_, _| "      \"".to_string())), None);
        assert_eq!(of(&passed(glog)), None);
        assert_eq!(of(&passed(|_, _| String::new())), None);
        assert_eq!(of(&passed(|_, rank| format!("[rank{rank}]: "))), None);
        // One line that quotes another's.
        let quoted = [OUTPUT[0], OUTPUT[1], OUTPUT[2], "The worker said Traceback (most recent call last):", OUTPUT[2]];
        assert_eq!(of(quoted.join("\n").as_bytes()), None);
    }

    #[test]
    fn lines_of_nccl_show_it_as_well() {
        for front in
            ["gpu-0 job main ", "    17\t", "17:", "out/train.log:17:", "[stderr]", "Mon Jan  5 10:00:02 2026<stdout>:"]
        {
            let line = |n| format!("{front}node:12:34 [{n}] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n");
            let text: String = (0..8).map(line).collect();
            let form = of(text.as_bytes()).unwrap_or_else(|| panic!("{front}"));
            let rest = form.split(text.as_bytes()).map(|(_, line)| line);
            assert!(rest.is_some_and(|line| line.starts_with(b"node:12:34 [0] NCCL INFO")), "{front}");
        }
        let own: String = (0..8).map(|n| format!("node:12:34 [{n}] NCCL INFO Bootstrap : Using eth0\n")).collect();
        assert_eq!(of(own.as_bytes()), None);
        // What stands before the first line, without an end of its own, is in front of no other.
        let versions: String = (0..8).map(|n| format!("node:12:34 [{n}] NCCL INFO NCCL version 2.30.7\n")).collect();
        assert_eq!(of(format!("$ {own}{versions}").as_bytes()), None);
        assert_eq!(of(&format!("{own}{versions}").as_bytes()[6..]), None);
    }

    /// No line of NCCL's, of a table or a traceback stands in these.
    #[test]
    fn what_any_reader_knows_shows_it() {
        let pod = "State:          Terminated\n  Reason:       OOMKilled\n  Exit Code:    137\nReady:          False";
        let torch =
            "[W socket.cpp:601] [c10d] The client socket has failed\nTrain Epoch: 1\nTrain Epoch: 2\nTrain Epoch: 3";
        let launched = "[2026-11-25 10:00:00,1] [INFO] [launch.py:145:main] nnodes=1\nstep 1\nstep 2\nstep 3\nstep 4";
        for output in [pod, torch, launched] {
            for front in ["train-0 main ", "2026-11-25T10:00:00Z [node-0] ", "[0] ", "> "] {
                let lines: String = output.lines().map(|line| format!("{front}{line}\n")).collect();
                let form = of(lines.as_bytes()).unwrap_or_else(|| panic!("{lines}"));
                let bare: Vec<String> =
                    lines.lines().map(|line| text_of(form.split(line.as_bytes()).unwrap().1)).collect();
                assert!(bare.iter().zip(output.lines()).all(|(bare, line)| bare.ends_with(line)), "{lines}");
                assert!(bare.iter().all(|bare| !bare.contains(front)), "{lines}");
            }
            assert_eq!(of(output.as_bytes()), None, "{output}");
        }
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
            assert_eq!(of(format!("{junk}{}", own.join("\n")).as_bytes()), None, "{junk}");
        }
        let passed = own.map(|line| format!("gpu-0 job main {line}\n")).concat().repeat(2);
        let whole = of(passed.as_bytes());
        assert!(whole.is_some());
        for damaged in [format!("+ {passed}"), passed.replacen("gpu-0 job main ", "", 1), passed[20..].to_string()] {
            assert_eq!(of(damaged.as_bytes()), whole, "{damaged}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_taken_without_panic(text in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let text = [b"a b Traceback (most recent call last):\na b   File \"\na b c\na b d\n".as_slice(), &text].concat();
            if let Some(form) = of(&text) {
                let _ = form.split(&text);
            }
        }
    }
}
