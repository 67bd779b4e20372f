//! Whether a rank takes longer for its own part of a step than the others, and from when on.

use super::alone::{Own, Step};
use super::timeline::FEWEST;
use busbw_model::median;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// How often a comparison of sound ranks may accuse one, all ranks together.
const FALSE_ALARMS: f64 = 0.01;
/// A rank that is later by less of a step is not worth a word; and it is surely later by so much.
const LEAST: f64 = 0.02;
const SURELY: f64 = 0.005;
/// The last steps, which are looked at by themselves: a rank that has become late just now.
const LAST: usize = 20;
/// Of values, so many are left out at either end: a step in which one rank writes a checkpoint says nothing of the others.
const TRIMMED: f64 = 0.2;

/// Ranks that the others wait for.
pub(super) struct Late {
    /// Indices of the ranks.
    pub ranks: Vec<usize>,
    /// By how much the latest is later than the others, per step.
    pub excess_ns: f64,
    /// Where the true value lies in 95% of cases.
    pub interval_ns: (f64, f64),
    pub step_ns: f64,
    pub steps: u32,
    /// When the first of these steps began, where earlier ones are known in which it was not late.
    pub since_ns: Option<u64>,
    /// How long the latest is by itself per step, and the others.
    pub own_ns: (f64, f64),
}

/// The ranks that are later than the others.
pub(super) fn compare(own: &Own) -> Option<Late> {
    let steps = &own.steps;
    let count = steps.first()?.own_ns.len();
    let step_ns = median(steps.iter().map(|step| step.lasted_ns))?;
    let outside = FALSE_ALARMS / (2.0 * count as f64);
    let means = |rank: usize| {
        let excess: Vec<f64> = steps.iter().map(|step| excess(step, rank)).collect();
        let last = &excess[excess.len().saturating_sub(LAST)..];
        [Mean::of(last), Mean::of(&excess)].into_iter().flatten()
    };
    let surely =
        |mean: &Mean| mean.value >= LEAST * step_ns && mean.value - mean.half_width(outside) >= SURELY * step_ns;
    let found = (0..count).filter_map(|rank| Some((rank, means(rank).find(surely)?.value)));
    let (latest, most) = found.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    // Those beside it are less sure by themselves.
    let like = |mean: Mean| mean.value >= most / 2.0 && mean.value > mean.half_width(0.025);
    let ranks: Vec<usize> = (0..count).filter(|rank| *rank == latest || means(*rank).any(like)).collect();
    if ranks.len() * 2 > count {
        return None;
    }
    let all: Vec<f64> = steps.iter().map(|step| excess(step, latest)).collect();
    let first = since(&all);
    let those = &steps[first..];
    let mean = Mean::of(&all[first..])?;
    let half = mean.half_width(0.025);
    let usual = |rank: usize| median(those.iter().map(|step| step.own_ns[rank]));
    let others = median((0..count).filter(|rank| !ranks.contains(rank)).filter_map(usual))?;
    Some(Late {
        excess_ns: mean.value,
        interval_ns: (mean.value - half, mean.value + half),
        step_ns,
        steps: u32::try_from(those.len()).unwrap_or(u32::MAX),
        since_ns: (first > 0).then(|| those[0].began_ns[latest]),
        own_ns: (usual(latest)?, others),
        ranks,
    })
}

/// How much longer than the others a rank was by itself in a step.
fn excess(step: &Step, rank: usize) -> f64 {
    let others = step.own_ns.iter().enumerate().filter(|(other, _)| *other != rank).map(|(_, own)| *own);
    step.own_ns[rank] - median(others).unwrap_or_default()
}

/// Where values rise for good: the cut that leaves the least squares on either side; 0 where they were as high before.
fn since(values: &[f64]) -> usize {
    let squares = |part: &[f64]| {
        let mean = part.iter().sum::<f64>() / part.len() as f64;
        part.iter().map(|value| (value - mean).powi(2)).sum::<f64>()
    };
    let sum = |cut: &usize| squares(&values[..*cut]) + squares(&values[*cut..]);
    const LEAST_BEFORE: usize = 3;
    let cuts = LEAST_BEFORE..values.len().saturating_sub(FEWEST).saturating_add(1);
    let Some(cut) = cuts.min_by(|a, b| sum(a).total_cmp(&sum(b))) else { return 0 };
    let usual = |part: &[f64]| median(part.iter().copied()).unwrap_or_default();
    if usual(&values[..cut]) < usual(&values[cut..]) / 2.0 { cut } else { 0 }
}

/// A trimmed mean (Yuen, Biometrika 61, 1974).
struct Mean {
    value: f64,
    error: f64,
    freedom: f64,
}

impl Mean {
    fn of(values: &[f64]) -> Option<Mean> {
        if values.len() < FEWEST {
            return None;
        }
        let mut values = values.to_vec();
        values.sort_unstable_by(f64::total_cmp);
        let out = (values.len() as f64 * TRIMMED) as usize;
        let (low, high) = (values[out], values[values.len() - 1 - out]);
        let kept = &values[out..values.len() - out];
        let count = kept.len() as f64;
        let value = kept.iter().sum::<f64>() / count;
        let pulled: Vec<f64> = values.iter().map(|value| value.clamp(low, high)).collect();
        let middle = pulled.iter().sum::<f64>() / pulled.len() as f64;
        let squares: f64 = pulled.iter().map(|value| (value - middle).powi(2)).sum();
        Some(Mean { value, error: (squares / (count * (count - 1.0))).sqrt(), freedom: count - 1.0 })
    }

    /// Of the interval that leaves out so much on either side.
    fn half_width(&self, outside: f64) -> f64 {
        let students = StudentsT::new(0.0, 1.0, self.freedom);
        students.map_or(f64::INFINITY, |students| students.inverse_cdf(1.0 - outside) * self.error)
    }
}
