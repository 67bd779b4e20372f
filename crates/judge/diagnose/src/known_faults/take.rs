//! The version to take: the smallest change that leaves no known hang and no wrong results.

use super::situation::Situation;
use super::{releases, unknown};
use crate::known_faults::table::Fault;
use busbw_model::{BestVersion, Component, Exposure, KnownFault, Version};
use std::collections::BTreeSet;

/// For each component with a hang or wrong results here, the version to take, where one helps.
pub(super) fn best(known: &Situation, table: &[Fault], faults: &[KnownFault]) -> Vec<BestVersion> {
    let grave = |fault: &&KnownFault| fault.exposure != Exposure::CannotKnow && fault.consequence.is_grave();
    let grave = faults.iter().filter(|fault| grave(fault) || fault.exposure == Exposure::HitYou);
    let in_need: BTreeSet<(Component, &Version)> = grave.map(|fault| (fault.component, &fault.version)).collect();
    in_need.into_iter().filter_map(|(component, now)| of_component(known, table, component, now)).collect()
}

fn of_component(known: &Situation, table: &[Fault], component: Component, now: &Version) -> Option<BestVersion> {
    let can = |version: &Version| -> Vec<&Fault> {
        let here = table.iter().filter(|fault| fault.component == component && fault.affects(version));
        here.filter(|fault| unknown(known, fault, version).is_some_and(|unknown| unknown.is_empty())).collect()
    };
    let grave = |version: &Version| can(version).iter().filter(|fault| fault.consequence.is_grave()).count();
    // Of releases with as few, the first one: min_by_key takes the first of equals.
    let take =
        releases(table, component).into_iter().filter(|version| *version > now).min_by_key(|version| grave(version))?;
    let (before, after) = (can(now), can(take));
    let ids = |of: &[&Fault], not_in: &[&Fault]| -> Vec<String> {
        of.iter()
            .filter(|fault| not_in.iter().all(|other| other.id != fault.id))
            .map(|fault| fault.id.clone())
            .collect()
    };
    let leaves = after.iter().filter(|fault| fault.consequence.is_grave()).map(|fault| fault.id.clone()).collect();
    let best = BestVersion {
        component,
        now: now.clone(),
        take: take.clone(),
        ends: ids(&before, &after),
        brings: ids(&after, &before),
        leaves,
    };
    (grave(take) < grave(now)).then_some(best)
}
