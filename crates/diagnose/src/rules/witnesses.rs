//! What PyTorch's process groups and NCCL's RAS witness: who is behind, who is missing.

use super::Draft;
use crate::case::Case;
use crate::words::listed;
use busbw_model::{
    Code, CollectiveMismatch, Evidence, Finding, MismatchKind, ProcessGroup, RasCommunicator, Severity, TorchWork,
};

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
    let (first, _) = mismatch.variants.first()?;
    let said =
        |(work, ranks): &(TorchWork, Vec<u32>)| format!("{} on rank {}", aspect(mismatch.kind, work), list(ranks));
    let said: Vec<String> = mismatch.variants.iter().take(4).map(said).collect();
    let (what, why, remedy) = wording(mismatch.kind, &first.op);
    let draft = Draft {
        code: Code::HangMismatch,
        severity: Severity::Error,
        confidence: 0.92,
        title: format!("Ranks of {} {what}: {}", group.name, said.join(", ")),
        explanation: format!("{why} NCCL does not check that; it hangs or mixes data.{}", also(mismatch)),
    };
    let mut lines: Vec<Evidence> = mismatch.sources.iter().take(4).map(|s| Evidence::new(s.clone())).collect();
    lines.dedup_by(|later, earlier| later.source == earlier.source);
    Some(draft.finding(lines, &[remedy, REMEDY[1]]))
}

/// What a work is in what differs.
fn aspect(kind: MismatchKind, work: &TorchWork) -> String {
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "an unknown one".into());
    match (kind, &work.shape, work.numel_in.or(work.numel_out)) {
        (MismatchKind::Operation, ..) => work.op.clone(),
        (MismatchKind::Size, Some(shape), _) => format!("[{shape}]"),
        (MismatchKind::Size, None, Some(elements)) => format!("{elements} elements"),
        (MismatchKind::Size, None, None) => "no tensor".into(),
        (MismatchKind::Datatype, ..) => known(&work.datatype),
        (MismatchKind::Device, ..) => known(&work.device),
        (MismatchKind::Sequence, ..) => format!("number {}", work.sequence),
    }
}

/// What the ranks do, why that cannot go well, and what helps.
fn wording(kind: MismatchKind, op: &str) -> (String, &'static str, &'static str) {
    let (what, why, remedy) = match kind {
        MismatchKind::Operation => {
            return (
                "are in different collectives".into(),
                "At one place of the sequence the ranks called different operations: before it, some rank went another way through the \
                 program, as where it logs, saves, evaluates or skips what others do not.",
                "Look for the call in each rank's traceback, and for the branch that leads only some ranks there: `py-spy dump --pid PID`",
            );
        }
        MismatchKind::Size => (
            "with different sizes",
            "The ranks called the same operation with tensors of different sizes, as where a batch or a sequence is shorter on one of them.",
            "Print the shape before the call on every rank; where lengths may differ, gather them first and pad to the longest",
        ),
        MismatchKind::Datatype => (
            "with different datatypes",
            "The ranks called the same operation with elements of different types.",
            "Cast to one type before the call; look for autocast, or a default type, that is set on some ranks only",
        ),
        MismatchKind::Device => (
            "with tensors on different kinds of devices",
            "The ranks called the same operation, some with a tensor that lies elsewhere than the others'.",
            "Move the tensor to the same kind of device on every rank before the call",
        ),
        MismatchKind::Sequence => (
            "at different places of their sequences",
            "The ranks called the same operation, but some have called more before it than others: what they exchange does not belong together.",
            "Count the calls: look for a loop that runs longer on some ranks, or a branch with a collective that some do not take",
        ),
    };
    (format!("call {op} {what}"), why, remedy)
}

/// What differs besides.
fn also(mismatch: &CollectiveMismatch) -> String {
    let differs = |kind: MismatchKind| {
        let known = |work: &TorchWork| match kind {
            MismatchKind::Size => work.shape.is_some(),
            MismatchKind::Datatype => work.datatype.is_some(),
            _ => work.device.is_some(),
        };
        let mut said: Vec<String> =
            mismatch.variants.iter().filter(|(work, _)| known(work)).map(|(work, _)| aspect(kind, work)).collect();
        said.dedup();
        (kind > mismatch.kind && said.len() > 1).then(|| said.join(" and "))
    };
    let named = [(MismatchKind::Size, "size"), (MismatchKind::Datatype, "datatype"), (MismatchKind::Device, "device")];
    let found = named.into_iter().filter_map(|(kind, name)| Some(format!("{name} ({})", differs(kind)?)));
    let found: Vec<String> = found.collect();
    if found.is_empty() { String::new() } else { format!(" They differ in {} as well.", found.join(" and ")) }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(sequence: u32, op: &str, shape: &str, datatype: &str, device: &str) -> String {
        format!(
            "CollectiveFingerPrint(SequenceNumber={sequence}, OpType={op}, TensorShape=[{shape}], TensorDtypes={datatype}, \
             TensorDeviceTypes=TensorOptions(dtype=float (default), device={device}, layout=Strided (default)))"
        )
    }

    /// What one line of PyTorch's wrapper leads to.
    fn told(mine: &str, theirs: &str) -> Finding {
        let line = format!(
            "[rank4]: RuntimeError: Detected mismatch between collectives on ranks. Rank 4 is running collective: {mine}, but Rank 0 is \
             running collective: {theirs}.Collectives differ in the following aspects: \t Tensor Tensor shapes: 8vs 9\n"
        );
        let run = busbw_ingest::read_bytes(&[("log", line.as_bytes())]).expect("text");
        let mut found = rule(&Case::new(&run));
        assert_eq!(found.len(), 1, "{line}");
        found.remove(0)
    }

    #[test]
    fn a_mismatch_says_what_differs() {
        let base = fingerprint(9, "ALLREDUCE", "8, 64", "Float", "cuda");
        let cases = [
            (
                fingerprint(9, "BROADCAST", "8, 64", "Float", "cuda"),
                "are in different collectives: BROADCAST on rank 4, ALLREDUCE on rank 0",
            ),
            (
                fingerprint(9, "ALLREDUCE", "7, 64", "Float", "cuda"),
                "call ALLREDUCE with different sizes: [7, 64] on rank 4, [8, 64] on rank 0",
            ),
            (
                fingerprint(9, "ALLREDUCE", "64, 8", "Float", "cuda"),
                "call ALLREDUCE with different sizes: [64, 8] on rank 4, [8, 64] on rank 0",
            ),
            (
                fingerprint(9, "ALLREDUCE", "8, 64", "Half", "cuda"),
                "call ALLREDUCE with different datatypes: Half on rank 4, Float on rank 0",
            ),
            (
                fingerprint(9, "ALLREDUCE", "8, 64", "Float", "cpu"),
                "with tensors on different kinds of devices: cpu on rank 4, cuda on rank 0",
            ),
            (
                fingerprint(8, "ALLREDUCE", "8, 64", "Float", "cuda"),
                "at different places of their sequences: number 8 on rank 4, number 9 on rank 0",
            ),
        ];
        for (mine, title) in cases {
            let finding = told(&mine, &base);
            assert!(finding.title.ends_with(title), "{mine}: {}", finding.title);
            assert_eq!(finding.evidence.len(), 1, "{mine}");
            assert!(!finding.remedy.iter().any(|advice| advice.contains("DETAIL")), "{mine}: {:?}", finding.remedy);
        }
    }

    #[test]
    fn what_differs_besides_is_named() {
        let finding =
            told(&fingerprint(9, "BROADCAST", "1", "Long", "cuda"), &fingerprint(9, "ALLREDUCE", "1", "Float", "cuda"));
        assert!(
            finding.explanation.ends_with("They differ in datatype (Long and Float) as well."),
            "{}",
            finding.explanation
        );
    }
}
