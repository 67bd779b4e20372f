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

/// Texts, and the ends that they tell, behind `=>`: a line per form of Open MPI, UCX, PRRTE, Slurm, torchrun, DeepSpeed, shells,
/// runtimes, nccl-tests, MLPerf; words that are no ends; tracebacks of several streams; a crash with its library.
#[test]
fn a_text_tells_its_ends() {
    for case in include_str!("../../tests/data/ends.txt").split("\n---\n") {
        let (text, expected) = case.split_once("\n=> ").expect("a text and its ends");
        let expected: Vec<&str> = expected.trim_end().split("\n=> ").filter(|end| *end != "nothing").collect();
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
fn a_stream_that_goes_on_survived() {
    let raised =
        "[rank3]: Traceback (most recent call last):\n[rank3]:   File \"a.py\", line 1, in f\n[rank3]: ValueError: x\n";
    let step = |rank: u32| format!("[rank{rank}]: step 1 loss 0.5\n");
    let unlabelled = raised.replace("[rank3]: ", "");
    // The same lines of code again are no loop.
    let code =
        "Traceback (most recent call last):\n  File \"b.py\", line 1, in g\n    a(\n        1,\n    )\n    ~~^^\n";
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
    let again = ends(&format!("{code}KeyError: y\n{unlabelled}{code}KeyError: y\n"));
    assert!(again.len() == 3 && again.iter().all(|end| !end.went_on), "{again:?}");
}
