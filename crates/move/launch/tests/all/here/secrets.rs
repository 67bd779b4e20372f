//! Where the ranks of a job have its token from: munge, a file, BUSBW_TOKEN, or nowhere.

use super::launchers::{command, ended, joined, who};
use crate::process::{Ended, LIMIT, Running, signal};
use crate::script::executable;
use crate::skip::{Skip, find, needed, programs};
use std::collections::HashMap;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const TOKEN: &str = "00112233445566778899aabbccddeeff";

/// A job of two ranks with torchrun's variables, each started by hand: it has a home, and programs of its own.
struct Job {
    folder: TempDir,
    variables: HashMap<String, String>,
}

impl Job {
    /// Of one host, whose agent keeps no store.
    fn new() -> Job {
        let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/environments/torchrun.env");
        let recorded = std::fs::read_to_string(recorded).unwrap();
        let variables = recorded.lines().filter_map(|line| line.split_once('='));
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let job = Job { folder: tempfile::tempdir().unwrap(), variables };
        job.with(&[("TORCHELASTIC_RUN_ID", &format!("test {:?}", std::thread::current().id()))])
            .with(&[("MASTER_PORT", &free_port().to_string())])
    }

    fn with(mut self, variables: &[(&str, &str)]) -> Job {
        self.variables.extend(variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())));
        self
    }

    /// Where ranks look for munge, and nothing else.
    fn programs(&self, rank: usize) -> PathBuf {
        let folder = self.folder.path().join(format!("bin{rank}"));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn start(&self, rank: usize, variables: &[(&str, &str)]) -> Running {
        let mut one = command(who());
        one.args(["--timeout", "20"]).envs(&self.variables).env("PATH", self.programs(rank));
        one.env("HOME", self.folder.path()).env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string());
        Running::start(one.envs(variables.iter().copied()))
    }

    /// Rank 0 and 1, with variables of their own.
    fn run(&self, zero: &[(&str, &str)], one: &[(&str, &str)]) -> [Ended; 2] {
        let (mut one, mut zero) = (self.start(1, one), self.start(0, zero));
        [zero.ended(LIMIT), one.ended(LIMIT)]
    }

    /// Tokens in files of this job.
    fn files(&self) -> usize {
        std::fs::read_dir(self.folder.path().join(".cache/busbw/jobs")).map_or(0, Iterator::count)
    }
}

pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn assert_joined(outputs: &[Ended; 2], way: &str) {
    joined(&outputs[0], &format!("launcher Torchrun way {way} size 2 gathered 0,1 here 2"));
    assert!(outputs[1].status.success(), "{outputs:?}");
}

/// Whether rank 0 has warned, once.
fn warned(outputs: &[Ended; 2]) -> bool {
    let [zero, one] = outputs.each_ref().map(|ended| ended.stderr.as_str());
    let warnings = |errors: &str| errors.matches("anyone who knows this job's id can join it").count();
    assert_eq!((warnings(one), warnings(zero).max(1)), (0, 1), "{zero}{one}");
    if warnings(zero) == 1 {
        assert!(zero.lines().count() == 1 && zero.contains("BUSBW_TOKEN=$(openssl rand -hex 16)"), "{zero}");
    }
    warnings(zero) == 1
}

/// A munge daemon with a key of its own, until dropped, and programs that ask it.
struct Munge {
    daemon: Child,
    folder: TempDir,
}

impl Munge {
    fn start() -> Result<Munge, Skip> {
        programs(&["munge", "unmunge", "munged"])?;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let key: Vec<u8> = (0..64).flat_map(|_| std::fs::read("/proc/sys/kernel/random/uuid").unwrap()).collect();
        std::fs::write(at("key"), key).unwrap();
        std::fs::set_permissions(at("key"), std::fs::Permissions::from_mode(0o600)).unwrap();
        let mut daemon = Command::new(find("munged").unwrap());
        daemon.args(["--foreground", "--force"]).stdout(Stdio::null()).stderr(Stdio::null());
        for (option, name) in
            [("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed")]
        {
            daemon.arg(format!("--{option}={}", at(name).display()));
        }
        let munge = Munge { daemon: daemon.spawn().unwrap(), folder };
        let since = Instant::now();
        while !munge.program("munge").arg("--no-input").output().unwrap().status.success() {
            assert!(since.elapsed() < Duration::from_secs(30), "munged does not come up");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(munge)
    }

    fn program(&self, name: &str) -> Command {
        let mut program = Command::new(find(name).unwrap());
        program.arg(format!("--socket={}", self.folder.path().join("socket").display())).stdin(Stdio::null());
        program
    }

    /// Puts munge and unmunge that ask this daemon into a folder.
    fn install(&self, folder: &Path) {
        for name in ["munge", "unmunge"] {
            let (program, socket) = (find(name).unwrap(), self.folder.path().join("socket"));
            let script = format!("#!/bin/sh\nexec {} --socket={} \"$@\"\n", program.display(), socket.display());
            executable(&folder.join(name), &script);
        }
    }
}

impl Drop for Munge {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

#[test]
fn a_file_in_the_home_directory_that_goes_when_all_have_come() {
    let job = Job::new();
    // Left by a job that was killed.
    let folder = job.folder.path().join(".cache/busbw/jobs");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).unwrap();
    for _ in 0..2 {
        let outputs = job.run(&[], &[]);
        assert_joined(&outputs, "Derived");
        assert!(!warned(&outputs));
        assert_eq!(job.files(), 0);
    }
    let mut alone = job.start(0, &[]);
    let since = Instant::now();
    while job.files() == 0 {
        assert!(since.elapsed() < Duration::from_secs(30), "rank 0 writes no file");
        std::thread::sleep(Duration::from_millis(10));
    }
    signal(alone.id(), "KILL");
    alone.ended(LIMIT);
    assert_eq!(job.files(), 1);
    assert_joined(&job.run(&[], &[]), "Derived");
    assert_eq!(job.files(), 0);
}

#[test]
fn a_file_that_a_rank_does_not_see_is_named() {
    let job = Job::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let [zero, one] = job.run(&[], &[("HOME", elsewhere.path().to_str().unwrap())]);
    let errors = one.stderr;
    assert!(!zero.status.success() && !one.status.success());
    assert!(errors.lines().count() == 1 && errors.contains("this rank cannot read it there"), "{errors}");
    assert!(errors.contains(elsewhere.path().to_str().unwrap()) && errors.contains("BUSBW_TOKEN="), "{errors}");
}

#[test]
fn munge_where_its_daemon_answers() {
    let munge = needed!(Munge::start());
    let job = Job::new();
    (0..2).for_each(|rank| munge.install(&job.programs(rank)));
    let outputs = job.run(&[], &[]);
    assert_joined(&outputs, "Derived");
    assert!(!warned(&outputs) && job.files() == 0);
}

#[test]
fn hosts_that_disagree_about_munge_say_so() {
    let (munge, other) = (needed!(Munge::start()), needed!(Munge::start()));
    for (host, says) in [
        (Some(&other), "munge on this host does not accept rank 0's credential ("),
        (None, "rank 0 shares this job's token by munge, this rank by file"),
    ] {
        let job = Job::new();
        munge.install(&job.programs(0));
        host.iter().for_each(|host| host.install(&job.programs(1)));
        let [zero, one] = job.run(&[], &[]);
        let errors = one.stderr;
        assert!(!zero.status.success() && !one.status.success());
        assert!(errors.lines().count() == 1 && errors.contains(says) && errors.contains("BUSBW_TOKEN="), "{errors}");
    }
}

/// Several hosts without a home that all see, and without munge.
#[test]
fn a_token_that_is_no_secret_is_warned_of_and_busbw_token_cures_it() {
    let job = Job::new().with(&[("LOCAL_WORLD_SIZE", "1")]);
    let outputs = job.run(&[], &[]);
    assert_joined(&outputs, "Derived");
    assert!(warned(&outputs));
    let outputs = job.run(&[("BUSBW_TOKEN", TOKEN)], &[("BUSBW_TOKEN", TOKEN)]);
    assert_joined(&outputs, "Derived");
    assert!(!warned(&outputs));
    // On one rank only, it is said which way the other took.
    let [zero, one] = job.run(&[("BUSBW_TOKEN", TOKEN)], &[]);
    let errors = one.stderr;
    assert!(errors.contains("rank 0 shares this job's token by BUSBW_TOKEN, this rank by derived"), "{errors}");
    assert!(!zero.status.success());
    // Another token, on ports that are the same: nobody is let in.
    let other = TOKEN.replace('0', "f");
    let [zero, one] = job.run(&[("BUSBW_TOKEN", TOKEN)], &[("BUSBW_TOKEN", &other)]);
    assert!(!zero.status.success() && !one.status.success());
    let errors = one.stderr;
    assert!(errors.contains("it does not have the token") || errors.contains("it closed"), "{errors}");
}

#[test]
fn a_store_that_does_not_answer_is_named() {
    let job = Job::new().with(&[("TORCHELASTIC_USE_AGENT_STORE", "True")]);
    let mut rank = job.start(0, &[]);
    signal(rank.id(), "KILL");
    rank.ended(LIMIT);
    for listener in [None, Some(std::net::TcpListener::bind("127.0.0.1:0").unwrap())] {
        let port = listener.as_ref().map_or_else(free_port, |listener| listener.local_addr().unwrap().port());
        let port = port.to_string();
        // What closes every connection, as a program of another kind does.
        let closing = listener.map(|listener| {
            std::thread::spawn(move || listener.incoming().flatten().take(40).for_each(drop));
        });
        let mut one = command(who());
        one.args(["--timeout", "2"]).envs(&job.variables).env("MASTER_PORT", &port);
        let ended = ended(&mut one);
        let errors = &ended.stderr;
        let says = format!("torchrun's store at localhost:{port} cannot be used (");
        assert!(!ended.status.success() && errors.contains(&says) && errors.contains("BUSBW_TOKEN"), "{errors}");
        assert!(closing.is_none() || errors.contains("no TCPStore"), "{errors}");
    }
}
