//! Reads the desync report that PyTorch's watchdog writes with TORCH_NCCL_DESYNC_DEBUG=1 or TORCH_DISTRIBUTED_DEBUG=INFO.
//!
//! `retrieveDesyncReport` in `torch/csrc/distributed/c10d/TraceUtils.h`: a line per fact.

use crate::text::leading;
use busbw_model::Desync;

/// The fact in a line. `section`: the collective of the snapshot's section that the line stands in.
pub(super) fn read(text: &str, section: Option<u64>) -> Option<Desync> {
    let text = text.trim().trim_start_matches("- ");
    if let Some(rest) = text.strip_prefix("To our best knowledge, ranks ") {
        let (ranks, rest) = bracketed(rest)?;
        return rest.contains("never joined any").then_some(Desync::NeverJoined { ranks });
    }
    let (ranks, rest) = bracketed(text)?;
    let rest = rest.trim_start();
    if let Some(rest) = rest.strip_prefix("Timeout at collective: ") {
        let (op, collective) = rest.split_once(", #")?;
        return Some(Desync::TimedOut { rank: *ranks.first()?, op: op.to_string(), collective: leading(collective)? });
    }
    if let Some(rest) = rest.strip_prefix("joined but didn't finish collective #") {
        return Some(Desync::NotFinished { ranks, collective: leading(rest)? });
    }
    if let Some(rest) = rest.strip_prefix("finished collective #") {
        let (_, joined) = rest.split_once("but didn't join collective #")?;
        return Some(Desync::NotJoined { ranks, collective: leading(joined)? });
    }
    let (verb, op) = rest.split_once(' ')?;
    let finished = match verb {
        "started" => false,
        "finished" => true,
        _ => return None,
    };
    let is_name = !op.is_empty() && op.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    is_name.then(|| Desync::Snapshot { ranks, op: op.to_string(), collective: section, finished })
}

/// The collective of a snapshot's section: `#315 started ranks:`.
pub(super) fn section(text: &str) -> Option<u64> {
    let rest = text.trim().strip_prefix('#')?;
    (rest.ends_with(" started ranks:") || rest.ends_with(" finished ranks:")).then(|| leading(rest))?
}

/// `[0, 1, 2] rest`.
fn bracketed(text: &str) -> Option<(Vec<u32>, &str)> {
    let (inside, rest) = text.strip_prefix('[')?.split_once(']')?;
    let ranks: Option<Vec<u32>> = inside.split(',').map(|rank| rank.trim().parse().ok()).collect();
    Some((ranks?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The report of pytorch/pytorch issue 152623, and the two sentences that it lacks.
    #[test]
    fn every_sentence_is_read() {
        let cases = [
            (
                "         - [0] Timeout at collective: ALLREDUCE, #315",
                Desync::TimedOut { rank: 0, op: "ALLREDUCE".into(), collective: 315 },
            ),
            (
                "             [7] finished collective #182, but didn't join collective #183 (count from 1)",
                Desync::NotJoined { ranks: vec![7], collective: 183 },
            ),
            (
                "\t   - [0, 1] joined but didn't finish collective #39 (count from 1)",
                Desync::NotFinished { ranks: vec![0, 1], collective: 39 },
            ),
            (
                "\t - To our best knowledge, ranks [2, 3] are the lagging ranks that caused this timeout. They never joined any collectives",
                Desync::NeverJoined { ranks: vec![2, 3] },
            ),
            (
                "             [3, 4, 5, 6] started _ALLGATHER_BASE",
                Desync::Snapshot {
                    ranks: vec![3, 4, 5, 6],
                    op: "_ALLGATHER_BASE".into(),
                    collective: Some(317),
                    finished: false,
                },
            ),
        ];
        for (line, fact) in cases {
            assert_eq!(read(line, Some(317)), Some(fact), "{line}");
        }
        assert_eq!(section("           #317 started ranks:"), Some(317));
        assert_eq!(read("[0, 1] finished in 3 s", None), None);
        assert_eq!(read("[a] started X", None), None);
    }
}
