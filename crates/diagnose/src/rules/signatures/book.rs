//! The book of causes: what `rules/signatures/*.toml` says, ready to be looked up in a line.
//!
//! `rules/README.md` explains every key. A cause is a trouble that programs print; each text of it belongs to a speaker.

use aho_corasick::AhoCorasick;
use busbw_model::{Code, Severity, Speaker};
use serde::Deserialize;
use std::sync::LazyLock;

/// The files that are compiled in, with their names for messages.
const FILES: [(&str, &str); 8] = [
    ("gpu.toml", include_str!("../../../../../rules/signatures/gpu.toml")),
    ("hang.toml", include_str!("../../../../../rules/signatures/hang.toml")),
    ("launch.toml", include_str!("../../../../../rules/signatures/launch.toml")),
    ("limits.toml", include_str!("../../../../../rules/signatures/limits.toml")),
    ("network.toml", include_str!("../../../../../rules/signatures/network.toml")),
    ("pcie.toml", include_str!("../../../../../rules/signatures/pcie.toml")),
    ("rdma.toml", include_str!("../../../../../rules/signatures/rdma.toml")),
    ("versions.toml", include_str!("../../../../../rules/signatures/versions.toml")),
];

static BUILT_IN: LazyLock<Book> = LazyLock::new(|| {
    let mut book = Book::default();
    for (name, text) in FILES {
        book.add(text).unwrap_or_else(|error| panic!("rules/signatures/{name}: {error}"));
    }
    book.finish()
});

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    cause: Vec<Cause>,
}

/// A trouble that programs print, what it means and what helps.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    /// Its name, unique in the book: `limits.shm.full`.
    pub id: String,
    /// The code of its finding.
    pub code: Code,
    /// How much it matters.
    #[serde(default = "error")]
    pub severity: Severity,
    /// How sure it is that the text has this cause: see rules/README.md.
    pub confidence: f64,
    /// One line: what is the matter.
    pub title: String,
    /// What it means.
    pub explanation: String,
    /// What to do, in order.
    pub remedy: Vec<String>,
    /// What refutes it.
    #[serde(default)]
    pub until: Until,
    /// None of these in the line.
    #[serde(default)]
    pub unless: Vec<Template>,
    /// One of these in some line of a program that is known, where there are any.
    #[serde(default)]
    pub with: Vec<Template>,
    /// None of these in any line of a program that is known.
    #[serde(default)]
    pub without: Vec<Template>,
    /// What is printed.
    #[serde(default)]
    pub printed: Vec<Printed>,
    /// Errors of CUDA or HIP in the words of `cudaGetErrorString`, which programs print in [`CUDA_FORMS`].
    #[serde(default)]
    cuda: Vec<String>,
}

/// Until when a line of the cause counts: what comes later refutes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Until {
    /// Until the communicator comes up: trouble of the start, which was survived then.
    Start,
    /// Until the run ends well: trouble of the run.
    #[default]
    End,
    /// For ever: it speaks of the machine, or of what the run costs.
    Never,
}

/// One exact text of one program.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Printed {
    /// Who prints it.
    by: By,
    /// The text; `{}` stands for anything.
    text: Template,
    /// The source file that prints it, and the versions that do.
    #[allow(dead_code)] // for readers of the rules
    source: String,
}

/// How programs print an error of CUDA or HIP.
const CUDA_FORMS: [(By, &str, &str); 9] = [
    // 'X' up to 2.18 and in CUDA's runtime, 401 'X' in its driver since 2.19; nccl-tests 1 as well.
    (By::NcclWarn, "Cuda failure {}'{error}'", "NCCL src/include/checks.h, cudawrap.h 2.4-2.30"),
    (By::NcclWarn, "HIP failure '{error}'", "RCCL src/include/checks.h 2.30"),
    (By::NcclTests, "Test CUDA failure {}'{error}'", "nccl-tests src/common.h 2"),
    (By::Torch, "CUDA error: {error}", "PyTorch c10/cuda/CUDAException.cpp"),
    (By::Torch, "HIP error: {error}", "PyTorch c10/hip/HIPException.cpp"),
    (By::Python, "RuntimeError: CUDA error: {error}", "PyTorch up to 2.7"),
    (By::Python, "torch.AcceleratorError: CUDA error: {error}", "PyTorch 2.8 and later"),
    (By::Python, "RuntimeError: HIP error: {error}", "PyTorch up to 2.7"),
    (
        By::Python,
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). {} Error {}: {error}",
        "PyTorch c10/cuda/CUDAFunctions.cpp",
    ),
];

/// An error of CUDA as all programs print it.
fn printed_by_all(error: &str) -> impl Iterator<Item = Printed> + '_ {
    CUDA_FORMS.iter().map(move |(by, form, source)| Printed {
        by: *by,
        text: Template::from(form.replace("{error}", error)),
        source: (*source).to_string(),
    })
}

/// Who prints a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum By {
    #[serde(rename = "nccl")]
    Nccl,
    #[serde(rename = "nccl.warn")]
    NcclWarn,
    #[serde(rename = "nccl.info")]
    NcclInfo,
    #[serde(rename = "nccl-tests")]
    NcclTests,
    #[serde(rename = "net-library")]
    NetLibrary,
    #[serde(rename = "torch")]
    Torch,
    #[serde(rename = "python")]
    Python,
    #[serde(rename = "crash")]
    Crash,
    #[serde(rename = "launcher")]
    Launcher,
    #[serde(rename = "kernel")]
    Kernel,
    #[serde(rename = "any")]
    Any,
}

impl By {
    /// Whether a line of this speaker may hold the text. Programs quote what NCCL warned of in their own errors.
    fn allows(self, speaker: Speaker) -> bool {
        use Speaker::{Crash, NcclInfo, NcclTests, NcclWarn, Python, Torch};
        match self {
            By::Nccl => matches!(speaker, NcclWarn | NcclInfo | NcclTests | Torch | Python | Crash),
            By::NcclWarn => matches!(speaker, NcclWarn | NcclTests | Torch | Python | Crash),
            By::NcclInfo => speaker == NcclInfo,
            By::NcclTests => speaker == NcclTests,
            By::NetLibrary => speaker == Speaker::NetLibrary || matches!(speaker, NcclWarn | NcclInfo),
            By::Torch => matches!(speaker, Torch | Python | Crash | Speaker::Launcher),
            By::Python => matches!(speaker, Python | Torch),
            By::Crash => matches!(speaker, Crash | Speaker::Launcher),
            By::Launcher => speaker == Speaker::Launcher,
            By::Kernel => speaker == Speaker::Kernel,
            By::Any => speaker != Speaker::Program,
        }
    }
}

/// A text with gaps: `Call to {} failed`. Its pieces stand in a line in this order; upper and lower case differ.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub struct Template {
    pieces: Vec<String>,
}

impl From<String> for Template {
    fn from(text: String) -> Self {
        Template { pieces: text.split("{}").filter(|piece| !piece.is_empty()).map(str::to_string).collect() }
    }
}

/// Literal characters that a text needs to be taken for a program's where nothing in front of it says who speaks.
const ENOUGH_TO_STAND_ALONE: usize = 16;

impl Template {
    /// Where the text ends in a line; `None` where it is not in it. Words and numbers are not cut.
    fn find(&self, line: &str) -> Option<usize> {
        let mut from = 0;
        for piece in &self.pieces {
            let at = whole(line, piece, from)?;
            from = at + piece.len();
        }
        Some(from)
    }

    /// Whether a line is the text from its beginning on.
    fn begins(&self, line: &str) -> bool {
        let literal: usize = self.pieces.iter().map(String::len).sum();
        literal >= ENOUGH_TO_STAND_ALONE
            && self.pieces.first().is_some_and(|first| line.starts_with(first.as_str()))
            && self.find(line).is_some()
    }

    fn longest(&self) -> &str {
        self.pieces.iter().max_by_key(|piece| piece.len()).map_or("", String::as_str)
    }
}

/// The first place from `from` on where a piece stands that cuts no word at its beginning and no number at its end.
fn whole(line: &str, piece: &str, mut from: usize) -> Option<usize> {
    let (bytes, begins, ends) = (line.as_bytes(), piece.as_bytes().first()?, piece.as_bytes().last()?);
    loop {
        let at = from + line.get(from..)?.find(piece)?;
        let end = at + piece.len();
        let cut_word = begins.is_ascii_alphanumeric() && at > 0 && bytes[at - 1].is_ascii_alphanumeric();
        let cut_number = ends.is_ascii_digit() && bytes.get(end).is_some_and(u8::is_ascii_digit);
        if !cut_word && !cut_number {
            return Some(at);
        }
        from = at + piece.chars().next().map_or(1, char::len_utf8);
    }
}

fn error() -> Severity {
    Severity::Error
}

/// Causes, and an automaton that finds in one pass which texts a line may hold.
#[derive(Default)]
pub struct Book {
    causes: Vec<Cause>,
    /// The texts by their place among the automaton's patterns: cause and role.
    owners: Vec<(usize, Role)>,
    automaton: Option<AhoCorasick>,
}

/// What a text is to its cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// One of the texts that tell of the cause.
    Printed(usize),
    /// A text that must stand somewhere.
    With(usize),
    /// A text that must stand nowhere.
    Without(usize),
}

impl Book {
    /// The causes that are compiled in.
    pub fn built_in() -> &'static Book {
        &BUILT_IN
    }

    /// The causes that are compiled in, and those of another file, which come first.
    ///
    /// # Errors
    /// What does not parse, with its line.
    pub fn with(text: &str) -> Result<Book, String> {
        let mut book = Book::default();
        book.add(text)?;
        book.causes.extend(BUILT_IN.causes.iter().cloned());
        Ok(book.finish())
    }

    fn add(&mut self, text: &str) -> Result<(), String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        for mut cause in file.cause {
            cause.printed.extend(cause.cuda.iter().flat_map(|error| printed_by_all(error)));
            if self.causes.iter().any(|known| known.id == cause.id) {
                return Err(format!("two causes are called {}", cause.id));
            }
            self.causes.push(cause);
        }
        Ok(())
    }

    fn finish(mut self) -> Self {
        let mut words: Vec<&str> = Vec::new();
        for (index, cause) in self.causes.iter().enumerate() {
            let texts = cause.printed.iter().enumerate().map(|(at, printed)| (Role::Printed(at), &printed.text));
            let with = cause.with.iter().enumerate().map(|(at, text)| (Role::With(at), text));
            let without = cause.without.iter().enumerate().map(|(at, text)| (Role::Without(at), text));
            for (role, text) in texts.chain(with).chain(without) {
                words.push(text.longest());
                self.owners.push((index, role));
            }
        }
        self.automaton = AhoCorasick::new(&words).ok();
        self
    }

    /// A cause by its number.
    pub fn cause(&self, index: usize) -> &Cause {
        &self.causes[index]
    }

    /// What a line of a speaker holds: causes by number, each with the roles of the texts.
    pub fn read(&self, speaker: Speaker, text: &str) -> Vec<(usize, Role)> {
        let near = self.automaton.iter().flat_map(|automaton| automaton.find_overlapping_iter(text));
        let mut found: Vec<(usize, Role)> = near
            .map(|found| self.owners[found.pattern().as_usize()])
            .filter(|(index, role)| self.causes[*index].holds(*role, speaker, text))
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

impl Cause {
    /// Whether the text of a role is in a line.
    fn holds(&self, role: Role, speaker: Speaker, line: &str) -> bool {
        let said = |text: &Template| match speaker {
            Speaker::Program => text.begins(line),
            _ => text.find(line).is_some(),
        };
        match role {
            Role::Printed(at) => {
                let Printed { by, text, .. } = &self.printed[at];
                (speaker == Speaker::Program || by.allows(speaker))
                    && said(text)
                    && !self.unless.iter().any(|text| text.find(line).is_some())
            }
            Role::With(at) => said(&self.with[at]),
            Role::Without(at) => said(&self.without[at]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_a_text_and_a_remedy_with_a_command() {
        for cause in &BUILT_IN.causes {
            assert!(!cause.printed.is_empty(), "{}: no text", cause.id);
            assert!(cause.remedy.iter().any(|remedy| remedy.contains('`')), "{}: no command", cause.id);
        }
    }

    #[test]
    fn a_text_cuts_no_word_and_no_number() {
        let cases = [
            ("error 12", "Got completion with error 12, opcode 0", true),
            ("error 12", "Got completion with error 129", false),
            ("Call to {} failed", "x.cc:1 NCCL WARN Call to ibv_reg_mr failed with error", true),
            ("Call to {} failed", "failed. Call to nothing", false),
            ("error", "terror", false),
        ];
        for (text, line, held) in cases {
            assert_eq!(Template::from(text.to_string()).find(line).is_some(), held, "{text} in {line}");
        }
    }

    #[test]
    fn without_a_speaker_a_text_begins_the_line() {
        let text = Template::from("Call to {} failed with error".to_string());
        assert!(text.begins("Call to ibv_reg_mr failed with error Cannot allocate memory"));
        assert!(!text.begins("the docs of Call to x failed with error say"));
    }
}
