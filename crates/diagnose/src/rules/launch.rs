//! Processes that each ran a test of their own instead of one test together.

use super::Draft;
use super::device_lists::{self, REMEDY};
use super::launch_command::Launch;
use crate::case::Case;
use crate::words::listed;
use busbw_model::{BenchTable, Code, Ended, Evidence, Finding, Place, RankEnd, Severity, SourceLine};

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

/// More GPUs asked for than a host has: every process of nccl-tests takes `-t` times `-g` of them, counted on from its place on the host.
pub fn too_many(case: &Case) -> Vec<Finding> {
    let refused = |end: &&&RankEnd| matches!(&end.how, Ended::Failure(said) if said.contains("invalid device ordinal"));
    let Some(first) = case.ends.standing.iter().find(refused) else { return Vec::new() };
    let settings = case.run.tables.iter().map(|table| &table.settings);
    let each = settings.filter_map(|s| Some(s.gpus_per_thread? * s.threads.unwrap_or(1))).max().unwrap_or(1);
    let processes = case.ends.standing.iter().filter(|end| end.host == first.host && refused(end)).count();
    if each < 2 || processes < 2 {
        return Vec::new();
    }
    let draft = Draft {
        code: Code::MpiLaunch,
        severity: Severity::Error,
        confidence: 0.9,
        title: format!("Each process asks for {each} GPUs, and several start on a host: more GPUs than it has"),
        explanation: "nccl-tests gives every process its own GPUs: processes of a host times `-t` times `-g` must not exceed the host's GPUs. CUDA \
                      refused the first that is not there (invalid device ordinal)."
            .into(),
    };
    let remedy = "Start one process per GPU with `-g 1`, or one process per host with `-g` and the number of its GPUs";
    vec![draft.finding(vec![Evidence::new(first.source.clone())], &[remedy])]
}

/// Ranks that lie beyond the size of their world: `Invalid rank requested : 7/4` (`src/init.cc`).
pub fn beyond(case: &Case) -> Vec<Finding> {
    let lines = || case.lines.iter().filter_map(|line| Some((line, rank_of_world(&line.text)?)));
    let mut ranks: Vec<(i64, i64)> = lines().map(|(_, asked)| asked).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let Some((rank, size)) = ranks.first().copied() else { return Vec::new() };
    let beyond: Vec<i64> = ranks.iter().filter(|(_, other)| *other == size).map(|(rank, _)| *rank).collect();
    let noun = if beyond.len() == 1 { "rank" } else { "ranks" };
    let named = listed(beyond.iter(), 8);
    let draft = Draft {
        code: Code::MpiLaunch,
        severity: Severity::Error,
        confidence: 0.95,
        title: format!("NCCL was asked for {noun} {named} in a world of {size}: RANK and WORLD_SIZE do not fit"),
        explanation: format!(
            "Ranks count from 0 to {}; rank {rank} is none of {size}. More processes were started than they were told: one for each visible \
             GPU, with another number as world size, or ranks that count over all nodes with the size of one node.",
            size - 1
        ),
    };
    let evidence = lines().take(4).map(|(line, _)| Evidence::noted(line.source.clone(), "rank / world size")).collect();
    vec![draft.finding(evidence, BEYOND)]
}

const BEYOND: &[&str] = &[
    "Let one launcher set both, and take them from the environment: `torchrun --nnodes=2 --nproc_per_node=8 train.py`",
    "Where the program starts its processes itself: make the world size nodes times processes, and show it only the GPUs that it is to use: `export CUDA_VISIBLE_DEVICES=0,1,2,3`",
    "Print what each process got: `echo $(hostname) rank $RANK of $WORLD_SIZE, local $LOCAL_RANK`",
];

/// The rank and the number of ranks.
fn rank_of_world(text: &str) -> Option<(i64, i64)> {
    let (_, rest) = text.split_once("Invalid rank requested : ")?;
    let (rank, size) = rest.split_whitespace().next()?.split_once('/')?;
    Some((rank.parse().ok()?, size.parse().ok().filter(|size| *size > 0)?))
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
    let explained = || !device_lists::rule(case).is_empty() || !repeated(case).is_empty();
    still(case).filter(|_| !explained()).into_iter().collect()
}

fn still(case: &Case) -> Option<Finding> {
    let one_rank = |t: &&BenchTable| t.devices.len() <= 1 && t.nranks == Some(1) && !t.rows.is_empty();
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
