//! A sample in Prometheus' text format, under node_exporter's names where it has one.

use crate::known::{Family, Known};
use crate::moment::Alert;
use busbw_probe::counters::{Counters, Sample};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What a scrape shows.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    pub sample: Sample,
    pub alerts: Vec<Alert>,
}

/// Metrics by name: kind, help, and a line per set of labels.
#[derive(Default)]
struct Metrics(BTreeMap<String, (&'static str, String, Vec<String>)>);

impl Metrics {
    fn add(&mut self, kind: &'static str, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let metric = self.0.entry(name.to_owned()).or_insert_with(|| (kind, help.to_owned(), Vec::new()));
        metric.2.push(format!("{name}{labels} {value}"));
    }

    fn gauge(&mut self, name: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        self.add("gauge", name, help, labels, value);
    }
}

/// Backslash, quote and line feed, as the format wants them.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

pub fn text(snapshot: &Snapshot) -> String {
    let mut metrics = Metrics::default();
    let sample = &snapshot.sample;
    ports(&mut metrics, sample);
    for interface in &sample.interfaces {
        let labels = [("device", interface.name.as_str())];
        counters(&mut metrics, Family::Interface, "node_network_", &interface.counters, &labels);
        let up = f64::from(u8::from(interface.state == "up"));
        metrics.gauge("node_network_up", "Whether the interface is up.", &labels, up);
        if let Some(rate) = interface.rate_gbit_s {
            metrics.gauge(
                "node_network_speed_bytes",
                "Speed of the link in bytes per second.",
                &labels,
                rate * 1e9 / 8.0,
            );
        }
    }
    counters(&mut metrics, Family::Tcp, "node_netstat_", &sample.host.tcp, &[]);
    for (name, help, kib) in [
        ("node_memory_MemTotal_bytes", "All memory.", sample.host.memory_total_kib),
        ("node_memory_MemFree_bytes", "Memory that no one uses.", sample.host.memory_free_kib),
        ("node_memory_MemAvailable_bytes", "Memory that programs could get.", sample.host.memory_available_kib),
    ] {
        metrics.gauge(name, help, &[], kib as f64 * 1024.0);
    }
    own(&mut metrics, snapshot);
    let mut out = String::new();
    for (name, (kind, help, lines)) in metrics.0 {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{}", lines.join("\n"));
    }
    out
}

fn ports(metrics: &mut Metrics, sample: &Sample) {
    for port in &sample.ports {
        let number = port.port.to_string();
        let labels = [("device", port.device.as_str()), ("port", number.as_str())];
        counters(metrics, Family::Rdma, "node_infiniband_", &port.counters, &labels);
        // The numbers that sysfs puts in front of the names (Linux, drivers/infiniband/core/sysfs.c).
        let id = |names: &[&str], state: &str| names.iter().position(|name| *name == state).unwrap_or(0) as f64;
        let states = ["NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"];
        metrics.gauge("node_infiniband_state_id", "State of the port; 4 is active.", &labels, id(&states, &port.state));
        let physical = [
            "",
            "Sleep",
            "Polling",
            "Disabled",
            "PortConfigurationTraining",
            "LinkUp",
            "LinkErrorRecovery",
            "Phy Test",
        ];
        let value = id(&physical, &port.physical_state);
        metrics.gauge("node_infiniband_physical_state_id", "Physical state of the port; 5 is up.", &labels, value);
        if let Some(rate) = port.rate_gbit_s {
            let help = "Rate of the link in bytes per second.";
            metrics.gauge("node_infiniband_rate_bytes_per_second", help, &labels, rate * 1e9 / 8.0);
        }
    }
}

/// The counters that node_exporter has too, in its units.
fn counters(metrics: &mut Metrics, family: Family, prefix: &str, counters: &Counters, labels: &[(&str, &str)]) {
    let known = Known::get();
    for (name, value) in counters.iter() {
        let Some(counter) = known.find(family, name).map(|at| &known.counters()[at]) else { continue };
        let Some(theirs) = &counter.prometheus else { continue };
        let value = value.saturating_mul(counter.factor) as f64;
        metrics.add("counter", &format!("{prefix}{theirs}"), &sentence(&counter.meaning), labels, value);
    }
}

fn sentence(words: &str) -> String {
    // `port_xmit_data` counts words, but what is shown are bytes.
    let words = words.split(", counted in").next().unwrap_or(words);
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}

/// What node_exporter does not have.
fn own(metrics: &mut Metrics, snapshot: &Snapshot) {
    let mut pairs: BTreeMap<(&str, String), u32> = BTreeMap::new();
    for group in &snapshot.sample.queue_pairs {
        // A command line may hold anything; its program tells enough.
        let program = group.owner.split(' ').next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
        *pairs.entry((&group.device, program.to_owned())).or_default() += group.count;
    }
    for ((device, program), count) in pairs {
        let labels = [("device", device), ("program", program.as_str())];
        metrics.gauge("busbw_queue_pairs", "Queue pairs by device and program.", &labels, f64::from(count));
    }
    for (at, gpu) in snapshot.sample.gpus.iter().enumerate() {
        let index = at.to_string();
        let labels = [("gpu", index.as_str()), ("name", gpu.name.as_str())];
        if let Some(busy) = gpu.busy_pct {
            let help = "Share of time in which a kernel ran.";
            metrics.gauge("busbw_gpu_busy_ratio", help, &labels, f64::from(busy) / 100.0);
        }
        if let Some(used) = gpu.memory_used_bytes {
            metrics.gauge("busbw_gpu_memory_used_bytes", "GPU memory in use.", &labels, used as f64);
        }
    }
    // Several command lines may run the same benchmark, and a set of labels may stand in a scrape once only.
    let mut jobs: BTreeMap<&str, u32> = BTreeMap::new();
    for job in &snapshot.sample.jobs {
        *jobs.entry(&job.what).or_default() += job.processes;
    }
    for (what, processes) in jobs {
        let help = "Processes of a benchmark on this host.";
        metrics.gauge("busbw_job_processes", help, &[("what", what)], f64::from(processes));
    }
    for alert in &snapshot.alerts {
        let place = alert.device.to_string();
        let labels = [("place", place.as_str()), ("counter", alert.counter.as_str()), ("code", alert.code.as_str())];
        metrics.gauge("busbw_alert_moved", "Increase of an error counter.", &labels, alert.moved as f64);
    }
}
