//! `busbw` between hosts when the network breaks, or a launcher cannot start ranks.

use crate::here::bench_faults::{ENDLESS, ENDS, assert_blamed, assert_nothing_left, busy, said, turn};
use crate::support::command::BUSBW;
use crate::support::lab::NetLab;
use crate::support::process::{Running, run};
use crate::support::script::executable;
use crate::support::skip::needed;
use crate::support::table::RankLine;
use crate::support::terminal::wait_for;
use std::process::Command;

#[test]
fn a_cable_is_cut() {
    let _turn = turn();
    let hosts = needed!(NetLab::up(2, &[]));
    let mut command = hosts.mpirun(1);
    command.arg(BUSBW).args(["bench", "all_reduce"]).args(ENDLESS);
    let (mut running, lines) = busy(command, 2);
    hosts.link_down(2);
    // mpirun itself waits for the daemon beyond the cable; the ranks of both sides do not.
    running.gone("busbw", ENDS);
    // A rank's last words come by way of mpirun, after its end.
    running.until_said(ENDS, "line of a survivor", |stderr| (!said(stderr).is_empty()).then_some(()));
    assert_blamed(&running.stderr(), 1, &lines[1]);
    assert_nothing_left(&running);
}

/// busbw on the first of two hosts, which starts mpirun itself.
fn by_hosts(hosts: &NetLab, line: &str) -> Command {
    let mut command = hosts.exec(1, BUSBW);
    command.args(line.split(' '));
    command
}

/// mpirun waits for its daemon beyond the cable, for minutes; busbw ends it some time after the ranks.
#[test]
fn a_launcher_that_outlives_its_ranks_is_ended() {
    let _turn = turn();
    let hosts = needed!(NetLab::up(2, &[]));
    let line = format!("bench all_reduce --hosts h1:1,h2:1 {}", ENDLESS.join(" "));
    let (mut running, lines) = busy(by_hosts(&hosts, &line), 2);
    hosts.link_down(2);
    let ended = running.ended(ENDS);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert_blamed(&ended.stderr, 1, &lines[1]);
    assert!(!ended.stderr.contains("busbw-mark"), "{ended:?}");
    wait_for("the end of mpirun and its daemon", || running.processes().is_empty());
}

/// Whoever starts ranks says in a line which host keeps them from starting, behind what the launcher says.
#[test]
fn a_host_that_refuses_is_named() {
    let hosts = needed!(NetLab::up(2, &[]));
    let folder = tempfile::tempdir().expect("a folder");
    let refuses = folder.path().join("ssh");
    let script = "#!/bin/sh\necho 'ssh: connect to host h2 port 22: Connection refused' >&2; exit 255\n";
    executable(&refuses, script);
    let tune = format!("tune --store {}/store --no-default --var NCCL_ALGO=Ring", folder.path().display());
    for (agent, says) in
        [(refuses.as_path(), "h2 did not answer: ssh: connect to host h2"), ("/no/ssh".as_ref(), "h1, h2")]
    {
        for line in [
            "bench all_reduce --hosts h1:1,h2:1",
            "link h1 h2",
            &format!("{tune} -- mpirun.openmpi --host h1,h2 hostname"),
        ] {
            let ended = run(by_hosts(&hosts, line).env("OMPI_MCA_plm_rsh_agent", agent), ENDS);
            assert_eq!(ended.status.code(), Some(2), "{line}: {ended:?}");
            let last = said(&ended.stderr).last().copied().unwrap_or_default();
            let begins = format!("busbw: no ranks were started; {says}");
            assert!(last.starts_with(&begins) && last.contains("passwordless ssh"), "{line}: {ended:?}");
        }
    }
}

/// Changes a byte of the next 30 long packets that host 2 sends.
fn flip_bytes(hosts: &NetLab) {
    let rule = "tcp dport != 22 meta length > 2000 limit rate 1/hour burst 30 packets @th,4800,8 set 0xa5 counter";
    let table = format!("table ip flip {{ chain out {{ type filter hook output priority 0; {rule}; }}; }}");
    assert!(hosts.exec(2, "nft").arg(table).status().expect("nft is there").success());
}

fn flipped(hosts: &NetLab) -> String {
    let rules = hosts.exec(2, "nft").args(["list", "table", "ip", "flip"]).output().expect("nft is there");
    String::from_utf8_lossy(&rules.stdout).into_owned()
}

/// Timed operations for far longer than a rule of nft's needs to be made; only one operation of each half is checked.
fn timed(hosts: &NetLab, own: &[&str], environment: &[(&str, &str)]) -> (Running, Vec<RankLine>) {
    let mut command = hosts.mpirun(1);
    for (name, value) in environment {
        command.arg("-x").arg(format!("{name}={value}"));
    }
    command
        .arg(BUSBW)
        .args(["bench", "all_reduce", "-b", "16M", "-e", "16M", "-n", "100", "--stall-timeout", "30"])
        .args(own);
    busy(command, 2)
}

#[test]
fn bytes_that_are_damaged_in_timed_operations_end_the_run() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("run.json").display().to_string();
    for (own, environment) in [(&["--checksum", "-J", &json][..], &[][..]), (&[], &[("BUSBW_NET_CHECKSUM", "1")])] {
        let hosts = needed!(NetLab::up(2, &[]));
        let (mut running, lines) = timed(&hosts, own, environment);
        flip_bytes(&hosts);
        let ended = running.ended(ENDS);
        assert_eq!(ended.status.code(), Some(1), "{ended:?}\n{}", flipped(&hosts));
        let told = said(&ended.stderr).join("\n");
        for rank in &lines {
            assert!(told.contains(&format!("rank {} on host {}", rank.rank, rank.host)), "{told}");
        }
        assert!(told.contains("was damaged on its way"), "{told}");
        assert_nothing_left(&running);
    }
    let kept: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).expect("the JSON")).expect("JSON");
    assert!(kept["errors"].to_string().contains("was damaged on its way"), "{kept}");
}

#[test]
fn without_checksums_the_table_does_not_claim_that_timed_operations_were_right() {
    let _turn = turn();
    let hosts = needed!(NetLab::up(2, &[]));
    let (mut running, _) = timed(&hosts, &[], &[]);
    flip_bytes(&hosts);
    let ended = running.ended(ENDS * 3);
    assert!(ended.status.success(), "{ended:?}");
    assert!(flipped(&hosts).contains("counter packets 30 "), "{}", flipped(&hosts));
    let table = running.stdout();
    assert!(table.contains("# Out of bounds values : 0 OK\n"), "{table}");
    assert!(
        table.contains("# Results checked      : 1 operation per size and placement, not the timed ones"),
        "{table}"
    );
}
