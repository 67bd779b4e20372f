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
        let cases = [
            (
                "[rank1]: RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=3104, OpType=ALLREDUCE, TensorShape=[195812480], TensorDtypes=BFloat16, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda)), but Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=3104, OpType=ALLREDUCE, TensorShape=[2, 256], TensorDtypes=BFloat16, TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda)).Collectives differ in the following aspects: \t Tensor Tensor shapes: 195812480vs 512",
                (1, 3104, "ALLREDUCE", Some(195_812_480)),
                (0, 3104, "ALLREDUCE", Some(512)),
            ),
            (
                "Detected mismatch between collectives on ranks. Rank 26 is running collective: CollectiveFingerPrint(SequenceNumber=683057617, OpType=BROADCAST, TensorShape=[1], TensorDtypes=Long), but Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=513876813OpType=GATHER).",
                (26, 683_057_617, "BROADCAST", Some(1)),
                (1, 513_876_813, "GATHER", None),
            ),
            (
                "Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(OpType=ALLREDUCE, …), but Rank 1 is running collective: REDUCE.",
                (0, 0, "ALLREDUCE", None),
                (1, 0, "REDUCE", None),
            ),
        ];
        for (line, one, another) in cases {
            let Some((rank, TorchEvent::Mismatch { mine, other, theirs })) = read(line) else { panic!("{line}") };
            assert_eq!((rank, mine.sequence, mine.op.as_str(), mine.numel_in), one, "{line}");
            assert_eq!((other, theirs.sequence, theirs.op.as_str(), theirs.numel_in), another, "{line}");
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
