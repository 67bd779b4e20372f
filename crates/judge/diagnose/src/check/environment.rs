//! Variables that hurt, by the rules that judge those of a run.

use super::area_report::AreaReport;
use super::net::{self, SOCKET_INTERFACES};
use super::{ports::HCAS, rdma};
use crate::case::Case;
use crate::rules::environment;
use busbw_model::node::TuningTableFile;
use busbw_model::{
    Code, EnvOrigin, EnvSetting, Finding, NodeFacts, Place, Run, Severity, SourceLine, VersionLine, counted,
};

pub(super) fn check(node: &NodeFacts, report: &mut AreaReport) {
    if let Some(table) = &node.tuning_table {
        tuning_table(table, report);
    }
    if node.environment.keys().all(|name| name == "LD_LIBRARY_PATH") {
        return report.ok("variables", "none set that NCCL, UCX, libfabric or Open MPI reads");
    }
    let run = as_run(node);
    let case = Case::new(&run);
    let findings: Vec<Finding> = environment::rule(&case).into_iter().chain(environment::unknown(&case)).collect();
    for name in node.environment.keys().filter(|name| is_judged_here(name, node)) {
        let setting = format!("{name}={}", node.environment[name]);
        match findings.iter().find(|finding| names_it(finding, name)) {
            Some(finding) => judged(&setting, finding, report),
            None => report.ok("variable", setting),
        }
    }
}

/// A table that cannot be used is passed over by NCCL's tuner plugin: on this node, and perhaps on no other.
fn tuning_table(table: &TuningTableFile, report: &mut AreaReport) {
    const ITEM: &str = "tuning table";
    let TuningTableFile { path, sha256, choices, problem } = table;
    let hash = sha256.as_deref().unwrap_or("unknown");
    match problem {
        None => report.ok(ITEM, format!("{path}, {}, sha256 {hash}", counted(choices.unwrap_or(0), "choice"))),
        Some(problem) => report.warn(
            ITEM,
            format!("{path}: {problem}; NCCL's own choices hold here"),
            Some(Code::EnvOverride),
            format!("Copy the table that the other hosts have, or take it away on all: `sudo rm {path}; unset BUSBW_TUNING_TABLE`"),
        ),
    }
}

/// What fails by a line of its own in another area is not called `ok` here.
fn is_judged_here(name: &str, node: &NodeFacts) -> bool {
    match name {
        "LD_LIBRARY_PATH" => false,
        SOCKET_INTERFACES => net::misnamed(node).is_none(),
        HCAS => rdma::absent(node).is_empty(),
        _ => true,
    }
}

fn names_it(finding: &Finding, name: &str) -> bool {
    finding.evidence.iter().any(|evidence| evidence.source.text.split('=').next() == Some(name))
}

/// What only fixes a choice may be meant; what has no effect is not.
fn judged(setting: &str, finding: &Finding, report: &mut AreaReport) {
    let has_no_effect = finding.evidence.iter().any(|evidence| evidence.note.as_deref() == Some("no effect"));
    let remedy = finding.remedy.first().cloned().unwrap_or_default();
    if has_no_effect {
        report.warn("variable", format!("{setting}: {}", finding.title), Some(finding.code), remedy);
    } else if finding.severity >= Severity::Warning {
        report.warn("variable", format!("{setting}: {}", finding.explanation), Some(finding.code), remedy);
    } else {
        report.ok("variable", format!("{setting}: {}", finding.explanation));
    }
}

/// The node's variables and NCCL, as a log would show them.
fn as_run(node: &NodeFacts) -> Run {
    let mut run = Run::default();
    let source = |text: &str| SourceLine::new(Place::default(), text);
    for (name, value) in &node.environment {
        run.nccl.env.push(EnvSetting {
            name: name.clone(),
            value: value.clone(),
            origin: EnvOrigin::NcclLog,
            source: source(&format!("{name}={value}")),
            until: None,
            hosts: Vec::new(),
        });
    }
    if let Some(version) = node.nccl.first().and_then(|library| library.version.as_ref()) {
        run.nccl.versions.push(VersionLine {
            version: version.clone(),
            cuda: None,
            library: busbw_model::Library::Nccl,
            processes: Vec::new(),
            source: source(version),
        });
    }
    run
}
