//! The channels that NCCL's search finds on a machine (`ncclTopoCompute`, src/graph/search.cc of NCCL 2.30.7), where no log
//! tells: its outcome on machines whose GPUs and NICs are alike, in closed form.

use super::figures::{Figures, Inside};
use crate::cluster::{CpuVendor, Generation, Graph};
use busbw_model::{Algorithm, PathType};

/// A lower speed per channel is tried while it is above this share of the best so far.
const LOWER_SPEEDS: f64 = 0.49;
/// NCCL's limit on channels, halved because two are made of each found.
const MOST_CHANNELS: f64 = 32.0;
/// Rings from this speed on are split in two.
const SPLIT_FROM: f64 = 25.0;
/// After Ampere, many rings are split from this speed on.
const SPLIT_MANY_FROM: f64 = 50.0;
const MANY_RINGS: f64 = 4.0;
/// `NCCL_MAX_NVLS_ARITY`.
const MOST_HEADS: f64 = 32.0;
/// `INTEL_P2P_OVERHEAD`: what crosses an Intel processor's root complex counts for more.
const ROOT_COMPLEX: f64 = 6.0 / 5.0;
/// What NCCL takes PCIe 5.0 x16 for, GB/s, and how far above it the NICs of a GPU may be sold.
const PCIE_5: f64 = 48.0;
const ONE_SLOT: f64 = 1.1;
/// Speeds are sums of fractions.
const SAME: f64 = 1.0 + 1e-9;

/// The channels of an algorithm: as a log has them, or as the search would find them.
pub(super) fn graph(figures: &Figures, algorithm: Algorithm) -> Graph {
    let none = Graph { channels: 0, ..Graph::default() };
    if let Some(found) = figures.graphs {
        return match algorithm {
            Algorithm::Ring => found.ring,
            Algorithm::Nvls | Algorithm::NvlsTree => found.nvls.unwrap_or(none),
            _ => found.tree.unwrap_or(found.ring),
        };
    }
    let machine = Machine::of(figures);
    match algorithm {
        Algorithm::Ring => machine.ring(),
        Algorithm::Nvls | Algorithm::NvlsTree if figures.nvls => machine.nvls(),
        Algorithm::Nvls | Algorithm::NvlsTree => none,
        _ => machine.tree(),
    }
}

/// Channels of a whole job: twice what the search found (`ncclTopoPostset`, src/graph/connect.cc), and for few fast rings
/// between Hoppers four times.
pub(super) fn used_channels(figures: &Figures) -> u32 {
    let (ring, tree) = (graph(figures, Algorithm::Ring), graph(figures, Algorithm::Tree));
    let twice = 2 * ring.channels.min(tree.channels);
    let few = figures.cluster.gpu.generation >= Generation::Hopper && figures.domains > 1 && twice < 16;
    let used = if few && ring.intra > 45.0 { 2 * twice } else { twice };
    let set = |name: &str| figures.cluster.variable(name).and_then(|value| u32::try_from(value).ok());
    let most = set("NCCL_MAX_NCHANNELS").unwrap_or(2 * MOST_CHANNELS as u32);
    used.min(most).max(set("NCCL_MIN_NCHANNELS").unwrap_or(1).min(2 * MOST_CHANNELS as u32))
}

/// What the search looks at.
struct Machine<'a> {
    speeds: &'a [f64],
    generation: Generation,
    gpus: f64,
    /// What a GPU sends and receives in all, GB/s, as NCCL counts it.
    total: f64,
    by_nvlink: bool,
    nics: Option<NicsOfDomain>,
}

#[derive(Clone, Copy)]
struct NicsOfDomain {
    count: f64,
    /// Of one, as far as PCIe lets it.
    rate: f64,
}

impl NicsOfDomain {
    /// Ports of one card, and what a plugin puts together for each GPU, are one device to NCCL (NCCL_IB_MERGE_NICS;
    /// aws-ofi-nccl, src/nccl_ofi_topo.cpp).
    fn fused(self, gpus: usize, pcie: f64) -> Self {
        let each = (self.count / gpus.max(1) as f64).floor();
        let evenly = each > 1.0 && each * gpus as f64 == self.count;
        let rate = each * self.rate;
        let one_slot = rate <= ONE_SLOT * if pcie.is_finite() { pcie.max(PCIE_5) } else { PCIE_5 };
        if evenly && one_slot { NicsOfDomain { count: gpus as f64, rate } } else { self }
    }
}

impl<'a> Machine<'a> {
    fn of(figures: &'a Figures) -> Self {
        let constants = figures.generation();
        let total = if figures.inside.is_nvlink() {
            figures.gpu_line / constants.sold_nvlink * constants.nvlink
        } else {
            figures.gpu_line
        };
        let nics = figures.network.as_ref().map(|network| {
            let nics = figures.cluster.nics.as_ref();
            let pcie = nics.map_or(f64::INFINITY, |nics| if nics.pcie.0 > 0.0 { nics.pcie.0 } else { f64::INFINITY });
            let far =
                nics.is_some_and(|nics| nics.place == PathType::Phb) && figures.cluster.cpu.vendor == CpuVendor::Intel;
            let rate = network.nic_line.min(if far { pcie / ROOT_COMPLEX } else { pcie });
            NicsOfDomain { count: network.nics as f64, rate }.fused(figures.domain_gpus, pcie)
        });
        Machine {
            speeds: if nics.is_some() { &constants.network_steps } else { &constants.steps },
            generation: figures.cluster.gpu.generation,
            gpus: figures.domain_gpus as f64,
            total,
            by_nvlink: figures.inside.is_nvlink(),
            nics,
        }
        .without_links(figures)
    }

    /// A GPU alone in its domain reaches its NICs, and nothing else counts.
    fn without_links(self, figures: &Figures) -> Self {
        if figures.inside == Inside::Nothing { Machine { by_nvlink: false, ..self } } else { self }
    }

    fn graph(&self, channels: f64, intra: f64, inter: f64) -> Graph {
        Graph { channels: channels as u32, intra, inter, by_nvlink: self.by_nvlink, ..Graph::default() }
    }

    /// What channels that end at a GPU leave to its neighbours: one hop less than there are GPUs.
    fn with_ends(&self) -> f64 {
        if self.gpus > 1.0 { self.total * self.gpus / (self.gpus - 1.0) } else { self.total }
    }

    /// Channels over the NICs at a speed.
    fn over_nics(&self, speed: f64) -> f64 {
        self.nics.map_or(f64::INFINITY, |nics| (nics.rate * SAME / speed).floor() * nics.count)
    }

    fn rings(&self, speed: f64) -> f64 {
        let inside = if self.by_nvlink && self.nics.is_some() { self.with_ends() } else { self.total };
        (inside * SAME / speed).floor().min(self.over_nics(speed)).min(MOST_CHANNELS)
    }

    fn ring(&self) -> Graph {
        let mut best: Option<(f64, f64)> = None;
        for speed in self.speeds {
            let total = best.map_or(0.0, |(channels, speed)| channels * speed);
            if best.is_some_and(|(_, best)| *speed <= LOWER_SPEEDS * best) || (best.is_some() && total >= self.total) {
                break;
            }
            let channels = self.rings(*speed);
            if channels * speed > total * SAME {
                best = Some((channels, *speed));
            }
        }
        let Some((channels, speed)) = best else { return self.graph(1.0, 0.1, 0.1) };
        let many = self.generation > Generation::Ampere && speed < SPLIT_MANY_FROM && channels > MANY_RINGS;
        let split = if speed < SPLIT_FROM || many { channels } else { (2.0 * channels).min(MOST_CHANNELS) };
        let speed = speed * channels / split;
        self.graph(split, speed, speed)
    }

    /// As many channels as rings, at the highest speed; within a domain it may be up to twice that between domains.
    fn tree(&self) -> Graph {
        let channels = f64::from(self.ring().channels);
        let slowest = self.speeds.last().copied().unwrap_or(0.1);
        let simple = self.gpus < 2.0 || (self.generation > Generation::Ada && self.has_a_nic_each());
        let fits = |intra: f64, inter: f64| {
            channels <= self.over_nics(inter) && channels * self.load(intra, inter, simple) <= self.reach() * SAME
        };
        let inter = self.speeds.iter().copied().find(|speed| fits(*speed, *speed)).unwrap_or(slowest);
        let faster = self.speeds.iter().rev().copied().filter(|speed| *speed > inter);
        let mut intra = inter;
        for speed in faster {
            if intra >= 2.0 * inter || !fits(speed, inter) {
                break;
            }
            intra = speed;
        }
        Graph { simple_tree: simple, ..self.graph(channels, intra, inter) }
    }

    fn has_a_nic_each(&self) -> bool {
        self.nics.is_some_and(|nics| nics.count >= self.gpus)
    }

    fn reach(&self) -> f64 {
        if self.by_nvlink { self.with_ends() } else { self.total }
    }

    /// What a channel of a tree takes of the busiest GPU's links. Over PCIe the way to the NIC is the same as that to the next
    /// GPU: the first has it alone, or shares it with the second.
    fn load(&self, intra: f64, inter: f64, simple: bool) -> f64 {
        match (self.by_nvlink, self.nics) {
            (true, _) | (false, None) => intra,
            _ if self.gpus < 2.0 => inter,
            _ if simple => intra + inter,
            _ => intra + inter / 2.0,
        }
    }

    /// A channel per GPU (and NIC): each GPU sends to the heads of all others, and twice to its own.
    fn nvls(&self) -> Graph {
        let heads = self.nics.map_or(self.gpus, |nics| self.gpus.min(nics.count)).min(MOST_HEADS);
        let nic = self.nics.map_or(f64::INFINITY, |nics| nics.rate);
        let fits = |speed: &f64| (heads + 1.0) * speed <= self.total * SAME && *speed <= nic;
        let Some(intra) = self.speeds.iter().copied().find(fits) else { return self.graph(0.0, 0.0, 0.0) };
        let faster = self.speeds.iter().rev().copied().filter(|speed| *speed > intra);
        let mut inter = intra;
        for speed in faster.filter(|speed| self.nics.is_some() && *speed <= nic) {
            if inter >= 2.0 * intra {
                break;
            }
            inter = speed;
        }
        self.graph(heads, intra, inter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::parse;
    use crate::model::constants::Constants;

    /// Lines of NCCL 2.30.7's own log on machines described by topology files (`Pattern 4, … nChannels 8, bw 24.0/24.0`).
    #[test]
    fn the_search_ends_as_in_logs() {
        for (text, algorithm, channels, intra, inter) in crate::cases::<(String, String, u32, f64, f64)>("graphs") {
            let cluster = parse(&text).unwrap();
            let figures = Figures::of(&cluster, Constants::built_in());
            let algorithm = match algorithm.as_str() {
                "ring" => Algorithm::Ring,
                "nvls" => Algorithm::NvlsTree,
                _ => Algorithm::Tree,
            };
            let found = graph(&figures, algorithm);
            assert_eq!((found.channels, found.intra, found.inter), (channels, intra, inter), "{algorithm} of {text}");
        }
    }
}
