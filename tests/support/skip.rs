//! Why a test cannot run here, how that is told, and what tests look for before they begin.

use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Why a test cannot run here.
#[derive(Debug)]
pub struct Skip(pub String);

impl Skip {
    /// Tells it, because a skipped test passes.
    ///
    /// # Panics
    /// `BUSBW_SKIP` is `fail`: the machine is one that can run this test.
    pub fn say(self) {
        let Skip(why) = &self;
        assert!(std::env::var("BUSBW_SKIP").as_deref() != Ok("fail"), "skipped, where BUSBW_SKIP=fail: {why}");
        self.of_hardware();
    }

    /// Tells of hardware that is missing, which fails no run: on standard error, past the capture of test output, and in
    /// the file that the Makefile prints at the end.
    pub fn of_hardware(self) {
        let test = std::thread::current().name().unwrap_or("a test").to_string();
        let line = format!("skipped {test}: {}\n", self.0);
        let list =
            std::env::var_os("BUSBW_SKIPPED").map(|path| std::fs::File::options().create(true).append(true).open(path));
        if let Some(Ok(mut list)) = list {
            // A lost message is no reason to fail.
            let _ = list.write_all(line.as_bytes());
        }
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

/// What a test needs, or the end of the test: it says why it cannot run here.
#[allow(unused_macros, reason = "tests of other programs use it")]
macro_rules! needed {
    ($found:expr) => {
        match $found {
            Ok(found) => found,
            Err(skip) => return skip.say(),
        }
    };
}
#[allow(unused_imports, reason = "tests of other programs use it")]
pub(crate) use needed;

/// The top of the repository.
pub fn root_folder() -> PathBuf {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let top = folders.find(|folder| folder.join("Cargo.lock").exists());
    top.and_then(|folder| folder.canonicalize().ok()).expect("the tests run where they were built")
}

pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// These programs, all of them.
pub fn programs(names: &[&str]) -> Result<(), Skip> {
    let missing: Vec<&str> = names.iter().copied().filter(|name| find(name).is_none()).collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Skip(format!("missing: {}; make setup installs it", missing.join(", "))))
    }
}

pub fn c_compiler() -> Result<PathBuf, Skip> {
    let found = ["cc", "gcc", "clang"].into_iter().find_map(find);
    found.ok_or_else(|| Skip("there is no C compiler (cc, gcc or clang)".into()))
}
