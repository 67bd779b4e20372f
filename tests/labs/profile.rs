//! `busbw profile --attach` on two hosts of a lab, whose traces `--merge` makes one answer.

use crate::support::command::{BUSBW, busbw};
use crate::support::lab::NetLab;
use crate::support::process::{LIMIT, Running};
use crate::support::skip::needed;
use serde_json::Value;
use std::fs;
use std::time::Duration;

/// The process of a rank: hosts of a lab see each other's.
fn process(job: &Running, rank: usize) -> Option<u32> {
    let wanted = format!("OMPI_COMM_WORLD_RANK={rank}").into_bytes();
    let is = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == wanted)
    };
    job.processes().into_iter().find(is)
}

#[test]
fn what_two_hosts_saw_is_one_answer() {
    let lab = needed!(NetLab::up(2, &[]));
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = lab.mpirun(1);
    command.args(["-x", "BUSBW_PROFILE=attach", "-x", "BUSBW_TEST_RUN"]).arg(BUSBW);
    command.args(["bench", "all_reduce", "-b", "64K", "-e", "64K", "-c", "0", "-w", "5", "-n", "100000000"]);
    let mut job = Running::start(command);
    let ranks = loop {
        match (process(&job, 0), process(&job, 1)) {
            (Some(first), Some(second)) => break [first, second],
            _ => {
                std::thread::sleep(Duration::from_millis(100));
                // A job that has ended is no job to wait for.
                job.retry(LIMIT, "rank", || Some(()));
            }
        }
    };
    let attach = |host: usize| {
        let mut command = lab.exec(host, BUSBW);
        command.args(["profile", "--attach", &ranks[host - 1].to_string(), "--seconds", "4"]);
        command.arg("--trace").arg(folder.path().join(format!("h{host}.json")));
        Running::start(command)
    };
    for mut running in [attach(1), attach(2)] {
        let ended = running.ended(LIMIT);
        let says = "1 of the 2 ranks of the largest communicator wrote no event here";
        assert!(ended.printed().contains(says), "{ended:?}");
    }
    drop(job);
    let merged = busbw(folder.path(), &["profile", "--merge", "h1.json", "h2.json", "--json=both.json"], None);
    assert!(merged.printed().contains("2 ranks on h1, h2, "), "{merged:?}");
    let both: Value = serde_json::from_slice(&fs::read(folder.path().join("both.json")).unwrap()).unwrap();
    let of = |name: &str| -> Vec<&Value> { both["ranks"].as_array().unwrap().iter().map(|rank| &rank[name]).collect() };
    assert_eq!((of("rank"), of("host")), (vec![&0.into(), &1.into()], vec![&"h1".into(), &"h2".into()]));
    // Only operations that both wrote down show that.
    assert!(of("waited_us").iter().all(|waited| waited.is_number()), "{both:#}");
    let notes = both["notes"].to_string();
    assert!(notes.contains("the operations show how far the hosts' clocks are apart to "), "{notes}");
    assert!(!notes.contains("wrote no event here") && !notes.contains("was corrected"), "{notes}");
}
