//! The example `who` under real launchers: our own spawn, Open MPI, MPICH and torchrun, where they are installed.

use crate::process::{Ended, LIMIT, Running, run, signal};
use crate::skip::{needed, programs};
use busbw_launch::Lookup;
use busbw_launch::command::{Starter, Tool};
use busbw_launch::{Invocation, Started};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

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

/// Checks that rank 0's line, and no other, was printed, and begins with `says`.
pub fn joined(ended: &Ended, says: &str) {
    let lines: Vec<&str> = ended.printed().lines().filter(|line| line.starts_with("launcher")).collect();
    assert!(lines.len() == 1 && lines[0].starts_with(says), "{ended:?}");
}

pub fn ended(command: &mut Command) -> Ended {
    run(command, LIMIT)
}

#[test]
fn our_own_spawn() {
    joined(&ended(command(who()).args(["--np", "1"])), "launcher Busbw way Alone size 1 gathered 0 here 1");
    let says = "launcher Busbw way Fixed size 8 gathered 0,1,2,3,4,5,6,7 here 8";
    joined(&ended(command(who()).args(["--np", "4", "--threads", "2"])), says);
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
    let killed = ended(command(who()).args(["--np", "3", "--die", "1"]));
    assert_eq!(killed.code(), Some(128 + 6), "{killed:?}");
    let errors = killed.stderr;
    assert!(errors.lines().count() == 2, "{errors}");
    assert!(
        errors.lines().all(|line| line.starts_with("who: rank 1 on host ") && line.contains("has ended")),
        "{errors}"
    );
    let failed = ended(command(who()).args(["--np", "3", "--fail", "2"]));
    assert_eq!(failed.code(), Some(1), "{failed:?}");
    let errors = failed.stderr;
    assert!(
        errors.lines().count() == 3 && errors.lines().all(|line| line.ends_with(": a fault on request")),
        "{errors}"
    );
}

#[test]
fn our_own_spawn_leaves_no_rank_behind_a_signal() {
    for (name, status) in [("INT", Some(130)), ("TERM", Some(143)), ("KILL", None)] {
        let mut running = Running::start(command(who()).args(["--np", "3", "--hang", "1"]));
        // Rank 0 has printed its line: every rank is up.
        running.until(LIMIT, "line", |out| out.starts_with("launcher").then_some(()));
        assert_eq!(running.processes().len(), 4);
        signal(running.id(), name);
        let ended = running.ended(LIMIT);
        assert_eq!(ended.code(), status, "{ended:?}");
        assert_eq!(ended.status.signal(), if status.is_none() { Some(9) } else { None });
        running.gone("who", LIMIT);
    }
}

#[test]
fn a_stopped_rank_is_named_by_all_others() {
    for victim in [0, 1] {
        let mut running = Running::start(command(who()).args(["--np", "3", "--hang", "2", "--timeout", "4"]));
        let line = running.until(LIMIT, "line", |out| out.split_once('\n').map(|(line, _)| line.to_owned()));
        let (_, members) = line.trim().split_once(" members ").unwrap();
        let (_, pid) = members.split(' ').nth(victim).unwrap().split_once(':').unwrap();
        signal(pid.parse().unwrap(), "STOP");
        let ended = running.ended(LIMIT);
        let errors = &ended.stderr;
        let says = format!("(pid {pid}) has not answered for 4 s: stopped, or its host or cable is cut off");
        let named =
            errors.lines().filter(|line| line.starts_with(&format!("who: rank {victim} on")) && line.ends_with(&says));
        assert_eq!(named.count(), 2, "{errors}");
        assert_ne!(ended.code(), Some(0));
    }
}

#[test]
fn our_own_spawn_refuses_what_cannot_work() {
    let mut inside = command(who());
    inside.args(["--np", "2"]).envs([("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("PMI_FD", "9")]);
    let errors = ended(&mut inside).stderr;
    assert!(errors.contains("--np 2 would start as many ranks in each of the 2 processes of Mpich"), "{errors}");
    assert!(ended(command(who()).args(["--np", "0"])).stderr.contains("--np 0 starts nothing"));
}

#[test]
fn open_mpi() {
    needed!(programs(&["mpirun.openmpi"]));
    let mpirun = || {
        let mut command = command("mpirun.openmpi");
        command.args(["--bind-to", "none", "--oversubscribe", "-np", "3"]).arg(who());
        command
    };
    joined(&ended(&mut mpirun()), "launcher OpenMpi way Pmix size 3 gathered 0,1,2 here 3");
    joined(&ended(mpirun().args(["--threads", "2"])), "launcher OpenMpi way Pmix size 6 gathered 0,1,2,3,4,5 here 6");
    // Hidden from the ranks, PMIx leaves no way to join: every rank says so.
    let mut hidden = command("mpirun.openmpi");
    hidden.args(["--bind-to", "none", "--oversubscribe", "-np", "2", "env", "-u", "PMIX_NAMESPACE"]).arg(who());
    let cut_off = ended(&mut hidden);
    let errors = &cut_off.stderr;
    assert!(!cut_off.status.success() && cut_off.stdout.is_empty(), "{cut_off:?}");
    assert!(errors.contains("without PMIX_NAMESPACE") && errors.contains("BUSBW_RENDEZVOUS"), "{errors}");
}

#[test]
fn mpich() {
    needed!(programs(&["mpirun.mpich"]));
    let who = who();
    joined(
        &ended(command("mpirun.mpich").args(["-np", "3"]).arg(&who)),
        "launcher Mpich way Pmi1 size 3 gathered 0,1,2 here 3",
    );
    let closed =
        ended(command("mpirun.mpich").args(["-np", "2", "sh", "-c"]).arg(format!("PMI_FD=99 exec {}", who.display())));
    let all = closed.stdout + &closed.stderr;
    assert!(!closed.status.success() && !all.contains("launcher Mpich"), "{all}");
    assert!(all.contains("PMI_FD=\"99\" is not open") && all.contains("BUSBW_RENDEZVOUS"), "{all}");
}

#[test]
fn by_hand_beside_mpirun() {
    needed!(programs(&["mpirun.mpich"]));
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut mpirun = command("mpirun.mpich");
    mpirun.args(["-np", "3"]).arg(who());
    mpirun.env("BUSBW_RENDEZVOUS", format!("localhost:{port}")).env("BUSBW_TOKEN", "00112233445566778899aabbccddeeff");
    joined(&ended(&mut mpirun), "launcher Mpich way Fixed size 3 gathered 0,1,2 here 3");
    // The token alone: the launcher's store brings the address.
    joined(&ended(mpirun.env_remove("BUSBW_RENDEZVOUS")), "launcher Mpich way Pmi1 size 3 gathered 0,1,2 here 3");
}

/// The command line that we build for hosts, which gives each rank this variable.
pub fn hosts_by_command_line(tool: Tool, program: &str, hosts: &str, command: &[&str]) -> Vec<String> {
    let command: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
    let starter = Starter { tool, program: program.into() };
    starter.command_line(&hosts.parse().unwrap(), &["NCCL_TEST_MARK".to_owned()], &command)
}

/// Run by the launcher itself.
fn hosts_by(tool: Tool, program: &str) {
    needed!(programs(&[program]));
    let words = hosts_by_command_line(tool, program, "localhost:3", &[who().to_str().unwrap()]);
    joined(&ended(command(&words[0]).args(&words[1..])), &format!("launcher {tool:?} way "));
    // MPICH's mpirun at times dies of SIGPIPE when a process ends before it has closed that process's standard input.
    let marking = ["sh", "-c", "echo $NCCL_TEST_MARK; sleep 0.3"];
    let words = hosts_by_command_line(tool, program, "localhost:3", &marking);
    let marks = ended(command(&words[0]).args(&words[1..]).env("NCCL_TEST_MARK", "a mark"));
    assert_eq!(marks.stdout, "a mark\n".repeat(3), "{marks:?}");
}

#[test]
fn hosts_by_open_mpi() {
    hosts_by(Tool::OpenMpi, "mpirun.openmpi");
}

#[test]
fn hosts_by_mpich() {
    hosts_by(Tool::Mpich, "mpirun.mpich");
}
