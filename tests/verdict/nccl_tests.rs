//! Lines of nccl-tests by their form, told apart without busbw's own reader; and tables at another speed.

/// What a line of nccl-tests' output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Header, rows and footer.
    Table,
    /// The list of ranks and their devices.
    Devices,
    /// The command and its parameters.
    Command,
    /// Any other line.
    Other,
}

/// The part of nccl-tests' output that a line belongs to.
pub fn part(line: &str) -> Part {
    let text = without_tag(line).trim_start();
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    match text.strip_prefix('#') {
        None if is_row(text) => Part::Table,
        None if has(&["_perf "]) && !has(&["NCCL INFO"]) => Part::Command,
        Some(rest) if rest.trim_start().starts_with("Rank ") && has(&[" Pid "]) => Part::Devices,
        Some(_) if has(&["Using devices"]) => Part::Devices,
        Some(_) if has(&["nThread", "Collective test starting"]) => Part::Command,
        Some(_) if has(&["out-of-place", "redop", "(elements)", "Out of bounds values", "Avg bus bandwidth"]) => {
            Part::Table
        }
        _ => Part::Other,
    }
}

/// The lines of some parts.
pub fn only(text: &str, parts: &[Part]) -> String {
    text.lines().filter(|line| parts.contains(&part(line))).map(|line| format!("{line}\n")).collect()
}

/// The number of tables, by their headers.
pub fn tables(text: &str) -> usize {
    text.lines().filter(|line| line.contains("(elements)")).count()
}

/// The number of rows.
pub fn rows(text: &str) -> usize {
    text.lines().filter(|line| is_row(line)).count()
}

/// A row: size, count, type, then up to three words, then two times `time algbw busbw #wrong`; a launcher's tag may stand first.
fn is_row(line: &str) -> bool {
    let cells: Vec<&str> = without_tag(line).split_whitespace().collect();
    let whole = |cell: &&str| cell.parse::<u64>().is_ok();
    let measured = |cell: &&str| cell.parse::<f64>().is_ok() || *cell == "N/A";
    (11..=13).contains(&cells.len()) && cells[..2].iter().all(whole) && cells[cells.len() - 8..].iter().all(measured)
}

/// A line without what Open MPI's `--tag-output` puts in front: `[1,0]<stdout>:`.
fn without_tag(line: &str) -> &str {
    line.split_once("<stdout>:").map_or(line, |(_, line)| line)
}

/// The same output of a run at another speed: times divided by the factor, bandwidths times it.
pub fn scaled(text: &str, factor: f64) -> String {
    text.lines().map(|line| scaled_line(line, factor) + "\n").collect()
}

fn scaled_line(line: &str, factor: f64) -> String {
    if is_row(line) {
        let cells = line.split_whitespace().count();
        return with_words(line, |at, word| match (at + 8).checked_sub(cells).map(|measured| measured % 4) {
            Some(0) => times(word, 1.0 / factor),
            Some(1 | 2) => times(word, factor),
            _ => None,
        });
    }
    if part(line) == Part::Table && line.contains("Avg bus bandwidth") {
        return with_words(line, |_, word| times(word, factor));
    }
    line.to_string()
}

/// A number times a factor, with as many decimals as it had.
fn times(number: &str, factor: f64) -> Option<String> {
    let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    number.parse::<f64>().ok().map(|value| format!("{:.decimals$}", value * factor))
}

/// A line with some of its words replaced; a word keeps its column where the new one is no longer.
fn with_words(line: &str, replace: impl Fn(usize, &str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut count = 0;
    for piece in line.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end();
        let new = (!word.is_empty()).then(|| replace(count, word)).flatten();
        count += usize::from(!word.is_empty());
        out +=
            &new.map_or(piece.to_string(), |new| format!("{new:>width$}{}", &piece[word.len()..], width = word.len()));
    }
    out
}

#[test]
fn a_table_at_half_speed_takes_twice_the_time() {
    let row = "     1048576        262144     float     sum      -1    40.00   26.21   49.15      0    41.00   25.58   47.95    N/A";
    let half = scaled(row, 0.5);
    assert_eq!(
        half.split_whitespace().skip(5).collect::<Vec<_>>(),
        "80.00 13.11 24.57 0 82.00 12.79 23.98 N/A".split(' ').collect::<Vec<_>>()
    );
    assert_eq!(
        scaled("[1,0]<stdout>: 8 2 float sum -1 10 20 30 0 N/A N/A N/A N/A", 0.5),
        "[1,0]<stdout>: 8 2 float sum -1 20 10 15 0 N/A N/A N/A N/A\n"
    );
    assert_eq!(scaled("# Avg bus bandwidth    : 42.5 ", 0.5), "# Avg bus bandwidth    : 21.2 \n");
}
