//! What a run may have been on: every machine that fits what is known of it.
//!
//! A table shows ranks and speed, seldom the NICs. So what is unknown is enumerated, not assumed: each usual machine with
//! such GPUs, and each usual set of NICs. The first hypothesis is the one that [`derive`](super::derive()) assumes.

use super::Gpu;
use super::complete::complete;
use super::derive::{self, Size};
use super::facts::{Facts, StatedTransport};
use super::hardware::{BoardWiring, GpuProduct, HARDWARE, MachineProduct};
use super::words::Words;
use super::{Cluster, Generation, GpuLinks, NetTransport};
use busbw_model::{GBps, Library, Run};
use std::str::FromStr;

/// What the user or a table says about the machines, apart from the run's own lines.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MachineHints {
    pub ranks: usize,
    /// Hosts, where known.
    pub nodes: Option<usize>,
    pub gpus_per_node: Option<usize>,
    pub gpu: Option<String>,
    pub nics: Option<NicsOfHost>,
}

/// The NICs of a host, from `8x400G`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NicsOfHost {
    pub count: Option<usize>,
    pub rate: GBps,
}

/// More NICs or Gbit/s than any host or NIC has.
const MOST: f64 = 3200.0;

impl FromStr for NicsOfHost {
    type Err = String;

    /// Reads `8x400G`, `8x400`, `4 x 100Gbit/s`, and `400G` where their number is not known. A bare `8` may be either.
    fn from_str(text: &str) -> Result<Self, String> {
        let error = || format!("{text:?} tells no NICs; write their number in a host and the rate of each: 8x400G");
        let compact = text.to_ascii_lowercase().replace([' ', '×', '*'], "x").replace("xxx", "x").replace("xx", "x");
        let (count, rate) =
            compact.split_once('x').map_or((None, compact.as_str()), |(count, rate)| (Some(count), rate));
        let has_unit = rate.ends_with(|c: char| !c.is_ascii_digit());
        let rate = rate.trim_end_matches("bit/s").trim_end_matches("b/s").trim_end_matches("bps").trim_end_matches('g');
        let count: Option<usize> = count.map(str::parse).transpose().map_err(|_| error())?;
        let gbps: f64 = rate.parse().map_err(|_| error())?;
        let is_clear = count.map_or(has_unit, |count| (1..=64).contains(&count));
        let possible = is_clear && gbps > 0.0 && gbps <= MOST;
        possible.then_some(NicsOfHost { count, rate: GBps(gbps / 8.0) }).ok_or_else(error)
    }
}

/// The GPUs of a host, from `8xH100`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpusOfHost {
    pub count: Option<usize>,
    pub name: String,
}

impl FromStr for GpusOfHost {
    type Err = String;

    /// Reads `8xH100`, and `H100` alone.
    fn from_str(text: &str) -> Result<Self, String> {
        let counted = text.split_once(['x', 'X']).and_then(|(count, name)| Some((count.trim().parse().ok()?, name)));
        let (count, name) = counted.map_or((None, text), |(count, name): (usize, &str)| (Some(count), name));
        let known =
            HARDWARE.find_gpu(&Words::of(name)).is_some() && count.is_none_or(|count| (1..=20).contains(&count));
        let gpus = GpusOfHost { count, name: name.trim().to_string() };
        known.then_some(gpus).ok_or_else(|| {
            format!("{text:?} names no GPU that busbw knows; write how many a host has, and which: 8xH100")
        })
    }
}

/// GPUs that stand for their kind where none is named: by what joins them, and by their PCIe.
const FAMILIES: [&str; 11] =
    ["H100", "A100", "B200", "V100", "GB200", "GH200", "H800", "L40S", "RTX PRO 6000", "T4", "RTX 4090"];
/// The same of AMD's, where the log is RCCL's.
const AMD_FAMILIES: [&str; 3] = ["MI300X", "MI355X", "MI250X"];
/// Numbers of NICs that hosts are built with.
const COUNTS: [usize; 5] = [8, 4, 2, 1, 16];

/// The clusters that fit, the most usual first; none where the GPUs have a name that is not known.
pub fn hypotheses(run: &Run, told: &MachineHints) -> Vec<Cluster> {
    let mut found: Vec<Cluster> = Vec::new();
    let (gpus, host) = (gpus(run, told), derive::host(run));
    let is_supposed = gpus.len() > 1;
    for (gpu, machine) in gpus.into_iter().filter(|(gpu, _)| may_have(gpu, told, is_supposed)) {
        for size in sizes(told, gpu.product) {
            let mut facts = derive::facts(run, &host, size, gpu.clone(), machine);
            if let Some(nics) = told.nics {
                facts.network.rate = Some(nics.rate);
                facts.network.count_by_rings &= nics.count.is_none();
                facts.network.count = nics.count.or(facts.network.count);
            }
            for variant in linked(&facts).iter().flat_map(networked) {
                let mut cluster = complete(variant);
                derive::force_rings(run, &mut cluster);
                let whole = facts.gpu.product.is_some_and(|model| facts.gpus_per_node >= model.board);
                if let Some(nics) = &mut cluster.nics {
                    let fed = fed(&facts, nics.rate).min(near(&facts, nics.count));
                    // Nobody buys NICs that the PCIe of all GPUs cannot feed.
                    if whole && facts.network.count.is_some_and(|count| count > fed) && facts.network.rate.is_none() {
                        continue;
                    }
                    nics.count = nics.count.min(fed);
                }
                if (cluster.domains() == 1 || cluster.nics.is_some()) && !found.iter().any(|one| alike(one, &cluster)) {
                    found.push(cluster);
                }
            }
        }
    }
    found
}

/// Whether hosts with such GPUs may have as many NICs as somebody tells, and as many ranks as run on each, where nobody says which GPUs they are.
fn may_have(gpu: &Gpu, told: &MachineHints, is_supposed: bool) -> bool {
    /// No host is sold with more for each GPU: 32 NICs for 8 (p5.48xlarge).
    const NICS_OF_GPU: usize = 4;
    let count = told.nics.and_then(|nics| nics.count).filter(|_| told.gpu.is_none()).unwrap_or_default();
    // A rack that is one domain is built of hosts of one board.
    let of_model = |model: &GpuProduct| model.domain.map_or(model.most_gpus(), |_| model.board);
    let most = gpu.product.map_or(8, of_model).max(told.gpus_per_node.unwrap_or_default());
    let ranks = told.nodes.filter(|nodes| *nodes > 0).map_or(1, |nodes| told.ranks.div_ceil(nodes));
    count <= NICS_OF_GPU * most && (ranks <= most || !is_supposed)
}

/// Clusters that differ in nothing that counts for speed.
fn alike(a: &Cluster, b: &Cluster) -> bool {
    let nics = |cluster: &Cluster| if cluster.domains() > 1 { cluster.nics.clone() } else { None };
    (a.nodes, &a.links, &a.cpu, nics(a), &a.gpu.name) == (b.nodes, &b.links, &b.cpu, nics(b), &b.gpu.name)
}

/// The GPUs that are named, else one of each kind.
fn gpus(run: &Run, told: &MachineHints) -> Vec<(Gpu, Option<&'static MachineProduct>)> {
    let words = told.gpu.as_deref().map(Words::of);
    let gpus = told.gpus_per_node.or(told.nodes.map(|nodes| told.ranks / nodes.max(1))).unwrap_or(told.ranks);
    let own = derive::gpu(run, gpus);
    if let (Some(words), Some(name)) = (&words, &told.gpu)
        && let Some(model) = HARDWARE.find_gpu(words)
    {
        // The run may say more closely what is told: `Tesla V100-PCIE-32GB` is a V100.
        let closer = own.ok().filter(|(gpu, _)| Words::of(&gpu.name).has_those_of(words));
        return vec![closer.unwrap_or_else(|| (Gpu::of(model, name), HARDWARE.find_machine(words, Some(model))))];
    }
    match own {
        Ok(known) => return vec![known],
        // An unknown GPU name excludes all known models.
        Err(_) if derive::names_gpus(run) => return Vec::new(),
        Err(_) => {}
    }
    let family = |name: &&str| HARDWARE.find_gpu(&Words::of(name)).map(|model| (Gpu::of(model, name), None));
    let families: &[&str] = if run.nccl.library() == Library::Rccl { &AMD_FAMILIES } else { &FAMILIES };
    families.iter().filter_map(family).collect()
}

/// Hosts and GPUs of each that make the ranks: as given, else each way that such GPUs are sold.
fn sizes(told: &MachineHints, model: Option<&GpuProduct>) -> Vec<Size> {
    let most = told.gpus_per_node.or(model.map(GpuProduct::most_gpus)).unwrap_or(8);
    let size = |nodes: usize| Size { nodes, gpus: told.ranks.div_ceil(nodes.max(1)) };
    if let Some(nodes) = told.nodes.filter(|nodes| *nodes > 0) {
        return vec![size(nodes)];
    }
    // More ranks than a host has GPUs take whole hosts.
    if let Some(gpus) = told.gpus_per_node.filter(|gpus| told.ranks > *gpus && told.ranks.is_multiple_of(*gpus)) {
        return vec![size(told.ranks / gpus)];
    }
    let board = told.gpus_per_node.or(model.map(|model| model.board)).unwrap_or(8);
    let fits = |gpus: &usize| *gpus > 0 && *gpus <= most && told.ranks.is_multiple_of(*gpus);
    let mut gpus: Vec<usize> = [board, told.ranks, 8, 4, 2, 1].into_iter().filter(fits).collect();
    if told.ranks <= board {
        gpus.insert(0, told.ranks);
    }
    let mut sizes: Vec<Size> = Vec::new();
    for size in gpus.into_iter().map(|gpus| size(told.ranks / gpus)) {
        if !sizes.contains(&size) {
            sizes.push(size);
        }
    }
    sizes
}

/// NICs that the GPUs' own PCIe can feed: with few GPUs of a host the others are idle.
fn fed(facts: &Facts, rate: GBps) -> usize {
    let stated = facts.links.pcie.or(facts.gpu.product.map(|model| model.pcie()));
    let over_c2c = facts.gpu.product.is_some_and(|model| model.c2c().is_some());
    match stated {
        Some(pcie) if !over_c2c => ((facts.gpus_per_node as f64 * pcie.wire_rate().0 / rate.0) as usize).max(1),
        _ => usize::MAX,
    }
}

/// NICs that are nearest to the GPUs in use, where each GPU of a board has its own: NCCL takes no others.
fn near(facts: &Facts, nics: usize) -> usize {
    let board = facts.gpu.product.map_or(1, |model| model.board);
    if facts.gpus_per_node < board && nics.is_multiple_of(board) { nics / board * facts.gpus_per_node } else { nics }
}

/// The ways in which PCIe joins GPUs, if nothing shows it: directly, or through host memory; bridges where there may be some.
fn linked(facts: &Facts) -> Vec<Facts> {
    let Some(model) = facts.gpu.product else { return vec![facts.clone()] };
    let on_pcie = matches!(model.wiring, BoardWiring::None | BoardWiring::Bridge) && facts.gpus_per_node > 1;
    if !on_pcie || facts.machine.is_some() || facts.links.kind.is_some() {
        return vec![facts.clone()];
    }
    let with = |direct: Option<bool>, kind| {
        let mut facts = facts.clone();
        facts.links.peer_to_peer = facts.links.peer_to_peer.or(direct);
        facts.links.kind = facts.links.kind.or(kind);
        facts
    };
    let mut all = vec![with(None, None)];
    // Between two sockets a ring is bound to their link: three A100 are published at 20 GB/s (NVIDIA/nccl-tests issue 178).
    let direct = model.peer_to_peer && facts.links.peer_to_peer != Some(false);
    if direct && facts.gpus_per_node > 2 && facts.cpu.sockets.is_none() {
        let mut on_one = facts.clone();
        on_one.cpu.sockets = Some(1);
        all.push(on_one);
    }
    if model.peer_to_peer && facts.links.peer_to_peer.is_none() && facts.links.path.is_none() {
        all.push(with(Some(false), None));
    }
    if model.wiring == BoardWiring::Bridge && facts.gpus_per_node <= model.bridge_gpus {
        all.push(with(None, Some(super::facts::LinkKind::Bridge)));
    }
    all
}

/// The networks that fit: of machines with such GPUs, and of usual NICs in usual numbers.
fn networked(facts: &Facts) -> Vec<Facts> {
    let known = &facts.network;
    let told = known.count.is_some() && known.rate.is_some() && known.transport != StatedTransport::Unknown;
    if told || facts.machine.is_some() || known.transport == StatedTransport::None {
        return vec![facts.clone()];
    }
    let mut machines: Vec<Facts> = facts.gpu.product.into_iter().flat_map(|model| of_machines(facts, model)).collect();
    // A superchip that is sold with its NIC has that one.
    if facts.gpu.product.is_some_and(|model| model.board == 1) && !machines.is_empty() {
        return machines;
    }
    // Of GPUs that are sold in clouds only, NICs as one of these has are its NICs.
    let verbs =
        |machine: &MachineProduct| machine.transport.is_some_and(|kind| same_kind(kind, NetTransport::InfiniBand));
    let clouds_only = facts.gpu.product.is_some_and(|model| !HARDWARE.machines_with(model).any(verbs));
    if clouds_only && known.count.is_some() && known.rate.is_some() && !machines.is_empty() {
        return machines;
    }
    let mut all = vec![facts.clone()];
    all.append(&mut machines);
    if known.count.is_none() || known.rate.is_none() {
        all.extend(generic(facts));
    }
    all
}

/// The machines with such GPUs whose NICs are no others than those that are known.
fn of_machines(facts: &Facts, model: &'static GpuProduct) -> impl Iterator<Item = Facts> {
    // A name that leaves open which is that of the board, not of the card with bridges.
    let card =
        |machine: &MachineProduct| machine.links == Some(BoardWiring::Bridge) && model.wiring != BoardWiring::Bridge;
    let fitting = HARDWARE.machines_with(model);
    let fitting = fitting.filter(move |machine| machine.gpus >= facts.gpus_per_node && !card(machine));
    fitting.filter_map(move |machine| {
        let (nics, rate, transport) = (machine.nics?, machine.nic_rate()?, machine.transport?);
        let used = (nics * facts.gpus_per_node).div_ceil(machine.gpus);
        let known = &facts.network;
        // A port may show as several functions with a share of its rate each.
        let functions = known.count.filter(|count| *count > used && count.is_multiple_of(used)).map_or(1, |c| c / used);
        let rate = GBps(rate.0 / functions as f64);
        // A superchip has its NIC, though variables may keep NCCL from some of its functions.
        let fewer = |count| model.board == 1 && count < used;
        let count_fits = known.count.is_none_or(|count| count == used * functions || count == nics || fewer(count));
        let rate_fits = known.rate.is_none_or(|known| (known.0 / rate.0 - 1.0).abs() < 0.02);
        let transport_fits = match known.transport {
            StatedTransport::Is(known) => same_kind(known, transport),
            _ => true,
        };
        (count_fits && rate_fits && transport_fits).then(|| {
            let mut facts = facts.clone();
            facts.machine = Some(machine);
            facts.network.count = Some(known.count.unwrap_or(used).max(if model.board == 1 { used } else { 0 }));
            facts.network.rate = Some(rate);
            facts
        })
    })
}

/// InfiniBand and RoCE are one thing to NCCL and to many logs.
fn same_kind(a: NetTransport, b: NetTransport) -> bool {
    let verbs = [NetTransport::InfiniBand, NetTransport::Roce];
    a == b || verbs.contains(&a) && verbs.contains(&b)
}

/// Usual NICs in usual numbers: those of the GPUs' time and of the time before, one for each GPU at most.
fn generic(facts: &Facts) -> Vec<Facts> {
    let usual = super::complete::usual_nic(facts).gbit_per_s();
    let board =
        facts.gpu.product.is_some_and(|model| matches!(model.wiring, BoardWiring::NvSwitch | BoardWiring::Mesh));
    let whole = facts.gpu.product.is_some_and(|model| facts.gpus_per_node >= model.board);
    // Hosts of gaming cards are on what mainboards have.
    let at_home = facts.gpu.product.is_some_and(|model| !model.gpu_direct);
    let slowest = match (board, whole) {
        // Nobody buys a board of eight for a NIC of two generations before.
        (true, true) => usual / 2.0,
        (true, false) => usual.min(100.0),
        (false, _) if at_home => 1.0,
        (false, _) => 10.0,
    };
    let rates = [usual, usual / 2.0, usual * 2.0, 100.0, 50.0, 25.0, 10.0, 2.5, 1.0];
    let mut all = Vec::new();
    let counts: Vec<usize> = match facts.network.count {
        Some(count) => vec![count],
        None => COUNTS.into_iter().filter(|count| *count <= facts.gpus_per_node.max(1)).collect(),
    };
    for count in counts {
        for gbps in rates.into_iter().filter(|gbps| *gbps >= slowest && (*gbps <= usual || !board)) {
            let rate = facts.network.rate.unwrap_or(GBps(gbps / 8.0));
            let mut facts = facts.clone();
            (facts.network.count, facts.network.rate) = (Some(count), Some(rate));
            all.push(facts.clone());
            if !board && facts.network.transport == StatedTransport::Unknown {
                facts.network.transport = StatedTransport::Is(NetTransport::Tcp);
                all.push(facts);
            }
        }
    }
    all
}

/// How well the model knows such a cluster, as shares of its prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reach {
    /// From here on a run is sound: of the published tables that are called good, one is at 86%, all others are at 97% and more.
    pub sound: f64,
    /// Below this something is wrong: with its publisher left out of the fit, no good table is further off (docs/prediction.md).
    pub slow: f64,
    /// Above this it was another machine.
    pub above: f64,
}

impl Cluster {
    /// The same with GPUs that copy straight over PCIe at best, where they should copy through host memory: with a patched
    /// driver.
    pub fn with_peer_to_peer(&self) -> Option<Cluster> {
        let mut direct = self.clone();
        match &mut direct.links {
            GpuLinks::Pcie { peer_to_peer, .. } if !*peer_to_peer => *peer_to_peer = true,
            _ => return None,
        }
        direct.cpu.sockets = 1;
        Some(direct)
    }

    /// The same with NICs that reach the GPUs' memory themselves, where they should copy through host memory and these GPUs can be reached.
    pub fn with_gpu_direct(&self) -> Option<Cluster> {
        let can = HARDWARE.find_gpu(&Words::of(&self.gpu.name)).is_some_and(|model| model.gpu_direct);
        let mut direct = self.clone();
        let nics =
            direct.nics.as_mut().filter(|nics| can && !nics.gpu_direct && nics.transport != NetTransport::Tcp)?;
        nics.gpu_direct = true;
        Some(direct)
    }

    /// From so many times the predicted time on small messages take too long. No published machine that is sound takes 1.6 times of it
    /// (docs/prediction.md), and 2.5 where one process drives all GPUs of a host and nothing tells so. Kernel sockets and copies depend on
    /// the host, and no latency of more than 8 hosts is published.
    pub fn late(&self) -> f64 {
        let network = self.nics.as_ref().filter(|_| (2..=8).contains(&self.domains()));
        let by_nics = network.is_some_and(|nics| nics.transport != NetTransport::Tcp && nics.gpu_direct);
        let copies = matches!(self.links, GpuLinks::Pcie { peer_to_peer: false, .. });
        if by_nics && !copies { 4.0 } else { 5.0 }
    }

    /// How well the model knows such a cluster.
    pub fn reach(&self) -> Reach {
        let copies = matches!(self.links, GpuLinks::Pcie { peer_to_peer: false, .. });
        let on_pcie = matches!(self.links, GpuLinks::Pcie { .. });
        let network = self.nics.as_ref().filter(|_| self.domains() > 1);
        let on = |transport| network.is_some_and(|nics| nics.transport == transport);
        let staged = network.is_some_and(|nics| !nics.gpu_direct);
        let board = self.gpu.product.map_or(8, |model| model.board);
        let switched = matches!(self.links, GpuLinks::NvSwitch { .. });
        let part = switched && self.domains() == 1 && self.ranks() < board;
        let racks = self.domains() > 1 && self.domain_gpus() > self.gpus_per_node;
        match () {
            // AMD publishes 83% for alltoall on 4 hosts of 8 MI355X (oracle-quickstart/oci-hpc-oke), others 95% and more.
            () if self.gpu.generation == Generation::Cdna => Reach { sound: 0.8, slow: 0.5, above: 1.5 },
            // Copies through host memory depend on the host: 2.6 to 12 GB/s are published, and 27 to 35 with PCIe 5.0. GPUs
            // with PCIe 5.0 are put into older hosts too.
            () if copies => {
                Reach { sound: 0.85, slow: if self.links.per_gpu().0 > 24.0 { 0.06 } else { 0.3 }, above: 1.5 }
            }
            // Slingshot reaches 73% to 97% of its line where its plugin is set up: Perlmutter 69 and 72 GB/s, Alps 98.
            () if on(NetTransport::Slingshot) => Reach { sound: 0.72, slow: 0.5, above: 1.3 },
            // AWS publishes 68% for NCCL 2.8 on two p4d (aws-samples/aws-efa-eks), 99% for later versions.
            () if on(NetTransport::Efa) && self.nccl.is_some_and(|version| version < (2, 10)) => {
                Reach { sound: 0.65, slow: 0.5, above: 1.3 }
            }
            () if on(NetTransport::Efa) => Reach { sound: 0.85, slow: 0.6, above: 1.3 },
            () if on(NetTransport::Tcp) || staged => Reach { sound: 0.85, slow: 0.3, above: 2.0 },
            // Two racks are published at 75% and at 95% of what NVLS gives within each; of more the model has the ring that 20 racks show (table 031).
            () if racks && self.domains() == 2 => Reach { sound: 0.73, slow: 0.6, above: 1.3 },
            () if racks => Reach { sound: 0.88, slow: 0.75, above: 2.0 },
            // PCIe switches and processors between GPUs differ from board to board.
            () if on_pcie => Reach { sound: 0.85, slow: 0.55, above: 1.5 },
            // Few GPUs of a board have fewer channels than the model thinks: two H100 are published at 298 and at 367 GB/s
            // (NVIDIA/nccl issue 1455).
            () if part => Reach { sound: 0.75, slow: 0.6, above: 1.3 },
            // Between many hosts settings count, and a published run at 87% is a slow one (table 065).
            () => Reach { sound: if self.domains() > 2 { 0.88 } else { 0.85 }, slow: 0.75, above: 1.3 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn nics_and_gpus_are_read() {
        for (text, count, gbps) in [
            ("8x400G", Some(8), 400.0),
            ("8x200", Some(8), 200.0),
            ("4 x 100Gbit/s", Some(4), 100.0),
            ("1x400G", Some(1), 400.0),
            ("400G", None, 400.0),
            ("16X100Gb/s", Some(16), 100.0),
        ] {
            let nics: NicsOfHost = text.parse().unwrap();
            assert_eq!((nics.count, nics.rate.gbit_per_s()), (count, gbps), "{text}");
        }
        for text in ["", "8", "400", "8x", "x400", "0x400", "8x0", "8x-1", "900x400", "eight", "8x9999"] {
            assert!(text.parse::<NicsOfHost>().is_err(), "{text}");
        }
        for (text, count, name) in
            [("8xH100", Some(8), "H100"), ("RTX 4090", None, "RTX 4090"), ("4 x A100", Some(4), "A100")]
        {
            let gpus: GpusOfHost = text.parse().unwrap();
            assert_eq!((gpus.count, gpus.name.as_str()), (count, name), "{text}");
        }
        assert!("8xFoo".parse::<GpusOfHost>().is_err() && "99xH100".parse::<GpusOfHost>().is_err());
    }

    /// Ranks, hosts, GPU and NICs as given; how many clusters fit, and whether one with these NICs is among them.
    #[test]
    fn what_is_told_narrows_what_fits() {
        let nics = |count, gbps| Some(NicsOfHost { count: Some(count), rate: GBps(gbps / 8.0) });
        let rate_alone = Some(NicsOfHost { count: None, rate: GBps(50.0) });
        let told = |nodes, gpu: &str, nics| MachineHints {
            ranks: 16,
            nodes,
            gpu: (!gpu.is_empty()).then(|| gpu.to_string()),
            nics,
            ..MachineHints::default()
        };
        let fitting = |told: MachineHints| hypotheses(&Run::default(), &told);
        let nothing = fitting(told(None, "", None)).len();
        let gpu = fitting(told(None, "H100", None)).len();
        let nodes = fitting(told(Some(2), "H100", None)).len();
        let all = fitting(told(Some(2), "H100", nics(8, 400.0)));
        assert!(
            nothing > gpu && gpu > nodes && nodes > all.len() && !all.is_empty(),
            "{nothing} {gpu} {nodes} {}",
            all.len()
        );
        let counts = |clusters: Vec<Cluster>| -> BTreeSet<usize> {
            clusters.into_iter().filter_map(|one| one.nics).map(|nics| nics.count).collect()
        };
        assert_eq!(counts(fitting(told(Some(2), "H100", rate_alone))), [1, 2, 4, 8].into());
        assert!(all.iter().all(|one| one.nics.as_ref().is_some_and(|nics| (nics.count, nics.rate) == (8, GBps(50.0)))));
        let of_32: BTreeSet<String> =
            fitting(told(None, "", nics(32, 100.0))).into_iter().map(|one| one.gpu.name).collect();
        assert!(of_32.contains("H100") && !of_32.contains("GB200"), "{of_32:?}");
        let machines = fitting(told(Some(2), "H100", None));
        let has =
            |transport| machines.iter().any(|one| one.nics.as_ref().is_some_and(|nics| nics.transport == transport));
        assert!(has(NetTransport::Efa) && has(NetTransport::Tcpxo) && has(NetTransport::InfiniBand));
    }
}
