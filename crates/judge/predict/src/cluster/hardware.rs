//! What GPUs and machines are made of: `rules/hardware.toml`, read once.

use super::words::Words;
use super::{CpuVendor, Generation, NetTransport};
use busbw_model::{GBps, PathType};
use serde::Deserialize;
use std::sync::LazyLock;

/// All GPUs and machines that are known. A file that does not fit is a fault of the build, and must not pass as an empty one:
/// diagnose's build script refuses what is no TOML, the tests below what has other keys.
pub(super) static HARDWARE: LazyLock<Hardware> =
    LazyLock::new(|| toml::from_str(DATA).unwrap_or_else(|error| panic!("rules/hardware.toml: {error}")));

const DATA: &str = include_str!("../../../../../rules/hardware.toml");

/// The known GPUs and machines.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hardware {
    nic: Vec<NicProduct>,
    gpu: Vec<GpuProduct>,
    machine: Vec<MachineProduct>,
}

/// A NIC as it is sold.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NicProduct {
    pub name: String,
    hca_type: String,
    /// Gbit/s of its boards for InfiniBand, ascending.
    pub infiniband: Vec<f64>,
    #[allow(dead_code)] // read by people, and by the test that demands it
    source: String,
}

impl NicProduct {
    /// The NIC whose driver gives it this type.
    pub fn find(hca_type: &str) -> Option<&'static NicProduct> {
        HARDWARE.nic.iter().find(|nic| nic.hca_type == hca_type)
    }
}

/// A GPU as it is sold. The keys are explained in `hardware.toml`.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GpuProduct {
    pub(super) name: String,
    words: Vec<String>,
    #[serde(default)]
    pci: Vec<String>,
    pub(super) generation: Generation,
    pub(super) nvlink: Option<NvLink>,
    pub(super) wiring: BoardWiring,
    /// Bridges are an accessory that many hosts lack.
    #[serde(default)]
    pub(super) bridge_optional: bool,
    /// GPUs that one bridge joins.
    #[serde(default = "two")]
    pub(super) bridge_gpus: usize,
    /// There is also a board of four GPUs that are joined without an NVSwitch.
    #[serde(default)]
    pub(super) four_gpu_mesh: bool,
    pub(super) board: usize,
    pcie: u8,
    #[serde(default = "sixteen")]
    pcie_lanes: u8,
    #[serde(default = "yes")]
    pub(super) peer_to_peer: bool,
    #[serde(default = "yes")]
    pub(super) gpu_direct: bool,
    c2c: Option<f64>,
    pub(super) domain: Option<usize>,
    #[allow(dead_code)] // read by people, and by the test that demands it
    source: String,
}

/// The NVLinks of one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NvLink {
    pub(super) generation: u32,
    pub(super) links: u32,
    rate: f64,
}

impl NvLink {
    /// What all links carry together, per direction.
    pub(super) fn rate(self) -> GBps {
        GBps(self.rate)
    }
}

/// How the NVLinks of a board are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum BoardWiring {
    NvSwitch,
    Mesh,
    Bridge,
    #[serde(alias = "pcie")]
    None,
}

/// A machine as it is sold or rented. The keys are explained in `hardware.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MachineProduct {
    pub(super) name: String,
    words: Vec<String>,
    gpu: Vec<String>,
    pub(super) gpus: usize,
    pub(super) links: Option<BoardWiring>,
    pub(super) nics: Option<usize>,
    nic_gbps: Option<f64>,
    pub(super) transport: Option<NetTransport>,
    pub(super) gpu_direct: Option<bool>,
    place: Option<String>,
    nic_pcie: Option<String>,
    pub(super) peer_to_peer: Option<bool>,
    pub(super) cpu: Option<CpuVendor>,
    pub(super) sockets: Option<usize>,
    #[allow(dead_code)] // read by people, and by the test that demands it
    source: String,
}

/// A PCIe connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pcie {
    pub(super) generation: u8,
    pub(super) lanes: u8,
}

impl Pcie {
    /// Reads `4.0 x16`, `PCIe 4.0 x16`, `gen4 x8`, `pcie4`; 16 lanes where none are named.
    pub(super) fn read(text: &str) -> Option<Self> {
        let words = Words::of(text);
        let named = words.number_after("pcie").or_else(|| words.number_after("gen"));
        let bare = || text.trim().split(['.', ' ']).next().and_then(|number| number.parse().ok());
        let generation = u8::try_from(named.or_else(bare)?).ok().filter(|g| (1..=7).contains(g))?;
        let lanes = match words.numbers_of("x").next() {
            Some(lanes) => u8::try_from(lanes).ok().filter(|l| [1, 2, 4, 8, 16, 32].contains(l))?,
            None => 16,
        };
        Some(Pcie { generation, lanes })
    }

    /// What large transfers reach, per direction: 12 GB/s for 3.0 x16 (`PCI_BW` in `src/graph/topo.h` of NCCL 2.30), twice
    /// that with each generation.
    pub(super) fn rate(self) -> GBps {
        GBps(0.75 * self.lane_rate() * f64::from(self.lanes))
    }

    /// What the wire carries, per direction: 128 of 130 bits are payload.
    pub(super) fn wire_rate(self) -> GBps {
        GBps(128.0 / 130.0 * self.lane_rate() * f64::from(self.lanes))
    }

    /// GB/s of one lane: 8 GT/s for 3.0.
    fn lane_rate(self) -> f64 {
        (f64::from(self.generation) - 3.0).exp2()
    }
}

impl std::fmt::Display for Pcie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PCIe {}.0 x{}", self.generation, self.lanes)
    }
}

impl GpuProduct {
    pub(super) fn pcie(&self) -> Pcie {
        Pcie { generation: self.pcie, lanes: self.pcie_lanes }
    }

    /// The most GPUs of a host: those of the board, or 16 (DGX-2, a2-megagpu-16g), or what PCIe expanders hold.
    pub(super) fn most_gpus(&self) -> usize {
        let sixteen = matches!(self.generation, Generation::Volta | Generation::Ampere) && self.board == 8;
        match self.wiring {
            BoardWiring::None | BoardWiring::Bridge => 20,
            BoardWiring::NvSwitch | BoardWiring::Mesh if sixteen => 16,
            BoardWiring::NvSwitch | BoardWiring::Mesh => self.domain.unwrap_or(0).max(self.board),
        }
    }

    /// NVLink-C2C to the host's processor.
    pub(super) fn c2c(&self) -> Option<GBps> {
        self.c2c.map(GBps)
    }
}

impl MachineProduct {
    pub(super) fn nic_rate(&self) -> Option<GBps> {
        self.nic_gbps.map(|gbps| GBps(gbps / 8.0))
    }

    /// The path from a NIC to its nearest GPU.
    pub(super) fn place(&self) -> Option<PathType> {
        PathType::from_cell(&self.place.as_ref()?.to_uppercase())
    }

    pub(super) fn nic_pcie(&self) -> Option<Pcie> {
        Pcie::read(self.nic_pcie.as_ref()?)
    }

    /// Its GPU; `None` only if the data name one that is not there, which a test forbids.
    pub(super) fn gpu(&self) -> Option<&'static GpuProduct> {
        self.gpu.first().and_then(|name| HARDWARE.gpu(name))
    }

    pub(super) fn holds(&self, gpu: &GpuProduct) -> bool {
        self.gpu.contains(&gpu.name)
    }
}

/// What a GPU is sold as, and its generation, by a name that people or machines give it.
pub fn product(name: &str) -> Option<(&'static str, Generation)> {
    HARDWARE.find_gpu(&Words::of(name)).map(|gpu| (gpu.name.as_str(), gpu.generation))
}

/// Whether NVLink joins GPUs of this name wherever they are sold.
pub fn joined_by_nvlink(name: &str) -> bool {
    let joined = |model: &GpuProduct| model.nvlink.is_some() && !model.bridge_optional && model.board > 1;
    HARDWARE.find_gpu(&Words::of(name)).is_some_and(joined)
}

/// Whether machines with GPUs of this name usually have RDMA between them: boards with NVLink do.
pub fn usual_with_rdma(name: &str) -> bool {
    let on_board = |model: &GpuProduct| matches!(model.wiring, BoardWiring::NvSwitch | BoardWiring::Mesh);
    HARDWARE.find_gpu(&Words::of(name)).is_some_and(on_board)
}

impl Hardware {
    /// A GPU by the name of its entry.
    fn gpu(&self, name: &str) -> Option<&GpuProduct> {
        self.gpu.iter().find(|gpu| gpu.name == name)
    }

    /// The GPU that a text names: the words of a phrase may stand apart (`A100 80GB PCIe`).
    pub(super) fn find_gpu(&self, words: &Words) -> Option<&GpuProduct> {
        best(self.gpu.iter(), |gpu| &gpu.words, |phrase| words.has_all(phrase))
    }

    /// The GPU with the number of a PCI device: `20b5`.
    pub(super) fn gpu_of_device(&self, device: &str) -> Option<&GpuProduct> {
        self.gpu.iter().find(|gpu| gpu.pci.iter().any(|number| number == device))
    }

    /// The machine that a text names, among those with such GPUs.
    pub(super) fn find_machine(&self, words: &Words, gpu: Option<&GpuProduct>) -> Option<&MachineProduct> {
        let fitting = self.machine.iter().filter(|machine| gpu.is_none_or(|gpu| machine.holds(gpu)));
        best(fitting, |machine| &machine.words, |phrase| words.has_phrase(phrase))
    }

    /// The machines that have such GPUs.
    pub(super) fn machines_with<'a>(&'a self, gpu: &'a GpuProduct) -> impl Iterator<Item = &'a MachineProduct> {
        self.machine.iter().filter(|machine| machine.holds(gpu))
    }

    /// The smallest machine on a network that has so many of such GPUs.
    pub(super) fn machine_on(&self, transport: NetTransport, gpu: &GpuProduct, gpus: usize) -> Option<&MachineProduct> {
        let fitting = self.machine.iter().filter(|machine| machine.transport == Some(transport) && machine.holds(gpu));
        fitting.filter(|machine| machine.gpus >= gpus).min_by_key(|machine| machine.gpus)
    }
}

/// PCIe places for NICs in a host where none are stated: four per GPU, as p5.48xlarge has, more than any other known host.
pub(super) fn usual_places(gpus: usize) -> usize {
    (4 * gpus).max(8)
}

/// The entry with the longest phrase that the text holds; the first of several.
fn best<'a, T>(
    entries: impl Iterator<Item = &'a T>,
    phrases: impl Fn(&T) -> &Vec<String>,
    held: impl Fn(&str) -> bool,
) -> Option<&'a T> {
    let length = |entry: &T| {
        let held = phrases(entry).iter().filter(|phrase| held(phrase));
        held.map(|phrase| (phrase.split(' ').count(), phrase.len())).max()
    };
    let found = entries.filter_map(|entry| Some((length(entry)?, entry)));
    found.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, entry)| entry)
}

fn yes() -> bool {
    true
}

fn two() -> usize {
    2
}

fn sixteen() -> u8 {
    16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_are_sound() {
        let hardware: Hardware = toml::from_str(DATA).unwrap();
        assert!(hardware.gpu.len() > 40 && hardware.machine.len() > 60);
        for gpu in &hardware.gpu {
            assert!(!gpu.source.is_empty() && gpu.board > 0 && !gpu.words.is_empty(), "{}", gpu.name);
            assert_eq!(gpu.nvlink.is_none(), gpu.wiring == BoardWiring::None, "{}", gpu.name);
            let first = |number: &String| hardware.gpu_of_device(number).map(|gpu| &gpu.name);
            assert!(gpu.pci.iter().all(|number| first(number) == Some(&gpu.name)), "{}: a number twice", gpu.name);
        }
        for nic in &hardware.nic {
            assert!(!nic.source.is_empty() && !nic.infiniband.is_empty() && nic.infiniband.is_sorted(), "{}", nic.name);
            assert_eq!(NicProduct::find(&nic.hca_type), Some(nic), "{}: named twice", nic.name);
        }
        for machine in &hardware.machine {
            let name = &machine.name;
            assert!(machine.gpu.iter().all(|gpu| hardware.gpu(gpu).is_some()), "{name}: {:?}", machine.gpu);
            assert!(machine.source.len() > 10 && machine.gpus > 0, "{name}");
            assert_eq!(machine.place.is_some(), machine.place().is_some(), "{name}");
            assert_eq!(machine.nic_pcie.is_some(), machine.nic_pcie().is_some(), "{name}");
            let fits = |pcie: Pcie| machine.nic_rate().is_none_or(|rate| rate.0 <= pcie.wire_rate().0);
            assert!(machine.nic_pcie().is_none_or(fits), "{name}");
        }
    }

    #[test]
    fn gpus_and_machines_are_found_by_name() {
        let cases = include_str!("../../tests/descriptions/names.txt").lines().filter_map(|line| line.split_once(": "));
        for (text, name) in cases {
            let words = Words::of(text);
            let gpu = HARDWARE.find_gpu(&words);
            let machine = HARDWARE.find_machine(&words, gpu).map(|machine| &machine.name);
            assert_eq!(machine.or(gpu.map(|gpu| &gpu.name)).map(String::as_str), Some(name), "{text}");
        }
    }

    #[test]
    fn pcie_is_read() {
        for (text, generation, lanes) in
            [("4.0 x16", 4, 16), ("PCIe 5.0 x8", 5, 8), ("gen3 x16", 3, 16), ("pcie4", 4, 16), ("3", 3, 16)]
        {
            assert_eq!(Pcie::read(text), Some(Pcie { generation, lanes }), "{text}");
        }
        for text in ["", "fast", "0.5 x16", "pcie9", "4.0 x7"] {
            assert_eq!(Pcie::read(text), None, "{text}");
        }
        assert_eq!(Pcie { generation: 3, lanes: 16 }.rate(), GBps(12.0));
        assert_eq!(Pcie { generation: 5, lanes: 16 }.rate(), GBps(48.0));
    }
}
