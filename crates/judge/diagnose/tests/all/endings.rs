//! What is said of a run whose end is not seen: nothing is praised behind which a failure may hide.

use super::reports::answer;
use busbw_model::{Diagnosis, Verdict};

/// Two ranks that came up and print steps.
fn started() -> String {
    let rank = |rank: u32, what: &str| {
        format!(
            "n1:{p}:{p} [{rank}] NCCL INFO ncclCommInitRank comm 0x5a{rank} rank {rank} nranks 2 cudaDev {rank} nvmlDev {rank} busId {rank}1000 commId 0xabc1 - {what}\n",
            p = 40 + rank
        )
    };
    let lines = ["Init START", "Init COMPLETE"].map(|what| rank(0, what) + &rank(1, what));
    lines.concat() + "step 10 loss 2.9\nstep 20 loss 2.7\n"
}

fn left() -> String {
    (0..2).map(|rank| format!("n1:{p}:{p} [{rank}] NCCL INFO comm 0x5a{rank} rank {rank} nranks 2 cudaDev {rank} busId {rank}1000 - Destroy COMPLETE\n", p = 40 + rank)).collect()
}

#[test]
fn a_last_line_that_may_report_a_failure_is_asked_about() {
    for last in [
        "MemoryError",
        "asyncio.exceptions.InvalidStateError",
        "zmq.error.Again: Resource temporarily unavailable",
        "SystemExit: 3",
        "Traceback (most recent call last):",
        "Hangup",
        "CPU time limit exceeded",
        "Aborted!",
        "salloc: Job allocation 77 has been revoked.",
        "Connection to n1 closed by remote host.",
        "error: cannot attach to the container",
        "Error from server (Forbidden): pods \"fit-0\" is forbidden",
        "Warning  Unhealthy  9s  kubelet  Readiness probe failed",
        "The command '/bin/sh -c torchrun fit.py' returned a non-zero code: 134",
    ] {
        let found = answer(&format!("{}{last}\n", started()));
        assert!(!matches!(found.verdict, Verdict::NoErrors | Verdict::Healthy), "{last}: {}", found.summary);
        // Behind a good end, and where the program goes on, it says nothing.
        let ended = answer(&format!("{}{}{last}\n", started(), left()));
        assert_eq!(ended.verdict == Verdict::NoErrors, !last.contains(" code"), "{last}: {}", ended.summary);
        let goes_on = answer(&format!("{}{last}\nstep 30 loss 2.6\nstep 40 loss 2.5\n{}", started(), left()));
        assert_eq!(goes_on.verdict, Verdict::NoErrors, "{last}: {}", goes_on.summary);
    }
}

#[test]
fn what_nobody_caught_is_refuted_by_another_run_alone() {
    let raised = "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"fit.py\", line 9, in <module>\n[rank1]: ValueError: bad batch\n";
    let died = answer(&(started() + raised + &left()));
    assert_eq!(died.verdict, Verdict::Failed, "{}", died.summary);
    let again = (started() + &left()).replace("n1:4", "n1:5").replace("0xabc1", "0xabc2");
    let healed = answer(&(started() + raised + &again));
    assert_eq!(healed.verdict, Verdict::NoErrors, "{}", healed.summary);
}

#[test]
fn a_run_without_an_end_is_said_to_have_none() {
    for (text, ends) in [
        (started(), false),
        (started() + "saved 3 files\n", false),
        (started() + &left(), true),
        (started() + "failed: 0, passed: 12\n", false),
    ] {
        let found = answer(&text);
        assert_eq!(found.verdict, Verdict::NoErrors, "{text}");
        assert_eq!(found.summary.contains("no end of the run is seen"), !ends, "{}", found.summary);
    }
}

/// A table of two GPUs up to a size, of those that its header announces.
fn table(sizes: &[u64], footer: &str) -> String {
    let rows = sizes.iter().map(|size| {
        let time = *size as f64 / 190e3;
        format!("{size:>12} {:>13} float sum -1 {time:.2} 190.00 190.00 0 {time:.2} 190.00 190.00 0\n", size / 4)
    });
    let head = "# nThread 1 nGpus 2 minBytes 268435456 maxBytes 2147483648 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n\
                # Using devices\n#  Rank  0 Group  0 Pid 41 on n1 device  0 [0x1b] NVIDIA A100-SXM4-80GB\n\
                #  Rank  1 Group  0 Pid 41 on n1 device  1 [0x43] NVIDIA A100-SXM4-80GB\n\
                # size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n";
    head.to_string() + &rows.collect::<String>() + footer
}

#[test]
fn a_table_that_stops_says_what_is_missing() {
    const MIB: u64 = 1 << 20;
    let whole: Vec<u64> = [256, 512, 1024, 2048].map(|size| size * MIB).to_vec();
    let footer = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 190.0\n";
    let missing = |found: &Diagnosis| {
        found.judged.iter().any(|one| one.question.as_ref().is_some_and(|text| text.contains("The table stops at")))
    };
    for (text, said) in [
        (table(&whole[..2], ""), Some("2 sizes of those")),
        (table(&whole[..3], "^C\n"), Some("2 GiB")),
        (
            table(
                &whole[..1],
                "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2027-01-02T03:04:05 DUE TO TIME LIMIT ***\n",
            ),
            Some("512 MiB to 2 GiB"),
        ),
        (table(&whole, ""), None),
        (table(&whole, footer), None),
        (table(&whole[..2], footer), None),
    ] {
        let found = answer(&text);
        assert_eq!(missing(&found), said.is_some(), "{text}{}", found.summary);
        if let Some(said) = said {
            assert!(!matches!(found.verdict, Verdict::Healthy | Verdict::NoErrors), "{}", found.summary);
            assert!(
                found.judged.iter().filter_map(|one| one.question.as_ref()).any(|text| text.contains(said)),
                "{said}: {:?}",
                found.judged
            );
        }
    }
}
