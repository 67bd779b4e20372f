//! Which host this is, and which of its cores this rank may use.

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use std::fmt;

/// A rank's host, as it matters to those that connect to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The name that people know it by.
    pub name: String,
    /// Equal for ranks that share memory.
    pub id: u64,
    /// Equal for ranks on one kernel, whose cores they share: its boot.
    pub machine: String,
    /// The cores that the rank may run on.
    pub cores: CoreSet,
}

/// A set of cores by their number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CoreSet(Vec<u64>);

impl Host {
    /// The host of the calling thread, known as `name` and distinguished from others by `id`.
    pub fn here(name: &str, id: u64) -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Host { name: name.to_owned(), id, machine: boot.trim().to_owned(), cores: CoreSet::allowed() }
    }
}

impl CoreSet {
    /// The cores that the calling thread may run on.
    pub fn allowed() -> Self {
        let mut set = CoreSet::default();
        if let Ok(allowed) = sched_getaffinity(Pid::from_raw(0)) {
            (0..CpuSet::count())
                .filter(|&core| allowed.is_set(core).unwrap_or(false))
                .for_each(|core| set.insert(core));
        }
        set
    }

    /// Adds a core by its number in the kernel, from 0.
    pub fn insert(&mut self, core: usize) {
        if self.0.len() <= core / 64 {
            self.0.resize(core / 64 + 1, 0);
        }
        self.0[core / 64] |= 1 << (core % 64);
    }

    /// Number of cores in the set.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether each core is also one of `other`'s.
    pub fn is_subset(&self, other: &CoreSet) -> bool {
        self.0.iter().enumerate().all(|(i, word)| word & !other.0.get(i).copied().unwrap_or(0) == 0)
    }

    /// Reads what `Display` writes; anything else gives an empty set.
    pub fn parse(text: &str) -> Self {
        let words = text.split(',').rev().map(|word| u64::from_str_radix(word, 16)).collect::<Result<Vec<_>, _>>();
        CoreSet(words.unwrap_or_default())
    }
}

impl fmt::Display for CoreSet {
    /// As Linux writes masks, in words of 64 cores: `3`, `1,8000000000000000`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.0.iter().rev().map(|word| format!("{word:x}")).collect();
        f.write_str(&words.join(","))
    }
}

/// Cores per rank that are left over for helper threads, and whether each rank has a core of its own at all, for ranks that
/// may run on these cores of one machine. `None`: ranks share cores, or nothing is known of them.
///
/// ```
/// use busbw_transport::host::{CoreSet, spare_cores};
/// let all = CoreSet::parse("f");
/// assert_eq!(spare_cores(&[all.clone(), all.clone()]), Some(1));      // two ranks on four cores
/// let (first, second) = (CoreSet::parse("1"), CoreSet::parse("2"));
/// assert_eq!(spare_cores(&[first.clone(), second]), Some(0));         // bound to a core each
/// assert_eq!(spare_cores(&[first.clone(), first]), None);             // bound to the same core
/// assert_eq!(spare_cores(&vec![all; 5]), None);                       // five ranks on four cores
/// ```
pub fn spare_cores(ranks: &[CoreSet]) -> Option<usize> {
    ranks
        .iter()
        .map(|cores| {
            let inside = ranks.iter().filter(|other| other.is_subset(cores)).count();
            (cores.len() / inside.max(1)).checked_sub(1)
        })
        .min()
        .unwrap_or(Some(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_sets_read_their_own_text_back() {
        let mut set = CoreSet::default();
        [0, 5, 63, 64, 200].into_iter().for_each(|core| set.insert(core));
        assert_eq!(set.len(), 5);
        assert_eq!(CoreSet::parse(&set.to_string()), set);
        assert_eq!(CoreSet::parse("not a mask"), CoreSet::default());
    }

    #[test]
    fn this_host_has_a_core() {
        assert!(!Host::here("here", 7).cores.is_empty());
    }
}
