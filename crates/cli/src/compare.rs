//! `busbw compare`: runs side by side.

use crate::cli::Compare;
use crate::flags::Format;
use crate::{output, tuning_file};
use busbw_model::{TuningTable, counted};
use busbw_report::{html, json, text};
use busbw_tune::compare::{Subject, Wanted, compare, tuning_table};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

pub fn run(flags: &Compare) -> Result<ExitCode, String> {
    let (collective, runs) = flags.collective.among(&flags.runs);
    if let [run] = runs {
        return Err(format!("{}: one run has nothing to be compared with; name another", run.display()));
    }
    flags.collective.refuse_late(runs)?;
    let subjects = runs.iter().map(|path| Subject::read(path)).collect::<Result<Vec<_>, _>>();
    let subjects = subjects.map_err(|e| e.to_string())?;
    let wanted = Wanted { collective, anyway: flags.anyway };
    let table = flags.tuning_file.path().map(|path| Ok::<_, String>((path, proven(&subjects, wanted)?))).transpose()?;
    let comparison = compare(&subjects, wanted).map_err(|e| e.to_string())?;
    let style = flags.screen.style(flags.output.file());
    let json = |out: &mut dyn Write| json::write_compare(&comparison, out);
    output::answer(&flags.output, json, |format, out| match format {
        Format::Html => output::page(out, &html::compare(&comparison)),
        _ => out.write_all(text::compare(&comparison, &style).as_bytes()),
    })?;
    if let Some((path, table)) = table {
        let names: Vec<&str> = subjects.iter().map(|subject| subject.name.as_str()).collect();
        let origin = format!("Tuning table found by busbw compare with: {}", names.join(" "));
        tuning_file::write(path, &table, &origin, &told(&table, path))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn proven(subjects: &[Subject], wanted: Wanted) -> Result<TuningTable, String> {
    tuning_table(subjects, wanted).map_err(|e| format!("--tuning-table: {e}"))
}

/// What the table has, in a sentence.
fn told(table: &TuningTable, path: &Path) -> String {
    let path = path.display();
    let choices = counted(table.choices.len(), "choice");
    match table.choices.as_slice() {
        [] => format!(
            "no size is faster than in the first run for sure: {path} has no choice (where no run measured a size several times, nothing is sure)"
        ),
        found if found.iter().any(|choice| choice.protocol.is_none()) => {
            format!(
                "{choices} in {path}, of an algorithm without a protocol, which busbw bench follows and NCCL's tuner does not"
            )
        }
        _ => format!("{choices} in {path}"),
    }
}
