//! Machines with several published tables: calibrated with one of them, how far are the others?

use super::fit::without;
use super::measurement::{Measurement, Status};
use super::report::Class;
use crate::results::Origin;
use busbw_model::{Bytes, Micros};
use busbw_predict::cluster::{self, DescriptionError};
use busbw_predict::{Calibration, Cluster, Constants, MeasuredTable, calibrate_with, predict_with};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// A machine of the file, with the description in the short form, whose keys lie beside these.
#[derive(Deserialize)]
struct Entry {
    name: String,
    /// Beginnings of names in `tests/data/tables`.
    #[serde(default)]
    published: Vec<String>,
    #[serde(default)]
    table: Vec<Table>,
}

#[derive(Deserialize)]
struct Table {
    collective: String,
    nodes: usize,
    rows: Vec<(u64, f64)>,
}

/// A machine, its tables, and constants that were fitted without them.
struct Machine {
    name: String,
    constants: Constants,
    tables: Vec<Measurement>,
}

/// What calibrating with one table of a machine makes of the others.
#[derive(Debug, Serialize)]
pub struct Calibrations {
    #[serde(flatten)]
    origin: Origin,
    /// Over all machines, each with the same weight.
    pub classes: Vec<Accuracy>,
    machines: Vec<OfMachine>,
}

impl Calibrations {
    /// Where and when they were measured.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }
}

#[derive(Debug, Serialize)]
struct OfMachine {
    name: String,
    tables: usize,
    pairs: usize,
    classes: Vec<Accuracy>,
}

/// Median deviations of the time of a size class, as shares.
#[derive(Debug, Serialize)]
pub struct Accuracy {
    /// `32 MiB and more`.
    pub sizes: &'static str,
    /// Machines with two tables that have such sizes.
    pub machines: usize,
    /// Predicted rows: a row counts once for each table that the model was calibrated with.
    pub rows: usize,
    /// As predicted for a machine that nobody measured.
    pub before: f64,
    /// Calibrated with one other table.
    pub after: f64,
    /// What it should be.
    pub goal: f64,
    pub met: bool,
}

/// A row of a table that was predicted with a calibration by another.
struct Row {
    class: Class,
    before: f64,
    after: f64,
}

/// The machines of a file, whose published tables are among `measurements`; constants are fitted anew without these.
pub fn calibrations(file: &Path, measurements: &[Measurement], rounds: usize) -> Result<Calibrations, String> {
    let told = |error: String| format!("{}: {error}", file.display());
    let mut machines = Vec::new();
    let mut rows = Vec::new();
    for machine in read(file, measurements, rounds).map_err(told)? {
        let of_machine = machine.rows();
        machines.push(OfMachine {
            name: machine.name.clone(),
            tables: machine.tables.len(),
            pairs: machine.pairs().count(),
            classes: accuracies(std::slice::from_ref(&of_machine)),
        });
        rows.push(of_machine);
    }
    Ok(Calibrations { origin: Origin::now("busbw.predict-calibrated/1"), classes: accuracies(&rows), machines })
}

fn read(file: &Path, measurements: &[Measurement], rounds: usize) -> Result<Vec<Machine>, String> {
    let text = fs::read_to_string(file).map_err(|e| e.to_string())?;
    let mut root: toml::Table = text.parse().map_err(|e: toml::de::Error| e.to_string())?;
    let Some(toml::Value::Array(entries)) = root.remove("machine") else { return Err("no [[machine]]".into()) };
    entries.into_iter().map(|entry| Machine::read(entry, measurements, rounds)).collect()
}

impl Machine {
    fn read(entry: toml::Value, measurements: &[Measurement], rounds: usize) -> Result<Self, String> {
        let Entry { name, published, table } = entry.clone().try_into().map_err(|e: toml::de::Error| e.to_string())?;
        let told = |error: DescriptionError| format!("{name}: {error}");
        let mut tables: Vec<Measurement> = measurements.iter().filter(|m| is_among(m, &published)).cloned().collect();
        let constants = match tables.first() {
            Some(first) => without(Constants::text(), measurements, first.family(), rounds)
                .ok_or("the constants cannot be read")?,
            None => Constants::built_in().clone(),
        };
        for table in table {
            tables.push(table.measurement(&name, &entry).map_err(told)?);
        }
        Ok(Machine { name, constants, tables })
    }

    /// Tables to calibrate with, and others to predict: of another collective, or another number of ranks.
    fn pairs(&self) -> impl Iterator<Item = (&Measurement, &Measurement)> {
        let is_another =
            |a: &Measurement, b: &Measurement| (a.collective, a.cluster.ranks()) != (b.collective, b.cluster.ranks());
        let all = self.tables.iter().flat_map(|with| self.tables.iter().map(move |of| (with, of)));
        all.filter(move |(with, of)| is_another(with, of))
    }

    fn rows(&self) -> Vec<Row> {
        // A machine is all of its hosts.
        let Some(whole) = self.tables.iter().map(|table| &table.cluster).max_by_key(|cluster| cluster.ranks()) else {
            return Vec::new();
        };
        let pairs = self.pairs().filter_map(|(with, of)| {
            let found = calibrate_with(&self.constants, whole, &[measured(with)])?;
            Some(self.predicted(with, of, found.factors))
        });
        pairs.flatten().collect()
    }

    /// Rows of sizes that the table to calibrate with has, too: it says nothing of others.
    fn predicted(&self, with: &Measurement, of: &Measurement, calibration: Calibration) -> Vec<Row> {
        let sizes: Vec<Bytes> = of.rows.iter().map(|(size, _)| *size).collect();
        let calibrated = Cluster { calibration, ..of.cluster.clone() };
        let times = |cluster: &Cluster| predict_with(&self.constants, cluster, of.collective, &sizes).rows;
        let has = |class: Class| with.rows.iter().any(|(size, _)| Class::of(*size) == class);
        let rows = of.rows.iter().zip(times(&of.cluster)).zip(times(&calibrated));
        let row = |(((size, time), before), after): ((&(Bytes, Micros), _), busbw_predict::PredictionRow)| {
            let before: busbw_predict::PredictionRow = before;
            let off = |predicted: Micros| (predicted.0 / time.0 - 1.0).abs();
            Row { class: Class::of(*size), before: off(before.time), after: off(after.time) }
        };
        rows.map(row).filter(|row| has(row.class)).collect()
    }
}

fn is_among(measurement: &Measurement, beginnings: &[String]) -> bool {
    measurement.status != Status::Degraded && beginnings.iter().any(|begin| measurement.name.starts_with(begin))
}

fn measured(table: &Measurement) -> MeasuredTable {
    MeasuredTable { collective: table.collective, ranks: table.cluster.ranks(), rows: table.rows.clone() }
}

impl Table {
    fn measurement(self, machine: &str, described: &toml::Value) -> Result<Measurement, DescriptionError> {
        let mut text = described.as_table().cloned().unwrap_or_default();
        text.remove("table");
        text.insert("nodes".into(), toml::Value::Integer(i64::try_from(self.nodes).unwrap_or(i64::MAX)));
        text.insert("collective".into(), toml::Value::String(self.collective));
        let cluster = cluster::parse(&text.to_string())?;
        let rows = self.rows.into_iter().map(|(size, time)| (Bytes(size), Micros(time))).collect();
        let collective = cluster.collective.unwrap_or(busbw_model::Collective::AllReduce);
        Ok(Measurement { name: machine.to_owned(), status: Status::Unknown, collective, cluster, rows })
    }
}

/// Of some machines, by class; each machine has the same weight, however many tables it has.
fn accuracies(machines: &[Vec<Row>]) -> Vec<Accuracy> {
    let of_class = |class: Class| {
        let rows: Vec<Vec<&Row>> = machines
            .iter()
            .map(|rows| rows.iter().filter(|row| row.class == class).collect())
            .filter(|rows: &Vec<&Row>| !rows.is_empty())
            .collect();
        let weighed = |off: fn(&Row) -> f64| {
            let of_machine = |rows: &Vec<&Row>| {
                let weight = 1.0 / rows.len() as f64;
                rows.iter().map(|row| (off(row), weight)).collect::<Vec<_>>()
            };
            weighted_median(rows.iter().flat_map(of_machine).collect())
        };
        let after = weighed(|row| row.after)?;
        Some(Accuracy {
            sizes: class.name(),
            machines: rows.len(),
            rows: rows.iter().map(Vec::len).sum(),
            before: weighed(|row| row.before)?,
            after,
            goal: goal(class),
            met: after <= goal(class),
        })
    };
    Class::ALL.into_iter().filter_map(of_class).collect()
}

/// The goals of calibration with one table.
fn goal(class: Class) -> f64 {
    match class {
        Class::Large => 0.03,
        Class::Middle => 0.08,
        Class::Small => 0.10,
    }
}

/// The value that half of the weight does not exceed.
fn weighted_median(mut values: Vec<(f64, f64)>) -> Option<f64> {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total: f64 = values.iter().map(|(_, weight)| weight).sum();
    let mut sum = 0.0;
    let middle = values.iter().find(|(_, weight)| {
        sum += weight;
        sum >= total / 2.0
    });
    middle.map(|(value, _)| *value)
}

/// A line per machine and class, then those of all.
pub fn print_calibrations(found: &Calibrations) -> String {
    let mut text = String::from(
        "median deviation of the time                                  rows    before     after    goal\n",
    );
    let mut line = |name: &str, one: &Accuracy| {
        let (before, after, goal) = (100.0 * one.before, 100.0 * one.after, 100.0 * one.goal);
        let name = format!("{name}, {}", one.sizes);
        let _ = writeln!(text, "{name:<60} {:>5} {before:>8.1}% {after:>8.1}% {goal:>6.0}%", one.rows);
    };
    for machine in &found.machines {
        let name = format!("{} ({} tables)", machine.name, machine.tables);
        machine.classes.iter().for_each(|one| line(&name, one));
    }
    found.classes.iter().for_each(|one| line(&format!("{} machines alike", one.machines), one));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_machine_has_the_same_weight_in_the_median() {
        assert_eq!(weighted_median(vec![(9.0, 0.5), (1.0, 0.25), (2.0, 0.25)]), Some(2.0));
        assert_eq!(weighted_median(vec![(9.0, 0.6), (1.0, 0.2), (2.0, 0.2)]), Some(9.0));
        assert_eq!(weighted_median(Vec::new()), None);
    }
}
