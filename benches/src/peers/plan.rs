//! How many iterations: enough for a measurement that lasts, the same for everybody, but not without end.

use super::scenario::Case;
use super::turn::Times;

/// How long the fastest contestant's measurement of one size is to last, in µs.
const LASTS_US: f64 = 30_000.0;
/// No contestant's measurement of one size is to last longer, in µs, unless it is of [`FEWEST`] iterations. MPICH with
/// more ranks than cores takes milliseconds for 8 bytes.
const LONGEST_US: f64 = 100_000.0;
const FEWEST: u64 = 3;
const MOST: u64 = 200_000;

/// One size of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Size in bytes.
    pub size: u64,
    /// Timed iterations.
    pub iterations: u64,
    /// Iterations before.
    pub warmup: u64,
}

/// The turns of a case's contestants.
#[derive(Debug, Clone)]
pub struct Plan {
    steps: Vec<Vec<Step>>,
}

impl Plan {
    /// A first turn for everybody that is short even for a slow one.
    pub fn pilot(case: &Case) -> Self {
        let step = |&size: &u64| Step { size, iterations: (4_000_000 / (size + 20_000)).max(1), warmup: 1 };
        let steps: Vec<Step> = case.sizes.iter().map(step).collect();
        Plan { steps: vec![steps; case.contestants.len()] }
    }

    /// The turns that follow from what a pilot turn of each contestant took.
    pub fn new(case: &Case, pilot: &[Times]) -> Self {
        let steps = pilot.iter().map(|own| {
            let step = |&size: &u64| {
                let fastest = pilot.iter().filter_map(|times| times.get(&size)).copied().fold(f64::INFINITY, f64::min);
                let own = own.get(&size).copied().unwrap_or(fastest);
                let iterations = iterations(fastest).min(longest(own));
                Step { size, iterations, warmup: warmup(iterations) }
            };
            case.sizes.iter().map(step).collect()
        });
        Plan { steps: steps.collect() }
    }

    /// The turn of a contestant.
    pub fn of(&self, contestant: usize) -> &[Step] {
        &self.steps[contestant]
    }

    /// Whether a contestant runs fewer iterations of a size than another, because it would take too long.
    pub fn is_cut(&self, contestant: usize, size: u64) -> bool {
        let iterations = |steps: &[Step]| steps.iter().find(|step| step.size == size).map(|step| step.iterations);
        let own = iterations(&self.steps[contestant]);
        self.steps.iter().any(|steps| iterations(steps) > own)
    }
}

fn iterations(fastest_us: f64) -> u64 {
    // A float that is out of range becomes the nearest u64.
    ((LASTS_US / fastest_us).ceil() as u64).clamp(FEWEST, MOST)
}

/// Sockets' windows grow for some dozens of messages. Peers measure all sizes in one job, and come to the next with windows that have grown;
/// busbw has a job for each.
fn warmup(iterations: u64) -> u64 {
    (iterations / 10).clamp(100, 1000).min(iterations)
}

fn longest(own_us: f64) -> u64 {
    ((LONGEST_US / own_us).ceil() as u64).max(FEWEST)
}

#[cfg(test)]
mod tests {
    use super::super::program::Program;
    use super::super::scenario::cases;
    use super::*;

    #[test]
    fn everybody_does_the_same_unless_it_would_take_too_long() {
        let case = &cases("shm-4", &[Program::OpenMpi, Program::Mpich, Program::Gloo])[0];
        let times = |small: f64, large: f64| {
            case.sizes.iter().map(|&size| (size, if size < 1 << 20 { small } else { large })).collect::<Times>()
        };
        let plan = Plan::new(case, &[times(10.0, 1e6), times(5_000.0, 1e6), times(20.0, 1e6)]);
        let first = |contestant: usize| plan.of(contestant)[0];
        assert_eq!(first(0), Step { size: 8, iterations: 3000, warmup: 300 });
        assert_eq!(first(1), Step { size: 8, iterations: 20, warmup: 20 });
        assert_eq!(first(2), first(0));
        assert_eq!((plan.is_cut(0, 8), plan.is_cut(1, 8)), (false, true));
        let last = |contestant: usize| plan.of(contestant)[11];
        assert_eq!(last(1), Step { size: 256 << 20, iterations: FEWEST, warmup: FEWEST });
        assert_eq!(last(0), last(1));
    }

    #[test]
    fn a_time_of_nothing_is_no_endless_measurement() {
        assert_eq!(iterations(0.0), MOST);
        assert_eq!(iterations(f64::INFINITY), FEWEST);
    }
}
