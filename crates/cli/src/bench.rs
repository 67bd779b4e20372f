//! `busbw bench`, also under the names of nccl-tests' programs.

use crate::cli::Bench;
use crate::command::Cli;
use crate::flags::PrometheusFile;
use crate::output::{self, Refusal};
use crate::values::read_collective;
use busbw_bench::flags::BackendName;
use busbw_bench::job::{self, Call};
use busbw_bench::{Error, Flags, flags};
use busbw_ingest::{ReadOptions, Source};
use busbw_launch::command::this_program;
use busbw_model::Collective;
use busbw_report::prometheus;
use clap::CommandFactory;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

pub fn run(bench: &Bench) -> Result<ExitCode, Refusal> {
    let words: Vec<String> = bench.first.iter().chain(&bench.others).cloned().collect();
    let (collective, hosts) = bench.collective.among(&words);
    let collective = match (collective, hosts) {
        (Some(collective), _) => collective,
        (None, words) => {
            let name = words.first().map_or("", String::as_str);
            read_collective(name).map_err(|names| format!("{name}: no collective; {names}"))?
        }
    };
    let mut flags = bench.flags.clone();
    if !hosts.is_empty() {
        flags.hosts = Some(hosts.join(","));
    }
    start(collective, flags, BackendName::Cpu, |_| without(hosts, std::env::args_os().skip(1)))
}

/// The words of this command line but for the hosts among its arguments: ranks that found them would start ranks of their own.
fn without(hosts: &[String], words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let command = Cli::command();
    let flags = command.find_subcommand("bench").map(clap::Command::get_arguments);
    let valued: Vec<&clap::Arg> = flags.into_iter().flatten().filter(|flag| flag.get_action().takes_values()).collect();
    let takes_the_next = |word: &str| match word.strip_prefix("--") {
        Some(name) => valued.iter().any(|flag| {
            let names = flag.get_long().into_iter().chain(flag.get_all_aliases().into_iter().flatten());
            names.into_iter().any(|long| long.starts_with(name))
        }),
        None => valued.iter().any(|flag| flag.get_short().is_some_and(|short| word == format!("-{short}"))),
    };
    let mut is_value = false;
    let mut kept = Vec::new();
    for word in words {
        let text = word.to_string_lossy().into_owned();
        if is_value || !hosts.contains(&text) {
            kept.push(word);
        }
        is_value = !is_value && takes_the_next(&text);
    }
    kept
}

/// Runs as the program of nccl-tests that this process is called by the name of, if it is one.
pub fn run_as_program() -> Option<Result<ExitCode, Refusal>> {
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let (path, collective) = flags::called_program(&words)?;
    let name: &'static str = Box::leak(path.rsplit('/').next()?.to_owned().into_boxed_str());
    Some(match Flags::parse(name, std::env::args_os()) {
        Ok(flags) => start(collective, flags, BackendName::Auto, |flags| as_busbw(collective, flags)),
        Err(error) => output::refuse(&error),
    })
}

/// The arguments of the ranks that such a program starts. They are started by the file that the link leads to.
fn as_busbw(collective: Collective, flags: &Flags) -> Vec<OsString> {
    let backend = flags.backend.map_or("auto", BackendName::name);
    let words = ["bench", collective.name(), "--backend", backend].map(OsString::from);
    words.into_iter().chain(std::env::args_os().skip(1)).collect()
}

/// Begins, with the backend that is asked for, else with `default`; `arguments` are those of ranks that are to be started.
fn start(
    collective: Collective,
    mut flags: Flags,
    default: BackendName,
    arguments: impl FnOnce(&Flags) -> Vec<OsString>,
) -> Result<ExitCode, Refusal> {
    output::open()?;
    let look = |name: &str| std::env::var(name).ok();
    flags.choose_backend(default, &look).map_err(|error| error.to_string())?;
    // Other hosts find out for themselves.
    let (driver, on_cores) = if flags.hosts.is_none() { flags.settle_backend(&look) } else { (None, None) };
    let remarks: Vec<String> = flags.adjustments().into_iter().chain(on_cores).collect();
    if !remarks.is_empty() && flags.hosts.is_none() && output::speaks_for_the_job() {
        remarks.iter().for_each(output::remark);
    }
    let program = this_program().map_err(|e| e.to_string())?;
    let arguments = arguments(&flags);
    let file = PrometheusFile::at(flags.prometheus_file.as_deref());
    let text = flags.prometheus_file.as_ref().map(|_| Vec::new());
    let mut out = Kept { out: Answer::at(flags.output.clone()), text };
    let status = job::run(&Call { collective, flags, driver, program, arguments }, &look, &mut out);
    write_metrics(&file, out.text)?;
    ended(status)
}

fn ended(status: busbw_bench::Result<i32>) -> Result<ExitCode, Refusal> {
    let status = match status {
        Ok(status) => u8::try_from(status).unwrap_or(1),
        Err(Error::Launch(error)) => return Err(error.into()),
        Err(error) if error.is_unread() => 0,
        Err(error) if error.is_told_by_rank_0() => error.status(),
        Err(error) if error.status() == 2 => return Err(error.to_string().into()),
        Err(error) => {
            output::say(&error);
            error.status()
        }
    };
    Ok(ExitCode::from(status))
}

/// Where the answer goes as it comes. A file is made with its first byte: ranks that print nothing leave it alone.
enum Answer {
    Printed(io::Stdout),
    Written { path: PathBuf, made: Option<File> },
}

impl Answer {
    fn at(file: Option<PathBuf>) -> Self {
        file.map_or_else(|| Answer::Printed(io::stdout()), |path| Answer::Written { path, made: None })
    }

    fn open(&mut self) -> io::Result<&mut dyn io::Write> {
        match self {
            Answer::Printed(out) => Ok(out),
            Answer::Written { made: Some(file), .. } => Ok(file),
            Answer::Written { path, made } => {
                let file = File::create(&*path)
                    .map_err(|why| io::Error::new(why.kind(), format!("{}: {why}", path.display())))?;
                Ok(made.insert(file))
            }
        }
    }
}

/// The answer, of which what is needed for metrics is kept.
struct Kept {
    out: Answer,
    text: Option<Vec<u8>>,
}

impl io::Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.open()?.write(bytes)?;
        if let Some(text) = &mut self.text {
            text.extend_from_slice(&bytes[..written]);
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.open()?.flush()
    }
}

/// The table that was printed, as metrics. A process that has printed none, as every rank but 0, leaves the file alone.
fn write_metrics(file: &PrometheusFile, text: Option<Vec<u8>>) -> Result<(), String> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(()) };
    let source = Source::Bytes("the table".to_owned(), text);
    let Ok(read) = busbw_ingest::read(&[source], &ReadOptions::default()) else { return Ok(()) };
    if read.tables.is_empty() {
        return Ok(());
    }
    output::metrics(file, "bench", |metrics| prometheus::tables("bench", &read.tables, metrics))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_not_told_the_hosts_among_the_arguments() {
        for (hosts, given, kept) in [
            ("a:8 b:8", "bench all_reduce a:8 b:8 -b 8", "bench all_reduce -b 8"),
            ("a", "bench all_reduce -b 8 a --dry-run", "bench all_reduce -b 8 --dry-run"),
            ("ring", "bench all_reduce --algo ring ring", "bench all_reduce --algo ring"),
            ("half", "bench --collective all_reduce -d half half", "bench --collective all_reduce -d half"),
            ("x", "bench all_reduce --nic-traffic x --checksum", "bench all_reduce --nic-traffic --checksum"),
            ("x", "bench all_reduce --minb=8 x --json", "bench all_reduce --minb=8 --json"),
        ] {
            let hosts: Vec<String> = hosts.split(' ').map(str::to_owned).collect();
            let words = without(&hosts, given.split(' ').map(OsString::from));
            assert_eq!(words.join(std::ffi::OsStr::new(" ")), kept);
        }
    }
}
