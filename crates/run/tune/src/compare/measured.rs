//! The test that a run measured: all its tables of one collective and rank count, which are repetitions of each other.

use super::{CompareError, Subject};
use crate::statistics::Sample;
use busbw_diagnose::{Case, Network, network_in_use};
use busbw_model::{BenchRow, BenchTable, Bytes, Carrier, Code, Collective, ComparedCell, ComparedRun, GBps, Micros};
use std::collections::BTreeMap;

/// What one run measured, by size.
pub struct Measured<'a> {
    pub subject: &'a Subject,
    table: &'a BenchTable,
    /// Rows by size; several where the run measured it several times.
    rows: BTreeMap<Bytes, Vec<&'a BenchRow>>,
}

impl<'a> Measured<'a> {
    /// The test of a run: of the collective that is asked for, else the only one.
    pub fn of(subject: &'a Subject, collective: Option<Collective>) -> Result<Self, CompareError> {
        let wanted = |table: &&BenchTable| collective.is_none() || table.collective == collective;
        let tables: Vec<&BenchTable> =
            subject.run.tables.iter().filter(|table| table.rows.iter().any(is_measured)).filter(wanted).collect();
        let Some(table) = tables.first() else {
            let of = collective.map_or(String::new(), |collective| format!(" of {}", collective.name()));
            return Err(CompareError::NoTable { name: subject.name.clone(), of });
        };
        if tables.iter().any(|other| test_of(other) != test_of(table)) {
            let mut tests: Vec<String> = tables.iter().map(|table| test_of(table)).collect();
            tests.dedup();
            return Err(CompareError::SeveralTests { name: subject.name.clone(), tests: tests.join(", ") });
        }
        let mut rows: BTreeMap<Bytes, Vec<&BenchRow>> = BTreeMap::new();
        for row in tables.iter().flat_map(|table| &table.rows).filter(|row| is_measured(row)) {
            rows.entry(row.size).or_default().push(row);
        }
        if let Some((size, what)) = rows.iter().find_map(|(size, rows)| Some((*size, several_kinds(rows)?))) {
            return Err(CompareError::SeveralKinds { name: subject.name.clone(), size, what });
        }
        Ok(Measured { subject, table, rows })
    }

    pub fn name(&self) -> &str {
        &self.subject.name
    }

    /// The first of its tables: its settings hold for all.
    pub fn table(&self) -> &'a BenchTable {
        self.table
    }

    pub fn sizes(&self) -> impl Iterator<Item = Bytes> {
        self.rows.keys().copied()
    }

    pub fn at(&self, size: Bytes) -> Option<&[&'a BenchRow]> {
        self.rows.get(&size).map(Vec::as_slice)
    }

    /// How often a size was measured, at most.
    pub fn repetitions(&self) -> usize {
        self.rows.values().map(Vec::len).max().unwrap_or(0)
    }

    /// Times of one operation at a size, the better half of each row: what a table rounds least.
    pub fn each_time(&self, size: Bytes) -> Vec<f64> {
        let best = |row: &&BenchRow| row.halves().map(|half| half.time.0).filter(|time| *time > 0.0).reduce(f64::min);
        self.at(size).unwrap_or_default().iter().filter_map(best).collect()
    }

    pub fn times(&self, size: Bytes) -> Option<Sample> {
        Sample::of(&self.each_time(size))
    }

    pub fn cell(&self, size: Bytes) -> Option<ComparedCell> {
        let rows = self.at(size)?;
        let busbw: Vec<f64> = rows.iter().filter_map(|row| row.best_busbw()).map(|busbw| busbw.0).collect();
        let sample = Sample::of(&busbw)?;
        Some(ComparedCell {
            busbw: GBps(sample.mean),
            time: Micros(self.times(size)?.mean),
            repetitions: sample.n,
            interval: sample.half_width(0.95).map(GBps),
        })
    }

    pub fn describe(&self) -> ComparedRun {
        let (peak_size_bytes, peak_busbw_gbs) = self.table.peak().map(|(row, busbw)| (row.size, busbw)).unzip();
        ComparedRun {
            name: self.subject.name.clone(),
            collective: self.table.collective,
            nranks: self.table.nranks,
            repetitions: self.repetitions(),
            peak_size_bytes,
            peak_busbw_gbs,
            avg_busbw_gbs: self.table.avg_busbw(),
            network: self.network(),
            findings: self.subject.findings.clone(),
        }
    }

    /// What carried the traffic between nodes: as the log or the speed says, else as a saved finding has it.
    pub fn network(&self) -> Option<Carrier> {
        let case = Case::new(&self.subject.run);
        let tests = case.tests.iter().filter(|test| std::ptr::eq(test.table, self.table));
        let carried = tests.map(|test| network_in_use(&case, test)).next().flatten().map(|network| match network {
            Network::Socket => Carrier::Sockets,
            Network::Rdma => Carrier::Rdma,
            Network::Plugin => Carrier::Plugin,
        });
        let fallback = self.subject.findings.iter().any(|finding| finding.code == Code::NetSocketFallback);
        carried.or(fallback.then_some(Carrier::Sockets))
    }
}

/// In what rows of one size differ, so that they are no repetitions of each other.
fn several_kinds(rows: &[&BenchRow]) -> Option<&'static str> {
    let (first, others) = rows.split_first()?;
    let differ = |differs: fn(&BenchRow, &BenchRow) -> bool| others.iter().any(|other| differs(first, other));
    if differ(|a, b| a.datatype != b.datatype) {
        Some("datatypes (-d)")
    } else if differ(|a, b| a.redop != b.redop) {
        Some("reductions (-o)")
    } else {
        differ(|a, b| a.root != b.root).then_some("roots (-r)")
    }
}

fn is_measured(row: &BenchRow) -> bool {
    row.best_busbw().is_some_and(|busbw| busbw.0.is_finite())
}

/// What a table measured, in words: tables of which this is the same are repetitions.
fn test_of(table: &BenchTable) -> String {
    let collective = table.collective.map_or("an unknown collective", Collective::name);
    table.nranks.map_or(collective.to_string(), |ranks| format!("{collective} on {ranks} ranks"))
}
