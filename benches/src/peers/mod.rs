//! The benchmark of collectives: busbw beside Open MPI, MPICH and Gloo, in turn, on the same sizes.

mod plan;
mod program;
mod report;
mod scenario;
mod turn;

pub use plan::{Plan, Step};
pub use program::{Kit, Program};
pub use report::{Report, markdown, summary};
pub use scenario::{Case, Contestant, Goal, RunsOn, SCENARIOS, cases};
pub use turn::Times;

use crate::busy::Busy;
use crate::program::Outcome;
use std::collections::BTreeMap;

/// What a case's contestants took: for each of them and each size, one time per repetition.
#[derive(Debug)]
pub struct Measured {
    pub case: Case,
    /// The iterations that each contestant ran.
    pub plan: Plan,
    /// Times in µs, by contestant and size, in the order of the repetitions.
    pub times_us: Vec<BTreeMap<u64, Vec<f64>>>,
}

/// Measures one case: a short turn of everybody from which the number of iterations follows, then `repetitions` rounds.
/// Every round begins with another contestant, so that nobody always runs behind the same one.
pub fn measure(case: Case, kit: &Kit, repetitions: usize, mut progress: impl FnMut(&str)) -> Outcome<Measured> {
    let labs = case.labs(&kit.root)?;
    let busy = Busy::per_core(case.busy);
    let run = |contestant: &Contestant, plan: &[Step]| turn::take(contestant, &case, plan, kit, &labs);
    progress(&format!("{}: pilot", case.name()));
    let pilot = Plan::pilot(&case);
    let guesses: Vec<Times> = case
        .contestants
        .iter()
        .enumerate()
        .map(|(index, contestant)| run(contestant, pilot.of(index)))
        .collect::<Result<_, _>>()?;
    let plan = Plan::new(&case, &guesses);
    let mut times_us = vec![BTreeMap::<u64, Vec<f64>>::new(); case.contestants.len()];
    for repetition in 0..repetitions {
        progress(&format!("{}: repetition {} of {repetitions}", case.name(), repetition + 1));
        for turn in 0..case.contestants.len() {
            let index = (turn + repetition) % case.contestants.len();
            for (size, time_us) in run(&case.contestants[index], plan.of(index))? {
                times_us[index].entry(size).or_default().push(time_us);
            }
        }
    }
    drop((labs, busy));
    Ok(Measured { case, plan, times_us })
}
