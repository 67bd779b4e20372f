//! Which algorithms and protocols NCCL would consider.

use super::figures::{Figures, Inside};
use crate::cluster::{Cluster, Generation, NetTransport};
use busbw_model::{Algorithm, Collective, Protocol};

/// An algorithm with a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub algorithm: Algorithm,
    pub protocol: Protocol,
}

/// What NCCL would consider for a collective: never empty. Settings that leave nothing are ignored, as NCCL falls back too.
pub(super) fn of(figures: &Figures, cluster: &Cluster, collective: Collective) -> Vec<Candidate> {
    let able: Vec<Candidate> = algorithms(figures, collective)
        .into_iter()
        .flat_map(|algorithm| {
            protocols(figures, algorithm).into_iter().map(move |protocol| Candidate { algorithm, protocol })
        })
        .collect();
    let wanted = |variable: &str| cluster.environment.get(variable).map(|value| Selection::parse(value, collective));
    let (algo, proto) = (wanted("NCCL_ALGO"), wanted("NCCL_PROTO"));
    let allowed = |c: &Candidate| {
        algo.as_ref().is_none_or(|s| s.admits(c.algorithm.name()))
            && proto.as_ref().is_none_or(|s| s.admits(c.protocol.name()))
    };
    let chosen: Vec<Candidate> = able.iter().copied().filter(allowed).collect();
    if chosen.is_empty() { able } else { chosen }
}

fn algorithms(figures: &Figures, collective: Collective) -> Vec<Algorithm> {
    let one_domain = figures.domains == 1;
    // Two racks are published at the speed of NVLS within each (Oracle's 128 GB200: 800 GB/s); twenty follow the ring (table 031).
    let nvls = figures.nvls && (!figures.is_racks() || figures.domains == 2);
    let in_network = figures.cluster.environment.get("NCCL_COLLNET_ENABLE").is_some_and(|value| value == "1");
    match collective {
        Collective::AllReduce => {
            let mut all = vec![Algorithm::Ring];
            all.extend((!figures.is_racks()).then_some(Algorithm::Tree));
            all.extend((nvls && one_domain).then_some(Algorithm::Nvls));
            all.extend((nvls && !one_domain).then_some(Algorithm::NvlsTree));
            all.extend((in_network && !one_domain).then_some(Algorithm::CollNetDirect));
            all
        }
        Collective::AllGather | Collective::ReduceScatter => {
            let mut all = vec![Algorithm::Ring];
            let pat =
                figures.domain_gpus == 1 && figures.domains > 1 && figures.cluster.nccl.is_some_and(|v| v >= (2, 23));
            all.extend(pat.then_some(Algorithm::Pat));
            all
        }
        Collective::Broadcast | Collective::Reduce => vec![Algorithm::Ring],
        _ => vec![Algorithm::PointToPoint],
    }
}

fn protocols(figures: &Figures, algorithm: Algorithm) -> Vec<Protocol> {
    match algorithm {
        Algorithm::Ring | Algorithm::Tree if plugin_forces_simple(figures) => vec![Protocol::Simple],
        Algorithm::Ring | Algorithm::Tree if ll128(figures, algorithm) => {
            vec![Protocol::Ll, Protocol::Ll128, Protocol::Simple]
        }
        Algorithm::Ring | Algorithm::Tree | Algorithm::PointToPoint => vec![Protocol::Ll, Protocol::Simple],
        _ => vec![Protocol::Simple],
    }
}

/// LL128 needs stores of 128 bytes to arrive whole: NVLink inside, and NICs that write to GPUs
/// (NCCL 2.30.7, src/graph/tuning.cc, `ncclTopoTuneModel`).
fn ll128(figures: &Figures, algorithm: Algorithm) -> bool {
    if let Some(found) = figures.graphs {
        let graph = if algorithm == Algorithm::Ring { found.ring } else { found.tree.unwrap_or(found.ring) };
        return graph.keeps_order && figures.cluster.gpu.generation >= Generation::Volta;
    }
    let whole_stores = |transport| !matches!(transport, NetTransport::Tcp | NetTransport::Tcpx);
    figures.inside.is_nvlink()
        && figures.cluster.gpu.generation >= Generation::Volta
        && figures.network.as_ref().is_none_or(|network| network.gpu_direct && whole_stores(network.transport))
}

/// aws-ofi-nccl sets NCCL_PROTO=simple where EFA cannot keep the order of writes: everything before p5.
fn plugin_forces_simple(figures: &Figures) -> bool {
    let efa = figures.network.as_ref().is_some_and(|network| network.transport == NetTransport::Efa);
    efa && figures.cluster.gpu.generation < Generation::Hopper && figures.inside != Inside::HostMemory
}

/// What NCCL_ALGO or NCCL_PROTO admits for one collective: `Ring`, `^LL128`, `ring,tree`, and since 2.24
/// `ring;allreduce:tree,nvlstree`.
struct Selection {
    names: Vec<String>,
    without: bool,
}

impl Selection {
    fn parse(value: &str, collective: Collective) -> Self {
        let mut list = "";
        for part in value.split(';') {
            match part.split_once(':') {
                None => list = part,
                Some((name, own)) if Collective::from_name(name) == Some(collective) => {
                    list = own;
                    break;
                }
                Some(_) => {}
            }
        }
        let list = list.trim();
        let (without, list) = list.strip_prefix('^').map_or((false, list), |rest| (true, rest));
        let names =
            list.split(',').map(|name| name.trim().to_ascii_lowercase()).filter(|name| !name.is_empty()).collect();
        Selection { names, without }
    }

    fn admits(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        self.names.is_empty() || name == "p2p" || self.names.contains(&name) != self.without
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_nccl_reads_them() {
        for (value, name, admitted) in crate::cases::<(String, String, bool)>("selections") {
            let selection = Selection::parse(&value, Collective::AllReduce);
            assert_eq!(selection.admits(&name), admitted, "{value}: {name}");
        }
    }
}
