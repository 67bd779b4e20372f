//! The receiving end of a connection over any sockets, for fuzz targets.

use super::RecvComm;
use super::send::Parts;
use crate::{Cancellation, Result};
use std::os::fd::OwnedFd;

/// What a listener makes of sockets that have been let in; whoever calls `test` moves them.
pub fn receiver(control: OwnedFd, data: Vec<OwnedFd>, inline_up_to: usize, checksum: bool) -> Result<RecvComm> {
    let (address, cancel) = ("a peer".into(), Cancellation::new());
    RecvComm::new(Parts { control, data, threads: 0, address, cancel, checksum, growth: None }, inline_up_to)
}
