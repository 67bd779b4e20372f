//! Which releases the tables are about, and whether a version is near any of them.

use super::situation::Situation;
use super::table::Fault;
use busbw_model::{Component, KnownFact, Version};
use std::collections::BTreeSet;

/// The releases that tables name of a component, the oldest first.
pub(super) fn releases(table: &[Fault], component: Component) -> BTreeSet<&Version> {
    let of = table.iter().filter(|fault| fault.component == component);
    of.flat_map(|fault| fault.first.iter().chain(&fault.last).chain(fault.fixed.all())).collect()
}

/// The oldest and the newest of them.
fn ends(table: &[Fault], component: Component) -> Option<(&Version, &Version)> {
    let releases = releases(table, component);
    Some((*releases.first()?, *releases.last()?))
}

/// The versions in use that are older or newer than all releases that the tables name: nothing is looked up for them.
pub(super) fn not_covered(known: &Situation, table: &[Fault]) -> Vec<KnownFact> {
    let of_one = |component: Component| {
        let ends = ends(table, component);
        let is_within = |version: &&Version| {
            ends.is_some_and(|(oldest, newest)| {
                (oldest..=newest).contains(version) || version.is_of_branch(newest) || version.is_of_branch(oldest)
            })
        };
        let outside = known.of(component)?.iter().filter(|version| !is_within(version));
        let values: Vec<String> = outside.map(Version::to_string).collect();
        (!values.is_empty()).then(|| KnownFact { what: component.name().to_owned(), values })
    };
    Component::ALL.into_iter().filter_map(of_one).collect()
}

/// Refuses a version that no release of its component can be, such as NCCL 28.9 or 0.
///
/// # Errors
/// What a version of the component looks like.
///
/// ```
/// use busbw_diagnose::known_faults::{all, check_plausible};
/// use busbw_model::Component;
/// assert!(check_plausible(Component::Nccl, &"2.28.9".parse()?, all()).is_ok());
/// let error = check_plausible(Component::Nccl, &"28.9".parse()?, all()).unwrap_err();
/// assert!(error.starts_with("NCCL has no release like 28.9; write one as 2."), "{error}");
/// # Ok::<(), String>(())
/// ```
pub fn check_plausible(component: Component, version: &Version, table: &[Fault]) -> Result<(), String> {
    let Some((oldest, newest)) = ends(table, component) else { return Ok(()) };
    // Numbers of firmware differ from device to device.
    let is_far = component != Component::Firmware
        && (version.major() > 2 * newest.major() + 2 || version.major() * 10 < oldest.major());
    if is_far || version.is_zero() {
        let title = component.title();
        return Err(format!(
            "{title} has no release like {version}; write one as {newest} (the tables name {oldest} to {newest})"
        ));
    }
    Ok(())
}
