//! Ports and GPUs are judged with the card and the board that they are of; a machine that did not run is a note.

use busbw_diagnose::diagnose;
use busbw_ingest::read_bytes;
use busbw_model::{Code, Severity};

/// A device as ibstat shows it: the card's GUID, state, physical state, rate, link layer, firmware.
type Device = (u32, &'static str, &'static str, u32, &'static str, &'static str);

const UP: Device = (0, "Active", "LinkUp", 400, "InfiniBand", "28.39.1002");
const POLLING: Device = (0, "Down", "Polling", 10, "InfiniBand", "28.39.1002");
const ROCE: Device = (0, "Active", "LinkUp", 400, "Ethernet", "28.39.1002");
const STORAGE: Device = (0, "Active", "LinkUp", 200, "Ethernet", "28.39.3560");
const UNPLUGGED: Device = (0, "Down", "Disabled", 40, "Ethernet", "28.39.3560");

fn ibstat(devices: &[Device]) -> String {
    let of_device = |(index, (card, state, physical, rate, layer, firmware)): (usize, &Device)| {
        format!(
            "CA 'mlx5_{index}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tFirmware version: {firmware}\n\
             \tSystem image GUID: 0x946dae03{card:08x}\n\tPort 1:\n\t\tState: {state}\n\t\tPhysical state: {physical}\n\
             \t\tRate: {rate}\n\t\tLink layer: {layer}\n"
        )
    };
    devices.iter().enumerate().map(of_device).collect()
}

/// Devices, so many of each, every one a card of its own.
fn alone(devices: &[(usize, Device)]) -> Vec<Device> {
    let each = devices.iter().flat_map(|(count, device)| std::iter::repeat_n(*device, *count));
    (1..).zip(each).map(|(card, device)| (card, device.1, device.2, device.3, device.4, device.5)).collect()
}

/// The same, two after another on each card.
fn in_pairs(devices: &[(usize, Device)]) -> Vec<Device> {
    alone(devices)
        .into_iter()
        .map(|device| (device.0.div_ceil(2) + 100, device.1, device.2, device.3, device.4, device.5))
        .collect()
}

/// Ports as ibdev2netdev shows them: name of the interface, and whether it is up.
fn netdevs(interfaces: &[(&str, bool)]) -> String {
    let row = |(index, (name, up)): (usize, &(&str, bool))| {
        format!("mlx5_{index} port 1 ==> {name} ({})\n", if *up { "Up" } else { "Down" })
    };
    interfaces.iter().enumerate().map(row).collect()
}

/// `topo -m` of GPUs: those of the board reach each other over `links`, the others nobody.
fn topology(gpus: usize, odd: &[usize], links: u32) -> String {
    let names: Vec<String> = (0..gpus).map(|gpu| format!("GPU{gpu}")).collect();
    let path = |a: usize, b: usize| match () {
        () if a == b => " X ".to_string(),
        () if odd.contains(&a) || odd.contains(&b) => "SYS".to_string(),
        () => format!("NV{links}"),
    };
    let row = |gpu: usize| (0..gpus).map(|other| format!("\t{}", path(gpu, other))).collect::<String>();
    let rows: String = (0..gpus).map(|gpu| format!("GPU{gpu}{}\t0-47\t0\n", row(gpu))).collect();
    format!("\t{}\tCPU Affinity\tNUMA Affinity\n{rows}", names.join("\t"))
}

/// `nvidia-smi nvlink -s`: the links of each GPU that are up.
fn links(product: &str, up: &[usize]) -> String {
    let of_gpu = |(gpu, up): (usize, &usize)| {
        let lines: String = (0..*up).map(|link| format!("\t Link {link}: 25 GB/s\n")).collect();
        let none = "NVML: Unable to retrieve NVLink information as all links are inActive\n";
        let lines = if *up == 0 { none } else { &lines };
        format!("GPU {gpu}: NVIDIA {product} (UUID: GPU-1f2e3d4c-0000-0000-0000-00000000000{gpu})\n{lines}")
    };
    up.iter().enumerate().map(of_gpu).collect()
}

fn labelled(host: &str, text: &str) -> String {
    text.lines().map(|line| format!("{host}: {line}\n")).collect()
}

fn at_prompt(host: &str, text: &str) -> String {
    format!("jane@{host}:~$ ibstat\n{text}")
}

fn rdma_link(down: Option<usize>) -> String {
    let row = |port: usize| {
        let state = if down == Some(port) { "DOWN physical_state POLLING" } else { "ACTIVE physical_state LINK_UP" };
        format!("link mlx5_{port}/1 subnet_prefix fe80:0000:0000:0000 lid {port} sm_lid 1 lmc 0 state {state} \n")
    };
    (0..4).map(row).collect()
}

/// A table of two hosts, of which nothing but their names matters here.
const TABLE: &str = "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0\n\
    #\n# Using devices\n\
    #  Rank  0 Group  0 Pid  31200 on     node01 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3\n\
    #  Rank  1 Group  0 Pid  31201 on     node02 device  0 [0000:1b:00] NVIDIA H100 80GB HBM3\n#\n";

#[test]
fn a_port_is_judged_with_its_card_and_a_gpu_with_its_board() {
    use Code::{IbTransportError, NicRate, NvlinkFabric, VersionMismatch};
    let one_down = alone(&[(7, UP), (1, POLLING)]);
    let ib = Some(IbTransportError);
    let inputs: [(&str, String, Option<Code>); 29] = [
        (
            "second ports of cards without a cable",
            ibstat(&in_pairs(&[(1, UP), (1, POLLING), (1, UP), (1, POLLING)])),
            None,
        ),
        ("equal cards use their second port", ibstat(&in_pairs(&[(3, UP), (1, POLLING)])), ib),
        ("cards of one port, half of them down", ibstat(&alone(&[(4, UP), (4, POLLING)])), ib),
        ("one of eight cards", ibstat(&one_down), ib),
        ("a machine without any port", ibstat(&alone(&[(2, POLLING)])), ib),
        ("two of three with a cable", ibstat(&alone(&[(2, ROCE), (1, UNPLUGGED)])), None),
        ("three of four cards of one port", ibstat(&alone(&[(3, ROCE), (1, UNPLUGGED)])), ib),
        ("one of eight without a cable", ibstat(&alone(&[(7, ROCE), (1, UNPLUGGED)])), ib),
        (
            "a storage card's second port",
            netdevs(&[("ens1np0", true), ("ens2np0", true), ("ens8f0np0", true), ("ens8f1np1", false)]),
            None,
        ),
        (
            "of two storage cards one uses both",
            netdevs(&[("ens8f0np0", true), ("ens8f1np1", true), ("ens9f0np0", true), ("ens9f1np1", false)]),
            ib,
        ),
        ("one of three cards", netdevs(&[("ens1np0", true), ("ens2np0", true), ("ens3np0", false)]), ib),
        (
            "a free port on the mainboard",
            netdevs(&[("ens1np0", true), ("ens2np0", true), ("eno1np0", true), ("eno2np1", false)]),
            None,
        ),
        (
            "one of four on the mainboard",
            netdevs(&[("eno1", true), ("eno2", true), ("eno3", true), ("eno4", false)]),
            ib,
        ),
        ("two storage ports of RoCE", ibstat(&alone(&[(8, ROCE), (2, STORAGE)])), None),
        (
            "one slow port of RoCE",
            ibstat(&alone(&[(7, ROCE), (1, (0, "Active", "LinkUp", 200, "Ethernet", "28.39.1002"))])),
            Some(NicRate),
        ),
        (
            "one slow port of InfiniBand",
            ibstat(&alone(&[(7, UP), (1, (0, "Active", "LinkUp", 200, "InfiniBand", "28.39.1002"))])),
            Some(NicRate),
        ),
        (
            "one of eight with older firmware",
            ibstat(&alone(&[(7, UP), (1, (0, "Active", "LinkUp", 400, "InfiniBand", "28.38.1002"))])),
            Some(VersionMismatch),
        ),
        ("a login node", format!("{TABLE}{}", at_prompt("login01", &ibstat(&one_down))), None),
        ("a node that ran", format!("{TABLE}{}", at_prompt("node02", &ibstat(&one_down))), ib),
        ("behind pdsh's label", labelled("node02", &ibstat(&one_down)), ib),
        ("all up behind pdsh's label", labelled("node02", &ibstat(&alone(&[(8, UP)]))), None),
        ("rdma link of InfiniBand", rdma_link(Some(2)), ib),
        ("rdma link, all up", rdma_link(None), None),
        ("a display card beside a board of four", topology(5, &[3], 4), None),
        ("one of a board of four", topology(4, &[3], 4), Some(NvlinkFabric)),
        ("two of a board of eight", topology(8, &[3, 4], 18), Some(NvlinkFabric)),
        ("a whole board", topology(8, &[], 18), None),
        ("cards without a bridge beside a pair", links("A100 80GB PCIe", &[12, 12, 0, 0]), None),
        ("a GPU of a board without links", links("A100-SXM4-80GB", &[12, 12, 0, 12]), Some(NvlinkFabric)),
    ];
    for (name, text, wanted) in inputs {
        let run = read_bytes(&[("run.log", text.as_bytes())]).unwrap_or_else(|error| panic!("{name}: {error}"));
        let loud = diagnose(&run).findings.into_iter().filter(|finding| finding.severity > Severity::Info);
        let codes: Vec<Code> = loud.map(|finding| finding.code).collect();
        assert_eq!(codes.first().copied(), wanted, "{name}: {codes:?}\n{text}");
    }
}

/// What `ib_write_bw -a` prints of the first device: sizes by powers of two from 4 KiB on, each with its Gbit/s.
fn ib_write_bw(gbit_s: &[f64]) -> String {
    let row = |(power, rate): (u32, &f64)| format!(" {}  5000  {rate:.2}  {rate:.2}  0.1\n", 4096u64 << power);
    let rows: String = (0..).zip(gbit_s).map(row).collect();
    format!(
        "                    RDMA_Write BW Test\n Dual-port       : OFF\t\tDevice         : mlx5_0\n Number of qps   : 1\t\tTransport type : IB\n \
         Link type       : IB\n #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n{rows}"
    )
}

#[test]
fn a_port_is_judged_by_its_plateau_and_by_the_slowest_of_equal_tests() {
    let flat = [396.0; 12];
    let mut fall = flat;
    fall[9..].fill(79.0);
    let mut noisy = flat;
    noisy[10] = 300.0;
    let cases: [(&str, &[&[f64]], bool); 6] = [
        ("flat", &[&flat], false),
        ("the largest are slow", &[&fall], true),
        ("one of the largest is noisy", &[&noisy], false),
        ("all are slow", &[&[190.0; 12]], true),
        ("a second test is slow", &[&flat, &[96.0; 12]], true),
        ("small ones alone", &[&flat[..4]], false),
    ];
    for (what, tests, is_slow) in cases {
        let text = ibstat(&alone(&[(1, UP)])) + &tests.iter().map(|rates| ib_write_bw(rates)).collect::<String>();
        let answer = diagnose(&read_bytes(&[("host.txt", text.as_bytes())]).unwrap());
        let slow = answer.findings.iter().any(|finding| finding.severity >= Severity::Warning);
        assert_eq!(slow, is_slow, "{what}: {:?} {}", answer.verdict, answer.summary);
    }
}
