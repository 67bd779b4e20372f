//! How a table stands against each cluster that it may have been measured on, and what follows.

use crate::case::Test;
use crate::curve::median;
use busbw_model::{Bytes, Collective};
use busbw_predict::{Cluster, Congestion, PredictionRow, predict_over};
use std::rc::Rc;

/// A cluster that fits the input, and what it should have reached.
pub(super) struct Hypothesis {
    pub cluster: Cluster,
    /// What the switches leave, simulated once.
    pub congestion: Rc<Congestion>,
    pub largest: PredictionRow,
    /// Measured over predicted busbw where bandwidth counts: the median over the sizes of the curve's tail.
    pub reached: f64,
    /// The same of rings, where NCCL may have taken trees or these.
    pub of_rings: Option<f64>,
    pub fit: Fit,
}

/// Below this size bandwidth still grows, and the model is less sure (docs/prediction.md).
const SETTLED: Bytes = Bytes(128 << 20);

/// From here on rings are sound where trees may be faster: half of what trees give is further off.
const NEAR_TREES: f64 = 0.75;

/// How a measured figure lies to what a cluster should reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// More than it can: it was another cluster.
    Above,
    /// As a sound run.
    Within,
    /// Sound runs and slow ones are both found here.
    Between,
    /// As a run with which something is wrong.
    Below,
}

/// What the switches of each cluster leave: tables of one cluster share it.
#[derive(Default)]
pub(super) struct Congestions(Vec<Rc<Congestion>>);

impl Congestions {
    fn of(&mut self, cluster: &Cluster) -> Rc<Congestion> {
        if let Some(known) = self.0.iter().find(|known| known.is_of(cluster)) {
            return Rc::clone(known);
        }
        let new = Rc::new(Congestion::of(cluster));
        self.0.push(Rc::clone(&new));
        new
    }
}

impl Hypothesis {
    pub fn of(test: &Test, collective: Collective, cluster: Cluster, known: &mut Congestions) -> Option<Self> {
        let congestion = known.of(&cluster);
        let last = &test.curve.tail;
        let sizes: Vec<Bytes> = last.iter().map(|(size, _)| *size).collect();
        let share_of = |predicted: &[PredictionRow]| {
            let shares = last.iter().zip(predicted).map(|((_, measured), row)| measured.0 / row.busbw.0);
            median(shares.filter(|share| share.is_finite()).collect())
        };
        let predict = |cluster: &Cluster| predict_over(&congestion, cluster, collective, &sizes).rows;
        let predicted = predict(&cluster);
        let reached = share_of(&predicted)?;
        let mut reach = cluster.reach();
        if test.curve.largest < SETTLED {
            reach.slow *= 0.8;
        }
        let largest = predicted.into_iter().next_back()?;
        // Nobody chooses the seed of a hash: any that is usual is as it should be.
        if let Some((slow, fast)) = largest.over_seeds {
            reach.sound *= slow.0 / largest.busbw.0;
            reach.slow *= slow.0 / largest.busbw.0;
            reach.above *= fast.0 / largest.busbw.0;
        }
        let of_rings = ringed(&cluster).and_then(|rings| share_of(&predict(&rings)));
        let fit = match reached {
            _ if reached > reach.above => Fit::Above,
            _ if reached >= reach.sound => Fit::Within,
            _ if reached >= reach.slow.max(NEAR_TREES) && of_rings.is_some_and(|rings| rings >= reach.sound) => {
                Fit::Within
            }
            _ if reached < reach.slow && of_rings.is_none_or(|rings| rings < reach.slow) => Fit::Below,
            _ => Fit::Between,
        };
        Some(Hypothesis { cluster, congestion, largest, reached, of_rings, fit })
    }

    /// From what is expected, as a factor, either way.
    pub fn distance(&self) -> f64 {
        self.reached.ln().abs()
    }
}

/// Between two hosts trees carry twice what rings do, and versions of NCCL differ in which they take: rings are no fault.
fn ringed(cluster: &Cluster) -> Option<Cluster> {
    let free = cluster.domains() == 2 && !cluster.environment.contains_key("NCCL_ALGO");
    free.then(|| {
        let mut ringed = cluster.clone();
        ringed.environment.insert("NCCL_ALGO".into(), "Ring".into());
        ringed
    })
}
