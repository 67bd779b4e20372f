//! The header line of a table: which cells its rows have, and in which order.

/// A cell of one half of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    /// `time` or `cputime`, µs.
    Time,
    /// `algbw`, GB/s.
    Algbw,
    /// `busbw`, GB/s.
    Busbw,
    /// `#wrong`: a number of elements.
    Wrong,
    /// `error`, up to 2.11: a relative deviation.
    Error,
    /// `#wrong` or `error`, as the number shows: a table without header.
    Check,
    /// `i_min`, µs.
    IterMin,
    /// `i_max`, µs.
    IterMax,
    /// `i_p99`, µs.
    IterP99,
    /// `i_cv%`.
    IterCv,
    /// A column that no release of nccl-tests prints.
    Other,
}

/// A number between the datatype (and the reduction) and the first half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lead {
    /// `root`.
    Root,
    /// A column that no release of nccl-tests prints.
    Other,
}

/// The cells of a row after size, count, datatype and reduction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// Numbers before the first half.
    pub lead: Vec<Lead>,
    /// The halves: out of place, then in place.
    pub halves: Vec<Vec<Column>>,
    /// Whether there is a `redop` column. Its cell may be empty all the same (2.13.0-2.13.3, alltoall of 2.11).
    pub redop: bool,
    /// Whether each row ends in a date and a time of day (`-S`, 2.17.6 and later).
    pub timestamp: bool,
    /// Whether the times are the CPU's, of the calls (`-C`).
    pub cpu_time: bool,
}

impl Layout {
    /// Reads a header line; `None` when the text is none.
    pub fn parse(text: &str) -> Option<Layout> {
        let mut names = text.trim_start_matches(['#', ' ', '\t']).split_ascii_whitespace();
        if (names.next(), names.next(), names.next()) != (Some("size"), Some("count"), Some("type")) {
            return None;
        }
        let mut layout =
            Layout { lead: Vec::new(), halves: Vec::new(), redop: false, timestamp: false, cpu_time: false };
        for name in names.map(|name| quoted(name).unwrap_or(name)) {
            match (name, layout.halves.last_mut()) {
                // `busbw predict` says in words, behind the numbers, what NCCL would choose and what limits it.
                ("algorithm" | "protocol" | "bottleneck", Some(_)) => break,
                ("timestamp", _) => layout.timestamp = true,
                ("time" | "cputime", _) => {
                    layout.cpu_time = name == "cputime";
                    layout.halves.push(vec![Column::Time]);
                }
                ("redop", None) => layout.redop = true,
                ("root", None) => layout.lead.push(Lead::Root),
                (_, None) => layout.lead.push(Lead::Other),
                (_, Some(half)) => half.push(column(name)),
            }
        }
        let measured = |half: &Vec<Column>| half.contains(&Column::Algbw) && half.contains(&Column::Busbw);
        (!layout.halves.is_empty() && layout.halves.iter().all(measured)).then_some(layout)
    }

    /// The layout of a row with this many numbers after its datatype and reduction, when no header tells. A row has
    /// one half or two, and a half 4 cells, or 8 with the statistics of `-I`.
    pub fn guess(numbers: usize) -> Option<Layout> {
        let (root, halves, per_iteration) = match numbers {
            4 => (false, 1, false),
            5 => (true, 1, false),
            8 => (false, 2, false),
            9 => (true, 2, false),
            16 => (false, 2, true),
            17 => (true, 2, true),
            _ => return None,
        };
        let mut half = vec![Column::Time, Column::Algbw, Column::Busbw, Column::Check];
        if per_iteration {
            half.extend([Column::IterMin, Column::IterMax, Column::IterP99, Column::IterCv]);
        }
        let lead = if root { vec![Lead::Root] } else { Vec::new() };
        Some(Layout { lead, halves: vec![half; halves], redop: false, timestamp: false, cpu_time: false })
    }

    /// How many numbers (or `N/A`) a whole row has after its datatype and reduction.
    pub fn numbers(&self) -> usize {
        self.lead.len() + self.halves.iter().map(Vec::len).sum::<usize>()
    }
}

/// A last word behind which a quote ends, or a line of HTML: `0',`, `0<br>`, `0\n`.
pub(super) fn quoted(word: &str) -> Option<&str> {
    word.split_once(['<', '`', '\'', '"', ',', '\\']).map(|(cell, _)| cell)
}

fn column(name: &str) -> Column {
    match name {
        "algbw" => Column::Algbw,
        "busbw" => Column::Busbw,
        "#wrong" | "wrong" => Column::Wrong,
        "error" => Column::Error,
        "i_min" => Column::IterMin,
        "i_max" => Column::IterMax,
        "i_p99" => Column::IterP99,
        "i_cv%" => Column::IterCv,
        _ => Column::Other,
    }
}
