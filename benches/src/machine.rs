//! Where and of what a measurement was made: machine, date, commit, tool versions. Nothing that names the host.

use serde::Serialize;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use time::OffsetDateTime;
use time::macros::format_description;

/// The machine that measured. What Linux does not say is empty or zero.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// The processor's model name.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Main memory in bytes.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
}

/// What may differ from a commit: all but what a measurement itself writes (`benches/origin.py` has the same).
const MEASURED: &[&str] = &[":(top)", ":(top,exclude)benches/results", ":(top,exclude)docs/benchmarks.md"];

/// The commit that was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Commit {
    pub hash: String,
    /// Whether files differ from it, but for results.
    pub modified: bool,
}

impl Machine {
    pub fn this() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Machine {
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: kilobytes(&read("/proc/meminfo"), "MemTotal").unwrap_or(0),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
        }
    }
}

impl Commit {
    /// The commit checked out in the working directory; none outside a git repository.
    pub fn checked_out() -> Option<Self> {
        let git = |arguments: &[&str]| {
            let output = Command::new("git").args(arguments).stderr(Stdio::null()).output().ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
        };
        let hash = git(&["rev-parse", "HEAD"])?;
        let modified = !git(&[&["status", "--porcelain", "--"], MEASURED].concat())?.is_empty();
        Some(Commit { hash, modified })
    }
}

/// The first line that `program --version` prints; none when it prints nothing or fails.
pub fn tool_version(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next()?.trim();
    (output.status.success() && !line.is_empty()).then(|| line.to_string())
}

/// Processes that ran or waited to run in the last minute, on average; none where Linux does not say.
pub fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// The date and time in UTC, `2026-03-31T16:36:04Z`.
pub fn utc_now() -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");
    OffsetDateTime::now_utc().format(format).unwrap_or_default()
}

/// The value of `name: value` in the text of a `/proc` file.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_string())
    })
}

/// The value of `name: 123 kB` in the text of a `/proc` file, in bytes.
pub fn kilobytes(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.strip_suffix("kB")?.trim().parse::<u64>().ok().map(|value| value * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_fields_are_found_by_their_whole_name() {
        let status = "VmRSS:\t    2048 kB\nRssAnon:\t     512 kB\nRssFile:\t    1536 kB\n";
        assert_eq!(kilobytes(status, "RssAnon"), Some(512 << 10));
        assert_eq!(kilobytes(status, "Rss"), None);
    }
}
