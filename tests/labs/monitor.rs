//! `busbw monitor` on the devices of the RDMA guest.

use crate::here::monitor::lines;
use crate::support::command::BUSBW;
use crate::support::guest::Guest;
use crate::support::lab::NetLab;
use crate::support::process::{LIMIT, Running, run, signal};
use crate::support::skip::needed;
use crate::support::terminal::OnTerminal;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Runs perftest's client on rxe0 against rxe1 while the monitor records, and prints its table and the last lines of JSON.
/// `before` prepares the wire. Sends with few packets under way, which the emulated machine does not lose by itself.
fn recorded_transfer(before: &str) -> String {
    let busbw = BUSBW;
    let test = "-x 1 -n 1000 -s 16384 -t 2";
    format!(
        "{before}
        rm -f /tmp/run.rec; touch /tmp/run.rec
        {busbw} monitor --quiet --interval 100ms --record /tmp/run.rec &
        monitor=$!
        length() {{ wc -c </tmp/run.rec; }}
        until [ $(length) -gt 200 ]; do sleep 0.1; done
        ib_write_bw -d rxe1 {test} >/dev/null & server=$!
        # The client fails as long as the server does not listen.
        until ib_write_bw -d rxe0 {test} 10.1.1.2; do kill -0 $server || break; sleep 0.2; done
        wait $server
        # Two more samples, the second of which was taken after the transfer.
        for more in 1 2; do before=$(length); until [ $(length) -gt $before ]; do sleep 0.1; done; done
        kill -INT $monitor; wait $monitor
        {busbw} monitor --replay /tmp/run.rec --json"
    )
}

#[test]
fn on_a_real_device_bytes_owners_and_losses_are_seen() {
    let clean = recorded_transfer("");
    let lossy = recorded_transfer("/usr/bin/tc qdisc add dev d0 root netem loss 2%");
    let steps = needed!(Guest::run(&[Path::new(BUSBW)], [&clean, &lossy]));
    for step in &steps {
        assert_eq!(step.status, 0, "{}\n{}", step.stdout, step.stderr);
    }
    let [clean, lossy] = steps.map(|step| {
        let json: String =
            step.stdout.lines().filter(|line| line.starts_with('{')).map(|line| format!("{line}\n")).collect();
        (lines(&json), step)
    });

    // 1000 messages of 16 KiB in packets of 1 KiB, each with some 60 to 80 bytes of headers; a slow machine sends some again.
    let payload = 1000.0 * 16384.0;
    assert!(clean.1.stdout.contains(" 16384      1000 "), "{}", clean.1.stdout);
    let sent = moved(&clean.0, "d0", "tx_bytes");
    assert!((1.05..1.5).contains(&(sent / payload)), "{sent} bytes for {payload}");
    assert!(moved(&clean.0, "rxe0/1", "sent_pkts") >= payload / 1024.0);
    assert!(moved(&clean.0, "d1", "rx_bytes") >= payload);
    // Soft-RoCE counts no bytes: the port shows those of its interface.
    assert_eq!(clean.0[0]["ports"][0]["bytes_of"], "d0");
    let owners = clean.0.iter().flat_map(|line| line["queue_pairs"].as_array().expect("queue pairs"));
    let owner =
        owners.filter(|owner| owner["owner"].as_str().is_some_and(|owner| owner.starts_with("ib_write_bw -d rxe0")));
    assert!(owner.clone().any(|owner| owner["device"] == "rxe0" && owner["user"] == "root" && owner["pid"].is_u64()));
    let jobs = clean.0.iter().flat_map(|line| line["jobs"].as_array().expect("jobs"));
    assert!(jobs.clone().any(|job| job["what"] == "ib_write_bw"));

    // The device itself sends again when the machine is slow; out of order comes only what follows a loss.
    let mut alerts = lossy.0.iter().flat_map(|line| line["alerts"].as_array().expect("alerts"));
    let lost = alerts.any(|alert| alert["counter"] == "out_of_seq_request" && alert["code"] == "roce.config");
    assert!(lost, "{}", lossy.1.stdout);
}

/// How far a counter of a port moved in all.
fn moved(lines: &[Value], port: &str, counter: &str) -> f64 {
    let ports = lines.iter().flat_map(|line| line["ports"].as_array().expect("ports"));
    ports.filter(|row| row["name"] == port).filter_map(|row| row["counters"][counter]["moved"].as_f64()).sum()
}

/// The monitor on host 1, of these hosts.
fn watching(lab: &NetLab, arguments: &[&str]) -> Command {
    let mut command = lab.exec(1, BUSBW);
    command.args(["monitor", "-i", "100ms"]).args(arguments);
    command
}

/// Three hosts in one stream, of which one never was: it is named at once, and the others tell what they were asked.
#[test]
fn a_host_that_is_not_there_costs_the_others_nothing() {
    let lab = needed!(NetLab::up(2, &[]));
    let ended = run(watching(&lab, &["--hosts", "h1,h2,nowhere.invalid", "--json", "-n", "3"]), LIMIT);
    assert!(ended.status.success(), "{ended:?}");
    assert!(ended.stderr.contains("nowhere.invalid: "), "{ended:?}");
    for host in ["h1", "h2"] {
        let of_it = lines(&ended.stdout).into_iter().filter(|line| line["host"]["name"] == host);
        let ports: Vec<Value> = of_it.map(|line| line["ports"][0]["name"].clone()).collect();
        assert_eq!(ports, ["eth0"; 3], "{ended:?}");
    }
    let ended = run(watching(&lab, &["--hosts", "nowhere.invalid", "--once"]), LIMIT);
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert!(ended.stderr.contains("no host answers"), "{ended:?}");
}

/// How many lines of JSON a host has told.
fn told(stdout: &str, host: &str) -> usize {
    let name = format!("\"host\":{{\"name\":\"{host}\"");
    stdout.lines().filter(|line| line.contains(&name)).count()
}

/// A host whose cable is cut while it is watched is named, and the other goes on. Nothing of it is left at the end.
#[test]
fn a_host_that_is_cut_off_costs_the_other_nothing() {
    let lab = needed!(NetLab::up(2, &[]));
    let mut watch = Running::start(watching(&lab, &["--hosts", "h1,h2", "--json"]));
    let both = |out: &str| (told(out, "h1") > 2 && told(out, "h2") > 2).then_some(());
    watch.until(LIMIT, "both hosts", both);
    lab.link_down(2);
    watch.until_said(LIMIT, "its name", |said| said.contains("h2: no answer for").then_some(()));
    let before = told(&watch.stdout(), "h1");
    watch.until(LIMIT, "more of h1", |out| (told(out, "h1") > before + 5).then_some(()));
    signal(watch.id(), "INT");
    assert!(watch.ended(LIMIT).status.success());
    lab.link_up(2);
    watch.gone("busbw", LIMIT);
}

#[test]
fn the_screen_of_several_hosts_marks_the_one_that_is_cut_off() {
    let lab = needed!(NetLab::up(2, &[]));
    let mut screen = OnTerminal::of_a_session(&watching(&lab, &["--hosts", "h1,h2"]));
    screen.see("2 hosts");
    // Rows of both.
    screen.see_times("eth0", 2);
    lab.link_down(2);
    screen.see("silent");
    screen.see("no answer for");
    screen.press("q");
    assert!(screen.ended().success());
}
