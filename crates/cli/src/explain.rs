//! `busbw explain`: reads the inputs, judges them, prints the answer.

use crate::cli::{Color, Explain, Format};
use busbw_ingest::{ReadOptions, Source, read};
use busbw_model::{Diagnosis, Run};
use busbw_report::{html, json, text};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;

/// Runs the subcommand; the exit status tells whether there are findings to act on.
pub fn run(flags: &Explain) -> Result<ExitCode, String> {
    let sources: Vec<Source> = flags.files.iter().map(|path| Source::from_arg(path)).collect();
    let progress = Progress::over(&sources);
    let options = ReadOptions { threads: flags.threads, progress: progress.callback() };
    let run = read(&sources, &options);
    progress.finish();
    let run = run.map_err(|e| e.to_string())?;
    if run.is_empty() {
        return Err(nothing_readable(&run));
    }
    let diagnosis = busbw_diagnose::diagnose(&run);
    match &flags.output {
        Some(path) => {
            let failed = |e: io::Error| format!("{}: {e}; choose a place that can be written", path.display());
            let file = File::create(path).map_err(failed)?;
            print(flags, &run, &diagnosis, &mut BufWriter::new(file)).map_err(failed)?;
        }
        None => match print(flags, &run, &diagnosis, &mut BufWriter::new(io::stdout().lock())) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {} // the reader has seen enough
            other => other.map_err(|e| format!("standard output: {e}"))?,
        },
    }
    let problems = diagnosis.has_problems();
    std::mem::forget(run); // the process ends here; taking a large model apart would only take time
    Ok(if problems { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn print(flags: &Explain, run: &Run, diagnosis: &Diagnosis, out: &mut dyn Write) -> io::Result<()> {
    match if flags.json { Format::Json } else { flags.format } {
        Format::Json => json::write_explain(run, diagnosis, out)?,
        Format::Html => out.write_all(html::explain(run, diagnosis).as_bytes())?,
        Format::Text => out.write_all(text::explain(run, diagnosis, &style(flags)).as_bytes())?,
    }
    out.flush()
}

fn style(flags: &Explain) -> text::Style {
    let terminal = flags.output.is_none() && io::stdout().is_terminal();
    let allowed = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
        && std::env::var_os("TERM").is_none_or(|t| t != "dumb");
    let color = match flags.color {
        Color::Auto => terminal && allowed,
        Color::Always => true,
        Color::Never => false,
    };
    let columns = terminal.then(terminal_size::terminal_size).flatten().map(|(width, _)| usize::from(width.0));
    text::Style { color, width: flags.width.or(columns).unwrap_or(100) }
}

fn nothing_readable(run: &Run) -> String {
    let paths: Vec<&str> = run.inputs.iter().map(|i| i.path.as_str()).collect();
    let shown = match paths.as_slice() {
        [a, b, c, rest @ ..] if !rest.is_empty() => format!("{a}, {b}, {c} and {} more", rest.len()),
        all => all.join(", "),
    };
    format!(
        "{shown}: nothing that busbw knows (nccl-tests tables, NCCL logs, nvidia-smi topo -m, NCCL topology XML, perftest); \
         give the output of the run, with NCCL_DEBUG=INFO"
    )
}

/// A progress bar on the terminal for inputs that take a while.
struct Progress {
    bar: Option<ProgressBar>,
}

/// Smaller inputs are done before a bar is drawn.
const WORTH_A_BAR: u64 = 64 << 20;

impl Progress {
    fn over(sources: &[Source]) -> Self {
        let total: u64 = sources.iter().filter_map(Source::size).sum();
        let bar = (total >= WORTH_A_BAR && io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(10));
            let style = ProgressStyle::with_template("reading {bar:30} {bytes} of {total_bytes}, {eta} left");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Progress { bar }
    }

    fn callback(&self) -> Option<Arc<dyn Fn(u64) + Send + Sync>> {
        let bar = self.bar.clone()?;
        Some(Arc::new(move |bytes| bar.inc(bytes)))
    }

    fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
