//! Who is named, of what `busbw watch` saw.

use busbw_diagnose::diagnose;
use busbw_ingest::read_bytes;
use busbw_model::answer::Document;
use busbw_model::{
    Code, Culprit, CulpritClass, Diagnosis, ProcessEnd, ProcessState, Stall, Watched, WatchedPeer, WatchedRank,
};

const SECOND: u64 = 1_000_000;
/// 14:03:22 of some day.
const SINCE: u64 = (14 * 3600 + 3 * 60 + 22) * SECOND;

fn rank(rank: u32, host: &str) -> WatchedRank {
    WatchedRank {
        rank,
        host: host.into(),
        pid: 100 + rank,
        state: ProcessState::Sleeping,
        system_call: Some("futex".into()),
        state_since_us: SINCE,
        ..WatchedRank::default()
    }
}

fn ended(rank: WatchedRank, status: Option<i32>, signal: Option<i32>, after: u64) -> WatchedRank {
    WatchedRank { ended: Some(ProcessEnd { time_us: SINCE + after * SECOND, status, signal }), ..rank }
}

/// A rank that gets no acknowledgement from a host.
fn cut_off(from: WatchedRank, to: &str, unanswered: bool) -> WatchedRank {
    let peer = WatchedPeer {
        address: format!("10.77.0.{}", &to[1..]),
        host: Some(to.into()),
        remote: true,
        connections: 1,
        unacknowledged_bytes: if unanswered { 4096 } else { 0 },
        unanswered_since_us: unanswered.then_some(SINCE),
        retransmits: if unanswered { 5 } else { 0 },
        ..WatchedPeer::default()
    };
    WatchedRank { peers: [from.peers.clone(), vec![peer]].concat(), ..from }
}

fn stalled(host: &str, nranks: u32, ranks: Vec<WatchedRank>) -> Watched {
    let stall = Some(Stall { since_us: SINCE, limit_us: 30 * SECOND });
    Watched { host: host.into(), nranks: Some(nranks), stall, ranks, ..Watched::default() }
}

/// The title and code of the first finding.
fn told(documents: &[Watched], files: &[(&str, &str)]) -> (String, Code) {
    let diagnosis = diagnosed(documents, files);
    let first = diagnosis.findings.first().expect("a finding");
    assert!(!first.evidence.is_empty(), "{}", first.title);
    assert!(!first.title.contains('{') && !first.explanation.contains('{'), "{} {}", first.title, first.explanation);
    (first.title.clone(), first.code)
}

fn diagnosed(documents: &[Watched], files: &[(&str, &str)]) -> Diagnosis {
    let texts: Vec<(String, String)> = documents
        .iter()
        .map(|one| (format!("{}/ranks.json", one.host), serde_json::to_string(&Document::new(one)).expect("JSON")))
        .chain(files.iter().map(|(name, text)| (name.to_string(), text.to_string())))
        .collect();
    let texts: Vec<(&str, &[u8])> = texts.iter().map(|(name, text)| (name.as_str(), text.as_bytes())).collect();
    diagnose(&read_bytes(&texts).expect("readable"))
}

#[test]
fn the_answer_has_the_culprit_as_that_of_logs_has() {
    let culprit = |ranks: Vec<WatchedRank>, stacks: &str| {
        let files = [("a/stacks-a.txt", stacks)];
        diagnosed(&[stalled("a", 2, ranks)], &files[..usize::from(!stacks.is_empty())]).culprit
    };
    let who = |culprit: Option<Culprit>| culprit.map(|one| (one.ranks, one.host, one.class));
    let one = |class| Some((vec![1], Some("a".to_string()), class));
    let sleeps = stack(100, IN_ALL_REDUCE) + &stack(101, "    read (data.py:9)\n    __next__ (data.py:20)");
    let cases = [
        (WatchedRank { state: ProcessState::Stopped, ..rank(1, "a") }, "", one(Some(CulpritClass::Stopped))),
        (ended(rank(1, "a"), None, Some(9), 0), "", one(Some(CulpritClass::Killed))),
        (ended(rank(1, "a"), Some(1), None, 0), "", one(Some(CulpritClass::Exception))),
        (WatchedRank { cores: 1.0, ..rank(1, "a") }, "", one(Some(CulpritClass::Busy))),
        (rank(1, "a"), &*sleeps, one(Some(CulpritClass::Data))),
    ];
    for (other, stacks, expected) in cases {
        assert_eq!(who(culprit(vec![rank(0, "a"), other], stacks)), expected);
    }
}

#[test]
fn a_stopped_rank_is_named_with_those_that_wait() {
    let stopped = WatchedRank { state: ProcessState::Stopped, ..rank(2, "h3") };
    let ranks = vec![rank(0, "h1"), rank(1, "h1"), stopped, rank(3, "h3")];
    let (title, code) = told(&[Watched { stall: None, ..stalled("h1", 4, ranks) }], &[]);
    assert_eq!(title, "Rank 2 on h3 is stopped since 14:03:22: a signal holds it (SIGSTOP); ranks 0, 1, 3 wait");
    assert_eq!(code, Code::HangMismatch);
}

#[test]
fn the_first_end_explains_those_that_follow() {
    // torchrun ends the others by SIGTERM.
    let ranks = vec![
        ended(rank(0, "a"), None, Some(15), 1),
        ended(rank(1, "a"), Some(1), None, 0),
        ended(rank(2, "a"), Some(1), None, 2),
    ];
    let document = Watched { stall: None, ..stalled("a", 3, ranks) };
    let (title, code) = told(std::slice::from_ref(&document), &[]);
    assert_eq!((&*title, code), ("Rank 1 on a failed at 14:03:22 (ended with exit status 1)", Code::RankFailed));
    let output = "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"train.py\", line 18, in <module>\n\
                  [rank1]:     raise ValueError(\"x\")\n[rank1]: ValueError: batch 7 has no labels\n";
    let (title, _) = told(&[document], &[("a/output-1.log", output)]);
    assert!(title.starts_with("Rank 1 on a failed at") && title.contains("ValueError (train.py:18)"), "{title}");
    let killed = Watched { stall: None, ..stalled("a", 2, vec![rank(0, "a"), ended(rank(1, "a"), None, Some(9), 0)]) };
    assert_eq!(told(&[killed], &[]).0, "Rank 1 on a was killed at 14:03:22 (killed by SIGKILL)");
    // A rank that ran fewer steps.
    let left = stalled("a", 2, vec![rank(0, "a"), ended(rank(1, "a"), Some(0), None, 0)]);
    let (title, code) = told(&[left], &[]);
    assert_eq!(
        (&*title, code),
        ("Rank 1 on a ended at 14:03:22 (ended with exit status 0), and rank 0 waits", Code::PeerDied)
    );
}

#[test]
fn ranks_that_fail_at_once_are_all_named_unless_one_says_why() {
    let at = |number: u32, millis: u64| {
        let end = ProcessEnd { time_us: SINCE + millis * 1000, status: Some(1), signal: None };
        WatchedRank { ended: Some(end), ..rank(number, "a") }
    };
    let document = Watched { stall: None, ..stalled("a", 4, vec![rank(0, "a"), at(1, 4), rank(2, "a"), at(3, 0)]) };
    let trace = |label: &str| {
        format!(
            "{label}Traceback (most recent call last):\n{label}  File \"train.py\", line 18, in <module>\n{label}    raise ValueError(\"x\")\n{label}ValueError: x\n"
        )
    };
    for (output, who) in [(trace(""), "Rank 1 or rank 3 on a"), (trace("[rank1]: "), "Rank 1 on a")] {
        let files = [("a/output-1.log", &*output)];
        let (title, _) = told(std::slice::from_ref(&document), &files);
        assert!(title.starts_with(&format!("{who} failed at 14:03:22")), "{title}");
        let culprit = diagnosed(std::slice::from_ref(&document), &files).culprit.expect("a culprit");
        assert_eq!(culprit.ranks.len(), if output.starts_with("[rank1]") { 1 } else { 2 });
    }
}

#[test]
fn a_rank_that_is_killed_explains_one_that_leaves_with_it() {
    let at = |number: u32, millis: u64, status: Option<i32>, signal: Option<i32>| {
        let end = ProcessEnd { time_us: SINCE + millis * 1000, status, signal };
        WatchedRank { ended: Some(end), ..rank(number, "a") }
    };
    let of = |left: WatchedRank, killed: WatchedRank| Watched { stall: None, ..stalled("a", 2, vec![left, killed]) };
    let seen = of(at(0, 0, Some(1), None), at(1, 20, None, Some(9)));
    assert_eq!(told(&[seen], &[]).0, "Rank 1 on a was killed at 14:03:22 (killed by SIGKILL)");
    // What started it had taken its status before anybody looked.
    let seen = of(at(0, 20, Some(1), None), at(1, 0, None, None));
    let shell = "./launch.sh: line 3:   101 Killed                  RANK=1 WORLD_SIZE=2 ./job.sh\n";
    let (title, _) = told(std::slice::from_ref(&seen), &[("a/output-1.log", shell)]);
    assert_eq!(title, "Rank 1 on a was killed at 14:03:22 (was ended by a signal, says what started it)");
    assert!(told(&[seen], &[]).0.starts_with("Rank 0 or rank 1 on a failed"));
    let seen = of(at(0, 20, None, None), at(1, 0, None, None));
    let (title, _) = told(&[seen], &[("a/output-1.log", shell)]);
    assert!(title.starts_with("Rank 1 on a was killed"), "{title}");
    // A launcher kills the others of one that fails by itself.
    let seen = of(at(0, 0, Some(1), None), at(1, 20, None, Some(9)));
    let own = "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"train.py\", line 18, in <module>\n\
               [rank0]:     raise ValueError(\"x\")\n[rank0]: ValueError: x\n";
    assert!(told(&[seen], &[("a/output-1.log", own)]).0.starts_with("Rank 0 on a failed"));
}

#[test]
fn a_rank_that_lost_its_connection_is_not_at_fault() {
    let output = "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"train.py\", line 29, in <module>\n\
                  [rank0]:     dist.all_reduce(x)\n[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:561] Connection closed by peer [10.77.0.3]:23458\n";
    let here = Watched { stall: None, ..stalled("h1", 2, vec![ended(rank(0, "h1"), Some(1), None, 3)]) };
    let (title, code) = told(std::slice::from_ref(&here), &[("h1/output-1.log", output)]);
    assert!(title.starts_with("Rank 0 on h1 lost its connection") && code == Code::PeerDied, "{title}");
    let stopped = WatchedRank { state: ProcessState::Stopped, ..rank(1, "h3") };
    let there = Watched { stall: None, ..stalled("h3", 2, vec![stopped]) };
    let (title, _) = told(&[here, there], &[("h1/output-1.log", output)]);
    assert!(title.starts_with("Rank 1 on h3 is stopped"), "{title}");
}

#[test]
fn the_host_that_all_others_miss_is_the_one_that_is_cut_off() {
    let here = |host: &str, number: u32, silent: [bool; 2], others: [&str; 2]| {
        let one = cut_off(rank(number, host), others[0], silent[0]);
        stalled(host, 3, vec![cut_off(one, others[1], silent[1])])
    };
    let h1 = here("h1", 0, [false, true], ["h2", "h3"]);
    let h2 = here("h2", 1, [false, true], ["h1", "h3"]);
    let h3 = here("h3", 2, [true, true], ["h1", "h2"]);
    for seen in [&[h1.clone()][..], &[h1.clone(), h2.clone()], &[h1.clone(), h2, h3.clone()], std::slice::from_ref(&h3)]
    {
        let (title, code) = told(seen, &[]);
        assert!(title.starts_with("Host h3") && code == Code::NetUnreachable, "{title}");
    }
    let (title, _) = told(&[h1, Watched { without_carrier: vec!["eth0".into()], ..h3 }], &[]);
    assert!(title.starts_with("Host h3 (rank 2) is not reached since 14:03:22: eth0 has no carrier"), "{title}");
    // Two hosts alone: the other one, unless this one has no carrier.
    let pair = stalled("h1", 2, vec![cut_off(rank(0, "h1"), "h2", true)]);
    assert!(told(std::slice::from_ref(&pair), &[]).0.starts_with("Host h2 "));
    assert!(told(&[Watched { without_carrier: vec!["eth0".into()], ..pair }], &[]).0.starts_with("Host h1 "));
}

fn stack(pid: u32, frames: &str) -> String {
    format!(
        "Process {pid}: python train.py\nPython v3.11.7 (/usr/bin/python3.11)\n\nThread {pid} (idle): \"MainThread\"\n{frames}\n\n"
    )
}

const IN_ALL_REDUCE: &str = "    all_reduce (torch/distributed/distributed_c10d.py:4181)\n    wrapper (torch/distributed/c10d_logger.py:83)\n    <module> (train.py:29)";

#[test]
fn stacks_tell_the_rank_that_is_elsewhere() {
    let all = |last: &str| {
        let stacks: String = (0..3).map(|rank| stack(100 + rank, IN_ALL_REDUCE)).collect();
        stacks + &stack(103, last)
    };
    let document = stalled("a", 4, (0..4).map(|number| rank(number, "a")).collect());
    let loader = all("    load (train.py:11)\n    <module> (train.py:16)");
    let (title, code) = told(std::slice::from_ref(&document), &[("a/stacks-a.txt", &loader)]);
    assert_eq!(
        title,
        "Rank 3 on a is elsewhere in the program since 14:03:22: it is in load (train.py:11); ranks 0, 1, 2 wait"
    );
    assert_eq!(code, Code::HangMismatch);
    let next = all("    load (train.py:11)\n    __iter__ (train.py:8)\n    <module> (train.py:16)");
    let (title, _) = told(std::slice::from_ref(&document), &[("a/stacks-a.txt", &next)]);
    assert!(title.starts_with("Rank 3 on a is in its data loader since 14:03:22: it is in load"), "{title}");
    let apart = all(&IN_ALL_REDUCE.replace("all_reduce", "barrier").replace("train.py:29", "train.py:40"));
    let (title, _) = told(std::slice::from_ref(&document), &[("a/stacks-a.txt", &apart)]);
    assert!(title.contains("Rank 3 on a") && title.contains("<module> (train.py:40)"), "{title}");
    let alike = all(IN_ALL_REDUCE);
    let (title, _) = told(std::slice::from_ref(&document), &[("a/stacks-a.txt", &alike)]);
    assert!(title.contains("none differs from the others"), "{title}");
    let mut busy = document;
    busy.ranks[3].cores = 0.97;
    let (title, _) = told(std::slice::from_ref(&busy), &[("a/stacks-a.txt", &loader)]);
    assert!(title.starts_with("Rank 3 on a is busy since 14:03:22"), "{title}");
    let (title, _) = told(std::slice::from_ref(&busy), &[("a/stacks-a.txt", &next)]);
    assert!(title.starts_with("Rank 3 on a is busy in its data loader since 14:03:22"), "{title}");
    assert!(told(&[busy], &[]).0.contains("it computes (1.0 cores)"));
}

#[test]
fn without_stacks_the_system_call_tells() {
    let mut ranks: Vec<WatchedRank> = (0..4).map(|number| rank(number, "a")).collect();
    ranks[2].system_call = Some("clock_nanosleep".into());
    let (title, _) = told(&[stalled("a", 4, ranks.clone())], &[]);
    assert!(title.starts_with("Rank 2 on a is elsewhere") && title.contains("clock_nanosleep"), "{title}");
    // Of two, the one that is on no condition variable.
    let (title, _) = told(&[stalled("a", 2, ranks[1..3].to_vec())], &[]);
    assert!(title.starts_with("Rank 2 on a"), "{title}");
    ranks[2].system_call = ranks[1].system_call.clone();
    ranks[1].state = ProcessState::Uninterruptible;
    let (title, _) = told(&[stalled("a", 4, ranks)], &[]);
    assert!(title.starts_with("Rank 1 on a is stuck in the kernel"), "{title}");
}
