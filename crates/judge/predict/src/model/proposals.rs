//! Where another algorithm should be faster than NCCL's own choice: what is worth measuring.

use super::candidates::{self, Candidate};
use super::figures::Figures;
use super::{Constants, band, limit, timing, tuning};
use crate::Cluster;
use busbw_model::{Algorithm, Bytes, Collective, TunedChoice, TuningTable};

/// Gains below this, in percent, are no reason to measure: two runs of one binary on one machine differ by as much.
const LEAST_GAIN: f64 = 5.0;

/// The sizes at which the model expects another algorithm or protocol to be faster than the one that NCCL would choose, as a table of
/// predicted choices. Nothing follows those: a prediction is no measurement. Each has the gain between the
/// worst and the best that the model's error allows, which mostly holds zero.
pub fn proposals(cluster: &Cluster, collective: Collective, sizes: &[Bytes]) -> TuningTable {
    let figures = Figures::of(cluster, Constants::built_in());
    let candidates = candidates::of(&figures, cluster, collective);
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    sizes.dedup();
    let proposed = sizes.iter().map(|size| (*size, proposal(&figures, collective, &candidates, *size)));
    let middle = |index: usize| TuningTable::middle(sizes[index], sizes[index + 1]);
    TuningTable::of_sizes(&proposed.collect::<Vec<_>>(), middle)
}

fn proposal(figures: &Figures, collective: Collective, candidates: &[Candidate], size: Bytes) -> Option<TunedChoice> {
    let time = |candidate: &Candidate| {
        let limit = limit::of(figures, collective, candidate.algorithm).algbw.0;
        let least = if limit > 0.0 { size.0 as f64 / limit / 1e3 } else { 0.0 };
        timing::estimate(figures, collective, *candidate, size, None).total().max(least)
    };
    let nccls = time(&tuning::choose(figures, collective, candidates, size));
    let (fastest, best) = candidates.iter().map(|c| (time(c), c)).min_by(|(a, _), (b, _)| a.total_cmp(b))?;
    let gain = |factor: f64| (1.0 - factor * fastest / nccls) * 100.0;
    let error = band::of(figures, size);
    let number = |count: usize| u32::try_from(count).ok();
    // NCCL asks no tuner about sends and receives.
    let is_asked = best.algorithm != Algorithm::PointToPoint;
    (is_asked && gain(1.0) >= LEAST_GAIN).then(|| TunedChoice {
        collective,
        from: size,
        to: size,
        ranks: number(figures.ranks),
        nodes: number(figures.cluster.nodes),
        operations: None,
        registered: None,
        algorithm: best.algorithm.name().to_owned(),
        protocol: Some(best.protocol),
        channels: None,
        chunk: None,
        gain_percent: Some([gain(error.slowest / error.fastest), gain(error.fastest / error.slowest)]),
        predicted: true,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::hgx;
    use super::*;
    use crate::cluster::{Generation, NetTransport};

    fn all_reduce(cluster: &Cluster) -> TuningTable {
        let sizes: Vec<Bytes> = (3..34).map(|power| Bytes(1 << power)).collect();
        proposals(cluster, Collective::AllReduce, &sizes)
    }

    #[test]
    fn a_proposal_is_predicted_faster_than_nccls_choice_and_followed_by_nothing() {
        let cluster = hgx(Generation::Hopper, 4, 8, 400.0, NetTransport::InfiniBand);
        let table = all_reduce(&cluster);
        assert!(!table.choices.is_empty());
        for choice in &table.choices {
            let [least, most] = choice.gain_percent.unwrap();
            assert!(most >= LEAST_GAIN && least < most, "{choice:?}");
            assert!(choice.predicted && !choice.is_proven() && choice.is_of(32, 4), "{choice:?}");
            let nccls = super::super::predict(&cluster, Collective::AllReduce, &[choice.from]).rows.remove(0);
            assert_ne!((nccls.algorithm.name(), Some(nccls.protocol)), (&*choice.algorithm, choice.protocol));
        }
    }

    #[test]
    fn where_one_algorithm_is_allowed_nothing_is_proposed() {
        let mut cluster = hgx(Generation::Hopper, 4, 8, 400.0, NetTransport::InfiniBand);
        for (name, value) in [("NCCL_ALGO", "Ring"), ("NCCL_PROTO", "Simple")] {
            cluster.environment.insert(name.into(), value.into());
        }
        assert_eq!(all_reduce(&cluster), TuningTable::default());
    }
}
