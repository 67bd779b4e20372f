//! What may be set: variables with their values, and which combinations make sense.

mod builtin;
mod condition;
mod toml;
mod variable;

pub use builtin::NAMES;
pub use busbw_model::Setting;
pub use condition::Condition;
#[cfg(fuzzing)]
pub use toml::parse;
pub use variable::{Limits, Variable};

use std::collections::BTreeSet;

/// Settings of a space at most. A space beyond that would run for years.
const MOST_SETTINGS: usize = 10_000;
/// Combinations that constraints choose from at most: they are all made, and have to fit into memory.
const MOST_COMBINATIONS: usize = 100 * MOST_SETTINGS;

/// Variables, their values, and the combinations of them that are allowed.
#[derive(Debug, Clone, PartialEq)]
pub struct Space {
    /// What it is called: `sockets`, or the file's name.
    pub name: String,
    /// The variables, in the order in which settings name them.
    pub variables: Vec<Variable>,
    /// What every setting must fulfil.
    pub constraints: Vec<Condition>,
}

/// Why a space is none. Every message says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpaceError {
    /// No such built-in space, and no such file.
    #[error("{0}: no space of that name and no such file; choose one of {names}, or name a TOML file", names = NAMES.join(", "))]
    NotFound(String),
    #[error("{0}")]
    File(String),
    #[error("the space is empty: it has no variables; name a space, a TOML file, or --var NAME=VALUE,VALUE")]
    Empty,
    #[error("{0}: has no values to try; write {0}=VALUE,VALUE")]
    NoValues(String),
    #[error("{0}: is there twice; give its values in one place")]
    Twice(String),
    /// A name that the environment cannot hold.
    #[error("'{0}' is not a variable name: use letters, digits and _, and do not start with a digit")]
    BadName(String),
    /// A variable of NCCL's that it does not have.
    #[error("NCCL has no variable {name}.{meant} If a plugin reads it, use --unchecked", meant = nearest.as_ref().map(|n| format!(" Did you mean {n}?")).unwrap_or_default())]
    Unknown { name: String, nearest: Option<String> },
    /// A value beyond what NCCL takes.
    #[error("{name}={value}: {reason}")]
    Limit { name: String, value: String, reason: String },
    /// A condition that cannot be read.
    #[error("condition {0}")]
    Condition(String),
    /// A condition over a variable that the space does not vary.
    #[error("condition '{condition}': {name} is no variable of this space{order}; it has {known}")]
    Foreign {
        condition: String,
        name: String,
        /// ` before this one` for a condition of a variable.
        order: &'static str,
        known: String,
    },
    #[error("the space is contradictory: {} {constraints}", match combinations {
        1 => "its only combination does not satisfy".to_string(),
        count => format!("none of its {count} combinations satisfies"),
    })]
    Contradictory { combinations: usize, constraints: String },
    #[error("the space has more than {} settings; leave out values, or add constraints", MOST_SETTINGS)]
    TooLarge,
}

impl Space {
    /// A built-in space by its name, or that of a TOML file.
    pub fn open(name: &str) -> Result<Self, SpaceError> {
        let mut space = builtin::open(name).map_or_else(|| toml::read(name), Ok)?;
        for variable in space.variables.iter_mut().filter(|variable| variable.limits == Limits::default()) {
            variable.limits = builtin::limits(&variable.name);
        }
        Ok(space)
    }

    /// Adds a variable written as `NAME=1,2,4`. A variable that is there gets these values instead.
    pub fn add(&mut self, text: &str) -> Result<(), SpaceError> {
        let (name, values) = text.split_once('=').ok_or_else(|| SpaceError::NoValues(text.to_string()))?;
        let values: Vec<String> = values.split(',').filter(|v| !v.is_empty()).map(str::to_string).collect();
        match self.variables.iter_mut().find(|variable| variable.name == name) {
            Some(variable) => variable.values = values,
            None => self.variables.push(Variable {
                name: name.to_string(),
                values,
                meaning: busbw_diagnose::variable(name).and_then(|known| known.meaning.clone()),
                limits: builtin::limits(name),
                when: None,
                unchecked: false,
            }),
        }
        Ok(())
    }

    /// Adds a constraint.
    pub fn constrain(&mut self, text: &str) -> Result<(), SpaceError> {
        self.constraints.push(Condition::parse(text).map_err(SpaceError::Condition)?);
        Ok(())
    }

    /// All settings that the space allows, in order of the values, the default (nothing set) left out.
    pub fn settings(&self) -> Result<Vec<Setting>, SpaceError> {
        self.check()?;
        let mut settings = vec![Setting::default()];
        for variable in &self.variables {
            // Only what constraints leave counts, but what they may yet leave has to fit too.
            let more = settings.iter().flat_map(|setting| with_each(setting, variable));
            settings = more.take(MOST_COMBINATIONS + 1).collect();
            if settings.len() > MOST_COMBINATIONS {
                return Err(SpaceError::TooLarge);
            }
        }
        let combinations = settings.len();
        settings.retain(|setting| !setting.assignments.is_empty() && self.allows(setting));
        let mut seen = BTreeSet::new();
        settings.retain(|setting| seen.insert(setting.clone()));
        match settings.len() {
            0 => Err(SpaceError::Contradictory { combinations, constraints: self.constraints_in_words() }),
            many if many > MOST_SETTINGS => Err(SpaceError::TooLarge),
            _ => Ok(settings),
        }
    }

    /// Whether a setting fulfils every constraint. One over a variable that is left to NCCL says nothing.
    fn allows(&self, setting: &Setting) -> bool {
        self.constraints.iter().all(|condition| condition.holds(&|name| setting.value(name)).unwrap_or(true))
    }

    fn constraints_in_words(&self) -> String {
        self.constraints.iter().map(|condition| format!("'{condition}'")).collect::<Vec<_>>().join(" and ")
    }

    fn check(&self) -> Result<(), SpaceError> {
        if self.variables.is_empty() {
            return Err(SpaceError::Empty);
        }
        for (index, variable) in self.variables.iter().enumerate() {
            let before = &self.variables[..index];
            if before.iter().any(|other| other.name == variable.name) {
                return Err(SpaceError::Twice(variable.name.clone()));
            }
            variable.check()?;
            if let Some(when) = &variable.when {
                known(when, before, " before this one")?;
            }
        }
        self.constraints.iter().try_for_each(|condition| known(condition, &self.variables, ""))
    }
}

fn known(condition: &Condition, variables: &[Variable], order: &'static str) -> Result<(), SpaceError> {
    let is_known = |name: &str| variables.iter().any(|variable| variable.name == name);
    match condition.variables().into_iter().find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name) => Err(SpaceError::Foreign {
            condition: condition.to_string(),
            name: name.to_string(),
            order,
            known: variables.iter().map(|variable| variable.name.as_str()).collect::<Vec<_>>().join(", "),
        }),
    }
}

/// A setting with every value of one more variable; unchanged where the variable is left alone.
fn with_each(setting: &Setting, variable: &Variable) -> Vec<Setting> {
    let set = variable.when.as_ref().is_none_or(|when| when.holds(&|name| setting.value(name)) == Some(true));
    if !set {
        return vec![setting.clone()];
    }
    let with = |value: &String| {
        let mut setting = setting.clone();
        setting.assignments.push((variable.name.clone(), value.clone()));
        setting
    };
    variable.values.iter().map(with).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(variables: &[&str], constraints: &[&str]) -> Result<Vec<Setting>, SpaceError> {
        let mut space = Space { name: "test".into(), variables: Vec::new(), constraints: Vec::new() };
        variables.iter().try_for_each(|variable| space.add(variable))?;
        constraints.iter().try_for_each(|constraint| space.constrain(constraint))?;
        space.settings()
    }

    #[test]
    fn constraints_leave_what_fulfils_them() {
        let threads = "NCCL_SOCKET_NTHREADS=1,2,4,8,16";
        let sockets = "NCCL_NSOCKS_PERTHREAD=1,2,4,8,16";
        let all = space(&[threads, sockets], &[]).unwrap();
        let allowed = space(&[threads, sockets], &["NCCL_SOCKET_NTHREADS * NCCL_NSOCKS_PERTHREAD <= 64"]).unwrap();
        // 8 x 16, 16 x 8 and 16 x 16 are too many.
        assert_eq!((all.len(), allowed.len()), (25, 22));
        assert_eq!(allowed[1].name(), "NCCL_SOCKET_NTHREADS=1 NCCL_NSOCKS_PERTHREAD=2");
    }

    #[test]
    fn bad_spaces_are_refused_with_the_reason() {
        let cases: [(&[&str], &[&str], &str); 9] = [
            (&[], &[], "the space is empty"),
            (&["A="], &[], "A: has no values"),
            (&["A=1"], &["B < 2"], "B is no variable of this space"),
            (&["A=1,2"], &["A > 2"], "contradictory: none of its 2 combinations satisfies 'A > 2'"),
            (
                &["NCCL_SOCKET_NTHREAD=1"],
                &[],
                "NCCL has no variable NCCL_SOCKET_NTHREAD. Did you mean NCCL_SOCKET_NTHREADS?",
            ),
            (&["NCCL_SOCKET_NTHREADS=17"], &[], "numbers from 1 to 16"),
            (&["NCCL_PROTO=Fast"], &[], "choose one of LL, LL128, Simple"),
            (&["1A=2"], &[], "not a variable name"),
            (&["A=1"], &["A <"], "it ends where"),
        ];
        for (variables, constraints, says) in cases {
            let error = space(variables, constraints).unwrap_err().to_string();
            assert!(error.contains(says), "{variables:?}: {error}");
        }
    }

    #[test]
    fn a_space_beyond_all_bounds_is_refused_before_it_fills_the_memory() {
        let values: Vec<String> = (0..1000).map(|value| value.to_string()).collect();
        let variables: Vec<String> =
            ["A", "B", "C"].iter().map(|name| format!("{name}={}", values.join(","))).collect();
        let variables: Vec<&str> = variables.iter().map(String::as_str).collect();
        assert_eq!(space(&variables, &[]), Err(SpaceError::TooLarge));
    }

    #[test]
    fn a_condition_leaves_a_variable_alone() {
        let mut space = Space { name: "test".into(), variables: Vec::new(), constraints: Vec::new() };
        space.add("A=x,y").unwrap();
        space.add("B=1,2").unwrap();
        space.variables[1].when = Some(Condition::parse("A == 'x'").unwrap());
        let names: Vec<String> = space.settings().unwrap().iter().map(Setting::name).collect();
        assert_eq!(names, ["A=x B=1", "A=x B=2", "A=y"]);
    }

    #[test]
    fn every_built_in_space_is_sound() {
        for name in NAMES {
            let space = Space::open(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            let settings = space.settings().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(settings.len() > 3, "{name}");
            for variable in &space.variables {
                assert!(variable.meaning.is_some() && variable.limits.source.is_some(), "{name}: {}", variable.name);
            }
        }
    }
}
