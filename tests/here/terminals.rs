//! A terminal that goes away ends what is on it: a window is closed, ssh or tmux ends.

use super::tune::Stage;
use crate::support::command::BUSBW;
use crate::support::lab::mpirun_openmpi;
use crate::support::process::{ignoring, signal};
use crate::support::skip::needed;
use crate::support::terminal::OnTerminal;
use std::fs;
use std::process::Command;

fn busbw(line: &str) -> Command {
    let mut command = Command::new(BUSBW);
    command.args(line.split(' '));
    command
}

/// Every command that shows how far it is, or reads what is typed, and what it shows first.
#[test]
fn what_is_on_a_terminal_ends_with_it() {
    for (line, shows) in [
        ("link --np 2 --tcp --seconds 60 --flows 1 --size 1M", "of 1 pairs"),
        ("bench all_reduce --np 2 -b 1M -e 1M -n 1000000 -c 0 --stall-timeout 5", "(GB/s)"),
        ("monitor -i 50ms", "cpu"),
        ("monitor --json -i 50ms", "host"),
        ("explain -", ""),
    ] {
        let mut command = OnTerminal::of_a_session(&busbw(line));
        command.see(shows);
        command.close();
        command.ended();
    }
}

/// Without the signal of a session: `nohup`, or a program that owns the terminal.
#[test]
fn what_reads_a_terminal_ends_where_no_signal_comes() {
    for (line, shows) in [("explain -", ""), ("monitor -i 50ms", "cpu"), ("monitor --json -i 50ms", "host")] {
        let mut command = OnTerminal::alone(busbw(line));
        command.see(shows);
        command.close();
        command.ended();
    }
}

/// Every signal that asks to end, and the end of its terminal, leave a sweep that goes on where it was.
#[test]
fn a_sweep_survives_signals_and_its_terminal() {
    let stage = Stage::new();
    let gate = stage.path("gate");
    // Every run but each first waits at the gate.
    let script = format!(
        "echo run >> {counts}; while [ $(wc -l < {counts}) -gt 1 ] && [ ! -e {gate} ]; do sleep 0.05; done; echo t ${{A:-9}}",
        counts = stage.path("counts/all")
    );
    let command = || {
        let mut command =
            stage.busbw(&["--var", "A=1,2", "--exhaustive", "--rounds", "2", "--minimize", "t ([0-9.]+)"]);
        command.args(["--", "bash", "-c", &script]);
        command
    };
    for (at, name) in ["INT", "TERM", "HUP", ""].into_iter().enumerate() {
        let mut sweep = OnTerminal::of_a_session(&command());
        crate::support::terminal::wait_for("the next trial", || stage.runs() == 2 + at);
        match name {
            "" => sweep.close(),
            name => signal(sweep.child.id(), name),
        }
        sweep.ended();
    }
    fs::write(&gate, "").expect("the gate opens");
    let ended = command().output().expect("busbw runs");
    assert_eq!(ended.status.code(), Some(0), "{}", String::from_utf8_lossy(&ended.stderr));
    // Six trials, and four that were cut off.
    assert_eq!(stage.runs(), 10);
}

/// `nohup busbw …`: the terminal's end, and its signal, end neither a sweep nor a test of links.
#[test]
fn what_ignores_the_signal_outlives_its_terminal() {
    let stage = Stage::new();
    let gate = stage.path("gate");
    let script = format!("while [ ! -e {gate} ]; do sleep 0.05; done; echo t ${{A:-9}}");
    let mut sweep = stage.busbw(&["--var", "A=1,2", "--exhaustive", "--rounds", "1", "--minimize", "t ([0-9.]+)"]);
    sweep.args(["--", "bash", "-c", &script]);
    let mut sweep = OnTerminal::of_a_session(&ignoring("HUP", &sweep));
    sweep.see("setting");
    let mut link =
        OnTerminal::of_a_session(&ignoring("HUP", &busbw("link --np 2 --tcp --seconds 2 --flows 1 --size 1M")));
    link.see("of 1 pairs");
    for command in [&mut sweep, &mut link] {
        signal(command.child.id(), "HUP");
        command.close();
    }
    fs::write(&gate, "").expect("the gate opens");
    // They come to their end, and have nobody to show their results to: `nohup` itself gives them a file.
    assert_eq!((sweep.ended().code(), link.ended().code()), (Some(2), Some(2)));
}

/// Ctrl-C reaches mpirun by the terminal, and once.
#[test]
fn a_key_ends_the_ranks_of_hosts() {
    needed!(mpirun_openmpi(1));
    let mut command = busbw("bench all_reduce --hosts localhost:2 -b 1M -e 1M -n 1000000 -c 0 --stall-timeout 5");
    let root = [("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")];
    command.envs(root).env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    let mut job = OnTerminal::of_a_session(&command);
    job.see("(GB/s)");
    job.press("\x03");
    assert_eq!(job.ended().code(), Some(130));
}
