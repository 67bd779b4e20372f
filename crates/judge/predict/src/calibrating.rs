//! Finds the factors of a machine from tables of its own: the most likely ones, where published machines and tables of one
//! machine differ as they do.

use crate::Cluster;
use crate::calibration::{Calibrated, Calibration, MeasuredTable};
use crate::model::{Congestion, Constants, class, copies, predict_by};
use busbw_model::Bytes;

/// How far publishers' machines are from the model, as one standard deviation of each factor's logarithm: what one table says
/// of something that it hardly depends on does not move it. Publishers that a fit has not seen are 15% off at small sizes, which are
/// latency, and at middle ones, of which the ramp is a part (`predict-accuracy --left-out`).
const SPREADS: [f64; 4] = [0.15, 0.35, 0.06, 0.15];
/// The sizes (small, middle, large) that tell each factor. Latency is nearly all of a small message's time and a part of others', which
/// err for reasons of their own.
const TOLD_BY: [usize; 4] = [0, 1, 2, 2];
/// The same of bandwidths where data goes through the memory of hosts.
const SPREAD_OF_COPIES: f64 = 0.3;
/// How far tables of one machine are from each other beside what the factors say (small, middle and large sizes): the model
/// errs with a collective and a number of hosts, too, so that one table moves a factor part of the way, and several further. By the
/// tables of publishers that have several in the fit: 18, 6 and 11%, of few publishers.
const TABLES: [f64; 3] = [0.18, 0.1, 0.1];
/// Beyond this many deviations a row is an outlier, which counts by its distance and not by the square of that.
const OUTLIER: f64 = 2.0;

/// Fits the factors of a cluster on tables that were measured on it, or on fewer or more hosts of it. None where no table fits
/// the cluster.
pub fn calibrate(cluster: &Cluster, tables: &[MeasuredTable]) -> Option<Calibrated> {
    calibrate_with(Constants::built_in(), cluster, tables)
}

/// As [`calibrate`], with other constants: for measuring how well it does where the fit has not seen the machine.
pub fn calibrate_with(constants: &Constants, cluster: &Cluster, tables: &[MeasuredTable]) -> Option<Calibrated> {
    let measured = tables.iter().filter(|table| !table.rows.is_empty());
    let parts: Vec<Part> = measured.filter_map(|table| Part::of(constants, cluster, table)).collect();
    let spreads = spreads(cluster);
    let loss = |at: &[f64; 4], factor: usize| {
        let prior = (at[factor] / spreads[factor]).powi(2) / 2.0;
        let of = |part: &Part| part.loss(Calibration::of(at.map(f64::exp)), TOLD_BY[factor]);
        prior + parts.iter().map(of).sum::<f64>()
    };
    let first = parts.first()?.table.collective;
    let collective = parts.iter().all(|part| part.table.collective == first).then_some(first);
    let factors = Calibration { collective, ..Calibration::of(descend(spreads, loss).map(f64::exp)) };
    let error = |with: Calibration| {
        let mut off: Vec<f64> = parts.iter().flat_map(|part| part.deviations(with)).map(f64::abs).collect();
        off.sort_by(f64::total_cmp);
        off.get(off.len() / 2).map(|middle| middle.exp() - 1.0)
    };
    Some(Calibrated {
        factors,
        tables: parts.len(),
        rows: parts.iter().map(|part| part.table.rows.len()).sum(),
        error_before: error(Calibration::NONE)?,
        error_after: error(factors)?,
    })
}

/// A table, and as many hosts of the cluster as its ranks take.
struct Part<'a> {
    constants: &'a Constants,
    cluster: Cluster,
    congestion: Congestion,
    table: &'a MeasuredTable,
}

impl<'a> Part<'a> {
    fn of(constants: &'a Constants, cluster: &Cluster, table: &'a MeasuredTable) -> Option<Self> {
        let mut part = cluster.clone();
        let ranks = table.ranks;
        (part.nodes, part.gpus_per_node) = match cluster.gpus_per_node {
            gpus if ranks > gpus && ranks.is_multiple_of(gpus) => (ranks / gpus, gpus),
            gpus if ranks <= gpus && ranks > 0 => (1, ranks),
            _ => return None,
        };
        let possible = part.nodes == 1 || part.nics.is_some();
        possible.then(|| Part { constants, congestion: Congestion::of(&part), cluster: part, table })
    }

    /// How unlikely the rows of a class are, which share the table's error.
    fn loss(&self, calibration: Calibration, of: usize) -> f64 {
        let rows = self.deviations(calibration).into_iter().zip(&self.table.rows);
        let off: Vec<f64> = rows.filter(|(_, (size, _))| class(*size) == of).map(|(off, _)| off).collect();
        off.iter().map(|off| unlikely(off / TABLES[of])).sum::<f64>() / (off.len() as f64).max(1.0)
    }

    /// Logarithms of predicted over measured times.
    fn deviations(&self, calibration: Calibration) -> Vec<f64> {
        let MeasuredTable { collective, rows, .. } = self.table;
        let sizes: Vec<Bytes> = rows.iter().map(|(size, _)| *size).collect();
        let cluster = Cluster { calibration, ..self.cluster.clone() };
        let predicted = predict_by(self.constants, &self.congestion, &cluster, *collective, &sizes).rows;
        predicted.iter().zip(rows).map(|(row, (_, measured))| (row.time.0 / measured.0).ln()).collect()
    }
}

/// Half the square, and a line beyond [`OUTLIER`].
fn unlikely(deviations: f64) -> f64 {
    let far = deviations.abs();
    if far <= OUTLIER { far.powi(2) / 2.0 } else { OUTLIER * (far - OUTLIER / 2.0) }
}

fn spreads(cluster: &Cluster) -> [f64; 4] {
    let (inside, between) = copies(cluster);
    let mut spreads = SPREADS;
    for (spread, copied) in spreads[2..].iter_mut().zip([inside, between]) {
        *spread = if copied { SPREAD_OF_COPIES } else { *spread };
    }
    spreads
}

/// The least loss of each factor, by steps along one factor at a time.
fn descend(mut steps: [f64; 4], loss: impl Fn(&[f64; 4], usize) -> f64) -> [f64; 4] {
    const ROUNDS: usize = 24;
    let mut at = [0.0; 4];
    for _ in 0..ROUNDS {
        for factor in 0..at.len() {
            let here = at[factor];
            let mut best = loss(&at, factor);
            let better = [steps[factor], -steps[factor]].into_iter().any(|step| {
                at[factor] = here + step;
                let found = loss(&at, factor);
                let is_better = found < best;
                if is_better {
                    best = found;
                }
                is_better
            });
            if !better {
                at[factor] = here;
                steps[factor] *= 0.5;
            }
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::parse;
    use crate::{predict, predict_over};
    use busbw_model::{Collective, Micros};

    fn cluster() -> Cluster {
        parse("nodes = 4\ngpus_per_node = 8\ngpu = \"H100\"\nintra = \"nvlink4 NVSwitch\"\ntransport = \"ib\"\n")
            .unwrap()
    }

    fn table(cluster: &Cluster, collective: Collective, calibration: Calibration) -> MeasuredTable {
        let sizes: Vec<Bytes> = (10..34).map(|power| Bytes(1 << power)).collect();
        let rows = predict(&Cluster { calibration, ..cluster.clone() }, collective, &sizes).rows;
        let rows = rows.iter().map(|row| (row.size, row.time)).collect();
        MeasuredTable { collective, ranks: cluster.ranks(), rows }
    }

    #[test]
    fn a_machine_that_differs_is_found_and_predicts_other_collectives_and_scales() {
        let slow = Calibration { latency: 1.2, bandwidth_between: 0.85, ..Calibration::NONE };
        let (four, two) = (cluster(), Cluster { nodes: 2, ..cluster() });
        let one = table(&two, Collective::AllReduce, slow);
        let partly = calibrate(&four, std::slice::from_ref(&one)).unwrap();
        assert!(partly.error_before > 0.1 && partly.error_after < 0.7 * partly.error_before, "{partly:?}");
        let more = [Collective::AllGather, Collective::ReduceScatter, Collective::Broadcast];
        let tables: Vec<_> = more.into_iter().map(|more| table(&two, more, slow)).chain([one]).collect();
        let found = calibrate(&four, &tables).unwrap();
        assert!(found.error_after < 0.05 && found.factors.latency > partly.factors.latency, "{found:?}");
        for collective in [Collective::AllGather, Collective::ReduceScatter] {
            let expected = table(&four, collective, slow);
            let off = Part::of(Constants::built_in(), &four, &expected).unwrap().deviations(found.factors);
            assert!(off.iter().all(|off| off.abs() < 0.07), "{collective}: {off:?}");
        }
    }

    #[test]
    fn other_collectives_differ_less_than_the_one_that_was_measured() {
        let slow = Calibration { latency: 1.4, ..Calibration::NONE };
        let found = calibrate(&cluster(), &[table(&cluster(), Collective::AllGather, slow)]).unwrap().factors;
        assert_eq!(found.collective, Some(Collective::AllGather));
        assert_eq!(found.of_collective(Collective::ReduceScatter), found);
        let other = found.of_collective(Collective::AllToAll).latency;
        assert!(other > 1.0 && other < found.latency, "{other} of {found:?}");
    }

    #[test]
    fn what_the_tables_do_not_depend_on_stays() {
        let slow = Calibration { latency: 1.4, ..Calibration::NONE };
        let found = calibrate(&cluster(), &[table(&cluster(), Collective::AllReduce, slow)]).unwrap();
        assert_eq!(found.factors.bandwidth_inside, 1.0, "{found:?}");
    }

    #[test]
    fn a_fabric_is_the_same_for_all_calibrations_and_algorithms_and_for_no_other_wiring() {
        let text = "nodes = 4\ngpus_per_node = 8\ngpu = \"H100\"\nnics_per_node = 8\nnic_gbps = 400\n\
                    intra = \"nvlink4 NVSwitch\"\ntransport = \"roce\"\n";
        let mut wired = parse(text).unwrap();
        let uplinks = crate::cluster::Uplinks { count: 1, rate: busbw_model::GBps(50.0) };
        wired.fabric.wiring = crate::cluster::Wiring::HostToSwitch { between: uplinks };
        let congestion = Congestion::of(&wired);
        let mut other = Cluster { calibration: Calibration { latency: 2.0, ..Calibration::NONE }, ..wired.clone() };
        other.environment.insert("NCCL_ALGO".into(), "Ring".into());
        assert!(congestion.is_of(&other));
        let fresh = predict(&other, Collective::AllReduce, &[Bytes(1 << 33)]);
        assert!(fresh.fabric.is_some());
        assert_eq!(predict_over(&congestion, &other, Collective::AllReduce, &[Bytes(1 << 33)]), fresh);
        assert!(!congestion.is_of(&Cluster { nodes: 3, ..other.clone() }));
        other.environment.insert("NCCL_MIN_NCHANNELS".into(), "64".into());
        assert!(!congestion.is_of(&other));
    }

    #[test]
    fn tables_of_another_cluster_are_refused() {
        let other = MeasuredTable { collective: Collective::AllReduce, ranks: 12, rows: vec![(Bytes(8), Micros(1.0))] };
        assert_eq!(calibrate(&cluster(), &[other]), None);
        assert_eq!(calibrate(&cluster(), &[]), None);
    }
}
