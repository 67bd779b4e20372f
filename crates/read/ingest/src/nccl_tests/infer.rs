//! What a table measured, where the program did not say: from its columns and numbers.

use busbw_model::{BenchRow, BenchTable, Check, Collective, Measure};

/// Below this algbw (GB/s) two printed decimals say too little about a ratio.
const MIN_ALGBW: f64 = 0.5;
/// By how much a ratio busbw/algbw may miss its factor and still mean it.
const TOLERANCE: f64 = 0.02;

/// Fills in the collective and the number of ranks. `hint` is the program that a command line above the table names;
/// `redop_without_root` says that the header has a `redop` column, but no `root` column.
pub(crate) fn complete(table: &mut BenchTable, hint: Option<Collective>, redop_without_root: bool) {
    let evidence = Evidence::of(table, redop_without_root);
    let alone = evidence.is_of_one_rank().then_some(1);
    table.nranks = table.nranks.or_else(|| ranks_of_devices(table)).or(alone);
    let named = table.settings.program.as_deref().and_then(Collective::from_name);
    table.collective = table.collective.or(named).or_else(|| hint.filter(|c| evidence.allows(*c, table.nranks)));
    if table.collective.is_none() {
        table.collective = evidence.collective(table.nranks);
    }
    if table.nranks.is_none() {
        table.nranks = evidence.nranks(table.collective);
    }
}

/// Ranks in the device list; where `NCCL_TESTS_SPLIT` made groups, those in the group of the first device, since busbw is
/// computed over a group. `None` when ranks are missing: excerpts leave some out, and nccl-tests itself cuts the list of
/// a process at 2048 characters.
fn ranks_of_devices(table: &BenchTable) -> Option<u32> {
    let first = table.devices.first()?;
    let group = table.devices.iter().filter(|device| device.group == first.group).count();
    let ranks = table.devices.iter().map(|device| u64::from(device.rank) + 1).max()?;
    let per_process = table.settings.threads.zip(table.settings.gpus_per_thread);
    let per_process = per_process.map_or(1, |(threads, gpus)| u64::from(threads) * u64::from(gpus));
    let listed = u64::try_from(table.devices.len()).ok()?;
    (listed >= ranks.max(per_process)).then(|| u32::try_from(group).ok())?
}

/// The traces that a collective leaves in the rows of its table.
struct Evidence {
    has_rows: bool,
    redop: bool,
    root: bool,
    redop_without_root: bool,
    /// Whether results were checked in place, where they were out of place: sendrecv, alltoall and alltoallv never do
    /// (`*RunTest` of nccl-tests and rccl-tests switches it off).
    checked_in_place: Option<bool>,
    /// Size over the bytes of `count` elements, where it is the same in all rows: the number of ranks where each rank
    /// sends or receives one part per rank, else 1 (`*GetCollByteCount` of nccl-tests 2.0 to 2.19.6).
    parts: Option<u32>,
    /// busbw/algbw of each half that is large enough: the least and the greatest value that rounding allows.
    ratios: Vec<(f64, f64)>,
}

impl Evidence {
    fn of(table: &BenchTable, redop_without_root: bool) -> Evidence {
        let parts = |row: &BenchRow| {
            let bytes = row.count?.checked_mul(row.datatype?.size())?;
            (bytes > 0 && row.size.0.is_multiple_of(bytes)).then(|| u32::try_from(row.size.0 / bytes).ok())?
        };
        let mut counted = table.rows.iter().filter(|row| row.count != Some(0)).map(parts);
        let first = counted.next().flatten();
        let is_checked = |half: &Option<Measure>| half.as_ref().is_some_and(|half| half.check != Check::NotDone);
        let mut checked = table.rows.iter().filter(|row| is_checked(&row.out_of_place) && row.in_place.is_some());
        let halves = table.rows.iter().flat_map(|row| row.halves());
        Evidence {
            has_rows: !table.rows.is_empty(),
            redop: table.rows.iter().any(|row| row.redop.is_some()),
            root: table.rows.iter().any(|row| row.root.is_some()),
            redop_without_root,
            checked_in_place: checked.next().map(|row| is_checked(&row.in_place)),
            parts: first.filter(|_| counted.all(|parts| parts == first)),
            ratios: halves.filter(|m| m.algbw.0 >= MIN_ALGBW).map(|m| interval(m.busbw.0, m.algbw.0)).collect(),
        }
    }

    /// Whether nothing moved between ranks: a busbw of 0 beside an algbw that is not. With two ranks it is half at least.
    fn is_of_one_rank(&self) -> bool {
        let most = self.ratios.iter().map(|(_, high)| *high).reduce(f64::max);
        most.is_some_and(|most| most < 0.25)
    }

    fn ratio(&self) -> Option<f64> {
        let mut middles: Vec<f64> = self.ratios.iter().map(|(low, high)| (low + high) / 2.0).collect();
        middles.sort_by(f64::total_cmp);
        middles.get(middles.len() / 2).copied()
    }

    /// Whether the table can be one of `collective`.
    fn allows(&self, collective: Collective, nranks: Option<u32>) -> bool {
        use Collective::*;
        if !self.has_rows {
            return true;
        }
        let reduces = matches!(collective, AllReduce | ReduceScatter | Reduce);
        let rooted = matches!(collective, Broadcast | Reduce | Gather | Scatter);
        let ratio_fits = match (self.ratio(), nranks) {
            (Some(ratio), Some(n)) => (ratio - collective.busbw_factor(n)).abs() <= TOLERANCE,
            _ => true,
        };
        let moves = matches!(collective, SendRecv | AllToAll | AllToAllV);
        let check_fits = self.checked_in_place.is_none_or(|checked| checked != moves);
        // sendrecv prints the reduction that it does not do.
        let redop_fits = reduces == self.redop || collective == SendRecv && self.checked_in_place == Some(false);
        redop_fits && rooted == self.root && ratio_fits && check_fits
    }

    /// The only collective that leaves these traces, if there is one.
    fn collective(&self, nranks: Option<u32>) -> Option<Collective> {
        if !self.has_rows {
            return None;
        }
        let ratio = self.ratio();
        if nranks == Some(1) {
            return None; // the factor of every collective is 0, or 1
        }
        let is_one = ratio.map(|ratio| (ratio - 1.0).abs() <= TOLERANCE);
        let one_part = self.parts == Some(1) && nranks.is_some_and(|n| n > 1);
        match (self.redop, self.root) {
            (true, true) => (is_one != Some(false)).then_some(Collective::Reduce),
            (true, false) if self.checked_in_place == Some(false) => Some(Collective::SendRecv),
            (true, false) => self.all_reduce_or_reduce_scatter(nranks),
            (false, true) => {
                let whole = one_part || (self.parts == Some(1) && is_one == Some(true));
                (whole && is_one != Some(false)).then_some(Collective::Broadcast)
            }
            // Up to 2.11 only alltoall had a `redop` column that it left empty.
            (false, false) if self.redop_without_root => Some(Collective::AllToAll),
            (false, false) => match (self.checked_in_place, is_one) {
                (Some(true), Some(false)) => Some(Collective::AllGather),
                (Some(false), Some(false)) => Some(Collective::AllToAll),
                (_, Some(true)) => (self.parts == Some(1)).then_some(Collective::SendRecv),
                _ => None,
            },
        }
    }

    /// A reduction without a root. busbw/algbw is 1 or more for one and less than 1 for the other; above 1 it is the one
    /// whatever ranks are listed.
    fn all_reduce_or_reduce_scatter(&self, nranks: Option<u32>) -> Option<Collective> {
        let fits = |collective: Collective, ratio: f64| match nranks {
            Some(n) if ratio < 1.0 + TOLERANCE => (ratio - collective.busbw_factor(n)).abs() <= TOLERANCE,
            _ => (collective == Collective::AllReduce) == (ratio > 1.0 - 1e-9),
        };
        let by_ratio = |ratio| {
            let mut fitting =
                [Collective::AllReduce, Collective::ReduceScatter].into_iter().filter(|c| fits(*c, ratio));
            fitting.next().filter(|_| fitting.next().is_none())
        };
        match (self.ratio(), self.parts) {
            (_, Some(2..)) => Some(Collective::ReduceScatter),
            (Some(ratio), _) => by_ratio(ratio),
            (None, Some(1)) => nranks.filter(|n| *n > 1).map(|_| Collective::AllReduce),
            (None, _) => None,
        }
    }

    /// The number of ranks that the numbers leave as the only one.
    fn nranks(&self, collective: Option<Collective>) -> Option<u32> {
        if self.parts > Some(1) && collective != Some(Collective::AllToAllV) {
            return self.parts;
        }
        let ranks: fn(f64) -> f64 = match collective? {
            Collective::AllReduce => |ratio| 2.0 / (2.0 - ratio),
            Collective::Broadcast | Collective::Reduce | Collective::SendRecv | Collective::HyperCube => return None,
            _ => |ratio| 1.0 / (1.0 - ratio),
        };
        let limit = if collective == Some(Collective::AllReduce) { 2.0 } else { 1.0 };
        let low = self.ratios.iter().map(|(low, _)| *low).reduce(f64::max)?;
        let high = self.ratios.iter().map(|(_, high)| *high).reduce(f64::min)?;
        if low > high || low < 0.0 || high >= limit {
            return None;
        }
        let (least, most) = (ranks(low).ceil(), ranks(high).floor());
        (least == most && (2.0..1e6).contains(&least)).then_some(least as u32)
    }
}

/// The least and the greatest ratio of two values printed with two decimals, or fewer from 1000 on (`getFloatStr` in
/// nccl-tests' `src/util.cu`, 2.17.3 and later).
fn interval(busbw: f64, algbw: f64) -> (f64, f64) {
    let half_step = |value: f64| match value {
        v if v >= 10_000.0 => 0.5,
        v if v >= 1_000.0 => 0.05,
        _ => 0.005,
    };
    let (bus_step, alg_step) = (half_step(busbw), half_step(algbw));
    ((busbw - bus_step) / (algbw + alg_step), (busbw + bus_step) / (algbw - alg_step))
}

#[cfg(test)]
mod tests {
    use crate::TextLine;
    use crate::nccl_tests::TableReader;
    use busbw_model::{Collective, Place};

    fn ranks_and_collective(row: &str) -> (Option<u32>, Option<Collective>) {
        let header = "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong";
        let mut reader = TableReader::default();
        for (line, text) in (1..).zip([header, row]) {
            assert!(reader.feed(&TextLine { place: Place { input: 0, line }, stream: "", text }));
        }
        let tables = reader.finish();
        (tables[0].nranks, tables[0].collective)
    }

    #[test]
    fn a_busbw_of_nothing_is_one_rank() {
        let alone = "   134217728      33554432     float     sum      -1    631.9  212.41    0.00      0     0.51  263017.30    0.00      0";
        assert_eq!(ranks_and_collective(alone), (Some(1), None));
        let two = "   134217728      33554432     float     sum      -1    631.9  212.41  212.41      0    631.9  212.41  212.41      0";
        assert_eq!(ranks_and_collective(two), (Some(2), Some(Collective::AllReduce)));
    }
}
