//! The band that nine of ten measured times lie in, from how far publishers are off and rows within them, and how many rows
//! of publishers that were left out lie in it.

use super::report::{Class, Compared};
use crate::statistics::median;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Measured times over predicted ones, in logarithms, by publisher.
type Ratios<'a> = BTreeMap<&'a str, Vec<f64>>;

/// Student's t for 90%, by publishers less one.
const T: [f64; 12] = [6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81, 1.80, 1.78];

/// The bands of tables that were predicted without their publishers, and their coverage.
pub fn print_bands(compared: &[Compared]) -> String {
    let mut text =
        String::from("\nmeasured over predicted time       publishers    band of 90%    rows of others in it\n");
    for class in Class::ALL {
        let all = ratios(compared, |one| one.deviations(Some(class)));
        let inside = ratios(compared, |one| if one.nodes == 1 { one.deviations(Some(class)) } else { Vec::new() });
        let across = ratios(compared, |one| if one.nodes == 1 { Vec::new() } else { one.deviations(Some(class)) });
        for (what, ratios) in [("all", all), ("inside a host", inside), ("between hosts", across)] {
            let Some((fastest, slowest)) = band(&ratios) else { continue };
            let covered = coverage(&ratios).map_or("-".into(), |share| format!("{:.0}%", 100.0 * share));
            let name = format!("{}, {what}", class.name());
            let _ = writeln!(text, "{name:<34} {:>10}   {fastest:.2} to {slowest:.2}    {covered:>10}", ratios.len());
        }
    }
    text
}

fn ratios<'a>(compared: &'a [Compared], deviations: impl Fn(&Compared) -> Vec<f64>) -> Ratios<'a> {
    let mut ratios = Ratios::new();
    for one in compared {
        // A deviation is predicted over measured, less one.
        let of_one = deviations(one).into_iter().map(|off| -(1.0 + off).ln());
        ratios.entry(&one.family).or_default().extend(of_one);
    }
    ratios.retain(|_, of_one| !of_one.is_empty());
    ratios
}

/// For a row of another publisher: publishers are off by their own amount, and rows by theirs beside it.
fn band(ratios: &Ratios) -> Option<(f64, f64)> {
    let middles: Vec<f64> = ratios.values().map(|of_one| median(of_one)).collect();
    let publishers = middles.len() as f64;
    let t = T.get(middles.len().checked_sub(2)?).copied().unwrap_or(1.75);
    let within = mean(&ratios.values().map(|of_one| deviation(of_one).powi(2)).collect::<Vec<_>>());
    let between = variance(&middles) * publishers / (publishers - 1.0);
    let spread = t * (between * (1.0 + 1.0 / publishers) + within).sqrt();
    Some(((mean(&middles) - spread).exp(), (mean(&middles) + spread).exp()))
}

/// The share of each publisher's rows in the band of the others.
fn coverage(ratios: &Ratios) -> Option<f64> {
    let (mut inside, mut rows) = (0, 0);
    for (publisher, of_one) in ratios {
        let others: Ratios =
            ratios.iter().filter(|(other, _)| *other != publisher).map(|(k, v)| (*k, v.clone())).collect();
        let (fastest, slowest) = band(&others)?;
        inside += of_one.iter().filter(|ratio| (fastest..=slowest).contains(&ratio.exp())).count();
        rows += of_one.len();
    }
    Some(f64::from(inside as u32) / f64::from(rows as u32))
}

/// The standard deviation of most rows: a first row that waited for something, and other outliers, do not widen it.
fn deviation(values: &[f64]) -> f64 {
    const OF_NORMAL: f64 = 1.4826;
    let middle = median(values);
    OF_NORMAL * median(&values.iter().map(|value| (value - middle).abs()).collect::<Vec<_>>())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len().max(1) as f64
}
