//! What a program's logger puts in front of a message: its level, the logger's name, the place in the program.

use crate::evidence::KNOWN;
use busbw_model::LogLevel;

/// Words in which a level stands, counted from the beginning of a line without labels and time stamps.
const MOST_BEFORE: usize = 6;

/// The level that a word names, with whatever marks around it: `[ERROR]`, `WARN`, `error:`.
pub(crate) fn level_of(word: &str) -> Option<LogLevel> {
    let name = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    KNOWN.levels.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, level)| *level)
}

/// Whether a word is a level at which programs report failures.
pub(crate) fn is_failure(word: &str) -> bool {
    level_of(word) == Some(LogLevel::Error)
}

/// The level in front of a message, and the message: `ERROR - data - text`, `trainer - ERROR - text`, `ERROR:root:text`, `[ERROR] text`, `| ERROR    |
/// __main__:main:12 - text`, `E1126 10:00:00.123456 42 data.py:7] text`, `level=error msg="text"`. The text stands without labels and time stamps.
pub(crate) fn read(text: &str) -> Option<(LogLevel, &str)> {
    of_glog(text).or_else(|| of_key(text)).or_else(|| of_word(text))
}

/// glog's, klog's, absl's and PyTorch's: a letter, the date, the time, the thread, `file:line]`.
fn of_glog(text: &str) -> Option<(LogLevel, &str)> {
    let (head, message) = text.trim_start_matches('[').split_once("] ")?;
    let level = match head.as_bytes().first()? {
        b'E' | b'F' | b'C' => LogLevel::Error,
        b'W' => LogLevel::Warning,
        b'I' | b'D' | b'V' => LogLevel::Note,
        _ => return None,
    };
    let date = head[1..].bytes().take_while(u8::is_ascii_digit).count();
    let has_place = head.rsplit_once(' ')?.1.rsplit_once(':').is_some_and(|(file, _)| file.contains('.'));
    (matches!(date, 3..=8) && has_place).then_some((level, message))
}

/// logfmt's `level=error msg="text"`.
fn of_key(text: &str) -> Option<(LogLevel, &str)> {
    let (_, rest) = text.split_once("level=")?;
    let level = level_of(rest.split(' ').next()?)?;
    let message = text.split_once("msg=").map_or(rest, |(_, message)| message.trim_start_matches('"'));
    Some((level, message))
}

fn of_word(text: &str) -> Option<(LogLevel, &str)> {
    let mut rest = text;
    let mut in_brackets = true;
    for _ in 0..MOST_BEFORE {
        rest = rest.trim_start_matches(is_blank);
        let (word, behind) = rest.split_at(rest.find(is_blank).unwrap_or(rest.len()));
        // `[TensorRT-LLM][ERROR] text`; and a letter, behind nothing but brackets: `[11/26/2026-10:00:00] [TRT-LLM] [RANK 3] [E] text`.
        let word = word.rsplit_once("][").map_or(word, |(_, last)| last);
        if in_brackets && let Some(level) = letter(word) {
            return Some((level, behind_place(behind)));
        }
        in_brackets &= word.starts_with('[') || word.ends_with(']');
        // Loggers write it large, or as structlog in brackets.
        let is_level = |word: &str| !word.contains(|c: char| c.is_ascii_lowercase()) || word.starts_with('[');
        if let Some(level) = level_of(word).filter(|_| is_level(word)) {
            return Some((level, behind_place(behind)));
        }
        // `ERROR:root:text`
        if let Some((level, rest)) = rest.split_once(':')
            && let Some(level) = level_of(level).filter(|_| is_level(level) && !level.contains(' '))
        {
            return Some((
                level,
                rest.split_once(':').filter(|(name, _)| is_name(name)).map_or(rest, |(_, text)| text),
            ));
        }
        // A message has begun: words of a prefix are names, numbers and marks.
        rest = behind;
    }
    None
}

/// The level of which a letter stands in brackets.
fn letter(word: &str) -> Option<LogLevel> {
    match word.strip_suffix(']')?.trim_start_matches('[') {
        "E" | "F" => Some(LogLevel::Error),
        "W" => Some(LogLevel::Warning),
        "I" | "D" | "V" => Some(LogLevel::Note),
        _ => None,
    }
}

/// A message behind the marks, names and places that follow a level: `- data - text`, `[core.py:7] text`, `__main__:main:12 - text`, `data.py:7 -- text`.
fn behind_place(text: &str) -> &str {
    let mut message = text.trim_start_matches(is_mark);
    while let Some((word, rest)) = message.split_once(is_blank) {
        let is_place = word.ends_with(']')
            || word.contains(".py:")
            || is_file(word)
            || is_target(word)
            || word.matches(':').count() == 2
            || is_name(word) && begins_with_mark(rest);
        if !is_place {
            break;
        }
        message = rest.trim_start_matches(is_mark);
    }
    message
}

/// `runner/main.go:77`, as zap writes it.
fn is_file(word: &str) -> bool {
    let ends_in_digit = word.ends_with(|c: char| c.is_ascii_digit());
    ends_in_digit && word.rsplit_once(".go:").is_some_and(|(_, line)| line.bytes().all(|b| b.is_ascii_digit()))
}

/// `text_generation_launcher:`, `shard-manager:`, `dynamo_runtime::worker:`: the spans and the target of Rust's tracing, which has names as paths have them.
fn is_target(word: &str) -> bool {
    word.strip_suffix(':').is_some_and(|path| {
        path.contains(['_', '-', ':'])
            && path.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_-:".contains(&b))
    })
}

fn begins_with_mark(rest: &str) -> bool {
    ["- ", "-- ", "| ", ": "].iter().any(|mark| rest.trim_start_matches(is_blank).starts_with(mark))
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '|')
}

fn is_mark(c: char) -> bool {
    is_blank(c) || matches!(c, '-' | ':' | ']')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loggers_prefix_is_told_from_its_message() {
        let error = |message| Some((LogLevel::Error, message));
        for (text, expected) in [
            ("- trainer - ERROR - ValueError: x", error("ValueError: x")),
            ("trainer - ERROR - ValueError: x", error("ValueError: x")),
            ("ERROR - ValueError: x", error("ValueError: x")),
            ("ERROR:root:ValueError: x", error("ValueError: x")),
            ("CRITICAL:trainer:giving up", error("giving up")),
            ("[ERROR] [launch.py:7] it failed", error("it failed")),
            ("ERROR trial_runner.py:980 -- Trial 7: x", error("Trial 7: x")),
            ("| ERROR    | __main__:main:12 - KeyError: 'x'", error("KeyError: 'x'")),
            ("[error    ] step failed  [trainer] step=12", error("step failed  [trainer] step=12")),
            ("E1126 10:00:00.123456 42 data.py:7] RuntimeError: x", error("RuntimeError: x")),
            ("[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] cut", error("cut")),
            ("time=1 level=fatal msg=\"no disk\"", error("no disk\"")),
            ("[11/26/2026-10:00:00] [TRT-LLM] [RANK 3] [E] it failed", error("it failed")),
            ("[TensorRT-LLM][ERROR] it failed", error("it failed")),
            ("ERROR text_generation_launcher: ValueError: x", error("ValueError: x")),
            ("ERROR shard-manager: text_generation_launcher: it failed", error("it failed")),
            (" INFO dynamo_runtime::worker: up", Some((LogLevel::Note, "up"))),
            ("\tERROR\trunner/main.go:77\tValueError: x", error("ValueError: x")),
            ("a matrix [E] of errors", None),
            ("ERROR: Training failed.", error("Training failed.")),
            ("W1126 10:00:00.1 42 a.py:7] x", Some((LogLevel::Warning, "x"))),
            ("trainer - INFO - error 3", Some((LogLevel::Note, "error 3"))),
            ("eval/error 0.03 failed 0", None),
            ("step 7 loss 2.1", None),
            ("ValueError: error of a program", None),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }
}
