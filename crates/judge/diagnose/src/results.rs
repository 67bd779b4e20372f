//! What a text says of a failure by itself: a result of NCCL's, an error of the system's.

use crate::words::KNOWN;
use busbw_model::Code;

/// The number of the `ncclResult_t` in NCCL's words, or of CUDA's error behind it.
pub fn by_words(text: &str) -> Option<u32> {
    KNOWN.results.iter().find(|(words, _)| text.contains(words.as_str())).map(|(_, result)| *result)
}

/// The number of the `ncclResult_t` that a program reports: `ncclCommInitRank failed: unhandled system error`, `NCCL Error 5: invalid usage`,
/// `NCCL error(2), …`. Words alone may be of another library.
pub fn reported(text: &str) -> Option<u32> {
    let of_nccl = || text.contains("nccl") || text.contains("NCCL") || text.contains("Nccl");
    by_number(text).or_else(|| by_check(text)).or_else(|| if of_nccl() { by_words(text) } else { None })
}

/// Whether a check of a program's failed that compares with CUDA's or HIP's success: `error == cudaSuccess (30 vs. 0)`.
pub fn is_of_gpu(check: &str) -> bool {
    ["cudaSuccess", "hipSuccess", "CUDA_SUCCESS"].iter().any(|name| check.contains(name))
}

/// Whether CUDA or HIP is named, and behind it an error with its number, its words or its place; or one by its name in their headers, `CUDA_ERROR_LAUNCH_FAILED`.
pub fn is_error_of_gpu(text: &str) -> bool {
    const NAMES: [&str; 4] = ["CUDA_ERROR_", "cudaError", "hipError", "HSA_STATUS_ERROR_"];
    let names = |name: &&str| {
        text.split_once(*name).is_some_and(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_uppercase()))
    };
    if NAMES.iter().any(names) && !text.contains("NotReady") && !text.contains("NOT_READY") {
        return true;
    }
    let behind = ["CUDA ", "Cuda ", "cuda ", "HIP ", "hip "].iter().find_map(|name| Some(text.split_once(name)?.1));
    let said =
        behind.and_then(|rest| ["Error", "error", "ERROR"].iter().find_map(|word| Some(rest.split_once(word)?.1)));
    said.is_some_and(|said| {
        let begins = said.starts_with(['(', ':']) || said.starts_with(" at ") || said.starts_with(" in ");
        let is_none = said.trim_start_matches([':', ' ', '(']).starts_with(['0', 'n', 'N']);
        (begins || said.trim_start().starts_with(|c: char| c.is_ascii_digit())) && !is_none
    })
}

fn by_number(text: &str) -> Option<u32> {
    const HEADS: [&str; 2] = ["NCCL Error", "NCCL error"];
    let rest = HEADS.iter().find_map(|head| text.split_once(head))?.1;
    let rest = rest.trim_start_matches([' ', '(']);
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    rest[..digits].parse().ok().filter(|result| (1..=7).contains(result))
}

/// `Check failed: r == ncclSuccess (2 vs. 0)`.
fn by_check(text: &str) -> Option<u32> {
    let (_, values) = text.split_once("ncclSuccess")?;
    let (_, values) = values.split_once('(')?;
    values.split_once(" vs. ")?.0.parse().ok().filter(|result| (1..=7).contains(result))
}

/// The code that an error of the system's means between ranks.
pub fn by_error(text: &str) -> Option<Code> {
    KNOWN.errors.iter().find(|(words, _)| text.contains(words.as_str())).map(|(_, code)| *code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_report_results_of_nccl() {
        for (text, result) in [
            ("ncclCommInitRank failed: unhandled system error", Some(2)),
            ("NCCL Error 5: invalid usage", Some(5)),
            ("NCCL error(2), unhandled system error.", Some(2)),
            ("NCCL error in: NCCLUtils.hpp:82, invalid argument, NCCL version 2.4.8", Some(4)),
            ("INTERNAL: NCCL operation ncclAllReduce(…) failed: unhandled cuda error", Some(1)),
            ("NCCL_ERROR_SYSTEM_ERROR: unhandled system error", Some(2)),
            ("r == ncclSuccess (2 vs. 0) ", Some(2)),
            ("NCCL version 2.20 does not fit", None),
            ("invalid argument", None),
            ("NCCL error 900", None),
        ] {
            assert_eq!(reported(text), result, "{text}");
        }
    }
}
