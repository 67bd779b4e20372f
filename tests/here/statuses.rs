//! Exit statuses that a scheduler tells apart: what this machine lacks is no bad usage.

use crate::support::command::BUSBW;
use crate::support::process::{LIMIT, run};
use std::process::Command;

/// What `busbw` ends with where no program is on the PATH, and the one line that it says last.
fn ended(words: &str) -> (Option<i32>, String) {
    let ended = run(Command::new(BUSBW).args(words.split_whitespace()).env("PATH", "/nowhere"), LIMIT);
    (ended.status.code(), ended.stderr.lines().last().unwrap_or_default().to_owned())
}

#[test]
fn what_is_missing_here_is_not_applicable() {
    for (words, says) in [
        ("bench all_reduce --hosts a,b", "mpirun is not on PATH"),
        ("link a b", "mpirun is not on PATH"),
        ("check --hosts a,b", "mpirun is not on PATH"),
        ("plugin check a b --plugin libnccl-net-busbw.so", "mpirun is not on PATH"),
        ("link --np 2 --rdma", "install perftest"),
    ] {
        let (status, line) = ended(words);
        assert_eq!(status, Some(77), "{words}: {line}");
        assert!(line.starts_with("busbw: ") && (line.contains(says) || line.contains("no RDMA device")), "{line}");
    }
}

#[test]
fn hosts_that_do_not_resolve_are_named() {
    run(Command::new(BUSBW).args(["link", "no-such-host.invalid", "other.invalid"]), LIMIT)
        .refused("busbw: the hosts no-such-host.invalid and other.invalid do not resolve");
}

#[test]
fn what_is_asked_wrongly_stays_2() {
    for words in [
        "bench all_reduce --no-such-flag",
        "accelerate --nodes 2",
        "bench all_reduce --hosts a,,b",
        "check /no/such/facts.json",
        "explain /no/such/file",
        "link a",
        "tune --variable A=1,2 -- /no/such/program",
    ] {
        let (status, line) = ended(words);
        assert_eq!(status, Some(2), "{words}: {line}");
    }
}
