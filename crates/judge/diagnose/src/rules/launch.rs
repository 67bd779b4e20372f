//! Processes that each ran a test of their own instead of one test together.

use super::device_lists;
use super::found;
use super::launch_command::Launch;
use crate::case::Case;
use crate::words::listed;
use busbw_model::{BenchTable, Ended, Evidence, Finding, Place, RankEnd, Severity, SourceLine};
use std::fmt::Display;

/// Several results where a launcher was to start one job. Where devices are listed, the lists show.
pub fn repeated(case: &Case) -> Vec<Finding> {
    let launches = Launch::all(&case.lines);
    let results = launches.iter().enumerate().find_map(|(index, launch)| {
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
    results.into_iter().collect()
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
    vec![found("launch.too-many", &[("each", &each)], vec![Evidence::new(first.source.clone())])]
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
    let words: [(&str, &dyn Display); 5] =
        [("noun", &noun), ("named", &named), ("size", &size), ("last", &(size - 1)), ("rank", &rank)];
    let evidence = lines().take(4).map(|(line, _)| Evidence::noted(line.source.clone(), "rank / world size")).collect();
    vec![found("launch.beyond", &words, evidence)]
}

/// The rank and the number of ranks.
fn rank_of_world(text: &str) -> Option<(i64, i64)> {
    let (_, rest) = text.split_once("Invalid rank requested : ")?;
    let (rank, size) = rest.split_whitespace().next()?.split_once('/')?;
    Some((rank.parse().ok()?, size.parse().ok().filter(|size| *size > 0)?))
}

/// The closing line of a table: `# Avg bus bandwidth    : 3.94145`.
fn average(text: &str) -> Option<f64> {
    // To look for a byte is quicker, and few lines have it.
    text.contains('#').then_some(())?;
    text.split_once("# Avg bus bandwidth")?.1.trim_start_matches([' ', ':']).split_whitespace().next()?.parse().ok()
}

/// The same test gives the same average, give or take.
fn all_alike(averages: &[f64]) -> bool {
    let (least, most) =
        (averages.iter().copied().fold(f64::MAX, f64::min), averages.iter().copied().fold(0.0, f64::max));
    most <= 1.3 * least.max(0.01)
}

fn separate(launch: &Launch, results: usize) -> Finding {
    let words: [(&str, &dyn Display); 2] = [("results", &results), ("processes", &launch.processes)];
    found("launch.results", &words, vec![Evidence::noted(launch.line.source.clone(), "one launch")])
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
    // One such table may be what was asked for, whether its end is there or not.
    let (severity, confidence) = if tables.len() > 1 { (Severity::Warning, 0.85) } else { (Severity::Info, 0.7) };
    let source =
        first.rows.first().map_or_else(|| SourceLine { place: first.place, text: "".into() }, |row| row.source.clone());
    Some(Finding { severity, confidence, ..found("launch.alone", &[], vec![Evidence::noted(source, "one rank")]) })
}
