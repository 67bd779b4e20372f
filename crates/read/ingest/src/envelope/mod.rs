//! Records in which collectors keep what programs print, a line in each: exports of clouds, drivers of containers, loggers that write JSON.
//!
//! None of them is known here. Where the lines of an input are records, the member that holds what programs print is the one in which
//! their lines begin.

mod forms;
mod laid_out;

use crate::clean::without_escapes;
use crate::ends;
use crate::known::Known;
use crate::launcher::peel;
use crate::record::{SAID, fails, is_one_of, logged};
use forms::Form;
pub(crate) use laid_out::in_order;
use rustc_hash::FxHashSet;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Lines of a block from which its records are learnt, and those of its first that may be none.
const SAMPLE: usize = 1000;
const MOST_BEFORE: usize = 4;

/// Members that tell whose line it is.
const WHOSE: [&str; 17] = [
    "rank",
    "pod",
    "podname",
    "logstream",
    "logstreamname",
    "replica",
    "worker",
    "task",
    "taskid",
    "host",
    "hostname",
    "node",
    "nodename",
    "instance",
    "container",
    "containername",
    "pid",
];
/// When a line was printed.
const TIMES: [&str; 8] =
    ["timestamp", "time", "ts", "date", "datetime", "timegenerated", "eventtime", "realtimetimestamp"];

/// The names of a member and of those that it stands in, the outermost first.
type Path = Vec<String>;

/// The form of an input's records.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Envelope {
    form: Form,
    said: Path,
    /// What differs between the records of several processes.
    whose: Option<Path>,
    /// The level is the logger's: of what programs print themselves, collectors give a level to all that stands on one stream.
    levelled: bool,
    /// The last record is the oldest.
    newest_first: bool,
}

/// What a record says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub stream: String,
    pub text: String,
}

impl Said {
    /// The lines of its text, without colours.
    pub fn lines(&self) -> impl Iterator<Item = Cow<'_, [u8]>> {
        let lines = self.text.split(['\n', '\r']).filter(|line| !line.is_empty());
        lines.map(|line| without_escapes(line.as_bytes()))
    }
}

/// What a member has in the records of a sample.
#[derive(Default)]
struct Member {
    records: usize,
    beginnings: usize,
    with_blanks: usize,
    values: FxHashSet<String>,
    length: usize,
}

impl Envelope {
    /// That of a block's lines, if they are records.
    pub fn of(block: &[u8]) -> Option<Self> {
        let lines = || block.split(|b| *b == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
        let forms = lines().take(MOST_BEFORE).filter_map(|line| Form::of(&String::from_utf8_lossy(line)));
        forms.take(1).find_map(|form| {
            let sample = lines().take(SAMPLE).map(String::from_utf8_lossy);
            let read: Vec<Option<Value>> = sample.map(|line| Some(form.read(&line)?.1)).collect();
            let all = read.len();
            let records: Vec<Value> = read.into_iter().flatten().collect();
            let (envelope, known) = (records.len() * 2 > all).then(|| Self::learn(form, &records))??;
            // Rows of `ss` have commas and quotation marks too.
            let known_as_they_are =
                lines().take(SAMPLE).filter(|line| is_known(&String::from_utf8_lossy(line))).count();
            (known_as_they_are == 0 || known > known_as_they_are).then_some(envelope)
        })
    }

    /// The form, and how many texts of these records somebody knows.
    fn learn(form: Form, records: &[Value]) -> Option<(Self, usize)> {
        let mut members: BTreeMap<Path, Member> = BTreeMap::new();
        for record in records {
            walk(record, &mut Vec::new(), &mut |path, text| {
                let member = members.entry(path.to_vec()).or_default();
                member.records += 1;
                member.beginnings += usize::from(is_known(text));
                member.with_blanks += usize::from(text.trim_end().contains([' ', '\t']));
                member.length += text.len();
                member.values.insert(text.to_string());
            });
        }
        let is_common = |member: &Member| member.records * 2 > records.len();
        // A logger that writes pairs is read as it is.
        let by_name = form != Form::Pairs;
        let is_text = |member: &Member, path: &Path| {
            member.beginnings > 0 || by_name && is_named(path, &SAID) && member.with_blanks > 0
        };
        let texts = members.iter().filter(|(path, member)| is_common(member) && is_text(member, path));
        let (said, Member { beginnings, .. }) = texts.max_by_key(|(path, member)| {
            (member.beginnings, is_named(path, &SAID), member.with_blanks, member.length)
        })?;
        let tells = |path: &Path, member: &Member| {
            is_named(path, &WHOSE)
                && is_common(member)
                && member.values.len() > 1
                && member.values.len() * 2 <= records.len()
        };
        let whose = members.iter().filter(|(path, member)| tells(path, member));
        let whose = whose.max_by_key(|(path, member)| (is_named(path, &WHOSE[..1]), member.values.len()));
        let whose = whose.map(|(path, _)| path.clone());
        let said = said.clone();
        let levelled = !records.iter().any(|record| {
            let text = string_at(record, &said).unwrap_or_default();
            parent(record, &said).is_some_and(fails) && is_printed(&text)
        });
        let newest_first = members.keys().any(|path| is_named(path, &TIMES) && descends(records, path));
        Some((Envelope { form, said, whose, levelled, newest_first }, *beginnings))
    }

    /// Whether the records stand in the reverse order, as where somebody asks a collector for the latest.
    pub fn is_newest_first(&self) -> bool {
        self.newest_first
    }

    /// Whether a line holds no record, but what stands around them.
    fn is_frame(&self, line: &[u8]) -> bool {
        self.form.is_frame(&String::from_utf8_lossy(line))
    }

    /// What a record says: nothing where it is only of the form, as a table's head. `None` of a line that is no record.
    pub fn open(&self, line: &[u8]) -> Option<Said> {
        if self.is_frame(line) {
            return Some(Said::default());
        }
        let line = String::from_utf8_lossy(line);
        let (label, record) = self.form.read(&line)?;
        let text = string_at(&record, &self.said)?;
        let stream = match self.whose.as_ref().and_then(|path| Some((path, string_at(&record, path)?))) {
            Some((path, rank)) if is_named(path, &WHOSE[..1]) => format!("rank{rank}"),
            Some((_, name)) => name.into_owned(),
            None => label.to_string(),
        };
        let logger = parent(&record, &self.said).filter(|_| self.form == Form::Json || self.form == Form::Pairs);
        let text = logger.map_or_else(|| text.to_string(), |logger| logged(logger, &text, self.levelled));
        Some(Said { stream, text })
    }
}

/// Whether what a member has gets smaller from record to record, where it changes.
fn descends(records: &[Value], path: &Path) -> bool {
    let values: Vec<Cow<str>> = records.iter().filter_map(|record| string_at(record, path)).collect();
    let order = |pair: &[Cow<str>]| match (pair[0].parse::<f64>(), pair[1].parse::<f64>()) {
        (Ok(one), Ok(next)) => one.total_cmp(&next),
        _ => pair[0].cmp(&pair[1]),
    };
    let count = |wanted: Ordering| values.windows(2).filter(|pair| order(pair) == wanted).count();
    let fallen = count(Ordering::Greater);
    fallen >= 3 && count(Ordering::Less) * 10 <= fallen
}

/// Whether a text is no logger's message, but a line of what a program prints: of a traceback or NCCL's, a bar of progress, or none.
fn is_printed(text: &str) -> bool {
    text.trim().is_empty() || text.starts_with([' ', '\t']) || text.contains("%|") || is_known(text)
}

/// Whether a text begins with a line that somebody knows.
fn is_known(text: &str) -> bool {
    /// How nccl-tests begins, before the first row.
    const HEADS: [&str; 3] = ["# nThread ", "# Using devices", "# nccl-tests version "];
    let line = text.lines().next().unwrap_or_default();
    let body = peel(line).text;
    ends::beginning(body).is_some()
        || HEADS.iter().any(|head| body.starts_with(head))
        || Known::of(std::iter::once((false, line.as_bytes()))).all() > 0
}

fn is_named(path: &Path, names: &[&str]) -> bool {
    path.last().is_some_and(|key| is_one_of(key.rsplit('.').next().unwrap_or(key), names))
}

/// Calls `take` with every text and number of a record, and where it stands.
fn walk(value: &Value, path: &mut Path, take: &mut impl FnMut(&[String], &str)) {
    if let Some(text) = as_text(value) {
        take(path, &text);
    } else if let Value::Object(members) = value {
        for (key, value) in members {
            path.push(key.clone());
            walk(value, path, take);
            path.pop();
        }
    }
}

/// A text or a number; journald writes a text that holds more than letters as a list of its bytes.
fn as_text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(text.into()),
        Value::Number(number) => Some(number.to_string().into()),
        Value::Array(bytes) if !bytes.is_empty() => {
            let bytes: Option<Vec<u8>> = bytes.iter().map(|byte| u8::try_from(byte.as_u64()?).ok()).collect();
            Some(String::from_utf8_lossy(&bytes?).into_owned().into())
        }
        _ => None,
    }
}

fn string_at<'r>(record: &'r Value, path: &Path) -> Option<Cow<'r, str>> {
    as_text(path.iter().try_fold(record, |value, key| value.get(key))?)
}

/// The members beside one.
fn parent<'r>(record: &'r Value, path: &Path) -> Option<&'r Map<String, Value>> {
    let (_, above) = path.split_last()?;
    above.iter().try_fold(record, |value, key| value.get(key))?.as_object()
}

/// The text of a line behind launchers' labels and times, and the label.
fn behind_labels(line: &str) -> (&str, &str) {
    let peeled = peel(line);
    (peeled.stream, peeled.text.trim())
}

#[cfg(test)]
mod tests;
