//! `busbw bench` when something breaks: every rank ends in time with one line that says who is at fault, and nothing stays.

use crate::support::command::BUSBW;
use crate::support::lab::{self, mpirun_openmpi};
use crate::support::process::{self, Ended, Running, signal};
use crate::support::recorder::Recorder;
use crate::support::skip::needed;
use crate::support::table::{RankLine, ranks, rows};
use crate::support::terminal::wait_for;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// No job here takes longer to begin, on a machine however busy.
const BEGINS: Duration = Duration::from_secs(60);
/// Far longer than a job may take to notice (`--stall-timeout 5`), so that only a hang is one.
pub const ENDS: Duration = Duration::from_secs(40);
const SMALL: [&str; 6] = ["-b", "8", "-e", "8", "--stall-timeout", "5"];
/// Busy for minutes, unless somebody disturbs it.
pub const ENDLESS: [&str; 10] = ["-b", "1M", "-e", "1M", "-n", "1000000", "-c", "0", "--stall-timeout", "5"];

/// Faults are looked for in /dev/shm, which all tests share.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn busbw(arguments: &[&[&str]]) -> Command {
    let mut command = Command::new(BUSBW);
    command.args(["bench", "all_reduce"]).args(arguments.concat());
    command
}

/// A job of `count` ranks that is in its table, and who they are.
pub fn busy(command: Command, count: usize) -> (Running, Vec<RankLine>) {
    let mut running = Running::start(command);
    let lines = running.until(BEGINS, "rank lines and header", |text| ranks(text, count));
    // The first size is under way: its row comes minutes later.
    std::thread::sleep(Duration::from_millis(300));
    assert!(rows(&running.stdout()).is_empty(), "{}", running.stdout());
    (running, lines)
}

/// busbw's lines for the user, those of launchers apart.
pub fn said(stderr: &str) -> Vec<&str> {
    stderr.lines().filter(|line| line.contains("busbw: ")).collect()
}

/// Each of `survivors` has said one thing, and it names the rank at fault and its host.
pub fn assert_blamed(stderr: &str, survivors: usize, culprit: &RankLine) {
    let lines = said(stderr);
    assert_eq!(lines.len(), survivors, "one line of each survivor:\n{stderr}");
    let name = format!("rank {} on host {}", culprit.rank, culprit.host);
    assert!(lines.iter().all(|line| line.contains(&name)), "{name} is not to blame in all of:\n{stderr}");
}

pub fn assert_nothing_left(running: &Running) {
    running.gone("busbw", ENDS);
    assert_eq!(running.left_in_shared_memory("busbw"), Vec::<String>::new());
}

fn assert_failed(ended: &Ended) {
    assert!(!ended.status.success(), "{ended:?}");
}

#[test]
fn a_rank_is_killed_or_stopped() {
    let _turn = turn();
    for (victim, by) in [(0, "KILL"), (2, "KILL"), (0, "STOP"), (1, "STOP")] {
        let (mut running, lines) = busy(busbw(&[&["--np", "3"], &ENDLESS]), 3);
        signal(lines[victim].pid, by);
        let ended = running.ended(ENDS);
        assert_failed(&ended);
        assert_blamed(&ended.stderr, 2, &lines[victim]);
        assert_nothing_left(&running);
    }
}

/// By whatever name the user started it: neither Ctrl-C nor `kill -9` of the launcher leaves ranks behind.
#[test]
fn the_launcher_is_ended() {
    let _turn = turn();
    for name in ["INT", "TERM", "KILL"] {
        let (mut running, _) = busy(busbw(&[&["--np", "3"], &ENDLESS]), 3);
        signal(running.id(), name);
        assert_failed(&running.ended(ENDS));
        assert_nothing_left(&running);
    }
}

#[test]
fn a_rank_under_mpirun_is_killed() {
    let _turn = turn();
    let mut command = needed!(mpirun_openmpi(3));
    command.arg(BUSBW).args(["bench", "all_reduce"]).args(ENDLESS);
    let (mut running, lines) = busy(command, 3);
    signal(lines[1].pid, "KILL");
    assert_failed(&running.ended(ENDS));
    // mpirun ends the other ranks as soon as it sees the first one die, often before they can speak.
    let stderr = running.stderr();
    assert_blamed(&stderr, said(&stderr).len().min(2), &lines[1]);
    assert_nothing_left(&running);
}

const TOKEN: u128 = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;

/// A job of two ranks started by hand, meeting at `address`.
fn by_hand(rank: usize, address: &str) -> Command {
    as_rank(busbw(&[&SMALL]), rank, address)
}

/// The command as a rank of such a job.
pub fn as_rank(mut command: Command, rank: usize, address: &str) -> Command {
    command.env("BUSBW_RANK", rank.to_string()).env("BUSBW_SIZE", "2").env("BUSBW_LOCAL_RANK", rank.to_string());
    command.env("BUSBW_RENDEZVOUS", address).env("BUSBW_TOKEN", format!("{TOKEN:032x}"));
    command
}

pub fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").to_string()
}

/// A connection that says something else, and one that says nothing, are dropped with a line; the job goes on.
#[test]
fn strangers_come_to_the_meeting() {
    let _turn = turn();
    let address = free_address();
    let mut first = Running::start(by_hand(0, &address));
    let mut strangers = Vec::new();
    for greeting in [&b"GET / HTTP/1.0\r\n\r\n"[..], b"", &[0; 64], &[0xff; 4096]] {
        let mut stranger = first.retry(BEGINS, "listener", || TcpStream::connect(&address).ok());
        // The other end may have closed it by now, which is what is wanted.
        let _ = stranger.write_all(greeting);
        strangers.push(stranger);
    }
    let mut second = Running::start(by_hand(1, &address));
    let (first, second) = (first.ended(ENDS), second.ended(ENDS));
    assert!(first.status.success() && second.status.success(), "{first:?}\n{second:?}");
    assert_eq!(rows(&first.stdout).len(), 1, "{first:?}");
    assert!(said(&first.stderr).iter().any(|line| line.contains("dropped a connection from 127.0.0.1")), "{first:?}");
    for stranger in &mut strangers {
        stranger.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
        let mut answer = [0; 64];
        assert!(!matches!(stranger.read(&mut answer), Ok(1..)), "a stranger was answered");
    }
}

/// Who reads along what ranks of two hosts tell rank 0, where their data connections listen among it, learns no token.
#[test]
fn a_listener_on_the_wire_learns_no_token() {
    let _turn = turn();
    let address = free_address();
    let lone = |rank: usize, address: &str| {
        let mut command = by_hand(rank, address);
        command.env("NCCL_HOSTID", format!("h{rank}")).env("NCCL_SOCKET_IFNAME", "=lo");
        command
    };
    let mut first = Running::start(lone(0, &address));
    first.retry(BEGINS, "listener", || TcpStream::connect(&address).ok());
    let recorder = Recorder::before(address.parse().expect("an address"));
    let mut second = Running::start(lone(1, &recorder.address.to_string()));
    let (first, second) = (first.ended(ENDS), second.ended(ENDS));
    assert!(first.status.success() && second.status.success(), "{first:?}\n{second:?}");
    assert!(recorder.has_seen(b"BBTH"), "no handle of a data connection was seen");
    assert!(!recorder.has_seen(&TOKEN.to_be_bytes()));
}

#[test]
fn the_meeting_s_port_is_in_use() {
    let _turn = turn();
    let other = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = other.local_addr().expect("its address").to_string();
    let mut job = [0, 1].map(|rank| Running::start(by_hand(rank, &address)));
    for running in &mut job {
        let ended = running.ended(ENDS);
        assert_failed(&ended);
        assert_eq!(said(&ended.stderr).len(), 1, "{ended:?}");
        assert!(ended.stderr.contains(&address), "{ended:?}");
    }
}

/// `--hosts` runs mpirun, which may be missing; a rank started by hand names its meeting point.
#[test]
fn a_host_does_not_resolve() {
    let _turn = turn();
    names_the_host_at_fault(by_hand(1, "no-such-host.invalid:7777"));
    needed!(mpirun_openmpi(1));
    names_the_host_at_fault(busbw(&[&["--hosts", "no-such-host.invalid:1,localhost:1"], &SMALL]));
}

fn names_the_host_at_fault(command: Command) {
    let ended = process::run(command, BEGINS);
    assert_failed(&ended);
    assert_eq!(said(&ended.stderr).len(), 1, "{ended:?}");
    assert!(ended.stderr.contains("no-such-host.invalid"), "{ended:?}");
    assert!(rows(&ended.stdout).is_empty(), "{ended:?}");
}

#[test]
fn ranks_disagree_on_flags() {
    let _turn = turn();
    let mut command = needed!(mpirun_openmpi(1));
    let program = [BUSBW, "bench", "all_reduce", "--stall-timeout", "5", "-b"];
    command.args(program).args(["1M", ":", "-np", "1"]).args(program).arg("2M");
    let mut running = Running::start(command);
    let ended = running.ended(ENDS);
    assert_failed(&ended);
    let lines = said(&ended.stderr);
    assert!(matches!(lines.len(), 1 | 2), "one line of each rank, unless mpirun is faster: {ended:?}");
    assert!(lines.iter().all(|line| line.contains("rank 1") && line.contains("flags")), "{ended:?}");
    assert!(rows(&ended.stdout).is_empty(), "{ended:?}");
    assert_nothing_left(&running);
}

/// Without room in /dev/shm the job does without, or says so; it is never killed by SIGBUS.
#[test]
fn shared_memory_is_full() {
    let _turn = turn();
    let script = "mount -t tmpfs -o size=256k tmpfs /dev/shm && head -c 1M /dev/zero >/dev/shm/full 2>/dev/null
            \"$@\"; status=$?; rm -f /dev/shm/full; ls -A /dev/shm >&2; exit $status";
    let mut command = needed!(lab::own_mounts());
    command.args(["sh", "-c", script, "sh", BUSBW, "bench", "all_reduce", "--np", "2"]);
    command.args(["-b", "8M", "-e", "8M", "--stall-timeout", "5"]);
    let mut running = Running::start(command);
    let ended = running.ended(ENDS);
    if ended.status.success() {
        assert_eq!(rows(&ended.stdout).len(), 1, "{ended:?}");
    } else {
        assert!(ended.status.code().is_some_and(|code| code < 128), "{ended:?}");
        assert!(said(&ended.stderr).iter().all(|line| line.contains("/dev/shm")), "{ended:?}");
    }
    assert_eq!(ended.stderr.lines().count(), said(&ended.stderr).len(), "left in /dev/shm: {ended:?}");
    running.gone("busbw", ENDS);
}

/// More ranks than the host has room for are refused at once, with what there is room for and why.
#[test]
fn more_ranks_than_fit_are_refused() {
    for (line, says) in [
        ("exec \"$0\" bench all_reduce --np 4000000", "busbw: --np 4000000: this host has room for "),
        ("exec \"$0\" link --np 4000000 --tcp", "busbw: --np 4000000: this host has room for "),
        ("ulimit -n 64; exec \"$0\" bench all_reduce --np 40", "has room for 24 ranks: each needs 2 open files here"),
    ] {
        let mut command = Command::new("sh");
        command.args(["-c", line, BUSBW]);
        let ended = process::run(command, BEGINS);
        assert_eq!(ended.status.code(), Some(2), "{line}: {ended:?}");
        assert!(ended.stderr.contains(says) && ended.stderr.lines().count() == 1, "{line}: {ended:?}");
    }
}

#[test]
fn a_signal_while_ranks_start_starts_no_more() {
    let _turn = turn();
    for (name, status) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let mut running = Running::start(busbw(&[&["--np", "150"], &SMALL]));
        wait_for("some ranks", || running.processes().len() > 10);
        signal(running.id(), name);
        let (mut most, at_first) = (0, running.processes().len());
        wait_for("the end of all ranks", || {
            let now = running.processes().len();
            most = most.max(now);
            now == 0
        });
        // One may have been under way.
        assert!(most <= at_first + 1 && most < 100, "{name}: {at_first} ranks became {most}");
        let ended = running.ended(ENDS);
        assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(status), ""), "{name}");
    }
}

/// Under `nohup` a job goes on: the signal after it is the first that ends it. In a script's background `kill -INT` ends it.
#[test]
fn a_signal_that_is_ignored_ends_nothing_but_sigint() {
    let _turn = turn();
    for (name, status) in [("HUP", 143), ("INT", 130)] {
        let job = process::ignoring(name, &busbw(&[&["--np", "2"], &ENDLESS]));
        let (mut running, ranks) = busy(job, 2);
        let pids = ranks.iter().map(|rank| rank.pid);
        pids.chain([running.id()]).for_each(|pid| signal(pid, name));
        signal(running.id(), "TERM");
        let ended = running.ended(ENDS);
        assert_eq!(ended.status.code(), Some(status), "{name}: {ended:?}");
        assert!(!ended.stderr.contains("HUP"), "{name}: {ended:?}");
        assert_nothing_left(&running);
    }
}

/// mpirun gets what busbw gets, and does not stay when busbw is killed.
#[test]
fn the_launcher_of_hosts_is_ended() {
    let _turn = turn();
    needed!(mpirun_openmpi(1));
    for (name, status) in [("INT", Some(130)), ("TERM", Some(143)), ("KILL", None)] {
        let mut command = busbw(&[&["--hosts", "localhost:2"], &ENDLESS]);
        command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        let (mut running, _) = busy(command, 2);
        signal(running.id(), name);
        assert_eq!(running.ended(ENDS).status.code(), status, "{name}");
        wait_for("the end of mpirun and its ranks", || running.processes().is_empty());
    }
}
