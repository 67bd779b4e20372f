//! `busbw doctor` on this machine: the check, the benchmark's table as it grows, then the answer.

use crate::cli::Doctor;
use crate::{check, output};
use busbw_diagnose::{Book, UserFacts, diagnose_with};
use busbw_ingest::read_bytes;
use busbw_launch::command::this_program;
use busbw_probe::Program;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// What the facts of the check are called among the inputs.
const FACTS: &str = "busbw check";

pub fn run(flags: &Doctor, book: &Book) -> Result<ExitCode, String> {
    let style = flags.screen.style(flags.output.file());
    let (facts, healthy) = check::this_node(flags.shows().then_some(&style), book)?;
    let test = Test::of_this_machine(flags)?;
    if !flags.quiet.quiet {
        output::say(&test.what);
    }
    let (printed, succeeded) = test.run(!flags.shows())?;
    if printed.is_empty() {
        return Err(format!("{} printed nothing; run it by hand: {}", test.name(), test.line()));
    }
    let name = test.line();
    let run = read_bytes(&[(&name, printed.as_bytes()), (FACTS, &facts)]).map_err(|e| e.to_string())?;
    let diagnosis = diagnose_with(&run, &UserFacts { book: Some(book), ..UserFacts::default() });
    super::answer(flags, run, &diagnosis)?;
    let status = if succeeded && healthy { diagnosis.verdict.exit_status() } else { 1 };
    Ok(ExitCode::from(status))
}

/// The benchmark that measures this machine.
struct Test {
    command: Vec<OsString>,
    what: String,
}

impl Test {
    /// nccl-tests on the GPUs, where there are both; else the embedded engine on the cores.
    fn of_this_machine(flags: &Doctor) -> Result<Self, String> {
        let gpus = nvidia_gpus();
        let sizes = ["-b", "8", "-e", &flags.max_bytes, "-f", "2"].map(OsString::from);
        if gpus > 0
            && let Some(program) = Program::find("all_reduce_perf")
        {
            let mut command = vec![program.into_os_string()];
            command.extend(sizes);
            command.extend(["-g".into(), gpus.to_string().into()]);
            return Ok(Test { command, what: format!("measuring {gpus} GPUs with nccl-tests") });
        }
        let busbw = this_program().map_err(|e| e.to_string())?;
        let cores = std::thread::available_parallelism().map_or(2, |n| n.get());
        let ranks = flags.np.map_or(cores.clamp(2, 8), |np| np.get());
        let mut command = vec![busbw.into_os_string(), "bench".into(), "all_reduce".into()];
        command.extend(["--backend".into(), "cpu".into(), "--np".into(), ranks.to_string().into()]);
        command.extend(sizes);
        let why = match gpus {
            0 => "no GPU here".to_owned(),
            n => format!("{n} GPUs, but all_reduce_perf of nccl-tests is not on the PATH"),
        };
        Ok(Test { command, what: format!("{why}: measuring {ranks} ranks on {cores} cores with the embedded engine") })
    }

    fn name(&self) -> String {
        Path::new(&self.command[0]).file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The command as a person would type it.
    fn line(&self) -> String {
        let arguments = self.command[1..].iter().map(|argument| argument.to_string_lossy().into_owned());
        std::iter::once(self.name()).chain(arguments).collect::<Vec<_>>().join(" ")
    }

    /// Runs it; what it printed, and whether it succeeded. Shows the lines as they come, unless `quiet`.
    fn run(&self, quiet: bool) -> Result<(String, bool), String> {
        let failed = |e: io::Error| format!("{}: {e}", self.line());
        let mut child = Command::new(&self.command[0])
            .args(&self.command[1..])
            .env("NCCL_DEBUG", std::env::var_os("NCCL_DEBUG").unwrap_or_else(|| "INFO".into()))
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut printed = String::new();
        if let Some(stdout) = child.stdout.take() {
            let (mut terminal, mut watched) = (io::stdout().lock(), !quiet);
            for line in BufReader::new(stdout).split(b'\n') {
                let line = line.map_err(failed)?;
                let line = String::from_utf8_lossy(&line);
                if watched && !line.contains(" NCCL ") {
                    // If the terminal is closed, the benchmark still runs to its end, and the report is written.
                    watched = writeln!(terminal, "{line}").is_ok();
                }
                printed.push_str(&line);
                printed.push('\n');
            }
        }
        let status = child.wait().map_err(failed)?;
        Ok((printed, status.success()))
    }
}

/// GPUs whose device files NVIDIA's driver has made.
fn nvidia_gpus() -> usize {
    (0..64).filter(|gpu| Path::new(&format!("/dev/nvidia{gpu}")).exists()).count()
}
