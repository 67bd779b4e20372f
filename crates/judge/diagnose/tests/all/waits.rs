//! Who is waited for, by connections between hosts and by tracebacks of ranks that wait.

use busbw_diagnose::diagnose;
use busbw_ingest::read_bytes;
use busbw_model::{Culprit, CulpritClass};

fn culprit(texts: &[(String, String)]) -> Option<Culprit> {
    let texts: Vec<(&str, &[u8])> = texts.iter().map(|(name, text)| (name.as_str(), text.as_bytes())).collect();
    diagnose(&read_bytes(&texts).expect("readable")).culprit
}

/// Stacks of three ranks in one collective, a rank on each host, and what `ss -tinp` shows of pairs of hosts: how long an answer takes.
fn connected(pairs: [(u32, u32, f64); 3]) -> Vec<(String, String)> {
    let stack = |rank: u32| {
        let text = format!(
            "Process {0}: python3 train.py\nPython v3.11.7 (/usr/bin/python3.11)\n\nThread {0} (idle): \"MainThread\"\n    all_reduce \
             (torch/distributed/distributed_c10d.py:4181)\n    step (train.py:30)\n    <module> (train.py:74)\n",
            100 + rank
        );
        (format!("stacks/rank{rank}.txt"), text)
    };
    let connections = |rank: u32| {
        let row = |(one, other, millis): &(u32, u32, f64)| {
            let peer = if *one == rank { other } else { one };
            format!(
                "0 0 10.77.0.{}:3{rank}000 10.77.0.{}:3{peer}000 users:((\"python3\",pid={},fd=9))\n\t cubic rto:204 rtt:{millis}/0.5 mss:1448 \
                 lastsnd:8 lastrcv:8 lastack:8 minrtt:0.02\n",
                rank + 1,
                peer + 1,
                100 + rank
            )
        };
        let own = pairs.iter().filter(|(one, other, _)| [one, other].contains(&&rank));
        (format!("stacks/h{}.ss.txt", rank + 1), own.map(row).collect())
    };
    (0..3).flat_map(|rank| [stack(rank), connections(rank)]).collect()
}

#[test]
fn the_host_to_which_all_answers_take_long_has_a_slow_link() {
    let found = culprit(&connected([(0, 1, 0.05), (0, 2, 21.0), (1, 2, 44.5)])).expect("somebody");
    assert_eq!((found.ranks, found.class), (vec![2], Some(CulpritClass::Network)));
    // Of one slow pair nothing tells whose cable it is; where all pairs are slow, no host stands out.
    assert_eq!(culprit(&connected([(0, 1, 0.05), (0, 2, 0.05), (1, 2, 44.5)])), None);
    assert_eq!(culprit(&connected([(0, 1, 30.0), (0, 2, 21.0), (1, 2, 44.5)])), None);
}

/// The output of ranks that waited in vain, each in the statement of a loop whose line is given, and below it in a function of its own.
fn waited(lines: &[u32]) -> Vec<(String, String)> {
    let log = |(rank, line): (usize, &u32)| {
        let frame = |file: &str, line: u32, function: &str| {
            format!("[rank{rank}]:   File \"/x/{file}\", line {line}, in {function}\n[rank{rank}]:     call()\n")
        };
        let frames = frame("train.py", 74, "<module>")
            + &frame("train.py", *line, "train")
            + &frame("parts.py", line * 2, "part");
        let text = format!(
            "[rank{rank}]: Traceback (most recent call last):\n{frames}[rank{rank}]:   File \"/lib/torch/distributed/distributed_c10d.py\", line 4181, in \
             all_reduce\n[rank{rank}]:     work.wait()\n[rank{rank}]: RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting \
             9000ms for recv operation to complete\n"
        );
        (format!("rank{rank}.log"), text)
    };
    lines.iter().enumerate().map(log).collect()
}

#[test]
fn the_only_rank_in_the_earliest_statement_is_out_of_step() {
    let found = culprit(&waited(&[47, 39, 44, 47])).expect("somebody");
    assert_eq!((found.ranks, found.class), (vec![1], Some(CulpritClass::Divergence)));
    assert_ne!(culprit(&waited(&[47, 39, 39, 47])).map(|found| found.ranks), Some(vec![1]));
    assert_eq!(culprit(&waited(&[47, 39])), None);
}

/// A dump of Gloo's flight recorder: calls of groups by name and number, of which the last stands open if told so.
fn dump(rank: u32, calls: &[(&str, u64)], is_open: bool) -> (String, String) {
    let entry = |(index, (group, number)): (usize, &(&str, u64))| {
        let open = is_open && index + 1 == calls.len();
        serde_json::json!({
            "pg_id": group.len(), "process_group": [group, "undefined"], "collective_seq_id": number, "profiling_name": "gloo:all_reduce",
            "time_created_ns": 1_000_000 * index as u64, "input_sizes": [[4]], "output_sizes": [[4]], "retired": !open, "is_p2p": false,
            "state": if open { "scheduled" } else { "completed" },
        })
    };
    let entries: Vec<_> = calls.iter().enumerate().map(entry).collect();
    let dump = serde_json::json!({ "version": "2.10", "entries": entries, "pg_config": {}, "pg_status": {} });
    (format!("fr/nccl_trace_rank_{rank}.json"), dump.to_string())
}

/// Rank 0 waits for rank 1, rank 1 in a group of its own for somebody whose dump lacks: that is rank 2, which says nothing, and not rank 1, which only
/// passes on that it waits.
#[test]
fn who_waits_for_a_rank_without_a_dump_is_not_at_fault() {
    let mut given = waited(&[47, 47, 47, 53]);
    given.remove(2);
    given.push(("rank2.log".into(), "[rank2]: step 16\n".into()));
    given.push(dump(0, &[("0", 7), ("first", 3), ("first", 4)], true));
    given.push(dump(1, &[("0", 7), ("first", 3), ("second", 3)], true));
    let accused = culprit(&given).map(|found| found.ranks).unwrap_or_default();
    assert!(!accused.contains(&0) && !accused.contains(&1), "{accused:?}");
}
