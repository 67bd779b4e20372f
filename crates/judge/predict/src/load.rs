//! An exchange between all ranks that is not even: what each sends to each, and who is busiest.

use crate::Cluster;
use crate::cluster::{GpuLinks, Port};
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;

/// What each rank sends to each other one.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    name: String,
    ranks: usize,
    /// Of each sender to each receiver, as a share of what a rank sends in the mean.
    shares: Vec<f64>,
}

/// Why figures are no load.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// Neither a line nor a square of figures.
    #[error(
        "{figures} figures are no load of {ranks} ranks; give one for what each rank receives ({ranks}, or as many for the \
         experts of each), or {ranks} lines of {ranks} for what each sends to each"
    )]
    Count { figures: usize, ranks: usize },
    /// Something that is no amount.
    #[error("\"{0}\" is no amount; give numbers of bytes or tokens, none below zero")]
    Figure(String),
    /// Nothing is sent.
    #[error("the load is zero; give numbers of bytes or tokens")]
    Empty,
    /// Larger than is worth the time.
    #[error("the cluster has {0} ranks; a load is predicted for {most} at most", most = Load::MOST_RANKS)]
    TooManyRanks(usize),
}

/// The shapes of Megatron-LM's benchmark of imbalance (NVIDIA/Megatron-LM pull request 7488, `benchmarks/moe/token_imbalance`),
/// where each rank has the same number of experts, in order.
pub const SHAPES: [(&str, &str); 8] = [
    ("W0", "even"),
    ("W1", "three of four choices fall on the first quarter of the experts"),
    ("W2", "as W1: the hot experts are those of the first quarter of the ranks"),
    ("W3", "three of four choices fall on every second expert; ranks with several experts are even"),
    ("W4", "ranks send from none to twice the mean, receivers are even"),
    ("W5", "the first half of the experts is never chosen"),
    ("W6", "as W1, with the hot quarter moving on every three steps: a step"),
    ("W7", "two of four choices fall on the first quarter of the experts in one step of four: that step"),
];

/// The part of the experts that is hot.
const HOT: f64 = 0.25;

impl Load {
    /// The most ranks of a load.
    pub const MOST_RANKS: usize = 4096;

    /// A shape by its name, `W2`.
    ///
    /// # Errors
    /// There are too many ranks. None of the shapes has the name: `Ok(None)`.
    pub fn shape(name: &str, ranks: usize) -> Result<Option<Load>, LoadError> {
        let Some((known, _)) = SHAPES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) else {
            return Ok(None);
        };
        let at = |rank: usize| (rank as f64 + 0.5) / ranks as f64;
        let even = vec![1.0; ranks];
        // A part of the choices falls on the hot experts, the rest on all.
        let hot = |part: f64| -> Vec<f64> {
            (0..ranks).map(|rank| 1.0 - part + part * share_below(rank, ranks, HOT) / HOT).collect()
        };
        let (from, to): (Vec<f64>, Vec<f64>) = match *known {
            "W1" | "W2" | "W6" => (even, hot(0.75)),
            "W4" => ((0..ranks).map(|rank| 2.0 * at(rank)).collect(), even),
            "W5" => (even, (0..ranks).map(|rank| 2.0 * (1.0 - share_below(rank, ranks, 0.5))).collect()),
            "W7" => (even, hot(0.5)),
            _ => (even.clone(), even),
        };
        Load::of(known, &from, &to).map(Some)
    }

    /// Figures apart from each other by spaces, commas or lines: what each rank receives (or each expert, where all ranks have as
    /// many), or in a square what each rank sends (a line) to each.
    ///
    /// # Errors
    /// They are no amounts, or another number of them.
    pub fn read(name: &str, text: &str, ranks: usize) -> Result<Load, LoadError> {
        let words = text.split(|c: char| c.is_whitespace() || c == ',' || c == ';').filter(|word| !word.is_empty());
        let amount = |word: &str| {
            let amount = word.parse::<f64>().ok().filter(|amount| amount.is_finite() && *amount >= 0.0);
            amount.ok_or_else(|| LoadError::Figure(word.chars().take(20).collect()))
        };
        let figures = words.map(amount).collect::<Result<Vec<f64>, LoadError>>()?;
        match figures.len() {
            count if count == ranks * ranks && ranks > 1 => Load::new(name, ranks, figures),
            count if count > 0 && ranks > 0 && count.is_multiple_of(ranks) => {
                let to: Vec<f64> = figures.chunks(count / ranks).map(|experts| experts.iter().sum()).collect();
                Load::of(name, &vec![1.0; ranks], &to)
            }
            figures => Err(LoadError::Count { figures, ranks }),
        }
    }

    /// All senders alike but for how much, and receivers.
    fn of(name: &str, from: &[f64], to: &[f64]) -> Result<Load, LoadError> {
        check_ranks(from.len())?;
        Load::new(name, from.len(), from.iter().flat_map(|from| to.iter().map(move |to| from * to)).collect())
    }

    fn new(name: &str, ranks: usize, mut shares: Vec<f64>) -> Result<Load, LoadError> {
        check_ranks(ranks)?;
        let total: f64 = shares.iter().sum();
        if total <= 0.0 || !total.is_finite() {
            return Err(LoadError::Empty);
        }
        shares.iter_mut().for_each(|share| *share *= ranks as f64 / total);
        Ok(Load { name: name.to_owned(), ranks, shares })
    }

    /// Who is busiest, on a cluster of as many ranks.
    pub(crate) fn busiest(&self, cluster: &Cluster) -> Option<Busiest> {
        let even = Load::of("", &vec![1.0; self.ranks], &vec![1.0; self.ranks]).ok()?;
        let (sums, evens) = (Sums::of(self, cluster), Sums::of(&even, cluster));
        let rank = hottest(&sums.ranks)?;
        let nic = hottest(&sums.nics);
        Some(Busiest {
            load: self.name.clone(),
            rank: Hot { at: rank.at, direction: rank.direction, times_even: times(rank.amount, &evens.ranks) },
            nic: nic.filter(|_| cluster.domains() > 1).map(|nic| HotNic {
                nic: sums.port(nic.at, cluster),
                direction: nic.direction,
                times_even: times(nic.amount, &evens.nics),
            }),
            inside: times(hottest(&sums.inside).map_or(0.0, |inside| inside.amount), &evens.inside),
        })
    }
}

fn check_ranks(ranks: usize) -> Result<(), LoadError> {
    if ranks > Load::MOST_RANKS { Err(LoadError::TooManyRanks(ranks)) } else { Ok(()) }
}

/// How much of a rank's experts is below a part of all.
fn share_below(rank: usize, ranks: usize, part: f64) -> f64 {
    (part * ranks as f64 - rank as f64).clamp(0.0, 1.0)
}

/// The busiest of an exchange: it ends when these do.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Busiest {
    /// The shape's name, or the file's.
    pub load: String,
    /// The rank that sends or receives most.
    pub rank: Hot,
    /// The NIC that does, where NVLink domains are joined by NICs.
    pub nic: Option<HotNic>,
    /// The most that a GPU sends or receives inside its domain, over an even exchange.
    #[serde(skip)]
    pub(crate) inside: f64,
}

/// A rank, and how busy it is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Hot {
    /// The rank.
    #[serde(rename = "rank")]
    pub at: usize,
    /// What it does most of.
    pub direction: Direction,
    /// As a multiple of an even exchange.
    pub times_even: f64,
}

/// A NIC, and how busy it is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct HotNic {
    /// The node and the NIC, from 0; the first of those that serve one GPU.
    #[serde(flatten)]
    pub nic: PortOfNode,
    /// What it does most of.
    pub direction: Direction,
    /// As a multiple of an even exchange.
    pub times_even: f64,
}

/// A NIC of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PortOfNode {
    /// The node, from 0.
    pub node: u32,
    /// Its NIC, from 0.
    pub nic: u32,
}

impl From<Port> for PortOfNode {
    fn from(port: Port) -> Self {
        PortOfNode { node: port.node, nic: port.nic }
    }
}

/// Towards a rank or away from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Direction {
    Sends,
    Receives,
}

impl Direction {
    /// `sends`, `receives`.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Sends => "sends",
            Direction::Receives => "receives",
        }
    }
}

/// `rank 3, which receives 3.20 times an even share`.
impl fmt::Display for Hot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}, which {} {:.2} times an even share", self.at, self.direction.name(), self.times_even)
    }
}

impl fmt::Display for HotNic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PortOfNode { node, nic } = self.nic;
        write!(
            f,
            "NIC {nic} of node {node}, which {} {:.2} times an even share",
            self.direction.name(),
            self.times_even
        )
    }
}

/// What each rank and each NIC sends and receives.
struct Sums {
    ranks: [Vec<f64>; 2],
    inside: [Vec<f64>; 2],
    /// Groups of NICs that serve the same GPUs.
    nics: [Vec<f64>; 2],
    groups: usize,
}

impl Sums {
    fn of(load: &Load, cluster: &Cluster) -> Sums {
        let gpus = cluster.domain_gpus().max(1);
        let groups = gpus.min(cluster.domain_nics().max(1));
        let none = |count: usize| [vec![0.0; count], vec![0.0; count]];
        let mut sums =
            Sums { ranks: none(load.ranks), inside: none(load.ranks), nics: none(cluster.domains() * groups), groups };
        let group = |rank: usize| rank % gpus * groups / gpus;
        // A GPU hands data to the one that is near the receiver's rail (PXN).
        let on_rails = matches!(cluster.links, GpuLinks::NvSwitch { .. }) && groups == gpus;
        for (from, line) in load.shares.chunks(load.ranks.max(1)).enumerate() {
            for (to, share) in line.iter().enumerate().filter(|(to, _)| *to != from) {
                sums.ranks[0][from] += share;
                sums.ranks[1][to] += share;
                let (here, there) = (from / gpus, to / gpus);
                if here == there {
                    sums.inside[0][from] += share;
                    sums.inside[1][to] += share;
                } else {
                    let by = if on_rails { group(to) } else { group(from) };
                    sums.nics[0][here * groups + by] += share;
                    sums.nics[1][there * groups + group(to)] += share;
                }
            }
        }
        sums
    }

    /// The first NIC of a group.
    fn port(&self, at: usize, cluster: &Cluster) -> PortOfNode {
        let hosts = cluster.domain_gpus().div_ceil(cluster.gpus_per_node.max(1));
        let slot = at % self.groups * cluster.domain_nics() / self.groups.max(1);
        let each = cluster.nics.as_ref().map_or(1, |nics| nics.count.max(1));
        PortOfNode { node: (at / self.groups * hosts + slot / each) as u32, nic: (slot % each) as u32 }
    }
}

struct Peak {
    at: usize,
    direction: Direction,
    amount: f64,
}

/// The first of the busiest.
fn hottest(sums: &[Vec<f64>; 2]) -> Option<Peak> {
    let peak = |direction: Direction, amounts: &[f64]| {
        let first =
            amounts.iter().enumerate().reduce(|best, next| if *next.1 > *best.1 * SAME { next } else { best })?;
        Some(Peak { at: first.0, direction, amount: *first.1 })
    };
    let (sent, received) = (peak(Direction::Sends, &sums[0])?, peak(Direction::Receives, &sums[1])?);
    Some(if received.amount >= sent.amount / SAME { received } else { sent })
}

/// Amounts are sums of parts.
const SAME: f64 = 1.0 + 1e-9;

fn times(amount: f64, even: &[Vec<f64>; 2]) -> f64 {
    let even = hottest(even).map_or(0.0, |peak| peak.amount);
    if even > 0.0 { amount / even } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::parse;
    use crate::{predict, predict_load};
    use busbw_model::{Bytes, Collective};

    fn cluster(nodes: usize) -> Cluster {
        let text = format!(
            "nodes = {nodes}\ngpus_per_node = 8\ngpu = \"H100\"\nintra = \"nvlink4 NVSwitch\"\nnics_per_node = 8\n\
             nic_gbps = 400\ntransport = \"ib\"\n"
        );
        parse(&text).unwrap()
    }

    fn at(nodes: usize, load: &Load) -> (f64, String) {
        let rows = predict_load(&cluster(nodes), load, &[Bytes(1 << 30)]).rows;
        (rows[0].time.0, rows[0].bottleneck.clone())
    }

    #[test]
    fn an_even_load_takes_as_long_as_alltoall() {
        for nodes in [1, 2, 4] {
            let load = Load::shape("w0", 8 * nodes).unwrap().unwrap();
            let even = predict(&cluster(nodes), Collective::AllToAll, &[Bytes(1 << 30)]).rows[0].time;
            assert!((at(nodes, &load).0 / even.0 - 1.0).abs() < 1e-6, "{nodes} nodes");
        }
    }

    /// Megatron-LM counts 3.2 times the mean for W1 and W2, 2.0 for W5.
    #[test]
    fn shapes_are_as_hot_as_megatron_counts() {
        for (name, times, direction) in [
            ("W1", 3.25, "receives"),
            ("W2", 3.25, "receives"),
            ("W4", 1.9375, "sends"),
            ("W5", 2.0, "receives"),
            ("W7", 2.5, "receives"),
        ] {
            let busiest = Load::shape(name, 16).unwrap().unwrap().busiest(&cluster(2)).unwrap();
            assert!((busiest.rank.times_even - times).abs() < 0.01, "{name}: {busiest:?}");
            assert_eq!(busiest.rank.direction.name(), direction, "{name}");
        }
        assert_eq!(Load::shape("W9", 16), Ok(None));
    }

    #[test]
    fn the_hot_rank_sets_the_bound_and_is_named() {
        let mut to = vec!["1"; 16];
        to[11] = "4";
        let load = Load::read("tokens.txt", &to.join("\n"), 16).unwrap();
        let (even, hot) = (at(2, &Load::shape("W0", 16).unwrap().unwrap()), at(2, &load));
        let times = 4.0 * 16.0 / 19.0;
        assert!((hot.0 / even.0 / times - 1.0).abs() < 0.01, "{hot:?} {even:?}");
        assert!(hot.1.starts_with("NIC 3 of node 1, which receives 3.37 times"), "{hot:?}");
    }

    #[test]
    fn figures_per_rank_per_expert_and_per_pair_are_read() {
        let of_pairs = Load::read("x", "0 3\n1 0", 2).unwrap();
        assert_eq!(of_pairs.shares, [0.0, 1.5, 0.5, 0.0]);
        let of_experts = Load::read("x", "1, 0, 0, 1, 1, 1", 2).unwrap();
        assert_eq!(of_experts.shares, [0.25, 0.75, 0.25, 0.75]);
        let of_ranks = Load::read("x", "1 3", 2).unwrap();
        assert_eq!(of_ranks.shares, [0.25, 0.75, 0.25, 0.75]);
        for (text, error) in [
            ("1 2 3", "3 figures are no load of 2 ranks"),
            ("", "0 figures"),
            ("1 many", "\"many\" is no amount"),
            ("-1 2", "\"-1\" is no amount"),
            ("0 0", "the load is zero"),
        ] {
            let said = Load::read("x", text, 2).unwrap_err().to_string();
            assert!(said.starts_with(error), "{text}: {said}");
        }
        assert!(matches!(Load::shape("W2", 5000), Err(LoadError::TooManyRanks(5000))));
    }
}
