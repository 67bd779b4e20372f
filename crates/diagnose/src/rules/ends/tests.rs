use busbw_model::Verdict::{self, Degraded, Failed};
use busbw_model::{Code, Diagnosis};

const UP: &str = "n0:100:100 [0] NCCL INFO ncclCommInitRank comm 0x5555 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 7000 commId 0x915e - Init COMPLETE\n\
                  n0:101:101 [1] NCCL INFO ncclCommInitRank comm 0x5556 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 46000 commId 0x915e - Init COMPLETE\n";
const RAISED: &str = "[rank3]: Traceback (most recent call last):\n[rank3]:   File \"/srv/train.py\", line 61, in main\n[rank3]:     x()\n\
                      [rank3]: ValueError: bad shape\n";
const TIMEOUT: &str = "[rank0]:[E410 17:25:53.8 ProcessGroupNCCL.cpp:683] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n";
const SUCCESS: &str =
    r#"0: :::MLLOG {"namespace": "", "key": "run_stop", "value": null, "metadata": {"status": "success"}}"#;
const TERMINATE: &str = "7: terminate called after throwing an instance of 'c10::Error'";
const STEP: &str = "srun: error: node1: task 0: Exited with exit code 1";

fn judged(texts: &[&str]) -> Diagnosis {
    let named: Vec<(&str, &[u8])> = texts.iter().map(|text| ("log", text.as_bytes())).collect();
    crate::diagnose(&busbw_ingest::read_bytes(&named).expect("text"))
}

/// The code and title of the first finding.
fn first(texts: &[&str]) -> Option<(Code, String)> {
    judged(texts).findings.into_iter().next().map(|finding| (finding.code, finding.title))
}

#[test]
fn the_cause_stands_before_what_follows() {
    let expected = Some((Code::RankFailed, "Rank 3 ended with ValueError: bad shape (train.py:61)".to_string()));
    let closed = "n0:100:200 [0] misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by remote peer n1<1>\n";
    let lost =
        RAISED.replace("rank3", "rank1").replace("ValueError: bad shape", "ConnectionResetError: [Errno 104] reset");
    let cases: [&[&str]; 6] = [
        &[&format!("{UP}{RAISED}")],
        &[&format!("{UP}{RAISED}{TIMEOUT}")],
        &[&format!("{UP}{TIMEOUT}{RAISED}")],
        &[TIMEOUT, RAISED],
        &[&format!("{UP}{closed}"), RAISED],
        &[&format!("{lost}{RAISED}{STEP}")],
    ];
    for texts in cases {
        assert_eq!(first(texts), expected, "{texts:?}");
        assert!(
            judged(texts).findings.iter().all(|finding| !matches!(finding.code, Code::PeerDied | Code::HangMismatch))
        );
    }
    assert!(judged(&[TIMEOUT, RAISED]).findings[0].explanation.contains("What followed: 1 timed out"));
}

#[test]
fn a_cause_that_is_named_takes_the_exception_as_evidence() {
    let shm = "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/a/train.py\", line 5, in f\n\
               [rank0]: torch.distributed.DistBackendError: NCCL error in: x.cpp:1691, unhandled system error, NCCL version 2.19.3\n\
               [rank0]: ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\n\
               [rank0]: Last error:\n[rank0]: Error while creating shared memory segment /dev/shm/nccl-ABCDEF (size 9637888)";
    let finding = judged(&[shm]).findings.remove(0);
    assert_eq!(finding.code, Code::LimitsShm);
    assert!(finding.evidence.iter().any(|evidence| evidence.source.text.contains("DistBackendError")));
}

#[test]
fn who_waited_at_a_barrier_is_not_its_cause() {
    let waited = "Traceback (most recent call last):\n  File \"/a/train.py\", line 5, in f\n    dist.monitored_barrier()\n\
                  RuntimeError: [Rank 0]: Ranks 4, 5 failed to pass monitoredBarrier in 2000 ms\n";
    assert_eq!(first(&[waited]).map(|(code, _)| code), Some(Code::HangMismatch));
}

#[test]
fn a_line_that_looks_like_an_exception_counts_beside_a_failure() {
    let line = "OSError: [Errno 28] No space left on device: '/cache/tmp'\n";
    let cases = [(format!("{UP}{line}"), false), (line.to_string(), true), (format!("{UP}{line}{STEP}"), true)];
    for (text, counts) in cases {
        assert_eq!(first(&[&text]).is_some_and(|(code, _)| code == Code::RankFailed), counts, "{text}");
    }
}

#[test]
fn success_says_nothing_of_what_comes_after_it() {
    let cases: [(&[&str], Option<Verdict>); 6] = [
        (&[UP, SUCCESS, TERMINATE], Some(Degraded)),
        (&[UP, STEP, SUCCESS], None),
        (&[STEP, "RESULT,LLM_FINETUNING,,2101,nvidia,2024-05-01 03:39:12 AM"], None),
        (&[TERMINATE], Some(Failed)),
        (&["training completed successfully", STEP], Some(Failed)),
        (&[UP, "KeyboardInterrupt"], None),
    ];
    for (lines, verdict) in cases {
        let found = judged(&[&lines.join("\n")]).verdict;
        assert_eq!(matches!(found, Failed | Degraded).then_some(found), verdict, "{lines:?}");
    }
    let other = "mpirun noticed that process rank 3 with PID 7 on node n1 exited on signal 11 (Segmentation fault).";
    assert_eq!(judged(&["RESULT,BERT,,17,nvidia,x", other]).verdict, Failed);
}

fn title(text: &str) -> Option<String> {
    first(&[text]).map(|(_, title)| title)
}

#[test]
fn the_first_words_of_a_failure_that_nobody_knows_are_quoted() {
    let warn = "node1:10:20 [0] enqueue.cc:1500 NCCL WARN Cuda failure 1 'invalid argument'";
    let step = "node1:10:20 [0] NCCL INFO group.cc:242 -> 1";
    let says = Some("CUDA failed inside NCCL: Cuda failure 1 'invalid argument'".to_string());
    assert_eq!(title(&format!("{warn}\n{step}")), says);
    assert_eq!(title(&format!("{warn}\n{step}\nFailed, NCCL error a.cpp:1 'unhandled cuda error'")), says);
    let torch = "torch.distributed.DistBackendError: NCCL error in: a.cpp:1, internal error, NCCL version 2.14.3\nncclInternalError: x\nLast error:\nA thing went wrong";
    assert_eq!(title(torch).as_deref(), Some("A check of NCCL's own failed: A thing went wrong"));
}

#[test]
fn a_warning_is_no_failure_by_itself() {
    let text = "node1:10:20 [0] misc/x.cc:1 NCCL WARN Something odd that nobody knows";
    let says = |before: &str| Some(format!("{before}: Something odd that nobody knows"));
    assert_eq!(title(text), says("NCCL warns"));
    let step = "node1:10:20 [0] NCCL INFO x.cc:2 -> 3";
    assert_eq!(title(&format!("{text}\n{step}")), says("A check of NCCL's own failed"));
    let up = "node1:10:11 [0] NCCL INFO comm 0x1 rank 0 nranks 1 cudaDev 0 busId 1000 - Init COMPLETE";
    assert_eq!(title(&format!("{up}\n{text}\n{step}")), None);
    let harmless =
        "node1:10:20 [0] transport.cc:1 NCCL WARN [Service thread] Accept failed Resource temporarily unavailable";
    assert_eq!(title(harmless), None);
}

#[test]
fn time_outs_tell_who_is_missing() {
    let timeout = |rank: u32, sequence: u32| {
        TIMEOUT
            .replace("[rank0]", &format!("[rank{rank}]"))
            .replace("[Rank 0]", &format!("[Rank {rank}]"))
            .replace("SeqNum=2", &format!("SeqNum={sequence}"))
    };
    let all = |ranks: &[u32]| ranks.iter().map(|rank| timeout(*rank, 2)).collect::<String>();
    let cases = [
        (
            all(&[0, 1, 2, 3]),
            "All 4 ranks that the input shows are in collective 2 (ALLREDUCE, 1 element) of a group: it did not finish",
        ),
        (all(&[1, 2, 3]), "Ranks 1, 2, 3 wait in collective 2 (ALLREDUCE, 1 element) of a group: rank 0 is missing"),
        (all(&[5]), "Rank 5 timed out in collective 2 (ALLREDUCE, 1 element) of a group"),
        (
            format!("{}{}", all(&[1, 2, 3]), timeout(0, 1)),
            "Rank 0 of a group is behind: collective 1, the others wait in 2",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(title(&text).as_deref(), Some(expected), "{text}");
    }
    let trace = "Collective: 7, nccl:all_reduce\n  Not all ranks joining collective, sequence number: 7\n  group info: 2:tp\n  missing ranks: {0, 3}";
    assert_eq!(title(trace).as_deref(), Some("Collective 7 of tp does not end: ranks 0, 3 are missing"));
}
