//! A prediction as a table of nccl-tests' shape. What is no row begins with `#`, so that what reads the tables of
//! nccl-tests reads this one too; `busbw explain` does.

use super::Style;
use super::page::{Page, paint};
use crate::description;
use crate::style::{clean_line, left, widest, wrap};
use crate::words::counted;
use busbw_model::{Collective, Datatype};
use busbw_predict::{Calibrated, Cluster, Prediction, PredictionRow};

/// What rows are said to hold: the default of nccl-tests.
const DATATYPE: Datatype = Datatype::Float;

/// The table that a run on the cluster should print, with the physical limit, NCCL's choice and the bottleneck of each
/// size beside the columns of nccl-tests, and what was assumed above it.
pub fn predict(cluster: &Cluster, prediction: &Prediction, style: &Style) -> String {
    let mut page = Page::new(*style);
    let ranks = counted(prediction.ranks, "rank");
    comment(&mut page, &format!("busbw predict: {}_perf on {ranks}, expected, not measured", prediction.collective));
    comment(&mut page, &description::parts(cluster).join("; "));
    for line in prediction.calibrated.iter().flat_map(calibrated) {
        comment(&mut page, &line);
    }
    for line in prediction.fabric.iter().map(description::hashed) {
        comment(&mut page, &line);
    }
    for line in prediction.busiest.iter().map(description::busiest) {
        comment(&mut page, &line);
    }
    for assumption in &prediction.assumptions {
        comment(&mut page, &format!("assumed: {assumption}"));
    }
    comment(&mut page, "low, high: the busbw that nine of ten such machines lie between");
    page.text("#");
    page.end_line();
    let mut out = page.finish();
    let widths = [
        width(prediction, "algorithm", |row| row.algorithm.name()),
        width(prediction, "protocol", |row| row.protocol.name()),
    ];
    header(&mut out, widths);
    for row in &prediction.rows {
        out.push_str(&line(prediction, row, widths));
    }
    out.push_str(&average(prediction));
    out
}

/// What was fitted, and how to keep it.
fn calibrated(calibrated: &Calibrated) -> Vec<String> {
    let Calibrated { factors, tables, rows, error_before, error_after } = calibrated;
    let percent = |share: &f64| format!("{:.1}%", 100.0 * share);
    let mut lines = vec![format!(
        "Calibrated on {} ({}): the time is off by {} (median), {} before. To keep it, append to the description:",
        counted(*tables, "table"),
        counted(*rows, "row"),
        percent(error_after),
        percent(error_before)
    )];
    lines.push("[calibration]".into());
    lines.extend(factors.factors().map(|(name, factor)| format!("{name} = {factor:.3}")));
    lines.extend(factors.collective.map(|collective| format!("collective = \"{collective}\"")));
    lines
}

/// The width of a column of words: that of its widest cell.
fn width(prediction: &Prediction, name: &str, cell: fn(&PredictionRow) -> &'static str) -> usize {
    widest(prediction.rows.iter().map(cell)).max(name.len())
}

/// A text on lines that begin with `#`.
fn comment(page: &mut Page, text: &str) {
    for (number, line) in wrap(&clean_line(text), page.width()).into_iter().enumerate() {
        let mark = if number == 0 { "# " } else { "#   " };
        page.styled_line(paint::DIM, &format!("{mark}{line}"));
    }
}

fn header(out: &mut String, [algorithm, protocol]: [usize; 2]) {
    let names = ["size", "count", "type", "redop", "root", "time", "algbw", "busbw", "limit", "low", "high"];
    let units = ["(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "(GB/s)", "(GB/s)", "(GB/s)"];
    for (cells, words) in [(names, ["algorithm", "protocol", "bottleneck"]), (units, [""; 3])] {
        let [size, count, datatype, redop, root, time, algbw, busbw, limit, low, high] = cells;
        let numbers = format!(
            "# {size:>10}  {count:>12}  {datatype:>8}  {redop:>6}  {root:>6}  {time:>10}  {algbw:>7}  {busbw:>7}  {limit:>7}  {low:>7}  {high:>7}"
        );
        let words = format!("  {}  {}  {}", left(words[0], algorithm), left(words[1], protocol), words[2]);
        out.push_str(format!("{numbers}{words}").trim_end());
        out.push('\n');
    }
}

fn line(prediction: &Prediction, row: &PredictionRow, [algorithm, protocol]: [usize; 2]) -> String {
    let root = if has_root(prediction.collective) { 0 } else { -1 };
    let redop = if reduces(prediction.collective) { "sum" } else { "none" };
    let numbers = format!(
        "{:12}  {:12}  {:>8}  {redop:>6}  {root:>6}  {:>10.2}  {:>7.2}  {:>7.2}  {:>7.2}  {:>7.2}  {:>7.2}",
        row.size.0,
        count(prediction, row),
        DATATYPE.name(),
        row.time.0,
        row.algbw.0,
        row.busbw.0,
        row.limit.0,
        row.band.0.0,
        row.band.1.0
    );
    let words = [left(row.algorithm.name(), algorithm), left(row.protocol.name(), protocol)];
    format!("{numbers}  {}  {}  {}\n", words[0], words[1], clean_line(&row.bottleneck))
}

/// Elements as nccl-tests counts them: those of a rank's part where every rank has a part of its own
/// (`*GetCollByteCount` in nccl-tests' `src/*.cu`).
fn count(prediction: &Prediction, row: &PredictionRow) -> u64 {
    let whole = row.size.0 / DATATYPE.size();
    match prediction.collective {
        Collective::AllReduce | Collective::Broadcast | Collective::Reduce | Collective::SendRecv => whole,
        _ => whole / (prediction.ranks as u64).max(1),
    }
}

fn has_root(collective: Collective) -> bool {
    matches!(collective, Collective::Broadcast | Collective::Reduce | Collective::Gather | Collective::Scatter)
}

fn reduces(collective: Collective) -> bool {
    matches!(collective, Collective::AllReduce | Collective::Reduce | Collective::ReduceScatter)
}

/// The closing line of nccl-tests. It says little about a cluster, but what reads tables looks for it.
fn average(prediction: &Prediction) -> String {
    let mean = prediction.rows.iter().map(|row| row.busbw.0).sum::<f64>() / prediction.rows.len().max(1) as f64;
    format!("# Avg bus bandwidth    : {mean:.4}\n")
}
