//! Inputs made to be slow or large to read: each is small, and took minutes or gigabytes where a reader compared every line with all
//! lines before it, or wrote out what a pickle shares.

use busbw_ingest::read_bytes;
use busbw_model::Run;
use std::time::{Duration, Instant};

/// Far more than any of the inputs takes, and far less than any took.
const LONGEST: Duration = Duration::from_secs(20);

const PREFIX: &str = "h:1:2 [0] NCCL INFO ";

fn read(name: &str, text: &[u8]) -> Run {
    let begin = Instant::now();
    let run = read_bytes(&[(name, text)]).unwrap_or_else(|refused| panic!("{name}: {refused}"));
    assert!(begin.elapsed() < LONGEST, "{name}: {:?}", begin.elapsed());
    run
}

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(|index| line(index) + "\n").collect()
}

#[test]
fn markers_on_one_line_do_not_look_at_all_before_them() {
    read("names in brackets", "x]:1:2 NCCL INFO ".repeat(1_000_000).as_bytes());
    read("spaces", (" ".repeat(4_000_000) + &"x NCCL INFO ".repeat(400_000)).as_bytes());
    read("cells", ("1 ".repeat(2_000_000) + &"-a:1:2 NCCL INFO ".repeat(400_000)).as_bytes());
    read("programs", ("a".to_string() + &"_perf".repeat(2_000_000)).as_bytes());
}

#[test]
fn statements_that_all_differ_are_read_in_linear_time() {
    read("transports", lines(300_000, |i| format!("{PREFIX}Channel 00/0 : 0[0] -> 1[1] via NET/x{i}/0")).as_bytes());
    let versions = read("versions", lines(300_000, |i| format!("NCCL version 2.{i}.1+cuda12.4")).as_bytes());
    assert!(versions.nccl.versions.len() < 100, "{}", versions.nccl.versions.len());
    let pattern = |i| format!("{PREFIX}Pattern {}, crossNic 0, nChannels {i}, bw 2.0/2.0, type NVL/PIX", i % 60_000);
    read("patterns", lines(300_000, pattern).as_bytes());
    read("NICs", lines(300_000, |i| format!("{PREFIX}NET/IB : Using [0]mlx{i}:1/RoCE ; OOB e:1.2.3.4<0>")).as_bytes());
    read("counters", (lines(300_000, |i| format!("tx_{i}: 1")) + "tx_rate: 1\n").repeat(2).as_bytes());
    read("communicators of RAS", lines(300_000, |i| format!("#0-{i} ({i:x}27a079b) MISMATCH")).as_bytes());
    let device = |i| format!("#  Rank {i} Group  0 Pid  27414 on host device  0 [0x27] NVIDIA A100-SXM4-80GB");
    let table = read("devices", lines(200_000, device).as_bytes());
    assert_eq!(table.tables[0].devices.len(), 200_000);
    assert_eq!(table.nodes[0].gpus.len(), 200_000);
}

/// Each of these took minutes, or gigabytes: machines and streams were looked for one by one, and ranks of a list written out.
#[test]
fn machines_streams_and_lists_of_ranks_are_known_at_once() {
    let xid =
        |i| format!("Jan  1 00:00:00 node{i} kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.");
    assert_eq!(read("machines", lines(50_000, xid).as_bytes()).machines.len(), 50_000);
    let ignored = lines(50_000, |i| format!("[rank{i}]: Exception ignored in: <x>"));
    let tracebacks = lines(50_000, |i| format!("[rank{i}]: Traceback (most recent call last):"));
    read("survived", (ignored + &tracebacks).as_bytes());
    let listed = format!("srun: error: n1: tasks {}7: Exited with exit code 1\n", "0-4294967295,".repeat(2_000));
    assert!(
        read("ranks", listed.repeat(2_000).as_bytes()).ends.iter().map(|end| end.ranks.len()).sum::<usize>() < 1 << 21
    );
}

#[test]
fn operations_of_ras_are_bounded() {
    let counts: String = (0..300_000).map(|i| format!("\"k{i}\":1,")).collect();
    let ranks = format!("{{\"rank\":0,\"collective_counts\":{{{counts}\"a\":1}}}}");
    let text = format!("{{\"ras\": 1, \"communicators\": [{{\"hash\":\"0x1\",\"ranks\":[{ranks}]}}]}}");
    assert_eq!(read("operations", text.as_bytes()).ras_reports.len(), 1);
}

/// An answer of RAS on one line: evidence is the line of each rank, of which a part is kept.
#[test]
fn an_object_on_one_line_is_read_in_linear_time() {
    let rank = |i| format!("{{\"rank\":{i},\"host\":\"h\",\"pid\":7,\"collective_counts\":{{\"AllReduce\":7}}}}");
    let ranks: Vec<String> = (0..100_000).map(rank).collect();
    let text = format!("{{\"ras\": 1, \"communicators\": [{{\"hash\":\"0x1\",\"ranks\":[{}]}}]}}", ranks.join(","));
    assert_eq!(read("one line", text.as_bytes()).ras_reports[0].communicators[0].ranks.len(), 100_000);
}

#[test]
fn communicators_without_an_id_are_told_apart_in_linear_time() {
    let init = |host: &str, comm: usize, rank: usize, nranks: usize| {
        format!(
            "{host} [{rank}] NCCL INFO comm 0x{comm:x} rank {rank} nranks {nranks} cudaDev 0 busId 1 - Init COMPLETE"
        )
    };
    let of_process = |i| format!("{PREFIX}comm 0x{i:x} rank {i} nranks 2 cudaDev 0 busId 1 - Init COMPLETE");
    let one_process = read("of a process", lines(100_000, of_process).as_bytes());
    assert_eq!(one_process.communicators.len(), 100_000);
    // Two ranks of two, on two hosts each: the second of a pair joins the first communicator that lacks it.
    let pairs = lines(100_000, |i| init(&format!("host{i}:{i}:1"), i, i % 2, 2));
    assert_eq!(read("of pairs", pairs.as_bytes()).communicators.len(), 50_000);
    let nameless = |i| format!("NCCL INFO comm 0x{i:x} rank {i} nranks 2 cudaDev 0 busId 1 - Init COMPLETE");
    read("without a name", lines(100_000, nameless).as_bytes());
    // Within each node one of eight.
    let local = lines(80_000, |i| init(&format!("host{}:{}:1", i / 8, 100 + i % 8), 1, i % 8, 8));
    assert_eq!(read("of nodes", local.as_bytes()).communicators.len(), 10_000);
}

/// A torn Init COMPLETE belongs to whom its address and rank name.
#[test]
fn torn_lines_find_their_communicator_at_once() {
    let torn = lines(50_000, |i| {
        format!(
            "{PREFIX}comm 0x{i:x} rank {i} nranks 50000 cudaDev 0 busId 1 commId 0x1 - Init START\n\
             NCCL INFO comm 0x{i:x} rank {i} nranks 50000 cudaDev 0 busId 1 commId 0x1 - Init COMPLETE"
        )
    });
    let run = read("torn", torn.as_bytes());
    assert!(run.communicators[0].ranks.values().all(busbw_model::Rank::is_up));
}

/// Connections without a prefix go to the only communicator, each to the connection that it repeats.
#[test]
fn torn_connections_are_adopted_once() {
    const RANKS: usize = 20_000;
    let connection = |from: usize, step: usize| format!("{from}[0] -> {}[1] via NET/IB/0", (from * 7 + step) % RANKS);
    let whole = lines(RANKS, |rank| {
        let who = format!("h{rank}:1:2 [0] NCCL INFO");
        let init = format!("{who} comm 0x1 rank {rank} nranks {RANKS} cudaDev 0 busId 1 commId 0x1 - Init START\n");
        init + &(0..20).map(|i| format!("{who} Channel 00/0 : {}\n", connection(rank, i * 31))).collect::<String>()
    });
    let torn = lines(10_000, |rank| format!("NCCL INFO Channel 01/0 : {}", connection(rank, 31 * (rank % 21))));
    let run = read("torn", (whole + &torn).as_bytes());
    let comm = &run.communicators[0];
    let added = comm.edges.iter().filter(|edge| edge.channels.iter().eq([1])).count();
    let merged = comm.edges.iter().filter(|edge| edge.channels.iter().eq([0, 1])).count();
    // Every 21st has a step that no rank has.
    assert_eq!((comm.edges.len(), added, merged), (RANKS * 20 + 476, 476, 10_000 - 476));
}

#[test]
fn attributes_of_xml_are_bounded() {
    let attributes: String = (0..300_000).map(|i| format!("a{i}=\"\" ")).collect();
    let run = read("attributes", format!("<system {attributes} version=\"1\"></system>\n").as_bytes());
    assert!(run.problems[0].text.contains("more than 256 attributes"), "{:?}", run.problems);
    let nested: String = (0..100_000).map(|i| format!("<a xmlns:x{i}='y'>")).collect();
    let text = format!("<system>{nested}{}</system>\n", "</a>".repeat(100_000));
    assert!(read("namespaces", text.as_bytes()).problems[0].text.contains("namespaces"));
}

/// 100,000 references to one operation with a name of 100 kB: 10 GB when written out.
#[test]
fn what_a_pickle_shares_is_not_written_out() {
    const SIZE: usize = 100_000;
    let text = |text: &[u8]| [&b"X"[..], &(text.len() as u32).to_le_bytes(), text].concat();
    let operation = [&b"}("[..], &text(b"profiling_name"), &text(&vec![b'x'; SIZE]), b"uq\x01"].concat();
    let entries = [&b"]("[..], &operation, &b"h\x01".repeat(SIZE), b"e"].concat();
    let dump = [&b"\x80\x02}("[..], &text(b"entries"), &entries, &text(b"pg_config"), b"}u."].concat();
    let run = read("nccl_trace_rank_0", &dump);
    assert_eq!(run.flight_dumps[0].entries, SIZE as u64 + 1);
    assert!(run.flight_dumps[0].open[0].work.op.len() < 1000);
}

/// Times in front of the lines are no part of who dumps its machine.
#[test]
fn a_dump_with_times_is_one_dump() {
    let texts = [
        "=== System : maxBw 24.0 totalBw 24.0 ===",
        "CPU/0 (1/2/-1)",
        "+ PCI[24.0] - GPU/1000 (0)",
        "NET/0 :GPU/1000 (2/24.0/PHB)",
    ];
    let line = |(i, text): (usize, &&str)| format!("[2025-11-04 12:49:{:02}] {PREFIX}{text}\n", 10 + i);
    let run = read("dump", texts.iter().enumerate().map(line).collect::<String>().as_bytes());
    assert_eq!(run.system_dumps.iter().map(|dump| dump.nodes.len()).collect::<Vec<_>>(), [2]);
    assert!(run.nccl.networks.is_empty(), "{:?}", run.nccl.networks);
}
