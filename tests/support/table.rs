//! What tests look for in a table of `busbw bench`, read apart from busbw's own reader.

/// A line `#  Rank  0 Group  0 Pid  123 on host device  0 [0x00] name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankLine {
    pub rank: usize,
    pub pid: u32,
    pub host: String,
}

/// One half of a row, out of place or in place, as printed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Half {
    pub time_us: f64,
    pub algbw_gbs: f64,
    pub busbw_gbs: f64,
    pub wrong: f64,
}

/// One row of a table with 13 cells.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    pub size_bytes: u64,
    pub count: u64,
    pub out_of_place: Half,
    pub in_place: Half,
}

/// The rank lines, once all of `ranks` are there and the table has begun; in the order printed.
pub fn ranks(text: &str, ranks: usize) -> Option<Vec<RankLine>> {
    let lines: Vec<RankLine> = text.lines().filter_map(rank_line).collect();
    (lines.len() >= ranks && text.contains("(elements)")).then_some(lines)
}

fn rank_line(line: &str) -> Option<RankLine> {
    let words: Vec<&str> = line.strip_prefix('#')?.split_whitespace().collect();
    let ["Rank", rank, "Group", _, "Pid", pid, "on", host, "device", ..] = words[..] else {
        return None;
    };
    Some(RankLine { rank: rank.parse().ok()?, pid: pid.parse().ok()?, host: host.to_string() })
}

/// The rows, in the order printed.
pub fn rows(text: &str) -> Vec<Row> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(row).collect()
}

fn row(line: &str) -> Option<Row> {
    let cells: Vec<&str> = line.split_whitespace().collect();
    if cells.len() != 13 {
        return None;
    }
    let half = |from: usize| {
        let number = |index: usize| cells[from + index].parse().ok();
        Some(Half { time_us: number(0)?, algbw_gbs: number(1)?, busbw_gbs: number(2)?, wrong: number(3)? })
    };
    Some(Row {
        size_bytes: cells[0].parse().ok()?,
        count: cells[1].parse().ok()?,
        out_of_place: half(5)?,
        in_place: half(9)?,
    })
}
