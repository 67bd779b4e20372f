//! Which algorithm an operation goes by: `NCCL_ALGO` or `--algo`, else a tuning table, else by size and layout.

use super::Layout;
use busbw_model::{Bytes, Collective, TunedOperation, TuningTable};
use std::fmt;
use std::sync::Arc;

/// How the ranks carry out a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Algorithm {
    /// Around a ring, or along a chain from or to the root, in chunks.
    Ring,
    /// Double binary tree, in chunks.
    Tree,
    /// Recursive doubling or halving, and binomial trees: few steps, for small and middle sizes.
    Doubling,
    /// Within the hosts, between the hosts, within the hosts.
    TwoLevel,
    Pairwise,
    /// Within one host, on each other's buffers.
    Direct,
}

impl Algorithm {
    const ALL: [Algorithm; 6] = [
        Algorithm::Ring,
        Algorithm::Tree,
        Algorithm::Doubling,
        Algorithm::TwoLevel,
        Algorithm::Pairwise,
        Algorithm::Direct,
    ];

    /// The name by which it is chosen.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Ring => "ring",
            Algorithm::Tree => "tree",
            Algorithm::Doubling => "doubling",
            Algorithm::TwoLevel => "twolevel",
            Algorithm::Pairwise => "pairwise",
            Algorithm::Direct => "direct",
        }
    }

    /// Whether [`super::run`] carries it out.
    pub(super) fn is_over_mesh(self) -> bool {
        !matches!(self, Algorithm::TwoLevel | Algorithm::Direct)
    }

    /// The name of the algorithm with this number, as events have it.
    pub fn name_of(number: u8) -> Option<&'static str> {
        Self::ALL.get(usize::from(number)).map(|algorithm| algorithm.name())
    }

    fn from_name(name: &str) -> Option<Self> {
        let plain: String = name.chars().filter(|c| !matches!(c, '-' | '_')).collect::<String>().to_ascii_lowercase();
        match plain.as_str() {
            "2d" => Some(Algorithm::TwoLevel),
            plain => Self::ALL.into_iter().find(|algorithm| algorithm.name() == plain),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The names of `algorithms`, separated by commas.
pub(super) fn names(algorithms: impl IntoIterator<Item = Algorithm>) -> String {
    algorithms.into_iter().map(Algorithm::name).collect::<Vec<_>>().join(", ")
}

/// Algorithms of NCCL that need what only GPUs, NVSwitches or switches have. Source: NCCL's
/// documentation of `NCCL_ALGO`.
const ONLY_GPU: [&str; 5] = ["collnetdirect", "collnetchain", "nvls", "nvlstree", "pat"];

/// Which algorithms may be used.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Choice {
    all: Option<List>,
    per_collective: Vec<(Collective, List)>,
    /// What holds where no list does.
    table: Option<Arc<TuningTable>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct List {
    excludes: bool,
    algorithms: Vec<Algorithm>,
}

impl List {
    fn allows(&self, algorithm: Algorithm) -> bool {
        self.algorithms.contains(&algorithm) != self.excludes
    }
}

impl Choice {
    /// The same, with a tuning table. All ranks must have the same one.
    pub fn with_table(self, table: Option<Arc<TuningTable>>) -> Self {
        Choice { table, ..self }
    }

    /// What holds for `collective`: its own list, else the one for all.
    fn list(&self, collective: Collective) -> Option<&List> {
        let own = self.per_collective.iter().rev().find(|(of, _)| *of == collective);
        own.map(|(_, list)| list).or(self.all.as_ref())
    }
}

/// Reads `NCCL_ALGO` or `--algo`: names in any case and order, `Ring,Tree`, those to leave out, `^Tree`, and lists for single
/// collectives after the one for all, `ring;allreduce:tree;broadcast:^doubling` (since NCCL 2.24). An empty text leaves the
/// choice to busbw. The error says what is wrong, and what there is.
pub fn parse(text: &str) -> Result<Choice, String> {
    let mut choice = Choice::default();
    for (number, part) in text.split(';').map(str::trim).enumerate() {
        match part.split_once(':') {
            Some((name, list)) => {
                let collective = Collective::from_name(name.trim()).ok_or_else(|| {
                    let known = Collective::ALL.map(|collective| collective.name()).join(", ");
                    format!("\"{}\" in \"{text}\" is no collective; there are {known}", name.trim())
                })?;
                choice.per_collective.push((collective, parse_list(list, text)?));
            }
            None if part.is_empty() => {}
            None if number == 0 => choice.all = Some(parse_list(part, text)?),
            None => return Err(format!("\"{part}\" in \"{text}\" needs its collective before it: allreduce:{part}")),
        }
    }
    Ok(choice)
}

fn parse_list(list: &str, text: &str) -> Result<List, String> {
    let list = list.trim();
    let excludes = list.starts_with('^');
    let mut algorithms = Vec::new();
    for name in list.trim_start_matches('^').split(',').map(str::trim) {
        let known = names(Algorithm::ALL);
        match Algorithm::from_name(name) {
            Some(algorithm) => algorithms.push(algorithm),
            // Leaving out what is not there changes nothing.
            None if is_only_gpu(name) && excludes => {}
            None if is_only_gpu(name) => {
                return Err(format!("\"{name}\" needs GPUs and NCCL: use --backend nccl, or one of {known}"));
            }
            None => return Err(format!("\"{name}\" in \"{text}\" is no algorithm; there are {known}")),
        }
    }
    Ok(List { excludes, algorithms })
}

fn is_only_gpu(name: &str) -> bool {
    ONLY_GPU.contains(&name.to_ascii_lowercase().as_str())
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub algorithm: Algorithm,
    /// Why that is not what was asked for, where it is not.
    pub note: Option<String>,
}

/// The algorithms that `collective` has, whatever the layout.
pub(super) fn algorithms(collective: Collective) -> &'static [Algorithm] {
    use Algorithm::{Direct, Doubling, Pairwise, Ring, Tree, TwoLevel};
    match collective {
        Collective::AllReduce | Collective::Broadcast | Collective::Reduce => &[Ring, Tree, Doubling, TwoLevel, Direct],
        Collective::AllGather => &[Ring, Doubling, TwoLevel, Direct],
        Collective::ReduceScatter => &[Ring, Pairwise, TwoLevel, Direct],
        Collective::HyperCube => &[Doubling, Direct],
        Collective::Gather | Collective::Scatter => &[Pairwise, Doubling, Direct],
        Collective::AllToAll | Collective::AllToAllV | Collective::SendRecv => &[Pairwise, Direct],
    }
}

/// Whether `algorithm` can carry out `collective` on ranks laid out like this.
fn is_possible(algorithm: Algorithm, collective: Collective, layout: &Layout) -> bool {
    algorithms(collective).contains(&algorithm)
        && match algorithm {
            Algorithm::Direct => layout.hosts() == 1,
            Algorithm::TwoLevel => {
                let in_blocks = matches!(collective, Collective::AllGather | Collective::ReduceScatter);
                layout.has_two_levels() && (!in_blocks || layout.is_by_host())
            }
            _ => true,
        }
}

/// The algorithm for `collective` on `bytes` bytes (those of [`crate::Operation::bytes`]; of the largest pair for
/// all-to-all-v): the best by size and layout among those that `choice` allows.
pub(crate) fn choose(collective: Collective, bytes: usize, layout: &Layout, choice: &Choice) -> Chosen {
    let order = preferences(collective, bytes, layout);
    let possible = || order.iter().copied().filter(|algorithm| is_possible(*algorithm, collective, layout));
    // Every collective has an algorithm that is always possible.
    let default = possible().next().unwrap_or(Algorithm::Pairwise);
    let Some(list) = choice.list(collective) else {
        let tuned = choice.table.as_ref().and_then(|table| tuned(table, collective, bytes, layout));
        let tuned = tuned.filter(|algorithm| is_possible(*algorithm, collective, layout));
        return Chosen { algorithm: tuned.unwrap_or(default), note: None };
    };
    match possible().find(|algorithm| list.allows(*algorithm)) {
        Some(algorithm) => Chosen { algorithm, note: None },
        None => {
            let asked = if list.excludes { "what is left" } else { &names(list.algorithms.iter().copied()) };
            let note = format!(
                "{} does not go by {asked} on {} ranks of {} hosts; {default} is used (possible: {})",
                collective.name(),
                layout.ranks(),
                layout.hosts(),
                names(possible())
            );
            Chosen { algorithm: default, note: Some(note) }
        }
    }
}

/// What a tuning table has for an operation; `None` where it has nothing, or an algorithm of NCCL's only.
fn tuned(table: &TuningTable, collective: Collective, bytes: usize, layout: &Layout) -> Option<Algorithm> {
    // Tables have nccl-tests' sizes: the larger of a rank's two buffers.
    let parts = match collective {
        Collective::AllGather | Collective::ReduceScatter => layout.ranks(),
        _ => 1,
    };
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let (_, choice) = table.choose(&TunedOperation {
        collective,
        size: Bytes(bytes.saturating_mul(parts) as u64),
        ranks: number(layout.ranks()),
        nodes: number(layout.hosts()),
        operations: 1,
        registered: false,
    })?;
    Algorithm::from_name(&choice.algorithm)
}

/// All algorithms of `collective`, the best first. `bytes` as in [`choose`].
fn preferences(collective: Collective, bytes: usize, layout: &Layout) -> Vec<Algorithm> {
    use Algorithm::{Direct, Doubling, Pairwise, Ring, Tree, TwoLevel};
    let ranks = layout.ranks();
    let (small, middle) = (64 << 10, 1 << 20);
    let between = match collective {
        // Two ranks exchange whole vectors; a ring takes two steps, but each moves half.
        Collective::AllReduce if ranks == 2 && bytes <= small => vec![Doubling, Ring, Tree],
        Collective::AllReduce if ranks == 2 => vec![Ring, Doubling, Tree],
        Collective::AllReduce if bytes <= middle && (ranks.is_power_of_two() || bytes <= small) => {
            vec![Doubling, Tree, Ring]
        }
        // A ring's steps grow with the ranks, a tree's with their logarithm.
        Collective::AllReduce if bytes < ranks * small => vec![Tree, Ring, Doubling],
        Collective::AllReduce => vec![Ring, Tree, Doubling],
        Collective::AllGather if bytes.saturating_mul(ranks) <= small && ranks > 2 => vec![Doubling, Ring],
        Collective::AllGather => vec![Ring, Doubling],
        Collective::ReduceScatter if bytes <= small / 4 && ranks <= 16 => vec![Pairwise, Ring],
        Collective::ReduceScatter => vec![Ring, Pairwise],
        Collective::Broadcast | Collective::Reduce if bytes <= small => vec![Doubling, Tree, Ring],
        Collective::Broadcast | Collective::Reduce if bytes < ranks * 2 * small => vec![Tree, Ring, Doubling],
        Collective::Broadcast | Collective::Reduce => vec![Ring, Tree, Doubling],
        Collective::Gather | Collective::Scatter if ranks > 8 && bytes <= small / 16 => vec![Doubling, Pairwise],
        Collective::Gather | Collective::Scatter => vec![Pairwise, Doubling],
        Collective::HyperCube => vec![Doubling],
        Collective::AllToAll | Collective::AllToAllV | Collective::SendRecv => vec![Pairwise],
    };
    [Direct, TwoLevel].into_iter().chain(between).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(hosts: usize, per_host: usize) -> Layout {
        Layout::new(&(0..hosts * per_host).map(|rank| rank / per_host).collect::<Vec<_>>())
    }

    #[test]
    fn reads_nccls_syntax() {
        // The text, and what is then used for a large all-reduce, a large broadcast, a large all-gather on two hosts.
        let cases = [
            ("", ["ring", "ring", "ring"]),
            ("Tree", ["tree", "tree", "ring"]),
            ("RING,tree", ["ring", "ring", "ring"]),
            ("^ring", ["doubling", "tree", "doubling"]),
            ("^Ring,NVLS", ["doubling", "tree", "doubling"]),
            ("allreduce:tree;broadcast:ring", ["tree", "ring", "ring"]),
            ("doubling;all_reduce:tree", ["tree", "doubling", "doubling"]),
            (" ring ; AllReduce : ^ring,doubling ", ["tree", "ring", "ring"]),
            ("allreduce:tree;allreduce:ring", ["ring", "ring", "ring"]),
        ];
        for (text, expected) in cases {
            let choice = parse(text).unwrap();
            let used = [Collective::AllReduce, Collective::Broadcast, Collective::AllGather]
                .map(|collective| choose(collective, 64 << 20, &layout(2, 1), &choice).algorithm.name());
            assert_eq!(used, expected, "{text:?}");
        }
    }

    #[test]
    fn refuses_what_there_is_not() {
        let cases = [
            ("rng", "\"rng\" in \"rng\" is no algorithm; there are ring, tree, doubling, twolevel, pairwise, direct"),
            ("Ring,NVLSTree", "\"NVLSTree\" needs GPUs and NCCL: use --backend nccl, or one of ring, tree, doubling"),
            (
                "reduceall:ring",
                "\"reduceall\" in \"reduceall:ring\" is no collective; there are all_reduce, all_gather",
            ),
            ("ring;tree", "\"tree\" in \"ring;tree\" needs its collective before it: allreduce:tree"),
            ("ring,", "\"\" in \"ring,\" is no algorithm"),
            ("allreduce:", "\"\" in \"allreduce:\" is no algorithm"),
        ];
        for (text, expected) in cases {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn chooses_by_layout() {
        let free = Choice::default();
        let cases = [
            (layout(1, 4), Collective::AllReduce, Algorithm::Direct),
            (layout(2, 2), Collective::AllReduce, Algorithm::TwoLevel),
            (layout(2, 2), Collective::AllToAll, Algorithm::Pairwise),
            (layout(3, 1), Collective::AllReduce, Algorithm::Ring),
            (Layout::new(&[0, 0, 1]), Collective::AllReduce, Algorithm::Ring),
            (Layout::new(&[0, 1, 0, 1]), Collective::AllGather, Algorithm::Ring),
            (Layout::new(&[0, 1, 0, 1]), Collective::AllReduce, Algorithm::TwoLevel),
        ];
        for (layout, collective, expected) in cases {
            let chosen = choose(collective, 64 << 20, &layout, &free);
            assert_eq!(chosen, Chosen { algorithm: expected, note: None }, "{layout:?} {collective:?}");
        }
    }

    #[test]
    fn says_when_the_forced_algorithm_is_impossible() {
        let chosen = choose(Collective::AllGather, 1 << 20, &layout(2, 1), &parse("tree").unwrap());
        assert_eq!(chosen.algorithm, Algorithm::Ring);
        let note = "all_gather does not go by tree on 2 ranks of 2 hosts; ring is used (possible: ring, doubling)";
        assert_eq!(chosen.note.as_deref(), Some(note));
    }

    #[test]
    fn a_tuning_table_holds_where_nothing_is_asked_for() {
        let text = "all_gather,0,65536,doubling,simple,-1,2,4\nall_gather,65537,131072,tree,simple,-1,-1,-1\n";
        let table = Arc::new(TuningTable::parse(text).unwrap());
        let at = |asked: &str, bytes: usize, layout: &Layout| {
            let choice = parse(asked).unwrap().with_table(Some(Arc::clone(&table)));
            choose(Collective::AllGather, bytes, layout, &choice).algorithm
        };
        // 64 KiB are 16 KiB of each of four ranks; a tree gathers nothing, and on one host the table has no choice.
        assert_eq!(at("", 16 << 10, &layout(2, 2)), Algorithm::Doubling);
        assert_eq!(at("", 17 << 10, &layout(2, 2)), Algorithm::TwoLevel);
        assert_eq!(at("", 16 << 10, &layout(1, 4)), Algorithm::Direct);
        assert_eq!(at("ring", 16 << 10, &layout(2, 2)), Algorithm::Ring);
    }

    #[test]
    fn every_collective_has_a_default_that_is_possible() {
        for collective in Collective::ALL {
            for layout in [layout(1, 1), layout(1, 3), layout(5, 1), layout(2, 3), Layout::new(&[0, 1, 1])] {
                for bytes in [0, 8, 1 << 14, 1 << 17, 1 << 21, 1 << 30] {
                    let chosen = choose(collective, bytes, &layout, &Choice::default());
                    assert!(is_possible(chosen.algorithm, collective, &layout), "{collective:?} {layout:?} {bytes}");
                }
            }
        }
    }
}
