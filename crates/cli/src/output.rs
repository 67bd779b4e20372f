//! Where answers go: standard output, or a file, which replaces another only when it is whole; and what is said beside them.

use crate::flags::{Formats, Output, PrometheusFile};
use busbw_launch::{JobRank, Started};
use busbw_model::metrics::Metrics;
use busbw_model::text::clean;
use clap::ArgMatches;
use clap::parser::ValueSource;
use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Has `print` write to the file, or to standard output without one. A reader of standard output that leaves early has
/// seen enough: that is no error.
pub fn write(file: Option<&Path>, print: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), String> {
    let Some(path) = file else {
        open()?;
        return match flushed(io::stdout().lock(), print) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(|e| format!("standard output: {e}")),
        };
    };
    replace(path, print).map_err(|e| format!("{}: {e}; choose a place that can be written", path.display()))
}

/// Writes beside the file first: where the disk is full or somebody interrupts, what was there before is there still.
fn replace(path: &Path, print: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    // A link stays a link.
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let there = path.metadata().ok();
    if there.as_ref().is_some_and(|there| !there.is_file()) {
        return flushed(File::create(path)?, print);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Of a new file's permissions, the umask takes its part.
    let new = Permissions::from_mode(0o666);
    let mut file = tempfile::Builder::new().prefix(".busbw-").permissions(new).tempfile_in(folder).map_err(unmade)?;
    flushed(&mut file, print)?;
    if let Some(there) = there {
        file.as_file().set_permissions(there.permissions())?;
    }
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// The error of a file beside the one that was asked for, whose name would tell nobody anything.
fn unmade(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(io::ErrorKind::NotFound, "there is no such folder"),
        kind => kind.into(),
    }
}

/// Writes the answer where the flags say, and as what they say: JSON by `json`, other formats by `other`.
pub fn answer<F: Formats>(
    flags: &Output<F>,
    json: impl Fn(&mut dyn Write) -> io::Result<()>,
    other: impl FnOnce(F, &mut dyn Write) -> io::Result<()>,
) -> Result<(), String> {
    let format = flags.format();
    write(flags.file(), |out| if format == F::JSON { json(out) } else { other(format, out) })?;
    flags.json_file().map_or(Ok(()), |path| write(Some(path), json))
}

/// Has `fill` make the metrics of an answer, where a file for them is given, and writes when that was.
pub fn metrics(flags: &PrometheusFile, command: &str, fill: impl FnOnce(&mut Metrics)) -> Result<(), String> {
    let Some(path) = flags.file() else { return Ok(()) };
    let mut metrics = Metrics::default();
    fill(&mut metrics);
    let now = busbw_probe::counters::now_us() as f64 / 1e6;
    metrics.set(&format!("busbw_{command}_timestamp_seconds"), "When the answer was given.", &[], now);
    write(Some(path), |out| write!(out, "{metrics}"))
}

/// Flags that name a file to write.
const WRITTEN: [&str; 9] =
    ["output", "json", "save", "junit", "record", "perfetto", "prometheus_file", "trace", "tuning_table"];

/// Set before `main`: Rust opens /dev/null in the place of a standard stream that is closed.
static CLOSED: AtomicBool = AtomicBool::new(false);

#[allow(unsafe_code)] // the loader calls it, and asks for nothing but its signature
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = {
    extern "C" fn look() {
        // SAFETY: a system call on a number.
        let flags = unsafe { nix::libc::fcntl(nix::libc::STDOUT_FILENO, nix::libc::F_GETFD) };
        CLOSED.store(flags < 0, Ordering::Relaxed);
    }
    look
};

/// Whether this process says what is to be said once for a job: rank 0 does, or who starts the ranks of this host.
pub fn speaks_for_the_job() -> bool {
    let look = |name: &str| std::env::var(name).ok();
    let is_told_before = look("BUSBW_LISTENER").is_some() || JobRank::detect(&look).is_ok_and(|job| job.rank > 0);
    let tells_later =
        std::env::args_os().any(|word| word == "--hosts" || word.as_encoded_bytes().starts_with(b"--hosts="));
    !is_told_before && !tells_later
}

/// Refuses to print where nothing would take it: the answer would be lost, and the exit status would be all that is told.
pub fn open() -> Result<(), String> {
    if CLOSED.load(Ordering::Relaxed) {
        return Err("standard output is closed; open it, or write to a file where the command has -o".into());
    }
    Ok(())
}

/// Refuses what would lose something, before anything runs: a closed standard output, and an output that the same command
/// line reads: a file, a file of a folder, or standard input.
pub fn refuse_loss(matches: &ArgMatches) -> Result<(), String> {
    let mut prints_in_quiet = true;
    let mut matches = matches;
    while let Some((name, of_subcommand)) = matches.subcommand() {
        (matches, prints_in_quiet) = (of_subcommand, name != "monitor");
    }
    let given = |id: &clap::Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
    let elsewhere = |id: &clap::Id| match id.as_str() {
        "output" | "directory" => given(id),
        "quiet" => given(id) && !prints_in_quiet,
        _ => false,
    };
    if !matches.ids().any(elsewhere) {
        open()?;
    }
    let values = |id: &str| matches.try_get_raw(id).ok().flatten().into_iter().flatten().map(PathBuf::from);
    let ids = matches.ids().map(clap::Id::as_str);
    let (written, read): (Vec<&str>, Vec<&str>) = ids.partition(|id| WRITTEN.contains(id));
    let read = read.into_iter().flat_map(values).chain([PathBuf::from("/dev/stdin")]);
    let read: Vec<(PathBuf, (u64, u64))> =
        read.filter_map(|path| Some((path.canonicalize().ok()?, identity(&path)?))).collect();
    for flag in written {
        for path in values(flag).filter(|path| path.is_file()) {
            let (own, whole) = (identity(&path), path.canonicalize().unwrap_or_default());
            if read.iter().any(|(other, identity)| Some(*identity) == own || other.is_dir() && whole.starts_with(other))
            {
                let flag = flag.replace('_', "-");
                return Err(format!("{}: this command reads it; choose another file for --{flag}", path.display()));
            }
        }
    }
    Ok(())
}

/// The number of a file, whatever it is called: its device and inode.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let file = fs::metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

/// A page, signed with what makes it evidence a week later: the version, the command line, where it ran, and when.
pub fn page(out: &mut dyn Write, page: &busbw_report::html::Page) -> io::Result<()> {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let line = std::iter::once("busbw".into()).chain(words).collect::<Vec<String>>().join(" ").replace('`', "'");
    let host = busbw_launch::host::name(&|name| std::env::var(name).ok());
    let now = busbw_monitor::time::utc(busbw_probe::counters::now_us());
    let signature = format!("busbw {} · `{line}` · on {host} · {now}", env!("CARGO_PKG_VERSION"));
    out.write_all(page.signed(&signature).as_bytes())
}

/// What is said of a file that cannot be read.
pub fn unread(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("{}: no such file; check the path", path.display()),
        _ => format!("{}: {error}", path.display()),
    }
}

/// Why a command ends without an answer: what is said, and the exit status.
pub struct Refusal {
    pub message: String,
    pub status: u8,
}

/// Bad usage, or unreadable input.
impl From<String> for Refusal {
    fn from(message: String) -> Self {
        Refusal { message, status: 2 }
    }
}

/// Ends a command that runs with several ranks: with rank 0's `answer`, a command line, or a status.
pub fn finish<T>(
    ended: busbw_launch::Result<Started<T>>,
    answer: impl FnOnce(T) -> Result<ExitCode, String>,
) -> Result<ExitCode, Refusal> {
    Ok(match ended? {
        Started::Here(found) => answer(found)?,
        Started::CommandLine(line) => write(None, |out| writeln!(out, "{line}")).map(|()| ExitCode::SUCCESS)?,
        Started::Ended(status) => ExitCode::from(u8::try_from(status).unwrap_or(1)),
    })
}

/// A line for people on standard error. Nobody need read it, and what it tells of goes on. Names of files and hosts, which others
/// may have chosen, do not steer the terminal.
pub fn say(text: impl Display) {
    tell("busbw: ", &text);
}

/// [`say`], as a comment of the table that others put standard error into: cloudai takes any line of eleven words for a row
/// (`_extract_max_bus_bandwidth` of its `nccl_test/grading_strategy.py`).
pub fn remark(text: impl Display) {
    tell("# busbw: ", &text);
}

/// In one write: launchers and other ranks write to the same standard error.
fn tell(speaker: &str, text: &dyn Display) {
    let line = format!("{speaker}{}\n", clean(&text.to_string()));
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Ends the process with what is wrong with its command line: in clap's colours, unless an argument, which it shows, would steer the
/// terminal.
pub fn refuse(error: &clap::Error) -> ! {
    let steers = |word: OsString| matches!(clean(&word.to_string_lossy()), Cow::Owned(_));
    if !std::env::args_os().any(steers) {
        error.exit();
    }
    let _ = write!(io::stderr(), "{}", clean(&error.render().to_string()));
    std::process::exit(error.exit_code());
}

fn flushed(out: impl Write, print: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    print(&mut out)?;
    out.flush()
}
