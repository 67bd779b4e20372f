//! What busbw gives Prometheus, held against Prometheus itself: promtool's rules for names, scrapes, the dashboard's queries and the
//! alert rules. And the unit, held against systemd.

use super::monitor::{monitor, scratch, tree};
use crate::support::command::BUSBW;
use crate::support::process::{Ended, LIMIT, Running, run, signal};
use crate::support::skip::{Skip, needed, programs, root_folder};
use busbw_monitor::known::{Family, Known};
use busbw_monitor::{Snapshot, metrics};
use busbw_probe::counters::{Counters, GpuCounters, HostCounters, Interface, Job, Port, QueuePairs, Sample};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

fn examples(file: &str) -> PathBuf {
    root_folder().join("examples/monitoring").join(file)
}

/// A host that counts all that busbw knows.
fn everything() -> Snapshot {
    let of = |family| {
        let known = Known::get().counters().iter().filter(|counter| counter.family == family);
        let mut names: Vec<Arc<str>> = known.map(|counter| counter.name.replace('#', "3").into()).collect();
        names.sort();
        Counters { time_us: 1, values: vec![7; names.len()], names: names.into() }
    };
    let rate_gbit_s = Some(400.0);
    let port = Port { device: "mlx5_0".into(), port: 1, rate_gbit_s, counters: of(Family::Rdma), ..Port::default() };
    let (counters, driver) = (of(Family::Interface), of(Family::Driver));
    let gpu = GpuCounters {
        name: "NVIDIA H100 80GB HBM3".into(),
        uuid: Some("GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52".into()),
        pci_bus_id: Some("00000000:1B:00.0".into()),
        busy_pct: Some(97),
        memory_used_bytes: Some(1),
        memory_total_bytes: Some(2),
        power_mw: Some(3),
    };
    let sample = Sample {
        ports: vec![port],
        interfaces: vec![Interface { name: "eth0".into(), rate_gbit_s, counters, driver, ..Interface::default() }],
        host: HostCounters { tcp: of(Family::Tcp), ..HostCounters::default() },
        gpus: vec![gpu],
        queue_pairs: vec![QueuePairs {
            device: "mlx5_0".into(),
            owner: "perf".into(),
            count: 2,
            ..QueuePairs::default()
        }],
        jobs: vec![Job { what: "all_reduce".into(), command: String::new(), processes: 2 }],
        ..Sample::default()
    };
    let alerts = [("out_of_sequence", true), ("out_of_buffer", false)];
    let raised = alerts.map(|(counter, stands)| (alert(counter), stands)).into();
    Snapshot { sample, raised, ..Snapshot::default() }
}

fn alert(counter: &str) -> busbw_monitor::Raised {
    busbw_monitor::Raised {
        device: busbw_monitor::Device::Port { device: "mlx5_0".into(), port: 1 },
        counter: counter.into(),
        code: busbw_model::Code::RoceConfig,
        severity: busbw_model::Severity::Warning,
    }
}

/// Has each command that can write metrics to a file.
fn written(folder: &Path) -> Vec<PathBuf> {
    let log = root_folder().join("tests/data/runs/h20-2x8-roce-cross-switch/run.log");
    let commands: [(&str, &[&str]); 4] = [
        ("check", &["--root", "tree"]),
        ("explain", &[log.to_str().expect("UTF-8")]),
        ("bench", &["all_reduce", "--np", "2", "-b", "1K", "-e", "4K", "-f", "2", "-n", "1"]),
        ("link", &["--np", "2", "--tcp", "--seconds", "0.05", "--size", "4K", "--flows", "1"]),
    ];
    let write = |(name, arguments): (&str, &[&str])| {
        let file = folder.join(format!("{name}.prom"));
        let ended = run(
            Command::new(BUSBW).arg(name).args(arguments).arg("--prometheus-file").arg(&file).current_dir(folder),
            LIMIT,
        );
        assert!(file.exists(), "busbw {name}: {ended:?}");
        file
    };
    tree(&folder.join("tree"));
    commands.into_iter().map(write).collect()
}

fn promtool_check(metrics: &Path) -> Output {
    let input = File::open(metrics).expect("the file is there");
    Command::new("promtool").args(["check", "metrics"]).stdin(input).output().expect("promtool runs")
}

#[test]
fn promtool_finds_nothing_to_complain_of() {
    needed!(programs(&["promtool"]));
    let folder = scratch();
    let scrape = folder.path().join("scrape.prom");
    fs::write(&scrape, metrics(&everything()).to_string()).expect("the file can be written");
    for file in written(folder.path()).into_iter().chain([scrape.clone()]) {
        let said = promtool_check(&file);
        let words = String::from_utf8_lossy(&said.stderr).into_owned() + &String::from_utf8_lossy(&said.stdout);
        assert!(said.status.success() && words.is_empty(), "{}: {words}", file.display());
    }
    // It would: these are node_exporter's sins.
    let theirs = Snapshot { node_exporter_names: true, ..everything() };
    fs::write(&scrape, metrics(&theirs).to_string()).expect("the file can be written");
    assert!(!promtool_check(&scrape).status.success());
}

/// Tests of what a file holds: the same in every version.
#[test]
fn answers_are_written_as_metrics_too() {
    let folder = scratch();
    let texts: Vec<String> =
        written(folder.path()).iter().map(|file| fs::read_to_string(file).expect("the file is there")).collect();
    let cases: [&[&str]; 4] = [
        &[
            "busbw_check_items{host=\"node7\",",
            "busbw_check_results{result=\"fail\"} ",
            "busbw_check_timestamp_seconds ",
        ],
        &[
            "busbw_explain_verdict{verdict=\"degraded\"} 1\n",
            "busbw_explain_verdict{verdict=\"healthy\"} 0\n",
            "busbw_explain_findings{code=\"fabric.congestion\",",
            "busbw_explain_busbw_bytes_per_second{collective=\"all_reduce\",nranks=\"16\",",
        ],
        &[
            "busbw_bench_time_seconds{collective=\"all_reduce\",nranks=\"2\",datatype=\"float\",redop=\"sum\",root=\"\",\
             size_bytes=\"1024\",placement=\"in_place\"} ",
            "busbw_bench_wrong_elements{",
            "busbw_bench_finished{collective=\"all_reduce\",nranks=\"2\"} 1\n",
        ],
        &[
            "busbw_link_bandwidth_bytes_per_second{from=\"",
            "busbw_link_measured{",
            "busbw_link_verdict{verdict=\"failed\"} 0",
        ],
    ];
    for (text, parts) in texts.iter().zip(cases) {
        for part in parts {
            assert!(text.contains(part), "{part}:\n{text}");
        }
    }
}

/// A Prometheus that scrapes, and what it knows.
struct Prometheus {
    running: Running,
    address: String,
}

impl Prometheus {
    fn scraping(folder: &Path, target: &str) -> Result<Self, Skip> {
        programs(&["prometheus"])?;
        let config = folder.join("prometheus.yml");
        let scrape = format!("scrape_configs: [{{job_name: busbw, static_configs: [{{targets: [\"{target}\"]}}]}}]");
        fs::write(&config, format!("global: {{scrape_interval: 1s}}\n{scrape}\n")).expect("the file can be written");
        let mut command = Command::new("prometheus");
        command.args(["--web.listen-address", "127.0.0.1:0", "--config.file"]).arg(config);
        command.arg("--storage.tsdb.path").arg(folder.join("data"));
        let mut running = Running::start(command);
        let address = running.until_said(LIMIT, "address of Prometheus", |said| {
            let after = said.split_once("msg=\"Listening on\" address=")?.1;
            Some(after.split_once('\n')?.0.trim().to_owned())
        });
        Ok(Prometheus { running, address })
    }

    /// What a query finds, as soon as it finds something.
    fn found(&mut self, query: &str) -> Vec<Value> {
        let address = self.address.clone();
        self.running.retry(LIMIT, query, || ask(&address, query))
    }

    fn end(mut self) {
        signal(self.running.id(), "TERM");
        self.running.ended(LIMIT);
    }
}

/// The series that a query finds now; none without any. A query that cannot be parsed fails.
fn ask(address: &str, query: &str) -> Option<Vec<Value>> {
    let escaped: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let mut connection = TcpStream::connect(address).ok()?;
    write!(connection, "GET /api/v1/query?query={escaped} HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).ok()?;
    // Until it is ready, it answers with a line of text.
    let answer: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
    assert!(answer["errorType"] != "bad_data", "{query}: {answer}");
    answer["data"]["result"].as_array().filter(|found| !found.is_empty()).cloned()
}

/// Of an Elastic Fabric Adapter all nine counters, and its bytes by the name of all makers.
#[test]
fn prometheus_scrapes_a_monitor_of_a_host_with_efa() {
    let folder = scratch();
    let root = folder.path().join("tree");
    tree(&root);
    let efa = root.join("sys/class/infiniband/efa_0/ports/1");
    let mut files = vec![
        ("state".to_owned(), "4: ACTIVE\n"),
        ("phys_state".to_owned(), "5: LinkUp\n"),
        ("rate".to_owned(), "100 Gb/sec (4X EDR)\n"),
    ];
    let names = [
        "tx_bytes",
        "rx_bytes",
        "tx_pkts",
        "rx_pkts",
        "rx_drops",
        "retrans_pkts",
        "retrans_timeout_events",
        "impaired_remote_conn_events",
        "unresponsive_remote_events",
    ];
    files.extend(names.map(|name| (format!("hw_counters/{name}"), "41\n")));
    for (name, text) in files {
        let path = efa.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder can be made");
        fs::write(path, text).expect("the file can be written");
    }
    let root = root.to_str().expect("UTF-8").to_owned();
    let mut running = Running::start(monitor(&["--root", &root, "--quiet", "--interval", "50ms", "--prometheus", "0"]));
    let address = running.until_said(LIMIT, "address", |said| {
        Some(said.strip_prefix("busbw: http://")?.split_once("/metrics\n")?.0.to_owned())
    });
    let mut prometheus = needed!(Prometheus::scraping(folder.path(), &address));
    prometheus.found("busbw_build_info and on (instance) up == 1");
    let bytes = prometheus.found("sum by (device) (busbw_port_tx_bytes_total)");
    let bytes: Vec<_> = bytes.iter().map(|one| (&one["metric"]["device"], &one["value"][1])).collect();
    assert_eq!(bytes.len(), 2, "{bytes:?}");
    assert!(bytes.iter().any(|(device, value)| *device == "efa_0" && *value == "41"), "{bytes:?}");
    assert!(bytes.iter().any(|(device, value)| *device == "mlx5_0" && *value == "4000"), "{bytes:?}");
    let counters = prometheus.found("{device=\"efa_0\", counter!=\"\"} == 41");
    assert_eq!(counters.len(), names.len(), "{counters:?}");
    prometheus.end();
    signal(running.id(), "INT");
    assert!(running.ended(LIMIT).status.success());
}

/// Serves a text to whoever asks, as long as the tests run.
fn served(text: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has an address").to_string();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { continue };
            let _ = connection.read(&mut [0; 4096]);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close";
            let _ = write!(connection, "{head}\r\nContent-Length: {}\r\n\r\n{text}", text.len());
        }
    });
    address
}

/// Every query of a panel, with Grafana's variables filled in.
fn queries() -> Vec<String> {
    let dashboard = fs::read(examples("dashboard.json")).expect("the dashboard is there");
    let dashboard: Value = serde_json::from_slice(&dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels").iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let queries = targets.map(|target| target["expr"].as_str().expect("a query"));
    queries.map(|query| query.replace("$instance", ".*").replace("$__rate_interval", "30s")).collect()
}

#[test]
fn every_query_of_the_dashboard_finds_a_series() {
    let folder = scratch();
    let files = written(folder.path());
    let texts = files.iter().map(|file| fs::read_to_string(file).expect("the file is there"));
    let text: String = std::iter::once(metrics(&everything()).to_string()).chain(texts).collect();
    let mut prometheus = needed!(Prometheus::scraping(folder.path(), &served(text)));
    let queries = queries();
    assert!(queries.len() > 20, "{queries:?}");
    for query in queries {
        prometheus.found(&query);
    }
    prometheus.end();
}

fn ended_well(program: &str, arguments: &[&str], folder: &Path) -> Ended {
    let ended = run(Command::new(program).args(arguments).current_dir(folder), LIMIT);
    assert!(ended.status.success(), "{program} {arguments:?}: {ended:?}");
    ended
}

#[test]
fn alert_rules_fire_when_they_should() {
    needed!(programs(&["promtool"]));
    let folder = root_folder().join("examples/monitoring");
    ended_well("promtool", &["check", "config", "prometheus.yml"], &folder);
    ended_well("promtool", &["test", "rules", "alerts-test.yml"], &folder);
}

/// Every metric that a rule asks for is one that is served.
#[test]
fn alert_rules_ask_for_what_there_is() {
    let folder = scratch();
    let files = written(folder.path());
    let texts = files.iter().map(|file| fs::read_to_string(file).expect("the file is there"));
    let text: String = std::iter::once(metrics(&everything()).to_string()).chain(texts).collect();
    let rules = fs::read_to_string(examples("alerts.yml")).expect("the rules are there");
    let expressions = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    let names: Vec<&str> = expressions
        .flat_map(|line| line.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_')))
        .filter(|word| word.starts_with("busbw_"))
        .collect();
    assert!(names.len() >= 8, "{names:?}");
    for name in names {
        assert!(text.contains(&format!("# TYPE {name} ")), "{name}");
    }
}

#[test]
fn systemd_takes_the_unit() {
    needed!(programs(&["systemd-analyze"]));
    let folder = scratch();
    let unit = fs::read_to_string(examples("busbw-monitor.service")).expect("the unit is there");
    let file = folder.path().join("busbw-monitor.service");
    fs::write(&file, unit.replace("/usr/bin/busbw", BUSBW)).expect("the file can be written");
    let path = file.to_str().expect("UTF-8");
    let ended = ended_well("systemd-analyze", &["verify", "--man=no", path], folder.path());
    assert_eq!(ended.stderr, "");
}
