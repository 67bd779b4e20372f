//! The example `who` under real launchers: our own spawn, Open MPI, MPICH and torchrun, where they are installed.

use crate::skip::{programs, unless_skipped};
use busbw_launch::Lookup;
use busbw_launch::command::{Starter, Tool};
use busbw_launch::{Invocation, Started};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The example, which cargo builds with the tests, beside their directory.
pub fn who() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let who = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples/who");
    assert!(who.exists(), "{} is not built: cargo build -p busbw-launch --example who", who.display());
    who
}

/// A command without the launcher of this test, if any.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if ["BUSBW_", "OMPI_", "PMI", "SLURM_PROCID", "SLURM_STEP"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1").stdin(Stdio::null());
    command
}

/// Runs to the end, or fails after a minute.
pub fn output(command: &mut Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    finish(child)
}

/// Waits for the end, or fails after a minute.
pub fn finish(mut child: Child) -> Output {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            panic!("hangs: {output:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Checks that rank 0's line, and no other, was printed, and begins with `says`.
pub fn joined(output: &Output, says: &str) {
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    let lines: Vec<&str> = out.lines().filter(|line| line.starts_with("launcher")).collect();
    assert!(output.status.success(), "{out}{errors}");
    assert!(lines.len() == 1 && lines[0].starts_with(says), "{out}{errors}");
}

#[test]
fn our_own_spawn() {
    joined(&output(command(who()).args(["--np", "1"])), "launcher Busbw way Alone size 1 gathered 0 here 1");
    let says = "launcher Busbw way Fixed size 8 gathered 0,1,2,3,4,5,6,7 here 8";
    joined(&output(command(who()).args(["--np", "4", "--threads", "2"])), says);
}

/// The shell of an allocation may be a task of srun itself: ranks are started from it all the same.
#[test]
fn ranks_are_started_where_a_launcher_has_started_one_process() {
    let here = Invocation {
        hosts: None,
        fewest: 1,
        np: Some(2),
        dry_run: false,
        program: "true".into(),
        arguments: Vec::new(),
    };
    let shell = |name: &str| match name {
        "SLURM_PROCID" => Some("0".to_owned()),
        "SLURM_STEP_NUM_TASKS" => Some("1".to_owned()),
        "SLURM_STEP_NODELIST" => Some("node1".to_owned()),
        _ => None,
    };
    let nowhere = |_: &str| None;
    for look in [&shell as Lookup, &nowhere as Lookup] {
        let began = here.begin(look).unwrap();
        assert!(matches!(began, Started::Ended(0)), "{began:?}");
    }
}

#[test]
fn our_own_spawn_ends_with_the_rank_that_failed_first() {
    let killed = output(command(who()).args(["--np", "3", "--die", "1"]));
    assert_eq!(killed.status.code(), Some(128 + 6), "{killed:?}");
    let errors = text(&killed.stderr);
    assert!(errors.lines().count() == 2, "{errors}");
    assert!(
        errors.lines().all(|line| line.starts_with("who: rank 1 on host ") && line.contains("has ended")),
        "{errors}"
    );
    let failed = output(command(who()).args(["--np", "3", "--fail", "2"]));
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    let errors = text(&failed.stderr);
    assert!(
        errors.lines().count() == 3 && errors.lines().all(|line| line.ends_with(": a fault on request")),
        "{errors}"
    );
}

#[test]
fn our_own_spawn_leaves_no_rank_behind_a_signal() {
    for (signal, status) in [("-INT", Some(130)), ("-TERM", Some(143)), ("-KILL", None)] {
        let mark = format!("BUSBW_TEST_MARK={}{signal}", std::process::id());
        let (name, value) = mark.split_once('=').unwrap();
        let mut start = command(who());
        start.args(["--np", "3", "--hang", "1"]).env(name, value).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = start.spawn().unwrap();
        // Rank 0 has printed its line: every rank is up.
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()), &mut line).unwrap();
        assert!(line.starts_with("launcher"), "{line}");
        assert_eq!(marked(&mark).len(), 4);
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        let output = finish(child);
        assert_eq!(output.status.code(), status, "{output:?}");
        assert_eq!(output.status.signal(), if status.is_none() { Some(9) } else { None });
        let start = Instant::now();
        while !marked(&mark).is_empty() {
            assert!(start.elapsed() < Duration::from_secs(20), "left behind: {:?}", marked(&mark));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Processes, other than zombies of other parents, with this variable.
fn marked(mark: &str) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let marked = processes.filter(|process| {
        std::fs::read(process.join("environ"))
            .is_ok_and(|all| all.split(|&byte| byte == 0).any(|one| one == mark.as_bytes()))
    });
    marked.map(|process| process.display().to_string()).collect()
}

#[test]
fn a_stopped_rank_is_named_by_all_others() {
    for victim in [0, 1] {
        let mut start = command(who());
        start.args(["--np", "3", "--hang", "2", "--timeout", "4"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = start.spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()), &mut line).unwrap();
        let (_, members) = line.trim().split_once(" members ").unwrap();
        let (_, pid) = members.split(' ').nth(victim).unwrap().split_once(':').unwrap();
        assert!(Command::new("kill").args(["-STOP", pid]).status().unwrap().success());
        let output = finish(child);
        let errors = text(&output.stderr);
        let says = format!("(pid {pid}) has not answered for 4 s: stopped, or its host or cable is cut off");
        let named =
            errors.lines().filter(|line| line.starts_with(&format!("who: rank {victim} on")) && line.ends_with(&says));
        assert_eq!(named.count(), 2, "{errors}");
        assert_ne!(output.status.code(), Some(0));
    }
}

#[test]
fn our_own_spawn_refuses_what_cannot_work() {
    let mut inside = command(who());
    inside.args(["--np", "2"]).envs([("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("PMI_FD", "9")]);
    let errors = text(&output(&mut inside).stderr);
    assert!(errors.contains("--np 2 would start as many ranks in each of the 2 processes of Mpich"), "{errors}");
    assert!(text(&output(command(who()).args(["--np", "0"])).stderr).contains("--np 0 starts nothing"));
}

#[test]
fn open_mpi() {
    unless_skipped(|| {
        programs(&["mpirun.openmpi"])?;
        let mpirun = || {
            let mut command = command("mpirun.openmpi");
            command.args(["--bind-to", "none", "--oversubscribe", "-np", "3"]).arg(who());
            command
        };
        joined(&output(&mut mpirun()), "launcher OpenMpi way Pmix size 3 gathered 0,1,2 here 3");
        joined(
            &output(mpirun().args(["--threads", "2"])),
            "launcher OpenMpi way Pmix size 6 gathered 0,1,2,3,4,5 here 6",
        );
        // Hidden from the ranks, PMIx leaves no way to join: every rank says so.
        let mut hidden = command("mpirun.openmpi");
        hidden.args(["--bind-to", "none", "--oversubscribe", "-np", "2", "env", "-u", "PMIX_NAMESPACE"]).arg(who());
        let cut_off = output(&mut hidden);
        let errors = text(&cut_off.stderr);
        assert!(!cut_off.status.success() && text(&cut_off.stdout).is_empty(), "{cut_off:?}");
        assert!(errors.contains("without PMIX_NAMESPACE") && errors.contains("BUSBW_RENDEZVOUS"), "{errors}");
        Ok(())
    });
}

#[test]
fn mpich() {
    unless_skipped(|| {
        programs(&["mpirun.mpich"])?;
        let who = who();
        joined(
            &output(command("mpirun.mpich").args(["-np", "3"]).arg(&who)),
            "launcher Mpich way Pmi1 size 3 gathered 0,1,2 here 3",
        );
        let closed = output(
            command("mpirun.mpich").args(["-np", "2", "sh", "-c"]).arg(format!("PMI_FD=99 exec {}", who.display())),
        );
        let all = text(&closed.stdout) + &text(&closed.stderr);
        assert!(!closed.status.success() && !all.contains("launcher Mpich"), "{all}");
        assert!(all.contains("PMI_FD=\"99\" is not open") && all.contains("BUSBW_RENDEZVOUS"), "{all}");
        Ok(())
    });
}

#[test]
fn by_hand_beside_mpirun() {
    unless_skipped(|| {
        programs(&["mpirun.mpich"])?;
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut mpirun = command("mpirun.mpich");
        mpirun.args(["-np", "3"]).arg(who());
        mpirun
            .env("BUSBW_RENDEZVOUS", format!("localhost:{port}"))
            .env("BUSBW_TOKEN", "00112233445566778899aabbccddeeff");
        joined(&output(&mut mpirun), "launcher Mpich way Fixed size 3 gathered 0,1,2 here 3");
        // The token alone: the launcher's store brings the address.
        joined(&output(mpirun.env_remove("BUSBW_RENDEZVOUS")), "launcher Mpich way Pmi1 size 3 gathered 0,1,2 here 3");
        Ok(())
    });
}

/// The command line that we build for hosts, which gives each rank this variable.
pub fn hosts_by_command_line(tool: Tool, program: &str, hosts: &str, command: &[&str]) -> Vec<String> {
    let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
    let starter = Starter { tool, program: program.into() };
    starter.command_line(&hosts.parse().unwrap(), &["NCCL_TEST_MARK".to_owned()], &command)
}

/// Run by the launcher itself.
fn hosts_by(tool: Tool, program: &str) {
    unless_skipped(|| {
        programs(&[program])?;
        let words = hosts_by_command_line(tool, program, "localhost:3", &[who().to_str().unwrap()]);
        joined(&output(command(&words[0]).args(&words[1..])), &format!("launcher {tool:?} way "));
        // MPICH's mpirun at times dies of SIGPIPE when a process ends before it has closed that process's standard input.
        let marking = ["sh", "-c", "echo $NCCL_TEST_MARK; sleep 0.3"];
        let words = hosts_by_command_line(tool, program, "localhost:3", &marking);
        let marks = output(command(&words[0]).args(&words[1..]).env("NCCL_TEST_MARK", "a mark"));
        assert_eq!(text(&marks.stdout), "a mark\n".repeat(3), "{marks:?}");
        Ok(())
    });
}

#[test]
fn hosts_by_open_mpi() {
    hosts_by(Tool::OpenMpi, "mpirun.openmpi");
}

#[test]
fn hosts_by_mpich() {
    hosts_by(Tool::Mpich, "mpirun.mpich");
}
