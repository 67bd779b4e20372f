//! What `rules/` says: the files that experts write, as types. `rules/README.md` explains every key.
//!
//! The build script includes this file, so that what busbw could not read stops the build. It therefore uses nothing else of
//! this crate.

use busbw_model::counters::Counters;
use busbw_model::{Alternative, Code, Severity, Speaker, Words};
use serde::de::{DeserializeOwned, Error, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::LazyLock;
use toml::Spanned;

/// What TOML's reader calls things, and what TOML does.
const WORDS: [(&str, &str); 4] = [
    (" field `", " key `"),
    ("unknown variant", "unknown value"),
    ("a sequence", "a list: [\"…\"]"),
    ("a map", "a table"),
];

/// Reads a file of rules.
///
/// # Errors
/// What does not fit, with file, line and column: `rdma.toml:12:5: unknown key …`.
pub fn parse<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, String> {
    toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let message = WORDS.iter().fold(error.message().to_string(), |told, (old, new)| told.replace(old, new));
        format!("{}: {message}; rules/README.md explains every key", place(name, text, at))
    })
}

/// Whether a file of rules that has a name of its own fits; none where the name is not among these.
pub fn check(name: &str, text: &str) -> Option<Result<(), String>> {
    Some(match name.rsplit('/').next()? {
        "advice.toml" => parse::<Questions>(name, text).map(drop),
        "variables.toml" => parse::<Variables>(name, text).map(drop),
        "environment.toml" => parse::<Settings>(name, text).map(drop),
        "surroundings.toml" => parse::<Surroundings>(name, text).map(drop),
        "findings.toml" => parse::<Signatures>(name, text)
            .and_then(|file| file.cause.iter().try_for_each(|cause| shares(cause.get_ref()))),
        "forms.toml" => parse::<Forms>(name, text).map(drop),
        "counters.toml" => parse::<Counters>(name, text).map(drop),
        "words.toml" => parse::<Words>(name, text).map(drop),
        _ => return None,
    })
}

/// Reads a file of rules that is compiled in.
pub fn built_in<T: DeserializeOwned>(name: &str, text: &str) -> T {
    parse(name, text).unwrap_or_else(|error| unreachable!("the build script read this file: {error}"))
}

/// Reads what the build script wrote.
pub fn from_build<T: DeserializeOwned>(json: &[u8]) -> T {
    serde_json::from_slice(json).unwrap_or_else(|error| unreachable!("the build script read these: {error}"))
}

/// `rdma.toml:12:5`: where a byte of a text is.
pub fn place(name: &str, text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    let lines = before.bytes().filter(|byte| *byte == b'\n').count();
    format!("{name}:{}:{}", lines + 1, line.chars().count() + 1)
}

/// The causes of files of signatures, each with its name and text.
///
/// # Errors
/// What does not fit, and an id that is given twice.
pub fn causes<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Vec<Cause>, String> {
    let mut causes: Vec<Cause> = Vec::new();
    for (name, text) in files {
        for spanned in parse::<Signatures>(name, text)?.cause {
            let place = place(name, text, spanned.span().start);
            let cause = spanned.into_inner();
            if let Some(first) = causes.iter().find(|known| known.id == cause.id) {
                return Err(format!("{place}: the id {} is taken by {}; choose another", cause.id, first.place));
            }
            shares(&cause).map_err(|error| format!("{place}: {error}"))?;
            let cause = Cause { place, ..cause }.with_cuda(&[])?;
            if cause.printed.is_empty() {
                return Err(format!("{}: the cause {} has no text; give printed or cuda", cause.place, cause.id));
            }
            causes.push(cause);
        }
    }
    Ok(causes)
}

/// Whether a cause and what else may be it leave room for each other.
pub fn shares(cause: &Cause) -> Result<(), String> {
    let id = &cause.id;
    if cause.or.iter().any(|other| other.cause.trim().is_empty() || other.tell.trim().is_empty()) {
        return Err(format!("an entry of or in {id} has no cause or tell"));
    }
    if cause.or.iter().any(|other| other.share <= 0.0) || !cause.or.is_sorted_by(|a, b| a.share >= b.share) {
        return Err(format!("the shares in or of {id} are above 0, the largest first"));
    }
    let sum: f64 = cause.confidence + cause.or.iter().map(|other| other.share).sum::<f64>();
    if !cause.or.is_empty() && sum > 1.001 {
        return Err(format!("the confidence of {id} and the shares in or add up to {sum:.2}, more than 1"));
    }
    Ok(())
}

/// The forms of a file as `rules/forms.toml`; none where it is another.
///
/// # Errors
/// What does not fit, with file, line and column.
pub fn forms(name: &str, text: &str) -> Option<Result<Vec<Printed>, String>> {
    let is_forms = name.rsplit('/').next() == Some("forms.toml");
    is_forms.then(|| parse::<Forms>(name, text).map(|forms| forms.cuda))
}

static FORMS: LazyLock<Result<Forms, String>> =
    LazyLock::new(|| parse("rules/forms.toml", include_str!("../../../../rules/forms.toml")));

/// `rules/forms.toml`: how programs print errors of the libraries that they call.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Forms {
    cuda: Vec<Printed>,
}

/// A file of `rules/signatures/`, `rules/findings.toml`, or a file of a person's own, which may hold known faults as well.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signatures {
    #[serde(default)]
    pub cause: Vec<Spanned<Cause>>,
    /// Read by the tables of known faults.
    #[serde(default, rename = "fault")]
    _faults: IgnoredAny,
}

/// A trouble that programs print, what it means and what helps.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    /// Its name, unique in the book: `limits.shm.full`.
    #[serde(deserialize_with = "words")]
    pub id: String,
    /// The file and line that declare it.
    #[serde(skip_deserializing)]
    pub place: String,
    pub code: Code,
    #[serde(default = "error")]
    pub severity: Severity,
    /// How sure it is that the text has this cause: see rules/README.md.
    #[serde(deserialize_with = "share")]
    pub confidence: f64,
    #[serde(deserialize_with = "words")]
    pub title: String,
    #[serde(deserialize_with = "words")]
    pub explanation: String,
    /// What to do, in order.
    #[serde(deserialize_with = "steps")]
    pub remedy: Vec<String>,
    /// What else may be the cause of the same, the likeliest first.
    #[serde(default)]
    pub or: Vec<Alternative>,
    #[serde(default)]
    pub until: Until,
    /// It counts from so many lines on that are alike from the text on: one device does it again and again.
    #[serde(default = "once")]
    pub repeats: usize,
    /// None of these in the line.
    #[serde(default)]
    pub unless: Vec<Template>,
    /// One of these in some line of a program that is known, where there are any.
    #[serde(default)]
    pub with: Vec<Template>,
    /// None of these in any line of a program that is known.
    #[serde(default)]
    pub without: Vec<Template>,
    #[serde(default)]
    pub printed: Vec<Printed>,
    /// Errors of CUDA or HIP, in the words of `cudaGetErrorString`: each is printed in the forms of `rules/forms.toml`.
    #[serde(default)]
    pub cuda: Vec<String>,
}

fn error() -> Severity {
    Severity::Error
}

fn once() -> usize {
    1
}

impl Cause {
    /// With the errors of CUDA as all programs print them, also in further forms.
    pub fn with_cuda(mut self, own: &[Printed]) -> Result<Self, String> {
        for error in &self.cuda {
            let forms = FORMS.as_ref().map_err(String::clone)?.cuda.iter().chain(own);
            self.printed.extend(forms.map(|form| form.of(error)).collect::<Result<Vec<_>, _>>()?);
        }
        Ok(self)
    }
}

/// Until when a line of the cause counts: what comes later refutes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Until {
    /// Until the communicator comes up: trouble of the start, which was survived then.
    Start,
    /// Until a communicator comes up after it: a launch that failed, whatever ran before it.
    Launch,
    /// Until another launch comes up and goes on or ends well, or the program goes on for long and ends well: the communicator does not survive it.
    Rerun,
    /// Until the run ends well, or another launch goes on: trouble of the run.
    #[default]
    End,
    /// For ever: it speaks of the machine, or of what the run costs.
    Never,
}

/// One exact text of one program.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Printed {
    pub by: Speaker,
    /// The text; `{}` stands for anything.
    #[serde(deserialize_with = "distinct")]
    pub text: Template,
    /// The source file that prints it, and the versions that do.
    #[serde(deserialize_with = "words")]
    pub source: String,
}

impl Printed {
    /// The text with the words of an error.
    fn of(&self, error: &str) -> Result<Printed, String> {
        let text = Template::try_from(self.text.text.replace("{error}", error))?;
        Ok(Printed { text, ..self.clone() })
    }
}

/// A text with gaps: `Call to {} failed`, `connect to {ADDRESS}<{PORT}>`. Its pieces stand in a line in this order; upper and lower case differ.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Template {
    text: String,
    pieces: Vec<String>,
    /// The gaps with a name, each with the number of pieces before it.
    names: Vec<(usize, String)>,
}

impl TryFrom<String> for Template {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        if text.split('%').skip(1).any(|behind| behind.starts_with(['s', 'd', 'u', 'x'])) {
            return Err("what changes is written {}, not as printf's %s or %d");
        }
        let (mut pieces, mut names) = (Vec::new(), Vec::new());
        let mut rest = text.as_str();
        while let Some((piece, name, behind)) = part_gap(rest) {
            pieces.extend((!piece.is_empty()).then(|| piece.to_string()));
            names.extend((!name.is_empty()).then(|| (pieces.len(), name.to_string())));
            rest = behind;
        }
        pieces.extend((!rest.is_empty()).then(|| rest.to_string()));
        if pieces.is_empty() { Err("an empty text stands in every line") } else { Ok(Template { text, pieces, names }) }
    }
}

/// The first gap of a text: what stands before it, its name, and what stands behind it. A name is written large.
fn part_gap(text: &str) -> Option<(&str, &str, &str)> {
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    text.match_indices('{').find_map(|(at, _)| {
        let (name, behind) = text[at + 1..].split_once('}')?;
        is_name(name).then_some((&text[..at], name, behind))
    })
}

impl From<Template> for String {
    fn from(template: Template) -> Self {
        template.text
    }
}

impl Template {
    pub fn pieces(&self) -> &[String] {
        &self.pieces
    }

    /// Whether anything may stand right before the first piece.
    pub fn begins_open(&self) -> bool {
        part_gap(&self.text).is_some_and(|(before, ..)| before.is_empty())
    }

    /// Whether anything may stand right behind the last piece.
    pub fn ends_open(&self) -> bool {
        self.pieces.last().is_some_and(|last| !self.text.ends_with(last.as_str()))
    }

    /// The gaps with a name, each with the number of pieces before it.
    pub fn names(&self) -> &[(usize, String)] {
        &self.names
    }

    pub fn literal(&self) -> usize {
        self.pieces.iter().map(|piece| piece.chars().count()).sum()
    }
}

/// An entry of `rules/advice.toml`: what to run next where one of the codes stands first.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    #[serde(deserialize_with = "some")]
    pub codes: Vec<Code>,
    #[serde(deserialize_with = "words")]
    pub question: String,
    #[serde(deserialize_with = "words")]
    pub command: String,
    #[serde(deserialize_with = "words")]
    pub then: String,
}

/// `rules/advice.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Questions {
    pub advice: Vec<Question>,
}

/// A variable of NCCL's.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    /// `NCCL_IB_HCA`.
    #[serde(deserialize_with = "words")]
    pub name: String,
    /// The first version that reads it: `2.4`, or an older one.
    pub since: String,
    /// The last version that reads it; none where the newest does.
    pub until: Option<String>,
    /// Its default, where NCCL has a number for it; `automatic` where NCCL decides.
    pub default: Option<String>,
    /// What it does, in a few words; none if NCCL's documentation does not say.
    pub meaning: Option<String>,
    /// All values that it takes; none where they are no list.
    #[serde(default)]
    pub values: Vec<String>,
}

/// `rules/variables.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variables {
    /// Beginnings and names of variables that others than NCCL read.
    pub others: Vec<String>,
    pub variable: Vec<Variable>,
}

/// An entry of `rules/environment.toml`: values of a variable that override what NCCL would choose.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    #[serde(deserialize_with = "words")]
    pub name: String,
    pub when: ValueCondition,
    #[serde(default)]
    pub needs: Needs,
    pub severity: Severity,
    #[serde(deserialize_with = "words")]
    pub effect: String,
}

/// `rules/environment.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub setting: Vec<Setting>,
}

/// An entry of `rules/surroundings.toml`: a launcher, the network or cloud of the machines, or the vendor of their GPUs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Surrounding {
    pub kind: Kind,
    #[serde(deserialize_with = "words")]
    #[allow(dead_code, reason = "for readers of the file")]
    pub name: String,
    #[serde(deserialize_with = "steps")]
    pub shown: Vec<String>,
    #[serde(default)]
    pub only: Vec<String>,
    #[serde(default)]
    pub never: Vec<String>,
    pub each: Option<String>,
    pub pass: Option<String>,
    pub hand_on: Option<String>,
    /// What is put in the place of NVIDIA's words, one after the other.
    #[serde(default)]
    pub words: Vec<[String; 2]>,
    /// The remedy where none of NVIDIA's has a counterpart.
    pub last_resort: Option<String>,
}

/// What surrounds a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Launcher,
    Network,
    Vendor,
}

/// `rules/surroundings.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Surroundings {
    pub surrounding: Vec<Surrounding>,
}

/// Which values of a variable matter.
#[derive(Debug, Deserialize)]
#[serde(try_from = "Values")]
pub enum ValueCondition {
    Any,
    Values(Vec<String>),
    Below(i64),
    /// It takes half of the NICs that a host is known to have, or fewer.
    FewNics,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Values {
    List(Vec<String>),
    Rule(String),
}

impl TryFrom<Values> for ValueCondition {
    type Error = &'static str;

    fn try_from(values: Values) -> Result<Self, &'static str> {
        match values {
            Values::List(values) => Ok(ValueCondition::Values(values)),
            Values::Rule(rule) if rule == "any" => Ok(ValueCondition::Any),
            Values::Rule(rule) if rule == "few nics" => Ok(ValueCondition::FewNics),
            Values::Rule(rule) => rule
                .strip_prefix("below ")
                .and_then(|limit| limit.parse().ok())
                .map(ValueCondition::Below)
                .ok_or("write \"any\", \"below NUMBER\", \"few nics\" or a list of values"),
        }
    }
}

/// The runs that a variable matters to.
#[derive(Debug, Deserialize, Default, PartialEq, Clone, Copy)]
#[serde(rename_all = "lowercase")]
pub enum Needs {
    #[default]
    Nothing,
    Nodes,
    Gpus,
}

fn words<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    if text.trim().is_empty() { Err(D::Error::custom("nothing is said here; write a text")) } else { Ok(text) }
}

fn steps<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let steps: Vec<String> = some(from)?;
    if steps.iter().any(|step| step.trim().is_empty()) { Err(D::Error::custom("a step is empty")) } else { Ok(steps) }
}

fn some<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    let list = Vec::deserialize(from)?;
    if list.is_empty() { Err(D::Error::custom("the list is empty; it needs one entry or more")) } else { Ok(list) }
}

fn share<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let share = f64::deserialize(from)?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(D::Error::custom("a confidence is from 0 to 1")) }
}

/// Literal characters that a printed text needs at least: shorter ones stand in too many lines.
const SHORTEST: usize = 8;

fn distinct<'de, D: Deserializer<'de>>(from: D) -> Result<Template, D::Error> {
    let text = Template::deserialize(from)?;
    let long = text.literal() >= SHORTEST;
    let short = || D::Error::custom(format!("the text has fewer than {SHORTEST} characters; take more of the line"));
    if long { Ok(text) } else { Err(short()) }
}
