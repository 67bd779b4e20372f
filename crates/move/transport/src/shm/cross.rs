//! Cross-memory attach: reading and writing the memory of another process by system call.

use crate::{Error, Result};
use std::sync::{Mutex, PoisonError};

/// Lets this host's ranks attach to this process as long as it is there, where the Yama security module asks for leave: with
/// `ptrace_scope` 1 (Linux, security/yama/yama_lsm.c). With 0 any process of this user may, with 2 and 3 none.
///
/// Leave can be given to one process and all that descend from it: to the parent, where it has started all ranks (mpirun's
/// daemon, slurmstepd, torchrun, busbw), and else to every process of this user.
pub(super) struct Attachable(libc::c_ulong);

/// To whom the groups of this process give leave: the kernel keeps one answer for all of them.
static GIVEN: Mutex<Vec<libc::c_ulong>> = Mutex::new(Vec::new());

impl Attachable {
    pub(super) fn by(peers: impl IntoIterator<Item = i32>) -> Option<Self> {
        let asked =
            std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").is_ok_and(|scope| scope.trim() == "1");
        asked.then(|| Self::to(common_parent(peers).unwrap_or(libc::PR_SET_PTRACER_ANY)))
    }

    fn to(whom: libc::c_ulong) -> Self {
        let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
        given.push(whom);
        declare(&given);
        Attachable(whom)
    }
}

impl Drop for Attachable {
    fn drop(&mut self) {
        let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = given.iter().position(|whom| *whom == self.0) {
            given.swap_remove(at);
        }
        declare(&given);
    }
}

fn declare(given: &[libc::c_ulong]) {
    // SAFETY: sets an attribute of this process. A parent that has ended is refused, and the ranks do without.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, widest(given), 0, 0, 0) };
}

/// Who all of those are among; 0 takes leave from everybody.
fn widest(given: &[libc::c_ulong]) -> libc::c_ulong {
    let Some((first, rest)) = given.split_first() else { return 0 };
    if rest.iter().all(|whom| whom == first) { *first } else { libc::PR_SET_PTRACER_ANY }
}

/// The parent of this process, if it is that of all `peers` as well.
fn common_parent(peers: impl IntoIterator<Item = i32>) -> Option<libc::c_ulong> {
    let parent = std::os::unix::process::parent_id();
    // A parent outside of the container has no number here.
    let all = parent != 0 && peers.into_iter().all(|peer| parent_of(peer) == Some(parent));
    all.then_some(parent.into())
}

fn parent_of(process: i32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn leave_is_given_to_no_more_than_the_groups_need_and_ends_with_the_last() {
        const ANY: libc::c_ulong = libc::PR_SET_PTRACER_ANY;
        let cases: [(&[libc::c_ulong], _); 5] = [(&[], 0), (&[7], 7), (&[7, 7], 7), (&[7, 8], ANY), (&[7, ANY], ANY)];
        for (given, whom) in cases {
            assert_eq!(widest(given), whom, "{given:?}");
        }
        // Other tests have groups meanwhile.
        let given = || GIVEN.lock().unwrap().iter().filter(|whom| [7, 8].contains(whom)).count();
        let groups = [Attachable::to(7), Attachable::to(8)];
        assert_eq!(given(), 2);
        drop(groups);
        assert_eq!(given(), 0);
    }

    #[test]
    fn ranks_of_one_parent_are_told_from_others() {
        let own = std::process::id() as i32;
        let parent = std::os::unix::process::parent_id();
        assert_eq!(common_parent([own, own]), Some(parent.into()));
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert_eq!(parent_of(child.id() as i32), Some(own as u32));
        assert_eq!(common_parent([own, child.id() as i32]), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
