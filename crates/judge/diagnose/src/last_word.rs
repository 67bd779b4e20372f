//! The last thing that an input says, where no rule knows it and it may report a failure: what was not understood is not praised. And what
//! reports a failure in an input that says nothing else.

use crate::case::Case;
use crate::lines::{Line, is_event};
use crate::results::{self, is_error_of_gpu};
use crate::rules::ends::in_short;
use crate::silence::last_step;
use crate::words::KNOWN;
use busbw_model::{Ended, Judged, LogLevel, Place, RankEnd, Speaker, Statement, Subject};

/// What is judged of a run whose end is seen.
pub(crate) const END_OF_RUN: &str = "the end of the run";

/// A question about it.
pub(crate) fn judge(case: &Case) -> Option<Judged> {
    let run = case.run;
    let fails = |one: &Statement| {
        one.level == Some(LogLevel::Error)
            || is_of_launcher(one)
            || tells_status(one.text())
            || !case.refuters.ended_well() && (is_last_word(one.text()) || may_fail(one) || is_told(case, one))
    };
    let ends_at = |place: Place| run.ends.iter().filter(move |end| end.source.place == place);
    // Of an exception that it logged a program may have gone on: where nothing follows, that is the question.
    let is_logged = |end: &RankEnd| end.is_handled() && !case.refuters.may_be_last(end);
    let is_all = run.communicators.is_empty() && !case.refuters.ended_well();
    let is_end = |place: Place| ends_at(place).any(|end| !is_logged(end)) && !case.refuters.survived(place);
    let is_last = |place: Place| case.refuters.is_last(place) && !is_end(place);
    let knows = |line: &&Line| !case.book.read(line.speaker, &line.text).is_empty() || KNOWN.is_harmless(&line.text);
    let at = |place: Place| case.lines.iter().filter(move |line| line.source.place == place);
    let reports = |line: &&Line| {
        let place = line.source.place;
        let said = || run.statements.iter().filter(|one| one.source.place == place).any(fails);
        is_last(place)
            && match line.speaker {
                Speaker::Kernel => false,
                Speaker::NcclWarn => true,
                _ => said() || is_all && ends_at(place).any(is_logged),
            }
    };
    let last = case
        .lines
        .iter()
        .filter(reports)
        .find(|line| ends_at(line.source.place).any(is_logged) || !at(line.source.place).any(|line| knows(&line)))?
        .source;
    let text = last.text.trim();
    let how = format!("ends with `{text}`");
    let question = format!("The last line may report a failure, and no rule knows it: `{text}`. Did the run end well?");
    Some(Judged::open(Subject::Course, END_OF_RUN, how, question))
}

/// A question about the line that reports a failure, in an input of which nothing else can be said: the first that gives up, else the first that fails; where
/// none does, about the step that is its last line.
pub(crate) fn alone(case: &Case) -> Option<Judged> {
    let said = || case.run.statements.iter().filter(|one| reports(one));
    let failed = said().find(|one| gives_up(one.text())).or_else(|| said().next()).map(|one| &one.source);
    let caught = case.run.ends.iter().find(|end| matches!(end.how, Ended::Exception { .. })).map(|end| &end.source);
    let (what, how, question) = match (failed, caught) {
        (Some(line), _) => {
            let text = line.text.trim();
            let question = format!(
                "A line reports a failure, and no rule knows it: `{text}`. Did the run fail of it? Read what its program says there, and give the whole output of all ranks"
            );
            ("the course of the run", format!("has `{text}`"), question)
        }
        (None, Some(line)) => {
            let text = line.text.trim();
            let question = format!(
                "The program goes on behind an exception: `{text}`. Was that caught, or did one of several processes end of it? Give the whole output of all ranks"
            );
            ("the course of the run", format!("goes on behind `{text}`"), question)
        }
        (None, None) => {
            let text = in_short(last_step(case.run)?.text.trim());
            let question = format!(
                "No line reports a failure, and the last is a step: `{text}`. Does it hang there, is it slow, or is the rest of the output elsewhere? If it \
                 hangs, see where each rank is: `py-spy dump --pid PID`; if it is slow, measure what its network gives: `busbw bench` or nccl-tests"
            );
            (END_OF_RUN, format!("not seen behind `{text}`"), question)
        }
    };
    (!case.refuters.ended_well()).then(|| Judged::open(Subject::Course, what, how, question))
}

/// Whether a line reports a failure that may be the run's: the kernel's are of the machine, and what NCCL informs of is none.
fn reports(one: &Statement) -> bool {
    let may_tell = !matches!(one.speaker, Speaker::NcclInfo | Speaker::Kernel) && !KNOWN.is_harmless(&one.source.text);
    may_tell && (gives_up(one.text()) || fails(one))
}

/// Whether a program tells of a failure at the level for them, or by a status.
fn fails(one: &Statement) -> bool {
    let is_error =
        one.level == Some(LogLevel::Error) && !level(one.text()).is_some_and(|level| counts(one.text(), level));
    is_error || is_failure(one.text().trim()) || tells_status(one.text())
}

/// Whether a line begins with a level at which programs give up, in capitals, as runtimes of many languages write it, or says that an assertion failed.
fn gives_up(text: &str) -> bool {
    level(text).is_some_and(|level| !counts(text, level))
        || ["ssertion fail", " assert fail"].iter().any(|said| text.contains(said))
}

/// The level among the first words of a line.
fn level(text: &str) -> Option<&str> {
    const LEVELS: [&str; 7] = ["FATAL", "ERROR", "ABORT", "ABORTING", "PANIC", "CRITICAL", "SEVERE"];
    const FIRST: usize = 4;
    // `NCCL_ASYNC_ERROR_HANDLING` is one word; what begins with a digit is of a time stamp.
    let parts = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let mut words = parts.filter(|word| word.starts_with(|c: char| !c.is_ascii_digit())).take(FIRST);
    words.find(|word| LEVELS.contains(word))
}

/// Whether a figure stands beside a level: `ERROR SUMMARY: 0 errors`, `0 ERROR(S)`, `ERROR IN MASS = 1.2E-13`.
fn counts(text: &str, level: &str) -> bool {
    let Some((before, said)) = text.split_once(level) else { return false };
    let is_digit = |c: char| c.is_ascii_digit();
    let is_value = |(_, value): (&str, &str)| value.trim().parse::<f64>().is_ok();
    let is_zero = |(_, value): (&str, &str)| value.split_whitespace().next() == Some("0");
    !before.trim().is_empty() && before.trim().bytes().all(|b| b.is_ascii_digit())
        || said.trim_start_matches([' ', ':', '=', 'S']).starts_with(is_digit)
        || said.split_once(':').is_some_and(is_zero)
        || said.rsplit_once('=').is_some_and(is_value)
}

/// What bash says of a command that a signal ended of which others may know why, whole lines (glibc's `siglist.h`); what click says of a program that was
/// told to stop (`click/core.py`), timeout of one that it ended (`timeout.c`).
const WHOLE: [&str; 9] = [
    "Terminated",
    "Hangup",
    "Alarm clock",
    "CPU time limit exceeded",
    "File size limit exceeded",
    "User defined signal 1",
    "User defined signal 2",
    "Aborted!",
    "timeout: the monitored command dumped core",
];

/// What begins the last words of srun, salloc, OpenSSH (a terminal that is gone), MPICH and Open MPI (`ompi/errhandler`), kubectl, gRPC, glog, runners of
/// GitHub and Azure, and a traceback that is cut off.
const BEGINNINGS: [&str; 14] = [
    "srun: Job step aborted",
    "salloc: Job allocation ",
    "client_loop: send disconnect: ",
    "packet_write_wait: Connection to ",
    "application called MPI_Abort(",
    "Fatal error in PMPI_",
    "Fatal error in internal_",
    "*** The MPI_",
    "Error from server (",
    "rpc error: code = ",
    "*** Aborted at ",
    "CUDA error at ",
    "Traceback (most recent call last):",
    "##[error]",
];

fn is_last_word(text: &str) -> bool {
    WHOLE.contains(&text.trim())
        || BEGINNINGS.iter().any(|words| text.starts_with(words))
        || text.starts_with("Connection to ") && text.trim_end().ends_with(" closed by remote host.")
}

/// Whether a line has the form of an exception, of a failure that a program reports, or of an event of Kubernetes that warns.
fn may_fail(one: &Statement) -> bool {
    let text = one.text().trim();
    let label = one.source.text.get(..one.begins).unwrap_or_default();
    // Of an exception with its traceback, Python speaks, and rules know what became of its process.
    let is_of_program = one.speaker == Speaker::Program
        && (is_exception(text) || is_failure(text) || is_event(text) || is_error_of_gpu(text));
    is_of_program || is_of_glog(one) || label.split(' ').any(|word| word == "ERROR")
}

/// Whether a program tells a result of NCCL's or an error of CUDA's, in a form that no rule knows.
fn is_told(case: &Case, one: &Statement) -> bool {
    let text = one.text();
    let is_result = || results::reported(text).is_some() || results::is_of_gpu(text);
    one.speaker == Speaker::Program && (is_result() || case.book.has_error_of_cuda(text))
}

/// `MemoryError`, `SystemExit: 1`, `concurrent.futures.process.BrokenProcessPool: text`: the name of a class, behind its module where it is none of
/// Python's own (`format_exception_only` of `Lib/traceback.py`).
fn is_exception(text: &str) -> bool {
    const ENDS: [&str; 5] = ["Error", "Exception", "Exit", "Interrupt", "Timeout"];
    let (kind, message) = text.split_once(':').unwrap_or((text, " "));
    let (module, class) = kind.rsplit_once('.').unwrap_or(("", kind));
    let is_name = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.'));
    let is_class =
        class.starts_with(|c: char| c.is_ascii_uppercase()) && class.contains(|c: char| c.is_ascii_lowercase());
    let is_module = !module.is_empty() && module.starts_with(|c: char| c.is_ascii_lowercase());
    is_name(kind)
        && is_class
        && class != "Error"
        && message.starts_with(' ')
        && (is_module || ENDS.iter().any(|end| class.ends_with(end)))
}

/// `error: text`, `Fatal: text`, `panic: text`, as compilers, git, kubectl and Go write them.
pub(crate) fn is_failure(text: &str) -> bool {
    const LEVELS: [&str; 5] = ["error", "fatal", "panic", "failed", "critical"];
    let Some((level, said)) = text.split_once(": ") else { return false };
    let counts = said.trim().starts_with(|c: char| c.is_ascii_digit());
    !counts && LEVELS.iter().any(|word| level.eq_ignore_ascii_case(word))
}

/// An error in PyTorch's, Horovod's or TensorFlow's log.
fn is_of_glog(one: &Statement) -> bool {
    let text = one.text().trim_start_matches('[');
    let letter = text.strip_prefix(['E', 'F']);
    one.speaker == Speaker::Torch
        && letter.is_some_and(|rest| rest.starts_with(|c: char| c == ' ' || c.is_ascii_digit()))
}

/// Whether a line tells a status that shows a failure, as what runs programs does in many forms: `exited with code 137`, `returned non-zero exit status 1`,
/// `exitcode: 1`, `returned a non-zero code: 139`.
fn tells_status(text: &str) -> bool {
    const KEYS: [&str; 10] = [
        "xit code",
        "xit Code",
        "xit status",
        "xitcode",
        "xited with",
        "xited with code",
        "xited with status",
        "on-zero status of",
        "on-zero code",
        "xitCode\"",
    ];
    let fails = |behind: &str| {
        behind.trim_start_matches([' ', ':', '=', '(', '"', '-']).starts_with(|c| ('1'..='9').contains(&c))
    };
    KEYS.iter().any(|key| text.match_indices(key).any(|(at, _)| fails(&text[at + key.len()..])))
}

/// Whether a launcher's line is no note of what it does: srun and Slurm's daemons say so, mpirun and its like print little else but what they do when
/// somebody presses Ctrl-C. Slurm's step `.extern` is none of the run's.
fn is_of_launcher(one: &Statement) -> bool {
    const SLURM: [&str; 3] = ["srun: ", "slurmstepd: ", "salloc: "];
    let text = one.text();
    let of_slurm = SLURM.iter().find_map(|start| text.strip_prefix(start));
    let is_error = of_slurm.is_none_or(|rest| rest.starts_with("error: ") || rest.starts_with("fatal: "));
    one.speaker == Speaker::Launcher
        && is_error
        && KNOWN.launchers.iter().any(|start| text.starts_with(start))
        && ![".extern", Ended::CTRL_C].iter().any(|note| text.contains(note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_beside_a_level_is_no_failure() {
        for (text, expected) in [
            ("ERROR SUMMARY: 0 errors from 0 contexts", false),
            ("0 ERROR(S)", false),
            ("ERROR IN MASS CONSERVATION = 1.2E-13", false),
            ("NCCL_ASYNC_ERROR_HANDLING: 1", false),
            ("ERROR: rank 0 failed", true),
            ("2026-11-29 10:00:01 ERROR mesh: 3 cells are inverted", true),
            ("FATAL: cannot open mesh.dat", true),
        ] {
            assert_eq!(gives_up(text), expected, "{text}");
        }
    }

    #[test]
    fn the_form_shows_what_may_report_a_failure() {
        for (text, expected) in [
            ("MemoryError", true),
            ("SystemExit: 2", true),
            ("zmq.error.Again: Resource temporarily unavailable", true),
            ("pool.workers.WorkerGone", true),
            ("fatal: not a git repository", true),
            ("CUDA Runtime Error(46): all CUDA-capable devices are busy or unavailable", true),
            ("cuCtxSynchronize returned error CUDA_ERROR_LAUNCH_FAILED (field.cpp:1374 in exchangeGhost())", true),
            ("CUDA error checks are on", false),
            ("cudaErrorNotReady: the event is not done", false),
            ("panic: close of closed channel", true),
            ("Warning  Unhealthy  12m (x3 over 14m)  kubelet  Liveness probe failed", true),
            ("Error: 0", false),
            ("failed: 0, passed: 12", false),
            ("Saved model.Checkpoint", false),
            ("Training: finished", false),
            ("www.example.com: ok", false),
            ("Warning signs are ignored", false),
        ] {
            assert_eq!(
                is_exception(text) || is_failure(text) || is_event(text) || is_error_of_gpu(text),
                expected,
                "{text}"
            );
        }
    }
}
