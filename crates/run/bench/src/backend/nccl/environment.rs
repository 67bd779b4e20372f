//! What NCCL finds in its environment: what flags stand for, and what lets ranks share a GPU.

use crate::Flags;

/// A variable and its value.
pub type Setting = (&'static str, String);

/// Where a process stands among those of its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement<'a> {
    pub host: &'a str,
    /// The number of this process's first rank among the ranks of its host.
    pub first_rank: usize,
    pub ranks: usize,
    pub gpus: usize,
}

impl Placement<'_> {
    /// Whether ranks of one process share a GPU.
    pub fn shares_within(&self) -> bool {
        self.ranks > self.gpus
    }
}

/// The variables to set, where the user has not set them: what `variable` gives is kept.
///
/// Ranks share a GPU in one of two ways. Those of different processes call themselves different hosts, by which NCCL takes
/// the network between them (`getHostHash` of `src/misc/utils.cc`); every turn through the host's GPUs is one such host.
/// Those of one process need `NCCL_MULTI_RANK_GPU_ENABLE`, and the ways within a host switched off.
pub fn settings(flags: &Flags, placement: Placement<'_>, variable: &dyn Fn(&str) -> Option<String>) -> Vec<Setting> {
    let mut settings = Vec::new();
    let given = [
        ("NCCL_ALGO", flags.algo.clone()),
        ("NCCL_SOCKET_NTHREADS", flags.threads.map(|n| n.to_string())),
        ("NCCL_NSOCKS_PERTHREAD", flags.sockets.map(|n| n.to_string())),
    ];
    settings.extend(given.into_iter().filter_map(|(name, value)| value.map(|value| (name, value))));
    if !flags.share_gpus {
        return settings;
    }
    let mut default = |name: &'static str, value: String| {
        if variable(name).is_none() {
            settings.push((name, value));
        }
    };
    if placement.shares_within() {
        for name in ["NCCL_MULTI_RANK_GPU_ENABLE", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"] {
            default(name, "1".into());
        }
    }
    let turn = placement.first_rank / placement.gpus.max(1);
    default("NCCL_HOSTID", format!("{}-busbw-{turn}", placement.host));
    // Where NVLink reaches beyond a host, it would be taken instead of the network.
    default("NCCL_MNNVL_ENABLE", "0".into());
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        flags: Flags,
    }

    fn shown(flags: &str, placement: (usize, usize, usize), set: &[&str]) -> String {
        let words = std::iter::once("busbw").chain(flags.split_whitespace());
        let (first_rank, ranks, gpus) = placement;
        let placement = Placement { host: "h", first_rank, ranks, gpus };
        let variable = |name: &str| set.contains(&name).then(String::new);
        let settings = settings(&Program::parse_from(words).flags, placement, &variable);
        settings.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn flags_and_shared_gpus_become_variables() {
        for (flags, placement, set, expected) in [
            ("", (0, 1, 1), &[][..], ""),
            (
                "--algo RING --threads 4 --sockets 2",
                (0, 1, 1),
                &[],
                "NCCL_ALGO=RING NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=2",
            ),
            ("--share-gpus", (3, 1, 1), &[], "NCCL_HOSTID=h-busbw-3 NCCL_MNNVL_ENABLE=0"),
            ("--share-gpus", (9, 1, 8), &["NCCL_MNNVL_ENABLE"], "NCCL_HOSTID=h-busbw-1"),
            ("--share-gpus", (3, 1, 1), &["NCCL_HOSTID", "NCCL_MNNVL_ENABLE"], ""),
            (
                "--share-gpus",
                (0, 2, 1),
                &["NCCL_SHM_DISABLE"],
                "NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_P2P_DISABLE=1 NCCL_HOSTID=h-busbw-0 NCCL_MNNVL_ENABLE=0",
            ),
        ] {
            assert_eq!(shown(flags, placement, set), expected, "{flags} {placement:?}");
        }
    }
}
