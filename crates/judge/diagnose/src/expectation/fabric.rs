//! Congestion between switches, compared with a simulation: how many flows must have met on one link, how likely that is
//! under a fair hash, and what another wiring would give.

use super::Prospect;
use busbw_model::{Code, Finding, GBps, Gain};
use busbw_predict::cluster::{Uplinks, Wiring};
use busbw_predict::{Cluster, Options, Simulation, Traffic, WhatIf, simulate};
use std::fmt::Write;
use std::num::NonZero;

/// Enough for shares of one in a hundred.
const SEEDS: NonZero<u32> = NonZero::new(4096).unwrap();
/// A measured figure is taken for a simulated one within this.
const SAME: f64 = 0.06;

/// The run's own rings on the fabric, as it is and with NICs cabled by rail.
struct Trial {
    cluster: Cluster,
    /// The fabric was described, not assumed.
    described: bool,
    flows_per_direction: usize,
    as_wired: Simulation,
    by_rail: Simulation,
}

/// Adds to a finding of congestion what a simulation of the run's rings says.
pub(super) fn deepen(finding: &mut Finding, prospects: &[Prospect]) {
    if finding.code != Code::FabricCongestion {
        return;
    }
    let Some((prospect, trial)) = prospects.iter().find_map(|prospect| Some((prospect, Trial::of(prospect)?))) else {
        return;
    };
    let curve = &prospect.test.curve;
    let last = curve.fall.as_ref().map_or(curve.plateau, |fall| fall.last);
    finding.explanation.push_str(&trial.words(curve.peak, last));
    let to = trial.by_rail.busbw.p50;
    finding.expected_gain = Some(Gain {
        from_busbw: last,
        to_busbw: (GBps(to.0 * 0.95), to),
        basis: format!(
            "simulated: the same {} channels with NICs cabled by rail, every flow with a NIC's rate of its own",
            trial.channels(prospect)
        ),
    });
}

impl Trial {
    fn of(prospect: &Prospect) -> Option<Trial> {
        let comm = prospect.test.comm?;
        let mut cluster = prospect.cluster().clone();
        let nic = cluster.nics.as_ref()?.rate;
        let traffic = Traffic::of_communicator(comm, &cluster).ok()?;
        let first = traffic.flows.first()?;
        let direction = |flow: &busbw_predict::Flow| (flow.from.node, flow.to.node);
        let mut pairs: Vec<_> = traffic
            .flows
            .iter()
            .filter(|flow| direction(flow) == direction(first))
            .map(|flow| (flow.from, flow.to))
            .collect();
        pairs.sort_unstable();
        pairs.dedup();
        let described = prospect.described && cluster.fabric.wiring != Wiring::SingleSwitch;
        if !described {
            // As many links between two switches as flows: enough for all, if each took its own.
            cluster.fabric.wiring = Wiring::HostToSwitch { between: Uplinks { count: pairs.len(), rate: nic } };
        }
        let options = Options { seeds: SEEDS, ..Options::default() };
        let as_wired = simulate(&cluster, &traffic, &options).ok()?;
        let rails = WhatIf::RailOptimised.apply(&cluster).ok()?;
        let by_rail = simulate(&rails, &WhatIf::RailOptimised.traffic(&traffic, &rails).ok()?, &options).ok()?;
        Some(Trial { cluster, described, flows_per_direction: pairs.len(), as_wired, by_rail })
    }

    fn channels(&self, prospect: &Prospect) -> usize {
        prospect.test.comm.map_or(0, |comm| comm.channels.len())
    }

    /// What a link between switches delivers to all its flows together.
    fn one_link(&self) -> GBps {
        self.as_wired.links.iter().map(|link| link.rate).max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or(GBps(f64::NAN))
    }

    fn words(&self, peak: GBps, last: GBps) -> String {
        let rate = self.cluster.nics.as_ref().map_or(0.0, |nics| nics.rate.gbit_per_s());
        let flows = self.flows_per_direction;
        let links = match &self.cluster.fabric.wiring {
            Wiring::HostToSwitch { between } => between.count,
            _ => flows,
        };
        let given = if self.described {
            "Simulated".to_owned()
        } else {
            format!(
                "No description of the fabric was given (--cluster). With NICs of {rate:.0} Gbit/s and {links} such links between \
                 the switches, simulated"
            )
        };
        let spread = &self.as_wired.busbw;
        let mut text = format!(
            "\n\n{given} over {SEEDS} hash seeds, the same rings reach {:.0} to {:.0} GB/s (p5 to p95), {:.0} in the median; every \
             flow has a link of its own in {:.1}% of them.",
            spread.p5.0,
            spread.p95.0,
            spread.p50.0,
            100.0 * (1.0 - self.as_wired.share_at_most(GBps(self.as_wired.unshared.0 * (1.0 - SAME))))
        );
        if flows > 1 && links > 1 && (peak.0 / self.one_link().0 - 1.0).abs() < SAME {
            let _ = write!(
                text,
                " The measured peak, {peak}, is what one single {rate:.0} Gbit/s link carries ({:.1} GB/s of payload): all {flows} \
                 flows of a direction were on the same link. A fair hash does that for a direction once in {} times, so this \
                 hash is polarised (each switch hashes alike, or on fields that these flows have in common) or sees too \
                 little that differs between flows.",
                self.one_link().0,
                links.pow((flows - 1).min(12) as u32)
            );
        }
        if last.0 < 0.9 * peak.0 {
            let _ = write!(
                text,
                " The further fall from {peak} to {last} is congestion itself (pauses, ECN marks, loss and what senders make of \
                 them), which a model of fairly shared links does not include."
            );
        }
        let _ = write!(text, " Cabled by rail, the same rings reach {:.0} GB/s.", self.by_rail.busbw.p50.0);
        text
    }
}
