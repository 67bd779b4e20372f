//! Variables that override what NCCL would choose: `environment.toml` says which values do what.

use crate::case::Case;
use busbw_model::{Code, EnvSetting, Evidence, Finding, Severity};
use serde::Deserialize;
use std::sync::LazyLock;

static SETTINGS: LazyLock<Vec<Known>> = LazyLock::new(|| {
    toml::from_str::<File>(include_str!("environment.toml")).map(|file| file.setting).unwrap_or_default()
});

#[derive(Deserialize)]
struct File {
    setting: Vec<Known>,
}

#[derive(Deserialize)]
struct Known {
    name: String,
    when: When,
    #[serde(default)]
    needs: Needs,
    severity: Level,
    effect: String,
}

/// Which values matter.
#[derive(Deserialize)]
#[serde(untagged)]
enum When {
    Values(Vec<String>),
    Rule(String),
}

#[derive(Deserialize, Default, PartialEq, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Needs {
    #[default]
    Nothing,
    Nodes,
    Gpus,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Level {
    Info,
    Warning,
}

/// A finding per variable that overrides NCCL's choice.
pub fn rule(case: &Case) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for setting in &case.run.nccl.env {
        let known = SETTINGS.iter().find(|known| known.name == setting.name && known.when.fits(&setting.value));
        let Some(known) = known.filter(|known| known.needs.met(case)) else { continue };
        let finding = finding(setting, known);
        if !findings.iter().any(|f| f.title == finding.title) {
            findings.push(finding);
        }
    }
    findings
}

impl When {
    fn fits(&self, value: &str) -> bool {
        let value = value.trim();
        match self {
            When::Values(values) => values.iter().any(|v| v.eq_ignore_ascii_case(value)),
            When::Rule(rule) => match rule.strip_prefix("below ").and_then(|n| n.parse::<i64>().ok()) {
                Some(limit) => value.parse::<i64>().is_ok_and(|number| (0..limit).contains(&number)),
                None => true,
            },
        }
    }
}

impl Needs {
    /// Whether the run is one that the variable matters to. What is not known does not rule a run out.
    fn met(self, case: &Case) -> bool {
        let comm = case.largest();
        let nodes = comm.and_then(|c| c.nnodes).or_else(|| case.tests.first().and_then(|t| t.nodes));
        let ranks = comm.and_then(|c| c.nranks).or_else(|| case.tests.first().and_then(|t| t.table.nranks));
        match self {
            Needs::Nothing => true,
            Needs::Nodes => nodes.is_none_or(|n| n > 1),
            Needs::Gpus => match (nodes, ranks) {
                (Some(nodes), Some(ranks)) => ranks > nodes,
                _ => true,
            },
        }
    }
}

fn finding(setting: &EnvSetting, known: &Known) -> Finding {
    let EnvSetting { name, value, .. } = setting;
    let (severity, advice) = match known.severity {
        Level::Info => (Severity::Info, "Leave it if it was chosen by measuring; else measure once without it"),
        Level::Warning => (Severity::Warning, "Unless it is there for a reason, run once without it and compare"),
    };
    Finding {
        code: Code::EnvOverride,
        severity,
        confidence: 0.8,
        title: format!("{name}={value} overrides what NCCL would choose"),
        explanation: format!("The variable {}.", known.effect),
        evidence: vec![Evidence::noted(setting.source.clone(), "set here")],
        remedy: vec![format!("{advice}: `unset {name}`")],
        expected_gain: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_variables_is_read() {
        assert!(SETTINGS.len() > 10);
        assert!(SETTINGS.iter().all(|s| s.name.starts_with("NCCL_") && !s.effect.ends_with('.')));
    }

    #[test]
    fn values_are_compared_as_nccl_reads_them() {
        let below = When::Rule("below 4".into());
        assert!(below.fits("2") && !below.fits("4") && !below.fits("-1") && !below.fits("many"));
        let values = When::Values(vec!["LOC".into(), "0".into()]);
        assert!(values.fits("loc") && values.fits("0") && !values.fits("SYS"));
    }
}
