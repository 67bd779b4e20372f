//! How far measured times lie from predicted ones: the error of the model, by size and by what carries the data.

use super::constants::Share;
use super::figures::{Figures, Inside};
use busbw_model::Bytes;

/// Up to here latency decides.
const SMALL: Bytes = Bytes(32 << 10);
/// Up to here neither latency nor bandwidth does.
const MIDDLE: Bytes = Bytes(16 << 20);

/// What nine of ten measured times lie between, as shares of the predicted time.
pub(super) fn of(figures: &Figures, size: Bytes) -> Share {
    let band = &figures.constants.band;
    if size <= MIDDLE {
        return if size <= SMALL { band.small } else { band.middle };
    }
    let (inside, between) = copies(figures);
    match () {
        () if inside || between => band.large.copies,
        () if figures.network.is_some() => band.large.rdma,
        () => band.large.inside,
    }
}

/// Whether data goes through the memory of hosts: inside a domain, and between them. Hosts differ in that more than links do.
pub(super) fn copies(figures: &Figures) -> (bool, bool) {
    (figures.inside == Inside::HostMemory, figures.network.as_ref().is_some_and(|network| !network.gpu_direct))
}

/// Small, middle, large: 0 to 2.
pub(crate) fn class(size: Bytes) -> usize {
    usize::from(size > SMALL) + usize::from(size > MIDDLE)
}
