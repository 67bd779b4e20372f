//! A moment as a line of JSON: schema `busbw.monitor/1`, described in `docs/schema/monitor-1.schema.json`.

use crate::alerts::Alert;
use crate::known::Quantity;
use crate::moment::{Device, HostLoad, Moment, Moved, Owner, Row};
use crate::time::rfc3339;
use busbw_probe::counters::{Gpu, Job};
use serde::Serialize;
use std::collections::BTreeMap;

/// The name of the schema.
const SCHEMA: &str = "busbw.monitor/1";

/// A moment on one line, with a closing line feed.
pub fn line(moment: &Moment) -> String {
    let mut line =
        serde_json::to_string(&Document::new(moment)).expect("every key is a string and every number finite");
    line.push('\n');
    line
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    time: String,
    interval_s: Option<f64>,
    ports: Vec<Lane<'a>>,
    host: &'a HostLoad,
    gpus: &'a [Gpu],
    queue_pairs: Vec<Pairs<'a>>,
    jobs: &'a [Job],
    alerts: Vec<Alarm<'a>>,
}

#[derive(Serialize)]
struct Lane<'a> {
    name: String,
    kind: &'static str,
    below: Option<String>,
    member_of: Option<&'a str>,
    state: &'a str,
    link_gbit_s: Option<f64>,
    tx_gbit_s: Option<f64>,
    rx_gbit_s: Option<f64>,
    bytes_of: Option<&'a str>,
    queue_pairs: u32,
    per_second: &'a BTreeMap<Quantity, f64>,
    counters: BTreeMap<&'a str, Count>,
}

#[derive(Serialize)]
struct Count {
    value: u64,
    moved: Option<u64>,
}

#[derive(Serialize)]
struct Pairs<'a> {
    device: &'a str,
    pid: Option<u32>,
    owner: &'a str,
    user: Option<&'a str>,
    count: u32,
    ready: u32,
    failed: u32,
    memory_kib: u64,
    cpu_pct: Option<f64>,
}

#[derive(Serialize)]
struct Alarm<'a> {
    place: String,
    counter: &'a str,
    what: &'a str,
    code: &'static str,
    severity: &'static str,
    meaning: &'a str,
    remedy: &'a str,
    since: String,
    last: String,
    moved: u64,
    per_second: f64,
}

impl<'a> Document<'a> {
    fn new(moment: &'a Moment) -> Self {
        Document {
            schema: SCHEMA,
            time: rfc3339(moment.time_us),
            interval_s: moment.interval_us.map(|interval| interval as f64 / 1e6),
            ports: moment.rows.iter().map(Lane::new).collect(),
            host: &moment.host,
            gpus: &moment.gpus,
            queue_pairs: moment.owners.iter().map(Pairs::new).collect(),
            jobs: &moment.jobs,
            alerts: moment.alerts.iter().map(Alarm::new).collect(),
        }
    }
}

impl<'a> Lane<'a> {
    fn new(row: &'a Row) -> Self {
        let count = |moved: &'a Moved| (moved.name.as_ref(), Count { value: moved.value, moved: moved.moved });
        Lane {
            name: row.device.to_string(),
            kind: if row.is_rdma() { "rdma" } else { "interface" },
            below: row.below.as_ref().map(Device::to_string),
            member_of: row.member_of.as_deref(),
            state: &row.state,
            link_gbit_s: row.link_gbit_s,
            tx_gbit_s: row.tx_gbit_s(),
            rx_gbit_s: row.rx_gbit_s(),
            bytes_of: row.bytes_of.as_deref(),
            queue_pairs: row.queue_pairs,
            per_second: &row.rates,
            counters: row.counters.iter().map(count).collect(),
        }
    }
}

impl<'a> Pairs<'a> {
    fn new(owner: &'a Owner) -> Self {
        let pairs = &owner.queue_pairs;
        Pairs {
            device: &pairs.device,
            pid: pairs.pid,
            owner: &pairs.owner,
            user: pairs.user.as_deref(),
            count: pairs.count,
            ready: pairs.ready,
            failed: pairs.failed,
            memory_kib: pairs.memory_kib,
            cpu_pct: owner.cpu_pct,
        }
    }
}

impl<'a> Alarm<'a> {
    fn new(alert: &'a Alert) -> Self {
        Alarm {
            place: alert.device.to_string(),
            counter: &alert.counter,
            what: &alert.what,
            code: alert.code.as_str(),
            severity: alert.severity.as_str(),
            meaning: &alert.meaning,
            remedy: &alert.remedy,
            since: rfc3339(alert.since_us),
            last: rfc3339(alert.last_us),
            moved: alert.moved,
            per_second: alert.per_second,
        }
    }
}
