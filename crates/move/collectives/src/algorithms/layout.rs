//! Which rank is on which host.

/// The host of every rank, and its number among the ranks of that host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    by_rank: Vec<HostRank>,
    sizes: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostRank {
    /// Index of the host, in the order in which hosts first appear among the ranks.
    pub host: usize,
    /// Number of the rank among those of its host, in the order of ranks.
    pub local: usize,
}

impl Layout {
    /// The layout of ranks whose hosts are `hosts[rank]`; equal items are the same host.
    pub fn new<T: PartialEq>(hosts: &[T]) -> Self {
        let mut seen: Vec<&T> = Vec::new();
        let mut sizes: Vec<usize> = Vec::new();
        let mut by_rank = Vec::with_capacity(hosts.len());
        for name in hosts {
            let host = seen.iter().position(|other| *other == name).unwrap_or_else(|| {
                seen.push(name);
                sizes.push(0);
                seen.len() - 1
            });
            by_rank.push(HostRank { host, local: sizes[host] });
            sizes[host] += 1;
        }
        Layout { by_rank, sizes }
    }

    pub fn ranks(&self) -> usize {
        self.by_rank.len()
    }

    pub fn hosts(&self) -> usize {
        self.sizes.len()
    }

    /// The host of `rank`, and its number there.
    pub fn host_rank(&self, rank: usize) -> HostRank {
        self.by_rank[rank]
    }

    /// How many ranks each host has, where that is the same number everywhere.
    pub fn ranks_per_host(&self) -> Option<usize> {
        self.sizes.first().copied().filter(|first| self.sizes.iter().all(|size| size == first))
    }

    /// Whether ranks are numbered host by host: 0 to k - 1 on the first host, and so on.
    pub fn is_by_host(&self) -> bool {
        self.by_rank.is_sorted_by_key(|one| one.host)
    }

    /// Whether there are several hosts with several ranks each, equally many.
    pub fn has_two_levels(&self) -> bool {
        self.hosts() > 1 && self.ranks_per_host().is_some_and(|ranks| ranks > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_hosts_and_local_ranks_apart() {
        let cases = [
            (vec!["a"], 1, Some(1), true, false),
            (vec!["a", "b"], 2, Some(1), true, false),
            (vec!["a", "a", "b", "b"], 2, Some(2), true, true),
            (vec!["a", "b", "a", "b"], 2, Some(2), false, true),
            (vec!["a", "a", "b"], 2, None, true, false),
            (vec!["a", "a"], 1, Some(2), true, false),
        ];
        for (hosts, count, per_host, by_host, two_levels) in cases {
            let layout = Layout::new(&hosts);
            assert_eq!(
                (layout.hosts(), layout.ranks_per_host(), layout.is_by_host(), layout.has_two_levels()),
                (count, per_host, by_host, two_levels),
                "{hosts:?}"
            );
        }
        assert_eq!(Layout::new(&["a", "b", "a"]).host_rank(2), HostRank { host: 0, local: 1 });
    }
}
