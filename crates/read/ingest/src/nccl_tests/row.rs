//! Rows of a table, put together from cells as they arrive: whole lines, or the pieces that NCCL's log lines left of them.

use super::header::{Column, Layout, Lead, quoted};
use crate::TextLine;
use busbw_model::{BenchRow, Bytes, Check, Datatype, GBps, IterationStats, Measure, Micros, RedOp, SourceLine};

/// A whole row of `-I` with a time stamp has 23 cells; what comes in more pieces than that is no row.
const MAX_PIECES: usize = 24;
/// The numbers after datatype and reduction in the widest row, for tables without header: root and two halves of `-I`.
const MAX_NUMBERS: usize = 17;

/// A word of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Cell {
    Number(Number),
    /// `N/A`.
    NotDone,
    Type(Datatype),
    /// A reduction; `none` is `None`.
    Op(Option<RedOp>),
    /// The date or the time of day of `-S`.
    Stamp,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Number {
    value: f64,
    /// The value where it is printed as an integer.
    whole: Option<i64>,
    /// Printed with an exponent that `%g` would not have used: the `error` column, whose format is `%5.0le`.
    scientific: bool,
}

impl Cell {
    fn read(word: &str) -> Option<Cell> {
        match word.as_bytes().first()? {
            b'0'..=b'9' | b'-' | b'+' | b'.' => number(word).or_else(|| is_stamp(word).then_some(Cell::Stamp)),
            _ => match word {
                "N/A" => Some(Cell::NotDone),
                "none" => Some(Cell::Op(None)),
                "nan" | "inf" | "NaN" | "Inf" => number(word),
                _ => Datatype::from_name(word)
                    .map(Cell::Type)
                    .or_else(|| RedOp::from_name(word).map(|op| Cell::Op(Some(op)))),
            },
        }
    }

    /// A last cell to which other output sticks without a space: `sumhostA:1:2`, `-1hostA:1:2`, `0# NCCL_TESTS_…`.
    fn read_torn(word: &str, after: Option<Cell>) -> Option<Cell> {
        if let Some((cell, _)) = word.split_once('#') {
            return Cell::read(cell);
        }
        let mut ops = ["sum", "prod", "max", "min", "avg", "mulsum", "none"].into_iter();
        match after {
            Some(Cell::Type(_)) => ops.find(|op| word.starts_with(op)).and_then(Cell::read),
            Some(Cell::Op(_)) if word.starts_with("-1") => number("-1"),
            _ => None,
        }
    }

    fn count(self) -> Option<u64> {
        match self {
            Cell::Number(number) => number.whole.and_then(|whole| u64::try_from(whole).ok()),
            _ => None,
        }
    }

    fn finite(self) -> Option<f64> {
        match self {
            Cell::Number(number) if number.value.is_finite() => Some(number.value),
            _ => None,
        }
    }
}

fn number(word: &str) -> Option<Cell> {
    let value: f64 = word.parse().ok()?;
    let scientific = value.abs() < 1e6 && word.contains('e');
    Some(Cell::Number(Number { value, whole: word.parse().ok(), scientific }))
}

/// `2025-11-20` or `13:45:10`, the format of `formatNow` in nccl-tests' `src/util.cu`.
fn is_stamp(word: &str) -> bool {
    let shape = |separator: char, widths: [usize; 3]| {
        let mut parts = word.split(separator);
        widths
            .iter()
            .all(|width| parts.next().is_some_and(|p| p.len() == *width && p.bytes().all(|b| b.is_ascii_digit())))
            && parts.next().is_none()
    };
    shape('-', [4, 2, 2]) || shape(':', [2, 2, 2])
}

/// What came before a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a> {
    /// The columns, where a header names them.
    pub layout: Option<&'a Layout>,
    /// Whether a header or a row came. Without, only a text that begins like a row is taken.
    pub in_table: bool,
}

/// A row whose size, count and datatype are known.
#[derive(Debug, Clone)]
struct RowHead {
    size: u64,
    count: u64,
    datatype: Datatype,
    /// `None` until the cell came; it may be missing.
    redop: Option<Option<RedOp>>,
}

/// Puts the rows of one stream together.
///
/// Cells are a stream: a datatype makes the two integers before it the size and the count of a new row, and what
/// follows up to the next row are the cells of its halves. So it does not matter where other output tore the row.
#[derive(Debug, Clone, Default)]
pub(super) struct RowBuilder {
    /// The lines and pieces of lines that the open row came in.
    pieces: Vec<SourceLine>,
    begun: Option<RowHead>,
    /// The cells after datatype and reduction with the index of their piece; before a datatype, its size and count.
    cells: Vec<(Cell, usize)>,
}

impl RowBuilder {
    /// Offers a line, or a piece of one, and returns the rows that it completes. `None`, and nothing changes, when it
    /// cannot be a part of a row here. `text` is that of the line without a script's tag.
    pub fn feed(&mut self, line: &TextLine<'_>, text: &str, context: Context<'_>) -> Option<Vec<BenchRow>> {
        let Context { layout, in_table } = context;
        let (cells, all) = read_cells(text);
        let begins = matches!(cells[..], [a, b, Cell::Type(_), ..] if a.count().is_some() && b.count().is_some());
        if cells.is_empty() || !(begins || all && in_table) {
            return None;
        }
        let mut rows = Vec::new();
        let mut next = self.clone();
        if begins {
            rows.extend(next.flush(layout));
            next = RowBuilder::default();
        }
        next.pieces.push(SourceLine::new(line.place, line.text));
        for cell in cells {
            next.push(cell, layout, &mut rows)?;
        }
        if layout.is_none() {
            rows.extend(next.take_if_whole());
        }
        if next.pieces.len() > MAX_PIECES || (next.begun.is_none() && next.cells.is_empty()) {
            next = RowBuilder::default();
        }
        *self = next;
        Some(rows)
    }

    /// Ends the open row. It is kept when at least its first half is there.
    pub fn flush(&mut self, layout: Option<&Layout>) -> Option<BenchRow> {
        let begun = self.begun.take()?;
        let cells = std::mem::take(&mut self.cells);
        let source = self.pieces.first()?;
        match layout {
            Some(layout) => assemble(&begun, &cells, layout, source),
            None => [cells.len(), 5, 4].into_iter().find_map(|numbers| guess(&begun, cells.get(..numbers)?, source)),
        }
    }

    /// Adds a cell; `None` when it does not fit.
    fn push(&mut self, cell: Cell, layout: Option<&Layout>, rows: &mut Vec<BenchRow>) -> Option<()> {
        let piece = self.pieces.len().checked_sub(1)?;
        match (cell, &mut self.begun) {
            (Cell::Stamp, begun) => {
                let expected = begun.is_some() || !rows.is_empty() || layout.is_some_and(|layout| layout.timestamp);
                return expected.then_some(());
            }
            (Cell::Type(datatype), _) => self.begin(datatype, layout, rows)?,
            (Cell::Op(op), Some(begun)) if begun.redop.is_none() && self.cells.is_empty() => begun.redop = Some(op),
            (Cell::Op(_), _) => return None,
            (Cell::Number(_) | Cell::NotDone, None) => {
                cell.count()?;
                if self.cells.len() == 2 {
                    self.cells.remove(0);
                }
                self.cells.push((cell, piece));
            }
            (Cell::Number(_) | Cell::NotDone, Some(_)) => {
                let room = layout.map_or(MAX_NUMBERS, Layout::numbers);
                if self.cells.len() >= room {
                    return None;
                }
                self.cells.push((cell, piece));
                if layout.is_some() && self.cells.len() == room {
                    rows.extend(self.flush(layout));
                }
            }
        }
        Some(())
    }

    /// A datatype came: the two integers before it begin a row, and what is left before them ends another.
    fn begin(&mut self, datatype: Datatype, layout: Option<&Layout>, rows: &mut Vec<BenchRow>) -> Option<()> {
        let (count, _) = self.cells.pop()?;
        let (size, piece) = self.cells.pop()?;
        let begun = RowHead { size: size.count()?, count: count.count()?, datatype, redop: None };
        rows.extend(self.flush(layout));
        self.cells.clear();
        self.pieces.drain(..piece);
        self.begun = Some(begun);
        Some(())
    }

    /// The open row of a table without header, once it has both halves.
    fn take_if_whole(&mut self) -> Option<BenchRow> {
        let row = guess(self.begun.as_ref()?, &self.cells, self.pieces.first()?)?;
        let whole = row.out_of_place.is_some() && row.in_place.is_some();
        whole.then(|| std::mem::take(self)).map(|_| row)
    }
}

/// The cells at the start of a text, and whether they are all of it.
fn read_cells(text: &str) -> (Vec<Cell>, bool) {
    let mut cells = Vec::new();
    for word in text.split_ascii_whitespace() {
        match Cell::read(word) {
            Some(cell) => cells.push(cell),
            None => {
                let torn = Cell::read_torn(word, cells.last().copied());
                let torn = torn.or_else(|| Cell::read(quoted(word)?).filter(|_| cells.len() >= HALF_A_ROW));
                cells.extend(torn);
                return (cells, torn.is_some());
            }
        }
    }
    (cells, true)
}

/// Size, count, type, operation, root and one half: more cells no other line has.
const HALF_A_ROW: usize = 9;

/// A row of a table with a header.
fn assemble(begun: &RowHead, cells: &[(Cell, usize)], layout: &Layout, source: &SourceLine) -> Option<BenchRow> {
    let mut row = row_without_halves(begun, cells, layout, source)?;
    let mut rest = cells.get(layout.lead.len()..)?;
    for (index, columns) in layout.halves.iter().enumerate() {
        let Some((half, after)) = rest.split_at_checked(columns.len()) else { break };
        rest = after;
        // What arrived apart from the start of its row may be foreign; the numbers themselves must then agree.
        let torn = half.iter().any(|(_, piece)| *piece != 0);
        let measure = measure(half, columns);
        row.doubted |= !torn && is_printed(half) && !measure.as_ref().is_some_and(Measure::is_possible);
        let measure = measure.filter(|m| m.is_possible() && (!torn || plausible(row.size, m)));
        match index {
            0 => row.out_of_place = measure,
            1 => row.in_place = measure,
            _ => {}
        }
    }
    let enough = layout.lead.len() + layout.halves.first().map_or(0, Vec::len);
    (cells.len() >= enough).then_some(row)
}

/// A row of a table without header: taken only when size, count, datatype, time and bandwidth agree with each other.
fn guess(begun: &RowHead, cells: &[(Cell, usize)], source: &SourceLine) -> Option<BenchRow> {
    let layout = Layout::guess(cells.len())?;
    let row = assemble(begun, cells, &layout, source)?;
    let elements = begun.count.checked_mul(begun.datatype.size())?;
    let root = layout.lead.is_empty() || matches!(cells[0].0, Cell::Number(Number { whole: Some(-1..), .. }));
    let halves = cells[layout.lead.len()..].chunks(layout.halves[0].len());
    let agree = halves.zip(&layout.halves).all(|(half, columns)| match measure(half, columns) {
        Some(m) => plausible(row.size, &m),
        None => half.iter().any(|(cell, _)| matches!(cell, Cell::Number(n) if !n.value.is_finite())),
    });
    (root && agree && begun.size >= elements && row.halves().next().is_some()).then_some(row)
}

fn row_without_halves(
    begun: &RowHead,
    cells: &[(Cell, usize)],
    layout: &Layout,
    source: &SourceLine,
) -> Option<BenchRow> {
    let root = layout.lead.iter().position(|lead| *lead == Lead::Root);
    let root = root.and_then(|at| match cells.get(at)?.0 {
        Cell::Number(number) => number.whole.filter(|root| *root >= 0),
        _ => None,
    });
    Some(BenchRow {
        size: Bytes(begun.size),
        count: Some(begun.count),
        datatype: Some(begun.datatype),
        redop: begun.redop.flatten(),
        root,
        out_of_place: None,
        in_place: None,
        skew: None,
        doubted: false,
        source: source.clone(),
    })
}

/// Whether a half holds figures; one that was not run says `N/A`.
fn is_printed(half: &[(Cell, usize)]) -> bool {
    half.iter().all(|(cell, _)| matches!(cell, Cell::Number(_))) && !half.is_empty()
}

/// One half; `None` when its time or a bandwidth is no finite number.
fn measure(cells: &[(Cell, usize)], columns: &[Column]) -> Option<Measure> {
    let cell = |column| Some(cells.get(columns.iter().position(|c| *c == column)?)?.0);
    let number = |column| cell(column).and_then(Cell::finite);
    let check = columns.iter().zip(cells).find_map(|(column, (cell, _))| match column {
        Column::Wrong | Column::Error | Column::Check => Some(check(*column, *cell)),
        _ => None,
    });
    let statistics = || {
        Some(IterationStats {
            min: Micros(number(Column::IterMin)?),
            max: Micros(number(Column::IterMax)?),
            p99: Micros(number(Column::IterP99)?),
            cv_pct: number(Column::IterCv)?,
        })
    };
    Some(Measure {
        time: Micros(number(Column::Time)?),
        algbw: GBps(number(Column::Algbw)?),
        busbw: GBps(number(Column::Busbw)?),
        check: check.unwrap_or(Check::NotDone),
        iterations: statistics(),
    })
}

fn check(column: Column, cell: Cell) -> Check {
    match cell {
        Cell::Number(Number { value, scientific, .. }) if value.is_finite() && value >= 0.0 => match column {
            Column::Error => Check::MaxError(value),
            Column::Check if scientific => Check::MaxError(value),
            _ => Check::Wrong(value.round() as u64),
        },
        _ => Check::NotDone,
    }
}

/// Whether algbw is size over time, as far as printed digits show. Hypercube and alltoallv of nccl-tests move less than
/// the size they print, down to a half on two ranks.
fn plausible(size: Bytes, measure: &Measure) -> bool {
    let algbw = GBps::from_transfer(size, measure.time).0;
    measure.time.0 > 0.0 && measure.algbw.0 >= 0.45 * algbw - 0.02 && measure.algbw.0 <= 1.1 * algbw + 0.02
}
