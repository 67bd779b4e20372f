//! What it tells when a setting cures the trouble: `cures.toml`.

use super::Draft;
use crate::case::Case;
use crate::trial::Trial;
use busbw_model::{Code, Evidence, Finding, Severity};
use serde::Deserialize;
use std::sync::LazyLock;

static CURES: LazyLock<Vec<Cure>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct File {
        cure: Vec<Cure>,
    }
    toml::from_str::<File>(include_str!("cures.toml")).map(|file| file.cure).unwrap_or_default()
});

#[derive(Deserialize)]
struct Cure {
    name: String,
    /// Any value where empty.
    #[serde(default)]
    values: Vec<String>,
    code: Code,
    why: String,
    remedy: Vec<String>,
}

/// A finding per setting that somebody found to help.
pub fn rule(case: &Case) -> Vec<Finding> {
    case.trials.iter().filter(|trial| trial.helps).filter_map(finding).collect()
}

fn finding(trial: &Trial) -> Option<Finding> {
    let (name, value) = (&trial.setting.name, trial.setting.value.trim());
    let cure = CURES.iter().find(|cure| {
        cure.name == *name && (cure.values.is_empty() || cure.values.iter().any(|v| v.eq_ignore_ascii_case(value)))
    })?;
    let draft = Draft {
        code: cure.code,
        severity: Severity::Warning,
        confidence: 0.8,
        title: format!("{name}={value} helps: {}", cure.why),
        explanation: format!("Somebody tried {name}={value}, and it helps. So {}.", cure.why),
    };
    let remedy: Vec<&str> = cure.remedy.iter().map(String::as_str).collect();
    Some(draft.finding(vec![Evidence::noted(trial.setting.source.clone(), "what was tried")], &remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cure_has_a_remedy() {
        assert!(CURES.len() > 15);
        for cure in CURES.iter() {
            assert!(!cure.remedy.is_empty() && !cure.why.ends_with('.'), "{}", cure.name);
        }
    }
}
