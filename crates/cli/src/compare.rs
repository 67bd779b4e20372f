//! `busbw compare`: runs side by side.

use crate::cli::Compare;
use crate::flags::Format;
use crate::output;
use busbw_report::{html, json, text};
use busbw_tune::compare::{Subject, Wanted, compare};
use std::io::Write;
use std::process::ExitCode;

pub fn run(flags: &Compare) -> Result<ExitCode, String> {
    let (collective, runs) = flags.collective.among(&flags.runs);
    if let [run] = runs {
        return Err(format!("{}: one run has nothing to be compared with; name another", run.display()));
    }
    let subjects = runs.iter().map(|path| Subject::read(path)).collect::<Result<Vec<_>, _>>();
    let subjects = subjects.map_err(|e| e.to_string())?;
    let wanted = Wanted { collective, anyway: flags.anyway };
    let comparison = compare(&subjects, wanted).map_err(|e| e.to_string())?;
    let style = flags.screen.style(flags.output.file());
    let json = |out: &mut dyn Write| json::write_compare(&comparison, out);
    output::answer(&flags.output, json, |format, out| match format {
        Format::Html => output::page(out, &html::compare(&comparison)),
        _ => out.write_all(text::compare(&comparison, &style).as_bytes()),
    })?;
    Ok(ExitCode::SUCCESS)
}
