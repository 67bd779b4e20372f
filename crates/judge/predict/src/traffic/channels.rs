//! How many channels NCCL makes, of how many streams each, and which NIC each GPU uses.

use crate::cluster::{Cluster, Generation, NetTransport};

/// Channels over each NIC. NCCL 2.27 doubles the rings that its search found when a ring runs at 25 GB/s and more, but
/// after Ampere only up to four of these below 50 GB/s (`ncclTopoDupChannels`, src/graph/search.cc), and collectives use twice
/// the channels of the search (`ncclTopoPostset`, src/graph/connect.cc).
pub fn channels_per_nic(cluster: &Cluster) -> u32 {
    let Some(nics) = &cluster.nics else { return 1 };
    let many = cluster.gpu.generation > Generation::Ampere && nics.count > 4;
    let found = if nics.rate.0 >= 25.0 && !many { 4 } else { 2 };
    let wanted = cluster.variable("NCCL_MIN_NCHANNELS").unwrap_or(0).min(MAX_CHANNELS).div_ceil(nics.count.max(1));
    found.max(wanted) as u32
}

/// `MAXCHANNELS` (src/include/device.h).
const MAX_CHANNELS: usize = 64;

/// Streams of packets that one connection of NCCL's is made of, each with an address of its own: queue pairs
/// (NCCL_IB_QPS_PER_CONNECTION) or sockets (NCCL_SOCKET_NTHREADS x NCCL_NSOCKS_PERTHREAD).
pub fn streams_per_connection(cluster: &Cluster) -> u32 {
    let set = |name| cluster.variable(name).unwrap_or(1).clamp(1, MAX_QUEUE_PAIRS);
    let streams = match cluster.nics.as_ref().map(|nics| nics.transport) {
        Some(NetTransport::InfiniBand | NetTransport::Roce) => set("NCCL_IB_QPS_PER_CONNECTION"),
        Some(NetTransport::Tcp) => (set("NCCL_SOCKET_NTHREADS") * set("NCCL_NSOCKS_PERTHREAD")).min(MAX_SOCKETS),
        _ => 1,
    };
    streams as u32
}

/// `NCCL_IB_MAX_QPS` (src/transport/net_ib.cc).
const MAX_QUEUE_PAIRS: usize = 128;
/// `MAX_SOCKETS` (src/transport/net_socket.cc): NCCL takes fewer sockets per thread where the product is more.
const MAX_SOCKETS: usize = 64;

/// The NIC near a GPU when both are spread evenly over the node's PCIe switches: several GPUs share a NIC, or a GPU has
/// several and takes them in turn by channel (`ncclTopoGetLocalNet`, src/graph/topo.cc).
pub fn nearest_nic(gpu: usize, channel: usize, gpus: usize, nics: usize) -> usize {
    if gpus == 0 || nics == 0 {
        return 0;
    }
    let first = (gpu % gpus) * nics / gpus;
    first + channel % (nics / gpus).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_as_many_streams_as_nccl_makes() {
        let text = |transport: &str, variables: &str| {
            format!(
                "nodes = 2\ngpus_per_node = 1\ngpu = \"T4\"\ntransport = \"{transport}\"\nalgo_env = \"{variables}\"\n"
            )
        };
        for (transport, variables, streams) in crate::cases::<(String, String, u32)>("streams") {
            let cluster = crate::cluster::parse(&text(&transport, &variables)).unwrap();
            assert_eq!(streams_per_connection(&cluster), streams, "{transport} {variables}");
        }
    }

    #[test]
    fn gpus_and_nics_are_divided_evenly() {
        let of = |gpus, nics| (0..gpus).map(|gpu| nearest_nic(gpu, 0, gpus, nics)).collect::<Vec<_>>();
        assert_eq!(of(8, 8), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(of(8, 4), [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(of(8, 1), [0; 8]);
        assert_eq!(of(4, 2), [0, 0, 1, 1]);
        assert_eq!(of(4, 6), [0, 1, 3, 4]);
        assert_eq!(of(2, 8), [0, 4]);
        assert_eq!((0..5).map(|channel| nearest_nic(1, channel, 2, 8)).collect::<Vec<_>>(), [4, 5, 6, 7, 4]);
        assert_eq!(nearest_nic(3, 1, 0, 0), 0);
    }
}
