//! What makes a setting good: the time that the command takes, a number in its output, or the busbw of a size.

use busbw_ingest::read_bytes;
use busbw_model::{BenchTable, Bytes, Collective, GBps, Measure, Measured};
use regex::Regex;
use regex_automata::dfa::{Automaton, dense};
use regex_automata::util::start;
use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

/// What is measured of every trial.
#[derive(Debug, Clone)]
pub enum Objective {
    WallTime,
    /// The last number that an expression finds in the output.
    Number {
        /// The expression; its first group is the number, or all of it without groups.
        regex: Regex,
        better: Better,
    },
    /// busbw of a size in a table of nccl-tests, the better of in-place and out-of-place.
    Busbw(Bytes),
}

/// Which numbers are better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    Lower,
    Higher,
}

/// An expression that cannot find a number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectiveError {
    #[error("'{regex}' is not a regular expression: {reason}")]
    Regex { regex: String, reason: String },
    /// No text matches it.
    #[error("'{0}' never matches, whatever the output; correct the expression")]
    NeverMatches(String),
    /// More groups than one.
    #[error("'{0}' has several groups: put the number into one pair of ( ), and (?: ) around the rest")]
    Groups(String),
}

/// Why a trial's output holds no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoValue {
    /// The expression matches nothing.
    #[error("nothing in the output matches '{0}'")]
    NoMatch(String),
    #[error("'{0}' is not a number")]
    NoNumber(String),
    #[error("the output has no busbw of {0}; measure that size")]
    NoRow(Bytes),
}

impl Objective {
    /// The last number that an expression finds.
    pub fn number(text: &str, better: Better) -> Result<Self, ObjectiveError> {
        let regex = Regex::new(text).map_err(|error| {
            // The last line of regex's message says what is wrong; those before draw where.
            let reason = error.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_string();
            ObjectiveError::Regex { regex: text.to_string(), reason }
        })?;
        if regex.captures_len() > 2 {
            return Err(ObjectiveError::Groups(text.to_string()));
        }
        if !can_match(text) {
            return Err(ObjectiveError::NeverMatches(text.to_string()));
        }
        Ok(Objective::Number { regex, better })
    }

    pub fn better(&self) -> Better {
        match self {
            Objective::WallTime => Better::Lower,
            Objective::Number { better, .. } => *better,
            Objective::Busbw(_) => Better::Higher,
        }
    }

    /// What is measured; the unit is what the expression names, where none is given.
    pub fn measured(&self, unit: Option<&str>) -> Measured {
        Measured {
            name: self.to_string(),
            unit: unit.unwrap_or(self.unit()).to_string(),
            higher_is_better: self.better() == Better::Higher,
        }
    }

    fn unit(&self) -> &'static str {
        match self {
            Objective::WallTime => "s",
            Objective::Number { regex, .. } => unit_in(regex.as_str()),
            Objective::Busbw(_) => "GB/s",
        }
    }

    /// The value of a trial that ended well.
    pub fn value(&self, output: &str, wall_time: Duration) -> Result<f64, NoValue> {
        match self {
            Objective::WallTime => Ok(wall_time.as_secs_f64()),
            Objective::Number { regex, .. } => number(regex, output),
            Objective::Busbw(size) => busbw(output, *size).map(|busbw| busbw.0).ok_or(NoValue::NoRow(*size)),
        }
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Objective::WallTime => f.write_str("wall time"),
            Objective::Number { regex, .. } => write!(f, "the number of '{regex}'"),
            Objective::Busbw(size) => write!(f, "busbw at {size}"),
        }
    }
}

/// The unit that an expression names: `images/s: ([0-9.]+)`, `runtime ([0-9.]+) s`; nothing without one.
fn unit_in(regex: &str) -> &'static str {
    const UNITS: [&str; 14] = [
        "images/s",
        "img/s",
        "img/sec",
        "samples/s",
        "tokens/s",
        "tok/s",
        "it/s",
        "steps/s",
        "GB/s",
        "Gbit/s",
        "ms",
        "us",
        "seconds",
        "s",
    ];
    let words = regex.split(|c: char| !c.is_alphanumeric() && !"/_\\".contains(c));
    let mut units = words.filter_map(|word| UNITS.into_iter().find(|unit| *unit == word));
    units.next_back().map_or("", |unit| if unit == "seconds" { "s" } else { unit })
}

fn number(regex: &Regex, output: &str) -> Result<f64, NoValue> {
    let found = regex.captures_iter(output).last().ok_or_else(|| NoValue::NoMatch(regex.to_string()))?;
    let text = found.get(1).or_else(|| found.get(0)).map_or("", |group| group.as_str()).trim();
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| NoValue::NoNumber(text.to_string()))
}

fn busbw(output: &str, size: Bytes) -> Option<GBps> {
    let run = read_bytes(&[("the output", output.as_bytes())]).ok()?;
    let of_table = |table: &BenchTable| {
        let rows = table.rows.iter().filter(|row| row.size == size);
        rows.filter_map(|row| row.halves().map(|half| finer(table, size, half)).max_by(f64::total_cmp))
            .collect::<Vec<_>>()
    };
    let values: Vec<f64> = run.tables.iter().flat_map(of_table).collect();
    (!values.is_empty()).then(|| GBps(values.iter().sum::<f64>() / values.len() as f64))
}

/// busbw as printed, or by the time where two decimals are too few: on a link of 100 Mbit/s every setting has 0.01.
fn finer(table: &BenchTable, size: Bytes, half: &Measure) -> f64 {
    let by_time =
        |(collective, ranks): (Collective, u32)| collective.busbw(GBps::from_transfer(size, half.time), ranks).0;
    let counted = table.collective.zip(table.nranks).map(by_time);
    counted.filter(|busbw| *busbw < 1.0 && (busbw - half.busbw.0).abs() < 0.006).unwrap_or(half.busbw.0)
}

/// Whether any text matches an expression: whether its automaton has a state that matches and can be reached. An expression
/// that is too large to tell is given the benefit of the doubt.
fn can_match(text: &str) -> bool {
    const STATES: usize = 1 << 16;
    let config = dense::Config::new().dfa_size_limit(Some(8 << 20)).determinize_size_limit(Some(8 << 20));
    let Ok(automaton) = dense::Builder::new().configure(config).build(text) else { return true };
    let starts = [None, Some(b'\n'), Some(b'a'), Some(b' ')].into_iter();
    let mut waiting: Vec<_> =
        starts.filter_map(|before| automaton.start_state(&start::Config::new().look_behind(before)).ok()).collect();
    let mut seen: HashSet<_> = waiting.iter().copied().collect();
    while let Some(state) = waiting.pop() {
        if automaton.is_match_state(state) || automaton.is_match_state(automaton.next_eoi_state(state)) {
            return true;
        }
        if seen.len() > STATES {
            return true;
        }
        let next = (0..=u8::MAX).map(|byte| automaton.next_state(state, byte));
        waiting.extend(next.filter(|next| seen.insert(*next)));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(regex: &str, output: &str) -> Result<f64, NoValue> {
        Objective::number(regex, Better::Lower).unwrap().value(output, Duration::ZERO)
    }

    #[test]
    fn the_last_number_counts() {
        assert_eq!(value(r"loss ([\d.]+)", "loss 3.5\nloss 2.25\n"), Ok(2.25));
        assert_eq!(value(r"\d+", "7 8"), Ok(8.0));
        assert_eq!(value("loss (.*)", "loss none"), Err(NoValue::NoNumber("none".into())));
        assert!(matches!(value("x", "y"), Err(NoValue::NoMatch(_))));
    }

    #[test]
    fn expressions_name_units() {
        for (regex, unit) in [
            ("images/s: ([0-9.]+)", "images/s"),
            ("runtime ([0-9.]+) s", "s"),
            (r"step time\s+([\d.]+) ms", "ms"),
            ("took ([0-9]+) seconds", "s"),
            ("train_runtime: ([0-9.]+)", ""),
            (r"loss\s([\d.]+)", ""),
        ] {
            assert_eq!(Objective::number(regex, Better::Lower).unwrap().unit(), unit, "{regex}");
        }
    }

    #[test]
    fn expressions_that_find_nothing_are_refused() {
        let cases = [
            ("(", "not a regular expression"),
            (r"a^b", "never matches"),
            (r"[^\s\S]", "never matches"),
            ("(a)(b)", "groups"),
        ];
        for (regex, says) in cases {
            let error = Objective::number(regex, Better::Lower).unwrap_err().to_string();
            assert!(error.contains(says), "{regex}: {error}");
        }
        for regex in [r"^epoch: ([\d.]+)s$", r"\bsteps/s\b\s+(\d+)", "(?m)^time (.*)$"] {
            assert!(Objective::number(regex, Better::Lower).is_ok(), "{regex}");
        }
    }

    #[test]
    fn busbw_is_that_of_the_table() {
        let table = include_str!("../../../../tests/data/runs/h20-2x8-tcp/run.log");
        let at = |size: u64| Objective::Busbw(Bytes(size)).value(table, Duration::ZERO);
        assert_eq!(at(8 << 30), Ok(9.04));
        assert_eq!(at(12), Err(NoValue::NoRow(Bytes(12))));
        // 8 bytes in 66.33 us, printed as 0.00.
        assert!((1e-5..5e-3).contains(&at(8).unwrap()), "{:?}", at(8));
    }
}
