//! Which network carries the traffic between nodes, and whether it should.

use super::{found, sound};
use crate::case::{Case, Network, Test, network_of};
use busbw_model::{
    BenchDevice, Communicator, EnvSetting, Evidence, Finding, Gain, GdrUse, NetworkLine, NetworkStatement, Run,
    Severity, SourceLine, TransportKind,
};
use busbw_predict::sockets_at_best;
use std::fmt::Display;

/// The log says that ranks of different nodes talk over sockets.
pub fn logged(case: &Case) -> Vec<Finding> {
    // Ranks of one node come to sockets by variables that close every other way: those are the finding.
    let sockets = |comm: &&Communicator| network_of(comm) == Some(Network::Socket) && comm.nnodes != Some(1);
    let connected = case.run.communicators.iter().find(sockets).map(|comm| {
        let transport = comm.transports.iter().find(|t| matches!(t.kind, TransportKind::Net(_)));
        let line = transport.and_then(|t| case.run.line(t.first));
        line.map(|source| Evidence::noted(source, "a connection between nodes over a socket"))
    });
    let told = || chosen_by_hosts(case.run).or_else(|| nothing_but_sockets(case)).map(Some);
    connected.or_else(told).map(|evidence| logged_fallback(case, evidence)).into_iter().collect()
}

/// `Using network Socket` of two hosts at least: a host by itself says so even if it needs no network.
fn chosen_by_hosts(run: &Run) -> Option<Evidence> {
    let chosen = |line: &&NetworkLine| line.statement == NetworkStatement::Chosen && line.network == "Socket";
    let mut lines = run.nccl.networks.iter().filter(chosen);
    let first = lines.next()?;
    let other = lines.any(|line| line.host.is_some() && line.host != first.host);
    let connected = run.communicators.iter().any(|comm| network_of(comm).is_some());
    (other && !connected).then(|| Evidence::noted(first.source.clone(), "NCCL's choice"))
}

/// What speed says of the network: a table as sockets have them, two runs that compare, and what carried the traffic.
pub fn measured(case: &Case) -> Vec<Finding> {
    let pairs = pairs(case);
    let cores = case.tests.iter().find(|test| test.on_cores() && test.crosses_nodes() && test.curve.shows_bandwidth());
    [cores.map(engine).into_iter().collect(), compared(case, &pairs), in_use(case, &pairs)].concat()
}

/// `NET/Socket : Using …` of an input that speaks of RDMA and holds no more of the log: NCCL opens sockets when it found no
/// HCA (`src/plugin/net.cc`).
fn nothing_but_sockets(case: &Case) -> Option<Evidence> {
    let networks = &case.run.nccl.networks;
    let other = networks.iter().any(|line| !["Socket", "Bootstrap"].contains(&line.network.as_str()));
    let using = |line: &&NetworkLine| line.network == "Socket" && matches!(line.statement, NetworkStatement::Using(_));
    let line = networks.iter().find(using)?;
    let alone = case.run.communicators.is_empty() && !other && case.has_rdma();
    alone.then(|| Evidence::noted(line.source.clone(), "what NCCL uses"))
}

fn logged_fallback(case: &Case, evidence: Option<Evidence>) -> Finding {
    let why = SocketReason::of(case.run);
    // Without a sign of RDMA sockets are all that there is.
    let avoidable = matches!(why, SocketReason::Asked(_)) || case.has_rdma();
    let mut evidence: Vec<Evidence> = evidence.into_iter().collect();
    evidence.extend(why.evidence());
    let (id, name, value) = match &why {
        SocketReason::Asked(setting) => ("sockets.asked", &*setting.name, &*setting.value),
        SocketReason::NoDevice(_) => ("sockets.no-device", "", ""),
        SocketReason::Unknown => ("sockets.unsaid", "", ""),
    };
    let finding = found(id, &[("name", &name), ("value", &value)], evidence);
    if avoidable { finding } else { Finding { severity: Severity::Info, confidence: 0.5, if_slow: true, ..finding } }
}

/// `NCCL_IB_DISABLE=1` or `NCCL_NET=Socket`.
pub(super) fn asks_for_sockets(set: &EnvSetting) -> bool {
    match set.name.as_str() {
        "NCCL_IB_DISABLE" => set.value.trim() == "1",
        "NCCL_NET" => set.value.eq_ignore_ascii_case("socket"),
        _ => false,
    }
}

/// Why sockets are in use.
enum SocketReason<'a> {
    Asked(&'a EnvSetting),
    /// `NET/IB : No device found`.
    NoDevice(&'a SourceLine),
    Unknown,
}

impl<'a> SocketReason<'a> {
    fn of(run: &'a Run) -> Self {
        let mut settings = ["NCCL_IB_DISABLE", "NCCL_NET"].into_iter().filter_map(|name| run.nccl.env_value(name));
        if let Some(asked) = settings.find(|set| asks_for_sockets(set)) {
            return SocketReason::Asked(asked);
        }
        let no_device =
            run.nccl.networks.iter().find(|n| n.network == "IB" && n.statement == NetworkStatement::NoDevice);
        no_device.map_or(SocketReason::Unknown, |line| SocketReason::NoDevice(&line.source))
    }

    fn evidence(&self) -> Option<Evidence> {
        match self {
            SocketReason::Asked(setting) => Some(Evidence::noted(setting.source.clone(), "asks for sockets")),
            SocketReason::NoDevice(line) => Some(Evidence::noted((*line).clone(), "no HCA found")),
            SocketReason::Unknown => None,
        }
    }
}

/// The network that carried a test's traffic between nodes: as its log says, else as its speed shows, else as a variable forces.
pub fn network_in_use(case: &Case, test: &Test) -> Option<Network> {
    let forced = || matches!(SocketReason::of(case.run), SocketReason::Asked(_)) && test.crosses_nodes();
    let fast = above_sockets(test).then_some(Network::Rdma);
    test.network().or(fast).or_else(|| forced().then_some(Network::Socket))
}

/// More than kernel sockets carry between two hosts, however many there are.
fn above_sockets(test: &Test) -> bool {
    test.crosses_nodes() && !test.on_cores() && test.curve.plateau.0 > 2.0 * sockets_at_best().0
}

/// `busbw bench` without GPUs: sockets are its network, whatever NICs there are.
fn engine(test: &Test) -> Finding {
    let shown = Evidence::noted(test.curve.peak_row.source.clone(), "the best it reaches");
    found("sockets.engine", &[("peak", &test.curve.peak)], vec![shown])
}

/// Two runs on the same machines, one several times faster: the fast one shows what the network can do.
fn compared(case: &Case, pairs: &[Pair]) -> Vec<Finding> {
    pairs
        .iter()
        .flat_map(|(slow, fast)| [slower_sibling(case.run, slow, fast), faster_sibling(case.run, slow, fast)])
        .collect()
}

/// How many times faster a sibling must be to prove that the slower run used another network.
const ANOTHER_NETWORK: f64 = 5.0;

/// A slow test and the fastest that proves the network can do more.
type Pair<'c, 'a> = (&'c Test<'a>, &'c Test<'a>);

fn pairs<'c, 'a>(case: &'c Case<'a>) -> Vec<Pair<'c, 'a>> {
    let slow_tests = case.tests.iter().filter(|test| test.curve.plateau.0 < sockets_at_best().0);
    let fastest_sibling = |slow: &'c Test<'a>| {
        let faster =
            |fast: &&Test| fast.curve.plateau.0 > ANOTHER_NETWORK * slow.curve.plateau.0 && siblings(slow, fast);
        let siblings = case.tests.iter().filter(faster);
        siblings.max_by(|a, b| a.curve.plateau.0.total_cmp(&b.curve.plateau.0)).map(|fast| (slow, fast))
    };
    slow_tests.filter_map(fastest_sibling).collect()
}

/// The same test on the same GPUs of the same hosts, in another input.
fn siblings(a: &Test, b: &Test) -> bool {
    let same_gpu = |(a, b): (&BenchDevice, &BenchDevice)| a.host == b.host && a.bus_id == b.bus_id;
    let (gpus, others) = (&a.table.devices, &b.table.devices);
    a.table.place.input != b.table.place.input
        && a.crosses_nodes()
        && a.curve.shows_bandwidth()
        && b.curve.shows_bandwidth()
        && a.table.collective == b.table.collective
        && a.table.nranks == b.table.nranks
        && gpus.len() == others.len()
        && gpus.iter().zip(others).all(same_gpu)
}

fn slower_sibling(run: &Run, slow: &Test, fast: &Test) -> Finding {
    let (slow_path, fast_path) = (run.path(slow.table.place), run.path(fast.table.place));
    let latency = slow.curve.latency.map_or(String::new(), |l| format!(" with {:.0} µs for the smallest size", l.0));
    let words: [(&str, &dyn Display); 8] = [
        ("slow_path", &slow_path),
        ("fast_path", &fast_path),
        ("slow", &slow.curve.peak),
        ("fast", &fast.curve.peak),
        ("collective", &slow.table.collective.map_or("a collective", |c| c.name())),
        ("ratio", &format!("{:.0}", fast.curve.peak.0 / slow.curve.peak.0)),
        ("gbit", &format!("{:.0}", slow.curve.peak.gbit_per_s())),
        ("latency", &latency),
    ];
    let evidence = vec![
        Evidence::noted(slow.curve.peak_row.source.clone(), "the best without RDMA"),
        Evidence::noted(fast.curve.peak_row.source.clone(), "the best with RDMA"),
    ];
    Finding {
        expected_gain: Some(Gain {
            from_busbw: slow.curve.peak,
            to_busbw: (fast.curve.peak, fast.curve.peak),
            basis: format!("{fast_path} measured it on the same GPUs"),
        }),
        ..found("sockets.sibling", &words, evidence)
    }
}

fn faster_sibling(run: &Run, slow: &Test, fast: &Test) -> Finding {
    let (slow_path, fast_path) = (run.path(slow.table.place), run.path(fast.table.place));
    let title = format!("{fast_path} used RDMA: {} between {} nodes", fast.curve.peak, fast.nodes.unwrap_or(2));
    let why = format!(
        "No socket reaches this bandwidth, and the same GPUs without RDMA ({slow_path}) reach only {}. So RDMA was in use.",
        slow.curve.peak
    );
    sound(0.9, title, why, vec![Evidence::noted(fast.curve.peak_row.source.clone(), "the best with RDMA")])
}

/// Says which network carried the traffic, where nothing is wrong with it.
fn in_use(case: &Case, pairs: &[Pair]) -> Vec<Finding> {
    let is_sound = |test: &&Test| test.crosses_nodes() && test.curve.fall.is_none() && test.curve.shows_bandwidth();
    let Some(test) = case
        .tests
        .iter()
        .filter(is_sound)
        .find(|test| !pairs.iter().any(|(slow, fast)| std::ptr::eq(*slow, *test) || std::ptr::eq(*fast, *test)))
    else {
        return Vec::new();
    };
    let how = match (test.network(), test.comm.and_then(Communicator::gdr)) {
        (Some(Network::Rdma), Some(GdrUse::All)) => "its connections say RDMA with GPUDirect",
        (Some(Network::Rdma), _) => "its connections say RDMA",
        (None, _) if above_sockets(test) => "more than TCP sockets carry, so RDMA or a similar network was in use",
        _ => return Vec::new(),
    };
    const WHY: &str = "The curve rises and stays, as on a healthy network. On two nodes, trees send each byte \
                       over the NICs only once, so busbw may exceed the NICs' rate; `NCCL_ALGO=RING` shows the network alone.";
    let title = format!("{} between {} nodes: {how}", test.curve.peak, test.nodes.unwrap_or(2));
    let confidence = if test.network().is_some() { 0.9 } else { 0.7 };
    vec![sound(confidence, title, WHY, vec![Evidence::noted(test.curve.peak_row.source.clone(), "the peak")])]
}

#[cfg(test)]
mod tests {
    use busbw_model::{Code, Severity};

    #[test]
    fn ranks_on_cores_have_no_rdma_to_fall_back_from() {
        let of_gpus = include_str!("../../../../../tests/data/runs/h20-2x8-tcp/run.log");
        for (text, severity) in
            [(of_gpus.to_string(), Severity::Warning), (of_gpus.replace("NVIDIA H20", "CPU Xeon"), Severity::Info)]
        {
            let run = busbw_ingest::read_bytes(&[("run.log", text.as_bytes())]).expect("a readable log");
            let found = crate::diagnose(&run).findings;
            let told: Vec<_> = found.iter().map(|finding| (finding.code, finding.severity)).take(1).collect();
            assert_eq!(told, [(Code::NetSocketFallback, severity)], "{found:?}");
        }
    }
}
