//! Phases of the start, and hosts that differ, in logs of a few lines.

use crate::diagnose;
use busbw_model::{Code, Severity, Verdict};

/// What a rank says up to a phase: the host, its rank of 4, and how far it came.
fn rank(rank: u32, network: &str, upto: &[&str]) -> String {
    let host = if rank < 2 { "node01" } else { "node02" };
    let says = |text: &str| format!("{host}:{pid}:{pid} [{gpu}] NCCL INFO {text}\n", pid = 100 + rank, gpu = rank % 2);
    let init = |end: &str| {
        format!(
            "ncclCommInitRank comm 0x7{rank} rank {rank} nranks 4 cudaDev 0 nvmlDev 0 busId 100000 commId 0x75 - Init {end}"
        )
    };
    let began = [
        format!("Bootstrap: Using eth0:10.0.0.{}<0>", 1 + rank / 2),
        format!("Using network {network}"),
        init("START"),
    ];
    let phase = |name: &&str| match *name {
        "met" => "Bootstrap timings total 0.41 (create 0.0, send 0.0, recv 0.0, ring 0.3, delay 0.0)".to_string(),
        "lost" => "init.cc:2572 (ncclCommInitRank) -> 6".to_string(),
        "up" => init("COMPLETE"),
        other => other.to_string(),
    };
    began.into_iter().chain(upto.iter().map(phase)).map(|text| says(&text)).collect()
}

fn all(upto: &[&str]) -> String {
    (0..4).map(|number| rank(number, "Socket", upto)).collect()
}

const CLOSED: &str = "node01:100:100 [0] misc/socket.cc:58 (socketProgress) NCCL WARN socketProgress: Connection closed by remote peer\n";

#[test]
fn a_start_is_judged_by_where_its_ranks_stop() {
    let one_silent =
        |others: &[&str]| rank(0, "Socket", others) + &rank(1, "Socket", others) + &rank(3, "Socket", others);
    let cases = [
        ("all came up", all(&["met", "up"]), Verdict::NoErrors, None),
        ("nobody finds the others", all(&[]), Verdict::Failed, Some((Code::NetUnreachable, "All 4 ranks"))),
        ("one never came", one_silent(&[]), Verdict::Failed, Some((Code::HangMismatch, "Rank 2 never came"))),
        (
            "one was killed",
            one_silent(&["met", "lost"]) + &rank(2, "Socket", &[]) + CLOSED,
            Verdict::Failed,
            Some((Code::PeerDied, "Rank 2 (on node02) ended")),
        ),
        ("the log ends while they search", all(&["met"]), Verdict::Inconclusive, None),
        ("an excerpt of one rank", rank(0, "Socket", &[]), Verdict::Inconclusive, None),
        ("one rank of four, which is up", rank(0, "Socket", &["met", "up"]), Verdict::NoErrors, None),
        (
            "it left in order",
            all(&["met"])
                + "node01:100:100 [0] NCCL INFO comm 0x70 rank 0 nranks 4 cudaDev 0 busId 100000 - Destroy COMPLETE\n",
            Verdict::NoErrors,
            None,
        ),
    ];
    for (name, log, verdict, first) in cases {
        let run = busbw_ingest::read_bytes(&[("log", log.as_bytes())]).expect("a log");
        let diagnosis = diagnose(&run);
        let errors = diagnosis.findings.iter().filter(|finding| finding.severity == Severity::Error);
        let said: Vec<(Code, &str)> = errors.map(|finding| (finding.code, finding.title.as_str())).collect();
        assert_eq!(diagnosis.verdict, verdict, "{name}: {said:?}");
        let fits =
            first.is_none_or(|(code, title)| said.first().is_some_and(|(c, t)| *c == code && t.starts_with(title)));
        assert!(fits, "{name}: {said:?}");
    }
}

/// What one host says that the other does not, and the code of the first finding.
#[test]
fn hosts_that_use_different_networks_are_named_with_what_decides() {
    let cases = [
        (
            "NCCL_IB_DISABLE set by environment to 1.",
            2,
            ["IB", "Socket"],
            Code::EnvOverride,
            "NCCL_IB_DISABLE=1 is set on node02 only",
        ),
        (
            "NCCL_NET_PLUGIN set by environment to busbw",
            0,
            ["busbw", "Socket"],
            Code::NetPlugin,
            "NCCL_NET_PLUGIN=busbw is set on node01 only",
        ),
        ("NET/IB : No device found.", 2, ["IB", "Socket"], Code::NetSocketFallback, "NET/Socket on node02"),
    ];
    for (line, by, [one, other], code, title) in cases {
        let extra = ["met", line];
        let of = |n: u32| rank(n, if n < 2 { one } else { other }, &extra[..if n == by { 2 } else { 1 }]);
        let log: String = (0..4).map(of).collect();
        let run = busbw_ingest::read_bytes(&[("log", log.as_bytes())]).expect("a log");
        let found = diagnose(&run).findings;
        let first = found.first().map(|finding| (finding.code, finding.severity));
        assert_eq!(first, Some((code, Severity::Error)), "{line}: {found:?}");
        assert!(found[0].title.ends_with(title), "{}", found[0].title);
    }
}

/// Lines of INFO that every healthy host without InfiniBand prints since 2.28, one with a plugin, and one with GRAPH on.
#[test]
fn what_nccl_tries_in_vain_is_no_error() {
    const TRIED: [&str; 6] = [
        "Failed to initialize NET plugin IB",
        "ncclOsDlopen(libnccl-net.so) failed: libnccl-net.so: cannot open shared object file: No such file or directory",
        "NET/Plugin: Could not find: libnccl-net.so",
        "ncclOsDlsym(ncclCollNetPlugin_v11) failed: /opt/lib/libnccl-net-busbw.so: undefined symbol: ncclCollNetPlugin_v11",
        "RMA/Plugin: Failed to initialize any plugin",
        "Could not find real path of /sys/class/pci_bus/0002:00/../../0002:00:00.0",
    ];
    for upto in [&["met", "up"][..], &["met"]] {
        let log: String = TRIED.map(|text| format!("node01:100:100 [0] NCCL INFO {text}\n")).concat() + &all(upto);
        let run = busbw_ingest::read_bytes(&[("log", log.as_bytes())]).expect("a log");
        let found = diagnose(&run).findings;
        assert!(found.iter().all(|finding| finding.severity == Severity::Info), "{found:?}");
    }
}
