//! Keeps the ranks of a host on cores of their own without binding them.
//!
//! Ranks that have just woken each other up are often put on the same core, and there wait for one another until the
//! scheduler finds out, which takes longer than many an operation. So each rank prefers one of the cores that it may
//! use, and moves there by binding itself for a moment.

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

/// The core that a rank's thread prefers.
pub(super) struct PreferredCore {
    core: usize,
    allowed: CpuSet,
}

impl PreferredCore {
    /// That of local rank `rank`, among the cores that its thread may use now; `None` where there is no choice.
    pub(super) fn of(rank: usize) -> Option<PreferredCore> {
        let allowed = sched_getaffinity(Pid::from_raw(0)).ok()?;
        let cores: Vec<usize> = (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap_or(false)).collect();
        (cores.len() > 1).then(|| PreferredCore { core: cores[rank % cores.len()], allowed })
    }

    /// Moves the calling thread there, from where it may move on.
    pub(super) fn move_there(&self) {
        let mut only = CpuSet::new();
        // The kernel may refuse each of these; then the thread stays on its core.
        if only.set(self.core).is_ok() && sched_setaffinity(Pid::from_raw(0), &only).is_ok() {
            let _ = sched_setaffinity(Pid::from_raw(0), &self.allowed);
        }
    }

    /// Moves there if the calling thread and `peer_core` are the same core, and that is another.
    pub(super) fn part_from(&self, own_core: u32, peer_core: u32) {
        if own_core == peer_core && own_core as usize != self.core {
            self.move_there();
        }
    }
}

/// The core that the calling thread runs on, and no core where the system does not tell.
pub(super) fn current_core() -> u32 {
    sched_getcpu().ok().and_then(|core| u32::try_from(core).ok()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_there_leaves_the_choice_of_cores_as_it_was() {
        let cores = || sched_getaffinity(Pid::from_raw(0)).unwrap();
        let before = cores();
        for rank in 0..3 {
            if let Some(preferred) = PreferredCore::of(rank) {
                preferred.move_there();
            }
            assert_eq!(cores(), before);
        }
    }
}
