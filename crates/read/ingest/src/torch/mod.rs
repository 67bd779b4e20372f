//! What PyTorch prints about collectives: its NCCL watchdog's lines, its flight recorder's dumps, and both put together.

mod fingerprint;
mod flight_recorder;
mod fr_trace;
mod groups;
mod pickle;
mod tree;
mod watchdog;
mod ways;

pub(crate) use flight_recorder::{Recording, cut_off, rank_of_path, read_json, read_pickle};
pub(crate) use fr_trace::TraceReader;
pub(crate) use groups::ProcessGroups;
pub(crate) use pickle::looks_like as looks_like_pickle;
pub use watchdog::WatchdogReader;
pub(crate) use ways::Ways;

/// The ranks of a list, however it is written: `3, 5}`, ` 1, 2`.
fn ranks_in(list: &str) -> Vec<u32> {
    list.split(|c: char| !c.is_ascii_digit()).filter_map(|rank| rank.parse().ok()).collect()
}

/// The operation's name as the watchdog prints it (`opTypeToString` in `torch/csrc/distributed/c10d/Work.cpp`), from the
/// flight recorder's name: `nccl:all_reduce` is `ALLREDUCE`, `nccl:_all_gather_base` is `_ALLGATHER_BASE`.
fn operation(name: &str) -> String {
    let bare = name.split_once(':').map_or(name, |(_, bare)| bare);
    let (verb, peers) = bare.split_once(' ').map_or((bare, ""), |(verb, peers)| (verb, peers));
    let joined = verb.to_ascii_uppercase().replace("ALL_REDUCE", "ALLREDUCE").replace("ALL_GATHER", "ALLGATHER");
    let joined = joined.replace("ALL_TO_ALL_SINGLE", "ALLTOALL_BASE").replace("ALL_TO_ALL", "ALLTOALL");
    if peers.is_empty() { joined } else { format!("{joined} {peers}") }
}

#[cfg(test)]
mod tests {
    use super::operation;

    #[test]
    fn recorder_and_watchdog_share_names() {
        let cases = [
            ("nccl:all_reduce", "ALLREDUCE"),
            ("nccl:_all_gather_base", "_ALLGATHER_BASE"),
            ("nccl:_reduce_scatter_base", "_REDUCE_SCATTER_BASE"),
            ("nccl:all_to_all_single", "ALLTOALL_BASE"),
            ("nccl:send 0->1", "SEND 0->1"),
            ("ALLREDUCE", "ALLREDUCE"),
        ];
        for (name, operation_) in cases {
            assert_eq!(operation(name), operation_, "{name}");
        }
    }
}
