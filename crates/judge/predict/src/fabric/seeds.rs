//! The loads of links under many hash seeds.
//!
//! A collective ends with its slowest flow, and in max-min fair filling with flows weighted by what they carry the slowest
//! are those on the link with the least rate for its load: the first water level. So a seed takes one pass over the flows and
//! one over the links that these touch. Tests hold it against filling all links (`fair`, `routes`).

use super::hash::FlowHash;
use super::{FlowEnds, LinkId, Network};
use std::num::NonZero;
use std::ops::Range;

/// A flow that chooses its way as one.
#[derive(Debug, Clone, Copy)]
pub struct Hashed {
    pub journey: FlowEnds,
    /// What the hash knows it by.
    pub identity: u64,
    /// Bytes per byte of busbw.
    pub share: f64,
}

impl Hashed {
    /// Stream number `stream` of flow number `flow`.
    pub fn new(journey: FlowEnds, flow: u32, stream: u32, share: f64) -> Self {
        Hashed { journey, identity: u64::from(flow) << 32 | u64::from(stream), share }
    }

    /// The number of the flow that it is a part of.
    #[cfg(test)]
    pub fn flow(&self) -> usize {
        (self.identity >> 32) as usize
    }
}

/// What the links carried under some seeds.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// The busbw that the fabric alone allows, per seed; infinite where no flow touches a link.
    pub levels: Vec<f64>,
    /// Per link; empty if no seed was counted.
    pub links: Vec<LinkTally>,
}

/// What one link carried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkTally {
    /// Flows, summed over seeds.
    pub flows: u64,
    /// The most flows under any seed.
    pub most: u32,
    pub decided: u32,
}

/// Links whose levels differ by less decide together.
pub const SAME: f64 = 1e-9;

/// Counts the seeds `0..seeds` on up to `threads` threads. A link decides where it allows no more than `ceiling` and no
/// other link allows less. The result does not depend on the number of threads.
pub fn tally(network: &Network, flows: &[Hashed], seeds: u32, ceiling: f64, threads: NonZero<usize>) -> Tally {
    let threads = threads_worth(threads, flows.len(), seeds);
    let part = seeds.div_ceil(threads).max(1);
    // Flows that start at the same switch touch the same links; those that end there too touch none.
    let mut flows: Vec<Hashed> = flows.iter().filter(|flow| flow.journey.from != flow.journey.to).copied().collect();
    flows.sort_by_key(|flow| (flow.journey.from, flow.journey.to));
    let flows = flows.as_slice();
    let count = |range: Range<u32>| Counter::new(network, flows, ceiling).count(flows, range);
    let starts = (0..seeds).step_by(part as usize);
    let ranges: Vec<Range<u32>> = starts.map(|start| start..start.saturating_add(part).min(seeds)).collect();
    if let [range] = ranges.as_slice() {
        return count(range.clone());
    }
    std::thread::scope(|scope| {
        let counting: Vec<_> = ranges.iter().map(|range| scope.spawn(|| count(range.clone()))).collect();
        let parts = ranges.iter().zip(counting);
        // Repeat the work of a thread that panicked, so that the caller gets the same panic.
        parts.fold(Tally::default(), |sum, (range, part)| sum.and(part.join().unwrap_or_else(|_| count(range.clone()))))
    })
}

/// A thread is worth starting for a few hundred thousand steps.
fn threads_worth(most: NonZero<usize>, flows: usize, seeds: u32) -> u32 {
    const STEPS: u64 = 1 << 18;
    let worth = (flows as u64).saturating_mul(u64::from(seeds)) / STEPS;
    worth.clamp(1, most.get() as u64) as u32
}

impl Tally {
    fn and(mut self, later: Tally) -> Tally {
        self.levels.extend(later.levels);
        if self.links.is_empty() {
            self.links = later.links;
            return self;
        }
        for (sum, more) in self.links.iter_mut().zip(later.links) {
            sum.flows += more.flows;
            sum.most = sum.most.max(more.most);
            sum.decided += more.decided;
        }
        self
    }
}

/// One thread's buffers, used again for every seed.
struct Counter<'a> {
    network: &'a Network,
    ceiling: f64,
    loads: Loads,
    /// Links that carry anything under the seed at hand.
    touched: Vec<LinkId>,
    /// Links that hold the slowest flow back.
    deciding: Vec<LinkId>,
    tally: Tally,
}

/// What links carry under the seed at hand. Most runs have flows of one size, and then counting them is enough: a fabric of
/// 65,536 GPUs fits a core's cache.
struct Loads {
    flows: Vec<u32>,
    shares: Shares,
}

enum Shares {
    /// Each flow's.
    Alike(f64),
    /// Each link's sum.
    Differ(Vec<f64>),
}

impl Loads {
    fn new(links: usize, flows: &[Hashed]) -> Self {
        let first = flows.first().map_or(0.0, |flow| flow.share);
        let alike = flows.iter().all(|flow| flow.share == first);
        let shares = if alike { Shares::Alike(first) } else { Shares::Differ(vec![0.0; links]) };
        Loads { flows: vec![0; links], shares }
    }

    /// Adds a flow to a link; says whether it is the first.
    fn add(&mut self, link: LinkId, share: f64) -> bool {
        let flows = &mut self.flows[link as usize];
        *flows += 1;
        if let Shares::Differ(shares) = &mut self.shares {
            shares[link as usize] += share;
        }
        *flows == 1
    }

    /// Takes the flows of a link and what they carry together.
    fn take(&mut self, link: LinkId) -> (u32, f64) {
        let flows = std::mem::take(&mut self.flows[link as usize]);
        let share = match &mut self.shares {
            Shares::Alike(share) => f64::from(flows) * *share,
            Shares::Differ(shares) => std::mem::take(&mut shares[link as usize]),
        };
        (flows, share)
    }
}

impl<'a> Counter<'a> {
    fn new(network: &'a Network, flows: &[Hashed], ceiling: f64) -> Self {
        let links = network.links();
        Counter {
            network,
            ceiling,
            loads: Loads::new(links, flows),
            touched: Vec::new(),
            deciding: Vec::new(),
            tally: Tally { levels: Vec::new(), links: vec![LinkTally::default(); links] },
        }
    }

    fn count(mut self, flows: &[Hashed], seeds: Range<u32>) -> Tally {
        for seed in seeds {
            for flow in flows {
                self.route(flow, u64::from(seed));
            }
            self.conclude();
        }
        self.tally
    }

    fn route(&mut self, flow: &Hashed, seed: u64) {
        let choose = FlowHash::new(seed, flow.identity).choices();
        let (loads, touched) = (&mut self.loads, &mut self.touched);
        let take = |link: LinkId| {
            if loads.add(link, flow.share) {
                touched.push(link);
            }
        };
        self.network.walk(flow.journey, choose, take);
    }

    fn conclude(&mut self) {
        self.order_touched();
        let mut least = f64::INFINITY;
        for &link in &self.touched {
            let (flows, share) = self.loads.take(link);
            let tally = &mut self.tally.links[link as usize];
            tally.flows += u64::from(flows);
            tally.most = tally.most.max(flows);
            let level = self.network.rate(link) / share;
            if level < least * (1.0 - SAME) {
                self.deciding.clear();
            }
            if level <= least * (1.0 + SAME) {
                self.deciding.push(link);
            }
            least = least.min(level);
        }
        self.touched.clear();
        for link in self.deciding.drain(..) {
            self.tally.links[link as usize].decided += u32::from(least <= self.ceiling * (1.0 + SAME));
        }
        self.tally.levels.push(least);
    }

    /// Where many links are touched, going through them in their order is faster than in that of the flows.
    fn order_touched(&mut self) {
        let links = self.loads.flows.len();
        if self.touched.len() > links / 16 {
            self.touched.clear();
            let flows = (0..).zip(&self.loads.flows);
            self.touched.extend(flows.filter(|(_, flows)| **flows > 0).map(|(link, _)| link));
        }
    }
}
