//! A space as a TOML file.

use super::{Condition, Limits, Space, SpaceError, Variable};
use serde::Deserialize;
use std::path::Path;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    constraints: Vec<String>,
    #[serde(default)]
    variable: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    #[serde(default)]
    values: Vec<Scalar>,
    meaning: Option<String>,
    min: Option<f64>,
    max: Option<f64>,
    #[serde(default)]
    words: Vec<String>,
    source: Option<String>,
    when: Option<String>,
    #[serde(default)]
    unchecked: bool,
}

/// `8` and `"8"` are the same to the environment.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Integer(i64),
    Float(f64),
    Text(String),
}

impl Scalar {
    fn into_text(self) -> String {
        match self {
            Scalar::Integer(number) => number.to_string(),
            Scalar::Float(number) => number.to_string(),
            Scalar::Text(text) => text,
        }
    }
}

pub fn read(path: &str) -> Result<Space, SpaceError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(SpaceError::NotFound(path.to_string()));
        }
        Err(error) => return Err(SpaceError::File(format!("{path}: {error}"))),
    };
    let name = Path::new(path).file_stem().map_or(path.into(), |stem| stem.to_string_lossy());
    parse(&name, &text).map_err(|error| match error {
        SpaceError::File(reason) => SpaceError::File(format!("{path}: {reason}")),
        other => other,
    })
}

pub fn parse(name: &str, text: &str) -> Result<Space, SpaceError> {
    let file: File = ::toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1);
        let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        SpaceError::File(format!("{place}{}", error.message()))
    })?;
    let condition = |text: &String| Condition::parse(text).map_err(SpaceError::Condition);
    Ok(Space {
        name: name.to_string(),
        constraints: file.constraints.iter().map(condition).collect::<Result<_, _>>()?,
        variables: file.variable.into_iter().map(Entry::into_variable).collect::<Result<_, _>>()?,
    })
}

impl Entry {
    fn into_variable(self) -> Result<Variable, SpaceError> {
        let limits = Limits { min: self.min, max: self.max, words: self.words, source: self.source };
        let known = || busbw_diagnose::variable(&self.name).and_then(|known| known.meaning.clone());
        Ok(Variable {
            meaning: self.meaning.or_else(known),
            values: self.values.into_iter().map(Scalar::into_text).collect(),
            limits,
            when: self.when.map(|text| Condition::parse(&text).map_err(SpaceError::Condition)).transpose()?,
            unchecked: self.unchecked,
            name: self.name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_told_with_their_line() {
        let cases = [
            ("[[variable]]\nname = \"A\"\nvaluez = [1]\n", "line 3: "),
            ("constraints = 1\n", "line 1: "),
            ("\n\n= 1\n", "line 3: "),
        ];
        for (text, place) in cases {
            let error = parse("test", text).unwrap_err().to_string();
            assert!(error.starts_with(place), "{text}: {error}");
        }
    }
}
