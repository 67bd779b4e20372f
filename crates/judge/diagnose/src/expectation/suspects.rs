//! One thing wrong at a time: how a cluster would do with it, and without it.

use busbw_model::{Bytes, Code, Collective, Communicator, GBps, GdrUse, Micros, TransportKind};
use busbw_predict::cluster::{GpuLinks, NetTransport};
use busbw_predict::{Cluster, predict};
use std::collections::HashSet;

/// A trouble that can be put into a description, and taken out.
pub(super) struct PlantedFault {
    pub code: Code,
    /// `kernel sockets instead of RDMA`.
    pub words: &'static str,
    pub remedy: &'static str,
    /// Puts it in; whether that changes anything.
    harm: fn(&mut Cluster) -> bool,
    /// Takes it out.
    cure: fn(&mut Cluster),
}

const TROUBLES: &[PlantedFault] = &[
    PlantedFault {
        code: Code::NetSocketFallback,
        words: "kernel sockets instead of RDMA",
        remedy: "See which network NCCL uses: `NCCL_DEBUG=INFO … 2>&1 | grep 'NET/'`; NET/Socket means that it found no RDMA device",
        harm: |cluster| {
            with_nics(cluster, |nics| std::mem::replace(&mut nics.transport, NetTransport::Tcp) != NetTransport::Tcp)
        },
        cure: |cluster| {
            with_nics(cluster, |nics| {
                if nics.transport == NetTransport::Tcp {
                    nics.transport = NetTransport::Roce;
                    nics.flow_limit = None;
                }
                nics.gpu_direct = true;
                true
            });
        },
    },
    PlantedFault {
        code: Code::GdrDisabled,
        words: "GPUDirect RDMA off",
        remedy: "See whether NCCL uses it: `NCCL_DEBUG=INFO … 2>&1 | grep -c GDRDMA`; load nvidia-peermem or use DMA-BUF",
        harm: |cluster| {
            with_nics(cluster, |nics| {
                std::mem::replace(&mut nics.gpu_direct, false) && nics.transport != NetTransport::Tcp
            })
        },
        cure: |cluster| {
            with_nics(cluster, |nics| {
                nics.gpu_direct = nics.transport != NetTransport::Tcp;
                true
            });
        },
    },
    PlantedFault {
        code: Code::NicUnused,
        words: "one NIC of each node in use",
        remedy: "See which NICs NCCL uses: `NCCL_DEBUG=INFO … 2>&1 | grep 'NET/IB : Using'`; NCCL_IB_HCA may leave some out",
        harm: |cluster| with_nics(cluster, |nics| std::mem::replace(&mut nics.count, 1) > 1),
        cure: |_| {},
    },
    PlantedFault {
        code: Code::NicUnused,
        words: "half of the NICs in use",
        remedy: "See which NICs NCCL uses: `NCCL_DEBUG=INFO … 2>&1 | grep 'NET/IB : Using'`; NCCL_IB_HCA may leave some out",
        harm: |cluster| {
            with_nics(cluster, |nics| {
                nics.count = nics.count.div_ceil(2);
                nics.count > 1
            })
        },
        cure: |_| {},
    },
    PlantedFault {
        code: Code::P2pDisabled,
        words: "GPUs that reach each other through host memory only",
        remedy: "See how GPUs connect: `NCCL_DEBUG=INFO … 2>&1 | grep -E 'via (SHM|P2P)'`, and `nvidia-smi topo -p2p r`",
        // Between hosts as little is rather sockets, and the connections tell which.
        harm: |cluster| {
            let per_gpu = GBps(cluster.links.per_gpu().0.min(PCIE_5));
            let had = !matches!(cluster.links, GpuLinks::Pcie { peer_to_peer: false, .. } | GpuLinks::Single { .. });
            cluster.links = GpuLinks::Pcie { per_gpu, peer_to_peer: false };
            had && cluster.domains() == 1
        },
        cure: |cluster| {
            if let GpuLinks::Pcie { peer_to_peer, .. } = &mut cluster.links {
                *peer_to_peer = true;
            }
        },
    },
    PlantedFault {
        code: Code::NvlinkFabric,
        words: "NVLS off",
        remedy: "See whether NCCL uses NVLS: `NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=NVLS,TUNING …`; it needs a healthy fabric manager",
        harm: |cluster| match &mut cluster.links {
            GpuLinks::NvSwitch { nvls, .. } => std::mem::replace(nvls, false),
            _ => false,
        },
        cure: |_| {},
    },
];

/// PCIe 5.0 x16 as NCCL counts it, GB/s.
const PCIE_5: f64 = 48.0;

/// Findings whose cure is the cluster as it stands: nothing in the description is wrong, the run did not use it.
const AS_IT_STANDS: &[Code] = &[
    Code::FabricCongestion,
    Code::NicFar,
    Code::NicUnused,
    Code::NicRate,
    Code::PcieDegraded,
    Code::PcieAcs,
    Code::NvlinkFabric,
    Code::ChannelsTooFew,
    Code::EnvOverride,
    Code::StragglerNode,
    Code::TopoVirtualized,
];

fn with_nics(cluster: &mut Cluster, change: impl FnOnce(&mut busbw_predict::cluster::Nics) -> bool) -> bool {
    cluster.nics.as_mut().is_some_and(change)
}

/// A trouble that gives the measured figure.
pub(super) struct Suspect {
    pub trouble: &'static PlantedFault,
    /// What would be reached with it.
    pub busbw: GBps,
}

impl Suspect {
    /// What would be seen with it, beside what was.
    pub fn likeness(&self, measured: GBps) -> String {
        let Suspect { trouble: PlantedFault { words, .. }, busbw } = self;
        if busbw.0 < ALIKE * measured.0 {
            format!(" With {words}, the prediction is {busbw}: close to the measurement.")
        } else {
            format!(
                " With {words}, the prediction is at most {busbw}, with the latency of small messages that was measured."
            )
        }
    }
}

/// How far, as a factor, a suspect's figure may be from the measured one.
const ALIKE: f64 = 1.25;

/// What a table shows at its ends.
pub(super) struct Ends {
    pub plateau: GBps,
    pub largest: Bytes,
    /// The smallest size and its time, where that is latency.
    pub latency: Option<(Bytes, Micros)>,
}

/// The trouble with which the measured figures would be predicted, if there is one.
pub(super) fn most_alike(
    cluster: &Cluster,
    collective: Collective,
    ends: &Ends,
    comm: Option<&Communicator>,
) -> Option<Suspect> {
    let (measured, size) = (ends.plateau, ends.largest);
    let suspect = |trouble: &'static PlantedFault| {
        let mut harmed = cluster.clone();
        if !(trouble.harm)(&mut harmed) || comm.is_some_and(|comm| refuted(trouble.code, &harmed, comm)) {
            return None;
        }
        let busbw = predict(&harmed, collective, &[size]).rows.first()?.busbw;
        Some(Suspect { trouble, busbw })
    };
    let distance = |suspect: &Suspect| (suspect.busbw.0 / measured.0).ln().abs();
    let suspects = TROUBLES.iter().filter_map(suspect);
    let alike = suspects.filter(|s| distance(s) < ALIKE.ln()).min_by(|a, b| distance(a).total_cmp(&distance(b)));
    sockets(cluster, collective, ends).or(alike)
}

/// Whether the connections that NCCL printed show that it was not so.
fn refuted(code: Code, harmed: &Cluster, comm: &Communicator) -> bool {
    let nics: HashSet<u32> = comm.transports.iter().filter_map(|transport| transport.nic).collect();
    let any = |is: fn(&TransportKind) -> bool| comm.transports.iter().any(|transport| is(&transport.kind));
    match code {
        Code::GdrDisabled => comm.gdr() == Some(GdrUse::All),
        Code::NicUnused => harmed.nics.as_ref().is_some_and(|left| nics.len() > left.count),
        Code::P2pDisabled => {
            any(|kind| matches!(kind, TransportKind::P2p(_))) && !any(|kind| *kind == TransportKind::Shm)
        }
        _ => false,
    }
}

/// Sockets carry little and late, how little depends on the host: their latency shows them.
fn sockets(cluster: &Cluster, collective: Collective, ends: &Ends) -> Option<Suspect> {
    let (size, latency) = ends.latency?;
    let trouble = TROUBLES.first()?;
    let mut harmed = cluster.clone();
    if !(trouble.harm)(&mut harmed) || cluster.domains() < 2 {
        return None;
    }
    let late = |cluster: &Cluster| {
        let rows = predict(cluster, collective, &[size]).rows;
        rows.first().map_or(f64::INFINITY, |row| (row.time.0 / latency.0).ln().abs())
    };
    let busbw = predict(&harmed, collective, &[ends.largest]).rows.first()?.busbw;
    let alike = ends.plateau.0 < ALIKE * busbw.0 && late(&harmed) < late(cluster);
    alike.then_some(Suspect { trouble, busbw })
}

/// Whether a code is of what costs speed.
pub(crate) fn costs_speed(code: Code) -> bool {
    matches!(code, Code::RoceConfig | Code::SocketTuning)
        || AS_IT_STANDS.contains(&code)
        || TROUBLES.iter().any(|trouble| trouble.code == code)
}

/// Whether what a code warns of shows in the speed if it costs anything: ranks come up by another plugin or interface, too.
pub(crate) fn shows_in_speed(code: Code) -> bool {
    costs_speed(code) || matches!(code, Code::NetPlugin | Code::NetWrongInterface)
}

/// Whether the trouble of a finding would change what is predicted: what a cluster has already explains no shortfall.
pub(super) fn is_new(cluster: &Cluster, code: Code) -> bool {
    let trouble = TROUBLES.iter().find(|trouble| trouble.code == code && !AS_IT_STANDS.contains(&code));
    trouble.is_none_or(|trouble| {
        let mut harmed = cluster.clone();
        (trouble.harm)(&mut harmed);
        harmed != *cluster
    })
}

/// The cluster without the trouble of a finding; `None` for findings that are not about speed.
pub(super) fn cured(cluster: &Cluster, code: Code) -> Option<Cluster> {
    let mut cured = cluster.clone();
    match TROUBLES.iter().find(|trouble| trouble.code == code) {
        Some(trouble) => (trouble.cure)(&mut cured),
        None if AS_IT_STANDS.contains(&code) => {}
        None => return None,
    }
    Some(cured)
}
