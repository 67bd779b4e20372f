//! How the run ended: one finding for the end that explains the others, with what followed as further evidence.

mod quote;

use super::Basis;
use super::found as said;
use super::signatures::book::Role;
use crate::case::Case;
use crate::data::Until;
use crate::ends::{Weight, is_one_of, stopped_by, weight};
use crate::findings::is_consequence;
use crate::lines::Line;
use crate::refute::heads_of;
use crate::results;
use crate::words::{KNOWN, listed};
use busbw_model::{Code, CulpritClass, Ended, Evidence, Finding, Place, RankEnd, Severity, Speaker, Suspects};
use quote::Quote;
pub(crate) use quote::in_short;

/// How sure the exception of a rank is its cause where its traceback is not in the input.
const ALONE: f64 = 0.6;

/// Lines of evidence of what followed.
const MOST_FOLLOWERS: usize = 3;

/// Adds what the ends show to the findings. A cause that a rule or a signature names stands before "rank 3 died of it".
pub fn settle(case: &Case, found: &mut Vec<(Basis, Finding)>) {
    let aftermath = |lines: &[Evidence]| {
        !lines.is_empty() && lines.iter().all(|line| case.ends.aftermath.contains(&line.source.place))
    };
    found.retain(|(_, finding)| !aftermath(&finding.evidence));
    // Of two outputs that were put together nobody knows what came first.
    if let Some(stop) = stopped(case).filter(|stop| !case.refuters.is_unordered(stop.source.place)) {
        // A launcher tells of a node that is lost by itself.
        let of_launcher = |place: Place| {
            case.lines.iter().any(|line| line.source.place == place && line.speaker == Speaker::Launcher)
        };
        let follows = |finding: &Finding| {
            let mut lines = finding.evidence.iter().map(|evidence| evidence.source.place);
            // Whose peer was stopped gets no answer over InfiniBand.
            (is_consequence(finding.code) || finding.code == Code::IbTransportError)
                && lines.all(|line| line.is_after(stop.source.place) && !of_launcher(line))
        };
        found.retain(|(_, finding)| !follows(finding));
    }
    match case.ends.cause() {
        Some(cause) => explained(case, cause, found),
        None => unexplained(case, found),
    }
    let notes = [case.ends.after_success.first().map(|_| after_success(case)), interrupted(case), earlier(case)];
    found.extend(notes.into_iter().flatten().map(|finding| (Basis::Speed, finding)));
}

/// A cause is known: findings of what follows from it become its evidence.
fn explained(case: &Case, cause: &RankEnd, found: &mut Vec<(Basis, Finding)>) {
    let followed = followed(case, cause);
    let says = |finding: &Finding| rests_on(finding, cause.source.place) && weight(&cause.how, false) == Weight::Own;
    let errors = found.iter_mut().map(|(_, finding)| finding).filter(|finding| finding.severity == Severity::Error);
    let mut named = errors.filter(|finding| says(finding) || !is_consequence(finding.code));
    let named = named.find(|finding| comes_first(case, finding, cause));
    if let Some(named) = named {
        add(named, Evidence::new(cause.source.clone()));
        named.suspects = blamed(cause, named.code).or(named.suspects.take());
        named.explanation.push_str(&followed.text);
        if let Ended::Exception { kind, at, .. } = &cause.how
            && weight(&cause.how, false) == Weight::Own
        {
            let who = who(cause);
            named.title = format!(
                "{}: {}{} ended with {}",
                named.title,
                who[..1].to_lowercase(),
                &who[1..],
                told(kind, "", at.as_deref())
            );
        }
    } else if let Some(mut finding) = own(case, cause, found) {
        let follows = |evidence: &Evidence| {
            let line = evidence.source.place;
            line.is_after(cause.source.place) && is_of_another(case, line, cause)
        };
        found.retain(|(_, finding)| finding.evidence.is_empty() || !finding.evidence.iter().all(follows));
        finding.suspects = blamed(cause, finding.code);
        finding.explanation.push_str(&followed.text);
        followed.evidence.into_iter().for_each(|evidence| add(&mut finding, evidence));
        found.push((Basis::Speed, finding));
    }
    let of_ends = |finding: &Finding| matches!(finding.code, Code::PeerDied | Code::HangMismatch);
    found.retain(|(basis, finding)| *basis == Basis::Speed || says(finding) || !of_ends(finding));
}

/// Whom an end accuses, where it names a rank.
fn blamed(cause: &RankEnd, code: Code) -> Option<Suspects> {
    let class = match &cause.how {
        how if code == Code::GpuError && !is_of_program(how) => CulpritClass::Gpu,
        Ended::Killed(_) => CulpritClass::Killed,
        Ended::Lost(_) => return None,
        _ => CulpritClass::Exception,
    };
    (!cause.ranks.is_empty()).then(|| Suspects::of(cause.ranks.clone(), Some(class)))
}

/// Whether CUDA or HIP tells of what the program asked a sound GPU for: more memory than it has, what its own kernel refuses.
fn is_of_program(how: &Ended) -> bool {
    const ERRORS: [&str; 3] = ["out of memory", "OutOfMemory", "device-side assert"];
    let (Ended::Exception { kind: what, message, .. } | Ended::Crash { what, message, .. }) = how else { return false };
    ERRORS.iter().any(|error| what.contains(error) || message.contains(error))
}

/// Whether a finding rests on the line at a place.
fn rests_on(finding: &Finding, place: Place) -> bool {
    finding.evidence.iter().any(|evidence| evidence.source.place == place)
}

/// Whether a line is of the end of another rank than the one that failed first.
fn is_of_another(case: &Case, line: Place, cause: &RankEnd) -> bool {
    let of_line = case.run.ends.iter().filter(|end| heads_of(line).any(|head| end.source.place == head));
    let mut told = of_line.filter(|end| !end.ranks.is_empty() && !cause.ranks.is_empty());
    told.any(|end| end.ranks != cause.ranks)
}

/// Whether a named trouble explains the end: NCCL's errors are what it became, and what stands before it in its input is its cause.
fn comes_first(case: &Case, finding: &Finding, cause: &RankEnd) -> bool {
    let place = cause.source.place;
    // A message has several lines; those of another rank are none of it.
    let before = |earlier: Place| {
        let is_near =
            earlier.line <= place.line || earlier.line <= place.line + 8 && !is_of_another(case, earlier, cause);
        earlier.input == place.input && is_near
    };
    weight(&cause.how, !case.ends.timeouts.is_empty()) == Weight::Nccl
        || finding.evidence.iter().any(|evidence| before(evidence.source.place))
}

fn add(finding: &mut Finding, new: Evidence) {
    if !rests_on(finding, new.source.place) {
        finding.evidence.push(new);
    }
}

/// What the other ranks did then.
struct Followed {
    text: String,
    evidence: Vec<Evidence>,
}

fn followed(case: &Case, cause: &RankEnd) -> Followed {
    let mut ranks: Vec<u32> = case.ends.timeouts.iter().filter_map(|timeout| timeout.rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let others = || case.ends.standing.iter().filter(|end| end.source.place != cause.source.place);
    let count = |wanted: fn(&Ended) -> bool| others().filter(|end| wanted(&end.how)).count();
    let counted = [
        (ranks.len(), "timed out"),
        (count(|how| matches!(how, Ended::Exception { .. })), "ended with an exception"),
        (count(|how| matches!(how, Ended::Crash { .. } | Ended::Failure(_))), "aborted"),
        (count(|how| matches!(how, Ended::Exit(_) | Ended::Killed(_))), "reported by the launcher"),
    ];
    let said: Vec<String> = counted.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    let timeouts = case.ends.timeouts.iter().map(|timeout| &timeout.source);
    let sources = timeouts.chain(others().map(|end| &end.source)).take(MOST_FOLLOWERS);
    let text = if said.is_empty() { String::new() } else { format!(" What followed: {}.", said.join(", ")) };
    Followed { text, evidence: sources.map(|source| Evidence::noted(source.clone(), "followed")).collect() }
}

/// `Rank 8`, `Ranks 1, 2, 3`, `Process 4242`, `A process on n1`.
pub(crate) fn who(end: &RankEnd) -> String {
    let host = end.host.as_ref().map_or(String::new(), |host| format!(" on {host}"));
    match (end.ranks.as_slice(), end.pid) {
        ([rank], _) => format!("Rank {rank}{host}"),
        ([_, _, ..], _) => format!("Ranks {}{host}", listed(end.ranks.iter(), 8)),
        (_, Some(pid)) => format!("Process {pid}{host}"),
        _ => format!("A process{host}"),
    }
}

/// `FileNotFoundError: [Errno 2] … (pretrain.py:451)`.
fn told(kind: &str, message: &str, at: Option<&str>) -> String {
    let name = kind.rsplit('.').next().unwrap_or(kind);
    let message = if message.is_empty() { String::new() } else { format!(": {}", quote::in_short(message)) };
    let at = at.map_or(String::new(), |at| format!(" ({at})"));
    format!("{name}{message}{at}")
}

/// `, raised from ImportError: text (file.py:12)`.
fn from(end: &RankEnd) -> String {
    match end.raised_from.as_deref() {
        Some(Ended::Exception { kind, message, at, .. }) => {
            format!(", raised from {}", told(kind, message, at.as_deref()))
        }
        _ => String::new(),
    }
}

/// Where another rank crashed in the same way: ranks crash at once, and their stacks follow.
fn library_beside<'a>(case: &Case<'a>, message: &str) -> Option<&'a String> {
    let of_other = |end: &'a RankEnd| match &end.how {
        Ended::Crash { library, message, .. } if is_forbidden(message) => library.as_ref(),
        _ => None,
    };
    case.ends.standing.iter().copied().find_map(of_other).filter(|_| is_forbidden(message))
}

/// Pages of a GPU's memory are mapped without permissions; the host copies from them where MPI does not know whose they are.
fn is_forbidden(message: &str) -> bool {
    ["invalid permissions for mapped object", "Invalid permissions"].iter().any(|said| message.starts_with(said))
}

/// Whether a crash is SIGBUS, as crash handlers and launchers name it.
fn is_bus_error(what: &str) -> bool {
    ["SIGBUS", "Bus error", "signal 7"].iter().any(|name| what.starts_with(name))
}

/// The finding for an end that no rule names.
fn own(case: &Case, cause: &RankEnd, found: &[(Basis, Finding)]) -> Option<Finding> {
    let evidence = vec![Evidence::new(cause.source.clone())];
    let who = who(cause);
    Some(match &cause.how {
        Ended::Lost(what) => said("end.lost", &[("who", &who), ("what", what)], evidence),
        _ if weight(&cause.how, false) == Weight::Nccl => Quote::of_end(case, cause, found),
        Ended::Exception { kind, message, at, .. } => {
            // PyTorch's compiler quotes the one that it met.
            let quoted = message.split_once(": ").map_or("", |(kind, _)| kind);
            let is_gpu = [kind, quoted].iter().any(|kind| kind.ends_with("OutOfMemoryError"))
                || message.starts_with("CUDA ")
                || message.starts_with("HIP ");
            let told = told(kind, message, at.as_deref()) + &from(cause);
            let rendezvous = is_one_of(kind, &KNOWN.rendezvous);
            let id = if rendezvous { "end.rendezvous" } else { "end.exception" };
            let finding = said(id, &[("who", &who), ("told", &told)], evidence);
            match results::by_error(message) {
                _ if is_gpu => Finding { code: Code::GpuError, ..finding },
                Some(code) if rendezvous => Finding { code, ..finding },
                // Without its traceback, what comes before it may be the cause.
                _ if at.is_none() => Finding { confidence: finding.confidence.min(ALONE), ..finding },
                _ => finding,
            }
        }
        Ended::Killed(by) => said("end.killed", &[("who", &who), ("by", by)], evidence),
        Ended::Crash { message, .. } if results::is_of_gpu(message) => {
            said("quote.cuda-check", &[("who", &who), ("said", &quote::in_short(message))], evidence)
        }
        Ended::Crash { what, library, message } => {
            const COPY: [&str; 10] = [
                "libucp",
                "libucs",
                "libuct",
                "libmpi",
                "libopen-pal.so",
                "libpmpi",
                "mca_btl_",
                "mca_pml_",
                "ucp_",
                "uct_",
            ];
            let library = library.as_ref().or_else(|| library_beside(case, message));
            let name = library.map_or("", String::as_str);
            let copies = COPY.iter().any(|start| name.starts_with(start));
            let id = match () {
                () if copies && is_forbidden(message) => "end.crash-gpu-memory",
                () if is_bus_error(what) => "end.crash-bus",
                () if name.starts_with("libmpi.so") => "end.crash-mpi",
                () if name.starts_with("libnccl.so") || name.starts_with("librccl.so") => "end.crash-nccl",
                () => "end.crash",
            };
            let library = library.map_or(String::new(), |name| format!(" in {name}"));
            let message = if message.is_empty() { String::new() } else { format!(": {}", quote::in_short(message)) };
            said(id, &[("who", &who), ("what", what), ("library", &library), ("said", &message)], evidence)
        }
        _ => return None,
    })
}

/// Nothing shows the cause: what follows from it is all there is.
fn unexplained(case: &Case, found: &mut Vec<(Basis, Finding)>) {
    // Whoever is accused comes first; lost connections and time-outs of the others follow from it, but not what a machine says of itself.
    let accused = |finding: &Finding| finding.severity == Severity::Error && finding.suspects.is_some();
    if found.iter().any(|(_, finding)| accused(finding)) {
        found.retain(|(basis, finding)| {
            let of_ends = matches!(finding.code, Code::PeerDied | Code::HangMismatch);
            matches!(basis, Basis::Speed | Basis::Machine) || finding.suspects.is_some() || !of_ends
        });
    }
    if found.iter().any(|(_, finding)| finding.severity == Severity::Error) {
        return;
    }
    // Of processes that were killed or lost, some are started again; right before a failure that nothing else explains they were not, nor right
    // behind one that says that a process is gone.
    let failure = case.ends.standing.first().map(|end| end.source.place);
    let leads_on = |from: Place, to: Place| {
        to.is_after(from) && !case.run.steps.iter().any(|step| step.is_after(from) && to.is_after(*step))
    };
    let says_gone = case.ends.standing.iter().any(|end| is_of_gone(end));
    let explains = |line: Place, failure: Place| leads_on(line, failure) || says_gone && leads_on(failure, line);
    let gone = |(basis, finding): &&mut (Basis, Finding)| {
        *basis == Basis::Log
            && finding.code == Code::PeerDied
            && finding.severity == Severity::Warning
            && finding.evidence.iter().any(|line| failure.is_none_or(|failure| explains(line.source.place, failure)))
    };
    if case.ends.failed()
        && let Some((_, finding)) = found.iter_mut().find(gone)
    {
        finding.severity = Severity::Error;
        return;
    }
    // torchrun tells which rank failed first, and lists it last.
    let standing = &case.ends.standing;
    let finding = match standing.iter().find(|end| end.first).or(standing.first()) {
        Some(end) => Some(Quote::of_end(case, end, found)),
        None if case.ends.failed() => None,
        None => Quote::alone(case, found),
    };
    found.extend(finding.map(|finding| (Basis::Log, finding)));
}

/// Whether an exception is about a process that is gone.
fn is_of_gone(end: &RankEnd) -> bool {
    matches!(&end.how, Ended::Exception { kind, .. } if is_one_of(kind, &KNOWN.gone))
}

/// The run was good, and processes failed as they left.
fn after_success(case: &Case) -> Finding {
    let ends = &case.ends.after_success;
    let codes = ends.iter().filter_map(|end| match &end.how {
        Ended::Exit(code) => Some(code.map_or("an exit code that is not 0".into(), |code| format!("exit code {code}"))),
        Ended::Crash { what, .. } | Ended::Killed(what) | Ended::Lost(what) => Some(what.clone()),
        Ended::Exception { kind, .. } => Some(kind.clone()),
        _ => None,
    });
    let mut codes: Vec<String> = codes.filter(|code| !code.is_empty()).collect();
    codes.dedup();
    let evidence = ends.iter().take(4).map(|end| Evidence::new(end.source.clone())).collect();
    said("end.after-success", &[("codes", &listed(codes.iter(), 4))], evidence)
}

/// A run that failed before the one that the input ends with.
fn earlier(case: &Case) -> Option<Finding> {
    let source = match case.ends.earlier {
        _ if case.ends.failed() => return None,
        Some(end) => &end.source,
        None => case.lines.iter().find(|line| told_before(case, line))?.source,
    };
    Some(said("end.earlier", &[("line", &source.text.trim())], vec![Evidence::new(source.clone())]))
}

/// Whether a line shows an error of a launch that is over, and nothing but the next one, which goes on, takes it back.
fn told_before(case: &Case, line: &Line) -> bool {
    let is_error = |(cause, role): (usize, Role)| {
        let cause = case.book.cause(cause);
        let of_run = matches!(cause.until, Until::End | Until::Rerun) && cause.with.is_empty();
        matches!(role, Role::Printed(_)) && of_run && cause.severity == Severity::Error
    };
    case.refuters.is_before_running(line.source.place)
        && case.book.read(line.speaker, &line.text).into_iter().any(is_error)
}

/// The end of a run that somebody stopped, and that had not failed.
fn stopped<'a>(case: &Case<'a>) -> Option<&'a RankEnd> {
    case.ends.interrupted.filter(|_| !case.ends.failed())
}

fn interrupted(case: &Case) -> Option<Finding> {
    let end = stopped(case)?;
    let by = stopped_by(end)?;
    Some(said("end.stopped", &[("by", &by)], vec![Evidence::new(end.source.clone())]))
}
