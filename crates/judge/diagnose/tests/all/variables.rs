//! Whose run has a variable that an input names, and what tables show of its cost.

use busbw_diagnose::diagnose;
use busbw_model::{Diagnosis, Verdict};
use std::fmt::Write;

const RUN: &str = "./build/all_reduce_perf -b 1G -e 8G -f 2 -g 8";

/// The output of nccl-tests on eight H100 of a host, all rows at one speed.
fn table(busbw: f64) -> String {
    let mut text = String::from(
        "# nccl-tests version 2.17.1 nccl-headers=22703 nccl-library=22703\n# Collective test starting: all_reduce_perf\n\
         # nThread 1 nGpus 8 minBytes 1073741824 maxBytes 8589934592 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0\n\
         #\n# Using devices\n",
    );
    for gpu in 0..8 {
        let _ = writeln!(
            text,
            "#  Rank  {gpu} Group  0 Pid  31200 on     node01 device  {gpu} [0000:{gpu}b:00] NVIDIA H100 80GB HBM3"
        );
    }
    text += "#\n#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n\
             #        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n";
    let algbw = busbw / 1.75;
    for size in [1_u64 << 30, 1 << 31, 1 << 32, 1 << 33] {
        let (count, time) = (size / 4, size as f64 / algbw / 1e3);
        let half = format!("{time:.1} {algbw:.2} {busbw:.2} 0");
        let _ = writeln!(text, "{size} {count} float sum -1 {half} {half}");
    }
    let _ = writeln!(
        text,
        "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {busbw}\n#\n# Collective test concluded: all_reduce_perf\n"
    );
    text
}

fn told(text: &str) -> Diagnosis {
    diagnose(&busbw_ingest::read_bytes(&[("run.log", text.as_bytes())]).expect("text"))
}

/// What stands around a table, and whether its run had `NCCL_P2P_DISABLE=1`.
fn surroundings() -> Vec<(String, &'static str, bool)> {
    let had = [
        format!("$ NCCL_P2P_DISABLE=1 {RUN}\n"),
        format!("me@n1:~$ export NCCL_P2P_DISABLE=1\nme@n1:~$ {RUN}\n"),
        format!("me@n1:~$ unset NCCL_P2P_DISABLE\nme@n1:~$ export NCCL_P2P_DISABLE=1\nme@n1:~$ {RUN}\n"),
        format!("me@n1:~$ export NCCL_P2P_DISABLE=0\nme@n1:~$ export NCCL_P2P_DISABLE=1\nme@n1:~$ {RUN}\n"),
        format!("#!/bin/bash\n#SBATCH -N 1\nexport NCCL_P2P_DISABLE=1\n# export NCCL_P2P_DISABLE=0\nsrun {RUN}\n\n"),
        "$ mpirun -np 8 \\\n  --bind-to numa \\\n  -x NCCL_P2P_DISABLE=1 \\\n  --mca btl tcp,self \\\n  ./build/all_reduce_perf -b 1G -e 8G\n".into(),
        format!("$ mpirun -np 8 {RUN}\n^C\n$ mpirun -np 8 -x NCCL_P2P_DISABLE=1 {RUN}\n"),
        format!("$ env | grep NCCL\nNCCL_P2P_DISABLE=1\n$ {RUN}\n"),
        format!("$ cat /etc/nccl.conf\nNCCL_P2P_DISABLE=1\n$ {RUN}\n"),
        format!("$ cat run.sbatch\n#!/bin/bash\nexport NCCL_P2P_DISABLE=1\nsrun {RUN}\n$ sbatch -W run.sbatch; cat slurm-7.out\n"),
        format!("# export NCCL_P2P_DISABLE=1\n# {RUN}\n"),
        format!("+ export NCCL_P2P_DISABLE=1\n+ NCCL_P2P_DISABLE=1\n+ srun {RUN}\n"),
        "node01:31200:31200 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.\n".into(),
    ];
    let had_not = [
        format!("me@n1:~$ export NCCL_P2P_DISABLE=1\nme@n1:~$ unset NCCL_P2P_DISABLE\nme@n1:~$ {RUN}\n"),
        format!("me@n1:~$ export NCCL_P2P_DISABLE=1\nme@n1:~$ export NCCL_P2P_DISABLE=0\nme@n1:~$ {RUN}\n"),
        format!("#!/bin/bash\n#SBATCH -N 1\n# export NCCL_P2P_DISABLE=1\n#export NCCL_P2P_DISABLE=1\nsrun {RUN}\n\n"),
        format!("# srun -x NCCL_P2P_DISABLE=1 {RUN}\nsrun {RUN}  # was NCCL_P2P_DISABLE=1\n"),
        format!("$ mpirun -np 8 -x NCCL_P2P_DISABLE=1 {RUN}\n^C\n$ mpirun -np 8 {RUN}\n"),
        format!("$ NCCL_P2P_DISABLE=1 ./vectorAdd\nTest PASSED\n$ {RUN}\n"),
        format!("$ cat old.sbatch\n#!/bin/bash\nexport NCCL_P2P_DISABLE=1\nsrun python train.py\n$ {RUN}\n"),
        format!(
            "$ git diff\n--- a/run.sh\n+++ b/run.sh\n@@ -3,3 +3,2 @@\n-export NCCL_P2P_DISABLE=1\n srun x\n$ {RUN}\n"
        ),
        format!(
            "$ history | tail -3\n  501  export NCCL_P2P_DISABLE=1\n  502  mpirun -x NCCL_P2P_DISABLE=1 ./x\n$ {RUN}\n"
        ),
        format!("$ grep -rn P2P_DISABLE .\n./old/run.sh:4:export NCCL_P2P_DISABLE=1\n$ {RUN}\n"),
        "Last year we had to set NCCL_P2P_DISABLE=1 on these, now NCCL_P2P_DISABLE=1 is not needed:\n\n".into(),
    ];
    let behind = "me@n1:~$ export NCCL_P2P_DISABLE=1\nme@n1:~$ NCCL_P2P_DISABLE=1 python train.py\n";
    let had = had.into_iter().map(|text| (text, "", true));
    let had_not = had_not.into_iter().map(|text| (text, "", false));
    had.chain(had_not).chain([(format!("me@n1:~$ {RUN}\n"), behind, false)]).collect()
}

/// A slow run is the variable's fault if it had the variable, and a fast one never had it, whatever is written around.
#[test]
fn a_variable_is_of_the_run_that_a_program_would_give_it_to() {
    for (before, behind, had) in surroundings() {
        let slow = told(&[&before, table(18.03).as_str(), behind].concat());
        assert_eq!(slow.verdict, Verdict::Degraded, "{before}: {}", slow.summary);
        assert_eq!(slow.summary.contains("NCCL_P2P_DISABLE"), had, "{before}: {}", slow.summary);
        let fast = told(&[&before, table(478.17).as_str(), behind].concat());
        assert_eq!(fast.verdict, Verdict::Healthy, "{before}: {}", fast.summary);
        let notes: Vec<_> = fast.findings.iter().filter(|one| one.title.contains("NCCL_P2P_DISABLE=1")).collect();
        assert!(notes.is_empty(), "{before}: {notes:?}");
    }
}

/// Tables with and without a variable show what it costs. The one without is judged.
#[test]
fn a_run_with_a_variable_beside_one_without_shows_its_cost() {
    let with = |busbw: f64| format!("$ NCCL_P2P_DISABLE=1 {RUN}\n{}", table(busbw));
    let without = |busbw: f64| format!("$ {RUN}\n{}", table(busbw));
    let dear = "NCCL_P2P_DISABLE=1 costs 96%: 18.03 GB/s with it, 478.17 GB/s without";
    let cases = [
        (with(18.03) + &without(478.17), Verdict::Healthy, "478.17 GB/s", dear),
        (without(478.17) + &with(18.03), Verdict::Healthy, "478.17 GB/s", dear),
        (
            format!(
                "$ export NCCL_P2P_DISABLE=1\n$ {RUN}\n{}$ unset NCCL_P2P_DISABLE\n{}",
                table(18.03),
                without(478.17)
            ),
            Verdict::Healthy,
            "478.17 GB/s",
            dear,
        ),
        (with(18.03) + &without(120.0), Verdict::Degraded, "120.00 GB/s", "costs 85%"),
        (without(18.03) + &with(18.03), Verdict::Degraded, "cause is not visible", "costs nothing"),
        // Nothing is compared where all have it, or none.
        (with(18.03) + &with(17.9), Verdict::Degraded, "NCCL_P2P_DISABLE=1 overrides", ""),
        (without(18.03) + &without(478.17), Verdict::Degraded, "18.03 GB/s", ""),
    ];
    for (text, verdict, summary, note) in cases {
        let told = told(&text);
        assert_eq!(told.verdict, verdict, "{summary}: {}", told.summary);
        assert!(told.summary.contains(summary), "{summary}: {}", told.summary);
        assert!(told.findings.iter().any(|one| one.title.contains(note)), "{note}: {:?}", told.findings);
    }
}
