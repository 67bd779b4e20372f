//! What NCCL's, PyTorch's and the system's tools show, read from files as people give them, one or several at once.

#![allow(clippy::unwrap_used)] // a file that is missing fails its test

use busbw_ingest::{ReadOptions, Source, read, read_bytes};
use busbw_model::{InputKind, MismatchKind, RasShare, RasStatus, Run, WorkState};
use proptest::prelude::*;
use std::path::{Path, PathBuf};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/evidence").join(name)
}

fn run_of(names: &[&str]) -> Run {
    let sources: Vec<Source> = names.iter().map(|name| Source::Path(data(name))).collect();
    read(&sources, &ReadOptions::default()).unwrap()
}

fn shares<T: Copy>(shares: &[RasShare<T>]) -> Vec<(T, u32, Vec<u32>)> {
    shares.iter().map(|share| (share.value, share.count, share.ranks.clone())).collect()
}

#[test]
fn ras_text_tells_who_is_missing_failed_and_behind() {
    let run = run_of(&["ras-timeout.txt"]);
    assert_eq!(run.inputs[0].kinds, [InputKind::NcclRas]);
    assert_eq!(run.nccl.versions[0].version, "2.27.3");
    let [report] = run.ras_reports.as_slice() else { panic!("{:?}", run.ras_reports) };
    assert_eq!(
        (report.nccl_version.as_deref(), report.cuda, report.timeouts),
        (Some("2.27.3"), Some((12090, 12090)), 2)
    );
    let job = report.job.unwrap();
    assert_eq!((job.nodes, job.processes, job.gpus), (4, 32, 32));
    let groups: Vec<_> =
        report.groups.iter().map(|g| (g.communicators, g.ranks, g.status, g.errors.as_str())).collect();
    assert_eq!(groups, [(1, 32, RasStatus::Running, "INCOMPLETE"), (8, 4, RasStatus::Running, "OK")]);
    let lost: Vec<_> =
        report.lost_processes.iter().map(|p| (p.pid, p.host.as_str(), p.dead, p.source.place.line)).collect();
    assert_eq!(lost, [(48213, "10.1.0.13", false, 25), (48213, "10.1.0.13", true, 29)]);
    let [comm] = report.communicators.as_slice() else { panic!("{:?}", report.communicators) };
    assert_eq!((comm.name.as_deref(), comm.hash.as_str(), comm.missing_ranks), (Some("0-0"), "cf264af53edbe986", 1));
    assert_eq!(comm.missing.iter().map(|r| (r.rank, r.unresponsive)).collect::<Vec<_>>(), [(21, true)]);
    let errors: Vec<_> =
        comm.errors.iter().map(|e| (e.error.as_str(), e.asynchronous, e.count, e.ranks.clone())).collect();
    assert_eq!(errors, [("Remote process error", true, 2, vec![20, 22]), ("System error", true, 1, vec![4])]);
    let status =
        [(RasStatus::Running, 28, vec![]), (RasStatus::Abort, 1, vec![7]), (RasStatus::NoCommunicator, 2, vec![])];
    assert_eq!(shares(&comm.status), status);
    assert_eq!(comm.launched.len(), 1);
    assert_eq!(comm.launched[0].operation, "AllReduce");
    assert_eq!(shares(&comm.launched[0].shares), [(6650, 29, vec![]), (6412, 1, vec![3]), (0, 1, vec![9])]);
    assert_eq!(comm.launched[0].behind().map(|share| share.ranks.clone()), Some(vec![9]));
    let placed = comm.ranks.iter().find(|rank| rank.rank == 22).unwrap();
    assert_eq!((placed.device, placed.pid, placed.host.as_deref()), (Some(6), Some(48214), Some("10.1.0.13")));
    assert!(!report.is_clean());
}

#[test]
fn ras_json_tells_the_same_with_its_lines() {
    let run = run_of(&["ras.json"]);
    assert_eq!(run.inputs[0].kinds, [InputKind::NcclRas]);
    let [report] = run.ras_reports.as_slice() else { panic!("{:?}", run.ras_reports) };
    assert_eq!(
        (report.cuda, report.timeouts, report.time.as_deref()),
        (Some((13000, 13010)), 2, Some("2026-02-11 09:14:53"))
    );
    let comm = &report.communicators[0];
    assert_eq!((comm.hash.as_str(), comm.size, comm.source.place.line), ("ae94423cfbb2ef4a", Some(4), 10));
    assert_eq!(shares(&comm.status), [(RasStatus::Running, 2, vec![0, 1]), (RasStatus::Abort, 1, vec![2])]);
    let launched: Vec<_> = comm.launched.iter().map(|l| (l.operation.as_str(), shares(&l.shares))).collect();
    let expected =
        [("AllReduce", vec![(118, 2, vec![0, 1]), (117, 1, vec![2])]), ("Broadcast", vec![(3, 3, vec![0, 1, 2])])];
    assert_eq!(launched, expected);
    assert_eq!(
        comm.errors.iter().map(|e| (e.error.as_str(), e.ranks.clone())).collect::<Vec<_>>(),
        [("Remote process error", vec![0])]
    );
    let [missing] = comm.missing.as_slice() else { panic!("{:?}", comm.missing) };
    assert_eq!((missing.rank, missing.unresponsive, missing.source.text.as_ref()), (3, true, "\"rank\": 3,"));
    assert_eq!(missing.source.place.line, 82);
}

#[test]
fn ras_events_name_the_lost_process() {
    let json = br#"{ "timestamp": "2025-12-19 13:07:07", "group": "LIFECYCLE", "event": "PEER_DEAD", "peer": { "host": "10.1.0.13", "pid": 15245, "cuda_devs": [1], "nvml_devs": [1] }, "details": "" }"#;
    let text = std::fs::read(data("ras-monitor.txt")).unwrap();
    let cases = [(text, vec![(15245, false), (15245, true)]), (json.to_vec(), vec![(15245, true)])];
    for (input, expected) in cases {
        let run = read_bytes(&[("monitor", &input)]).unwrap();
        let lost: Vec<_> = run.ras_reports.iter().flat_map(|r| &r.lost_processes).map(|p| (p.pid, p.dead)).collect();
        assert_eq!(lost, expected);
    }
}

#[test]
fn watchdogs_of_all_ranks_make_one_group() {
    let run = run_of(&["watchdog.log"]);
    assert_eq!(run.inputs[0].kinds, [InputKind::TorchWatchdog]);
    let [group] = run.process_groups.as_slice() else { panic!("{:?}", run.process_groups) };
    assert_eq!(group.name.to_string(), "default_pg");
    assert_eq!(group.ranks.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(group.behind(), Some((vec![2], 20584, 20585)));
    let stuck: Vec<_> = group.ranks.values().map(|r| (r.timed_out, r.stuck_in.as_ref().map(|w| w.sequence))).collect();
    assert_eq!(stuck, [(true, Some(20585)), (true, Some(20585)), (false, None), (true, Some(20585))]);
    let [mismatch] = group.mismatches.as_slice() else { panic!("{:?}", group.mismatches) };
    let variants: Vec<_> = mismatch.variants.iter().map(|(work, ranks)| (work.numel_in, ranks.clone())).collect();
    assert_eq!((mismatch.sequence, mismatch.kind), (20585, MismatchKind::Size));
    assert_eq!(variants, [(Some(1_259_621), vec![0, 1]), (Some(4), vec![3])]);
    assert_eq!(mismatch.sources.iter().map(|s| s.place.line).collect::<Vec<_>>(), [2, 6]);
}

#[test]
fn pickled_dumps_show_the_rank_that_runs_something_else() {
    let run = run_of(&["nccl_trace_rank_0", "nccl_trace_rank_1", "nccl_trace_rank_2"]);
    assert!(run.inputs.iter().all(|input| input.kinds == [InputKind::FlightRecorder]));
    let dumps: Vec<_> =
        run.flight_dumps.iter().map(|d| (d.rank, d.entries, d.open.len(), d.nccl_version.as_deref())).collect();
    let nccl = Some("2.27.5");
    assert_eq!(dumps, [(Some(0), 5, 1, nccl), (Some(1), 5, 1, nccl), (Some(2), 5, 1, nccl)]);
    let [group] = run.process_groups.as_slice() else { panic!("{:?}", run.process_groups) };
    assert_eq!((group.name.to_string().as_str(), group.members.as_slice()), ("default_pg", &[0, 1, 2, 3][..]));
    assert_eq!((group.behind(), group.silent()), (None, vec![3]));
    let [mismatch] = group.mismatches.as_slice() else { panic!("{:?}", group.mismatches) };
    let variants: Vec<_> = mismatch.variants.iter().map(|(work, ranks)| (work.op.as_str(), ranks.clone())).collect();
    assert_eq!((mismatch.sequence, mismatch.kind), (12, MismatchKind::Operation));
    assert_eq!(variants, [("ALLREDUCE", vec![0, 1]), ("_ALLGATHER_BASE", vec![2])]);
    let stuck = &group.ranks[&2];
    assert_eq!(
        (stuck.state, stuck.called_at.as_deref()),
        (Some(WorkState::Started), Some("/work/train.py:207 (clip_gradients)"))
    );
    let work = stuck.stuck_in.as_ref().unwrap();
    assert_eq!((work.numel_in, work.numel_out, work.datatype.as_deref()), (Some(512), Some(2048), Some("BFloat16")));
}

#[test]
fn json_dumps_show_the_rank_that_never_came() {
    let run = run_of(&["rank_0.json", "rank_1.json"]);
    assert_eq!(run.inputs[1].kinds, [InputKind::FlightRecorder]);
    let [group] = run.process_groups.as_slice() else { panic!("{:?}", run.process_groups) };
    assert_eq!((group.name.to_string().as_str(), group.behind()), ("fsdp", Some((vec![1], 6, 7))));
    assert!(group.mismatches.is_empty());
    let standing = |rank: u32| group.ranks[&rank].standing;
    assert_eq!((standing(0).completed, standing(1).completed), (Some(6), Some(6)));
    assert_eq!(
        (group.ranks[&0].stuck_in.as_ref().map(|work| work.sequence), &group.ranks[&1].stuck_in),
        (Some(7), &None)
    );
}

#[test]
fn a_dump_without_a_rank_in_its_name_asks_for_one() {
    let bytes = std::fs::read(data("nccl_trace_rank_0")).unwrap();
    let run = read_bytes(&[("dump", &bytes)]).unwrap();
    assert_eq!((run.flight_dumps.len(), run.problems.len()), (1, 1));
    assert!(run.problems[0].text.contains("nccl_trace_rank_3"), "{}", run.problems[0].text);
}

#[test]
fn a_pickle_that_is_cut_or_something_else_says_so() {
    let bytes = std::fs::read(data("nccl_trace_rank_0")).unwrap();
    let run = read_bytes(&[("rank_0", &bytes[..bytes.len() / 2])]).unwrap();
    assert!(run.problems[0].text.contains("ends early"), "{}", run.problems[0].text);
    let other = read_bytes(&[("model.pkl", b"\x80\x02}q\x00X\x01\x00\x00\x00aK\x01s.")]);
    assert!(other.unwrap_err().to_string().contains("no dump of PyTorch's flight recorder"));
}

#[test]
fn inspector_files_of_all_processes_make_one_run() {
    let run = run_of(&["inspector-0.log", "inspector-1.log", "inspector-verbose.json"]);
    assert!(run.inputs.iter().all(|input| input.kinds == [InputKind::NcclInspector]));
    let [measured] = run.inspector_runs.as_slice() else { panic!("{:?}", run.inspector_runs) };
    let name = measured.communicator_name.as_deref();
    assert_eq!((name, measured.nranks, measured.nnodes), (Some("DP Group 0"), Some(2), Some(2)));
    let rows: Vec<_> = measured.rows.iter().map(|r| (r.size.0, r.count, r.time.min.0, r.time.max.0)).collect();
    assert_eq!(rows, [(1 << 20, 8, 46.0, 65.0), (64 << 20, 6, 1300.0, 1440.0)]);
    let ranks: Vec<_> = measured.rows[1].ranks.iter().map(|r| (r.rank, r.host.as_deref(), r.median_time.0)).collect();
    assert_eq!(ranks, [(1, Some("gpu-1"), 1320.0), (0, Some("gpu-0"), 1420.0)]);
    assert!(run.tables.is_empty(), "a table of nccl-tests is something else");
}

#[test]
fn evidence_stands_beside_a_log_in_one_file() {
    let log = "host-1:1:2 [0] NCCL INFO Using network IB\nroot@host-1:~# ibstat\nCA 'mlx5_0'\n\tPort 1:\n\t\tState: Down\n\
               host-1:1 NCCL DIAG [INFO] p2p: only 52/56 GPU-to-GPU peer accesses passed verification\n\
               max locked memory       (kbytes, -l) 64\n";
    let run = read_bytes(&[("all.log", log.as_bytes())]).unwrap();
    assert_eq!(run.inputs[0].kinds, [InputKind::HostFacts, InputKind::NcclLog, InputKind::NcclDiag]);
    let told = run.machines.iter().flat_map(|m| m.lines.iter().map(|told| (m.host.as_str(), told.source.place.line)));
    assert_eq!(told.collect::<Vec<_>>(), [("host-1", 5), ("host-1", 7)]);
    assert_eq!(run.diagnostics[0].source.place.line, 6);
}

/// How many ranks a communicator has, and where those are that are known.
type Placed = (Option<u32>, Vec<(u32, String)>);

/// Of each communicator, where its ranks are.
fn ranks_of(lines: &[String]) -> Vec<Placed> {
    let run = read_bytes(&[("job.log", lines.join("\n").as_bytes())]).unwrap();
    let host = |node: Option<u32>| node.map_or(String::new(), |node| run.nodes[node as usize].host.to_string());
    let ranks = |comm: &busbw_model::Communicator| comm.ranks.iter().map(|(at, rank)| (*at, host(rank.node))).collect();
    run.communicators.iter().map(|comm| (comm.nranks, ranks(comm))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Junk in front of a line, or a lost head, changes nothing but that line. In this log the version of NCCL stands behind its prefix.
    #[test]
    fn a_damaged_line_does_not_decide_how_others_are_read(
        at in prop_oneof![3 => Just(0usize), 1 => 0usize..12],
        from in 0usize..8,
        junk in "(\\+ |100%\\| |\u{1b}\\[\\?2004l|\\PC{0,12} )?",
        cut in prop_oneof![Just(0usize), 0usize..40],
        front in prop_oneof![Just(""), Just("gpu-0 job main "), Just("Nov 25 10:00:02 login train[42]: ")],
    ) {
        let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/data/logs/053-perlmutter-2234-ofi.log");
        let text = std::fs::read_to_string(log).unwrap();
        let of_nccl = text.lines().filter(|line| line.contains("] NCCL INFO ")).skip(from);
        let whole: Vec<String> = of_nccl.map(|line| format!("{front}{line}")).collect();
        let mut damaged = whole.clone();
        damaged[at] = format!("{junk}{}", &whole[at][cut..]);
        let mut without = whole.clone();
        without.remove(at);
        let read = ranks_of(&damaged);
        prop_assert!(read == ranks_of(&whole) || read == ranks_of(&without), "{}", damaged[at]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Lines of the real files, put together in any order and cut anywhere.
    #[test]
    fn damaged_files_are_read_without_panic(picks in proptest::collection::vec((0usize..7, 0usize..90, 0usize..200), 1..40)) {
        let files = ["ras-timeout.txt", "ras.json", "watchdog.log", "rank_1.json", "inspector-0.log", "ras-monitor.txt", "inspector-verbose.json"];
        let texts: Vec<String> = files.iter().map(|file| std::fs::read_to_string(data(file)).unwrap()).collect();
        let mut mixed = String::new();
        for (file, line, cut) in picks {
            let line = texts[file].lines().nth(line).unwrap_or_default();
            mixed.push_str(&line[..line.floor_char_boundary(cut.min(line.len()))]);
            mixed.push('\n');
        }
        read_bytes(&[("mixed", mixed.as_bytes())]).unwrap();
    }

    #[test]
    fn damaged_pickles_are_read_without_panic(at in 0usize..2000, byte in any::<u8>(), cut in 0usize..6000) {
        let mut bytes = std::fs::read(data("nccl_trace_rank_2")).unwrap();
        let at = at % bytes.len();
        bytes[at] = byte;
        bytes.truncate(cut.max(20));
        let _ = read_bytes(&[("rank_2", &bytes)]);
    }
}
