//! Reads the JSON of the NCCL Inspector: one object per operation and rank, `{"header":{…},"metadata":{…},"coll_perf":{…}}`.
//!
//! `plugins/profiler/inspector/inspector_json.cc` of NCCL, output format v4.0. Objects of all inputs are put together,
//! because every process writes its own file.

use busbw_model::{
    Bytes, Collective, GBps, InspectorRank, InspectorRow, InspectorRun, Micros, Place, SourceLine, Spread,
};
use rustc_hash::FxHashMap;
use serde::Deserialize;
use std::collections::BTreeMap;

/// One measured operation.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Sample {
    header: Header,
    #[serde(default)]
    metadata: Metadata,
    coll_perf: Option<Measured>,
    p2p_perf: Option<Measured>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Header {
    id: Box<str>,
    comm_name: Option<Box<str>>,
    rank: u32,
    n_ranks: Option<u32>,
    nnodes: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
struct Metadata {
    hostname: Option<Box<str>>,
}

/// What an operation and its size were.
#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Measured {
    #[serde(alias = "coll", alias = "p2p")]
    operation: Box<str>,
    #[serde(alias = "coll_msg_size_bytes", alias = "p2p_msg_size_bytes")]
    size: u64,
    #[serde(alias = "coll_exec_time_us", alias = "p2p_exec_time_us")]
    time_us: f64,
    #[serde(alias = "coll_timing_source", alias = "p2p_timing_source")]
    timing_source: Option<Box<str>>,
    #[serde(alias = "coll_algobw_gbs", alias = "p2p_algobw_gbs")]
    algbw: f64,
    #[serde(alias = "coll_busbw_gbs", alias = "p2p_busbw_gbs")]
    busbw: f64,
}

/// Whether a line begins as the Inspector's do.
pub(crate) fn may_belong(line: &[u8]) -> bool {
    line.trim_ascii_start().strip_prefix(b"{").is_some_and(|rest| rest.trim_ascii_start().starts_with(b"\"header\""))
}

/// The operation in an object; `None` when it is something else.
pub(crate) fn read(object: &[u8]) -> Option<Sample> {
    let sample: Sample = serde_json::from_slice(object).ok()?;
    (sample.coll_perf.is_some() || sample.p2p_perf.is_some()).then_some(sample)
}

/// Ways of timing beyond this number are none: the Inspector has three.
const MOST_SOURCES: usize = 8;

/// Operations of all inputs.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    runs: Vec<Gathered>,
    /// By communicator and operation.
    by_key: FxHashMap<(Box<str>, Box<str>), usize>,
}

#[derive(Debug, Default)]
struct Gathered {
    run: InspectorRun,
    hosts: FxHashMap<u32, Box<str>>,
    rows: BTreeMap<u64, Row>,
}

#[derive(Debug, Default)]
struct Row {
    samples: Vec<(u32, [f32; 3])>,
    timing_sources: Vec<String>,
    source: SourceLine,
}

impl Samples {
    pub fn add(&mut self, sample: &Sample, place: Place, line: &str) {
        let Some(measured) = sample.coll_perf.as_ref().or(sample.p2p_perf.as_ref()) else { return };
        let header = &sample.header;
        let next = self.runs.len();
        let index = *self.by_key.entry((header.id.clone(), measured.operation.clone())).or_insert(next);
        if index == next {
            let run = begin(header, measured, SourceLine::new(place, line));
            self.runs.push(Gathered { run, ..Gathered::default() });
        }
        let gathered = &mut self.runs[index];
        if let Some(host) = &sample.metadata.hostname {
            gathered.hosts.entry(header.rank).or_insert_with(|| host.clone());
        }
        let new = || Row { source: SourceLine::new(place, line), ..Row::default() };
        let row = gathered.rows.entry(measured.size).or_insert_with(new);
        let values = [measured.time_us, measured.algbw, measured.busbw];
        row.samples.push((header.rank, values.map(|value| value as f32)));
        if let Some(source) = &measured.timing_source
            && row.timing_sources.len() < MOST_SOURCES
            && !row.timing_sources.iter().any(|known| **known == **source)
        {
            row.timing_sources.push(source.to_string());
        }
    }

    /// The runs in order of appearance.
    pub fn finish(self) -> Vec<InspectorRun> {
        self.runs
            .into_iter()
            .map(|gathered| {
                let row = |(size, row)| finish_row(size, row, &gathered.hosts);
                InspectorRun { rows: gathered.rows.into_iter().filter_map(row).collect(), ..gathered.run }
            })
            .collect()
    }
}

fn begin(header: &Header, measured: &Measured, source: SourceLine) -> InspectorRun {
    let name = header.comm_name.as_deref().filter(|name| *name != "unknown");
    InspectorRun {
        communicator: header.id.to_string(),
        communicator_name: name.map(str::to_string),
        nranks: header.n_ranks,
        nnodes: header.nnodes,
        operation: measured.operation.to_string(),
        collective: Collective::from_name(&measured.operation),
        rows: Vec::new(),
        source,
    }
}

fn finish_row(size: u64, mut row: Row, hosts: &FxHashMap<u32, Box<str>>) -> Option<InspectorRow> {
    row.samples.sort_by(|(a, x), (b, y)| a.cmp(b).then(x[0].total_cmp(&y[0])));
    let column = |at: usize| -> Vec<f64> { row.samples.iter().map(|(_, values)| f64::from(values[at])).collect() };
    let of_rank = |samples: &[(u32, [f32; 3])]| InspectorRank {
        rank: samples[0].0,
        host: hosts.get(&samples[0].0).map(|host| host.to_string()),
        count: samples.len() as u64,
        median_time: Micros(f64::from(samples[(samples.len() - 1) / 2].1[0])),
    };
    let mut ranks: Vec<InspectorRank> = row.samples.chunk_by(|a, b| a.0 == b.0).map(of_rank).collect();
    ranks.sort_by(|a, b| a.median_time.0.total_cmp(&b.median_time.0));
    Some(InspectorRow {
        size: Bytes(size),
        count: row.samples.len() as u64,
        time: Spread::of(&mut column(0), Micros)?,
        algbw: Spread::of(&mut column(1), GBps)?,
        busbw: Spread::of(&mut column(2), GBps)?,
        ranks,
        timing_sources: row.timing_sources,
        source: row.source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(rank: u32, size: u64, time: u64, busbw: f64) -> String {
        format!(
            r#"{{"header":{{"id":"0x7f8c","comm_name":"unknown","rank":{rank},"n_ranks":2,"nnodes":1}},"metadata":{{"inspector_output_format_version":"v4.0","git_rev":"","rec_mechanism":"nccl_profiler_interface","dump_timestamp_us":1748030377748202,"hostname":"n{rank}","pid":7}},"coll_perf":{{"coll":"AllReduce","coll_sn":1407,"coll_msg_size_bytes":{size},"coll_exec_time_us":{time},"coll_timing_source":"kernel_gpu","coll_algobw_gbs":{busbw},"coll_busbw_gbs":{busbw}}}}}"#
        )
    }

    #[test]
    fn operations_become_rows_by_size_and_ranks_by_time() {
        let mut samples = Samples::default();
        for text in [line(0, 1024, 30, 1.0), line(1, 1024, 10, 3.0), line(0, 4096, 50, 4.0), line(0, 1024, 20, 2.0)] {
            assert!(may_belong(text.as_bytes()));
            samples.add(&read(text.as_bytes()).expect("an operation"), Place::default(), &text);
        }
        let runs = samples.finish();
        assert_eq!(runs.len(), 1);
        let run = &runs[0];
        assert_eq!(
            (run.collective, run.nranks, run.communicator_name.as_deref()),
            (Some(Collective::AllReduce), Some(2), None)
        );
        let rows: Vec<_> = run.rows.iter().map(|r| (r.size.0, r.count, r.time.median.0, r.busbw.max.0)).collect();
        assert_eq!(rows, [(1024, 3, 20.0, 3.0), (4096, 1, 50.0, 4.0)]);
        let ranks: Vec<_> = run.rows[0].ranks.iter().map(|r| (r.rank, r.host.as_deref(), r.count)).collect();
        assert_eq!(ranks, [(1, Some("n1"), 1), (0, Some("n0"), 2)]);
        assert_eq!(run.peak(), Some((Bytes(4096), GBps(4.0))));
    }

    #[test]
    fn other_objects_are_left_alone() {
        for text in [r#"{"header":{"id":"0x1","rank":0}}"#, r#"{"header": 5}"#, "{", ""] {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
        let send = r#"{ "header": {"id":"0x1","rank":0}, "p2p_perf":{"p2p":"Send","p2p_sn":1,"p2p_peer":1,"p2p_msg_size_bytes":8192,"p2p_exec_time_us":12,"p2p_algobw_gbs":0.6,"p2p_busbw_gbs":0.6}}"#;
        assert!(may_belong(send.as_bytes()) && read(send.as_bytes()).is_some());
    }
}
