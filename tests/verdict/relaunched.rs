//! A failure is over where the next launch of the job goes on behind it, as where that ends well: for every text that a signature knows.

use super::answer::Answer;
use super::held::Held;
use super::inputs::Input;
use busbw_diagnose::{Book, Until};
use busbw_model::{Severity, Speaker, Verdict};

/// More steps than the reader keeps lines of a wording.
const STEPS: u32 = 150;

/// Eight ranks that come up, their process numbers counted from one.
fn ranks(pid: u32) -> String {
    let rank = |r: u32| {
        let process = pid + r;
        format!(
            "n1:{process}:{process} [{r}] NCCL INFO ncclCommInitRank comm 0x55d{pid}{r} rank {r} nranks 8 cudaDev {r} nvmlDev {r} busId {r}1000 commId 0x{pid} - Init COMPLETE\n"
        )
    };
    (0..8).map(rank).collect()
}

fn steps(from: u32) -> String {
    (from..from + STEPS).map(|i| format!("step {i} loss {}.{:03} lr 3.0e-4\n", 9 - i / 100, i * 7 % 1000)).collect()
}

/// A text in a line of the program that prints it.
fn line(by: Speaker, text: &str) -> String {
    let text = text.replace("{}", "7");
    let is_named =
        text.split_once(": ").is_some_and(|(kind, _)| kind.ends_with("Error") || kind.ends_with("Exception"));
    match by {
        Speaker::Nccl | Speaker::NcclWarn => format!("n1:903:953 [3] src/misc/x.cc:484 NCCL WARN {text}\n"),
        Speaker::NcclInfo => format!("n1:903:953 [3] NCCL INFO {text}\n"),
        Speaker::Torch if !text.starts_with(['[', ']', ':']) => {
            format!("[rank3]:[W718 10:35:12.551827541 ProcessGroupNCCL.cpp:632] {text}\n")
        }
        Speaker::Python => {
            let kind = if is_named { "" } else { "RuntimeError: " };
            format!(
                "[rank3]: Traceback (most recent call last):\n[rank3]:   File \"/w/train.py\", line 211, in <module>\n[rank3]:     main()\n[rank3]: {kind}{text}\n"
            )
        }
        _ => format!("{text}\n"),
    }
}

/// All texts of errors that something may refute, with the name of their cause.
fn failures() -> Vec<(String, String)> {
    let causes = Book::built_in().causes().iter().filter(|cause| {
        cause.severity > Severity::Info && cause.until != Until::Never && cause.with.is_empty() && cause.repeats == 1
    });
    // A machine says the same of itself.
    let holds_always = |text: &str| {
        let read = Book::built_in().read(Speaker::NetLibrary, text).into_iter();
        read.map(|(cause, _)| Book::built_in().cause(cause)).any(|cause| cause.until == Until::Never)
    };
    let printed = causes.flat_map(|cause| cause.printed.iter().map(|printed| (cause.id.clone(), printed)));
    let of_run = printed.filter(|(_, printed)| printed.by != Speaker::Kernel);
    let lines = of_run.map(|(id, printed)| (id, line(printed.by, &String::from(printed.text.clone()))));
    lines.filter(|(_, line)| !holds_always(line)).collect()
}

fn answer(parts: &[&str]) -> Answer {
    Answer::to(&Input::new("log", parts.concat()))
}

#[test]
fn a_failure_is_over_where_the_next_launch_goes_on() {
    let mut held = Held::new("a failure is over where the next launch goes on, and no other is");
    let (first, next, before, after) = (ranks(900), ranks(1900), steps(0), steps(100));
    let watchdog = "[rank3]:[E718 10:35:12.551827541 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n";
    for (id, failure) in failures() {
        let alone = answer(&[&first, &before, &failure]).verdict();
        let mut check = |how: &str, parts: &[&str], holds: &dyn Fn(Verdict) -> bool| {
            let answer = answer(parts);
            held.check(holds(answer.verdict()), || {
                format!("{id}, {how}: {answer}\n    alone: {alone:?}\n    {failure}")
            });
        };
        let relaunched = [&*first, &before, &failure, &next, &after].concat();
        check("the next launch goes on", &[&relaunched], &|verdict| verdict != Verdict::Failed);
        let fails = |verdict| alone != Verdict::Failed || verdict == Verdict::Failed;
        let again = failure.replace("n1:903:953", "n1:1903:1953");
        // The steps of an error (`misc/socket.cc:484 -> 2`) are told by host, at the place of the first.
        if !failure.contains("NCCL INFO misc/socket.cc") {
            check("it fails again", &[&relaunched, &again], &fails);
        }
        check("it fails and no other launch follows", &[&first, &before, &next, &after, &again], &fails);
        check("it hangs", &[&relaunched, watchdog], &|verdict| verdict == Verdict::Failed);
    }
    held.end();
}
