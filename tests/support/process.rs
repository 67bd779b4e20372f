//! Commands under test: started with a marker, watched while they run, ended in time, and searched for what they left.

use std::borrow::BorrowMut;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// No run of a test takes longer, on a machine however busy.
pub const LIMIT: Duration = Duration::from_secs(300);

/// The variable by which processes of one run are found again, whoever started them.
const MARKER: &str = "BUSBW_TEST_RUN";
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long the output of a command that has ended may take to arrive.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// A command that runs, with everything that it starts. Killed when dropped.
pub struct Running {
    child: Child,
    marker: String,
    shown: String,
    out: Captured,
    err: Captured,
    shared_memory: Vec<String>,
}

/// The command, started with a signal ignored: as `nohup` (HUP) starts it, or a script's shell what runs in the background (INT).
pub fn ignoring(name: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' \"$0\"; exec \"$@\"", name]).arg(command.get_program()).args(command.get_args());
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.current_dir(command.get_current_dir().unwrap_or(std::path::Path::new(".")));
    shell
}

/// What a command did.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub fn of(output: Output) -> Self {
        let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ended { status: output.status, stdout, stderr }
    }

    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// What it printed, where it ended well.
    pub fn printed(&self) -> &str {
        assert!(self.status.success(), "{self:?}");
        &self.stdout
    }

    /// Bad usage or bad input: exit status 2, no answer, and this among what it says, which is given.
    pub fn refused(&self, says: &str) -> &str {
        assert_eq!((self.code(), self.stdout.as_str()), (Some(2), ""), "{says}: {self:?}");
        assert!(self.stderr.contains(says), "{says}: {self:?}");
        &self.stderr
    }

    pub fn refused_in_a_line(&self, says: &str) {
        let said = self.refused(says);
        assert!(said.starts_with("busbw: ") && said.lines().count() == 1, "one line, not {said}");
    }
}

impl Running {
    /// Starts a command in a process group of its own.
    pub fn start(mut command: impl BorrowMut<Command>) -> Self {
        let command = command.borrow_mut();
        // Tests of one process start several.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let marker = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        command.env(MARKER, &marker).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let shared_memory = shared_memory();
        let shown = format!("{command:?}");
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{shown}: {error}"));
        let out = Captured::of(child.stdout.take().expect("stdout is a pipe"));
        let err = Captured::of(child.stderr.take().expect("stderr is a pipe"));
        Running { child, marker, shown, out, err, shared_memory }
    }

    /// What the command has written to standard output so far.
    pub fn stdout(&self) -> String {
        self.out.text()
    }

    /// Waits until `look` finds something in the command's standard output.
    pub fn until<T>(&mut self, limit: Duration, what: &str, look: impl Fn(&str) -> Option<T>) -> T {
        let out = Arc::clone(&self.out.bytes);
        self.retry(limit, what, || look(&text(&out)))
    }

    /// Waits until `look` finds something in the command's standard error.
    pub fn until_said<T>(&mut self, limit: Duration, what: &str, look: impl Fn(&str) -> Option<T>) -> T {
        let err = Arc::clone(&self.err.bytes);
        self.retry(limit, what, || look(&text(&err)))
    }

    /// Waits until `attempt` succeeds.
    pub fn retry<T>(&mut self, limit: Duration, what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
        let since = Instant::now();
        loop {
            // Asked before the attempt, so that what a command did last is not missed.
            let ended = self.child.try_wait().expect("a child can be waited for");
            if ended.is_some() {
                self.out.close(LAST_WORDS);
                self.err.close(LAST_WORDS);
            }
            if let Some(found) = attempt() {
                return found;
            }
            if ended.is_some() || since.elapsed() > limit {
                panic!("no {what} from {}: {ended:?}\n{}{}", self.shown, self.stdout(), self.err.text());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Waits until the command has ended.
    pub fn ended(&mut self, limit: Duration) -> Ended {
        let since = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                break status;
            }
            if since.elapsed() > limit {
                panic!("{} still runs after {limit:?}\n{}{}", self.shown, self.stdout(), self.err.text());
            }
            std::thread::sleep(LOOK_AGAIN);
        };
        // A rank that outlives its launcher holds the pipes, so that their end is not waited for without a limit.
        self.out.close(limit);
        self.err.close(limit);
        Ended { status, stdout: self.out.text(), stderr: self.err.text() }
    }

    /// Waits until no process of the run whose program ends in `program` is left.
    pub fn gone(&self, program: &str, limit: Duration) {
        let since = Instant::now();
        loop {
            let left: Vec<u32> = self.processes().into_iter().filter(|&pid| runs(pid, program)).collect();
            if left.is_empty() {
                return;
            }
            let state = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            if since.elapsed() > limit {
                panic!("{} left {:?}\n{}", self.shown, left.iter().map(state).collect::<Vec<_>>(), self.err.text());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// What the command has written to standard error so far.
    pub fn stderr(&self) -> String {
        self.err.text()
    }

    /// Entries of /dev/shm with `part` in their name that have appeared since the command started.
    pub fn left_in_shared_memory(&self, part: &str) -> Vec<String> {
        let new = |name: &String| name.contains(part) && !self.shared_memory.contains(name);
        shared_memory().into_iter().filter(new).collect()
    }

    /// The process that was started.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The processes of the run, zombies apart (they have no environment any more).
    pub fn processes(&self) -> Vec<u32> {
        let wanted = format!("{MARKER}={}", self.marker).into_bytes();
        let entries = fs::read_dir("/proc").expect("Linux has /proc").flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|&byte| byte == 0).any(|entry| entry == wanted)
        })
        .collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for pid in self.processes() {
            signal(pid, "KILL");
        }
        // The child may have ended before; both calls then only say so.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a command and waits for its end.
pub fn run(command: impl BorrowMut<Command>, limit: Duration) -> Ended {
    Running::start(command).ended(limit)
}

/// Sends a signal, by its name without SIG.
pub fn signal(pid: u32, name: &str) {
    // A process that has gone before is what most signals want.
    let _ = Command::new("kill").args(["-s", name, &pid.to_string()]).stderr(Stdio::null()).status();
}

fn runs(pid: u32, program: &str) -> bool {
    let executable = fs::read_link(format!("/proc/{pid}/exe"));
    executable.is_ok_and(|path| path.file_name().is_some_and(|name| name == program))
}

fn shared_memory() -> Vec<String> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// A pipe that is read as it fills.
struct Captured {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Captured {
    fn of(mut pipe: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&bytes);
        let reader = std::thread::spawn(move || {
            let mut block = [0; 4096];
            while let Ok(length @ 1..) = pipe.read(&mut block) {
                kept.lock().expect("no reader panics").extend_from_slice(&block[..length]);
            }
        });
        Captured { bytes, reader: Some(reader) }
    }

    fn text(&self) -> String {
        text(&self.bytes)
    }

    fn close(&mut self, limit: Duration) {
        let since = Instant::now();
        while self.reader.as_ref().is_some_and(|reader| !reader.is_finished()) && since.elapsed() < limit {
            std::thread::sleep(LOOK_AGAIN);
        }
        self.reader.take_if(|reader| reader.is_finished()).map(JoinHandle::join);
    }
}

fn text(bytes: &Mutex<Vec<u8>>) -> String {
    String::from_utf8_lossy(&bytes.lock().expect("no reader panics")).into_owned()
}
