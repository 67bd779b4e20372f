//! Cross-memory attach: reading and writing the memory of another process by system call.

use crate::{Error, Result};

/// Lets processes of this user attach, where the Yama security module asks for that (`ptrace_scope` 1).
pub(super) fn allow_peers() {
    // SAFETY: sets an attribute of this process. Kernels without Yama refuse with EINVAL, and need none of it.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    FromPeer,
    ToPeer,
}

/// Moves `len` bytes between `local` here and `remote` in the process `pid` of `peer`.
///
/// # Safety
/// The local bytes belong to the caller; nobody else uses the remote ones in a way that conflicts.
pub(super) unsafe fn move_bytes(way: Way, pid: i32, peer: &str, local: *mut u8, remote: u64, len: usize) -> Result<()> {
    let mut moved = 0;
    while moved < len {
        let here = libc::iovec { iov_base: local.wrapping_add(moved).cast(), iov_len: len - moved };
        let there = libc::iovec { iov_base: (remote as usize + moved) as *mut libc::c_void, iov_len: len - moved };
        // SAFETY: the caller vouches for the local bytes; the kernel checks the remote ones.
        let step = unsafe {
            match way {
                Way::FromPeer => libc::process_vm_readv(pid, &here, 1, &there, 1, 0),
                Way::ToPeer => libc::process_vm_writev(pid, &here, 1, &there, 1, 0),
            }
        };
        match usize::try_from(step) {
            Ok(step) if step > 0 => moved += step,
            _ => {
                let error = std::io::Error::last_os_error();
                if error.kind() == std::io::ErrorKind::Interrupted {
                    continue;
                }
                let gone = error.raw_os_error() == Some(libc::ESRCH);
                let doing = format!("copy {len} bytes of the memory of {peer} (process {pid})");
                return Err(if gone { Error::Closed { peer: peer.into() } } else { Error::system(doing, error) });
            }
        }
    }
    Ok(())
}
