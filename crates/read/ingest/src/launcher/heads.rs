//! Heads that daemons and loggers put in front of a line, which say whose it is: syslog's tag, a rank in brackets, a logger's level.

use crate::ends::{beginning, exception};
use crate::evidence::KNOWN;
use crate::logger;
use crate::speaker;
use crate::text::is_number;
use busbw_model::{LogLevel, Speaker};

/// A head that the text behind it shows to be one.
pub(super) fn of(text: &str) -> Option<(&str, &str)> {
    match text.bytes().next()? {
        b'[' => in_brackets(text),
        first if first.is_ascii_alphanumeric() => of_syslog(text),
        _ => None,
    }
}

/// `[rank: 3] ` of Lightning (`rank_prefixed_message`), and what programs write for themselves: `[Rank 3] `, `[rank3] `, `[rank=3] `.
pub(super) fn of_rank(text: &str) -> Option<(&str, &str)> {
    const WORDS: [&str; 3] = ["rank", "Rank", "RANK"];
    let text = text.strip_prefix('[')?;
    let text = WORDS.iter().find_map(|word| text.strip_prefix(word))?;
    let (number, rest) = behind_bracket(text)?;
    let number = number.trim_start_matches([':', '=', ' ']);
    (is_number(number) && number.len() <= 6).then_some((number, rest))
}

/// What stands before the first bracket, and what behind it and a blank.
fn behind_bracket(text: &str) -> Option<(&str, &str)> {
    let (label, rest) = text.split_once(']')?;
    Some((label, rest.strip_prefix(' ')?))
}

/// `[worker-0] `, `[3] `: where another program's line follows.
fn in_brackets(text: &str) -> Option<(&str, &str)> {
    let (label, rest) = behind_bracket(text.strip_prefix('[')?)?;
    let is_name = label.len() <= 64 && label.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    let numbered = label.ends_with(|c: char| c.is_ascii_digit());
    (is_name && numbered && is_told(rest)).then_some((label, rest))
}

/// `Nov 30 10:00:00 host python3[4242]: ` of journald and syslog, or what a time of theirs leaves of it. A journal holds the lines of all
/// programs of a machine: only those of programs that run ranks, and of containers, are taken as the job's output.
fn of_syslog(text: &str) -> Option<(&str, &str)> {
    memchr::memchr(b'[', text.as_bytes())?;
    let text = behind_date(text).unwrap_or(text);
    let (host, behind) = text.split_once(' ').filter(|(host, _)| is_host(host))?;
    let end = behind.bytes().take(64).position(|b| !(b.is_ascii_alphanumeric() || b"-_./@".contains(&b)))?;
    let (tag, rest) = behind.split_at(end);
    let (process, rest) = rest.strip_prefix('[')?.split_once(']')?;
    let rest = rest.strip_prefix(": ").or_else(|| rest.strip_prefix(':').filter(|rest| rest.is_empty()))?;
    if tag.is_empty() || !is_number(process) {
        return None;
    }
    let said = speaker::of(rest);
    let is_others = [Speaker::Program, Speaker::Python, Speaker::Ssh].contains(&said);
    let label = &text[..host.len() + 1 + tag.len() + process.len() + 2];
    (runs_ranks(tag) || !is_others && !KNOWN.is_beside(tag)).then_some((label, rest))
}

/// Whether a tag is of a program that runs ranks, or the id of a container.
fn runs_ranks(tag: &str) -> bool {
    const ID: usize = 12;
    /// Services whose names begin so.
    const SERVICES: [&str; 3] = ["docker", "slurm", "sh"];
    let name = tag.rsplit('/').next().unwrap_or(tag);
    let is_service = SERVICES.iter().any(|service| name.starts_with(service)) && name != "sh";
    tag.len() == ID && tag.bytes().all(|b| b.is_ascii_hexdigit())
        || !is_service && KNOWN.starters.iter().any(|start| name.starts_with(start.as_str()))
}

/// `Nov 30 10:00:00 `, and what stands behind it.
fn behind_date(text: &str) -> Option<&str> {
    const DATE: &[u8] = b"aaa dd dd:dd:dd ";
    let (date, rest) = text.split_at_checked(DATE.len())?;
    super::has_shape(date, DATE).then_some(rest)
}

fn is_host(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphanumeric())
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// `01O ` of GitLab's runner (the number of the stream, `O` or `E`, `+` where a line goes on), `1a2b3c4d || ` and `1a2b3c4d [rank=3] || ` of
/// Determined, which stand behind the time.
pub(super) fn behind_stream(rest: &str) -> Option<&str> {
    let of_gitlab = || {
        let (mark, behind) = rest.split_at_checked(4)?;
        let fits = matches!(*mark.as_bytes(), [a, b, b'O' | b'E', b' ' | b'+']
            if a.is_ascii_hexdigit() && b.is_ascii_hexdigit());
        fits.then_some(behind)
    };
    let of_determined = || {
        let (head, behind) = rest.split_once("|| ")?;
        let (container, rank) = head.trim_end().split_once(' ').unwrap_or((head.trim_end(), ""));
        let is_container = container.len() == 8 && container.bytes().all(|b| b.is_ascii_hexdigit());
        (is_container && (rank.is_empty() || rank.starts_with("[rank="))).then_some(behind)
    };
    of_gitlab().or_else(of_determined)
}

/// Who speaks, and what: it stands behind the head of a logger that passes on what a launcher, a library or the kernel printed, at whatever level,
/// `2026-11-26 10:00:00.123 | INFO | app:run:12 - srun: error: n1: task 3: Killed`. What a program logs of its own is its own.
pub(crate) fn spoken(text: &str) -> (Speaker, &str) {
    let by = speaker::of(text);
    let logged = if by == Speaker::Program { logger::read(text) } else { None };
    let Some((level, said)) = logged else { return (by, text) };
    let said = said.trim_start();
    match speaker::of(said) {
        Speaker::Program | Speaker::Python | Speaker::Ssh => (by, text),
        Speaker::Crash if level != LogLevel::Error => (by, text),
        passed_on => (passed_on, said),
    }
}

/// Whether a text is a line by which a program is known, or one of a traceback.
pub(super) fn is_told(text: &str) -> bool {
    beginning(text).is_some()
        || text.starts_with("  File \"")
        || exception(text).is_some()
        || speaker::of(text) != Speaker::Program
}
