//! Reads what PyTorch's debug wrapper (TORCH_DISTRIBUTED_DEBUG=DETAIL) says when ranks run different collectives.
//!
//! `torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp`: two fingerprints in one line. Up to 1.12 the second is a name.

use crate::text::{leading, part_digits};
use busbw_model::{TorchEvent, TorchWork};

/// The mismatch in a line, and the rank that reports it.
pub(super) fn read(text: &str) -> Option<(u32, TorchEvent)> {
    let (_, rest) = text.split_once("Detected mismatch between collectives on ranks. Rank ")?;
    let (rank, rest) = number(rest)?;
    let (_, rest) = rest.split_once("is running ")?;
    let (mine, rest) = rest.split_once("but Rank ")?;
    let (other, rest) = number(rest)?;
    let (_, theirs) = rest.split_once("is running ")?;
    let theirs = theirs.split_once("Collectives differ").map_or(theirs, |(theirs, _)| theirs);
    Some((rank, TorchEvent::Mismatch { mine: work(mine), other, theirs: work(theirs) }))
}

/// `collective: CollectiveFingerPrint(SequenceNumber=3104, OpType=ALLREDUCE, TensorShape=[195812480], TensorDtypes=…)`. A
/// fingerprint without tensors lacks the comma behind the number.
fn work(text: &str) -> TorchWork {
    let field = |name: &str| text.split_once(name).map(|(_, value)| value);
    let word =
        |value: &str| -> String { value.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect() };
    let op = field("OpType=").or(field("collective: ")).map(word).unwrap_or_default();
    let shape = field("TensorShape=[").and_then(|rest| rest.split_once(']')).map(|(shape, _)| shape);
    let product = |shape: &str| shape.split(',').try_fold(1u64, |all, dim| all.checked_mul(dim.trim().parse().ok()?));
    TorchWork {
        sequence: field("SequenceNumber=").and_then(leading).unwrap_or_default(),
        op,
        numel_in: shape.and_then(product),
        numel_out: None,
        datatype: field("TensorDtypes=").map(word).filter(|name| !name.is_empty()),
        shape: shape.map(str::to_string),
        device: field("device=").map(word).filter(|name| !name.is_empty()),
        timeout_ms: None,
    }
}

fn number(text: &str) -> Option<(u32, &str)> {
    let (digits, rest) = part_digits(text);
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line of PyTorch 2.11, two of earlier ones.
    #[test]
    fn both_sides_are_read() {
        type Side = (u32, u64, String, u64);
        for (line, one, another) in crate::text::cases::<(String, Side, Side)>("mismatches") {
            let Some((rank, TorchEvent::Mismatch { mine, other, theirs })) = read(&line) else { panic!("{line}") };
            assert_eq!((rank, mine.sequence, mine.op, mine.numel_in.unwrap_or(0)), one, "{line}");
            assert_eq!((other, theirs.sequence, theirs.op, theirs.numel_in.unwrap_or(0)), another, "{line}");
        }
    }

    #[test]
    fn shape_and_device_of_the_tensor_are_kept() {
        let line = "Detected mismatch between collectives on ranks. Rank 3 is running collective: CollectiveFingerPrint(SequenceNumber=7, OpType=REDUCE, TensorShape=[4, 16], TensorDtypes=Half, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, layout=Strided (default))), but Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=7, OpType=BARRIER).";
        let Some((3, TorchEvent::Mismatch { mine, theirs, .. })) = read(line) else { panic!("{line}") };
        assert_eq!((mine.shape.as_deref(), mine.device.as_deref()), (Some("4, 16"), Some("cpu")));
        assert_eq!((theirs.shape, theirs.device), (None, None));
    }
}
