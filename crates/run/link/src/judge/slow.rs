//! Slow ends and slow links of a matrix of bandwidths.

use busbw_model::{LinkRun, median, upper_quartile};

/// Below this share of what others reach, a link is slow. TCP over a quiet network stays within a tenth.
const FAR_BELOW: f64 = 0.7;
/// An end is to blame when so many of its links are slow.
const NEARLY_ALL: f64 = 0.75;
/// So many links have an upper quartile worth the name: those among three ends.
const ENOUGH_LINKS: usize = 6;
/// What is left when slow ends are set aside tells nothing of single links if it is less than this.
const FEWEST_LINKS: usize = 4;

/// Bandwidths in Gbit/s by sender and receiver, those that were measured.
#[derive(Debug, Clone)]
pub(super) struct Matrix {
    ends: usize,
    cells: Vec<Cell>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cell {
    pub from: usize,
    pub to: usize,
    pub gbit_s: f64,
}

/// Which side of an end is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Sends,
    Receives,
    Both,
}

/// An end whose links are slow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SlowEnd {
    pub end: usize,
    pub side: Side,
    pub gbit_s: f64,
    /// What links that do not touch it carry, by [`typical`].
    pub others_gbit_s: f64,
}

/// A link that is slow by itself: one direction, or both.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SlowLink {
    pub cell: Cell,
    /// The other direction, where that is slow too.
    pub back_gbit_s: Option<f64>,
    pub others_gbit_s: f64,
}

impl Cell {
    /// Its two ends, the lower first.
    pub fn pair(self) -> (usize, usize) {
        (self.from.min(self.to), self.from.max(self.to))
    }

    fn touches(self, end: usize) -> bool {
        self.from == end || self.to == end
    }
}

impl SlowEnd {
    fn explains(&self, cell: Cell) -> bool {
        (cell.from == self.end && self.side != Side::Receives) || (cell.to == self.end && self.side != Side::Sends)
    }
}

impl Matrix {
    pub fn of(run: &LinkRun) -> Self {
        let cell = |link: &busbw_model::Link| {
            let figures = link.outcome.as_ref().ok()?;
            Some(Cell { from: link.from, to: link.to, gbit_s: figures.gbit_s })
        };
        Matrix { ends: run.ends.len(), cells: run.links.iter().filter_map(cell).collect() }
    }

    pub fn median(&self) -> Option<f64> {
        median(self.cells.iter().map(|cell| cell.gbit_s))
    }

    /// Ends with which nearly all is slow. With two ends there are no others to compare with.
    pub fn slow_ends(&self) -> Vec<SlowEnd> {
        (0..self.ends).filter_map(|end| self.slow_end(end)).collect()
    }

    fn slow_end(&self, end: usize) -> Option<SlowEnd> {
        let others_gbit_s = typical(self.cells.iter().filter(|cell| !cell.touches(end)).map(|cell| cell.gbit_s))?;
        let slow = |side: &dyn Fn(&&Cell) -> bool| {
            let rates: Vec<f64> = self.cells.iter().filter(side).map(|cell| cell.gbit_s).collect();
            let low = rates.iter().filter(|rate| **rate < FAR_BELOW * others_gbit_s).count();
            let nearly_all = rates.len() >= 2 && low as f64 >= NEARLY_ALL * rates.len() as f64;
            if nearly_all { median(rates.into_iter()) } else { None }
        };
        let (side, gbit_s) = match (slow(&|cell| cell.from == end), slow(&|cell| cell.to == end)) {
            (Some(sends), Some(receives)) => (Side::Both, sends.min(receives)),
            (Some(sends), None) => (Side::Sends, sends),
            (None, Some(receives)) => (Side::Receives, receives),
            (None, None) => return None,
        };
        Some(SlowEnd { end, side, gbit_s, others_gbit_s })
    }

    /// Links that are slow although neither end explains it.
    pub fn slow_links(&self, slow_ends: &[SlowEnd]) -> Vec<SlowLink> {
        let unexplained = |cell: &&Cell| !slow_ends.iter().any(|slow| slow.explains(**cell));
        let left: Vec<Cell> = self.cells.iter().filter(unexplained).copied().collect();
        let Some(others_gbit_s) = median(left.iter().map(|cell| cell.gbit_s)) else { return Vec::new() };
        if left.len() < FEWEST_LINKS {
            return Vec::new();
        }
        let slow = |cell: &Cell| cell.gbit_s < FAR_BELOW * others_gbit_s;
        let back = |cell: &Cell| {
            left.iter().find(|other| (other.from, other.to) == (cell.to, cell.from)).filter(|other| slow(other))
        };
        left.iter()
            .filter(|cell| slow(cell))
            // Of a pair that is slow both ways, one is enough.
            .filter(|cell| cell.from < cell.to || back(cell).is_none())
            .map(|cell| SlowLink { cell: *cell, back_gbit_s: back(cell).map(|back| back.gbit_s), others_gbit_s })
            .collect()
    }
}

/// What healthy links carry. Of two slow ends among four, most links of the others touch the other slow one, so that it is not
/// the median.
fn typical(rates: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    if rates.clone().count() < ENOUGH_LINKS { median(rates) } else { upper_quartile(rates) }
}
