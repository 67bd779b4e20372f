//! A sample as Prometheus' metrics. Counters of all makers that count one thing share a name, and the label `counter` tells what
//! the kernel or the driver calls each: so what is known in `rules/counters.toml` is served, and nothing is listed here.

use crate::known::{Counter, Family, Known, Quantity};
use crate::moment::Raised;
use busbw_model::Severity;
use busbw_model::metrics::{Labels, Metrics};
use busbw_probe::counters::{Bond, Counters, GpuCounters, Interface, Port, Sample};
use schemars::JsonSchema as _;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// What a scrape shows.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    pub sample: Sample,
    /// Every counter that has raised an alert, and whether it stands.
    pub raised: BTreeMap<Raised, bool>,
    /// Why queue pairs could not be read.
    pub untold: Option<String>,
    /// Whether what node_exporter has is served under its names too.
    pub node_exporter_names: bool,
}

pub fn metrics(snapshot: &Snapshot) -> Metrics {
    let mut page = Page { metrics: Metrics::default(), node_exporter_names: snapshot.node_exporter_names };
    let sample = &snapshot.sample;
    sample.ports.iter().for_each(|port| page.port(port));
    sample.interfaces.iter().for_each(|interface| page.interface(interface));
    page.host(sample);
    page.queue_pairs(sample);
    sample.gpus.iter().enumerate().for_each(|(index, gpu)| page.gpu(index, gpu));
    page.alerts(&snapshot.raised);
    page.itself(snapshot);
    page.metrics
}

struct Page {
    metrics: Metrics,
    node_exporter_names: bool,
}

/// What goes up and down: our name, node_exporter's, what it is.
struct Gauge(&'static str, &'static str, &'static str, f64);

impl Page {
    fn gauges(&mut self, gauges: impl IntoIterator<Item = Gauge>, labels: Labels<'_>) {
        for Gauge(ours, theirs, help, value) in gauges {
            self.metrics.gauge(ours, help, labels, value);
            if self.node_exporter_names {
                self.metrics.gauge(theirs, help, labels, value);
            }
        }
    }

    fn port(&mut self, port: &Port) {
        let number = port.port.to_string();
        let labels = [("device", port.device.as_str()), ("port", number.as_str())];
        self.gauges(port_gauges(port), &labels);
        let interface = port.interface.as_deref().unwrap_or_default();
        let info = [labels[0], labels[1], ("interface", interface), ("link_layer", port.link_layer.as_str())];
        self.metrics.gauge("busbw_port_info", "What the port of an RDMA device is.", &info, 1.0);
        self.counters("port", &[(Family::Rdma, &port.counters)], &labels);
    }

    fn interface(&mut self, interface: &Interface) {
        let labels = [("device", interface.name.as_str())];
        self.gauges(interface_gauges(interface), &labels);
        let bond = match &interface.bond {
            Some(Bond::Member(bond)) => bond,
            _ => "",
        };
        let info = [labels[0], ("bond", bond)];
        self.metrics.gauge("busbw_interface_info", "The bond that the interface is a member of.", &info, 1.0);
        let counters = [(Family::Interface, &interface.counters), (Family::Driver, &interface.driver)];
        self.counters("interface", &counters, &labels);
    }

    fn host(&mut self, sample: &Sample) {
        let host = &sample.host;
        self.gauges(
            [
                ("busbw_memory_size_bytes", "node_memory_MemTotal_bytes", "All memory.", host.memory_total_kib),
                (
                    "busbw_memory_free_bytes",
                    "node_memory_MemFree_bytes",
                    "Memory that no one uses.",
                    host.memory_free_kib,
                ),
                (
                    "busbw_memory_available_bytes",
                    "node_memory_MemAvailable_bytes",
                    "Memory that programs could get.",
                    host.memory_available_kib,
                ),
            ]
            .map(|(ours, theirs, help, kib)| Gauge(ours, theirs, help, kib as f64 * 1024.0)),
            &[],
        );
        self.counters("tcp", &[(Family::Tcp, &host.tcp)], &[]);
    }

    /// Every known counter of a place. What gives a quantity has its name, as far as [`Tracker`](crate::Tracker) counts it, so that
    /// the sum over `counter` is right; all else has a name of its own.
    fn counters(&mut self, place: &str, groups: &[(Family, &Counters)], labels: Labels<'_>) {
        let mut given: BTreeSet<Quantity> = BTreeSet::new();
        for (family, counters) in groups {
            let (known, gives) = Known::get().gives(*family, counters.names.iter().map(AsRef::as_ref));
            for (index, (name, value)) in counters.iter().enumerate() {
                let Some(counter) = known[index] else { continue };
                let is_given = |quantity: &Quantity| counter.adds || !given.contains(quantity);
                let counts = |quantity: &Quantity| gives[quantity].contains(&index) && is_given(quantity);
                let (metric, help, factor) = match counter.is.filter(counts) {
                    Some(quantity) => of_quantity(place, quantity, counter),
                    None => (own_name(*family, name), sentence(&counter.meaning), counter.factor as f64),
                };
                let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("counter", name.as_ref())]).collect();
                self.metrics.counter(&metric, &help, &labels, value as f64 * factor);
                self.theirs(counter, &labels[..labels.len() - 1], value);
            }
            given.extend(gives.keys());
        }
    }

    /// A counter by node_exporter's name, in its type (collector/netstat_linux.go has none).
    fn theirs(&mut self, counter: &Counter, labels: Labels<'_>, value: u64) {
        let Some(name) = counter.prometheus.as_ref().filter(|_| self.node_exporter_names) else { return };
        let (help, value) = (sentence(&counter.meaning), value.saturating_mul(counter.factor) as f64);
        match counter.family {
            Family::Rdma => self.metrics.counter(&format!("node_infiniband_{name}"), &help, labels, value),
            Family::Interface => self.metrics.counter(&format!("node_network_{name}"), &help, labels, value),
            Family::Tcp => self.metrics.untyped(&format!("node_netstat_{name}"), &help, labels, value),
            Family::Driver => {}
        }
    }

    fn queue_pairs(&mut self, sample: &Sample) {
        for group in &sample.queue_pairs {
            // A command line may hold anything; its program tells enough.
            let program = group.owner.split(' ').next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
            let labels = [("device", group.device.as_str()), ("program", program)];
            let count = f64::from(group.count);
            self.metrics.gauge("busbw_queue_pairs", "Queue pairs by device and program.", &labels, count);
            let failed = f64::from(group.failed);
            self.metrics.gauge("busbw_queue_pairs_failed", "Queue pairs in an error state.", &labels, failed);
        }
        for job in &sample.jobs {
            let labels = [("what", job.what.as_str())];
            let processes = f64::from(job.processes);
            self.metrics.gauge("busbw_job_processes", "Processes of a benchmark on this host.", &labels, processes);
        }
    }

    /// With the labels of NVIDIA's dcgm-exporter (template of internal/pkg/rendermetrics), so that queries join both.
    fn gpu(&mut self, index: usize, gpu: &GpuCounters) {
        let index = index.to_string();
        let labels = [
            ("gpu", index.as_str()),
            ("UUID", gpu.uuid.as_deref().unwrap_or_default()),
            ("pci_bus_id", gpu.pci_bus_id.as_deref().unwrap_or_default()),
            ("model", gpu.name.as_str()),
        ];
        let busy = gpu.busy_pct.map(|percent| f64::from(percent) / 100.0);
        let power = gpu.power_mw.map(|milliwatts| f64::from(milliwatts) / 1000.0);
        for (name, help, value) in [
            ("busbw_gpu_busy_ratio", "Share of time in which a kernel ran.", busy),
            ("busbw_gpu_memory_used_bytes", "GPU memory in use.", gpu.memory_used_bytes.map(|used| used as f64)),
            ("busbw_gpu_memory_size_bytes", "All GPU memory.", gpu.memory_total_bytes.map(|all| all as f64)),
            ("busbw_gpu_power_watts", "What the GPU draws.", power),
        ] {
            if let Some(value) = value {
                self.metrics.gauge(name, help, &labels, value);
            }
        }
    }

    /// What was an alert once stays as 0: a series that vanishes cannot be told from a monitor that ended.
    fn alerts(&mut self, raised: &BTreeMap<Raised, bool>) {
        for severity in Severity::ALL {
            let count = raised.iter().filter(|(alert, stands)| alert.severity == severity && **stands).count();
            let labels = [("severity", severity.as_str())];
            self.metrics.gauge("busbw_alerts", "Alerts that stand now.", &labels, count as f64);
        }
        for (alert, stands) in raised {
            let place = alert.device.to_string();
            let labels = [
                ("place", place.as_str()),
                ("counter", alert.counter.as_str()),
                ("code", alert.code.as_str()),
                ("severity", alert.severity.as_str()),
            ];
            let help = "Whether an error counter increases: 1, or 0 when it is over.";
            self.metrics.gauge("busbw_alert", help, &labels, f64::from(u8::from(*stands)));
        }
    }

    /// What tells of the monitor itself.
    fn itself(&mut self, snapshot: &Snapshot) {
        let sample = &snapshot.sample;
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        self.metrics.gauge("busbw_build_info", "The version of busbw.", &version, 1.0);
        let at = sample.time_us as f64 / 1e6;
        self.metrics.gauge("busbw_sample_timestamp_seconds", "When the counters were read.", &[], at);
        let silent_gpu = sample.gpus.iter().any(|gpu| *gpu == GpuCounters::default());
        for (part, fails) in [("queue_pairs", snapshot.untold.is_some()), ("gpus", silent_gpu)] {
            let help = "Whether this could not be read (1); what is missing is not served.";
            self.metrics.gauge("busbw_read_error", help, &[("part", part)], f64::from(u8::from(fails)));
        }
    }
}

fn port_gauges(port: &Port) -> impl Iterator<Item = Gauge> {
    // The numbers that sysfs puts in front of the names (Linux, drivers/infiniband/core/sysfs.c).
    const STATES: [&str; 6] = ["NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"];
    const PHYSICAL: [&str; 8] =
        ["", "Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery", "Phy Test"];
    let id = |names: &[&str], state: &str| names.iter().position(|name| *name == state).unwrap_or(0) as f64;
    let (state, physical) = (id(&STATES, &port.state), id(&PHYSICAL, &port.physical_state));
    let states = [
        Gauge("busbw_port_state_id", "node_infiniband_state_id", "State of the port; 4 is active.", state),
        Gauge(
            "busbw_port_physical_state_id",
            "node_infiniband_physical_state_id",
            "Physical state of the port; 5 is up.",
            physical,
        ),
    ];
    let rate = |gbit_s| {
        let (ours, theirs) = ("busbw_port_rate_bytes_per_second", "node_infiniband_rate_bytes_per_second");
        Gauge(ours, theirs, "Rate of the link in bytes per second.", gbit_s * 1e9 / 8.0)
    };
    states.into_iter().chain(port.rate_gbit_s.map(rate))
}

fn interface_gauges(interface: &Interface) -> impl Iterator<Item = Gauge> {
    let up = f64::from(u8::from(interface.state == "up"));
    let rate = |gbit_s| {
        let (ours, theirs) = ("busbw_interface_rate_bytes_per_second", "node_network_speed_bytes");
        Gauge(ours, theirs, "Rate of the link in bytes per second.", gbit_s * 1e9 / 8.0)
    };
    let up = Gauge("busbw_interface_up", "node_network_up", "Whether the interface is up.", up);
    [up].into_iter().chain(interface.rate_gbit_s.map(rate))
}

/// The metric of a quantity in Prometheus' base units, its help, and by what a counter is multiplied.
fn of_quantity(place: &str, quantity: Quantity, counter: &Counter) -> (String, String, f64) {
    static MEANINGS: LazyLock<BTreeMap<String, String>> = LazyLock::new(meanings);
    let help = MEANINGS.get(quantity.name()).cloned().unwrap_or_default();
    let (name, unit) = match quantity.name().strip_suffix("_us") {
        Some(stem) => (format!("{stem}_seconds"), 1e-6),
        None => (quantity.name().to_owned(), 1.0),
    };
    (format!("busbw_{place}_{name}_total"), help, counter.factor as f64 * unit)
}

/// What each quantity is, as its JSON schema says.
fn meanings() -> BTreeMap<String, String> {
    let schema = Quantity::json_schema(&mut schemars::SchemaGenerator::default());
    let each = schema.get("oneOf").and_then(Value::as_array).into_iter().flatten();
    each.filter_map(|one| Some((one["const"].as_str()?.to_owned(), one["description"].as_str()?.to_owned()))).collect()
}

/// The name of a counter that gives no quantity: `busbw_tcp_retrans_segs_total` for `RetransSegs`.
fn own_name(family: Family, counter: &str) -> String {
    let mut words = String::new();
    let mut before = '_';
    for letter in counter.strip_prefix("TCP").unwrap_or(counter).chars() {
        if letter.is_ascii_uppercase() && before.is_ascii_lowercase() {
            words.push('_');
        }
        words.push(letter.to_ascii_lowercase());
        before = letter;
    }
    format!("busbw_{}_{words}_total", family.name())
}

fn sentence(words: &str) -> String {
    // `port_xmit_data` counts words, but what is shown are bytes.
    let words = words.split(", counted in").next().unwrap_or(words);
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}
