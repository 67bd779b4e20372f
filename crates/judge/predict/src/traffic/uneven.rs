//! The flows of an exchange between all ranks that is not even: every rank sends to every other at once.

use super::{Domains, Flow, Flows, Pattern, Traffic, check_size};
use crate::cluster::Cluster;
use crate::load::Rails;
use crate::simulation::SimulationError;
use busbw_model::{Load, Sums};
use std::sync::Arc;

impl Traffic {
    /// The flows of a load on a cluster of as many ranks, as NCCL sends them: by the NIC near the sender, or, where GPUs reach each
    /// other through NVSwitches and each has a NIC, by that on the receiver's rail (PXN). The algbw that busbw is made of is
    /// what a rank sends in the mean, over the time.
    ///
    /// # Errors
    /// The load has other ranks than the cluster, there are several nodes but no NICs, or too many flows.
    pub fn of_load(load: &Arc<Load>, cluster: &Cluster) -> Result<Traffic, SimulationError> {
        if load.ranks() != cluster.ranks() {
            return Err(SimulationError::LoadOfOthers { load: load.ranks(), ranks: cluster.ranks() });
        }
        let (domains, rails) = (Domains::of(cluster)?, Rails::of(cluster));
        check_size(domains.count.checked_mul(domains.count).and_then(|pairs| pairs.checked_mul(domains.slots)))?;
        // busbw is (n - 1) / n of algbw.
        let ranks = load.ranks() as f64;
        let per_busbw = if ranks > 1.0 { ranks / (ranks - 1.0) } else { 1.0 };
        let (mut flows, mut nvlink) = (Flows::default(), Sums::none(load.ranks()));
        for (from, to, share) in load.pairs().filter(|(.., share)| *share > 0.0) {
            let (here, there) = (rails.domain(from), rails.domain(to));
            if here == there {
                nvlink.add(from, to, share * per_busbw);
                continue;
            }
            let by = rails.leaves_by(from, to);
            if by != rails.near(from) {
                // The last domain may have fewer GPUs.
                let relay = (here * rails.gpus + by).min(load.ranks() - 1);
                nvlink.add(from, relay, share * per_busbw);
            }
            let nics = domains.slots / rails.groups;
            for nic in 0..nics {
                let port =
                    |domain: usize, group: usize| domains.port(domain, group * domains.slots / rails.groups + nic);
                let (from, to) = (port(here, by), port(there, rails.near(to)));
                flows.add(Flow { from, to, share: share * per_busbw / nics as f64, connections: 1 });
            }
        }
        let gpu_load = nvlink.peak().map_or(0.0, |busiest| busiest.amount);
        let assumptions = vec!["All ranks send to all others at once, as much as the load says.".to_owned()];
        Ok(Traffic {
            pattern: Pattern::Exchange,
            flows: flows.list,
            gpu_load,
            load: Some(Arc::clone(load)),
            assumptions,
        })
    }
}
