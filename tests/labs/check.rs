//! `busbw check` on several hosts, on nodes of Slurm, and on the real devices of the RDMA guest.

use crate::check::items;
use crate::support::command::BUSBW;
use crate::support::guest::{Guest, Step};
use crate::support::lab::{NetLab, SlurmLab};
use crate::support::process::{LIMIT, run};
use crate::support::skip::needed;
use serde_json::Value;
use std::path::Path;

/// Three hosts, one with another MTU: it is named, under mpirun and with --hosts.
#[test]
fn the_host_with_another_mtu_is_named() {
    let hosts = needed!(NetLab::up(3, &[]));
    assert!(hosts.exec(2, "ip").args(["link", "set", "eth0", "mtu", "1400"]).status().is_ok_and(|s| s.success()));
    let mut by_mpirun = hosts.mpirun(2);
    by_mpirun.args([BUSBW, "check", "--json"]);
    let mut by_hosts = hosts.exec(1, BUSBW);
    by_hosts.args(["check", "--json", "--hosts", "h1,h2,h3"]);
    for command in [by_mpirun, by_hosts] {
        let ended = run(command, LIMIT);
        let answer = ended.json();
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert_eq!(answer["hosts"], serde_json::json!(["h1", "h2", "h3"]));
        let odd =
            answer["differences"].as_array().expect("differences").iter().find(|odd| odd["item"] == "MTU of eth0");
        let odd = odd.unwrap_or_else(|| panic!("{ended:?}"));
        assert_eq!((&odd["result"], odd["differ"].as_array().map(Vec::len)), (&"fail".into(), Some(1)), "{odd}");
        assert_eq!(odd["differ"][0], serde_json::json!({"host": "h2", "value": "1400"}));
    }
}

/// A host that does not answer is one line with what to do, and no hang; the others are judged.
#[test]
fn a_host_that_does_not_answer_is_named() {
    let hosts = needed!(NetLab::up(2, &[]));
    hosts.link_down(2);
    let ended = run(
        hosts.exec(1, BUSBW).args(["check", "--json", "--hosts", "h1,h2,nowhere.invalid", "--timeout", "10"]),
        LIMIT,
    );
    let answer = ended.json();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let hello = |host: &str| {
        let all = answer["items"].as_array().expect("items");
        all.iter().find(|item| item["item"] == "hello" && item["host"] == host).cloned().unwrap_or_default()
    };
    assert_eq!(hello("h1")["result"], "ok", "{ended:?}");
    for host in ["h2", "nowhere.invalid"] {
        let item = hello(host);
        assert_eq!((&item["result"], &item["code"]), (&"fail".into(), &"mpi.launch".into()), "{host}: {ended:?}");
        let remedy = if host == "h2" { "Check passwordless ssh" } else { "Correct the name" };
        assert!(item["remedy"].as_str().is_some_and(|told| told.contains(host) && told.starts_with(remedy)), "{item}");
    }
}

#[test]
fn nodes_of_slurm_are_checked_together() {
    let cluster = needed!(SlurmLab::up(2));
    let mut command = cluster.srun(&["-n", "2", "-N", "2"]);
    // Nodes of the lab share a kernel and a network; by this they are several, as real ones are.
    command.args(["sh", "-c", "NCCL_HOSTID=$SLURMD_NODENAME exec \"$0\" check --json", BUSBW]);
    let ended = run(command, LIMIT);
    assert_eq!(ended.json()["hosts"], serde_json::json!(["node1", "node2"]), "{ended:?}");
}

/// Real devices: they are listed with state, MTU and GID; and three faults, each told.
#[test]
fn real_devices_and_their_faults_are_told() {
    let [healthy, wrong_gid, memlock, down] = needed!(Guest::run(
        &[Path::new(BUSBW)],
        [
            &format!("ulimit -l unlimited; {BUSBW} check --json"),
            &format!("NCCL_IB_GID_INDEX=0 {BUSBW} check --json"),
            &format!("ulimit -l 64; {BUSBW} check --json"),
            &format!("ip link set d0 down; {BUSBW} check --json"),
        ],
    ));
    for step in [&healthy, &wrong_gid, &memlock, &down] {
        assert!(matches!(step.status, 0 | 1) && step.stderr.is_empty(), "{step:?}");
    }
    let answer =
        |step: &Step| -> Value { serde_json::from_str(&step.stdout).unwrap_or_else(|e| panic!("{e}: {step:?}")) };
    let has = |step: &Step, result: &str, item: &str, detail: &str| {
        let answer = answer(step);
        let items = items(&answer, result);
        assert!(items.contains(&(item, detail.to_owned())), "{item}: {detail} is not in {items:#?}\n{answer:#}");
    };
    has(&healthy, "ok", "port state", "rxe0/1: ACTIVE, LinkUp, Ethernet (RoCE)");
    has(&healthy, "warn", "active MTU", "rxe0/1: 1024 of 4096, its interface has 1500");
    has(&healthy, "ok", "RoCE v2 GID", "rxe0/1: index 1 (IPv4)");
    has(&healthy, "ok", "memlock", "unlimited");
    has(&wrong_gid, "warn", "RoCE v2 GID", "rxe0/1: NCCL_IB_GID_INDEX=0 is link-local");
    // Root, who runs there, is not bound by it; the users whose ranks will run are.
    has(&memlock, "fail", "memlock", "64 KiB");
    has(&down, "fail", "port state", "rxe0/1: DOWN, Disabled, Ethernet (RoCE)");
}
