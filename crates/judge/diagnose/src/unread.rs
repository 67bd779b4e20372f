//! A table of results that no reader took: what was not read is neither praised nor blamed.
//!
//! It is known by its build, not by a program's words: rows of figures with as many columns each, below a line that names what is measured and its
//! sizes or unit.

use crate::case::Case;
use busbw_model::{Judged, Place, Run, SourceLine, Speaker, Statement, Subject};

/// So many rows make a table.
const FEWEST_ROWS: usize = 3;
/// Lines between the heading and the first row: units, a rule, the numbers of columns.
const MOST_BETWEEN: u64 = 4;
/// A line that is longer tells something else as well.
const LONGEST_HEADING: usize = 160;

/// A question, where results stand in the input and none of a known form.
pub(crate) fn judge(case: &Case) -> Option<Judged> {
    let run = case.run;
    let is_measured = !case.tests.is_empty()
        || !run.perftests.is_empty()
        || !run.copies.is_empty()
        || !run.link_runs.is_empty()
        || !run.inspector_runs.is_empty()
        || !run.rdma_samples.is_empty();
    if is_measured {
        return None;
    }
    let heading = heading_of_rows(&run.statements)?;
    let at = place(run, heading);
    let words = heading.text.trim();
    let question = format!(
        "A table of results stands at {at} (`{words}`), in a form that busbw does not read. Are its figures as they should be? Measure with \
         nccl-tests, `busbw bench` or perftest and give their output, or compare with what `busbw predict` expects"
    );
    let how = "its form is not known, so its figures were not read";
    Some(Judged::open(Subject::Speed, format!("the table at {at}"), how, question))
}

/// `bench.log:41`.
fn place(run: &Run, line: &SourceLine) -> String {
    let Place { input, line } = line.place;
    format!("{}:{line}", run.inputs.get(input as usize).map_or("", |input| &input.path))
}

/// The first line that heads rows of figures.
fn heading_of_rows(statements: &[Statement]) -> Option<&SourceLine> {
    let lines: Vec<&Statement> = statements.iter().filter(|one| one.speaker == Speaker::Program).collect();
    let at = (0..lines.len()).find(|at| is_heading(lines[*at].text()) && has_rows(&lines[*at..]))?;
    Some(&lines[at].source)
}

/// Whether rows follow the first of these lines.
fn has_rows(lines: &[&Statement]) -> bool {
    let place = lines[0].source.place;
    let below = lines[1..].iter().skip_while(|one| one.source.place == place);
    let mut rows = below.skip_while(|one| {
        let between = one.source.place.line.saturating_sub(place.line);
        columns(one.text()).is_none() && one.source.place.input == place.input && between <= MOST_BETWEEN
    });
    let Some(first) = rows.next() else { return false };
    let begins = first.source.place;
    let is_near = begins.input == place.input && begins.line.saturating_sub(place.line) <= MOST_BETWEEN;
    let Some(wide) = columns(first.text()).filter(|_| is_near) else { return false };
    let mut last = begins;
    let follows = |one: &&&Statement| {
        let here = one.source.place;
        let is_next = here.input == last.input && here.line.saturating_sub(last.line) <= 1;
        last = here;
        is_next && columns(one.text()) == Some(wide)
    };
    1 + rows.take_while(follows).count() >= FEWEST_ROWS
}

/// Whether a line names a speed or a time of transfers, and beside it their sizes or its unit.
fn is_heading(text: &str) -> bool {
    const SIZES: [&str; 9] = ["size", "sizes", "msgsize", "bytes", "nbytes", "message", "msg", "count", "elements"];
    const MEASURES: [&str; 8] = ["busbw", "algbw", "bw", "bandwidth", "throughput", "latency", "lat", "busbandwidth"];
    const UNITS: [&str; 12] =
        ["gb/s", "gib/s", "mb/s", "mib/s", "gbit/s", "gbps", "gb/sec", "mb/sec", "us", "usec", "gbytes/s", "mbps"];
    if text.len() > LONGEST_HEADING || columns(text).is_some() {
        return false;
    }
    let has = |known: &[&str]| {
        let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '/');
        words.any(|word| known.iter().any(|known| word.eq_ignore_ascii_case(known)))
    };
    let (sized, measured) = (has(&SIZES), has(&MEASURES));
    sized && measured || (sized || measured) && has(&UNITS)
}

/// How many columns a row of figures has; `None` of a line that is none.
fn columns(text: &str) -> Option<usize> {
    let cells = || text.split([' ', '\t', ',', ';', '|']).filter(|cell| !cell.is_empty());
    if !cells().next().is_some_and(is_figure) {
        return None;
    }
    let figures = cells().filter(|cell| is_figure(cell)).count();
    let all = cells().count();
    (figures >= 2 && figures * 2 > all).then_some(all)
}

/// A number, `N/A` in the place of one, or a size with its unit: `64K`, `4MiB`, `1.5GB`.
fn is_figure(cell: &str) -> bool {
    const UNITS: [&str; 13] = ["", "k", "m", "g", "b", "kb", "mb", "gb", "ki", "kib", "mib", "gib", "%"];
    if cell == "N/A" {
        return true;
    }
    let behind = cell.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+'));
    let number = &cell[..cell.len() - behind.len()];
    let is_number = number.parse::<f64>().is_ok_and(f64::is_finite) || cell.parse::<f64>().is_ok();
    is_number && (UNITS.contains(&behind.to_ascii_lowercase().as_str()) || cell.parse::<f64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_and_rows_are_known_by_their_form() {
        for (text, heads) in [
            ("# Size          Avg Latency(us)", true),
            ("# Size      Bandwidth (MB/s)", true),
            ("size_bytes,time_us,algbw_gbps,busbw_gbps", true),
            ("| size (B) | time (us) | algbw (GB/s) | busbw (GB/s) |", true),
            ("memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)", true),
            ("epoch  train_loss  val_loss  lr", false),
            ("| epoch | loss | samples/s | step time (s) |", false),
            ("1048576  71.93  14.58  27.33", false),
        ] {
            assert_eq!(is_heading(text), heads, "{text}");
        }
        for (text, expected) in [
            ("1048576  71.93  14.58  27.33", Some(4)),
            ("| 64K | 71.93 | 2.67 |", Some(3)),
            ("1.0 MB  1048576x1  1.1 ms  7.6  14.3", Some(7)),
            ("0  N/A  276.07", Some(3)),
            ("aten::mm  2.10%  1.203ms  12.2%", None),
            ("step 10 loss 2.9", None),
            ("4", None),
        ] {
            assert_eq!(columns(text), expected, "{text}");
        }
    }
}
