//! Net plugins between two hosts of the lab, beside iperf3 and a bare ping-pong of sockets.

mod ping;
mod report;

pub use ping::{Ways, answer, ask};
pub use report::table;

use crate::busy::Busy;
use crate::lab::Lab;
use crate::machine::load;
use crate::program::{FileError, Outcome};
use crate::results::Origin;
use crate::statistics::Spread;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Apart from the labs of the other benchmarks, which may be up too.
const LAB: usize = 12;
/// Streams of iperf3.
const STREAMS: [u32; 5] = [1, 2, 4, 8, 16];
/// Message sizes of the plugins; the best of them counts.
const SIZES: &str = "512K,4M,16M,64M";
/// The grid of the plugins that are compared with: NCCL_SOCKET_NTHREADS × NCCL_NSOCKS_PERTHREAD.
const GRID: [(u32, u32); 6] = [(1, 1), (1, 4), (2, 2), (4, 1), (4, 4), (8, 2)];

/// A network between the hosts.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Network {
    pub name: &'static str,
    #[serde(skip)]
    options: &'static [&'static str],
    /// Loops that compute on every core meanwhile.
    busy: usize,
    /// What busbw's plugin has to reach.
    goal: Goal,
}

/// What busbw's plugin is held against, and the ratio to reach.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum Goal {
    /// The best of iperf3 with any number of streams, and of the other plugins.
    Best(f64),
    /// iperf3 with 16 streams.
    SixteenStreams(f64),
    /// What TCP carries on a line, in GB/s.
    Line { gb_per_s: f64, share: f64 },
}

/// The networks that are measured.
pub const NETWORKS: [Network; 4] = [
    Network { name: "no limits", options: &[], busy: 0, goal: Goal::Best(1.0) },
    Network { name: "no limits, a busy loop per core", options: &[], busy: 1, goal: Goal::Best(1.0) },
    Network { name: "250 MB/s per flow", options: &["--flow-rate", "250"], busy: 0, goal: Goal::SixteenStreams(0.95) },
    Network {
        name: "8 Gbit/s",
        options: &["--rate", "8gbit"],
        busy: 0,
        // A frame of 1,514 bytes, as the kernel's token bucket counts it, has 1,448 bytes of TCP's (with its time stamps).
        goal: Goal::Line { gb_per_s: 1448.0 / 1514.0, share: 0.97 },
    },
];

/// The latency goal: half a round trip of 8 bytes over that of bare sockets.
const LATENCY_GOAL: f64 = 1.2;

/// What is measured, and how often.
#[derive(Debug)]
pub struct Test {
    /// The busbw that measures.
    pub busbw: PathBuf,
    /// This program, for the bare ping-pong.
    pub own: PathBuf,
    /// busbw's plugin.
    pub plugin: PathBuf,
    /// Plugins to compare with, each over the grid of its settings.
    pub others: Vec<PathBuf>,
    /// Rounds; in each, every program runs once.
    pub rounds: u32,
    /// How long iperf3 runs each time.
    pub seconds: f64,
    /// The names of the networks to measure; all where it is empty.
    pub networks: Vec<String>,
}

/// What came out.
#[derive(Debug, Serialize)]
pub struct Report {
    /// When, of what and on what.
    #[serde(flatten)]
    pub origin: Origin,
    rounds: u32,
    networks: Vec<Measured>,
}

/// One network.
#[derive(Debug, Serialize)]
struct Measured {
    network: Network,
    load_before: Option<f64>,
    load_after: Option<f64>,
    /// GB/s of iperf3 by streams, a value per round.
    iperf3: Vec<(u32, Vec<f64>)>,
    /// Plugins, busbw's first.
    plugins: Vec<Plugin>,
    /// Half a round trip of 8 bytes over bare sockets, µs, a value per round.
    bare_latency_us: Vec<f64>,
    /// The same with a connection each way, as NCCL's interface has them.
    each_way_latency_us: Vec<f64>,
    /// What busbw's plugin is held against over rounds: the peer's name, and the ratio.
    peer: String,
    ratio: Option<Spread>,
    goal_met: bool,
    latency_ratio: Option<Spread>,
    each_way_latency_ratio: Option<Spread>,
    latency_goal_met: bool,
}

/// A plugin with its settings, over the rounds.
#[derive(Debug, Default, Serialize)]
struct Plugin {
    label: String,
    /// The best of all sizes, GB/s.
    gb_per_s: Vec<f64>,
    latency_us: Vec<f64>,
    messages_per_second: Vec<f64>,
    /// Of both ends, for 10^9 bytes of the largest size.
    cpu_s_per_gb: Vec<f64>,
}

/// What of `busbw plugin check --json` is used here.
#[derive(Deserialize)]
struct Answer {
    plugins: Vec<Found>,
}

#[derive(Deserialize)]
struct Found {
    label: String,
    error: Option<String>,
    bandwidth: Vec<Row>,
    latency_us: Option<Latency>,
    messages_per_second: Option<f64>,
}

#[derive(Deserialize)]
struct Row {
    gb_per_s: f64,
    cpu_s_per_gb: f64,
}

#[derive(Deserialize)]
struct Latency {
    median: f64,
}

/// Measures all networks.
pub fn measure(test: &Test, mut progress: impl FnMut(&str)) -> Outcome<Report> {
    let root = std::path::absolute(".").map_err(FileError::at(Path::new(".")))?;
    let mut networks = Vec::new();
    let is_meant =
        |network: &Network| test.networks.is_empty() || test.networks.iter().any(|name| name == network.name);
    for network in NETWORKS.into_iter().filter(is_meant) {
        let lab = Lab::up(&root, LAB, 2, network.options)?;
        let _busy = Busy::per_core(network.busy);
        let load_before = load();
        let mut measured = Rounds::default();
        for round in 1..=test.rounds {
            progress(&format!("{}: round {round} of {}", network.name, test.rounds));
            measured.add(&lab, test)?;
        }
        networks.push(measured.judge(network, load_before));
    }
    Ok(Report { origin: Origin::now("busbw.bench-net/1"), rounds: test.rounds, networks })
}

/// What the rounds of a network gave.
#[derive(Default)]
struct Rounds {
    iperf3: Vec<(u32, Vec<f64>)>,
    plugins: Vec<Plugin>,
    bare_latency_us: Vec<f64>,
    each_way_latency_us: Vec<f64>,
}

impl Rounds {
    /// Every program once.
    fn add(&mut self, lab: &Lab, test: &Test) -> Outcome<()> {
        let server =
            Background::start(lab.exec(2, Path::new("iperf3")).args(["-s", "-B", &Lab::address(2)]), "iperf3")?;
        for (at, streams) in STREAMS.into_iter().enumerate() {
            if self.iperf3.len() == at {
                self.iperf3.push((streams, Vec::new()));
            }
            self.iperf3[at].1.push(iperf3(lab, streams, test.seconds)?);
        }
        drop(server);
        for (at, found) in plugins(lab, test)?.into_iter().enumerate() {
            if self.plugins.len() == at {
                self.plugins.push(Plugin { label: found.label.clone(), ..Plugin::default() });
            }
            self.plugins[at].add(found)?;
        }
        self.bare_latency_us.push(bare_latency(lab, test, Ways::One)?);
        self.each_way_latency_us.push(bare_latency(lab, test, Ways::Each)?);
        Ok(())
    }

    fn judge(self, network: Network, load_before: Option<f64>) -> Measured {
        let ours = self.plugins.first().map(|plugin| plugin.gb_per_s.clone()).unwrap_or_default();
        let (peer, theirs, goal) = self.peer(network.goal);
        let ratio = Spread::of(ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs));
        let latencies = self.plugins.first().map(|plugin| plugin.latency_us.clone()).unwrap_or_default();
        let beside = |bare: &[f64]| Spread::of(latencies.iter().zip(bare).map(|(ours, bare)| ours / bare));
        let latency_ratio = beside(&self.bare_latency_us);
        Measured {
            network,
            load_before,
            load_after: load(),
            goal_met: ratio.is_some_and(|ratio| ratio.median >= goal),
            latency_goal_met: latency_ratio.is_some_and(|ratio| ratio.median <= LATENCY_GOAL),
            peer,
            ratio,
            latency_ratio,
            each_way_latency_ratio: beside(&self.each_way_latency_us),
            iperf3: self.iperf3,
            plugins: self.plugins,
            bare_latency_us: self.bare_latency_us,
            each_way_latency_us: self.each_way_latency_us,
        }
    }

    /// Who busbw's plugin is held against: its name, its figures by round, and the ratio to reach.
    fn peer(&self, goal: Goal) -> (String, Vec<f64>, f64) {
        let mut streams =
            self.iperf3.iter().map(|(streams, figures)| (format!("iperf3 -P {streams}"), figures.clone()));
        let others = self.plugins.iter().skip(1).map(|plugin| (plugin.label.clone(), plugin.gb_per_s.clone()));
        let median = |figures: &[f64]| Spread::of(figures.iter().copied()).map_or(0.0, |spread| spread.median);
        match goal {
            Goal::Best(share) => {
                let best = streams.chain(others).max_by(|a, b| median(&a.1).total_cmp(&median(&b.1)));
                let (name, figures) = best.unwrap_or_default();
                (name, figures, share)
            }
            Goal::SixteenStreams(share) => {
                let (name, figures) = streams.next_back().unwrap_or_default();
                (name, figures, share)
            }
            Goal::Line { gb_per_s, share } => (
                format!("what TCP carries on the line, {gb_per_s:.3} GB/s"),
                vec![gb_per_s; self.bare_latency_us.len()],
                share,
            ),
        }
    }
}

impl Plugin {
    fn add(&mut self, found: Found) -> Outcome<()> {
        if let Some(error) = found.error {
            return Err(format!("{}: {error}", found.label).into());
        }
        self.gb_per_s.push(found.bandwidth.iter().map(|row| row.gb_per_s).fold(0.0, f64::max));
        self.cpu_s_per_gb.extend(found.bandwidth.last().map(|row| row.cpu_s_per_gb));
        self.latency_us.extend(found.latency_us.map(|latency| latency.median));
        self.messages_per_second.extend(found.messages_per_second);
        Ok(())
    }
}

/// What all streams together received, GB/s.
fn iperf3(lab: &Lab, streams: u32, seconds: f64) -> Outcome<f64> {
    let mut command = lab.exec(1, Path::new("iperf3"));
    command.args(["-J", "-c", &Lab::address(2), "-P", &streams.to_string(), "-t", &seconds.ceil().to_string()]);
    // A server that has just been started may not listen yet.
    for _ in 0..50 {
        let answer = json(&mut command, "iperf3")?;
        if let Some(bits) = answer["end"]["sum_received"]["bits_per_second"].as_f64() {
            return Ok(bits / 8e9);
        }
        if !answer["error"].as_str().is_some_and(|error| error.contains("refused") || error.contains("busy")) {
            return Err(format!("iperf3 gave no result: {}", answer["error"]).into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err("iperf3's server does not listen".into())
}

/// One run of `busbw plugin check` with every plugin, busbw's own first.
fn plugins(lab: &Lab, test: &Test) -> Outcome<Vec<Found>> {
    let mut command = lab.leading(&test.busbw);
    command.args(["plugin", "check", "--measure-only", "--json", "--repeat", "3", "--size", SIZES]);
    command.arg("--plugin").arg(&test.plugin);
    for other in &test.others {
        for (threads, sockets) in GRID {
            let settings = format!("@NCCL_SOCKET_NTHREADS={threads},NCCL_NSOCKS_PERTHREAD={sockets}");
            command.arg("--plugin").arg(format!("{}{settings}", other.display()));
        }
    }
    command.args([Lab::address(1), Lab::address(2)]);
    let answer: Answer = serde_json::from_value(json(&mut command, "busbw plugin check")?)
        .map_err(|error| format!("busbw plugin check gave no result: {error}"))?;
    Ok(answer.plugins)
}

/// Half a round trip of 8 bytes over bare non-blocking sockets, µs.
fn bare_latency(lab: &Lab, test: &Test, ways: Ways) -> Outcome<f64> {
    let (mut server, mut asker) = (lab.exec(2, &test.own), lab.exec(1, &test.own));
    if ways == Ways::Each {
        server.arg("--each-way");
        asker.arg("--each-way");
    }
    let _server = Background::start(server.args(["--answer", &Lab::address(2)]), "the ping-pong")?;
    let answer = json(asker.args(["--ask", &Lab::address(2)]), "the ping-pong")?;
    answer.as_f64().ok_or_else(|| "the ping-pong gave no figure".into())
}

fn json(command: &mut Command, name: &str) -> Outcome<serde_json::Value> {
    let ran = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().map_err(FileError::at(Path::new(name)))?;
    serde_json::from_slice(&ran.stdout)
        .map_err(|_| format!("{name} gave no result: {}; its words are above", ran.status).into())
}

/// A process that is there while something is measured.
struct Background(Child);

impl Background {
    fn start(command: &mut Command, name: &str) -> Outcome<Self> {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok(Background(quiet.spawn().map_err(FileError::at(Path::new(name)))?))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
