//! `busbw explain`: reads the inputs, judges them, prints the answer.

use crate::cli::Explain;
use crate::flags::{Format, Output, Quiet};
use crate::progress::Bar;
use crate::{advise, described, memory, output, predict, recorded, rules};
use busbw_diagnose::{Book, UserFacts};
use busbw_ingest::{ReadError, ReadOptions, Source, read};
use busbw_model::{Code, Diagnosis, Run};
use busbw_predict::{Cluster, LinkLoad, Options, Traffic, simulate};
use busbw_report::{html, json, junit, prometheus, text};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// How to see what a screen has no room for.
const MORE: &str = "-v for all evidence, tables and rings; -o page.html for a page";

/// Runs the subcommand; the exit status tells whether there are findings to act on.
pub fn run(flags: &Explain) -> Result<ExitCode, String> {
    if let Some(code) = &flags.code {
        let page = page(code)?;
        return output::write(flags.output.file(), |out| out.write_all(page.as_bytes())).map(|()| ExitCode::SUCCESS);
    }
    let cluster = flags.cluster.as_ref().map(|path| described::cluster(std::slice::from_ref(path))).transpose()?;
    let loaded = cluster.as_ref().zip(flags.load.as_deref());
    let load = loaded.map(|(cluster, named)| predict::load(named, cluster.ranks())).transpose()?;
    let book = rules::book(flags.rules.files())?;
    let files = files(flags)?;
    let sources = files.iter().map(|path| Source::all(path)).collect::<Result<Vec<_>, _>>();
    let sources = sources.map_err(|e| e.to_string())?.concat();
    let total = sources.iter().filter_map(Source::size).sum();
    memory::reads(total);
    let bar = bar_over(total, &flags.quiet);
    let options = ReadOptions { threads: flags.threads, progress: moves(&bar), recording: Some(recorded::alerts) };
    let run = read(&sources, &options);
    drop(bar);
    let run = run.map_err(|e| e.to_string())?;
    let given = UserFacts {
        cluster: cluster.as_ref(),
        load: load.as_ref(),
        nics: flags.nics,
        book: Some(&book),
        ..UserFacts::default()
    };
    let diagnosis = busbw_diagnose::diagnose_with(&run, &given.with_gpus(flags.gpus.clone()));
    if busbw_diagnose::is_unknown(&run, &diagnosis) {
        let about = about(&run, &files, &book).unwrap_or_default();
        return Err(format!("{}{about}", ReadError::unknown(&run)));
    }
    let style = flags.screen.style(flags.output.file());
    answer(&flags.output, &style, &run, &diagnosis, cluster, flags.advice)?;
    if let Some(file) = flags.output.file().filter(|_| io::stderr().is_terminal() && !flags.quiet.quiet) {
        tell(&diagnosis, file);
    }
    output::metrics(&flags.prometheus, "explain", |metrics| prometheus::explain(&run, &diagnosis, metrics))?;
    if let Some(path) = flags.junit.file() {
        output::write(Some(path), |out| junit::write_explain(&diagnosis, out))?;
    }
    std::mem::forget(run); // the process ends here; taking a large model apart would only take time
    Ok(ExitCode::from(diagnosis.verdict.exit_status()))
}

/// The known fault that a person may have written about: it is looked up, and not judged.
fn about(run: &Run, files: &[PathBuf], book: &Book) -> Option<String> {
    let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let fault = advise::of_texts(run, &paths, book)?;
    Some(format!(
        "\nof known faults it is like {} ({}: {}); `busbw advise {}` looks up more",
        fault.id,
        fault.component.title(),
        fault.title,
        paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" "),
    ))
}

/// What to read: without files, standard input, unless somebody sits there.
fn files(flags: &Explain) -> Result<Vec<PathBuf>, String> {
    if flags.files.is_empty() && io::stdin().is_terminal() {
        return Err("no file to read; give the job's output, or pipe it in: `busbw explain run.log`".into());
    }
    let piped = flags.files.is_empty().then(|| PathBuf::from("-"));
    Ok(flags.files.iter().cloned().chain(piped).collect())
}

/// Writes the answer where the flags say.
pub fn answer(
    flags: &Output,
    style: &text::Style,
    run: &Run,
    diagnosis: &Diagnosis,
    cluster: Option<Cluster>,
    advice: bool,
) -> Result<(), String> {
    let text = || {
        let brief = style.brief.then(|| text::brief(run, diagnosis, style, MORE));
        let text = brief.unwrap_or_else(|| text::explain(run, diagnosis, style));
        if advice { text + &text::advice(&diagnosis.advice, style) } else { text }
    };
    let json = |out: &mut dyn Write| json::write_explain(run, diagnosis, out);
    output::answer(flags, json, |format, out| match format {
        Format::Html => output::page(out, &html::explain(run, diagnosis, &context(run, diagnosis, cluster))),
        _ => out.write_all(text().as_bytes()),
    })
}

/// Says the verdict to whoever has the answer written to a file.
pub fn tell(diagnosis: &Diagnosis, file: &Path) {
    output::say(format_args!("{}  {}", diagnosis.verdict.title(), diagnosis.summary));
    output::say(format_args!("the answer is in {}", file.display()));
}

/// The page of a code; of a part of several codes, which have it.
fn page(part: &str) -> Result<String, String> {
    let those: Vec<_> = Code::ALL.into_iter().filter(|(_, name, _)| name.contains(part)).collect();
    match (Code::from_name(part), &those[..]) {
        (Some(code), _) | (None, &[(code, ..)]) => Ok(busbw_diagnose::page(code).to_owned()),
        (None, []) => {
            let names: Vec<&str> = Code::ALL.iter().map(|(_, name, _)| *name).collect();
            Err(format!("--code {part}: no code has this in its name; choose one of {}", names.join(", ")))
        }
        (None, several) => Ok(several.iter().map(|(_, name, meaning)| format!("{name:<22} {meaning}\n")).collect()),
    }
}

/// What the page shows beside the answer: the lines around evidence, and the fabric.
pub fn context(run: &Run, diagnosis: &Diagnosis, cluster: Option<Cluster>) -> html::Context {
    let evidence = diagnosis.findings.iter().flat_map(|finding| &finding.evidence);
    let lines = busbw_ingest::around(run, evidence.map(|evidence| evidence.source.place), html::Context::REACH);
    let loads = cluster.as_ref().and_then(|cluster| loads(run, cluster)).unwrap_or_default();
    html::Context { lines, cluster, loads }
}

/// How the run's own rings load the fabric; the cluster's, where no input shows rings.
fn loads(run: &Run, cluster: &Cluster) -> Option<Vec<LinkLoad>> {
    let rings = run.communicators.iter().find(|comm| comm.ring_count() > 0);
    let of_run = rings.and_then(|comm| Traffic::of_communicator(comm, cluster).ok());
    let traffic = of_run.or_else(|| Traffic::of_cluster(cluster).ok())?;
    Some(simulate(cluster, &traffic, &Options::default()).ok()?.links)
}

/// Smaller inputs are done before a bar is drawn.
const WORTH_A_BAR: u64 = 64 << 20;

/// How much is read, of inputs that take a while.
fn bar_over(total: u64, quiet: &Quiet) -> Bar {
    if total < WORTH_A_BAR {
        Bar::none()
    } else {
        quiet.bar(total, "reading {bar:30} {bytes} of {total_bytes}, {eta} left")
    }
}

fn moves(bar: &Bar) -> Option<Arc<dyn Fn(u64) + Send + Sync>> {
    let bar = bar.drawn()?;
    Some(Arc::new(move |bytes| bar.inc(bytes)))
}
