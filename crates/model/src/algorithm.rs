//! NCCL's algorithms and protocols, by the names that `NCCL_ALGO` and `NCCL_PROTO` take.

named! {
    /// NCCL's algorithms, in the order of their numbers (`src/include/plugin/nccl_tuner.h`, 2.30).
    pub enum Algorithm {
        /// Double binary trees.
        Tree = "Tree",
        /// Rings.
        Ring = "Ring",
        /// Switches reduce (SHARP), every GPU of a host sends.
        CollNetDirect = "CollNetDirect",
        /// Switches reduce (SHARP), over a chain of the GPUs of a host.
        CollNetChain = "CollNetChain",
        /// NVSwitches reduce.
        Nvls = "NVLS",
        /// NVSwitches reduce within hosts, trees between them.
        NvlsTree = "NVLSTree",
        /// Parallel trees of all-gather and reduce-scatter, one GPU per host.
        Pat = "PAT",
        /// Sends and receives (alltoall, sendrecv, gather, scatter).
        PointToPoint = "P2P",
    }
    /// As `NCCL_ALGO` writes it.
    name
}

named! {
    /// NCCL's protocols, in the order of their numbers.
    pub enum Protocol {
        /// 8-byte stores with a flag each: lowest latency, half the bandwidth.
        Ll = "LL",
        /// 128-byte stores with a flag each: low latency, 15/16 of the bandwidth.
        Ll128 = "LL128",
        /// Large chunks with one flag each: full bandwidth.
        Simple = "Simple",
    }
    /// As `NCCL_PROTO` writes it.
    name
}

impl Algorithm {
    /// Reads a name in any case, with or without `_` and `-`: `Ring`, `nvls_tree`.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = plain(name);
        Self::ALL.into_iter().find(|algorithm| plain(algorithm.name()) == name)
    }
}

impl Protocol {
    /// Reads a name in any case: `LL128`, `simple`.
    pub fn from_name(name: &str) -> Option<Self> {
        let name = plain(name);
        Self::ALL.into_iter().find(|protocol| plain(protocol.name()) == name)
    }
}

fn plain(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '_' | '-')).collect::<String>().to_ascii_lowercase()
}
