//! What a page promises that a command prints, and whether it did.

use regex::Regex;
use std::fmt::Write as _;
use std::sync::LazyLock;

/// Any number of lines; within a line, any text.
const ANYTHING: &str = "…";
/// A number as people and tables write it.
const NUMBER: &str = r"[-+−]?\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?";
/// The units that change with the size of a number.
const UNIT: &str = r" ?(?:[kKMGT]i?B|[kKMGT]?bit|[KMGT]|B|ns|us|µs|ms|s|min)\b";

/// A part of a line. Names are taken whole, so that the digits of rxe0, h1 and mlx5_0 are no numbers.
static PART: LazyLock<Regex> = LazyLock::new(|| {
    let part = format!(r"(?<name>[\p{{L}}_]\w*)|(?<space>\s+)|{NUMBER}(?<unit>{UNIT})?|(?<other>.)");
    Regex::new(&part).expect("the patterns above are sound")
});

/// Whether a page's output is that of every run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wording {
    /// Every letter.
    Exact,
    /// But for what was measured: numbers, prefixes of their units, and how wide the space between words is.
    Measured,
}

/// What a command is to print, and its exit status.
#[derive(Debug)]
pub struct Promise {
    lines: Vec<Line>,
    status: i32,
}

#[derive(Debug)]
struct Line {
    shown: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    AnyLines,
    Like(Regex),
}

impl Promise {
    /// Reads what stands behind a command on a page.
    pub fn read(output: &[&str], wording: Wording) -> Result<Self, String> {
        let output = without_empty_end(output);
        let (output, status) = match output.split_last() {
            Some((last, rest)) if last.starts_with("? ") => {
                (rest, last[2..].trim().parse().map_err(|_| format!("`{last}` is no exit status"))?)
            }
            _ => (output, 0),
        };
        let lines = output.iter().map(|line| Line::read(line.trim_end(), wording)).collect();
        Ok(Promise { lines, status })
    }

    /// How a command that printed this, and ended with `status` (none: by a signal), breaks the promise. `None`: it does not.
    pub fn broken_by(&self, printed: &str, status: Option<i32>) -> Option<String> {
        let printed: Vec<&str> = printed.lines().map(str::trim_end).collect();
        let printed = without_empty_end(&printed);
        let mut broken = String::new();
        if status != Some(self.status) {
            let ended = status.map_or("by a signal".into(), |status| format!("with exit status {status}"));
            let _ = writeln!(broken, "it ended {ended}, not {}", self.status);
        }
        if let Err(reached) = self.follow(printed) {
            broken.push_str(&self.difference(reached, printed));
        }
        (!broken.is_empty()).then_some(broken)
    }

    /// Goes along both, as far as they are alike: `Err` has the promised and the printed line that are not. Lines that
    /// stand for any number take as few as they can, and more when what follows does not fit.
    fn follow(&self, printed: &[&str]) -> Result<(), (usize, usize)> {
        let (mut promised, mut at) = (0, 0);
        let mut retry: Option<(usize, usize)> = None;
        let mut furthest = (0, 0);
        loop {
            furthest = furthest.max((promised, at));
            match (self.lines.get(promised).map(|line| &line.kind), printed.get(at)) {
                (None, None) => return Ok(()),
                (Some(Kind::AnyLines), _) => {
                    retry = Some((promised + 1, at));
                    promised += 1;
                }
                (Some(Kind::Like(pattern)), Some(line)) if pattern.is_match(line) => {
                    promised += 1;
                    at += 1;
                }
                _ => match retry {
                    Some((behind, from)) if from < printed.len() => {
                        retry = Some((behind, from + 1));
                        (promised, at) = (behind, from + 1);
                    }
                    _ => return Err(furthest),
                },
            }
        }
    }

    /// Both around the first line that differs, as `diff` shows it.
    fn difference(&self, (promised, at): (usize, usize), printed: &[&str]) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "the page promises (-), and it printed (+):");
        for line in &printed[at.saturating_sub(3)..at] {
            let _ = writeln!(text, "  {line}");
        }
        for line in &self.lines[promised..] {
            let _ = writeln!(text, "- {}", line.shown);
        }
        for line in &printed[at..] {
            let _ = writeln!(text, "+ {line}");
        }
        text
    }
}

impl Line {
    fn read(shown: &str, wording: Wording) -> Self {
        let kind = if shown.trim() == ANYTHING {
            Kind::AnyLines
        } else {
            // Where numbers are aligned to the right, they decide over the indent.
            let (indent, text) = if wording == Wording::Measured { (r"\s*", shown.trim_start()) } else { ("", shown) };
            let parts: Vec<String> = text.split(ANYTHING).map(|part| pattern(part, wording)).collect();
            let pattern = format!("^{indent}{}$", parts.join(".*"));
            // Every part is escaped text or a pattern of this file.
            Kind::Like(Regex::new(&pattern).expect("a pattern made here is sound"))
        };
        Line { shown: shown.to_owned(), kind }
    }
}

/// The pattern of a line's text in which nothing is left out.
fn pattern(text: &str, wording: Wording) -> String {
    if wording == Wording::Exact {
        return regex::escape(text);
    }
    let of = |found: regex::Captures<'_>| match (found.name("name").or(found.name("other")), found.name("space")) {
        (Some(text), _) => regex::escape(text.as_str()),
        (_, Some(_)) => r"\s+".into(),
        _ => format!("{NUMBER}{}", found.name("unit").map_or("", |_| UNIT)),
    };
    PART.captures_iter(text).map(of).collect()
}

fn without_empty_end<'a, 'b>(lines: &'a [&'b str]) -> &'a [&'b str] {
    let end = lines.iter().rposition(|line| !line.trim().is_empty()).map_or(0, |last| last + 1);
    &lines[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeps(wording: Wording, promised: &str, printed: &str) -> bool {
        let lines: Vec<&str> = promised.lines().collect();
        Promise::read(&lines, wording).unwrap().broken_by(printed, Some(0)).is_none()
    }

    #[test]
    fn exact_output_is_that_of_every_letter() {
        for (promised, printed, kept) in [
            ("", "", true),
            ("", "\n\n", true),
            ("a (b) [c]", "a (b) [c]  \n", true),
            ("a", "b", false),
            ("a", "a\nb", false),
            ("a\nb", "a", false),
            ("48.2 GB/s", "48.3 GB/s", false),
            ("a b", "a  b", false),
            ("…", "", true),
            ("…", "a\nb", true),
            ("a\n…", "a", true),
            ("…\nb\n…", "a\nb\nc", true),
            ("…\nb\n…", "a\nc", false),
            ("  …\nb", "a\nb", true),
            ("…\nb\nc", "b\na\nb\nc", true),
            ("…\na\n…\nb", "a\nb\na\nc", false),
            ("from … to …", "from a to b", true),
            ("from … to", "from a to b", false),
            ("… falls", "busbw falls", true),
        ] {
            assert_eq!(keeps(Wording::Exact, promised, printed), kept, "{promised:?} {printed:?}");
        }
    }

    #[test]
    fn measured_output_may_have_other_numbers() {
        for (promised, printed, kept) in [
            ("busbw 48.23 GB/s", "busbw 7.1 GB/s", true),
            ("busbw 48.23 GB/s", "busbw 7.1 MB/s", true),
            ("busbw 48.23 GB/s", "busbw GB/s", false),
            ("busbw 48.23 GB/s", "algbw 48.23 GB/s", false),
            ("   65536   6.52 float", "1048576 217.38   float", true),
            ("65536 6.52 float", "65536 float", false),
            ("took 13 µs", "took 1.3 ms", true),
            ("took 13 µs", "took 1.3 GB", true),
            ("took 13 µs", "took 1.3 hops", false),
            ("10 ± 0.3 s", "9.25 ± 1 s", true),
            ("64KiB", "4MiB", true),
            ("16K  a", "2M a", true),
            ("h1     0.97", "h1 13.25", true),
            ("  0.97", "13.25", true),
            ("13.25", "  0.97", true),
            ("sent 2.5 Gbit/s, 1%", "sent 180 Mbit/s, 12%", true),
            ("from h1 to h2: 3", "from h1 to h2: 4", true),
            ("from h1 to h2: 3", "from h1 to h3: 3", false),
            ("mlx5_0/1 25", "mlx5_0/1 26", true),
            ("mlx5_0/1 25", "mlx5_2/1 25", false),
            ("1.4e-05 ok", "0 ok", true),
            ("-3%", "+12%", true),
            ("5.5× to 7×", "1× to 2×", true),
            ("12 links, …", "13 links, and more", true),
        ] {
            assert_eq!(keeps(Wording::Measured, promised, printed), kept, "{promised:?} {printed:?}");
        }
    }

    #[test]
    fn the_exit_status_is_promised_too() {
        let promise = Promise::read(&["a", "? 1", ""], Wording::Exact).unwrap();
        assert_eq!(promise.broken_by("a\n", Some(1)), None);
        assert_eq!(promise.broken_by("a\n", Some(0)).as_deref(), Some("it ended with exit status 0, not 1\n"));
        assert_eq!(promise.broken_by("a\n", None).as_deref(), Some("it ended by a signal, not 1\n"));
    }

    #[test]
    fn what_differs_is_shown_with_what_stands_before() {
        let promise = Promise::read(&["one", "…", "three", "four"], Wording::Exact).unwrap();
        let difference = promise.broken_by("one\ntwo\nthree\n4\n", Some(0)).unwrap();
        let expected = "the page promises (-), and it printed (+):\n  one\n  two\n  three\n- four\n+ 4\n";
        assert_eq!(difference, expected);
    }
}
