//! How programs of scientific computing end themselves: Fortran's runtimes, the C library before 2.26, GASNet, Charm++, Realm, PETSc, AMReX, Chapel,
//! Quantum ESPRESSO, sanitizers. Some tell the reason in the line below.

use super::codes::{by_signal, crashed, signal_named};
use crate::cursor::finder;
use crate::text::{leading, parted};
use busbw_model::{Ended, RankEnd};

pub(super) fn read(line: &str) -> Option<RankEnd> {
    const READERS: [fn(&str) -> Option<RankEnd>; 9] =
        [fortran, c_library, assertion, charm, gasnet, realm, petsc, libraries, sanitizer];
    let is_named = |end: &RankEnd| !matches!(&end.how, Ended::Crash { what, .. } if what.is_empty());
    READERS.iter().find_map(|reader| reader(line)).filter(is_named)
}

/// The reason in a line below: Charm++'s `Reason: text`, `[3]PETSC ERROR: text`.
pub(super) fn reason(line: &str) -> Option<&str> {
    let said = line.strip_prefix("Reason: ").or_else(|| Some(behind_rank(line, "PETSC ERROR: ")?.1))?;
    (!said.starts_with([' ', '-']) && petsc(line).is_none()).then_some(said)
}

/// gfortran's `Program received signal SIGSEGV: Segmentation fault - invalid memory reference.` (libgfortran `runtime/compile_options.c`), Intel's
/// `forrtl: severe (174): SIGSEGV, segmentation fault occurred`; `forrtl: error (78): process killed (SIGTERM)` of one that was told to end.
fn fortran(line: &str) -> Option<RankEnd> {
    if let Some(signal) = line.strip_prefix("Program received signal SIG") {
        let (name, _) = signal.split_once(": ")?;
        let name = format!("SIG{name}");
        return signal_named(&name).map(|number| RankEnd::of(by_signal(number, &name)));
    }
    let (kind, said) = line.strip_prefix("forrtl: ")?.split_once(" (")?;
    let (number, said) = said.split_once("): ")?;
    let told = said.strip_prefix("process killed (").or_else(|| said.strip_prefix("process interrupted ("));
    let number = number.parse::<u32>().ok()?;
    // Behind other errors than those of arithmetic the program goes on: a field is filled with stars.
    let ends = kind == "severe" || kind == "error" && (told.is_some() || matches!(number, 65 | 72..=75));
    ends.then_some(())?;
    let how =
        told.map_or_else(|| crashed(said.trim_end()), |signal| Ended::Interrupted(signal.trim_end_matches(')').into()));
    Some(RankEnd::of(how))
}

/// ``*** Error in `./solver': free(): invalid size: 0x0000000002352880 ***`` (glibc 2.17 to 2.25), `*** glibc detected *** ./solver: double free …: 0x… ***`.
fn c_library(line: &str) -> Option<RankEnd> {
    let said = match line.strip_prefix("*** Error in `") {
        Some(rest) => rest.split_once("': ")?.1,
        None => line.strip_prefix("*** glibc detected *** ")?.split_once(": ")?.1,
    };
    let (what, _) = said.strip_suffix(" ***")?.rsplit_once(": 0x")?;
    Some(RankEnd::of(crashed(what)))
}

/// An assertion that ends a process, with its place: `Assertion failed: size == 0 (src/msg.cpp:97)` of ZeroMQ and musl, `Assertion failed in file x.c at line
/// 88: expr` of MPICH, `Assertion failed: (n > 0), function f, file x.c, line 88.` of BSD's C library, `Assertion failure at psm_ep.c:832: expr` of PSM.
fn assertion(line: &str) -> Option<RankEnd> {
    const FILES: [&str; 7] = [".c", ".cc", ".cpp", ".h", ".hpp", ".cu", ".cxx"];
    let line = line.trim_end().trim_end_matches('.');
    let said = line.strip_prefix("Assertion fail")?;
    let words: Vec<&str> = said.split(|c: char| c.is_whitespace() || "(),:".contains(c)).collect();
    let is_place = |two: &[&str]| {
        let is_file = two[0] == "line" || FILES.iter().any(|end| two[0].ends_with(end));
        is_file && two[1].parse::<u32>().is_ok()
    };
    words.windows(2).any(is_place).then(|| RankEnd::of(crashed(line)))
}

/// `------- Partition 0 Processor 3 Exiting: Called CmiAbort ------`, of old with more dashes and no partition (Charm++ `machine-common-core.C`).
fn charm(line: &str) -> Option<RankEnd> {
    let (head, why) = parted(line.trim_matches('-'), finder!(b" Exiting: "))?;
    let rank = leading(head.rsplit_once("Processor ")?.1)?;
    let is_failure = ["Called CmiAbort", "Caught Signal"].contains(&why.trim());
    (is_failure && line.starts_with("---") && line.trim_end().ends_with("---"))
        .then(|| RankEnd { ranks: vec![rank], ..RankEnd::of(crashed(why.trim())) })
}

/// `*** FATAL ERROR (proc 3): text`, `(host:pid)` before the job has met, `(Node 3)` of the UDP conduit, nothing up to 2019; `*** Caught a fatal signal (proc 3):
/// SIGSEGV(11)` (GASNet-EX `gasnet_tools.c`).
fn gasnet(line: &str) -> Option<RankEnd> {
    let (whose, said, is_signal) = match line.strip_prefix("*** FATAL ERROR") {
        Some(rest) => rest.split_once(": ").map(|(whose, said)| (whose, said, false))?,
        None => line.strip_prefix("*** Caught a fatal signal")?.split_once(": ").map(|(of, said)| (of, said, true))?,
    };
    // Others tell in lines of their own what it is about.
    (!said.trim().is_empty()).then_some(())?;
    let whose = whose.trim().trim_matches(['(', ')']);
    let rank = whose.strip_prefix("proc ").or_else(|| whose.strip_prefix("Node ")).and_then(leading);
    let process = whose.split_once(':').filter(|_| rank.is_none());
    let how = match said.split_once('(').filter(|_| is_signal) {
        Some((name, number)) => by_signal(leading(number)?, name),
        None => crashed(&format!("fatal error: {}", said.trim_end())),
    };
    let host = process.map(|(host, _)| host.to_string());
    let pid = process.and_then(|(_, pid)| leading(pid));
    Some(RankEnd { ranks: rank.into_iter().collect(), host, pid, ..RankEnd::of(how) })
}

/// `Signal 6 received by node 5, process 109319 (thread 20002c70f8b0) - obtaining backtrace` (Realm `runtime_impl.cc`).
fn realm(line: &str) -> Option<RankEnd> {
    let (signal, whose) = line.strip_prefix("Signal ")?.split_once(" received by node ")?;
    let (rank, process) = whose.split_once(", process ")?;
    let how = by_signal(leading(signal)?, &format!("signal {signal}"));
    Some(RankEnd { ranks: vec![leading(rank)?], pid: leading(process), ..RankEnd::of(how) })
}

/// `[51]PETSC ERROR: Caught signal number 11 SEGV: …`, of one that was told to end `… 15 Terminate: …`; `[0]PETSC ERROR: ----- Error Message -----`, whose
/// reason follows (`src/sys/error`).
fn petsc(line: &str) -> Option<RankEnd> {
    let (rank, said) = behind_rank(line, "PETSC ERROR: ")?;
    let how = match said.strip_prefix("Caught signal number ") {
        Some(signal) => {
            let (number, name) = signal.split_once(' ')?;
            match (number.parse().ok()?, name.split(':').next()?) {
                (1 | 2 | 13 | 15, name) => Ended::Interrupted(format!("signal {number}, {name}")),
                (number, name) => by_signal(number, name),
            }
        }
        None if said.starts_with("---") && said.contains(" Error Message ") => crashed("an error of PETSc"),
        None => return None,
    };
    Some(RankEnd { ranks: rank.into_iter().collect(), ..RankEnd::of(how) })
}

/// A text behind `[51]`, which may have been taken off as a label.
fn behind_rank<'l>(line: &'l str, text: &str) -> Option<(Option<u32>, &'l str)> {
    if let Some(said) = line.strip_prefix(text) {
        return Some((None, said));
    }
    let (rank, rest) = line.strip_prefix('[')?.split_once(']')?;
    Some((Some(rank.parse().ok()?), rest.strip_prefix(text)?))
}

/// AMReX's `amrex::Abort::3::text !!!`, Chapel's `solver.chpl:42: error: text`, Quantum ESPRESSO's `Error in routine cdiaghg (159):`.
fn libraries(line: &str) -> Option<RankEnd> {
    if let Some(said) = line.strip_prefix("amrex::Abort::") {
        let (rank, what) = said.trim_end().strip_suffix(" !!!")?.split_once("::")?;
        return Some(RankEnd { ranks: vec![rank.parse().ok()?], ..RankEnd::of(crashed(what)) });
    }
    if let Some((place, said)) = parted(line, finder!(b": error: ")) {
        let (file, number) = place.rsplit_once(':')?;
        let is_chapel = file.ends_with(".chpl") && !file.contains(' ') && number.parse::<u32>().is_ok();
        return is_chapel.then(|| RankEnd::of(crashed(&format!("{said} ({place})"))));
    }
    let routine = line.strip_prefix("Error in routine ")?.trim_end().strip_suffix("):")?;
    Some(RankEnd::of(crashed(&format!("error in routine {routine})"))))
}

/// `==4242==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x… at pc 0x…`. Leaks are told where a program ends in order.
fn sanitizer(line: &str) -> Option<RankEnd> {
    let (pid, said) = line.strip_prefix("==")?.split_once("==ERROR: ")?;
    let (_, what) = said.split_once("Sanitizer: ").filter(|(whose, _)| *whose != "Leak")?;
    let what = what.split(" on ").next()?.split(" (").next()?;
    Some(RankEnd { pid: Some(pid.parse().ok()?), ..RankEnd::of(crashed(what)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_tells_whose_end_it_is() {
        let cases = [
            ("Program received signal SIGSEGV: Segmentation fault - invalid memory reference.", "SIGSEGV", None),
            (
                "forrtl: severe (174): SIGSEGV, segmentation fault occurred",
                "SIGSEGV, segmentation fault occurred",
                None,
            ),
            ("*** Error in `./lmp_mpi': free(): invalid size: 0x0000000002352880 ***", "free(): invalid size", None),
            (
                "*** glibc detected *** ./a.out: double free or corruption (out): 0x01 ***",
                "double free or corruption (out)",
                None,
            ),
            ("Assertion failed: size_ == 0 (src/msg.cpp:97)", "Assertion failed: size_ == 0 (src/msg.cpp:97)", None),
            ("Assertion failed in file x.c at line 88: n > 0", "Assertion failed in file x.c at line 88: n > 0", None),
            ("------------- Processor 751 Exiting: Called CmiAbort ------------", "Called CmiAbort", Some(751)),
            ("------- Partition 0 Processor 3 Exiting: Caught Signal ------", "Caught Signal", Some(3)),
            ("*** FATAL ERROR (proc 3): in f() at x.c:5: aborting", "fatal error: in f() at x.c:5: aborting", Some(3)),
            ("*** FATAL ERROR(Node 2): returned to sender,", "fatal error: returned to sender,", Some(2)),
            ("*** Caught a fatal signal (proc 3): SIGSEGV(11)", "SIGSEGV", Some(3)),
            (
                "Signal 6 received by node 5, process 109319 (thread 20002c70f8b0) - obtaining backtrace",
                "signal 6",
                Some(5),
            ),
            ("[51]PETSC ERROR: Caught signal number 11 SEGV: Segmentation Violation, probably", "SEGV", Some(51)),
            ("[0]PETSC ERROR: --------------------- Error Message ---------------------", "an error of PETSc", Some(0)),
            ("amrex::Abort::3::negative density !!!", "negative density", Some(3)),
            ("solver.chpl:42: error: halt reached", "halt reached (solver.chpl:42)", None),
            ("Error in routine cdiaghg (159):", "error in routine cdiaghg (159)", None),
            (
                "==4242==ERROR: AddressSanitizer: heap-use-after-free on address 0x60 at pc 0x1",
                "heap-use-after-free",
                None,
            ),
        ];
        for (line, expected, rank) in cases {
            let end = read(line).unwrap_or_else(|| panic!("{line}"));
            let Ended::Crash { what, .. } = &end.how else { panic!("{line}: {:?}", end.how) };
            assert_eq!((what.as_str(), end.ranks.first().copied()), (expected, rank), "{line}");
        }
    }

    #[test]
    fn who_was_told_to_end_did_not_fail_by_itself() {
        for line in [
            "forrtl: error (78): process killed (SIGTERM)",
            "[2]PETSC ERROR: Caught signal number 15 Terminate: Some process (or the batch system) has told this process to end",
        ] {
            let how = read(line).unwrap_or_else(|| panic!("{line}")).how;
            assert!(!matches!(how, Ended::Crash { .. }), "{line}: {how:?}");
        }
        for line in [
            "forrtl: warning (406): fort: an array was copied",
            "x.c:42: error: expected ;",
            "*** Error in the text ***",
        ] {
            assert!(read(line).is_none(), "{line}");
        }
    }
}
