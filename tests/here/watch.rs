//! `busbw watch` on this host: ranks of a few lines of Python that send bytes around a ring, and what can happen to them.

use crate::support::command::{BUSBW, busbw};
use crate::support::process::{LIMIT, Running, run, signal};
use crate::support::skip::{Skip, find, needed};
use crate::support::terminal::OnTerminal;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;

/// Starts ranks, and is one: rank R sends to R + 1 and receives from R - 1, a step after the other. At a step, rank 1 does what the job is
/// told to.
const JOB: &str = r#"
import os, signal, socket, subprocess, sys, time
what, ranks, gap = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
if "RANK" not in os.environ:
    ends = [socket.create_server(("127.0.0.1", 0)) for _ in range(ranks)]
    ports = " ".join(str(end.getsockname()[1]) for end in ends)
    started = []
    for rank in range(ranks):
        variables = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), PORTS=ports, END=str(ends[rank].fileno()))
        started.append(subprocess.Popen([sys.executable, *sys.argv], env=variables, pass_fds=[ends[rank].fileno()]))
    signal.signal(signal.SIGTERM, lambda *_: [one.kill() for one in started] and sys.exit(143))
    while True:
        states = [one.poll() for one in started]
        failed = [state for state in states if state]
        if failed or all(state == 0 for state in states):
            time.sleep(1)
            [one.kill() for one in started]
            sys.exit(failed[0] % 256 if failed else 0)
        time.sleep(0.05)
rank, ports = int(os.environ["RANK"]), os.environ["PORTS"].split()
end = socket.socket(fileno=int(os.environ["END"]))
to = socket.create_connection(("127.0.0.1", int(ports[(rank + 1) % ranks])))
of, _ = end.accept()
if what == "helpers" and os.fork() == 0:
    time.sleep(1000)

def load():
    time.sleep(1000)

for step in range(10**9):
    if rank == 0:
        print("step", step, flush=True)
    if what == "steps" and step == 20:
        break
    if step == 20 and rank == 1:
        if what == "raise":
            # As libraries in C++ do, it holds its connections until the process ends: Python closes its own before that, and
            # whoever reads from them may then end first.
            to.detach(), of.detach()
            raise ValueError("batch 7 has no labels")
        if what == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "sleep":
            load()
        if what == "pause":
            time.sleep(5)
    try:
        to.sendall(b"x" * 1000)
        left = 1000
        while left:
            got = len(of.recv(left))
            if not got:
                raise ConnectionResetError(104, "Connection reset by peer")
            left -= got
    except OSError:
        # Where two end at the same moment, watch names both: who is at fault is to be clear here on a machine that does much else, too.
        time.sleep(1)
        raise
    time.sleep(gap)
"#;

fn python() -> Result<std::path::PathBuf, Skip> {
    find("python3").ok_or_else(|| Skip("python3 is missing".into()))
}

/// A job's command: what happens in it, and how many seconds a step takes.
fn job(folder: &Path, what: &str, gap: &str) -> Result<Command, Skip> {
    let script = folder.join("job.py");
    fs::write(&script, JOB).expect("room");
    let mut command = Command::new(python()?);
    command.arg(script).args([what, "4", gap]);
    Ok(command)
}

/// The same below busbw watch, with these flags.
fn watched(folder: &Path, flags: &[&str], what: &str, gap: &str) -> Result<Command, Skip> {
    let job = job(folder, what, gap)?;
    let mut command = Command::new(BUSBW);
    command.arg("watch").args(flags).arg("--folder").arg(folder.join("seen")).arg("--").arg(job.get_program());
    command.args(job.get_args()).current_dir(folder);
    Ok(command)
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn a_rank_that_stops_or_ends_is_named_at_once() {
    for (what, says) in [
        ("stop", &["Rank 1 on ", "is stopped since", "ranks 0, 2, 3 wait"][..]),
        ("kill", &["Rank 1 on ", "was killed at", "SIGKILL"]),
        ("raise", &["Rank 1 on ", "failed at", "exit status 1"]),
    ] {
        let folder = folder();
        // A limit that would not be reached.
        let mut running = Running::start(needed!(watched(folder.path(), &["--stall", "1h"], what, "0.05")));
        let line = running.until_said(LIMIT, what, |said| {
            said.lines().find(|line| line.starts_with("busbw watch: Rank")).map(str::to_owned)
        });
        assert!(says.iter().all(|part| line.contains(part)), "{what}: {line}");
        let page = fs::read_to_string(folder.path().join("seen/report.html")).expect("a page");
        assert!(page.contains("Rank 1 on "), "{what}");
    }
}

#[test]
fn a_rank_that_sleeps_is_named_after_the_limit_and_explain_says_so_again() {
    let folder = folder();
    let command = needed!(watched(folder.path(), &["--stall", "3s", "--kill"], "sleep", "0.05"));
    let ended = run(command, LIMIT);
    let line = ended.stderr.lines().find(|line| line.starts_with("busbw watch: ")).unwrap_or_default();
    assert!(line.contains("Rank 1 on ") && line.contains("is elsewhere in the program"), "{}", ended.stderr);
    assert_eq!(ended.status.code(), Some(143), "{}", ended.stderr);
    let explained = busbw(folder.path(), &["explain", "seen"], None).stdout;
    assert!(explained.starts_with("FAILED  Rank 1 on "), "{explained}");
}

#[test]
fn what_moves_again_is_taken_back() {
    let folder = folder();
    let mut running = Running::start(needed!(watched(folder.path(), &["--stall", "2s"], "pause", "0.05")));
    running.until_said(LIMIT, "alarm", |said| said.contains("Rank 1 on ").then_some(()));
    running.until_said(LIMIT, "end of it", |said| said.contains("it moves again after").then_some(()));
}

#[test]
fn a_sound_job_passes_through_untouched() {
    let folder = folder();
    // Steps of a fifth of the limit; helpers inherit their rank's variables.
    for (what, gap) in [("steps", "0.05"), ("steps", "0.4")] {
        let bare = run(needed!(job(folder.path(), what, gap)), LIMIT);
        let ended = run(needed!(watched(folder.path(), &["--stall", "2s"], what, gap)), LIMIT);
        assert_eq!((ended.stdout, ended.status.code()), (bare.stdout, Some(0)));
        assert_eq!(ended.stderr, "");
        assert!(!folder.path().join("seen/ranks.json").exists());
    }
}

#[test]
fn signals_and_the_exit_status_are_the_jobs() {
    let folder = folder();
    let mut command = Command::new(BUSBW);
    command.args(["watch", "--folder"]).arg(folder.path().join("seen")).args(["--", "sh", "-c"]);
    let script = |script: &str| {
        let mut shell = Command::new(command.get_program());
        shell.args(command.get_args()).arg(script);
        shell
    };
    assert_eq!(run(script("exit 7"), LIMIT).status.code(), Some(7));
    assert_eq!(run(script("kill -9 $$"), LIMIT).status.code(), Some(137));
    assert_eq!(run(script("printf 'no end of line'; printf x >&2"), LIMIT).stdout, "no end of line");
    let mut running = Running::start(script("trap 'echo saved; exit 3' TERM; echo begun; while :; do sleep 0.1; done"));
    running.until(LIMIT, "beginning", |out| out.contains("begun").then_some(()));
    signal(running.id(), "TERM");
    let ended = running.ended(LIMIT);
    assert_eq!((ended.status.code(), ended.status.signal()), (Some(3), None));
    assert!(ended.stdout.ends_with("saved\n"), "{}", ended.stdout);
    run(
        Command::new(BUSBW)
            .args(["watch", "--folder"])
            .arg(folder.path().join("seen"))
            .args(["--", "/no/such/program"]),
        LIMIT,
    )
    .refused("/no/such/program");
}

#[test]
fn a_running_job_is_looked_at() {
    let folder = folder();
    let mut running = Running::start(needed!(job(folder.path(), "helpers", "0.05")));
    running.until(LIMIT, "a step", |out| out.contains("step 5").then_some(()));
    let attach = |flags: &[&str]| {
        let mut command = Command::new(BUSBW);
        command.args(["watch", "--attach", &running.id().to_string(), "--folder"]).arg(folder.path().join("seen"));
        command.args(flags);
        command
    };
    let once = run(attach(&["--once"]), LIMIT);
    assert!(once.status.success() && once.stdout.contains("4 of 4 ranks are here"), "{once:?}");
    assert_eq!(once.stdout.lines().count(), 2 + 4 + 1, "{}", once.stdout);
    let line = run(attach(&["--once", "--json"]), LIMIT).json();
    assert_eq!((&line["schema"], line["ranks"].as_array().map(Vec::len)), (&"busbw.watch/1".into(), Some(4)));
    assert!(
        line["ranks"][2]["peers"].as_array().is_some_and(|peers| peers.iter().any(|peer| peer["rank"] == 3)),
        "{line}"
    );
    let mut screen = OnTerminal::alone(attach(&[]));
    // What is blank is jumped over.
    screen.see("busbw watch");
    screen.see("here;");
    screen.press("q");
    assert!(screen.ended().success());
    let mut closed = OnTerminal::alone(attach(&[]));
    closed.see("here;");
    closed.close();
    closed.ended();
    let mut served = Running::start(attach(&["--quiet", "--prometheus", "127.0.0.1:0"]));
    let address = served
        .until_said(LIMIT, "an address", |said| Some(said.split_once("http://")?.1.split_once('/')?.0.to_owned()));
    let metrics = served.retry(LIMIT, "ranks", || {
        let mut connection = TcpStream::connect(&address).ok()?;
        connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").ok()?;
        let mut text = String::new();
        connection.read_to_string(&mut text).ok()?;
        text.contains("busbw_watch_rank_running").then_some(text)
    });
    assert!(metrics.contains("busbw_watch_stalled 0") && metrics.contains("busbw_watch_ranks 4"), "{metrics}");
}

#[test]
fn what_cannot_be_looked_at_is_said() {
    let folder = folder();
    let watch = |arguments: &str| {
        let words: Vec<&str> = arguments.split(' ').collect();
        busbw(folder.path(), &[&["watch"], &words[..], &["--folder", "seen"]].concat(), None)
    };
    watch("--attach 999999999").refused("no such process");
    watch("--attach job").refused("slurm:JOBID");
    watch("--attach slurm:999999 --interval 100ms").refused("RANK and WORLD_SIZE");
    let unused = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").to_string();
    watch(&format!("--ras {unused}")).refused("NCCL_RAS_ADDR");
    let garbage = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = garbage.local_addr().expect("bound").to_string();
    std::thread::spawn(move || {
        let (mut stream, _) = garbage.accept().expect("a client");
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n");
    });
    watch(&format!("--ras {address}")).refused("that is not NCCL's RAS");
    fs::write(folder.path().join("thesis.tex"), "x").expect("room");
    busbw(folder.path(), &["watch", "--attach", "--once", "--folder", "."], None).refused("thesis.tex");
}

/// Without ranks there is nothing to watch: that is told, and no empty folder stays.
#[test]
fn a_job_without_ranks_is_told_and_leaves_nothing() {
    let place = tempfile::tempdir().expect("a folder");
    for (job, says) in [("sleep 3", "no ranks seen: no process of the job"), ("/no/such/program", "No such file")] {
        let ended = run(
            Command::new(BUSBW)
                .current_dir(&place)
                .args(["watch", "--stall", "1", "-i", "100ms", "--"])
                .args(job.split(' ')),
            LIMIT,
        );
        assert_eq!(ended.stderr.matches(says).count(), 1, "{job}: {ended:?}");
        assert!(!place.path().join("busbw-watch").exists(), "{job}");
    }
}
