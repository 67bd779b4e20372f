//! A sweep that somebody else made, read of a table (CSV), for the statistics alone.
//!
//! A column has the result: `value`, a row for each trial, or `mean`, a row for each setting, beside `rounds` and `stddev`. Its unit may
//! follow the name: `mean_s`. All other columns are variables; a cell that is empty, `-` or `default` leaves one alone.

use crate::race::{Race, Rules};
use crate::result::{About, result};
use crate::space::{Limits, Setting, Space, Variable};
use crate::store::{Key, Outcome};
use crate::sweep::{SweepResult, Trial};
use busbw_model::{Measured, Tuning};
use csv::{ReaderBuilder, StringRecord, Trim};
use std::cmp::Ordering;

/// What to read a table as.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The column with the result, where it is not called `value` or `mean`.
    pub column: Option<&'a str>,
    pub higher_is_better: bool,
    /// The unit, where the column's name does not say it.
    pub unit: Option<&'a str>,
}

/// Why a table, or a row of it, cannot be used; the message says what to write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct ImportError {
    pub line: u64,
    pub problem: String,
}

/// The statistics of a table called `name`.
pub fn import(name: &str, text: &[u8], wanted: &Wanted, rules: Rules) -> Result<Tuning, Vec<ImportError>> {
    let mut reader = ReaderBuilder::new().trim(Trim::All).flexible(true).comment(Some(b'#')).from_reader(text);
    let columns = Columns::find(&reader.headers().cloned().unwrap_or_default(), wanted).map_err(|error| vec![error])?;
    let (mut table, mut errors) = (Table::default(), Vec::new());
    for record in reader.records() {
        let row = record.map_err(|error| ImportError {
            line: error.position().map_or(0, csv::Position::line),
            problem: "is no text in UTF-8; save the table as UTF-8".into(),
        });
        match row.and_then(|row| columns.row(&row)) {
            Ok(row) => table.add(row),
            Err(error) => errors.push(error),
        }
    }
    if table.settings.is_empty() && errors.is_empty() {
        errors.push(ImportError { line: 2, problem: "there is no row; give one for each trial or setting".into() });
    }
    if errors.is_empty() { Ok(table.statistics(name, columns, wanted, rules)) } else { Err(errors) }
}

/// Where in a row what is.
struct Columns {
    variables: Vec<(usize, String)>,
    result: (usize, String),
    rounds: Option<usize>,
    stddev: Option<usize>,
    width: usize,
}

/// What a row tells: a setting, and what its trials gave.
struct Row {
    setting: Setting,
    trials: Vec<Outcome>,
}

impl Columns {
    fn find(head: &StringRecord, wanted: &Wanted) -> Result<Self, ImportError> {
        let names: Vec<&str> = head.iter().collect();
        let refused = |problem: String| ImportError { line: 1, problem };
        let called = |word: &str| names.iter().position(|name| is_called(name, word));
        let found = match wanted.column {
            Some(column) => names.iter().position(|name| *name == column),
            None => called("value").or(called("mean")),
        };
        let result = found.ok_or_else(|| {
            let missing = wanted.column.unwrap_or("value (a row for each trial) or mean (a row for each setting)");
            refused(format!(
                "no column is called {missing}; there are {}; name one with --minimize or --maximize",
                names.join(", ")
            ))
        })?;
        let (rounds, stddev) = (called("rounds"), called("stddev"));
        let is_variable = |at: &usize| ![Some(result), rounds, stddev].contains(&Some(*at));
        let variables: Vec<(usize, String)> =
            (0..names.len()).filter(is_variable).map(|at| (at, variable(names[at]))).collect();
        if variables.is_empty() {
            return Err(refused("no column has a variable; give one for each variable, named like it".into()));
        }
        Ok(Columns { variables, result: (result, names[result].to_string()), rounds, stddev, width: names.len() })
    }

    fn row(&self, row: &StringRecord) -> Result<Row, ImportError> {
        let line = row.position().map_or(0, csv::Position::line);
        let refused = |problem: String| ImportError { line, problem };
        if row.len() != self.width {
            let problem = format!(
                "{} cells where the head has {}; give a cell for each column, empty perhaps",
                row.len(),
                self.width
            );
            return Err(refused(problem));
        }
        let cell = |at: usize| row.get(at).unwrap_or_default();
        let number = |at: Option<usize>, what: &str| match at.map(cell).filter(|text| !text.is_empty()) {
            None => Ok(None),
            Some(text) => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(Some(number)),
                _ => Err(refused(format!(
                    "{what} '{text}' is not a number; write one, without a unit, or leave the cell empty"
                ))),
            },
        };
        let mean = number(Some(self.result.0), &self.result.1)?;
        let (rounds, stddev) = (number(self.rounds, "rounds")?, number(self.stddev, "stddev")?);
        let setting = self.setting(&cell);
        let Some(mean) = mean else {
            return Ok(Row {
                setting,
                trials: vec![Outcome::Failed(format!("line {line} of the table has no {}", self.result.1))],
            });
        };
        let count = rounds.unwrap_or(1.0);
        if !(1.0..=10_000.0).contains(&count) || count.fract() != 0.0 {
            return Err(refused(format!("rounds '{count}' is no count of trials; write 1 to 10000")));
        }
        let values = match (count as usize, stddev) {
            (1, None) => vec![mean],
            (1, Some(_)) => {
                return Err(refused("a deviation needs 2 rounds or more; give rounds, or leave stddev empty".into()));
            }
            (_, None) => {
                return Err(refused(format!("the mean of {count} rounds needs its stddev; give it, or write 1 round")));
            }
            (_, Some(stddev)) if stddev < 0.0 => {
                return Err(refused(format!("stddev '{stddev}' is less than 0; write a positive number")));
            }
            (count, Some(stddev)) => values_of(count, mean, stddev),
        };
        Ok(Row { setting, trials: values.into_iter().map(Outcome::Value).collect() })
    }

    fn setting<'a>(&self, cell: &impl Fn(usize) -> &'a str) -> Setting {
        let set = |(at, name): &(usize, String)| {
            let value = cell(*at);
            (!["", "-", "default"].contains(&value)).then(|| (name.clone(), value.to_string()))
        };
        Setting { assignments: self.variables.iter().filter_map(set).collect() }
    }

    /// The unit behind the name of the column: `mean_s`.
    fn unit(&self) -> &str {
        ["value_", "mean_"].iter().find_map(|word| self.result.1.strip_prefix(word)).unwrap_or_default()
    }
}

/// A variable that NCCL reads, as NCCL spells it: tables have them in small letters too. Others as they are written.
fn variable(name: &str) -> String {
    let capital = name.to_ascii_uppercase();
    let is_known = busbw_diagnose::variable(&capital).is_some();
    if is_known { capital } else { name.to_owned() }
}

/// Whether a column is called so, with or without a unit: `mean`, `mean_s`.
fn is_called(name: &str, word: &str) -> bool {
    name.strip_prefix(word).is_some_and(|unit| unit.is_empty() || unit.starts_with('_'))
}

/// Values of this mean and standard deviation: tests look at nothing else.
fn values_of(count: usize, mean: f64, stddev: f64) -> Vec<f64> {
    let apart = stddev * ((count - 1) as f64 / 2.0).sqrt();
    let others = std::iter::repeat_n(mean, count - 2);
    [mean - apart, mean + apart].into_iter().chain(others).collect()
}

/// All rows, by setting.
#[derive(Default)]
struct Table {
    settings: Vec<Setting>,
    trials: Vec<Trial>,
}

impl Table {
    fn add(&mut self, row: Row) {
        let known = self.settings.iter().position(|setting| *setting == row.setting);
        let setting = known.unwrap_or_else(|| {
            self.settings.push(row.setting);
            self.settings.len() - 1
        });
        let before = self.trials.iter().filter(|trial| trial.key.setting == setting).count() as u32;
        let trials = (before + 1..).zip(row.trials);
        self.trials.extend(trials.map(|(round, outcome)| Trial { key: Key { round, setting }, outcome }));
    }

    fn statistics(self, name: &str, columns: Columns, wanted: &Wanted, rules: Rules) -> Tuning {
        let variable = |(_, name): &(usize, String)| Variable {
            name: name.clone(),
            values: self.values(name),
            meaning: busbw_diagnose::variable(name).and_then(|known| known.meaning.clone()),
            limits: Limits::default(),
            when: None,
            unchecked: true,
        };
        let variables = columns.variables.iter().map(variable).collect();
        let space = Space { name: name.to_string(), variables, constraints: Vec::new() };
        let unit = wanted.unit.unwrap_or(columns.unit());
        let measured = Measured {
            name: columns.result.1.trim_end_matches(&format!("_{}", columns.unit())).to_string(),
            unit: unit.to_string(),
            higher_is_better: wanted.higher_is_better,
        };
        // Nothing is to run: what is there is all that there will be.
        let rules = Rules { exhaustive: true, failures: usize::MAX, reference: None, ..rules };
        let mut race = Race::new(self.settings.len(), rules.clone());
        let sign = if wanted.higher_is_better { -1.0 } else { 1.0 };
        for trial in &self.trials {
            race.record(trial.key.setting, trial.outcome.value().map(|value| sign * value));
        }
        let about = About {
            space: &space,
            settings: &self.settings,
            measured,
            rules: &rules,
            command: format!("imported from {name}"),
        };
        result(&about, &SweepResult { race, trials: self.trials, stopped: None })
    }

    /// The values of a variable: in rising order where they are numbers, else in the order of their rows.
    fn values(&self, name: &str) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for value in self.settings.iter().filter_map(|setting| setting.value(name)) {
            if !found.iter().any(|known| known == value) {
                found.push(value.to_string());
            }
        }
        let number = |value: &String| value.parse::<f64>().ok();
        if found.iter().all(|value| number(value).is_some()) {
            found.sort_by(|a, b| number(a).partial_cmp(&number(b)).unwrap_or(Ordering::Equal));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use busbw_model::TunedStanding;

    const LOWER: Wanted = Wanted { column: None, higher_is_better: false, unit: None };

    fn read(text: &str, wanted: &Wanted) -> Result<Tuning, Vec<String>> {
        import("sweep.csv", text.as_bytes(), wanted, Rules::default())
            .map_err(|errors| errors.iter().map(ImportError::to_string).collect())
    }

    /// The table of the third field report: a row for each setting.
    #[test]
    fn the_third_field_report_as_it_was_published() {
        let tuning = read(include_str!("../../../../tests/data/tune/lanta-socket-sweep.csv"), &LOWER).unwrap();
        let best = tuning.best().unwrap();
        assert_eq!(best.setting.name(), "NCCL_SOCKET_NTHREADS=8 NCCL_NSOCKS_PERTHREAD=2");
        assert_eq!((best.rounds, best.mean), (4, Some(307.91)));
        assert!((best.stddev.unwrap() - 3.21).abs() < 1e-9);
        assert_eq!((tuning.objective.name.as_str(), tuning.objective.unit.as_str()), ("mean", "s"));
        assert_eq!((tuning.settings.len(), tuning.trials.ran), (11, 35));
        assert_eq!(tuning.variables[0].values, ["1", "2", "4", "8", "16"]);
        let one_run = tuning.settings.iter().find(|tuned| tuned.mean == Some(321.78)).unwrap();
        assert_eq!((one_run.rounds, one_run.stddev), (1, None));
        assert_eq!(tuning.settings[10].standing, TunedStanding::Worse);
    }

    #[test]
    fn a_row_for_each_trial_and_the_default() {
        let text = "# images per second\nA,B,value\n1,2,10\n1,2,12\n,,11\n-,default,11.5\n3,,\n";
        let tuning = read(text, &Wanted { higher_is_better: true, unit: Some("images/s"), ..LOWER }).unwrap();
        let rows: Vec<(String, usize, Option<f64>)> =
            tuning.settings.iter().map(|tuned| (tuned.setting.name(), tuned.rounds, tuned.mean)).collect();
        let row = |name: &str, rounds, mean| (name.to_string(), rounds, mean);
        assert_eq!(rows, [row("default", 2, Some(11.25)), row("A=1 B=2", 2, Some(11.0)), row("A=3", 0, None)]);
        assert_eq!(tuning.settings[2].reason.as_deref(), Some("line 7 of the table has no value"));
        assert_eq!(tuning.objective.unit, "images/s");
    }

    #[test]
    fn a_column_of_another_name() {
        let wanted = Wanted { column: Some("seconds"), ..LOWER };
        let tuning = read("threads,seconds\n1,9\n2,8\n", &wanted).unwrap();
        assert_eq!(tuning.best().unwrap().setting.name(), "threads=2");
    }

    #[test]
    fn every_bad_row_is_named_with_its_remedy() {
        for (text, says) in [
            (
                "A,B\n1,2\n",
                vec![
                    "line 1: no column is called value (a row for each trial) or mean (a row for each setting); there are A, B; name one with --minimize or --maximize",
                ],
            ),
            ("value\n2\n", vec!["line 1: no column has a variable; give one for each variable, named like it"]),
            (
                "",
                vec![
                    "line 1: no column is called value (a row for each trial) or mean (a row for each setting); there are ; name one with --minimize or --maximize",
                ],
            ),
            ("A,value\n", vec!["line 2: there is no row; give one for each trial or setting"]),
            (
                "A,value\n1,fast\n2,3\n3\n4,nan\n",
                vec![
                    "line 2: value 'fast' is not a number; write one, without a unit, or leave the cell empty",
                    "line 4: 1 cells where the head has 2; give a cell for each column, empty perhaps",
                    "line 5: value 'nan' is not a number; write one, without a unit, or leave the cell empty",
                ],
            ),
            (
                "A,rounds,mean,stddev\n1,4,9,\n2,1,9,1\n3,0,9,1\n4,2,9,-1\n",
                vec![
                    "line 2: the mean of 4 rounds needs its stddev; give it, or write 1 round",
                    "line 3: a deviation needs 2 rounds or more; give rounds, or leave stddev empty",
                    "line 4: rounds '0' is no count of trials; write 1 to 10000",
                    "line 5: stddev '-1' is less than 0; write a positive number",
                ],
            ),
        ] {
            assert_eq!(read(text, &LOWER).unwrap_err(), says, "{text}");
        }
    }

    #[test]
    fn values_have_the_mean_and_deviation_that_was_given() {
        for count in [2, 3, 4, 9] {
            let sample = crate::statistics::Sample::of(&values_of(count, 307.9, 3.2)).unwrap();
            assert_eq!(sample.n, count);
            assert!((sample.mean - 307.9).abs() < 1e-9 && (sample.stddev.unwrap() - 3.2).abs() < 1e-9, "{sample:?}");
        }
    }
}
