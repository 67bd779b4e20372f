//! Answers as Prometheus' metrics, for the textfile collector of node_exporter. docs/monitor.md names them.

use busbw_model::metrics::Metrics;
use busbw_model::{BenchTable, Checked, Diagnosis, LinkRun, Measure, Outcome, Run, Verdict};

/// Every item of a check. The label `result` tells how it came out.
pub fn check(checked: &Checked, metrics: &mut Metrics) {
    let help = "What was checked, by result: ok, warn, fail or skip.";
    for item in &checked.items {
        let device = item.device.as_deref().unwrap_or_default();
        let area = item.area.title();
        let labels = [
            ("host", item.host.as_str()),
            ("area", area),
            ("item", &item.item),
            ("device", device),
            ("result", item.outcome.as_str()),
        ];
        metrics.gauge("busbw_check_items", help, &labels, 1.0);
    }
    for odd in &checked.odd_ones {
        let result = if odd.fails { Outcome::Fail } else { Outcome::Warn };
        for (host, _) in &odd.differ {
            let labels = [("host", host.as_str()), ("item", odd.item.as_str()), ("result", result.as_str())];
            metrics.gauge("busbw_check_differences", "Hosts that differ from most others.", &labels, 1.0);
        }
    }
    for result in Outcome::ALL {
        let count = checked.counts()[result as usize] as f64;
        metrics.gauge(
            "busbw_check_results",
            "Items and differences, by result.",
            &[("result", result.as_str())],
            count,
        );
    }
}

/// What a diagnosis says, and the tables that it read.
pub fn explain(run: &Run, diagnosis: &Diagnosis, metrics: &mut Metrics) {
    judged("explain", diagnosis, metrics);
    tables("explain", &run.tables, metrics);
}

/// What every direction reaches, and what a diagnosis says.
pub fn link(run: &LinkRun, diagnosis: &Diagnosis, metrics: &mut Metrics) {
    judged("link", diagnosis, metrics);
    for link in &run.links {
        let (from, to) = (run.name(link.from), run.name(link.to));
        let labels = [("from", from.as_str()), ("to", to.as_str()), ("transport", run.transport.name())];
        let measured = f64::from(u8::from(link.outcome.is_ok()));
        metrics.gauge("busbw_link_measured", "Whether the direction could be measured.", &labels, measured);
        let Ok(figures) = &link.outcome else { continue };
        let help = "Best bandwidth of any size and number of flows.";
        metrics.gauge("busbw_link_bandwidth_bytes_per_second", help, &labels, figures.gbit_s * 1e9 / 8.0);
        if let Some(latency) = figures.latency {
            let (median, slow) = (latency.median.0 / 1e6, latency.p99.0 / 1e6);
            metrics.gauge("busbw_link_latency_median_seconds", "Half of a round trip, median.", &labels, median);
            metrics.gauge("busbw_link_latency_p99_seconds", "Half of a round trip, 99th percentile.", &labels, slow);
        }
    }
}

fn judged(command: &str, diagnosis: &Diagnosis, metrics: &mut Metrics) {
    let verdicts = Verdict::ALL.map(Verdict::as_str);
    let name = format!("busbw_{command}_verdict");
    metrics.state(
        &name,
        "The verdict: 1 for the one that was given.",
        "verdict",
        &verdicts,
        diagnosis.verdict.as_str(),
    );
    for finding in &diagnosis.findings {
        let labels = [("code", finding.code.as_str()), ("severity", finding.severity.as_str())];
        metrics.gauge(&format!("busbw_{command}_findings"), "Findings, by code and severity.", &labels, 1.0);
    }
}

/// Every row of tables; of rows that measure the same, the last.
pub fn tables(command: &str, tables: &[BenchTable], metrics: &mut Metrics) {
    for table in tables {
        let collective = table.collective.map_or("", |collective| collective.name());
        let nranks = table.nranks.map_or_else(String::new, |nranks| nranks.to_string());
        let of_table = [("collective", collective), ("nranks", nranks.as_str())];
        for row in &table.rows {
            let size = row.size.0.to_string();
            let root = row.root.map_or_else(String::new, |root| root.to_string());
            for (placement, half) in [("out_of_place", &row.out_of_place), ("in_place", &row.in_place)] {
                let Some(half) = half else { continue };
                let mut labels = of_table.to_vec();
                labels.extend([
                    ("datatype", row.datatype.map_or("", |datatype| datatype.name())),
                    ("redop", row.redop.map_or("", |redop| redop.name())),
                    ("root", &root),
                    ("size_bytes", &size),
                    ("placement", placement),
                ]);
                measure(command, half, &labels, metrics);
            }
        }
        let average = table.printed_avg_busbw.or_else(|| table.avg_busbw());
        if let Some(average) = average {
            let name = format!("busbw_{command}_average_busbw_bytes_per_second");
            metrics.set(&name, "Mean bus bandwidth of a table.", &of_table, average.0 * 1e9);
        }
        let finished = f64::from(u8::from(table.finished));
        metrics.set(&format!("busbw_{command}_finished"), "Whether the table has its end.", &of_table, finished);
    }
}

fn measure(command: &str, half: &Measure, labels: &[(&str, &str)], metrics: &mut Metrics) {
    let figures = [
        ("time_seconds", "Mean time of an operation.", Some(half.time.0 / 1e6)),
        ("algbw_bytes_per_second", "Size over time.", Some(half.algbw.0 * 1e9)),
        ("busbw_bytes_per_second", "Bus bandwidth, as nccl-tests defines it.", Some(half.busbw.0 * 1e9)),
        ("wrong_elements", "Elements with a wrong result.", half.check.wrong().map(|wrong| wrong as f64)),
    ];
    for (name, help, value) in figures {
        if let Some(value) = value {
            metrics.set(&format!("busbw_{command}_{name}"), help, labels, value);
        }
    }
}
