//! What reports on a job, a list of a cluster, or a table that nobody read say beside a run: nothing sick is praised, nothing sound accused.

use busbw_diagnose::diagnose;
use busbw_ingest::read_bytes;
use busbw_model::{Diagnosis, Verdict};

pub fn answer(text: &str) -> Diagnosis {
    diagnose(&read_bytes(&[("log", text.as_bytes())]).expect("readable"))
}

/// A whole table of two A100 on a host, as fast as it should be.
fn table() -> String {
    let rows = (28..=31).map(|power| {
        let size = 1u64 << power;
        let time = size as f64 / 230e3;
        format!("{size:>12} {:>13} float sum -1 {time:.2} 230.00 230.00 0 {time:.2} 230.00 230.00 0\n", size / 4)
    });
    let head = "# nThread 1 nGpus 2 minBytes 268435456 maxBytes 2147483648 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n\
                # Using devices\n#  Rank  0 Group  0 Pid 41 on n1 device  0 [0x1b] NVIDIA A100-SXM4-80GB\n\
                #  Rank  1 Group  0 Pid 41 on n1 device  1 [0x43] NVIDIA A100-SXM4-80GB\n\
                # size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n";
    format!("{head}{}# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 230.0\n", rows.collect::<String>())
}

/// Two ranks that came up and print steps.
fn training() -> String {
    let rank = |rank: u32, what: &str| {
        format!(
            "n1:4{rank}:4{rank} [{rank}] NCCL INFO ncclCommInitRank comm 0x5a{rank} rank {rank} nranks 2 cudaDev {rank} nvmlDev {rank} busId {rank}1000 commId 0xabc1 - {what}\n"
        )
    };
    let start = ["Init START", "Init COMPLETE"].map(|what| rank(0, what) + &rank(1, what)).concat();
    start + &(1..20).map(|step| format!("step {step} loss 2.{step}\n")).collect::<String>()
}

const SOUND: [Verdict; 2] = [Verdict::Healthy, Verdict::NoErrors];

fn is_praised(text: &str) -> bool {
    SOUND.contains(&answer(text).verdict)
}

#[test]
fn the_base_is_sound() {
    assert_eq!(answer(&table()).verdict, Verdict::Healthy);
    assert_eq!(answer(&training()).verdict, Verdict::NoErrors);
}

/// Reports on the whole job, with a status that shows a failure and one that does not; in front of the output and behind it.
#[test]
fn a_report_on_the_job_holds_wherever_it_stands() {
    for (fails, ends_well) in [
        ("Exited with exit code 1.\n", "Successfully completed.\n"),
        ("Exited with signal termination: Killed, and core dumped.\n", "Successfully completed.\n"),
        (
            "Slurm Job_id=4471 Name=bench Failed, Run time 00:03:21, FAILED, ExitCode 1\n",
            "Slurm Job_id=4471 Name=bench Ended, Run time 00:03:21, COMPLETED, ExitCode 0\n",
        ),
        ("Job ID: 4471\nState: FAILED (exit code 1)\n", "Job ID: 4471\nState: COMPLETED (exit code 0)\n"),
        ("Execution terminated\nExit_status=1\n", "Execution terminated\nExit_status=0\n"),
        ("failed       0    \nexit_status  1                   \n", "failed       0    \nexit_status  0    \n"),
        (
            "{\"kind\":\"Pod\",\"metadata\":{\"name\":\"fit-1\"},\"status\":{\"phase\":\"Failed\",\"containerStatuses\":[{\"state\":{\"terminated\":{\"exitCode\":137}}}]}}\n",
            "{\"kind\":\"Pod\",\"metadata\":{\"name\":\"fit-1\"},\"status\":{\"phase\":\"Succeeded\",\"containerStatuses\":[{\"state\":{\"terminated\":{\"exitCode\":0}}}]}}\n",
        ),
        (
            "JobID JobName State ExitCode\n4471 bench FAILED 1:0\n",
            "JobID JobName State ExitCode\n4471 bench COMPLETED 0:0\n",
        ),
    ] {
        for run in [table(), training()] {
            for text in [format!("{fails}\n{run}"), format!("{run}\n{fails}")] {
                let found = answer(&text);
                assert!(!SOUND.contains(&found.verdict), "{fails}: {}\n{text}", found.summary);
                // A job may go on behind what was measured: of a whole table no failure is claimed.
                let is_whole = run.contains("# Avg");
                // Of its own account, Slurm says itself that the job failed.
                let is_named = found.verdict == Verdict::Inconclusive || fails.contains("State: ");
                assert!(!is_whole || is_named, "{fails}: {}", found.summary);
            }
            for text in [format!("{ends_well}\n{run}"), format!("{run}\n{ends_well}")] {
                assert!(is_praised(&text), "{ends_well}: {}", answer(&text).summary);
            }
        }
    }
}

/// What runs commands tells of the last one's status.
#[test]
fn a_status_behind_the_run_is_asked_about() {
    for (behind, praised) in [
        ("kim@n1:~$ echo $?\n1\n", false),
        ("[kim@n1 ~]$ echo \"rc=$?\"\nrc=134\n", false),
        ("kim@n1:~$ echo $?\n0\n", true),
        ("kim@n1:~$ ls x\nkim@n1:~$ echo $?\n1\n", true),
        ("Script done on 2026-10-06 10:24:31+00:00 [COMMAND_EXIT_CODE=\"1\"]\n", false),
        ("Script done on 2026-10-06 10:24:31+00:00 [COMMAND_EXIT_CODE=\"0\"]\n", true),
        (
            "2026-10-06T10:24:31.1234567Z ##[error]Bash exited with code '1'.\n2026-10-06T10:24:31.2Z ##[section]Finishing: Bash\n",
            false,
        ),
        ("+ exit 1\n", false),
        ("+ exit 0\n", true),
    ] {
        let text = table() + behind;
        assert_eq!(is_praised(&text), praised, "{behind}: {}", answer(&text).summary);
    }
}

/// A list says how nodes are now: those of the run are asked about.
#[test]
fn nodes_of_the_run_that_are_unfit_are_asked_about() {
    for (row, praised) in [
        ("n1   NotReady   <none>   112d   v1.31.2\n", false),
        ("n1   Ready      <none>   112d   v1.31.2\n", true),
        ("n7   NotReady   <none>   112d   v1.31.2\n", true),
        ("gpu*  up 2-00:00:00  1  drain  n[1-3]\n", false),
        ("gpu*  up 2-00:00:00  1  down*  n[2-3]\n", true),
    ] {
        let found = answer(&(table() + row));
        assert_eq!(SOUND.contains(&found.verdict), praised, "{row}: {}", found.summary);
        assert!(praised || found.verdict == Verdict::Inconclusive, "{row}: {}", found.summary);
    }
}

/// A log in a literal is read as it is.
#[test]
fn a_log_in_a_literal_is_judged() {
    let fails =
        "Traceback (most recent call last):\n  File \"/w/fit.py\", line 8, in <module>\n    main()\nValueError: x\n";
    let escaped = |text: &str| text.replace('\n', "\\n");
    let log = escaped(&(training() + fails));
    for text in [format!("b'{log}'\n"), format!("result: b'{log}'\n"), format!("{{'job': 'a', 'output': '{log}'}}\n")] {
        assert_eq!(answer(&text).verdict, Verdict::Failed, "{text}");
    }
    let run = |code: u32| {
        format!("CompletedProcess(args=['a'], returncode={code}, stdout=b'{}', stderr=b'')\n", escaped(&table()))
    };
    assert_eq!(answer(&run(0)).verdict, Verdict::Healthy);
    assert_eq!(answer(&run(1)).verdict, Verdict::Inconclusive);
}

#[test]
fn a_table_that_nobody_read_is_neither_praised_nor_blamed() {
    let latencies = "# Size          Avg Latency(us)\n4                      21.33\n8                      21.41\n16                     21.50\n";
    let losses = "epoch  train_loss  val_loss  lr\n1  2.31  2.40  0.001\n2  2.11  2.22  0.001\n3  1.98  2.10  0.001\n";
    let found = answer(&(training() + latencies));
    assert_eq!(found.verdict, Verdict::Inconclusive, "{}", found.summary);
    let line = training().lines().count() + 1;
    assert!(found.summary.contains(&format!("log:{line} (`# Size")), "{}", found.summary);
    assert!(is_praised(&(training() + losses)));
    // With a table that is read, the first line says what was judged.
    assert!(is_praised(&(table() + latencies)));
}

/// A launch that failed behind a whole run is another command's.
#[test]
fn the_next_launch_is_not_this_run() {
    let refused =
        "salloc: error: Job submit/allocate failed: Invalid account or account/partition combination specified\n";
    assert_eq!(answer(&(table() + refused)).verdict, Verdict::Inconclusive);
    assert_eq!(answer(refused).verdict, Verdict::Failed);
}

#[test]
fn caps_on_power_are_compared() {
    let query = |limits: &[u32], default: u32| {
        let rows = limits
            .iter()
            .enumerate()
            .map(|(gpu, limit)| format!("{gpu}, NVIDIA H100 80GB HBM3, {limit}.00 W, {default}.00 W\n"));
        format!("index, name, power.limit [W], power.default_limit [W]\n{}", rows.collect::<String>())
    };
    for (limits, default, expected) in [
        ([700, 700, 400], 700, Verdict::Degraded),
        ([300, 300, 300], 700, Verdict::Degraded),
        ([600, 600, 600], 700, Verdict::Healthy),
        ([700, 700, 700], 700, Verdict::Healthy),
    ] {
        let found = answer(&query(&limits, default));
        assert_eq!(found.verdict, expected, "{limits:?}: {}", found.summary);
    }
}
