//! From what was read to a cluster: logs, tables, topologies, as far as these show.

mod gpu;
mod host;
mod matrix;
mod network;
mod size;
mod xml;

use super::Gpu;
use super::complete::complete;
use super::facts::{CpuFacts, Facts, LinkFacts};
use super::hardware::MachineProduct;
use super::{Cluster, Graphs, environment};
use busbw_model::{Run, TransportKind};
pub(super) use host::HostClues;
pub(super) use size::Size;
use std::collections::BTreeMap;

/// What the inputs leave open, so that no cluster can be derived from them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Underivable {
    /// Neither names nor links show the GPUs.
    #[error(
        "the inputs do not say which GPUs ran; \
         add nccl-tests' output with its device list or an NCCL topology XML, or describe the cluster in a file"
    )]
    Gpu,
    /// Neither ranks nor devices are listed.
    #[error(
        "the inputs do not say how many nodes and GPUs took part; \
         add nccl-tests' output with its device list or an NCCL log of NCCL_DEBUG=INFO, or describe the cluster in a file"
    )]
    Size,
}

/// Derives the cluster that a run was on. Whatever the inputs do not say is assumed, with a sentence each in
/// [`Cluster::assumptions`]; the fabric between the NICs is never in them.
///
/// # Errors
/// [`Underivable`] when they do not even say which GPUs ran, or how many.
pub fn derive(run: &Run) -> Result<Cluster, Underivable> {
    let mut notes = Vec::new();
    let host = host(run);
    let size = size::read(run, &host, &mut notes)?;
    let (gpu, machine) = gpu::read(run, &host, size.gpus, &mut notes)?;
    let mut facts = facts(run, &host, size, gpu, machine);
    facts.assumptions.splice(0..0, notes);
    let mut cluster = complete(facts);
    force_rings(run, &mut cluster);
    Graphs::add(run, &mut cluster);
    Ok(cluster)
}

/// Puts together what XML, matrix, NCCL's own dump and its graphs tell; what comes first in this order counts.
pub(super) fn host(run: &Run) -> HostClues {
    let sources = [
        run.topo_xmls.first().map(xml::clues),
        run.topo_matrices.iter().max_by_key(|matrix| matrix.devices.len()).map(matrix::clues),
        run.system_dumps.first().map(host::dump),
        Some(host::graphs(run)),
    ];
    sources.into_iter().flatten().fold(HostClues::default(), HostClues::or).on_rings(run)
}

/// Takes rings for forced where the log shows nothing else.
pub(super) fn force_rings(run: &Run, cluster: &mut Cluster) {
    if shows_rings_only(run) && !cluster.environment.contains_key("NCCL_ALGO") {
        cluster.environment.insert("NCCL_ALGO".into(), "Ring".into());
        let note = "NCCL_ALGO=Ring, because the log shows rings and no trees.";
        cluster.assumptions.push(note.into());
    }
}

/// The GPUs that a run names, or that its links reveal, with the machine if that is known too.
pub(super) fn gpu(run: &Run, gpus: usize) -> Result<(Gpu, Option<&'static MachineProduct>), Underivable> {
    gpu::read(run, &host(run), gpus, &mut Vec::new())
}

/// Whether a device list or a log names GPUs.
pub(super) fn names_gpus(run: &Run) -> bool {
    !gpu::names(run).is_empty()
}

/// What a run shows, for hosts of a size with such GPUs.
pub(super) fn facts(
    run: &Run,
    host: &HostClues,
    size: Size,
    gpu: Gpu,
    machine: Option<&'static MachineProduct>,
) -> Facts {
    let mut notes = Vec::new();
    let network = network::read(run, host, &size, machine, &mut notes);
    Facts {
        nodes: size.nodes,
        gpus_per_node: size.gpus,
        links: links(run, host),
        gpu,
        machine,
        cpu: CpuFacts { vendor: host.cpu, sockets: host.sockets, link: None },
        network,
        fabric: None,
        nccl: version(run),
        environment: variables(run),
        collective: size::main_table(run).and_then(|table| table.collective),
        gpus_per_process: size::of_a_process(run),
        assumptions: notes,
    }
}

/// Whether the log has the rings of all communicators and nothing of trees, which NCCL prints beside them.
fn shows_rings_only(run: &Run) -> bool {
    let mut channels = run.communicators.iter().flat_map(|comm| comm.channels.values()).peekable();
    let found_trees =
        run.nccl.patterns.iter().any(|graph| Graphs::TREES.contains(&graph.pattern) && graph.channels > 0);
    let no_trees = !found_trees && run.communicators.iter().all(|comm| comm.trees.is_empty());
    no_trees && channels.peek().is_some() && channels.all(|channel| channel.ring.is_some())
}

/// The links as topologies and connections tell.
fn links(run: &Run, host: &HostClues) -> LinkFacts {
    let connections = run.communicators.first().map(|comm| comm.transports.as_slice()).unwrap_or_default();
    let uses = |wanted: fn(&TransportKind) -> bool| connections.iter().any(|transport| wanted(&transport.kind));
    let copies = uses(|kind| *kind == TransportKind::Shm);
    let direct = uses(|kind| matches!(kind, TransportKind::P2p(_)));
    let said = run.communicators.first().filter(|_| !connections.is_empty());
    LinkFacts {
        kind: host.kind,
        nvlink: None,
        domain: None,
        nvls: said.map(|comm| comm.nvls),
        peer_to_peer: if copies { Some(false) } else { direct.then_some(true) },
        path: host.path,
        pcie: host.gpu_pcie,
    }
}

fn version(run: &Run) -> Option<(u32, u32)> {
    let logged = run.nccl.versions.first().map(|line| line.version.as_str());
    let of_table = || run.tables.iter().find_map(|table| table.settings.nccl_version.as_deref());
    environment::nccl_version(logged.or_else(of_table)?)
}

fn variables(run: &Run) -> BTreeMap<String, String> {
    let names = run.nccl.env.iter().map(|setting| setting.name.as_str());
    let value = |name: &str| run.nccl.env_value(name).map(|setting| (name.to_string(), setting.value.clone()));
    names.filter_map(value).collect()
}
