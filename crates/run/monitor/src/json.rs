//! A moment as a line of JSON: schema `busbw.monitor/1`. `docs/schema` is made from the types that are written
//! (`BUSBW_BLESS=1 cargo test -p busbw-monitor json`).

use crate::known::Quantity;
use crate::moment::{Alert, Device, HostLoad, Moment, Moved, Owner, Row};
use crate::time::rfc3339;
use busbw_model::answer::{self, Answer, Document};
use busbw_probe::counters::{GpuCounters, Job};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A moment on one line, with a closing line feed.
pub fn line(moment: &Moment) -> String {
    let written = serde_json::to_string(&Document::new(&Line::new(moment)));
    let mut line = written.expect("every key is a string and every number finite");
    line.push('\n');
    line
}

/// The JSON Schema of a line, as `docs/schema` keeps it.
pub fn schema() -> Schema {
    answer::schema::<Line>()
}

/// A line of `busbw monitor --json`, one per interval. Times are RFC 3339 in UTC. Readers must accept fields that are not described
/// here: they may be added without a new schema name.
#[derive(Serialize, JsonSchema)]
struct Line<'a> {
    /// When the sample was taken.
    time: String,
    /// Seconds since the sample before; null for the first.
    interval_s: Option<f64>,
    /// Ports of RDMA devices, each followed by its interface and the members of its bond, then other interfaces.
    ports: Vec<Lane<'a>>,
    /// The load of the host.
    host: &'a HostLoad,
    /// GPUs in the driver's order.
    gpus: &'a [GpuCounters],
    /// Queue pairs by device and owner.
    queue_pairs: Vec<Pairs<'a>>,
    /// Programs on this host that move data on purpose: benchmarks of collectives, tests of links.
    jobs: &'a [Job],
    /// Counters that moved and should not, the worst first; one that was quiet for ten seconds is over.
    alerts: &'a [Alert],
}

impl Answer for Line<'_> {
    const SCHEMA: &'static str = "busbw.monitor/1";
}

/// A port of an RDMA device, or a network interface.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Port")]
struct Lane<'a> {
    /// mlx5_0/1 or eth0.
    name: String,
    /// A port of an RDMA device, or a network interface.
    #[schemars(extend("enum" = ["rdma", "interface"]))]
    kind: &'static str,
    /// The RDMA port or bond that an interface belongs to, by name.
    below: Option<String>,
    /// The bond that an interface is a member of.
    member_of: Option<&'a str>,
    /// ACTIVE, DOWN …; of interfaces up, down, unknown …
    state: &'a str,
    /// The link's rate in Gbit/s.
    link_gbit_s: Option<f64>,
    /// Gbit/s sent; for a member of a bond what went over the wire. Null for the first sample.
    tx_gbit_s: Option<f64>,
    /// Gbit/s received.
    rx_gbit_s: Option<f64>,
    /// The interface whose bytes stand for those of a port that counts none.
    bytes_of: Option<&'a str>,
    /// Queue pairs on the device.
    queue_pairs: u32,
    /// Rates per second, of what the port counts.
    #[schemars(schema_with = "a_number_each")]
    per_second: &'a BTreeMap<Quantity, f64>,
    /// Every counter by the name that kernel or driver give it.
    counters: BTreeMap<&'a str, Count>,
}

/// Any of the quantities, each a number.
fn a_number_each(generator: &mut SchemaGenerator) -> Schema {
    let quantities = Quantity::json_schema(generator);
    let each = quantities.get("oneOf").and_then(Value::as_array).into_iter().flatten();
    let member = |quantity: &Value| {
        let number = json_schema!({ "type": "number", "description": quantity["description"] });
        Some((quantity["const"].as_str()?.to_string(), number.to_value()))
    };
    json_schema!({ "type": "object", "properties": each.filter_map(member).collect::<Map<_, _>>() })
}

/// A counter.
#[derive(Serialize, JsonSchema)]
struct Count {
    /// What it shows.
    value: u64,
    /// How much more than before; null where that is not known, as after a reset.
    moved: Option<u64>,
}

/// Queue pairs of a device and an owner.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "QueuePairs")]
struct Pairs<'a> {
    /// The RDMA device.
    device: &'a str,
    /// The process; null for the kernel's own.
    pid: Option<u32>,
    /// Command line, or what the kernel calls its part.
    owner: &'a str,
    /// Whose process.
    user: Option<&'a str>,
    /// Queue pairs.
    count: u32,
    /// Those ready to send.
    ready: u32,
    /// Those in an error state.
    failed: u32,
    /// Memory that the process holds.
    memory_kib: u64,
    /// Processor time in percent of one core.
    cpu_pct: Option<f64>,
}

impl<'a> Line<'a> {
    fn new(moment: &'a Moment) -> Self {
        Line {
            time: rfc3339(moment.time_us),
            interval_s: moment.interval_us.map(|interval| interval as f64 / 1e6),
            ports: moment.rows.iter().map(Lane::new).collect(),
            host: &moment.host,
            gpus: &moment.gpus,
            queue_pairs: moment.owners.iter().map(Pairs::new).collect(),
            jobs: &moment.jobs,
            alerts: &moment.alerts,
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
