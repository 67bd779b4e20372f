//! What runs with other algorithms prove against a run with NCCL's own choices: a tuning table.

use super::measured::Measured;
use super::{CONFIDENCE, CompareError, Subject, Wanted, differences};
use crate::space::Setting;
use crate::tuning_table::{BySize, Timed, algorithm, test};
use busbw_model::{DifferenceKind, TuningTable};
use std::collections::BTreeMap;

/// What a tuning table can say of a run.
const CHOSEN: [&str; 4] = ["NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"];
/// Variables with this in their name change what is printed, and no time that counts here.
const TOLD: &str = "NCCL_DEBUG";
/// Whether runs are repetitions of one test apart from what [`CHOSEN`] says: other differences could be the reason for a gain.
const HARMLESS: [&str; 1] = ["iterations"];

/// Why runs prove nothing about algorithms. Every message says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    #[error(transparent)]
    Compare(#[from] CompareError),
    /// A gain over it would not be one over NCCL's own choice.
    #[error(
        "{name}: runs with {setting}, so that a gain over it is none over the default; name a run first that leaves the choice open"
    )]
    FirstChooses { name: String, setting: String },
    #[error(
        "{name}: nothing in it says by which algorithm it ran; keep NCCL's log (NCCL_DEBUG=INFO) or the command line, which have NCCL_ALGO and NCCL_PROTO"
    )]
    ChoosesNothing { name: String },
    /// The gain may have another cause.
    #[error(
        "{name}: differs from {first} in {what} too, which may be why it is faster or slower; compare runs that differ in NCCL_ALGO and NCCL_PROTO only"
    )]
    Otherwise { name: String, first: String, what: String },
    #[error(
        "{name}: has no number of ranks, without which a tuning table cannot say where it holds; give the whole output of the run"
    )]
    Unplaced { name: String },
}

/// The sizes at which one of the others is faster than the first for sure, which left the choice of the algorithm open.
///
/// # Errors
/// A run does not say by which algorithm it went, or the runs differ in more than that.
pub fn tuning_table(subjects: &[Subject], wanted: Wanted) -> Result<TuningTable, ProofError> {
    let measured: Vec<Measured> =
        subjects.iter().map(|subject| Measured::of(subject, wanted.collective)).collect::<Result<_, _>>()?;
    let [first, others @ ..] = measured.as_slice() else { return Err(CompareError::OnlyOne.into()) };
    let settings: Vec<Setting> = measured.iter().map(setting).collect();
    let name = |run: &Measured| run.name().to_owned();
    if !settings[0].is_default() {
        return Err(ProofError::FirstChooses { name: name(first), setting: settings[0].name() });
    }
    for (other, setting) in others.iter().zip(&settings[1..]) {
        if algorithm(setting).is_none() {
            return Err(ProofError::ChoosesNothing { name: name(other) });
        }
        if let Some(what) = other_difference(first, other, wanted)? {
            return Err(ProofError::Otherwise { name: name(other), first: name(first), what });
        }
    }
    let Some(test) = test(first.table()) else { return Err(ProofError::Unplaced { name: name(first) }) };
    let times =
        |size| measured.iter().map(move |run| run.each_time(size)).enumerate().filter(|(_, each)| !each.is_empty());
    let by_size: BySize = first.sizes().map(|size| (size, times(size).collect::<BTreeMap<_, _>>())).collect();
    Ok(Timed { test, by_size: &by_size, settings: &settings, default: 0, confidence: CONFIDENCE }.table())
}

/// What a run's log or command line says of its choice.
fn setting(run: &Measured) -> Setting {
    let value = |name: &str| Some((name.to_owned(), run.subject.run.nccl.env_value(name)?.value.trim().to_owned()));
    Setting { assignments: CHOSEN.into_iter().filter_map(value).collect() }
}

/// In what else two runs differ, if anything.
fn other_difference(first: &Measured, other: &Measured, wanted: Wanted) -> Result<Option<String>, CompareError> {
    super::comparable(first, other)?;
    let pair = [first, other].map(|run| Measured::of(run.subject, wanted.collective));
    let [Ok(a), Ok(b)] = pair else { return Ok(None) };
    let counts = |difference: &busbw_model::Difference| match difference.kind {
        DifferenceKind::Variable => !CHOSEN.contains(&&*difference.name) && !difference.name.starts_with(TOLD),
        _ => !HARMLESS.contains(&&*difference.name),
    };
    Ok(differences::between(&[a, b]).into_iter().find(counts).map(|difference| difference.name))
}
