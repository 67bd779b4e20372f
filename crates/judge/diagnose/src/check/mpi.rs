//! What starts ranks: mpirun and ssh.

use super::area_report::AreaReport;
use busbw_model::node::Program;
use busbw_model::{Code, NodeFacts};

pub(super) fn check(node: &NodeFacts, report: &mut AreaReport) {
    for program in &node.programs {
        let item = if program.name == "ssh" { "ssh" } else { "mpirun" };
        match (&program.path, &program.version) {
            (None, _) => report.skip(item, format!("no {} on the PATH", program.name)),
            (Some(path), None) => {
                let remedy = format!("It must run before it can start ranks; see its message: `{path} {}`", flag(item));
                report.warn(item, format!("{path} does not tell its version"), Some(Code::MpiLaunch), remedy);
            }
            (Some(path), Some(version)) => told(item, path, version, report),
        }
    }
    if node.programs.is_empty() {
        report.skip("mpirun", "a captured tree has no programs to ask");
    }
    foreign_mpi(&node.programs, node, report);
}

/// What the program is asked for its version with.
fn flag(item: &str) -> &'static str {
    if item == "ssh" { "-V" } else { "--version" }
}

/// Open MPI 5.0: nccl-tests hung over several nodes (github.com/NVIDIA/nccl-tests/issues/229, with 5.0.3 and UCX) or ran once
/// per node (issue 213); in both the same programs ran with 4.1.
fn told(item: &'static str, path: &str, version: &str, report: &mut AreaReport) {
    let detail = format!("{version} ({path})");
    if version.contains("Open MPI") && version.contains(" 5.0") {
        let remedy = "nccl-tests were seen to hang or to run once per node with Open MPI 5.0 (github.com/NVIDIA/nccl-tests issues 213 and 229): if a run does, build them with Open MPI 4.1";
        return report.warn(item, detail, Some(Code::MpiLaunch), remedy);
    }
    report.ok(item, detail);
}

/// Variables of one MPI beside the mpirun of another are a sign of mixed installations.
fn foreign_mpi(programs: &[Program], node: &NodeFacts, report: &mut AreaReport) {
    let is_mpich =
        programs.iter().filter_map(|program| program.version.as_deref()).any(|version| version.contains("MPICH"));
    let set = node.environment.keys().find(|name| name.starts_with("OMPI_MCA_"));
    if let Some(name) = set.filter(|_| is_mpich) {
        let remedy =
            format!("MPICH ignores Open MPI's settings: put Open MPI's mpirun first on the PATH, or `unset {name}`");
        report.warn("mpirun", format!("{name} is set, and mpirun is MPICH's"), Some(Code::MpiLaunch), remedy);
    }
}
