//! How and in which order processes end. A process descriptor becomes readable at that moment, so that the first of several ends that
//! follow within milliseconds is known to be the first; how it ended can be read as long as its parent has not asked.

use super::stat::Stat;
use crate::Root;
use crate::counters::now_us;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// The end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    pub pid: u32,
    /// Microseconds since 1970.
    pub time_us: u64,
    /// As waitpid(2) tells it; none where it was reaped before it could be read.
    pub wait_status: Option<i32>,
}

/// The processes whose end is waited for.
#[derive(Debug, Default)]
pub struct Ends(BTreeMap<u32, OwnedFd>);

impl Ends {
    /// Waits for the end of these from now on, and of no others. Where the kernel has no such descriptors (before 5.3), their ends are
    /// seen as they are missing.
    pub fn await_all(&mut self, pids: impl IntoIterator<Item = u32>) {
        let mut before = std::mem::take(&mut self.0);
        for pid in pids {
            if let Some(descriptor) = before.remove(&pid).or_else(|| descriptor(pid)) {
                self.0.insert(pid, descriptor);
            }
        }
    }

    /// Waits, at most until one ends: those that have.
    pub fn wait(&mut self, root: &Root, time: Duration) -> Vec<Ended> {
        if self.0.is_empty() {
            std::thread::sleep(time);
            return Vec::new();
        }
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut waited: Vec<PollFd> =
                self.0.values().map(|descriptor| PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)).collect();
            let found = poll(&mut waited, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)).unwrap_or(0);
            let ready: Vec<bool> = waited.iter().map(|one| one.any().unwrap_or(false)).collect();
            if found > 0 {
                let pids: Vec<u32> =
                    self.0.keys().copied().zip(ready).filter(|(_, ready)| *ready).map(|(pid, _)| pid).collect();
                self.0.retain(|pid, _| !pids.contains(pid));
                return pids.into_iter().map(|pid| ended(root, pid)).collect();
            }
            if left.is_zero() {
                return Vec::new();
            }
        }
    }
}

fn ended(root: &Root, pid: u32) -> Ended {
    let zombie = Stat::read(root, pid).filter(|stat| stat.state == busbw_model::ProcessState::Zombie);
    Ended { pid, time_us: now_us(), wait_status: zombie.map(|stat| stat.wait_status) }
}

fn descriptor(pid: u32) -> Option<OwnedFd> {
    // SAFETY: a system call on numbers.
    let number = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
    let number = i32::try_from(number).ok().filter(|number| *number >= 0)?;
    // SAFETY: the kernel has just made this descriptor for this call, and nobody else knows it.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_first_end_is_the_first_and_tells_how() {
        let sleeper = |script: &str| Command::new("sh").args(["-c", script]).spawn().expect("a shell");
        let (mut first, mut second) = (sleeper("sleep 0.2; exit 7"), sleeper("exec sleep 1000"));
        let mut ends = Ends::default();
        ends.await_all([first.id(), second.id()]);
        let root = Root::live();
        let ended = ends.wait(&root, Duration::from_secs(60));
        assert_eq!(
            ended.iter().map(|end| (end.pid, end.wait_status)).collect::<Vec<_>>(),
            [(first.id(), Some(7 << 8))]
        );
        second.kill().expect("it runs");
        let ended = ends.wait(&root, Duration::from_secs(60));
        assert_eq!(ended.iter().map(|end| (end.pid, end.wait_status)).collect::<Vec<_>>(), [(second.id(), Some(9))]);
        let _ = (first.wait(), second.wait());
        assert!(ends.wait(&root, Duration::ZERO).is_empty());
    }
}
