//! Where Python keeps packages: PyTorch brings NCCL and NVRTC along.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Python starts in a tenth of a second; on a cold network file system in some.
const LIMIT: Duration = Duration::from_secs(10);
/// Prints folders of packages and imports none of them.
const ASK: &str = "import site, sys, sysconfig\n\
                   paths = [sysconfig.get_path('purelib'), sysconfig.get_path('platlib'), site.getusersitepackages()]\n\
                   print('\\n'.join(p for p in dict.fromkeys(paths + sys.path) if p))";

/// The folders that the `python3` of `PATH` imports packages from, in its order; none where there is no Python.
pub(crate) fn site_packages() -> Vec<PathBuf> {
    let mut python = Command::new("python3");
    python.args(["-c", ASK]).stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped());
    let Ok(mut child) = python.spawn() else { return Vec::new() };
    let since = Instant::now();
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.success(),
            Ok(None) if since.elapsed() < LIMIT => std::thread::sleep(Duration::from_millis(10)),
            _ => break false,
        }
    };
    if !ended {
        // It may have ended in this moment; either way it is reaped.
        let _ = child.kill();
        let _ = child.wait();
        return Vec::new();
    }
    let mut text = String::new();
    let read = child.stdout.take().map(|mut out| out.read_to_string(&mut text));
    if !matches!(read, Some(Ok(_))) {
        return Vec::new();
    }
    text.lines().map(PathBuf::from).filter(|folder| folder.is_dir()).collect()
}
