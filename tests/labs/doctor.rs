//! `busbw doctor` on several hosts of a lab: one answer and one page, which name the slow host and the one that is cut off, and
//! nothing that is left when somebody interrupts.

use crate::here::link::{alone, text};
use crate::support::command::BUSBW;
use crate::support::lab::NetLab;
use crate::support::process::{Ended, LIMIT, Running, run, signal};
use crate::support::skip::needed;
use crate::support::terminal::wait_for;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// `busbw doctor` on host 1 of a lab, in a folder.
fn doctor(lab: &NetLab, folder: &Path, arguments: &[&str]) -> Command {
    let mut command = lab.exec(1, BUSBW);
    let largest = if arguments.contains(&"-e") { &[][..] } else { &["-e", "64K"] };
    command.arg("doctor").args(largest).args(arguments);
    command.current_dir(folder);
    command
}

const HOSTS: [&str; 2] = ["--hosts", "h1,h2,h3"];

/// Runs it for the page; what was printed, the answer, and the page.
fn page(lab: &NetLab) -> (Ended, Value, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let ended = run(doctor(lab, folder.path(), &[&HOSTS[..], &["-o", "page.html", "--json=report"]].concat()), LIMIT);
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    assert!(page.starts_with("<!doctype html>"), "{page:.200}");
    let answer = kept(folder.path());
    (ended, answer, page)
}

/// The report that `--json=report` keeps.
fn kept(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("report")).expect("a report")).expect("JSON")
}

/// The first line of an answer.
fn verdict(answer: &Value) -> String {
    format!("{}: {}", text(&answer["verdict"]), text(&answer["summary"]))
}

/// Whether a table of this many ranks was measured.
fn measured(answer: &Value, ranks: u64) -> bool {
    let tables = answer["tables"].as_array().expect("tables");
    tables.iter().any(|table| table["nranks"] == ranks && table["rows"].as_array().is_some_and(|rows| rows.len() > 5))
}

fn judged<'a>(answer: &'a Value, what: &str) -> Vec<&'a str> {
    let all = answer["judged"].as_array().expect("judged");
    all.iter().filter(|one| text(&one["what"]).contains(what)).map(|one| text(&one["outcome"])).collect()
}

#[test]
fn sound_hosts_have_not_failed() {
    let _turn = alone();
    let lab = needed!(NetLab::up(3, &[]));
    let folder = tempfile::tempdir().expect("a folder");
    let ended = run(doctor(&lab, folder.path(), &["h1", "h2", "h3", "--json=report"]), LIMIT);
    let answer = kept(folder.path());
    // On a busy machine a link may be slow in earnest; then it is said, and nothing has failed.
    assert_ne!(answer["verdict"], "failed", "{answer:#}");
    assert!(matches!(ended.status.code(), Some(0 | 1 | 3)), "{ended:?}");
    assert!(measured(&answer, 3), "{answer:#}");
    for host in ["h1", "h2", "h3"] {
        assert_eq!(judged(&answer, host), ["passed"], "{answer:#}");
    }
    assert_eq!(judged(&answer, "links over TCP").len(), 1, "{answer:#}");
    let steps: Vec<&str> = ended.stderr.lines().filter(|line| line.starts_with("busbw: step ")).collect();
    assert_eq!(steps.len(), 4, "{ended:?}");
    assert!(steps[1].ends_with("all 3 pairs of 3 hosts; left: all-reduce, answer"), "{steps:?}");
    assert!(steps[2].contains("no GPU on h1, h2, h3") && steps[2].contains("CPU cores"), "{steps:?}");
}

#[test]
fn the_slow_host_is_named() {
    let _turn = alone();
    let lab = needed!(NetLab::up(3, &[]));
    let mut limit = lab.exec(2, "tc");
    limit.args("qdisc replace dev eth0 root tbf rate 100mbit burst 128kb limit 1mb".split(' '));
    assert!(limit.status().is_ok_and(|status| status.success()));
    let (ended, answer, page) = page(&lab);
    assert!(verdict(&answer).starts_with("degraded: h2 is slow: it sends 0."), "{ended:?}");
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    for says in ["h2 is slow: it sends 0.", "ethtool eth0", "all_reduce"] {
        assert!(page.contains(says), "{says}");
    }
}

#[test]
fn the_host_that_is_cut_off_is_named_and_the_others_have_their_results() {
    let _turn = alone();
    let lab = needed!(NetLab::up(3, &[]));
    lab.link_down(3);
    let (ended, answer, page) = page(&lab);
    assert!(verdict(&answer).starts_with("failed: h3 did not answer: "), "{ended:?}");
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(ended.stdout.contains("2 ranks on 2 hosts") && ended.stdout.contains("Out of bounds values : 0 OK"));
    for says in ["h3 did not answer: ", "h1", "h2", "all_reduce"] {
        assert!(page.contains(says), "{says}");
    }
}

/// Cut off while the links are measured: the all-reduce goes on without it.
#[test]
fn the_host_that_is_lost_on_the_way_is_named() {
    let _turn = alone();
    let lab = needed!(NetLab::up(3, &[]));
    let folder = tempfile::tempdir().expect("a folder");
    // The first pair to be measured is that of h2 and h3.
    let mut running = Running::start(doctor(&lab, folder.path(), &[&HOSTS[..], &["--json"]].concat()));
    running.until_said(LIMIT, "a first pair", |said| said.contains("1 of 3 pairs").then_some(()));
    lab.link_down(3);
    let ended = running.ended(LIMIT);
    let answer = ended.json();
    assert_eq!(answer["verdict"], "failed", "{answer:#}");
    let first = &answer["findings"][0];
    assert!(first["code"] == "net.unreachable" && text(&first["title"]).contains("h3"), "{answer:#}");
    assert!(measured(&answer, 2), "{answer:#}\n{}", ended.stderr);
}

#[test]
fn an_interruption_leaves_nothing_behind() {
    let _turn = alone();
    let lab = needed!(NetLab::up(3, &[]));
    let folder = tempfile::tempdir().expect("a folder");
    for (moment, endless) in [("step 1 of 4", "64K"), ("1 of 3 pairs", "64K"), ("step 3 of 4", "64M")] {
        let mut running = Running::start(doctor(&lab, folder.path(), &[&HOSTS[..], &["-e", endless]].concat()));
        running.until_said(LIMIT, moment, |said| said.contains(moment).then_some(()));
        // Ranks are under way, or about to be.
        std::thread::sleep(std::time::Duration::from_millis(300));
        signal(running.id(), "INT");
        let ended = running.ended(LIMIT);
        assert_eq!(ended.status.code(), Some(130), "{moment}: {ended:?}");
        wait_for("the end of all on the hosts", || running.processes().is_empty());
        assert!(fs::read_dir(folder.path()).is_ok_and(|mut left| left.next().is_none()), "{moment}");
    }
}

/// Two ranks on each host of a job: one of each is asked, and measures.
#[test]
fn in_a_job_its_hosts_are_found() {
    let _turn = alone();
    let lab = needed!(NetLab::up(3, &[]));
    let folder = tempfile::tempdir().expect("a folder");
    let ended = run(lab.mpirun(2).args([BUSBW, "doctor", "-e", "64K", "--json"]).current_dir(folder.path()), LIMIT);
    let answer = ended.json();
    assert!(measured(&answer, 3), "{answer:#}");
    assert_eq!(judged(&answer, "links over TCP").len(), 1, "{answer:#}");
    for host in ["h1", "h2", "h3"] {
        assert_eq!(judged(&answer, host).len(), 1, "{answer:#}");
    }
}
