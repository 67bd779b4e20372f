//! NCCL's RAS: the answer of `ncclras` as text and as JSON.

mod json;
mod text;

pub(crate) use json::{event, looks_like_event, looks_like_report, report};
pub use text::RasReader;

use busbw_model::{RasError, RasLaunched, RasShare, RasStatus, SourceLine};

/// RAS's words for a status (`statusStr` in `src/ras/client_support.cc`; UNKNOWN up to 2.25).
fn status(word: &str) -> Option<RasStatus> {
    Some(match word {
        "NOCOMM" | "UNKNOWN" => RasStatus::NoCommunicator,
        "INIT" => RasStatus::Init,
        "RUNNING" => RasStatus::Running,
        "FINALIZE" => RasStatus::Finalize,
        "ABORT" => RasStatus::Abort,
        _ => return None,
    })
}

/// RAS's words for ncclResult_t (`ncclErrorToString`).
fn error_name(result: i64) -> &'static str {
    match result {
        1 => "Unhandled CUDA error",
        2 => "System error",
        3 => "Internal error",
        4 => "Invalid argument",
        5 => "Invalid usage",
        6 => "Remote process error",
        _ => "Unexpected error",
    }
}

/// More different values or errors of one communicator than this add nothing new: ranks that bring others are left out.
const MOST_SHARES: usize = 4096;
/// NCCL has ten operations.
const MOST_OPERATIONS: usize = 64;

/// Ranks that have something in common: how many, and one that is named.
type Ranks = (u32, Option<u32>);

/// Adds ranks to the share of their value.
fn share<T: PartialEq>(shares: &mut Vec<RasShare<T>>, value: T, (count, rank): Ranks, source: &SourceLine) {
    match shares.iter().position(|share| share.value == value) {
        Some(known) => {
            shares[known].count += count;
            shares[known].ranks.extend(rank);
        }
        None if shares.len() >= MOST_SHARES => {}
        None => {
            let (count, ranks) = (count.max(u32::from(rank.is_some())), rank.into_iter().collect());
            shares.push(RasShare { value, count, ranks, source: source.clone() });
        }
    }
}

/// Adds ranks to those that reported an error.
fn report_error(
    errors: &mut Vec<RasError>,
    asynchronous: bool,
    error: &str,
    (count, rank): Ranks,
    source: &SourceLine,
) {
    match errors.iter().position(|known| known.asynchronous == asynchronous && known.error == error) {
        Some(known) => {
            errors[known].count += count;
            errors[known].ranks.extend(rank);
        }
        None if errors.len() >= MOST_SHARES => {}
        None => {
            let (error, ranks) = (error.to_string(), rank.into_iter().collect());
            errors.push(RasError { asynchronous, error, count, ranks, source: source.clone() });
        }
    }
}

/// The shares of an operation, made when it is asked for first; none where there are too many.
fn launched<'a>(all: &'a mut Vec<RasLaunched>, operation: &str) -> Option<&'a mut Vec<RasShare<u64>>> {
    let index = match all.iter().position(|launched| launched.operation == operation) {
        Some(index) => index,
        None if all.len() >= MOST_OPERATIONS => return None,
        None => {
            all.push(RasLaunched { operation: operation.to_string(), shares: Vec::new() });
            all.len() - 1
        }
    };
    Some(&mut all[index].shares)
}
