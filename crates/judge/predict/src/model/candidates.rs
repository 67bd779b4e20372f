//! Which algorithms and protocols NCCL would consider.

use super::machine::{Inside, Machine};
use crate::cluster::{Cluster, Generation, NetTransport};
use crate::prediction::{Algorithm, Protocol};
use busbw_model::Collective;

/// An algorithm with a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub algorithm: Algorithm,
    pub protocol: Protocol,
}

/// What NCCL would consider for a collective: never empty. Settings that leave nothing are ignored, as NCCL falls back too.
pub(super) fn of(machine: &Machine, cluster: &Cluster, collective: Collective) -> Vec<Candidate> {
    let able: Vec<Candidate> = algorithms(machine, collective)
        .into_iter()
        .flat_map(|algorithm| {
            protocols(machine, algorithm).into_iter().map(move |protocol| Candidate { algorithm, protocol })
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

fn algorithms(machine: &Machine, collective: Collective) -> Vec<Algorithm> {
    let one_domain = machine.domains == 1;
    // Past a rack, measurements follow the ring (table 031): NVLS is built within a domain of at most 32 heads.
    let nvls = machine.nvls && !machine.is_racks();
    let in_network = machine.cluster.environment.get("NCCL_COLLNET_ENABLE").is_some_and(|value| value == "1");
    match collective {
        Collective::AllReduce => {
            let mut all = vec![Algorithm::Ring];
            all.extend((!machine.is_racks()).then_some(Algorithm::Tree));
            all.extend((nvls && one_domain).then_some(Algorithm::Nvls));
            all.extend((nvls && !one_domain).then_some(Algorithm::NvlsTree));
            all.extend((in_network && !one_domain).then_some(Algorithm::CollNetDirect));
            all
        }
        Collective::AllGather | Collective::ReduceScatter => {
            let mut all = vec![Algorithm::Ring];
            let pat =
                machine.domain_gpus == 1 && machine.domains > 1 && machine.cluster.nccl.is_some_and(|v| v >= (2, 23));
            all.extend(pat.then_some(Algorithm::Pat));
            all
        }
        Collective::Broadcast | Collective::Reduce => vec![Algorithm::Ring],
        _ => vec![Algorithm::PointToPoint],
    }
}

fn protocols(machine: &Machine, algorithm: Algorithm) -> Vec<Protocol> {
    match algorithm {
        Algorithm::Ring | Algorithm::Tree if plugin_forces_simple(machine) => vec![Protocol::Simple],
        Algorithm::Ring | Algorithm::Tree if ll128(machine) => vec![Protocol::Ll, Protocol::Ll128, Protocol::Simple],
        Algorithm::Ring | Algorithm::Tree | Algorithm::PointToPoint => vec![Protocol::Ll, Protocol::Simple],
        _ => vec![Protocol::Simple],
    }
}

/// LL128 needs stores of 128 bytes to arrive whole: NVLink inside, and NICs that write to GPUs
/// (NCCL 2.30.7, src/graph/tuning.cc, `ncclTopoTuneModel`).
fn ll128(machine: &Machine) -> bool {
    let whole_stores = |transport| !matches!(transport, NetTransport::Tcp | NetTransport::Tcpx);
    machine.inside.is_nvlink()
        && machine.cluster.gpu.generation >= Generation::Volta
        && machine.network.as_ref().is_none_or(|network| network.gpu_direct && whole_stores(network.transport))
}

/// aws-ofi-nccl sets NCCL_PROTO=simple where EFA cannot keep the order of writes: everything before p5.
fn plugin_forces_simple(machine: &Machine) -> bool {
    let efa = machine.network.as_ref().is_some_and(|network| network.transport == NetTransport::Efa);
    efa && machine.cluster.gpu.generation < Generation::Hopper && machine.inside != Inside::HostMemory
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
        let cases = [
            ("Ring", "Ring", true),
            ("Ring", "Tree", false),
            ("ring,tree", "Tree", true),
            ("^LL128", "LL128", false),
            ("^LL128", "Simple", true),
            ("ring;allreduce:tree,nvlstree", "NVLSTree", true),
            ("ring;allreduce:tree", "Ring", false),
            ("ring;allgather:pat", "Ring", true),
            ("", "Ring", true),
        ];
        for (value, name, admitted) in cases {
            let selection = Selection::parse(value, Collective::AllReduce);
            assert_eq!(selection.admits(name), admitted, "{value}: {name}");
        }
    }
}
