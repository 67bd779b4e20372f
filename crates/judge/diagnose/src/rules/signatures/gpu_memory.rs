//! Whose memory it was that a GPU lacked, by the figures of PyTorch's error.

use busbw_model::Bytes;

/// A sentence where other processes hold more of the GPU than the one that failed: `GPU 0 has a total capacity of 39.49 GiB of which 119.38 MiB
/// is free. Including non-PyTorch memory, this process has 8.38 GiB memory in use.` (`c10/cuda/CUDACachingAllocator.cpp` of PyTorch 2.1 and later).
pub(super) fn of_others(line: &str) -> Option<String> {
    let (before, rest) = line.split_once(" has a total capacity of ")?;
    let gpu = before.rsplit(". ").next()?;
    let (total, rest) = (gib(rest)?, rest.split_once(" of which ")?.1);
    let (free, rest) = (gib(rest)?, rest.split_once(", this process has ")?.1);
    let own = gib(rest)?;
    let others = total - free - own;
    (others > own).then(|| {
        format!(
            " Other processes hold {others:.1} of the {total:.1} GiB of {gpu}, this one {own:.1}: ranks that are not bound to a GPU of their \
             own, another job, or what an earlier run left."
        )
    })
}

/// The size at the beginning of a text, in GiB: `119.38 MiB is free`.
fn gib(text: &str) -> Option<f64> {
    let size: String = text.split_inclusive(' ').take(2).collect();
    size.parse().ok().map(|Bytes(bytes)| bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_processes_are_told_where_they_hold_more() {
        let line = |own: &str| {
            format!(
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 112.00 MiB. GPU 0 has a total capacity of 39.49 GiB of which \
                 119.38 MiB is free. Including non-PyTorch memory, this process has {own} memory in use. Of the allocated memory 7.96 GiB is"
            )
        };
        let told = of_others(&line("8.38 GiB")).unwrap();
        assert!(told.starts_with(" Other processes hold 31.0 of the 39.5 GiB of GPU 0, this one 8.4: "), "{told}");
        for own in ["39.30 GiB", "20.10 GiB", "much", ""] {
            assert_eq!(of_others(&line(own)), None, "{own}");
        }
        assert_eq!(of_others("CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total capacity"), None);
    }
}
