//! `busbw rules`: what experts write in `rules/`, validated, listed, and tried on cases whose answer is known.

use crate::flags::{Output, RulesFile, TableFormat};
use crate::output;
use busbw_diagnose::labelled::{self, LabelledCase};
use busbw_diagnose::{Book, Cause};
use busbw_model::{Diagnosis, Finding};
use clap::{Args, Subcommand, ValueHint};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write rules without Rust: validate a file, list all rules, test on cases
///
/// A signature is an exact text that a program prints, with its cause and remedy; a known fault is what some versions of a
/// program can do. `busbw rules guide` explains every key and shows how to turn an unknown line into a finding.
#[derive(Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Rules {
    #[command(subcommand)]
    what: RulesCommand,
}

const EXAMPLES: &str = "Examples:
  busbw rules check my.toml                          is it valid? Errors have file, line and column
  busbw explain --rules my.toml run.log              try it on a log
  busbw rules test cases/ --rules my.toml            run cases: folders with case.toml and input/
  busbw rules test --json cases/ | jq '.cases[] | select(.misses != [])'
  busbw rules list | grep nic.rate                   the built-in causes
  busbw rules list --texts | grep -B9 'timed out'    the causes with their texts
  busbw rules guide | less                           every key, and a first signature step by step

Exit status:
  0  valid, or all cases have the expected answer
  1  a case has another answer, or a text has causes of different codes
  2  a file is not valid or cannot be read, or bad usage";

#[derive(Subcommand)]
enum RulesCommand {
    /// Diagnose cases and compare the answers with the expected ones
    #[command(
        after_help = "A case is a folder with case.toml and input/. case.toml:\n  label = \"nic.rate\"        the code of the first finding, or \"none\"\n  also = [\"net.plugin\"]     other codes that may stand first\n  not = [\"gpu.error\"]       codes that no error or warning may have\n  absent = [\"nic.rate\"]     codes that no finding may have, notes included\n  finds = [{ code = \"nic.rate\", says = \"…\" }]  findings that must be there\n  causes = [\"nic.rate.hot\"]  all causes whose texts are in the input\n  verdict_is = \"failed\"     healthy, no-errors, degraded, failed or inconclusive\n\nA file of short cases holds the input as well: rules/README.md"
    )]
    Test {
        /// A case, a file of short cases, or a folder of both
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        folder: PathBuf,
        #[command(flatten)]
        with: BookFlags,
    },
    /// Print the id, code, severity and speakers of every cause
    List {
        /// Print each cause's texts as well, with who prints them
        #[arg(long)]
        texts: bool,
        #[command(flatten)]
        with: BookFlags,
    },
    /// Print rules/README.md: how to write a signature, and every key
    Guide,
    /// Validate files: signatures and known faults, or the other files of rules by their names
    Check {
        /// The files
        #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
        files: Vec<PathBuf>,
    },
}

#[derive(Args)]
struct BookFlags {
    #[command(flatten)]
    rules: RulesFile,

    #[command(flatten)]
    output: Output<TableFormat>,
}

pub fn run(flags: &Rules) -> Result<ExitCode, String> {
    match &flags.what {
        RulesCommand::Test { folder, with } => test(folder, with),
        RulesCommand::List { texts, with } => list(*texts, with),
        RulesCommand::Guide => guide(),
        RulesCommand::Check { files } => check(files),
    }
}

/// The causes and known faults that are compiled in, and those of files, of which a later one counts more.
pub fn book(files: &[PathBuf]) -> Result<Cow<'static, Book>, String> {
    files.iter().try_fold(Cow::Borrowed(Book::built_in()), |book, path| {
        book.and(&path.display().to_string(), &read(path)?).map(Cow::Owned)
    })
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| output::unread(path, &e))
}

fn test(folder: &Path, with: &BookFlags) -> Result<ExitCode, String> {
    let book = book(with.rules.files())?;
    let cases = labelled::load(folder)?;
    let answers = cases.iter().map(|case| Answer::of(case, &book)).collect::<Result<Vec<_>, _>>()?;
    let right = answers.iter().filter(|answer| answer.misses.is_empty()).count();
    let json = |out: &mut dyn Write| {
        let cases: Vec<Value> = answers.iter().map(Answer::json).collect();
        writeln!(out, "{:#}", json!({"schema": "busbw.rules-test/1", "right": right, "cases": cases}))
    };
    output::answer(&with.output, json, |_, out| {
        answers.iter().try_for_each(|answer| answer.print(out))?;
        writeln!(out, "{right} of {} cases have the expected answer.", cases.len())
    })?;
    Ok(ExitCode::from(u8::from(right < cases.len())))
}

/// What busbw says of a case.
struct Answer<'a> {
    case: &'a LabelledCase,
    diagnosis: Diagnosis,
    misses: Vec<String>,
}

impl<'a> Answer<'a> {
    fn of(case: &'a LabelledCase, book: &Book) -> Result<Self, String> {
        let texts: Vec<(&str, &[u8])> = case.inputs.iter().map(|(name, text)| (&**name, &**text)).collect();
        let run = busbw_ingest::read_bytes(&texts).map_err(|e| format!("{}: {e}", case.id))?;
        let (diagnosis, misses) = case.label.answer(&run, book);
        Ok(Answer { case, diagnosis, misses })
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.misses.is_empty() {
            let title = self.diagnosis.findings.first().map_or("nothing found", |finding| finding.title.as_str());
            return writeln!(out, "ok    {}: {title}", self.case.id);
        }
        self.misses.iter().try_for_each(|miss| writeln!(out, "MISS  {}: {miss}", self.case.id))
    }

    fn json(&self) -> Value {
        let finding = |f: &Finding| json!({"code": f.code, "severity": f.severity, "title": f.title});
        let findings: Vec<Value> = self.diagnosis.findings.iter().map(finding).collect();
        json!({"id": self.case.id, "misses": self.misses, "verdict": self.diagnosis.verdict, "findings": findings})
    }
}

fn guide() -> Result<ExitCode, String> {
    output::write(None, |out| out.write_all(include_bytes!("../../../rules/README.md")))?;
    Ok(ExitCode::SUCCESS)
}

fn list(texts: bool, with: &BookFlags) -> Result<ExitCode, String> {
    let book = book(with.rules.files())?;
    let json = |out: &mut dyn Write| writeln!(out, "{:#}", json!({"schema": "busbw.rules/1", "causes": book.causes()}));
    output::answer(&with.output, json, |_, out| book.causes().iter().try_for_each(|cause| row(cause, texts, out)))?;
    Ok(ExitCode::SUCCESS)
}

fn row(cause: &Cause, texts: bool, out: &mut dyn Write) -> io::Result<()> {
    let mut speakers: Vec<&str> = cause.printed.iter().map(|printed| printed.by.as_str()).collect();
    speakers.sort_unstable();
    speakers.dedup();
    let severity = cause.severity.as_str();
    writeln!(out, "{:<28} {:<20} {severity:<8} {:<24} {}", cause.id, cause.code, speakers.join(","), cause.place)?;
    for printed in cause.printed.iter().filter(|_| texts) {
        writeln!(out, "    {:<12} {}", printed.by.as_str(), String::from(printed.text.clone()))?;
    }
    Ok(())
}

fn check(files: &[PathBuf]) -> Result<ExitCode, String> {
    let valid = |path: &PathBuf| busbw_diagnose::check_rules(&path.display().to_string(), &read(path)?);
    let problems: Vec<String> = files.iter().filter_map(|path| valid(path).err()).collect();
    problems.iter().for_each(output::say);
    let conflicts: Vec<String> = files.iter().flat_map(|path| conflicts(path)).collect();
    conflicts.iter().for_each(output::say);
    if problems.is_empty() && !conflicts.is_empty() {
        return Ok(ExitCode::from(1));
    }
    if problems.is_empty() {
        output::write(None, |out| {
            writeln!(out, "valid: {} file{}", files.len(), if files.len() == 1 { "" } else { "s" })
        })?;
    }
    Ok(ExitCode::from(if problems.is_empty() { 0 } else { 2 }))
}

/// Texts of a file of signatures that another cause claims with another code.
fn conflicts(path: &Path) -> Vec<String> {
    let name = path.display().to_string();
    let book = read(path).and_then(|text| Book::with(&name, &text));
    book.map_or(Vec::new(), |book| book.conflicts(&name))
}
