//! What PyTorch's process groups and NCCL's RAS witness: who is behind, who is missing.

use super::Draft;
use crate::case::Case;
use crate::words::listed;
use busbw_model::{Code, Evidence, Finding, ProcessGroup, RasCommunicator, Severity};

const REMEDY: &[&str] = &[
    "Look at the output of the ranks that are behind, and where they are: `py-spy dump --pid PID`",
    "Let PyTorch record every call: `export TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1`, and compare the dumps",
];

/// Process groups and communicators whose ranks do not agree.
pub fn rule(case: &Case) -> Vec<Finding> {
    let groups = case.run.process_groups.iter().filter_map(|group| mismatch(group).or_else(|| behind(group)));
    let communicators = case.run.ras_reports.iter().flat_map(|report| &report.communicators).filter_map(ras);
    groups.take(1).chain(communicators.take(1)).collect()
}

fn mismatch(group: &ProcessGroup) -> Option<Finding> {
    let mismatch = group.mismatches.first()?;
    let said: Vec<String> =
        mismatch.variants.iter().take(4).map(|(work, ranks)| format!("{} on rank {}", work.op, list(ranks))).collect();
    let draft = Draft {
        code: Code::HangMismatch,
        severity: Severity::Error,
        confidence: 0.92,
        title: format!("Ranks of {} are in different collectives: {}", group.name, said.join(", ")),
        explanation: "At one place of the sequence the ranks called different operations, or the same with different sizes. NCCL does not \
                      check that; it hangs or mixes data."
            .into(),
    };
    Some(draft.finding(mismatch.sources.iter().take(4).map(|s| Evidence::new(s.clone())).collect(), REMEDY))
}

fn behind(group: &ProcessGroup) -> Option<Finding> {
    let (ranks, theirs, others) = group.behind()?;
    let draft = Draft {
        code: Code::HangMismatch,
        severity: Severity::Error,
        confidence: 0.85,
        title: format!("Rank {} of {} is behind: collective {theirs}, the others wait in {others}", list(&ranks), group.name),
        explanation: "Collectives of a group are numbered. These ranks never called what the others wait for: their program went another \
                      way, is busy with something else, or stands. Time-outs of the others follow from it."
            .into(),
    };
    let sources = ranks.iter().filter_map(|rank| group.ranks.get(rank)).flat_map(|rank| &rank.sources);
    Some(draft.finding(sources.take(4).map(|s| Evidence::new(s.clone())).collect(), REMEDY))
}

fn ras(communicator: &RasCommunicator) -> Option<Finding> {
    if communicator.missing_ranks > 0 {
        let ranks: Vec<u32> = communicator.missing.iter().map(|rank| rank.rank).collect();
        let draft = Draft {
            code: Code::PeerDied,
            severity: Severity::Error,
            confidence: 0.8,
            title: format!("{} ranks do not answer RAS: {}", communicator.missing_ranks, list(&ranks)),
            explanation: "NCCL's watcher (RAS) asks every process of the job. These do not answer: they died, their node is gone, or it \
                          cannot be reached. Look at them first."
                .into(),
        };
        return Some(draft.finding(vec![Evidence::new(communicator.source.clone())], REMEDY));
    }
    let launched = communicator.launched.iter().find(|launched| launched.differs())?;
    let behind = launched.behind()?;
    let draft = Draft {
        code: Code::HangMismatch,
        severity: Severity::Warning,
        confidence: 0.7,
        title: format!("Rank {} launched {} {}, others {}", list(&behind.ranks), behind.value, launched.operation, launched.most()),
        explanation: "RAS counts what each rank launched. A rank that launched fewer operations than the others is the one they wait for, if \
                      the difference stays when you ask again."
            .into(),
    };
    Some(draft.finding(vec![Evidence::new(behind.source.clone())], REMEDY))
}

fn list(ranks: &[u32]) -> String {
    listed(ranks.iter(), 8)
}
