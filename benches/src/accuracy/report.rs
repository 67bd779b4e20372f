//! How far predictions are from measurements.

use super::measurement::{Measurement, Status};
use crate::statistics::median;
use busbw_model::{Bytes, Collective, Micros};
use busbw_predict::{Constants, Prediction, predict_with};
use std::fmt::Write;

/// A measurement with its prediction.
#[derive(Debug, Clone)]
pub struct Compared {
    pub name: String,
    /// Its publisher's tables are one family.
    pub family: String,
    /// Hosts.
    pub nodes: usize,
    /// What the publisher thought of it.
    pub status: Status,
    pub collective: Collective,
    pub measured: Vec<(Bytes, Micros)>,
    /// Predicted, row by row.
    pub predicted: Prediction,
}

/// Small, middle and large messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Up to 32 KiB.
    Small,
    /// 64 KiB to 16 MiB.
    Middle,
    /// 32 MiB and more.
    Large,
}

impl Class {
    pub const ALL: [Class; 3] = [Class::Large, Class::Middle, Class::Small];

    pub(super) fn of(size: Bytes) -> Class {
        match size.0 {
            0..0x1_0000 => Class::Small,
            0x1_0000..0x200_0000 => Class::Middle,
            _ => Class::Large,
        }
    }

    /// `up to 32 KiB`.
    pub fn name(self) -> &'static str {
        match self {
            Class::Small => "up to 32 KiB",
            Class::Middle => "64 KiB to 16 MiB",
            Class::Large => "32 MiB and more",
        }
    }

    /// The goal for tables marked good: median deviation of the time.
    fn goal(self) -> f64 {
        match self {
            Class::Small => 0.20,
            Class::Middle => 0.18,
            Class::Large => 0.07,
        }
    }
}

/// A goal of the accuracy report and whether it is reached.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    /// What is measured.
    pub what: String,
    /// The figure.
    pub found: f64,
    /// What it should be.
    pub goal: f64,
    pub met: bool,
}

/// Predicts every measurement.
pub fn compare(constants: &Constants, measurements: &[Measurement]) -> Vec<Compared> {
    let one = |m: &Measurement| {
        let sizes: Vec<Bytes> = m.rows.iter().map(|(size, _)| *size).collect();
        Compared {
            name: m.name.clone(),
            family: m.family().to_owned(),
            nodes: m.cluster.nodes,
            status: m.status,
            collective: m.collective,
            measured: m.rows.clone(),
            predicted: predict_with(constants, &m.cluster, m.collective, &sizes),
        }
    };
    measurements.iter().map(one).collect()
}

impl Compared {
    /// Predicted over measured time, less one, per row of a class.
    pub(super) fn deviations(&self, class: Option<Class>) -> Vec<f64> {
        let rows = self.measured.iter().zip(&self.predicted.rows);
        let wanted = rows.filter(|((size, _), _)| class.is_none_or(|class| Class::of(*size) == class));
        wanted.map(|((_, time), row)| row.time.0 / time.0 - 1.0).collect()
    }

    /// Deviation at the largest size.
    fn last(&self) -> f64 {
        self.deviations(None).last().copied().unwrap_or(0.0)
    }

    /// The predicted busbw at the size of the measured plateau over the measured.
    fn over_plateau(&self) -> f64 {
        let ratios = self.measured.iter().zip(&self.predicted.rows);
        let best = ratios.max_by(|((a, t), _), ((b, u), _)| (a.0 as f64 / t.0).total_cmp(&(b.0 as f64 / u.0)));
        best.map_or(0.0, |((_, time), row)| time.0 / row.time.0)
    }
}

/// A degraded table is recognised when this much more is predicted than was measured.
const RECOGNISED: f64 = 1.25;

/// The goals on tables marked good and degraded.
pub fn summary(compared: &[Compared]) -> Vec<Goal> {
    let good: Vec<&Compared> = compared.iter().filter(|c| c.status == Status::Good).collect();
    let mut goals: Vec<Goal> = Class::ALL
        .into_iter()
        .map(|class| {
            let off: Vec<f64> = good.iter().flat_map(|c| c.deviations(Some(class))).map(f64::abs).collect();
            let found = median(&off);
            let what = format!("good tables, {}: median deviation of the time over {} rows", class.name(), off.len());
            Goal { what, found, goal: class.goal(), met: found <= class.goal() }
        })
        .collect();
    let worst = good.iter().map(|c| c.last().abs()).fold(0.0, f64::max);
    goals.push(Goal {
        what: "good tables: largest deviation at the largest size".into(),
        found: worst,
        goal: 0.3,
        met: worst <= 0.3,
    });
    let degraded: Vec<f64> =
        compared.iter().filter(|c| c.status == Status::Degraded).map(Compared::over_plateau).collect();
    let seen = degraded.iter().filter(|ratio| **ratio >= RECOGNISED).count() as f64 / degraded.len().max(1) as f64;
    let what = format!("degraded tables ({}): share with at least 25% more predicted than measured", degraded.len());
    goals.push(Goal { what, found: seen, goal: 0.9, met: seen >= 0.9 });
    goals
}

/// A line per table, then the goals.
pub fn print_report(compared: &[Compared]) -> String {
    let mut text = String::from(
        "table                                             status      small  middle   large    last   predicted at the largest size\n",
    );
    for c in compared {
        let class = |class| {
            let off = c.deviations(Some(class));
            if off.is_empty() { "-".to_string() } else { format!("{:+.0}%", 100.0 * median(&off)) }
        };
        let how = c.predicted.rows.last().map_or(String::new(), |row| {
            format!(
                "{}/{} {:.1} of {:.1} GB/s: {}",
                row.algorithm, row.protocol, row.busbw.0, row.limit.0, row.bottleneck
            )
        });
        let (small, middle, large) = (class(Class::Small), class(Class::Middle), class(Class::Large));
        let last = format!("{:+.0}%", 100.0 * c.last());
        let _ = writeln!(
            text,
            "{:<49} {:<9} {small:>7} {middle:>7} {large:>7} {last:>7}   {how}",
            c.name,
            format!("{:?}", c.status)
        );
    }
    text.push('\n');
    for goal in summary(compared) {
        let met = if goal.met { "met" } else { "MISSED" };
        let _ = writeln!(text, "{:<85} {:5.1}%  goal {:3.0}%  {met}", goal.what, 100.0 * goal.found, 100.0 * goal.goal);
    }
    text
}
