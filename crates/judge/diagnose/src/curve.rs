//! What the shape of a table's busbw curve says.

use busbw_model::{BenchRow, BenchTable, Bytes, GBps, Measure, Micros};

/// Below this size a table says nothing about bandwidth: time is latency. nccl-tests' users see the plateau from some
/// 256 MiB on; 16 MiB is where it begins at the earliest (all complete tables that we know).
pub const BANDWIDTH_FROM: Bytes = Bytes(16 << 20);

/// The curve of one table.
#[derive(Debug, Clone)]
pub struct Curve<'a> {
    /// The rows that were measured and do not contradict themselves, as printed.
    pub rows: Vec<&'a BenchRow>,
    pub peak_row: &'a BenchRow,
    /// The highest busbw of either half.
    pub peak: GBps,
    pub largest: Bytes,
    /// The sizes that show bandwidth, and the better half of each: the three largest, as far as they are large enough.
    pub tail: Vec<(Bytes, GBps)>,
    /// The median busbw of these: the number to compare with hardware.
    pub plateau: GBps,
    /// The time of the smallest size, if that is 1 KiB or less: latency.
    pub latency: Option<Micros>,
    /// Bandwidth that falls as sizes grow.
    pub fall: Option<Fall<'a>>,
}

/// Bandwidth that falls behind its peak.
#[derive(Debug, Clone)]
pub struct Fall<'a> {
    pub last_row: &'a BenchRow,
    /// busbw at the largest size, the better half.
    pub last: GBps,
    /// What is left of the peak, 0 to 1: the median of the sizes behind it, or the largest where that alone falls.
    pub left: f64,
    /// Out of place and in place both fall, so it is not a measurement error.
    pub both_halves: bool,
}

/// What must be lost to call it a fall. Of 40 published tables of sound and of slow clusters none loses more than 3%
/// behind its peak, but for one over sockets (11%); the first field report loses 30%.
const FALL: f64 = 0.85;

/// What each half of a row reached.
const HALVES: [fn(&BenchRow) -> Option<GBps>; 2] = [|row| busbw(&row.out_of_place), |row| busbw(&row.in_place)];

/// A size is out of line when it reaches less than this share of its neighbours.
pub(crate) const OUT_OF_LINE: f64 = 0.5;

impl<'a> Curve<'a> {
    /// The curve of a table; `None` without a measured row that may be believed.
    pub fn of(table: &'a BenchTable) -> Option<Self> {
        Curve::over(&[table])
    }

    /// The curve of a sweep, of which several tables may show a part each.
    pub fn over(sweep: &[&'a BenchTable]) -> Option<Self> {
        let beside = sweep.iter().flat_map(|table| table.rows.iter().zip(table.contradictions()));
        let believed = beside.filter(|(row, contradiction)| contradiction.is_none() && row.best_busbw().is_some());
        let rows: Vec<&BenchRow> = believed.map(|(row, _)| row).collect();
        let (peak_row, peak) = BenchRow::highest(rows.iter().copied())?;
        let mut by_size = rows.clone();
        by_size.sort_by_key(|row| row.size);
        let largest = by_size.last()?.size;
        let tail = tail(&by_size);
        let plateau = median(tail.iter().map(|(_, busbw)| busbw.0).collect())?;
        let smallest = by_size.iter().find(|row| row.size.0 > 0)?;
        let latency = (smallest.size.0 <= 1024).then(|| smallest.halves().next()).flatten().map(|m| m.time);
        let fall = fall(&by_size, peak_row.size).or_else(|| slump(&by_size, peak));
        Some(Curve { rows, peak_row, peak, largest, tail, plateau: GBps(plateau), latency, fall })
    }

    /// Whether sizes are large enough to judge bandwidth.
    pub fn shows_bandwidth(&self) -> bool {
        self.largest >= BANDWIDTH_FROM
    }
}

/// A sweep in large steps has few sizes of bandwidth; where there is one, smaller sizes have no say.
fn tail(rows: &[&BenchRow]) -> Vec<(Bytes, GBps)> {
    let measured = rows.iter().filter(|row| row.size.0 > 0).filter_map(|row| Some((row.size, row.best_busbw()?)));
    let measured: Vec<_> = measured.collect();
    let large = measured.iter().filter(|(size, _)| *size >= BANDWIDTH_FROM).count();
    let used = if large == 0 { 3 } else { large.min(3) };
    measured[measured.len().saturating_sub(used)..].to_vec()
}

fn fall<'a>(rows: &[&'a BenchRow], peak_at: Bytes) -> Option<Fall<'a>> {
    let behind: Vec<&&BenchRow> = rows.iter().filter(|r| r.size.0 >= peak_at.0.saturating_mul(2)).collect();
    if peak_at < BANDWIDTH_FROM || behind.len() < 2 {
        return None;
    }
    let left_of = |half: fn(&BenchRow) -> Option<GBps>| {
        let peak = rows.iter().filter_map(|r| half(r)).map(|b| b.0).fold(0.0, f64::max);
        let tail = median(behind.iter().rev().take(3).filter_map(|r| half(r)).map(|b| b.0).collect())?;
        (peak > 0.0).then_some(tail / peak)
    };
    let left = left_of(BenchRow::best_busbw)?;
    let both_halves = HALVES.iter().all(|half| left_of(*half).is_some_and(|left| left < FALL));
    let last_row = **behind.last()?;
    (left < FALL).then_some(Fall { last_row, last: last_row.best_busbw()?, left, both_halves })
}

/// One size is no trend, but the largest is what a machine is for: far behind both before it, in each half that was measured.
fn slump<'a>(rows: &[&'a BenchRow], peak: GBps) -> Option<Fall<'a>> {
    let [.., early, before, last_row] = *rows else { return None };
    let grows = early.size < before.size && before.size < last_row.size && before.size >= BANDWIDTH_FROM;
    let usual = early.best_busbw()?.0.min(before.best_busbw()?.0);
    let behind = |half: &fn(&BenchRow) -> Option<GBps>| half(last_row).map(|busbw| busbw.0 < OUT_OF_LINE * usual);
    let both_halves = HALVES.iter().filter_map(behind).all(|is_behind| is_behind);
    let last = last_row.best_busbw()?;
    (grows && both_halves).then_some(Fall { last_row, last, left: last.0 / peak.0, both_halves })
}

fn busbw(half: &Option<Measure>) -> Option<GBps> {
    half.as_ref().map(|m| m.busbw)
}

/// The middle one, of two the larger.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use busbw_model::Check;

    fn table(rows: &[(u64, f64)]) -> BenchTable {
        let measure = |busbw| {
            let (time, algbw, check) = (Micros(30.0), GBps(busbw), Check::NotDone);
            Some(Measure { time, algbw, busbw: GBps(busbw), check, iterations: None })
        };
        let row = |&(mib, busbw): &(u64, f64)| BenchRow {
            size: Bytes(mib << 20),
            out_of_place: measure(busbw),
            in_place: measure(busbw),
            ..BenchRow::default()
        };
        BenchTable { rows: rows.iter().map(row).collect(), ..BenchTable::default() }
    }

    #[test]
    fn a_curve_that_loses_a_third_falls() {
        let table = table(&[(64, 47.0), (256, 48.2), (1024, 42.0), (4096, 34.0), (16384, 33.9)]);
        let curve = Curve::of(&table).expect("rows");
        let fall = curve.fall.expect("a fall");
        assert!((fall.left - 34.0 / 48.2).abs() < 1e-9 && fall.both_halves);
        assert_eq!(curve.plateau, GBps(34.0));
    }

    #[test]
    fn small_sizes_have_no_say_beside_a_large_one() {
        for (rows, plateau) in [
            (&[(1, 25.8), (2, 45.2), (256, 365.3)][..], 365.3),
            (&[(1, 3.0), (2, 4.0), (4, 5.0)], 4.0),
            (&[(16, 80.0), (32, 90.0), (64, 100.0), (128, 110.0)], 100.0),
        ] {
            assert_eq!(Curve::of(&table(rows)).map(|curve| curve.plateau), Some(GBps(plateau)), "{rows:?}");
        }
    }

    #[test]
    fn the_largest_size_alone_far_behind_is_a_fall() {
        let table = table(&[(64, 45.0), (256, 48.2), (1024, 48.0), (4096, 48.1), (16384, 1.0)]);
        let fall = Curve::of(&table).and_then(|curve| curve.fall).expect("a fall");
        assert!((fall.left - 1.0 / 48.2).abs() < 1e-9 && fall.both_halves);
    }

    #[test]
    fn sound_curves_do_not_fall() {
        let sound: [&[(u64, f64)]; 3] = [
            &[(64, 100.0), (256, 180.0), (1024, 188.0), (4096, 187.0)],
            &[(1, 3.0), (2, 2.0), (4, 2.0)], // too small to tell
            &[(64, 90.0), (256, 70.0)],      // one size is no trend
        ];
        for rows in sound {
            assert!(Curve::of(&table(rows)).is_some_and(|c| c.fall.is_none()), "{rows:?}");
        }
    }
}
