//! A record of a logger or a collector: its message, its level, and the exception that stands beside.

use crate::logger;
use serde_json::{Map, Value};

/// What members are called in which a program's text stands: of two that could be it, the one with such a name is.
pub(crate) const SAID: [&str; 12] = [
    "stdout",
    "log",
    "text",
    "textpayload",
    "message",
    "msg",
    "event",
    "line",
    "raw",
    "body",
    "logentry",
    "logmessage",
];
/// Levels of a program's logger, and what it writes of an exception beside the message.
const LEVELS: [&str; 4] = ["level", "lvl", "levelname", "loglevel"];
const EXCEPTIONS: [&str; 6] = ["exception", "exc_info", "stack_trace", "stacktrace", "exc_text", "error"];

/// What a record says that stands alone among other lines.
pub(crate) fn said_by(record: &Value) -> Option<String> {
    let members = record.as_object()?;
    if let Some(said) = members.get("jsonPayload").and_then(said_by) {
        return Some(said);
    }
    let of = |name: &&str| {
        members.iter().find(|(key, text)| is_called(key, name) && text.as_str().is_some_and(|text| !text.is_empty()))
    };
    let (key, text) = SAID.iter().find_map(of)?;
    let text = text.as_str()?;
    let is_event = is_called(key, "event");
    if is_event && level_in(members).is_none() {
        return None;
    }
    // Docker and Google's Cloud Logging have a line as it was printed; Ansible has all that a command printed.
    let printed = ["stdout", "log", "text", "textpayload", "raw", "line"].iter().any(|name| is_called(key, name));
    let beside = members.get("stderr").and_then(Value::as_str).filter(|_| is_called(key, "stdout"));
    Some(match beside {
        Some(beside) => format!("{text}\n{beside}"),
        None if printed => text.to_string(),
        None => logged(members, text, true),
    })
}

/// A logger's message, to which the level is added where it is of a failure, with the exception that the record carries.
pub(crate) fn logged(members: &Map<String, Value>, message: &str, levelled: bool) -> String {
    let texts = || EXCEPTIONS.iter().filter_map(|key| members.get(*key)?.as_str().filter(|text| !text.is_empty()));
    let (level, exception) = (level_in(members), texts().next());
    let fails = levelled && fails(members);
    match (level, exception) {
        (Some(level), Some(exception)) if fails => format!("{level}: {message}\n{exception}"),
        (Some(level), None) if fails => format!("{level}: {message}"),
        (None, Some(exception)) => format!("{message}\n{exception}"),
        _ => message.to_string(),
    }
}

fn level_in(members: &Map<String, Value>) -> Option<String> {
    let level = members.iter().find(|(key, level)| is_one_of(key, &LEVELS) && level.is_string())?.1;
    level.as_str().map(str::to_ascii_uppercase)
}

pub(crate) fn fails(members: &Map<String, Value>) -> bool {
    level_in(members).is_some_and(|level| logger::is_failure(&level))
}

/// Whether a member is called so, whatever marks and letters of any size its name has: `@message`, `_raw`, `MESSAGE`.
fn is_called(key: &str, name: &str) -> bool {
    let key = key.trim_end_matches("_s");
    key.chars().filter(char::is_ascii_alphabetic).map(|c| c.to_ascii_lowercase()).eq(name.chars())
}

pub(crate) fn is_one_of(key: &str, names: &[&str]) -> bool {
    names.iter().any(|name| is_called(key, name))
}
