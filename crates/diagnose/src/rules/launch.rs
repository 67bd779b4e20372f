//! Processes that each ran a test of their own instead of one test together.

use super::Draft;
use super::device_lists::{self, REMEDY};
use super::launch_command::Launch;
use crate::case::Case;
use busbw_model::{BenchTable, Code, Evidence, Finding, Place, Severity, SourceLine};

/// Several results where a launcher was to start one job. Where devices are listed, the lists tell.
pub fn repeated(case: &Case) -> Vec<Finding> {
    let launches = Launch::all(case);
    let found = launches.iter().enumerate().find_map(|(index, launch)| {
        let next = launches.get(index + 1).map(Launch::place).filter(|p| p.input == launch.place().input);
        let end = next.map_or(u64::MAX, |place| place.line);
        let within =
            |place: Place| place.input == launch.place().input && (launch.place().line..end).contains(&place.line);
        let averages: Vec<f64> =
            case.lines.iter().filter(|l| within(l.source.place)).filter_map(|l| average(&l.text)).collect();
        let alike = averages.len() >= 2 && averages.len() <= launch.processes && all_alike(&averages);
        let listed = case.run.tables.iter().any(|table| within(table.place) && !table.devices.is_empty());
        (alike && !listed).then(|| separate(launch, averages.len()))
    });
    found.into_iter().collect()
}

/// The closing line of a table: `# Avg bus bandwidth    : 3.94145`.
fn average(text: &str) -> Option<f64> {
    text.split_once("# Avg bus bandwidth")?.1.trim_start_matches([' ', ':']).split_whitespace().next()?.parse().ok()
}

/// The same test gives the same average, give or take.
fn all_alike(averages: &[f64]) -> bool {
    let (least, most) =
        (averages.iter().copied().fold(f64::MAX, f64::min), averages.iter().copied().fold(0.0, f64::max));
    most <= 1.3 * least.max(0.01)
}

fn separate(launch: &Launch, results: usize) -> Finding {
    let draft = Draft {
        code: Code::MpiLaunch,
        severity: Severity::Warning,
        confidence: 0.88,
        title: format!("{results} results for one launch: every process ran a test of its own"),
        explanation: format!(
            "The command starts {} processes, and {results} print a result. nccl-tests that is built with MPI prints one, from rank 0; built \
             without, each process tests the GPUs that it sees and knows nothing of the others. The figures are those of single processes.",
            launch.processes,
        ),
    };
    draft.finding(vec![Evidence::noted(launch.line.source.clone(), "one launch")], REMEDY)
}

/// Tables of one rank, in which nothing moves.
pub fn alone(case: &Case) -> Vec<Finding> {
    let explained = !device_lists::rule(case).is_empty() || !repeated(case).is_empty();
    still(case).filter(|_| !explained).into_iter().collect()
}

fn still(case: &Case) -> Option<Finding> {
    let one_rank = |t: &&BenchTable| t.devices.len() == 1 && t.nranks == Some(1) && !t.rows.is_empty();
    let still = |t: &BenchTable| t.rows.iter().filter_map(|r| r.best_busbw()).all(|b| b.0 == 0.0);
    let tables: Vec<&BenchTable> = case.run.tables.iter().filter(one_rank).filter(|t| still(t)).collect();
    let first =
        tables.first().filter(|_| tables.len() == case.run.tables.iter().filter(|t| !t.rows.is_empty()).count())?;
    let draft = Draft {
        code: Code::MpiLaunch,
        severity: Severity::Warning,
        confidence: if tables.len() > 1 { 0.85 } else { 0.7 },
        title: "The test ran on a single rank, so busbw is 0".into(),
        explanation: "With one rank nothing leaves the GPU, and nccl-tests prints a busbw of 0. Where several ranks were meant, the launcher \
                      did not tell the processes of each other: a build without MPI, another MPI's mpirun, or `-g 1` without a launcher."
            .into(),
    };
    let source =
        first.rows.first().map_or_else(|| SourceLine { place: first.place, text: "".into() }, |row| row.source.clone());
    Some(draft.finding(vec![Evidence::noted(source, "one rank")], REMEDY))
}
