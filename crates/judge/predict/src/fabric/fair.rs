//! Max-min fair rates by progressive filling.
//!
//! All flows grow together, each by its weight. When a link is full, its flows stop there and the others grow on
//! (Bertsekas, Gallager: "Data Networks", 1992, 6.5.2). Links wait in a heap by the water level at which they will be full,
//! so that filling takes n log n steps for n uses of links by flows.

use super::LinkId;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A flow to be given a rate.
#[derive(Debug, Clone)]
pub struct Demand {
    /// What it gets of a link compared with others: its queue pairs, or the bytes that it carries.
    pub weight: f64,
    /// The most that it can take, GB/s; infinite where nothing but links limits it.
    pub limit: f64,
    /// The links it uses, each once, with the part of it that they carry: 1 for a flow on one path.
    pub uses: Vec<(LinkId, f64)>,
}

/// Rates of `flows` over links with the rates `links`. Flows that nothing limits get an infinite rate.
pub fn fair_rates(links: &[f64], flows: &[Demand]) -> Vec<f64> {
    Filling::new(links, flows).fill()
}

struct Filling<'a> {
    flows: &'a [Demand],
    /// Flows over each link.
    users: Vec<Vec<u32>>,
    /// What a link has left for flows that still grow, and the weight of these.
    left: Vec<(f64, f64)>,
    rates: Vec<Option<f64>>,
    heap: BinaryHeap<Event>,
}

/// Something that stops flows.
#[derive(Debug, Clone, Copy)]
struct Event {
    level: f64,
    what: Stopper,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stopper {
    Limit(u32),
    Full(LinkId),
}

impl<'a> Filling<'a> {
    fn new(links: &[f64], flows: &'a [Demand]) -> Self {
        let mut users = vec![Vec::new(); links.len()];
        let mut left: Vec<(f64, f64)> = links.iter().map(|&rate| (rate, 0.0)).collect();
        for (number, flow) in (0u32..).zip(flows) {
            for &(link, part) in &flow.uses {
                users[link as usize].push(number);
                left[link as usize].1 += flow.weight * part;
            }
        }
        let mut filling = Filling { flows, users, left, rates: vec![None; flows.len()], heap: BinaryHeap::new() };
        (0..links.len() as LinkId).for_each(|link| filling.expect(link));
        for (number, flow) in (0u32..).zip(flows).filter(|(_, flow)| flow.limit.is_finite()) {
            filling.heap.push(Event { level: flow.limit / flow.weight, what: Stopper::Limit(number) });
        }
        filling
    }

    /// Puts the level at which a link will be full into the heap.
    fn expect(&mut self, link: LinkId) {
        let (left, weight) = self.left[link as usize];
        if weight > 0.0 {
            self.heap.push(Event { level: left.max(0.0) / weight, what: Stopper::Full(link) });
        }
    }

    fn fill(mut self) -> Vec<f64> {
        while let Some(Event { level, what }) = self.heap.pop() {
            match what {
                Stopper::Limit(flow) => self.stop(flow, level, None),
                Stopper::Full(link) if self.is_due(link, level) => {
                    for flow in std::mem::take(&mut self.users[link as usize]) {
                        self.stop(flow, level, Some(link));
                    }
                    self.left[link as usize] = (0.0, 0.0);
                }
                // Flows have stopped elsewhere since, so it fills later: it is in the heap again.
                Stopper::Full(_) => (),
            }
        }
        self.rates.into_iter().map(|rate| rate.unwrap_or(f64::INFINITY)).collect()
    }

    fn is_due(&self, link: LinkId, level: f64) -> bool {
        let (left, weight) = self.left[link as usize];
        weight > 0.0 && left.max(0.0) / weight <= level
    }

    /// Fixes the rate of a flow, and tells its links but the one that stops it.
    fn stop(&mut self, flow: u32, level: f64, full: Option<LinkId>) {
        let Some(rate @ None) = self.rates.get_mut(flow as usize) else { return };
        let demand = &self.flows[flow as usize];
        *rate = Some(level * demand.weight);
        for &(link, part) in demand.uses.iter().filter(|(link, _)| Some(*link) != full) {
            let (left, weight) = &mut self.left[link as usize];
            *left -= level * demand.weight * part;
            *weight -= demand.weight * part;
            // Subtracting the shares one by one leaves a rounding error instead of zero; treat it as zero.
            if *weight < demand.weight * part * 1e-9 {
                *weight = 0.0;
            }
            self.expect(link);
        }
    }
}

impl Ord for Event {
    /// The lowest level is the greatest, because a heap gives the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.level.total_cmp(&self.level).then(other.what.cmp(&self.what))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn flow(weight: f64, limit: f64, links: &[LinkId]) -> Demand {
        Demand { weight, limit, uses: links.iter().map(|&link| (link, 1.0)).collect() }
    }

    #[test]
    fn rates_are_fair() {
        const NONE: f64 = f64::INFINITY;
        type Case<'a> = (&'a str, &'a [f64], Vec<Demand>, &'a [f64]);
        let cases: &[Case] = &[
            ("alone", &[10.0], vec![flow(1.0, NONE, &[0])], &[10.0]),
            ("shared", &[10.0], vec![flow(1.0, NONE, &[0]), flow(1.0, NONE, &[0])], &[5.0, 5.0]),
            ("by weight", &[10.0], vec![flow(4.0, NONE, &[0]), flow(1.0, NONE, &[0])], &[8.0, 2.0]),
            ("limited", &[10.0], vec![flow(1.0, 2.0, &[0]), flow(1.0, NONE, &[0])], &[2.0, 8.0]),
            (
                // The textbook's chain: the long flow is held back by the narrow link, the rest goes to the others.
                "chain",
                &[10.0, 4.0],
                vec![flow(1.0, NONE, &[0, 1]), flow(1.0, NONE, &[0]), flow(1.0, NONE, &[1])],
                &[2.0, 8.0, 2.0],
            ),
            ("no link", &[10.0], vec![flow(1.0, NONE, &[]), flow(1.0, 3.0, &[])], &[NONE, 3.0]),
            (
                "spread",
                &[10.0, 10.0],
                vec![
                    Demand { weight: 1.0, limit: NONE, uses: vec![(0, 0.5), (1, 0.5)] },
                    Demand { weight: 1.0, limit: NONE, uses: vec![(1, 1.0)] },
                ],
                &[20.0 / 3.0, 20.0 / 3.0],
            ),
        ];
        for (name, links, flows, expected) in cases {
            let rates = fair_rates(links, flows);
            let same =
                rates.iter().zip(*expected).all(|(rate, wanted)| rate == wanted || (rate - wanted).abs() < 1e-12);
            assert!(same && rates.len() == expected.len(), "{name}: {rates:?}, expected {expected:?}");
        }
    }

    fn any_case() -> impl Strategy<Value = (Vec<f64>, Vec<Demand>)> {
        let links = prop::collection::vec(0.1..100.0f64, 1..8);
        links.prop_flat_map(|links| {
            let count = links.len() as LinkId;
            let uses = prop::collection::btree_map(0..count, 0.05..1.0f64, 1..=links.len().min(4));
            let flow = (0.1..10.0f64, prop_oneof![Just(f64::INFINITY), 0.1..50.0f64], uses)
                .prop_map(|(weight, limit, uses)| Demand { weight, limit, uses: uses.into_iter().collect() });
            (Just(links), prop::collection::vec(flow, 1..12))
        })
    }

    proptest! {
        #[test]
        fn no_link_carries_more_than_its_rate((links, flows) in any_case()) {
            let rates = fair_rates(&links, &flows);
            for (link, rate) in (0..).zip(&links) {
                let carried: f64 = flows.iter().zip(&rates)
                    .flat_map(|(flow, rate)| flow.uses.iter().filter(|u| u.0 == link).map(move |u| u.1 * rate)).sum();
                prop_assert!(carried <= rate * (1.0 + 1e-9), "link {link}: {carried} of {rate}");
            }
        }

        /// What makes rates max-min fair: every flow is at its limit, or on a full link where none gets more for its weight.
        #[test]
        fn every_flow_has_a_bottleneck((links, flows) in any_case()) {
            let rates = fair_rates(&links, &flows);
            let level = |n: usize| rates[n] / flows[n].weight;
            for (n, flow) in flows.iter().enumerate() {
                let held_back = flow.uses.iter().any(|&(link, _)| {
                    let users = || (0..flows.len()).filter_map(|m| Some((m, flows[m].uses.iter().find(|u| u.0 == link)?.1)));
                    let carried: f64 = users().map(|(m, part)| part * rates[m]).sum();
                    let full = carried >= links[link as usize] * (1.0 - 1e-9);
                    full && users().all(|(m, _)| level(m) <= level(n) * (1.0 + 1e-9))
                });
                let at_limit = rates[n] >= flow.limit * (1.0 - 1e-9);
                prop_assert!(held_back || at_limit, "flow {n} of {rates:?}");
                prop_assert!(rates[n] <= flow.limit * (1.0 + 1e-9));
            }
        }
    }
}
