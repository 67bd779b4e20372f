//! `busbw compare`: runs side by side.

use crate::cli::{Compare, Format};
use crate::{explain, output};
use busbw_report::{html, json, text};
use busbw_tune::compare::{Subject, Wanted, compare};
use std::process::ExitCode;

pub fn run(flags: &Compare) -> Result<ExitCode, String> {
    let subjects: Vec<Subject> =
        flags.runs.iter().map(|path| Subject::read(path)).collect::<Result<_, _>>().map_err(|e| e.to_string())?;
    let wanted = Wanted { collective: flags.collective, anyway: flags.anyway };
    let comparison = compare(&subjects, wanted).map_err(|e| e.to_string())?;
    output::write(flags.output.file(), |out| match flags.output.format() {
        Format::Json => json::write_compare(&comparison, out),
        Format::Html => output::page(out, &html::compare(&comparison)),
        Format::Text => {
            let style = explain::looked(&flags.output.look, flags.output.file());
            out.write_all(text::compare(&comparison, &style).as_bytes())
        }
    })?;
    Ok(ExitCode::SUCCESS)
}
