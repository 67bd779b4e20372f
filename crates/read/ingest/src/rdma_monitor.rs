//! Reads the samples of an RDMA monitor: a time, then one counter per line, `tx_rate: 81.874 (40.923/40.951)`.

use crate::TextLine;
use busbw_model::{Place, RdmaSample, RdmaValue, SourceLine};
use rustc_hash::FxHashMap;

/// How the names of counters begin: rates and pauses of the port, the counters of mlx5 under
/// `/sys/class/infiniband/*/ports/*/hw_counters`, and the load of the host.
const COUNTER_PREFIXES: [&str; 22] = [
    "cpu_usage",
    "duplicate_request",
    "free_mem",
    "implied_nak",
    "lifespan",
    "local_ack",
    "np_",
    "num_of_qp",
    "out_of_",
    "packet_seq",
    "req_",
    "resp_",
    "rnr_nak",
    "roce_",
    "rp_",
    "rx_",
    "tcp_",
    "tx_",
    "link_downed",
    "port_",
    "symbol_error",
    "vport_",
];

/// How far below the rule its time may stand, and below the time its first value, in lines.
const MAX_GAP: u64 = 2;

/// More counters than any device has: a sample with as many has ended.
const MOST_VALUES: usize = 512;

/// Collects samples from lines.
///
/// ```
/// use busbw_ingest::{TextLine, rdma_monitor::MonitorReader};
/// use busbw_model::Place;
/// let mut reader = MonitorReader::default();
/// assert!(reader.feed(&TextLine { place: Place::default(), stream: "", text: "tx_rate: 81.874 (40.923/40.951)" }));
/// assert_eq!(reader.finish()[0].get("tx_rate"), Some(81.874));
/// ```
#[derive(Debug, Default)]
pub struct MonitorReader {
    found: Vec<RdmaSample>,
    streams: FxHashMap<Box<str>, Stream>,
}

#[derive(Debug, Default)]
struct Stream {
    rule: Option<Place>,
    time: Option<(Place, String)>,
    sample: Option<RdmaSample>,
}

impl MonitorReader {
    /// False only when the text cannot belong to a sample; looks at the first bytes only.
    pub fn may_belong(text: &[u8]) -> bool {
        match text.first() {
            Some(b'-') => text.starts_with(b"------"),
            Some(b'1'..=b'9') => text.get(4) == Some(&b'-'),
            Some(b'a'..=b'z') => COUNTER_PREFIXES.iter().any(|prefix| text.starts_with(prefix.as_bytes())),
            _ => false,
        }
    }

    /// Takes a line; true when it belongs to a sample. A rule or a time alone is claimed only next to a sample.
    pub fn feed(&mut self, line: &TextLine) -> bool {
        let text = line.text.trim_end();
        if is_rule(text) {
            let stream = self.stream(line.stream);
            stream.rule = Some(line.place);
            let ended = stream.sample.take();
            let belongs = ended.is_some();
            self.found.extend(ended);
            return belongs;
        }
        if is_time(text) {
            let stream = self.stream(line.stream);
            let below_rule = is_near(stream.rule, line.place);
            stream.time = Some((line.place, text.to_string()));
            let ended = stream.sample.take();
            self.found.extend(ended);
            return below_rule;
        }
        read_value(line.place, text).is_some_and(|value| self.value(line, value))
    }

    /// The samples in the order of their first lines.
    pub fn finish(mut self) -> Vec<RdmaSample> {
        self.found.extend(self.streams.into_values().filter_map(|stream| stream.sample));
        self.found.sort_by_key(|sample| sample.place);
        self.found
    }

    fn stream(&mut self, name: &str) -> &mut Stream {
        self.streams.entry(name.into()).or_default()
    }

    fn value(&mut self, line: &TextLine, value: RdmaValue) -> bool {
        let stream = self.stream(line.stream);
        let is_over = |sample: &RdmaSample| sample.values.len() >= MOST_VALUES || sample.get(&value.name).is_some();
        let ended = if stream.sample.as_ref().is_some_and(is_over) { stream.sample.take() } else { None };
        let time = stream.time.take().filter(|(place, _)| is_near(Some(*place), line.place));
        // Ordinary text may have a `rx_` name and a number too; rates come first, directly below the time.
        let may_start = time.is_some() || matches!(value.name.as_str(), "tx_rate" | "rx_rate");
        let belongs = stream.sample.is_some() || may_start;
        if belongs {
            let new_sample = || RdmaSample {
                place: time.as_ref().map_or(line.place, |(place, _)| *place),
                time: time.as_ref().map(|(_, text)| text.clone()),
                values: Vec::new(),
            };
            stream.sample.get_or_insert_with(new_sample).values.push(value);
        }
        self.found.extend(ended);
        belongs
    }
}

fn is_rule(text: &str) -> bool {
    text == "------"
}

fn is_near(earlier: Option<Place>, now: Place) -> bool {
    earlier.is_some_and(|earlier| earlier.input == now.input && now.line.saturating_sub(earlier.line) <= MAX_GAP)
}

/// `2022-2-18 09:48:59 CST`: a date, a time, at most a time zone.
fn is_time(text: &str) -> bool {
    let is_number = |part: &str| (1..=4).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    let are_three = |word: &str, separator: char| word.split(separator).filter(|part| is_number(part)).count() == 3;
    let mut words = text.split_whitespace();
    let (Some(date), Some(time)) = (words.next(), words.next()) else { return false };
    let has_year = date.as_bytes().get(4) == Some(&b'-') && date.starts_with(|c| ('1'..='9').contains(&c));
    has_year && text.starts_with(date) && are_three(date, '-') && are_three(time, ':') && words.nth(1).is_none()
}

/// `tx_rate: 81.874 (40.923/40.951)`, `cpu_usage: 0.35%`, `free_mem: 1049633300 kB`.
fn read_value(place: Place, text: &str) -> Option<RdmaValue> {
    let (name, value) = text.split_once(": ")?;
    let is_name = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if !is_name || !COUNTER_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        return None;
    }
    let mut words = value.split_whitespace();
    let total: f64 = words.next()?.trim_end_matches('%').parse().ok().filter(|total: &f64| total.is_finite())?;
    let per_port = match words.next() {
        None | Some("kB" | "KB" | "MB" | "us" | "Gbps") => Vec::new(),
        Some(ports) => {
            let ports = ports.strip_prefix('(')?.strip_suffix(')')?;
            ports.split('/').map(str::parse).collect::<Result<_, _>>().ok()?
        }
    };
    words.next().is_none().then(|| RdmaValue {
        source: SourceLine::new(place, text),
        name: name.to_string(),
        total,
        per_port,
    })
}
