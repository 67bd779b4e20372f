//! What a signal or an exit code says of an end.

use crate::text::leading;
use busbw_model::Ended;

/// By its number: signals that a process brings on itself are crashes, the others come from outside.
pub(super) fn by_signal(number: u32, name: &str) -> Ended {
    match number {
        2 => Ended::Interrupted(Ended::CTRL_C.into()),
        9 | 15 => Ended::Killed(name.to_string()),
        _ => crashed(name),
    }
}

pub(super) fn crashed(what: &str) -> Ended {
    Ended::Crash { what: what.to_string(), library: None, message: String::new() }
}

/// By the code that a process left with: a signal is a negative number to Python, and 128 more to a shell.
pub(super) fn by_code(text: &str) -> Option<Ended> {
    let of_signal = |number: u32| by_signal(number, &format!("signal {number}"));
    if let Some(signal) = text.strip_prefix('-') {
        return leading(signal).map(of_signal);
    }
    Some(match leading::<i32>(text)? {
        code @ 129..=159 => of_signal(code.unsigned_abs() - 128),
        code => Ended::Exit(Some(code)),
    })
}
