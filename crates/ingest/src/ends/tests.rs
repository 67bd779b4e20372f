use busbw_model::{Ended, RankEnd};

fn ends(text: &str) -> Vec<RankEnd> {
    crate::read_bytes(&[("log", text.as_bytes())]).expect("text").ends
}

/// `rank 3: exception ValueError at train.py:88`.
fn told(end: &RankEnd) -> String {
    let who = match (end.ranks.as_slice(), end.pid) {
        ([], None) => "?".to_string(),
        ([], Some(pid)) => format!("pid {pid}"),
        (ranks, _) => format!("{ranks:?}"),
    };
    let how = match &end.how {
        Ended::Exception { kind, at, traceback, .. } => {
            let at = at.as_deref().unwrap_or("?");
            format!("exception {kind} at {at}{}", if *traceback { "" } else { ", alone" })
        }
        Ended::Crash { what, library, .. } => format!("crash {what} in {}", library.as_deref().unwrap_or("?")),
        other => format!("{other:?}"),
    };
    format!("{who}: {how}")
}

/// One line per form: Open MPI, UCX, PRRTE, Slurm, torchrun, DeepSpeed, shells, runtimes, nccl-tests, MLPerf.
#[test]
fn a_line_tells_an_end_by_its_form() {
    let cases = [
        ("srun: error: n1: tasks 1-3,5: Exited with exit code 134", "[1, 2, 3, 5]: Exit(Some(134))"),
        ("srun: error: n1: task 4: Segmentation fault", "[4]: crash Segmentation fault in ?"),
        ("srun: error: n1: task 4: Killed", "[4]: Killed(\"Killed\")"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.", "?: Killed(\"oom_kill\")"),
        (
            "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2024-01-01T00:00:00 DUE TO TIME LIMIT ***",
            "?: Interrupted(\"Slurm: time limit\")",
        ),
        (
            "mpirun noticed that process rank 3 with PID 77 on node n1 exited on signal 11 (Segmentation fault).",
            "[3]: crash Segmentation fault in ?",
        ),
        ("n1.x.gov: rank 0 died from signal 15", "[0]: Killed(\"signal 15\")"),
        ("prterun detected that one or more processes exited with non-zero status,", "?: Exit(None)"),
        (
            "E1012 10:00:01.000000 4242 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 3 (pid: 4246) of binary: /usr/bin/python3",
            "pid 4246: Killed(\"signal 9\")",
        ),
        (
            "n1: [2026-04-10 17:16:00,329] [ERROR] [launch.py:341:sigkill_handler] ['python3', 'train.py'] exits with return code = 1",
            "?: Exit(Some(1))",
        ),
        (
            "[2023-04-07 13:09:33,220] [ERROR] [launch.py:324:sigkill_handler] ['python3', 'run.py'] exits with return code = -11",
            "?: crash signal 11 in ?",
        ),
        (
            "Traceback (most recent call last):\n  File \"/a/launch.py\", line 249, in main\n    cmd=cmd)\nsubprocess.CalledProcessError: Command 'x' died with <Signals.SIGKILL: 9>.",
            "?: Killed(\"SIGKILL\")",
        ),
        (
            "Traceback (most recent call last):\n  File \"/a/build.py\", line 9, in main\nsubprocess.CalledProcessError: Command 'x' died with <Signals.SIGKILL: 9>.",
            "?: exception subprocess.CalledProcessError at build.py:9",
        ),
        ("train.sh: line 12:  4242 Bus error      (core dumped) python train.py", "pid 4242: crash Bus error in ?"),
        (
            "[n1:77:0:78] Caught signal 11 (Segmentation fault: address not mapped)",
            "pid 77: crash Segmentation fault in ?",
        ),
        ("thread 'main' panicked at src/main.rs:10:5:", "?: crash panic at src/main.rs:10:5 in ?"),
        ("Fatal Python error: Bus error", "?: crash Bus error in ?"),
        ("n1: Test NCCL failure common.cu:958 'unhandled cuda error / '", "?: Failure(\"unhandled cuda error\")"),
        ("Failed, NCCL error example.cpp:62 'invalid usage'", "?: Failure(\"invalid usage\")"),
        (r#":::MLLOG {"key": "run_stop", "value": null, "metadata": {"status": "success"}}"#, "?: Success"),
        ("BrokenPipeError: [Errno 32] Broken pipe", "?: exception BrokenPipeError at ?, alone"),
    ];
    for (line, expected) in cases {
        assert_eq!(ends(line).iter().map(told).collect::<Vec<_>>(), [expected], "{line}");
    }
}

#[test]
fn words_are_no_ends() {
    let lines = [
        "INFO exit code 0, killed workers: 0",
        "The build completed successfully",
        "error: 0, warnings: 3",
        "rank : 3 (local rank 3) ready",
        "DataLoader worker (pid 4242) is killed by signal: Terminated.",
        "Exception: ",
        r#":::MLLOG {"key": "run_stop", "value": null, "metadata": {"status": "aborted"}}"#,
    ];
    for line in lines {
        assert_eq!(ends(line), [], "{line}");
    }
}

#[test]
fn tracebacks_are_read_per_stream() {
    let interleaved = "[rank0]: Traceback (most recent call last):\n[rank1]: Traceback (most recent call last):\n\
                       [rank0]:   File \"/a/train.py\", line 5, in f\n[rank1]:   File \"/a/train.py\", line 9, in g\n\
                       [rank0]:     f()\n[rank1]:     open(p)\n[rank0]: MyProblem\n[rank1]: PermissionError: [Errno 13] no";
    let labels = "10.0.0.7: [rank4]: Traceback (most recent call last):\n10.0.0.7: [rank4]:   File \"/a/b.py\", line 3, in f\n\
                  10.0.0.7: [rank4]: ValueError: x";
    let chained = "3: Traceback (most recent call last):\n3:   File \"a.py\", line 1, in f\n3: KeyError: 'x'\n3: \n\
                   3: During handling of the above exception, another exception occurred:\n3: \n\
                   3: Traceback (most recent call last):\n3:   File \"b.py\", line 2, in g\n3: RuntimeError: y";
    let spawned = "Traceback (most recent call last):\n  File \"spawn.py\", line 2, in start\n\
                   torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 1 terminated with the following error:\n\
                   Traceback (most recent call last):\n  File \"a.py\", line 7, in run\nValueError: x";
    let cases: [(&str, &[&str]); 4] = [
        (interleaved, &["[0]: exception MyProblem at train.py:5", "[1]: exception PermissionError at train.py:9"]),
        (labels, &["[4]: exception ValueError at b.py:3"]),
        (chained, &["[3]: exception RuntimeError at b.py:2"]),
        (
            spawned,
            &[
                "?: exception torch.multiprocessing.spawn.ProcessRaisedException at spawn.py:2",
                "[1]: exception ValueError at a.py:7",
            ],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(ends(text).iter().map(told).collect::<Vec<_>>(), expected, "{text}");
    }
}

/// What CPython prints of exceptions that end no process.
#[test]
fn a_traceback_that_ends_nothing_is_no_end() {
    let traceback = "Traceback (most recent call last):\n  File \"/a/b.py\", line 3, in f\n    x()\nValueError: x\n";
    for marker in [
        "Exception ignored in: <function Pool.__del__ at 0x7f>",
        "Exception in thread Thread-3:",
        "Error in atexit._run_exitfuncs:",
    ] {
        assert_eq!(ends(&format!("{marker}\n{traceback}")), [], "{marker}");
        assert_eq!(ends(&format!("{marker}\n{traceback}{traceback}")).len(), 1, "{marker}");
    }
    assert_eq!(ends(&traceback.replace("/a/b.py", "/usr/lib/python3.10/multiprocessing/resource_tracker.py")), []);
}

#[test]
fn a_crash_names_its_library() {
    let text = "[n1:77] *** Process received signal ***\n[n1:77] Signal: Segmentation fault (11)\n\
                [n1:77] [ 0] /lib/x86_64-linux-gnu/libc.so.6(+0x45330)[0x7bdb00e45330]\n\
                [n1:77] [ 1] /lib/x86_64-linux-gnu/libnccl.so.2(+0x14e63f)[0x7bdb0174e63f]";
    assert_eq!(ends(text).iter().map(told).collect::<Vec<_>>(), ["pid 77: crash Segmentation fault in libnccl.so.2"]);
}

#[test]
fn a_stream_that_goes_on_survived() {
    let raised =
        "[rank3]: Traceback (most recent call last):\n[rank3]:   File \"a.py\", line 1, in f\n[rank3]: ValueError: x\n";
    let step = |rank: u32| format!("[rank{rank}]: step 1 loss 0.5\n");
    let unlabelled = raised.replace("[rank3]: ", "");
    let cases = [
        (format!("{}{raised}{}", step(3), step(3).repeat(3)), true),
        (format!("{}{raised}{}", step(3), step(3)), false),
        (format!("{}{raised}{}", step(3), step(5)), false),
        (format!("{raised}[rank3]: wandb: Run summary:\n"), false),
        (format!("[rank3]:  1%|x| 1/100\n{raised}[rank3]:  2%|x| 2/100\n"), false),
        (format!("step 1\n{unlabelled}step 2\n"), false),
        (format!("step 1\n{unlabelled}step 2\nstep 3\nstep 4\n"), true),
    ];
    for (text, went_on) in cases {
        assert_eq!(ends(&text).iter().map(|end| end.went_on).collect::<Vec<_>>(), [went_on], "{text}");
    }
}
