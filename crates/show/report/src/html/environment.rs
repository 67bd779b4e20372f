//! Versions, and every variable that was seen: its value, what it means, how it stands.

use super::markup::{escape, more, with_code};
use crate::words;
use busbw_model::{Diagnosis, EnvOrigin, Run, Variable};

/// Variables that are shown at most.
const MAX_VARIABLES: usize = 200;

/// The section; nothing where neither versions nor variables are known.
pub(super) fn environment(run: &Run, diagnosis: &Diagnosis) -> String {
    let versions = words::versions(run).join(", ");
    let versions = if versions.is_empty() { versions } else { format!("<p>{}</p>\n", escape(&versions)) };
    let variables = variables(run, &diagnosis.variables);
    if versions.is_empty() && variables.is_empty() {
        return String::new();
    }
    versions + &variables
}

fn variables(run: &Run, variables: &[Variable]) -> String {
    if variables.is_empty() {
        return String::new();
    }
    let rows: String = variables.iter().take(MAX_VARIABLES).map(|variable| row(run, variable)).collect();
    format!(
        "<div class=\"scroll\" tabindex=\"0\"><table class=\"variables\">\n\
         <thead><tr><th>variable</th><th>value</th><th>what it does</th><th>seen</th></tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table></div>\n{}",
        more(variables.len(), MAX_VARIABLES)
    )
}

fn row(run: &Run, variable: &Variable) -> String {
    let standing = &variable.standing;
    let meaning = variable.meaning.iter().cloned();
    let default = variable.default.as_ref().map(|default| format!("default {default}"));
    let versions = variable.versions.as_ref().map(|versions| format!("NCCL {versions}"));
    let known: Vec<String> = meaning.chain(default).chain(versions).collect();
    let remark = standing.remark().map(|remark| format!("<p class=\"remark\">{}</p>", with_code(remark)));
    let origin = match variable.origin {
        EnvOrigin::NcclLog => "",
        EnvOrigin::CommandLine => "launch command, ",
    };
    format!(
        "<tr class=\"{}\"><td><code>{}</code></td><td><code>{}</code></td><td>{}{}</td><td>{origin}{}</td></tr>\n",
        standing.as_str().replace(' ', "-"),
        escape(&variable.name),
        escape(&variable.value),
        escape(&known.join("; ")),
        remark.unwrap_or_default(),
        escape(&words::location(run, variable.place)),
    )
}
