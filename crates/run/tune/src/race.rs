//! Which settings run next, and when enough is known.
//!
//! Settings race in rounds. All run in the first; in the second the better half, so that there are repetitions to tell noise
//! from difference; the reference, to which all are compared in the end, is among them however it did. From then on the
//! leader runs with the settings that the test has not yet told from it: a setting is out when it is worse at the stated
//! confidence, and settled when the leader is at that confidence at most a tolerance worse than it. The race is over when
//! nothing is open, or when rounds or trials are spent.
//!
//! Trials are as many as full rounds would take, never more. Where they may not suffice for all that is open, a round has
//! the best of them: so many that the trials would last until one is left, with half as many in every round (sequential
//! halving: Karnin, Koren and Somekh, "Almost Optimal Exploration in Multi-Armed Bandits", ICML 2013). Nothing is out by that: a setting
//! whose rivals were only lucky comes back.
//!
//! One run says nothing about noise. The deviation is therefore pooled over settings, as analysis of variance does: each
//! setting adds its runs less one to the degrees of freedom. What happens follows from results, seed and trials alone, so that
//! a race that was interrupted goes on as if it had not been.

use busbw_model::TunedStanding;
use sha2::{Digest, Sha256};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// The significance test.
pub const TEST: &str = "Student's t-test, one-sided, with the deviation pooled over all settings";

/// Rounds of the full grid with which a sweep is compared: those of the third field report.
pub const FULL_ROUNDS: u32 = 4;

/// How a race is run.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// How sure to be, per comparison with the leader.
    pub confidence: f64,
    /// How much worse than the best the winner may be, as a share.
    pub tolerance: f64,
    /// Rounds at most, and as many trials as so many full rounds take; where not said, the trials of [`FULL_ROUNDS`].
    pub rounds: Option<u32>,
    /// Trials at most where that is less, warm-up left out.
    pub trials: Option<usize>,
    /// Whether every setting runs in every round.
    pub exhaustive: bool,
    /// Failures after which a setting is out.
    pub failures: usize,
    /// What the random order follows from.
    pub seed: u64,
    /// The setting to which the others are compared in the end, such as the default: it runs twice at least.
    pub reference: Option<usize>,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            confidence: 0.95,
            tolerance: 0.02,
            rounds: None,
            trials: None,
            exhaustive: false,
            failures: 2,
            seed: 1,
            reference: None,
        }
    }
}

/// A race under way. Costs are values of which smaller ones are better.
#[derive(Debug, Clone)]
pub struct Race {
    rules: Rules,
    costs: Vec<Vec<f64>>,
    failures: Vec<usize>,
    round: u32,
}

impl Race {
    pub fn new(settings: usize, rules: Rules) -> Self {
        Race { rules, costs: vec![Vec::new(); settings], failures: vec![0; settings], round: 0 }
    }

    /// Takes a result: a cost, or `None` of a trial that failed.
    pub fn record(&mut self, setting: usize, cost: Option<f64>) {
        match cost {
            Some(cost) => self.costs[setting].push(cost),
            None => self.failures[setting] += 1,
        }
    }

    /// The round that was drawn last, from 1.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// How many trials the race takes at most.
    pub fn most_trials(&self) -> usize {
        let full = self.costs.len() * self.rules.rounds.unwrap_or(FULL_ROUNDS) as usize;
        self.rules.trials.map_or(full, |most| most.min(full))
    }

    /// The settings of the next round in random order; none when the race is over.
    pub fn next_round(&mut self) -> Vec<usize> {
        let left = self.left();
        // What failed too often leaves trials over, which the others of a grid have no use for.
        let most_rounds = self.rules.rounds.or(self.rules.exhaustive.then_some(FULL_ROUNDS));
        if most_rounds.is_some_and(|most| self.round >= most) || left == 0 {
            return Vec::new();
        }
        let mut next = self.entrants(left);
        next.sort_by_key(|setting| draw(self.rules.seed, self.round + 1, *setting));
        if !next.is_empty() {
            self.round += 1;
        }
        next.truncate(left);
        next
    }

    fn left(&self) -> usize {
        let spent: usize = self.costs.iter().map(Vec::len).sum::<usize>() + self.failures.iter().sum::<usize>();
        self.most_trials().saturating_sub(spent)
    }

    /// Whether every setting is told from the best, or so near that it does not matter.
    pub fn is_decided(&self) -> bool {
        self.leader().is_some() && self.open().is_empty()
    }

    pub fn standing(&self, setting: usize) -> TunedStanding {
        let Some(leader) = self.leader() else {
            return if self.has_failed(setting) { TunedStanding::Failed } else { TunedStanding::Unknown };
        };
        match setting {
            _ if self.has_failed(setting) => TunedStanding::Failed,
            _ if setting == leader => TunedStanding::Best,
            _ if self.costs[setting].is_empty() => TunedStanding::Unknown,
            _ if self.is_worse(setting, leader) => TunedStanding::Worse,
            _ => TunedStanding::Tied,
        }
    }

    /// The setting of the least mean cost that has not failed too often.
    pub fn leader(&self) -> Option<usize> {
        let living = self.living().filter(|setting| !self.costs[*setting].is_empty());
        living.min_by(|a, b| self.mean(*a).total_cmp(&self.mean(*b)))
    }

    fn has_failed(&self, setting: usize) -> bool {
        self.failures[setting] >= self.rules.failures
    }

    fn living(&self) -> impl Iterator<Item = usize> {
        (0..self.costs.len()).filter(|setting| !self.has_failed(*setting))
    }

    fn entrants(&self, left: usize) -> Vec<usize> {
        if self.round == 0 || self.rules.exhaustive {
            return self.living().collect();
        }
        let repeated = self.pooled().is_some();
        let mut next: Vec<usize> = if repeated { self.open() } else { self.living().collect() };
        next.extend(self.leader().filter(|leader| !next.is_empty() && !next.contains(leader)));
        // What failed at once and may run again is before all others.
        let cost =
            |setting: &usize| if self.costs[*setting].is_empty() { f64::NEG_INFINITY } else { self.mean(*setting) };
        next.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        let half = if repeated { next.len() } else { next.len().div_ceil(2) };
        let most = half.min(left / halvings(next.len())).max(2);
        let mut place = 0;
        next.retain(|setting| {
            place += 1;
            place <= most || Some(*setting) == self.rules.reference && self.costs[*setting].len() == 1
        });
        next.truncate(left);
        next
    }

    /// Settings about which more has to be known.
    fn open(&self) -> Vec<usize> {
        let Some(leader) = self.leader() else { return self.living().collect() };
        let is_open = |setting: &usize| match self.costs[*setting].len() {
            0 => true,
            // One run may be luck, so the leader and the reference run at least twice.
            1 if *setting == leader || Some(*setting) == self.rules.reference => true,
            _ if *setting == leader => false,
            _ => !self.is_worse(*setting, leader) && !self.is_near_enough(leader, *setting),
        };
        self.living().filter(is_open).collect()
    }

    fn is_worse(&self, setting: usize, leader: usize) -> bool {
        self.exceeds(self.mean(setting) - self.mean(leader), setting, leader)
    }

    /// Whether the leader is at most the tolerance worse than a setting.
    fn is_near_enough(&self, leader: usize, setting: usize) -> bool {
        let tolerated = self.rules.tolerance * self.mean(setting).abs();
        self.exceeds(self.mean(setting) + tolerated - self.mean(leader), setting, leader)
    }

    /// Whether a difference of two means is more than zero at the confidence.
    fn exceeds(&self, difference: f64, a: usize, b: usize) -> bool {
        let Some((deviation, degrees)) = self.pooled() else { return false };
        let runs = |setting: usize| self.costs[setting].len() as f64;
        let error = deviation * (1.0 / runs(a) + 1.0 / runs(b)).sqrt();
        if error == 0.0 {
            return difference > 0.0;
        }
        StudentsT::new(0.0, 1.0, degrees).is_ok_and(|t| t.cdf(difference / error) > self.rules.confidence)
    }

    /// The deviation within settings over all of them, and its degrees of freedom.
    fn pooled(&self) -> Option<(f64, f64)> {
        let repeated = || (0..self.costs.len()).filter(|setting| self.costs[*setting].len() > 1);
        let degrees: usize = repeated().map(|setting| self.costs[setting].len() - 1).sum();
        let squares: f64 = repeated()
            .map(|setting| self.costs[setting].iter().map(|cost| (cost - self.mean(setting)).powi(2)).sum::<f64>())
            .sum();
        (degrees > 0).then(|| ((squares / degrees as f64).sqrt(), degrees as f64))
    }

    fn mean(&self, setting: usize) -> f64 {
        let costs = &self.costs[setting];
        costs.iter().sum::<f64>() / costs.len() as f64
    }
}

/// How often a number of settings can be halved until one is left, at least once.
fn halvings(settings: usize) -> usize {
    settings.next_power_of_two().ilog2().max(1) as usize
}

/// The place of a setting in the order of a round: a hash, the same on every machine and in every release.
fn draw(seed: u64, round: u32, setting: usize) -> [u8; 32] {
    Sha256::digest(format!("{seed} {round} {setting}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a race to its end; `cost` gives the cost of a setting's n-th run.
    fn run(settings: usize, rules: Rules, cost: impl Fn(usize, usize) -> Option<f64>) -> (Race, usize) {
        let mut race = Race::new(settings, rules);
        let mut trials = 0;
        let mut runs = vec![0; settings];
        loop {
            let round = race.next_round();
            if round.is_empty() {
                return (race, trials);
            }
            for setting in round {
                race.record(setting, cost(setting, runs[setting]));
                runs[setting] += 1;
                trials += 1;
            }
        }
    }

    const NOISE: [f64; 4] = [0.5, -0.5, -0.3, 0.3];

    #[test]
    fn clearly_worse_settings_are_out_early() {
        let (race, trials) = run(8, Rules::default(), |setting, n| Some(100.0 + 10.0 * setting as f64 + NOISE[n % 4]));
        assert_eq!((race.leader(), race.is_decided()), (Some(0), true));
        assert_eq!(race.standing(7), TunedStanding::Worse);
        assert!(trials <= 8 + 4, "{trials}");
    }

    #[test]
    fn the_reference_runs_twice_even_if_it_is_the_worst() {
        let rules = Rules { reference: Some(7), ..Rules::default() };
        let cost = |setting: usize, n: usize| Some(100.0 + 10.0 * setting as f64 + NOISE[n % 4]);
        let (race, trials) = run(8, rules, cost);
        assert_eq!((race.costs[7].len(), race.costs[6].len()), (2, 1));
        assert_eq!(trials, run(8, Rules::default(), cost).1 + 1);
    }

    #[test]
    fn settings_alike_are_tied() {
        let (race, _) = run(3, Rules::default(), |_, n| Some(100.0 + NOISE[n % 4]));
        assert!(race.is_decided());
        assert_eq!([0, 1, 2].iter().filter(|s| race.standing(**s) == TunedStanding::Tied).count(), 2);
    }

    #[test]
    fn a_failing_setting_is_never_best() {
        let (race, _) = run(3, Rules::default(), |setting, n| (setting != 0).then_some(50.0 + NOISE[n % 4]));
        assert_eq!(race.standing(0), TunedStanding::Failed);
        assert_ne!(race.leader(), Some(0));
        let (race, _) = run(2, Rules::default(), |_, _| None);
        assert_eq!((race.leader(), race.standing(1)), (None, TunedStanding::Failed));
    }

    #[test]
    fn every_setting_runs_in_every_round_of_a_full_grid() {
        let rules = Rules { exhaustive: true, rounds: Some(4), ..Rules::default() };
        assert_eq!(run(5, rules, |setting, _| Some(setting as f64)).1, 20);
        let rules = Rules { exhaustive: true, rounds: Some(4), trials: Some(7), ..Rules::default() };
        assert_eq!(run(5, rules, |setting, _| Some(setting as f64)).1, 7);
    }

    /// Workloads of 20 settings: what the race takes beside the 80 trials of the grid, and how often its winner is within 5% of
    /// the best. Of the lab's two hosts the relative speeds are measured (benches/results/tune-lab-2026-11-22-2.md).
    #[test]
    fn winners_are_near_the_best_and_never_cost_more_than_the_grid() {
        const SEEDS: u64 = 200;
        const LAB: [f64; 20] = [
            75.7, 63.7, 57.0, 54.3, 54.3, 53.0, 51.0, 50.3, 49.3, 45.7, 44.0, 42.3, 41.3, 39.3, 37.7, 34.0, 32.7, 31.3,
            30.0, 27.0,
        ];
        let lab = LAB.map(|speed| 1.0 / speed);
        let near = std::array::from_fn(|setting| 100.0 + 2.0 * setting as f64);
        for (name, costs, noise, most_mean) in [
            ("lab", lab, 0.02, 32),
            ("lab", lab, 0.1, 45),
            ("lab", lab, 0.2, 70),
            ("2% apart", near, 0.03, 45),
            ("2% apart", near, 0.06, 65),
            ("all alike", [100.0; 20], 0.01, 40),
            ("all alike", [100.0; 20], 0.3, 80),
        ] {
            let best = costs.iter().copied().fold(f64::INFINITY, f64::min);
            let (mut good, mut all_trials) = (0, 0);
            for seed in 0..SEEDS {
                let rules = Rules { seed, reference: Some(0), ..Rules::default() };
                // The best is not always the first.
                let at = |setting: usize| costs[(setting + seed as usize) % 20];
                let (race, trials) =
                    run(20, rules, |setting, n| Some(at(setting) * (1.0 + noise * normal(seed, setting, n))));
                assert!(trials <= 80, "{name}: {trials}");
                all_trials += trials;
                good += u64::from(at(race.leader().unwrap()) <= 1.05 * best);
            }
            assert!(good * 100 >= 95 * SEEDS, "{name}, noise {noise}: {good} of {SEEDS}");
            assert!(all_trials as u64 <= most_mean * SEEDS, "{name}, noise {noise}: {all_trials} trials");
        }
    }

    /// A number of the standard normal distribution.
    fn normal(seed: u64, setting: usize, n: usize) -> f64 {
        let digest = Sha256::digest(format!("{seed}/{setting}/{n}"));
        let word = u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]]);
        let standard = statrs::distribution::Normal::standard();
        standard.inverse_cdf((f64::from(word) + 0.5) / (f64::from(u32::MAX) + 1.0))
    }

    #[test]
    fn trials_are_bounded_by_rounds_and_by_what_is_said() {
        for (rounds, trials, most) in [(None, None, 20), (Some(8), None, 40), (None, Some(7), 7), (Some(1), Some(9), 5)]
        {
            let rules = Rules { rounds, trials, ..Rules::default() };
            assert_eq!(Race::new(5, rules.clone()).most_trials(), most);
            // Nothing can be told: noise as large as the value.
            let (_, ran) = run(5, rules, |setting, n| Some(normal(1, setting, n)));
            assert!(ran <= most, "{rounds:?} {trials:?}: {ran}");
        }
    }

    #[test]
    fn orders_are_random_and_follow_from_the_seed() {
        let order = |seed| Race::new(20, Rules { seed, ..Rules::default() }).next_round();
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        let mut sorted = order(3);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>());
    }
}
