//! `busbw link` between lab hosts and in the RDMA guest: what it measures, and whom it names.

use crate::here::link::{alone, text};
use crate::support::command::BUSBW;
use crate::support::guest::{Guest, Step};
use crate::support::lab::NetLab;
use crate::support::process::{LIMIT, Running, run};
use crate::support::skip::needed;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// `busbw link` on `hosts` hosts of a lab, as JSON.
fn on_lab(lab: &NetLab, hosts: usize, arguments: &[&str]) -> Command {
    let mut command = lab.mpirun(1);
    let list: Vec<String> = (1..=hosts).map(NetLab::address).collect();
    command.args([BUSBW, "link", "--json", "--tcp"]).args(arguments).args(["--hosts", &list.join(",")]);
    command
}

/// Codes and titles of the findings that call for action.
fn problems(answer: &Value) -> Vec<(&str, &str)> {
    let findings = answer["findings"].as_array().expect("findings");
    let problems = findings.iter().filter(|finding| finding["severity"] != "info");
    problems.map(|finding| (text(&finding["code"]), text(&finding["title"]))).collect()
}

#[test]
fn the_host_with_a_limit_is_named() {
    let _turn = alone();
    let lab = needed!(NetLab::up(3, &[]));
    let mut limit = lab.exec(2, "tc");
    limit.args(["qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "1gbit", "burst", "1mb", "limit", "4mb"]);
    assert!(limit.status().unwrap().success());
    let ended = run(on_lab(&lab, 3, &["--flows", "1,4"]), LIMIT);
    let answer = ended.json();
    let problems = problems(&answer);
    let (code, title) = problems.first().expect("a problem");
    assert_eq!(*code, "straggler.node", "{answer:#}");
    assert!(title.starts_with("h2 is slow: it sends "), "{answer:#}");
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
}

#[test]
fn a_limit_per_flow_is_found() {
    let _turn = alone();
    // So low that four flows reach four times as much on a busy machine, too.
    let lab = needed!(NetLab::up(2, &["--flow-rate", "25"]));
    let ended = run(on_lab(&lab, 2, &["--flows", "1,2,4", "--size", "1M", "--seconds", "1"]), LIMIT);
    let answer = ended.json();
    let findings = answer["findings"].as_array().unwrap();
    let is_limit = |finding: &&Value| finding["title"].as_str().unwrap().starts_with("a limit per flow of about 0.");
    let found = findings.iter().find(is_limit).unwrap_or_else(|| panic!("{answer:#}"));
    assert_eq!(found["code"], "socket.tuning");
    assert!(found["remedy"][0].as_str().unwrap().contains("NCCL_SOCKET_NTHREADS=4"), "{found:#}");
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
}

#[test]
fn a_host_that_is_cut_off_is_named_and_the_others_are_measured() {
    let _turn = alone();
    let lab = needed!(NetLab::up(3, &[]));
    // The first pair to be measured is that of h2 and h3.
    let mut running = Running::start(on_lab(&lab, 3, &["--flows", "1", "--seconds", "1", "-T", "5"]));
    running.until_said(LIMIT, "a first pair", |said| said.contains("1 of 3 pairs").then_some(()));
    lab.link_down(3);
    // mpirun itself waits for the daemon beyond the cable; the answer does not.
    let answer: Value = running.until(LIMIT, "an answer", |printed| serde_json::from_str(printed).ok());
    let between = |from: u64, to: u64| {
        let links = answer["links"].as_array().unwrap();
        links.iter().find(|link| link["from"] == from && link["to"] == to).unwrap().clone()
    };
    assert!(between(0, 1)["gbit_s"].as_f64().is_some(), "{answer:#}");
    assert!(between(0, 2)["error"].as_str().is_some(), "{answer:#}");
    let problems = problems(&answer);
    assert!(problems.iter().any(|(code, title)| *code == "net.unreachable" && title.contains("h3")), "{answer:#}");
}

/// Lines of standard error that are busbw's.
fn said(step: &Step) -> Vec<&str> {
    step.stderr.lines().filter(|line| line.starts_with("busbw: ")).collect()
}

/// perftest by hand and `busbw link` in turn, over a cable of 16 Mbit/s: what it carries decides, as with a NIC of hardware,
/// and not how the guest's core divides itself.
const IN_TURN: &str = "
    tc qdisc add dev d0 root tbf rate 16mbit burst 16kb limit 1mb
    for turn in 1 2 3; do
        ib_write_bw -F -d rxe1 -x 1 -s 8192 -D 2 -p 19000 >/dev/null 2>&1 &
        until grep -q :4A38 /proc/net/tcp; do sleep 0.05; done
        ib_write_bw -F -d rxe0 -x 1 -s 8192 -D 2 -p 19000 10.1.1.2 | awk '$1 == 8192 {print \"hand\", $4 * 8.388608e-3}'
        wait
        BUSBW link --np 2 --rdma --device rxe0,rxe1 --flows 1 --size 8K --seconds 2 --timeout 60 --json >/tmp/link
        awk '/^      .gbit_s.:/ && !seen++ {print \"link\", $2 + 0}' /tmp/link
    done
    tc qdisc del dev d0 root";

#[test]
fn rdma_in_the_guest() {
    let _turn = alone();
    let with = |line: &str| line.replace("BUSBW", BUSBW);
    let link = "BUSBW link --np 2 --rdma --device rxe0,rxe1 --flows 1 --size 64K --seconds 1 --timeout 60";
    let lines = [
        with(IN_TURN),
        with(&format!("tc qdisc add dev d0 root netem loss 2%; {link} --json")),
        with(&format!("tc qdisc del dev d0 root; {link} --gid-index 7")),
        with(&format!("ip link set d0 down; {link}")),
        with(&format!("ip link set d0 up; PATH=/bin; {link}")),
    ];
    let steps = needed!(Guest::run(&[Path::new(BUSBW)], lines.each_ref().map(String::as_str)));
    let [in_turn, lossy, wrong_gid, port_down, no_perftest] = steps;

    let figures = |who: &str| -> Vec<f64> {
        in_turn.stdout.lines().filter_map(|line| line.strip_prefix(who)?.trim().parse().ok()).collect()
    };
    let (hand, link) = (figures("hand "), figures("link "));
    assert_eq!((hand.len(), link.len()), (3, 3), "{in_turn:?}");
    let middle = |figures: &[f64]| busbw_model::median(figures.iter().copied()).expect("three figures");
    let ratio = middle(&link) / middle(&hand);
    assert!((0.95..=1.05).contains(&ratio), "link {link:?}, by hand {hand:?}");

    let answer: Value = serde_json::from_str(&lossy.stdout).unwrap_or_else(|error| panic!("{error}: {lossy:?}"));
    let problems = problems(&answer);
    assert!(
        problems.iter().any(|(code, title)| *code == "roce.config" && title.contains("packets were lost")),
        "{answer:#}"
    );
    assert_eq!(lossy.status, 1);

    for (step, says) in [
        (&wrong_gid, "rxe0 has no GID at index 7; its RoCE v2 GIDs are at 0, 1: correct --gid-index"),
        (&port_down, "port 1 of rxe0 is DOWN, not ACTIVE: connect its cable"),
        (&no_perftest, "ib_write_bw is missing: install perftest"),
    ] {
        assert!(step.stderr.contains(says) || step.stdout.contains(says), "{step:?}");
        assert_ne!(step.status, 0, "{step:?}");
    }
    for step in [&wrong_gid, &port_down] {
        assert_eq!((step.status, said(step).len()), (2, 1), "{step:?}");
    }
    // What the machine lacks is no fault of the command line.
    assert_eq!(no_perftest.status, 77, "{no_perftest:?}");
}
