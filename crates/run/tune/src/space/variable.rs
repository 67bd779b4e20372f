//! A variable of a space: its values, and what values it may have.

use super::{Condition, SpaceError};

/// A variable of the environment.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    /// `NCCL_SOCKET_NTHREADS`.
    pub name: String,
    pub values: Vec<String>,
    pub meaning: Option<String>,
    pub limits: Limits,
    /// When it is set at all: where this does not hold it is left to NCCL.
    pub when: Option<Condition>,
    /// Accept the name even if NCCL has no such variable, and any value.
    pub unchecked: bool,
}

/// What values a variable may have.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Limits {
    pub min: Option<f64>,
    pub max: Option<f64>,
    /// The words, where it takes words.
    pub words: Vec<String>,
    /// Where this is said.
    pub source: Option<String>,
}

impl Variable {
    /// Whether its name and values are what NCCL takes.
    pub(super) fn check(&self) -> Result<(), SpaceError> {
        let name = &self.name;
        let sound = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(sound) {
            return Err(SpaceError::BadName(name.clone()));
        }
        if self.values.is_empty() {
            return Err(SpaceError::NoValues(name.clone()));
        }
        if name.starts_with("NCCL_") && !self.unchecked && busbw_diagnose::variable(name).is_none() {
            let nearest = busbw_diagnose::nearest_variable(name).map(|variable| variable.name.clone());
            return Err(SpaceError::Unknown { name: name.clone(), nearest });
        }
        if self.unchecked {
            return Ok(());
        }
        self.values.iter().try_for_each(|value| {
            self.limits.check(value).map_err(|reason| SpaceError::Limit {
                name: name.clone(),
                value: value.clone(),
                reason,
            })
        })
    }
}

impl Limits {
    fn check(&self, value: &str) -> Result<(), String> {
        let source = self.source.as_ref().map(|source| format!(" ({source})")).unwrap_or_default();
        if !self.words.is_empty() && !self.words.iter().any(|word| word.eq_ignore_ascii_case(value)) {
            return Err(format!("choose one of {}{source}", self.words.join(", ")));
        }
        let range = match (self.min, self.max) {
            (None, None) => return Ok(()),
            (Some(min), None) => format!("from {min} up"),
            (None, Some(max)) => format!("up to {max}"),
            (Some(min), Some(max)) => format!("from {min} to {max}"),
        };
        let within = |number: f64| self.min.is_none_or(|min| number >= min) && self.max.is_none_or(|max| number <= max);
        match value.parse() {
            Ok(number) if within(number) => Ok(()),
            _ => Err(format!("NCCL takes numbers {range}{source}")),
        }
    }
}
