//! What leaves the monitor for other programs: scrapes over HTTP, traces for Perfetto.

use crate::common;

use busbw_monitor::known::{Counter, Family, Known, Quantity};
use busbw_monitor::{Hosts, Server, Snapshot, Trace, Tracker, metrics};
use busbw_probe::counters::{HostCounters, Interface, Job, Port, Sample};
use common::{node, node_with_a_silent_gpu};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;

fn snapshot() -> Snapshot {
    let mut tracker = Tracker::default();
    (0..=5).for_each(|t| drop(tracker.feed(&node(t))));
    Snapshot { sample: node(5), raised: tracker.raised(), ..Snapshot::default() }
}

fn scraped(snapshot: &Snapshot) -> String {
    metrics(snapshot).to_string()
}

fn server() -> Server {
    Server::start((Ipv4Addr::LOCALHOST, 0).into(), Hosts::and(&["scraped.example".into()])).unwrap()
}

/// Sends bytes and reads the answer to its end.
fn ask(server: &Server, request: &[u8]) -> String {
    let mut connection = TcpStream::connect(server.address()).unwrap();
    connection.write_all(request).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_scrape_has_names_of_its_own() {
    insta::assert_snapshot!(scraped(&snapshot()));
}

/// The names that other exporters have too come with a flag only, since sums over both would double.
#[test]
fn node_exporters_names_are_added_when_asked_for() {
    let theirs = scraped(&Snapshot { node_exporter_names: true, ..snapshot() });
    let (theirs, ours): (Vec<&str>, Vec<&str>) = theirs.lines().partition(|line| line.contains("node_"));
    assert_eq!(ours, scraped(&snapshot()).lines().collect::<Vec<_>>());
    insta::assert_snapshot!(theirs.join("\n"));
}

/// A tree with every counter of the table at once, and each alone.
#[test]
fn every_known_counter_is_served_once() {
    let name = |counter: &Counter| counter.name.replace('#', "3");
    let sample = |counters: &[&Counter]| {
        let of = |family| {
            let named = counters.iter().filter(|counter| counter.family == family);
            let named: Vec<(String, u64)> = named.map(|counter| (name(counter), 1)).collect();
            common::counters(1, &named.iter().map(|(name, value)| (name.as_str(), *value)).collect::<Vec<_>>())
        };
        let (counters, driver) = (of(Family::Interface), of(Family::Driver));
        Sample {
            ports: vec![Port { device: "a".into(), counters: of(Family::Rdma), ..Port::default() }],
            interfaces: vec![Interface { name: "b".into(), counters, driver, ..Interface::default() }],
            host: HostCounters { tcp: of(Family::Tcp), ..HostCounters::default() },
            ..Sample::default()
        }
    };
    let all: Vec<&Counter> = Known::get().counters().iter().collect();
    let tables = all.iter().map(|counter| vec![*counter]).chain([all.clone()]);
    for table in tables {
        let text = scraped(&Snapshot { sample: sample(&table), ..Snapshot::default() });
        let served = |counter: &&Counter| {
            let place = match counter.family {
                Family::Rdma => r#"{device="a",port="0","#,
                Family::Interface | Family::Driver => r#"{device="b","#,
                Family::Tcp => "{",
            };
            let labels = format!(r#"{place}counter="{}"}}"#, name(counter));
            text.lines().filter(|line| line.contains(&labels)).count()
        };
        // rx_bytes is a counter of ports and of interfaces, but each has a device of its own here.
        let missing: Vec<&str> = table.iter().filter(|one| served(one) != 1).map(|one| one.name.as_str()).collect();
        assert_eq!(missing, Vec::<&str>::new(), "of {}", table.len());
    }
}

/// What Prometheus sums over `counter` is what the screen shows.
#[test]
fn the_sum_of_a_quantity_is_what_the_monitor_counts() {
    let mut tracker = Tracker::default();
    let rows = (0..=5).map(|t| tracker.feed(&node(t)).rows).last().unwrap();
    let sum = |t: u64, name: &str, device: &str| -> f64 {
        let text = scraped(&Snapshot { sample: node(t), ..Snapshot::default() });
        let of = |line: &&str| line.starts_with(&format!("{name}{{device=\"{device}\""));
        text.lines().filter(of).map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
    };
    for (row, device) in
        [("mlx5_bond_0/1", "mlx5_bond_0"), ("mlx5_4/1", "mlx5_4"), ("eth0", "eth0"), ("mgmt0", "mgmt0")]
    {
        let row = rows.iter().find(|one| one.device.to_string() == row).unwrap();
        let place = if row.is_rdma() { "port" } else { "interface" };
        let own = [Quantity::TxBytes, Quantity::RxBytes, Quantity::OutOfSequence, Quantity::CnpHandled];
        for quantity in own.into_iter().filter(|quantity| row.rates.contains_key(quantity)) {
            let name = format!("busbw_{place}_{}_total", quantity.name());
            assert_eq!(Some(sum(5, &name, device) - sum(4, &name, device)), row.rate(quantity), "{name} of {device}");
        }
    }
}

#[test]
fn an_alert_that_is_over_stays_as_zero() {
    let mut tracker = Tracker::default();
    (0..=5).for_each(|t| drop(tracker.feed(&node(t))));
    let mut later = node(5);
    later.time_us += 60_000_000;
    tracker.feed(&later);
    let text = scraped(&Snapshot { raised: tracker.raised(), ..Snapshot::default() });
    let values: Vec<&str> = text.lines().filter(|line| line.starts_with("busbw_alert")).collect();
    assert!(values.len() == 5 && values.iter().all(|line| line.ends_with(" 0")), "{values:?}");
}

#[test]
fn a_gpu_is_counted_by_the_driver_though_one_before_it_tells_nothing() {
    let text = scraped(&Snapshot { sample: node_with_a_silent_gpu(5), ..snapshot() });
    let busy: Vec<&str> = text.lines().filter(|line| line.starts_with("busbw_gpu_busy_ratio")).collect();
    let labels = r#"gpu="1",UUID="GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52",pci_bus_id="00000000:1B:00.0""#;
    assert_eq!(busy, [format!(r#"busbw_gpu_busy_ratio{{{labels},model="NVIDIA H100 80GB HBM3"}} 0.97"#)]);
    assert!(text.contains("busbw_read_error{part=\"gpus\"} 1\n"), "{text}");
}

#[test]
fn no_set_of_labels_stands_twice() {
    let mut snapshot = snapshot();
    let again = Job { command: "all_reduce_perf -b 1M".into(), processes: 2, ..snapshot.sample.jobs[0].clone() };
    snapshot.sample.jobs.push(again);
    let text = scraped(&snapshot);
    assert!(text.contains("busbw_job_processes{what=\"all_reduce\"} 10\n"), "{text}");
    let series = text.lines().filter(|line| !line.starts_with('#')).map(|line| line.rsplit_once(' ').unwrap().0);
    let mut seen = std::collections::BTreeSet::new();
    for one in series {
        assert!(seen.insert(one), "{one} twice");
    }
}

#[test]
fn only_metrics_can_be_had_and_only_be_read() {
    let server = server();
    assert!(ask(&server, b"GET /metrics HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n"), "nothing before the first sample");
    server.show(|| metrics(&snapshot()).to_string());
    let cases: [(&[u8], &str); 11] = [
        (b"GET /metrics HTTP/1.1\r\nHost: Scraped.example:9820\r\n\r\n", "HTTP/1.1 200 OK"),
        (b"GET /metrics HTTP/1.1\r\nHost: rebound.example\r\n\r\n", "HTTP/1.1 421 Misdirected Request"),
        (b"GET /metrics HTTP/1.1\nHost: localhost\n\n", "HTTP/1.1 200 OK"),
        (b"GET /metrics HTTP/1.0\n\n", "HTTP/1.1 200 OK"),
        (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found"),
        (b"GET /metrics/../../etc/passwd HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 405 Method Not Allowed"),
        (b"DELETE /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 Method Not Allowed"),
        (b"nonsense\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        (b"GET /metrics FTP\xff\r\n\r\n", "HTTP/1.1 400 Bad Request"),
    ];
    for (request, status) in cases {
        let answer = ask(&server, request);
        assert!(answer.starts_with(status), "{}: {answer}", String::from_utf8_lossy(request));
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())));
    }
    let whole = ask(&server, b"GET /metrics HTTP/1.0\r\n\r\n");
    let head = ask(&server, b"HEAD /metrics HTTP/1.0\r\n\r\n");
    assert_eq!(whole.split_once("\r\n\r\n").unwrap().0, head.strip_suffix("\r\n\r\n").unwrap());
}

/// curl where it is there; Prometheus asks like `scraper`.
#[test]
fn scrapers_are_served() {
    let server = server();
    server.show(|| metrics(&snapshot()).to_string());
    let scraper = format!(
        "GET /metrics HTTP/1.1\r\nHost: {}\r\nUser-Agent: Prometheus/3.5.0\r\nAccept: application/openmetrics-text;version=1.0.0;\
         escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=\
         allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2\r\nAccept-Encoding: gzip\r\n\
         X-Prometheus-Scrape-Timeout-Seconds: 10\r\n\r\n",
        server.address()
    );
    assert!(ask(&server, scraper.as_bytes()).starts_with("HTTP/1.1 200 OK"));
    let url = format!("http://localhost:{}/metrics", server.address().port());
    match Command::new("curl").args(["--silent", "--show-error", "--fail", "--noproxy", "*", "-4", &url]).output() {
        Err(_) => eprintln!("skipped curl: it is not installed"),
        Ok(said) => assert_eq!(String::from_utf8_lossy(&said.stdout), scraped(&snapshot()), "{said:?}"),
    }
}

#[test]
fn a_request_that_is_too_long_is_refused() {
    let server = server();
    let long = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &[b'a'; 9000]].concat();
    assert!(ask(&server, &long).starts_with("HTTP/1.1 431"));
}

#[test]
fn idle_and_slow_clients_keep_no_scraper_out_and_are_given_up() {
    let server = server();
    server.show(|| metrics(&snapshot()).to_string());
    let mut slow: Vec<TcpStream> = Vec::new();
    for clients in [1, 8, 64, 300] {
        while slow.len() < clients {
            let mut connection = TcpStream::connect(server.address()).unwrap();
            if clients % 3 == 0 {
                // It may have been given up already.
                let _ = connection.write_all(b"GET /met");
            }
            slow.push(connection);
        }
        for _ in 0..20 {
            let answer = ask(&server, b"GET /metrics HTTP/1.1\r\n\r\n");
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "beside {clients} clients: {answer:?}");
        }
    }
    for mut connection in slow {
        // The server ends the connection; without that this would wait for ever.
        let mut answer = Vec::new();
        let _ = connection.read_to_end(&mut answer);
        assert_eq!(answer, b"");
    }
}

fn trace(seconds: u64, finish: bool) -> Vec<Value> {
    let (mut bytes, mut tracker) = (Vec::new(), Tracker::default());
    let mut trace = Trace::new(&mut bytes).unwrap();
    for t in 0..=seconds {
        let mut sample = node(t);
        if t == seconds {
            sample.jobs.clear();
        }
        trace.add(&tracker.feed(&sample)).unwrap();
    }
    if finish {
        trace.finish().unwrap();
    } else {
        bytes.push(b']');
    }
    serde_json::from_slice(&bytes).unwrap()
}

#[test]
fn a_trace_has_tracks_for_ports_and_slices_for_alerts_and_jobs() {
    let events = trace(6, true);
    let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
    let sent: Vec<&Value> = of("C").into_iter().filter(|event| event["name"] == "mlx5_bond_0/1 tx Gbit/s").collect();
    assert_eq!(sent.len(), 6);
    assert!(sent.iter().all(|event| event["args"]["value"] == 80.0));
    assert!(sent.windows(2).all(|pair| pair[1]["ts"].as_u64() == pair[0]["ts"].as_u64().map(|ts| ts + 1_000_000)));
    let names: Vec<&str> = of("B").iter().map(|event| event["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["all_reduce", "mlx5_bond_0/1 rp_cnp_handled", "mlx5_bond_0/1 out_of_sequence"]);
    // Every slice that begins ends on its track, and not before.
    for begin in of("B") {
        let end = of("E").into_iter().find(|end| end["pid"] == begin["pid"] && end["tid"] == begin["tid"]).unwrap();
        assert!(end["ts"].as_u64() >= begin["ts"].as_u64());
    }
    assert_eq!(of("B")[2]["args"]["code"], "roce.config");
}

#[test]
fn a_trace_that_was_cut_off_lacks_its_bracket_only() {
    assert!(!trace(3, false).is_empty());
}
