//! Runs and diagnoses made by hand, for the tests of every format.

pub mod fabrics;

use busbw_model::*;

/// The start of links to the pages of codes, which readers follow, and browsers do not load.
pub const PAGES: &str = "href=\"https://github.com/busbw/busbw/blob/main/docs/findings/";

/// The table of the first field report, as printed; it stands at lines 38 to 63.
const ROWS: &str = "\
         512           128     float     sum      -1    56.12    0.01    0.02      0    54.54    0.01    0.02      0
        1024           256     float     sum      -1    55.09    0.02    0.03      0    53.85    0.02    0.04      0
        2048           512     float     sum      -1    55.67    0.04    0.07      0    54.84    0.04    0.07      0
        4096          1024     float     sum      -1    55.70    0.07    0.14      0    55.05    0.07    0.14      0
        8192          2048     float     sum      -1    56.36    0.15    0.27      0    56.53    0.14    0.27      0
       16384          4096     float     sum      -1    57.21    0.29    0.54      0    57.02    0.29    0.54      0
       32768          8192     float     sum      -1    60.74    0.54    1.01      0    59.87    0.55    1.03      0
       65536         16384     float     sum      -1    67.42    0.97    1.82      0    68.41    0.96    1.80      0
      131072         32768     float     sum      -1    109.6    1.20    2.24      0    108.8    1.20    2.26      0
      262144         65536     float     sum      -1    108.3    2.42    4.54      0    108.3    2.42    4.54      0
      524288        131072     float     sum      -1    115.0    4.56    8.55      0    112.8    4.65    8.72      0
     1048576        262144     float     sum      -1    135.0    7.77   14.57      0    129.4    8.10   15.19      0
     2097152        524288     float     sum      -1    144.6   14.51   27.20      0    142.9   14.67   27.51      0
     4194304       1048576     float     sum      -1    222.0   18.89   35.43      0    220.0   19.07   35.75      0
     8388608       2097152     float     sum      -1    396.5   21.15   39.66      0    392.1   21.40   40.12      0
    16777216       4194304     float     sum      -1    736.3   22.78   42.72      0    904.7   18.55   34.77      0
    33554432       8388608     float     sum      -1   1405.5   23.87   44.76      0   1542.0   21.76   40.80      0
    67108864      16777216     float     sum      -1   2679.0   25.05   46.97      0   2721.0   24.66   46.24      0
   134217728      33554432     float     sum      -1   5490.1   24.45   45.84      0   5291.6   25.36   47.56      0
   268435456      67108864     float     sum      -1    10436   25.72   48.23      0    11788   22.77   42.70      0
   536870912     134217728     float     sum      -1    25853   20.77   38.94      0    23436   22.91   42.95      0
  1073741824     268435456     float     sum      -1    47974   22.38   41.97      0    54979   19.53   36.62      0
  2147483648     536870912     float     sum      -1   117645   18.25   34.23      0   117423   18.29   34.29      0
  4294967296    1073741824     float     sum      -1   248208   17.30   32.44      0   229171   18.74   35.14      0
  8589934592    2147483648     float     sum      -1   474132   18.12   33.97      0   476988   18.01   33.77      0
 17179869184    4294967296     float     sum      -1   949191   18.10   33.94      0   965703   17.79   33.36      0";
const FIRST_ROW: u64 = 38;
const LAST_ROW: u64 = 63;
const PEAK_ROW: u64 = 57;

/// The four rings of the first field report; channel c has ring c % 4, printed at line 18 + c.
const RINGS: [[u32; 16]; 4] = [
    [0, 7, 5, 6, 4, 3, 1, 2, 8, 15, 13, 14, 12, 11, 9, 10],
    [0, 7, 5, 6, 4, 3, 1, 10, 8, 15, 13, 14, 12, 11, 9, 2],
    [0, 7, 5, 6, 12, 11, 9, 10, 8, 15, 13, 14, 4, 3, 1, 2],
    [0, 7, 5, 14, 12, 11, 9, 10, 8, 15, 13, 6, 4, 3, 1, 2],
];
const HOSTS: [&str; 2] = ["bm-2204kzq", "bm-2204qhn"];
const BUS_IDS: [&str; 8] = ["0x0f", "0x34", "0x48", "0x5a", "0x87", "0xae", "0xc2", "0xd7"];

pub fn at(line: u64, text: &str) -> SourceLine {
    SourceLine::new(Place { input: 0, line }, text)
}

/// An evidence line of the first input.
pub fn evidence(line: u64, text: &str, note: &str) -> Evidence {
    Evidence { source: at(line, text), note: Some(note.to_string()).filter(|n| !n.is_empty()) }
}

/// A finding with nothing but a title and an explanation.
pub fn finding(code: Code, severity: Severity, title: &str, explanation: &str) -> Finding {
    Finding::new(code, severity, 0.9, title, explanation)
}

pub fn diagnosis(verdict: Verdict, summary: &str) -> Diagnosis {
    Diagnosis { verdict, summary: summary.into(), ..Diagnosis::default() }
}

fn row_text(line: u64) -> &'static str {
    ROWS.lines().nth((line - FIRST_ROW) as usize).unwrap()
}

fn row(line: u64) -> BenchRow {
    let cells: Vec<&str> = row_text(line).split_whitespace().collect();
    let number = |i: usize| cells[i].parse::<f64>().unwrap();
    let half = |i: usize| Measure {
        time: Micros(number(i)),
        algbw: GBps(number(i + 1)),
        busbw: GBps(number(i + 2)),
        check: Check::Wrong(cells[i + 3].parse().unwrap()),
        iterations: None,
    };
    BenchRow {
        doubted: false,
        size: Bytes(cells[0].parse().unwrap()),
        count: cells[1].parse().ok(),
        datatype: Datatype::from_name(cells[2]),
        redop: RedOp::from_name(cells[3]),
        root: None,
        out_of_place: Some(half(5)),
        in_place: Some(half(9)),
        skew: None,
        source: at(line, row_text(line)),
    }
}

/// The table of the first field report.
pub fn field_table() -> BenchTable {
    BenchTable {
        place: Place { input: 0, line: 1 },
        collective: Some(Collective::AllReduce),
        nranks: Some(16),
        rows: (FIRST_ROW..=LAST_ROW).map(row).collect(),
        ..BenchTable::default()
    }
}

fn ring_text(channel: u16) -> String {
    let ranks: String = RINGS[usize::from(channel % 4)].iter().map(|rank| format!("{rank:>4}")).collect();
    format!("bm-2204kzq:252978:253054 [0] NCCL INFO Channel {channel:02}/16 : {ranks}")
}

fn node(index: u32) -> Node {
    let gpu = |device: u32| Gpu {
        rank: Some(index * 8 + device),
        device: Some(device),
        bus_id: Some(BUS_IDS[device as usize].into()),
        name: Some("NVIDIA H20".into()),
    };
    Node { host: HOSTS[index as usize].into(), gpus: (0..8).map(gpu).collect(), nics: vec![] }
}

/// The run of the first field report: two nodes of eight GPUs, sixteen channels, the table; nothing about NICs.
pub fn field_run() -> Run {
    let ring = |channel: u16| Ring {
        ranks: RINGS[usize::from(channel % 4)].to_vec(),
        complete: true,
        place: at(18 + u64::from(channel), "").place,
    };
    let comm = Communicator {
        id: "comm-1".into(),
        nranks: Some(16),
        nnodes: Some(2),
        coll_channels: Some(16),
        ranks: (0..16).map(|r| (r, Rank { node: Some(r / 8), device: Some(r % 8), ..Rank::default() })).collect(),
        channels: (0..16).map(|c| (c, Channel { ring: Some(ring(c)) })).collect(),
        ..Communicator::default()
    };
    Run {
        inputs: vec![Input {
            path: "run.log".into(),
            kinds: vec![InputKind::NcclTests, InputKind::NcclLog],
            lines: 64,
            bytes: 6_528,
        }],
        nodes: vec![node(0), node(1)],
        tables: vec![field_table()],
        nccl: NcclLog { lines: 16, ..NcclLog::default() },
        communicators: vec![comm],
        ..Run::default()
    }
}

/// What the rules might conclude from [`field_run`].
pub fn field_diagnosis() -> Diagnosis {
    let ring = |channel: u16, note| evidence(18 + u64::from(channel), &ring_text(channel), note);
    let congestion = Finding {
        confidence: 0.85,
        evidence: vec![
            evidence(PEAK_ROW, row_text(PEAK_ROW), "the peak: 48.23 GB/s"),
            evidence(LAST_ROW, row_text(LAST_ROW), "33.94 GB/s at the largest size"),
            ring(0, ""),
            ring(1, ""),
            ring(2, ""),
            ring(3, "rings 0 to 3 repeat four times"),
        ],
        remedy: vec![
            "Cable the NICs of one rail (the same index on every node) to the same switch, so that no ring has to cross \
             the links between the switches."
                .into(),
            "Until then, look at how the switch hashes flows: `ethtool -S eth0 | grep -E 'ecn|cnp|pause'` on both nodes \
             while the test runs, and raise the number of flows with `export NCCL_IB_QPS_PER_CONNECTION=4` or \
             `NCCL_IB_SPLIT_DATA_ON_QPS=1`."
                .into(),
        ],
        expected_gain: Some(Gain {
            from_busbw: GBps(33.94),
            to_busbw: (GBps(46.0), GBps(48.5)),
            basis: "the peak of this run, held to the largest size".into(),
        }),
        ..finding(
            Code::FabricCongestion,
            Severity::Warning,
            "large messages between the two nodes share the links of the fabric unevenly",
            "busbw rises to 48.23 GB/s at 256 MiB and then falls by 30 % although larger messages should only get closer \
             to the limit. A limit inside the nodes would hold at every size, so the limit lies between them.\n\n\
             The sixteen rings cross between the nodes over eight ordered rank pairs only:\n\
             - 10→0, 2→8, 1→10, 9→2 on channels 0, 1, 4, 5 …\n\
             - 6→12, 14→4, 5→14, 13→6 on the others\n\n\
             Few large flows are hashed onto equal-cost links (ECMP); two of them on one link get half of it each.",
        )
    };
    Diagnosis {
        findings: vec![
            congestion,
            finding(
                Code::EnvOverride,
                Severity::Info,
                "NCCL_ALGO=ring keeps NCCL from choosing trees",
                "With trees the small sizes would be faster. The large sizes, which matter here, use rings anyway.",
            ),
        ],
        expected: Some(Expected {
            busbw: GBps(48.5),
            at: Some(Bytes(16 << 30)),
            bottleneck: "the NIC that each pair of GPUs shares".into(),
            why: "four 400G NICs per node carry 4 × 48.5 GB/s, and the ring leaves a node once per channel".into(),
        }),
        ..diagnosis(
            Verdict::Degraded,
            "busbw falls from 48.23 GB/s at 256 MiB to 33.94 at 16 GiB: flows between the two nodes share links",
        )
    }
}

/// [`field_run`] with what a whole log says besides: NICs, transports, a version, settings, a tree.
pub fn full_run() -> Run {
    let mut run = field_run();
    let hcas = ["mlx5_0", "mlx5_2", "mlx5_3", "mlx5_4"];
    let nic = |(index, name): (usize, &&str)| Nic {
        index: Some(index as u32),
        name: name.to_string(),
        port: Some(1),
        link: Some("RoCE".into()),
        address: None,
    };
    for node in &mut run.nodes {
        node.nics = hcas.iter().enumerate().map(nic).collect();
    }
    run.nccl.versions.push(VersionLine {
        version: "2.27.7+cuda12.4".into(),
        cuda: Some("12.4".into()),
        library: Library::Nccl,
        processes: Vec::new(),
        source: at(17, "NCCL version 2.27.7+cuda12.4"),
    });
    run.nccl.env = vec![
        setting("NCCL_ALGO", "ring", EnvOrigin::NcclLog),
        setting("NCCL_IB_HCA", "mlx5_0,mlx5_2,mlx5_3,mlx5_4", EnvOrigin::NcclLog),
        setting("NCCL_ALGO", "tree", EnvOrigin::NcclLog),
        setting("NCCL_DEBUG", "INFO", EnvOrigin::CommandLine),
    ];
    let comm = &mut run.communicators[0];
    connect(comm);
    let links = |rank: u32| TreeLinks::new(rank.checked_sub(1), [Some(rank + 1).filter(|r| *r < 16), None, None]);
    let channels = busbw_model::ChannelSet::of(0);
    comm.trees = (0..16).map(|rank| Tree { rank, links: links(rank), channels }).collect();
    run
}

/// Gives every pair of the rings a connection: NVLink in the node, the pair's NIC between nodes.
fn connect(comm: &mut Communicator) {
    let transport = |kind, via: String, nic: Option<u32>| {
        let first = Place::default();
        Transport { kind, via, nic, pxn: false, gdr: nic.is_some(), first }
    };
    let network = |nic| transport(TransportKind::Net("IB".into()), format!("NET/IB/{nic}/GDRDMA"), Some(nic));
    comm.transports = (0..4).map(network).collect();
    comm.transports.push(transport(TransportKind::P2p("CUMEM".into()), "P2P/CUMEM".into(), None));
    for (channel, ring) in &comm.channels {
        for (from, to) in ring.ring.iter().flat_map(Ring::pairs) {
            let transport = if from / 8 == to / 8 { 4 } else { (from % 8 / 2) as u16 };
            let use_ = EdgeUse::Collective;
            let channels = busbw_model::ChannelSet::of(*channel);
            comm.edges.push(Edge { from, to, transport, end: EdgeEnd::Send, use_, channels });
        }
    }
}

fn setting(name: &str, value: &str, origin: EnvOrigin) -> EnvSetting {
    let source = at(2, &format!("{name} set to {value}"));
    EnvSetting { name: name.into(), value: value.into(), origin, source, until: None, hosts: vec![] }
}

/// A run of many nodes: one ring per channel that goes through the ranks in order.
pub fn large_run(nodes: u32, gpus: u32, channels: u16) -> Run {
    let ranks = nodes * gpus;
    let node = |n: u32| Node {
        host: format!("node{n:04}"),
        gpus: (0..gpus)
            .map(|g| Gpu { rank: Some(n * gpus + g), name: Some("NVIDIA H100 80GB HBM3".into()), ..Gpu::default() })
            .collect(),
        nics: vec![],
    };
    let ring = |channel: u16| Ring {
        ranks: (0..ranks).map(|r| r / gpus * gpus + (r + u32::from(channel)) % gpus).collect(),
        complete: true,
        place: Place::default(),
    };
    let (links, mut all) = (TreeLinks::new(None, [None; 3]), busbw_model::ChannelSet::default());
    (0..channels).for_each(|c| all.add(busbw_model::ChannelSet::of(c)));
    let comm = Communicator {
        id: "0xabcdef".into(),
        nranks: Some(ranks),
        nnodes: Some(nodes),
        coll_channels: Some(channels.into()),
        ranks: (0..ranks).map(|r| (r, Rank { node: Some(r / gpus), ..Rank::default() })).collect(),
        channels: (0..channels).map(|c| (c, Channel { ring: Some(ring(c)) })).collect(),
        trees: (0..ranks).map(|rank| Tree { rank, links, channels: all }).collect(),
        ..Communicator::default()
    };
    let input = Input { path: "large.log".into(), kinds: vec![InputKind::NcclLog], lines: 90_000, bytes: 9_000_000 };
    Run { inputs: vec![input], nodes: (0..nodes).map(node).collect(), communicators: vec![comm], ..Run::default() }
}

/// A failed run: no table, errors, evidence in two files, and colour codes in the log.
pub fn failed() -> (Run, Diagnosis) {
    let input = |path: &str| Input { path: path.into(), kinds: vec![InputKind::NcclLog], lines: 2_000, bytes: 90_000 };
    let warn = "\x1b[31mgpu-07:4711:4802 [3] NCCL WARN NET/IB : Got completion from peer 10.0.0.8<43512> with status=12 \
                opcode=0 len=0 vendor err 129 (Recv) hca mlx5_3\x1b[0m";
    let second = SourceLine::new(Place { input: 1, line: 9 }, "srun: error: gpu-07: task 3: Exited with exit code 3");
    let mut error = finding(
        Code::IbTransportError,
        Severity::Error,
        "an RDMA transfer to 10.0.0.8 timed out on mlx5_3",
        "The NIC sent and heard nothing back, seven times. Either the path is broken or the peer died first.",
    );
    error.evidence = vec![
        evidence(1207, warn, "status=12 with vendor err 129 is a retry timeout"),
        Evidence { source: second, note: None },
    ];
    error.remedy = vec!["Look for a flapping link: `dmesg -T | grep -i mlx5`".into()];
    let run = Run {
        inputs: vec![input("gpu-07.log"), input("slurm-42.out"), Input { path: "notes.md".into(), ..Input::default() }],
        problems: vec![Problem { place: Place { input: 2, line: 0 }, text: "no reader knows this format".into() }],
        nccl: NcclLog { lines: 1_900, warn_lines: 12, ..NcclLog::default() },
        ..Run::default()
    };
    let findings = vec![error];
    (run, Diagnosis { findings, ..diagnosis(Verdict::Failed, "an RDMA transfer timed out and the job ended") })
}

/// A sweep: the table of the first field report many times, every time a little slower.
pub fn sweep(tables: u32) -> Run {
    let mut run = field_run();
    let slower = |n: u32| {
        let mut table = field_table();
        let halves = |row: &mut BenchRow| [row.out_of_place.take(), row.in_place.take()];
        for row in &mut table.rows {
            let [out, in_place] =
                halves(row).map(|half| half.map(|m| Measure { busbw: GBps(m.busbw.0 * 0.99_f64.powi(n as i32)), ..m }));
            (row.out_of_place, row.in_place) = (out, in_place);
        }
        table.place.line = 1 + u64::from(n) * 64;
        table
    };
    run.tables = (0..tables).map(slower).collect();
    run
}

/// Names of the elements that are open at the end, and those that were closed without being open.
pub fn unbalanced(page: &str) -> Vec<String> {
    let mut open: Vec<&str> = Vec::new();
    let mut wrong = Vec::new();
    for tag in page.split('<').skip(1) {
        let tag = tag.split('>').next().unwrap();
        let name = tag.split([' ', '\n']).next().unwrap();
        match name.strip_prefix('/') {
            Some(closed) if open.last() == Some(&closed) => drop(open.pop()),
            Some(closed) => wrong.push(closed.to_string()),
            None if tag.ends_with('/') || name == "meta" || name == "input" || name.starts_with('!') => {}
            None => open.push(name),
        }
    }
    wrong.into_iter().chain(open.into_iter().map(String::from)).collect()
}

/// [`field_diagnosis`] with what is expected of the table, size by size.
pub fn expecting() -> Diagnosis {
    let row = |row: BenchRow| ExpectedRow {
        size: row.size,
        busbw: GBps(180.0),
        band: (GBps(160.0), GBps(195.0)),
        limit: GBps(200.0),
        bottleneck: "4 NICs & a switch".into(),
    };
    let rows = field_table().rows.into_iter().map(row).collect();
    Diagnosis { expected_tables: vec![ExpectedTable { table: 0, rows }], ..field_diagnosis() }
}

/// What is wrong with a document by a schema, properties that the schema does not describe included: readers must accept
/// them; our own tests must not.
pub fn schema_errors(schema: &str, document: &str) -> Vec<String> {
    let mut schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    forbid_undescribed(&mut schema);
    let validator = jsonschema::validator_for(&schema).unwrap();
    let document = serde_json::from_str(document).unwrap();
    validator.iter_errors(&document).map(|e| format!("{}: {e}", e.instance_path())).collect()
}

fn forbid_undescribed(schema: &mut serde_json::Value) {
    match schema {
        serde_json::Value::Object(map) => {
            if map.contains_key("properties") && !map.contains_key("additionalProperties") {
                map.insert("additionalProperties".into(), serde_json::Value::Bool(false));
            }
            map.values_mut().for_each(forbid_undescribed);
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(forbid_undescribed),
        _ => {}
    }
}

/// A fleet with a dozen slow nodes, and a finding for each.
pub fn fleet() -> Diagnosis {
    let host = |number: usize| format!("node{number:04}");
    let slow = |number| SlowPeer {
        hosts: vec![host(number)],
        value: 20.0 + number as f64,
        measurements: 3,
        blame: Blame::Node,
        source: SourceLine::default(),
    };
    let group = PeerGroup {
        what: "all_reduce".into(),
        unit: "GB/s",
        nodes: 1000,
        measured: 1500,
        usual: 1464,
        median: 48.0,
        deviation: 1.0,
        least: 20.0,
        most: 50.0,
        slow: (0..12).map(slow).collect(),
    };
    let slow = |number| finding(Code::StragglerNode, Severity::Warning, &format!("{} is slow", host(number)), "");
    let findings = (0..12).map(slow).collect();
    Diagnosis { findings, peers: vec![group], ..diagnosis(Verdict::Degraded, "12 nodes are slow") }
}
