//! `busbw explain`: reads the inputs, judges them, prints the answer.

use crate::cli::{Color, Explain, Format, Look};
use crate::progress::Bar;
use crate::{described, memory, output, recorded, rules};
use busbw_diagnose::Given;
use busbw_ingest::{ReadError, ReadOptions, Source, read};
use busbw_model::{Diagnosis, Run};
use busbw_predict::Cluster;
use busbw_report::{html, json, junit, prometheus, text};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// How to see what a screen has no room for.
const MORE: &str = "-v for all evidence, tables and rings; --format html -o FILE for a page";

/// Runs the subcommand; the exit status tells whether there are findings to act on.
pub fn run(flags: &Explain) -> Result<ExitCode, String> {
    if let Some(code) = flags.code {
        output::write(flags.output.file(), |out| out.write_all(busbw_diagnose::page(code).as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let cluster = flags.cluster.as_ref().map(|path| described::cluster(std::slice::from_ref(path))).transpose()?;
    let book = rules::book(flags.rules.as_deref())?;
    let sources = files(flags)?.iter().map(|path| Source::all(path)).collect::<Result<Vec<_>, _>>();
    let sources: Vec<Source> = sources.map_err(|e| e.to_string())?.concat().into_iter().map(recorded::told).collect();
    let total = sources.iter().filter_map(Source::size).sum();
    memory::reads(total);
    let bar = bar_over(total);
    let options = ReadOptions { threads: flags.threads, progress: moves(&bar) };
    let run = read(&sources, &options);
    drop(bar);
    let run = run.map_err(|e| e.to_string())?;
    let given = Given { cluster: cluster.as_ref(), nics: flags.nics, book: Some(&book), ..Given::default() };
    let diagnosis = busbw_diagnose::diagnose_with(&run, &given.with_gpus(flags.gpus.clone()));
    if run.is_empty() && diagnosis.findings.is_empty() {
        return Err(ReadError::unknown(&run).to_string());
    }
    let (format, style) = (flags.output.format(), looked(&flags.output.look, flags.output.file()));
    output::write(flags.output.file(), |out| {
        print(format, &style, &run, &diagnosis, cluster, out)?;
        if flags.advice && format == Format::Text {
            out.write_all(text::advice(&diagnosis.advice, &style).as_bytes())?;
        }
        Ok(())
    })?;
    output::metrics(&flags.prometheus, "explain", |metrics| prometheus::explain(&run, &diagnosis, metrics))?;
    if let Some(path) = &flags.junit {
        output::write(Some(path), |out| junit::write_explain(&diagnosis, out))?;
    }
    std::mem::forget(run); // the process ends here; taking a large model apart would only take time
    Ok(ExitCode::from(diagnosis.verdict.exit_status()))
}

/// What to read: without files, standard input, unless somebody sits there.
fn files(flags: &Explain) -> Result<Vec<PathBuf>, String> {
    if flags.files.is_empty() && io::stdin().is_terminal() {
        return Err("no file to read; give the job's output, or pipe it in: `busbw explain run.log`".into());
    }
    let piped = flags.files.is_empty().then(|| PathBuf::from("-"));
    Ok(flags.files.iter().cloned().chain(piped).collect())
}

/// Prints the answer on standard output.
pub fn answer(format: Format, style: &text::Style, run: &Run, diagnosis: &Diagnosis) -> Result<(), String> {
    output::write(None, |out| print(format, style, run, diagnosis, None, out))
}

fn print(
    format: Format,
    style: &text::Style,
    run: &Run,
    diagnosis: &Diagnosis,
    cluster: Option<Cluster>,
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        Format::Json => json::write_explain(run, diagnosis, out),
        Format::Html => output::page(out, &html::explain(run, diagnosis, &context(run, diagnosis, cluster))),
        Format::Text if style.brief => out.write_all(text::brief(run, diagnosis, style, MORE).as_bytes()),
        Format::Text => out.write_all(text::explain(run, diagnosis, style).as_bytes()),
    }
}

/// What the page shows beside the answer: the lines around evidence, and the fabric.
fn context(run: &Run, diagnosis: &Diagnosis, cluster: Option<Cluster>) -> html::Context {
    let evidence = diagnosis.findings.iter().flat_map(|finding| &finding.evidence);
    let lines = busbw_ingest::around(run, evidence.map(|evidence| evidence.source.place), html::Context::REACH);
    html::Context { lines, cluster }
}

/// How text looks: as asked for, or as the terminal allows when it goes to standard output.
pub fn looked(look: &Look, file: Option<&Path>) -> text::Style {
    let terminal = file.is_none() && io::stdout().is_terminal() && !behind_mpirun();
    let allowed = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
        && std::env::var_os("TERM").is_none_or(|t| t != "dumb");
    let color = match look.color {
        Color::Auto => terminal && allowed,
        Color::Always => true,
        Color::Never => false,
    };
    let screen = terminal.then(terminal_size::terminal_size).flatten();
    let (columns, rows) = screen.map(|(width, height)| (usize::from(width.0), usize::from(height.0))).unzip();
    text::Style { color, width: look.width.or(columns).unwrap_or(100), rows, brief: terminal && !look.verbose }
}

/// Open MPI gives its ranks a terminal of their own, wherever its own output goes.
fn behind_mpirun() -> bool {
    std::env::var_os("OMPI_COMM_WORLD_RANK").is_some()
}

/// Smaller inputs are done before a bar is drawn.
const WORTH_A_BAR: u64 = 64 << 20;

/// How much is read, of inputs that take a while.
fn bar_over(total: u64) -> Bar {
    if total < WORTH_A_BAR {
        Bar::none()
    } else {
        Bar::new(total, "reading {bar:30} {bytes} of {total_bytes}, {eta} left")
    }
}

fn moves(bar: &Bar) -> Option<Arc<dyn Fn(u64) + Send + Sync>> {
    let bar = bar.drawn()?;
    Some(Arc::new(move |bytes| bar.inc(bytes)))
}
