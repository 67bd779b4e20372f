//! What a signal or an exit code says of an end.

use crate::text::leading;
use busbw_model::Ended;

/// Linux has no higher signal.
const MOST_SIGNALS: u32 = 64;

/// By its number: signals that a process brings on itself are crashes, the others come from outside.
pub(super) fn by_signal(number: u32, name: &str) -> Ended {
    match number {
        2 => Ended::Interrupted(Ended::CTRL_C.into()),
        // A terminal that closed (1), batch systems before a limit (10, 12: SIGUSR1, SIGUSR2), the limit of processor time (24).
        1 | 9 | 10 | 12 | 15 | 24 => Ended::Killed(name.to_string()),
        _ => crashed(name),
    }
}

pub(super) fn crashed(what: &str) -> Ended {
    Ended::Crash { what: what.to_string(), library: None, message: String::new() }
}

/// By the code that a process left with: a signal is a negative number to Python, and 128 more to a shell.
pub(super) fn by_code(text: &str) -> Option<Ended> {
    let of_signal = |number: u32| by_signal(number, &format!("signal {number}"));
    if let Some(number) = text.strip_prefix('-').map(leading::<u32>) {
        // Windows has statuses below those of signals.
        return number.map(|number| if number <= MOST_SIGNALS { of_signal(number) } else { Ended::Exit(None) });
    }
    Some(match leading::<i32>(text)? {
        code @ 129..=159 => of_signal(code.unsigned_abs() - 128),
        code => Ended::Exit(Some(code)),
    })
}

/// The same of a code that shows a failure.
pub(crate) fn by_failure(text: &str) -> Option<Ended> {
    by_code(text).filter(|how| *how != Ended::Exit(Some(0)))
}

/// The same of a code that ends what somebody ran: with 0 it went well.
pub(super) fn by_status(text: &str) -> Option<Ended> {
    by_code(text).map(|how| if how == Ended::Exit(Some(0)) { Ended::Success } else { how })
}

/// Signals by their names in C, and by the words of a shell, which some write small and in a few more words.
const SIGNALS: [(&str, &str, u32); 7] = [
    ("SIGSEGV", "Segmentation fault", 11),
    ("SIGABRT", "Aborted", 6),
    ("SIGKILL", "Killed", 9),
    ("SIGBUS", "Bus error", 7),
    ("SIGFPE", "Floating point exception", 8),
    ("SIGILL", "Illegal instruction", 4),
    ("SIGTERM", "Terminated", 15),
];

/// The number of a signal's name in C, `SIGSEGV: 11>`.
pub(super) fn signal_named(text: &str) -> Option<u32> {
    SIGNALS.iter().find(|(name, ..)| text.starts_with(name)).map(|(.., number)| *number)
}

/// The signal in whose words a text begins, as a shell prints them of a child, and what stands behind them. `Terminated` is none: who ends a program
/// of theirs sees it.
pub(super) fn shell_signal(text: &str) -> Option<(&'static str, u32, &str)> {
    const ZSH: [(&str, usize); 2] = [("abort", 1), ("illegal hardware instruction", 5)];
    let begins = |words: &str| text.get(..words.len()).is_some_and(|start| start.eq_ignore_ascii_case(words));
    let by_words = SIGNALS[..6].iter().position(|(_, words, _)| begins(words)).map(|at| (at, SIGNALS[at].1.len()));
    let found = by_words.or_else(|| ZSH.iter().find(|(words, _)| begins(words)).map(|(words, at)| (*at, words.len())));
    let (at, length) = found?;
    let behind = &text[length..];
    (behind.is_empty() || behind.starts_with(' ')).then(|| (SIGNALS[at].1, SIGNALS[at].2, behind))
}
