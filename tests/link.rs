//! `busbw link` between lab hosts and in the RDMA guest: what it measures, and whom it names.

#[allow(dead_code, reason = "each test file uses a part of it")]
#[path = "support/lab.rs"]
mod lab;
#[allow(dead_code, reason = "each test file uses a part of it")]
#[path = "support/process.rs"]
mod process;

use lab::{NetLab, Skip};
use process::{Ended, Running, run};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

const BUSBW: &str = env!("CARGO_BIN_EXE_busbw");
/// No run here takes longer, on a machine however busy.
const LIMIT: Duration = Duration::from_secs(240);

fn unless_skipped(test: impl FnOnce() -> Result<(), Skip>) {
    if let Err(skip) = test() {
        skip.say();
    }
}

/// `busbw link` on `hosts` hosts of a lab, as JSON.
fn on_lab(lab: &NetLab, hosts: usize, arguments: &[&str]) -> Command {
    let mut command = lab.mpirun(1);
    let list: Vec<String> = (1..=hosts).map(NetLab::address).collect();
    command.args([BUSBW, "link", "--json", "--tcp"]).args(arguments).args(["--hosts", &list.join(",")]);
    command
}

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// Codes and titles of the findings that call for action.
fn problems(answer: &Value) -> Vec<(&str, &str)> {
    let findings = answer["findings"].as_array().expect("findings");
    let problems = findings.iter().filter(|finding| finding["severity"] != "info");
    problems.map(|finding| (finding["code"].as_str().unwrap(), finding["title"].as_str().unwrap())).collect()
}

#[test]
fn two_local_ranks_try_it_out() {
    let mut command = Command::new(BUSBW);
    command.args(["link", "--np", "2", "--tcp", "--json", "--seconds", "0.05", "--size", "4K,1M", "--both-ways"]);
    let ended = run(command, LIMIT);
    let answer = json(&ended);
    assert_eq!(answer["schema"], "busbw.link/1");
    let links = answer["links"].as_array().unwrap();
    assert_eq!(
        links.iter().map(|link| (link["from"].as_u64().unwrap(), link["to"].as_u64().unwrap())).collect::<Vec<_>>(),
        [(0, 1), (1, 0)]
    );
    for link in links {
        let counts = ["flows", "sizes"].map(|table| link[table].as_array().unwrap().len());
        assert_eq!(counts, [5, 2]);
        for figure in ["gbit_s", "gbit_s_both_ways", "latency_median_us", "latency_p99_us"] {
            assert!(link[figure].as_f64().is_some_and(|figure| figure > 0.0), "{figure}: {link}");
        }
    }
}

#[test]
fn the_host_with_a_limit_is_named() {
    unless_skipped(|| {
        let lab = NetLab::up(3, &[])?;
        let mut limit = lab.exec(2, "tc");
        limit.args(["qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "1gbit", "burst", "1mb", "limit", "4mb"]);
        assert!(limit.status().unwrap().success());
        let ended = run(on_lab(&lab, 3, &["--flows", "1,4"]), LIMIT);
        let answer = json(&ended);
        let problems = problems(&answer);
        assert_eq!(problems.len(), 1, "{answer:#}");
        let (code, title) = problems[0];
        assert_eq!(code, "straggler.node");
        assert!(title.starts_with("h2 is slow: it sends "), "{title}");
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        Ok(())
    });
}

#[test]
fn a_limit_per_flow_is_found() {
    unless_skipped(|| {
        // So low that four flows reach four times as much on a busy machine, too.
        let lab = NetLab::up(2, &["--flow-rate", "25"])?;
        let ended = run(on_lab(&lab, 2, &["--flows", "1,2,4", "--size", "1M", "--seconds", "1"]), LIMIT);
        let answer = json(&ended);
        let findings = answer["findings"].as_array().unwrap();
        let found =
            findings.iter().find(|finding| finding["code"] == "socket.tuning").unwrap_or_else(|| panic!("{answer:#}"));
        assert!(found["title"].as_str().unwrap().starts_with("a limit per flow of about 0."), "{found:#}");
        assert!(found["remedy"][0].as_str().unwrap().contains("NCCL_SOCKET_NTHREADS=4"), "{found:#}");
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        Ok(())
    });
}

#[test]
fn a_host_that_is_cut_off_is_named_and_the_others_are_measured() {
    unless_skipped(|| {
        let lab = NetLab::up(3, &[])?;
        // The first pair to be measured is that of h2 and h3.
        let mut running = Running::start(on_lab(&lab, 3, &["--flows", "1", "--seconds", "1", "-T", "5"]));
        running.until_said(LIMIT, "a first pair", |said| said.contains("1 of 3 pairs").then_some(()));
        lab.link_down(3);
        let ended = running.ended(LIMIT);
        let answer = json(&ended);
        let between = |from: u64, to: u64| {
            let links = answer["links"].as_array().unwrap();
            links.iter().find(|link| link["from"] == from && link["to"] == to).unwrap().clone()
        };
        assert!(between(0, 1)["gbit_s"].as_f64().is_some(), "{answer:#}");
        assert!(between(0, 2)["error"].as_str().is_some(), "{answer:#}");
        let problems = problems(&answer);
        assert!(problems.iter().any(|(code, title)| *code == "net.unreachable" && title.contains("h3")), "{answer:#}");
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        Ok(())
    });
}
