//! Each area as a table: what a node is, and the line that it must get.

use super::check;
use busbw_model::node::*;
use busbw_model::{Checked, NodeFacts, PcieLink};

/// A change of a healthy node.
type Edit = fn(&mut NodeFacts);

/// Two GPUs with NVLink and an HCA on one NUMA node, all as it should be.
fn healthy() -> NodeFacts {
    let link = Some(PcieLink { speed_gts: 32.0, width: 16, downgraded: false });
    let pci = |address: &str| PciFunction {
        address: address.into(),
        link,
        most: link,
        slot: Some(PcieSlot { address: "0000:01:00.0".into(), most: link }),
        numa_node: Some(0),
        iommu: Some("identity".into()),
    };
    let gpu = |index| GpuDevice {
        index,
        name: "NVIDIA H100 80GB HBM3".into(),
        pci: pci("0000:0f:00.0"),
        persistence: Some(true),
        ecc: Some(Ecc {
            enabled: true,
            uncorrected: Some(0),
            corrected: Some(3),
            remapping_failed: Some(false),
            pending: Some(false),
        }),
        nvlinks: (0..18).map(|link| NvLinkState { link, active: true, rate_gbs: Some(26.5) }).collect(),
        fabric: Some(GpuFabric { state: "completed".into(), succeeded: true }),
        mig: Some(false),
        ..GpuDevice::default()
    };
    let peer = |from, to| PeerAccess { from, to, status: "OK".into() };
    let library = |version: &str, cuda: &str| Library {
        path: "/usr/lib/libnccl.so.2".into(),
        version: Some(version.into()),
        cuda: Some(cuda.into()),
    };
    let bound = LinuxLimit { soft: Bound::Unlimited, hard: Bound::Unlimited };
    NodeFacts {
        host: "a".into(),
        kernel: Some("6.8.0".into()),
        gpu: GpuFacts {
            nvml: Known::Known("12.550".into()),
            driver: Some("550.54.15".into()),
            open_module: Some(true),
            cuda_driver: Some("12.4".into()),
            devices: vec![gpu(0), gpu(1)],
            peers: vec![peer(0, 1), peer(1, 0)],
            on_the_bus: Some(2),
        },
        xids: Known::Known(Vec::new()),
        fabric_manager: Some("running".into()),
        nccl: vec![library("2.20.5", "12.4")],
        rdma: vec![RdmaDevice {
            name: "mlx5_0".into(),
            pci: Some(pci("0000:0c:00.0")),
            ports: vec![RdmaPort {
                port: 1,
                state: "ACTIVE".into(),
                rate_gbps: Some(400.0),
                link_layer: Some(busbw_model::LinkLayer::InfiniBand),
                active_mtu: Some(4096),
                ..RdmaPort::default()
            }],
            ..RdmaDevice::default()
        }],
        interfaces: vec![NetInterface {
            name: "eth0".into(),
            state: "up".into(),
            mtu: Some(9000),
            speed_mbps: Some(100_000),
            rx_queues: 8,
            ..NetInterface::default()
        }],
        bridges: vec![Bridge {
            address: "0000:01:00.0".into(),
            acs_redirects: Known::Known(false),
            above: vec!["GPU 0".into(), "mlx5_0".into()],
        }],
        modules: Known::Known(Vec::new()),
        limits: Known::Known(Limits { locked_memory: bound, may_lock_all: false, open_files: bound, processes: bound }),
        shared_memory: Known::Known(SharedMemory { size_bytes: 1 << 34, free_bytes: 1 << 34 }),
        programs: vec![Program {
            name: "mpirun".into(),
            path: Some("/usr/bin/mpirun".into()),
            version: Some("mpirun (Open MPI) 4.1.6".into()),
        }],
        clock: Known::Known(Clock { synchronised: true, error_us: 900, together_us: None }),
        governors: [("performance".to_owned(), 112)].into(),
        ..NodeFacts::default()
    }
}

fn edited(edits: &[Edit]) -> NodeFacts {
    let mut node = healthy();
    edits.iter().for_each(|edit| edit(&mut node));
    node
}

/// Lines that are not well, as `result item: detail`.
fn troubles(checked: &Checked) -> Vec<String> {
    let told = checked.items.iter().filter(|item| item.outcome.remedy().is_some());
    told.map(|item| format!("{} {}: {}", item.outcome.as_str(), item.item, item.detail)).collect()
}

#[test]
fn a_healthy_node_has_no_trouble() {
    let checked = check(&[healthy()], &Hello::default());
    assert_eq!(troubles(&checked), Vec::<String>::new());
    assert!(!checked.failed() && checked.odd_ones.is_empty());
}

#[test]
fn each_fault_is_one_line() {
    let cases: [(Edit, &str); 40] = [
        (|n| n.gpu.devices[0].slowdowns = Some(vec!["HW Thermal Slowdown".into()]), "warn clocks: HW Thermal Slowdown"),
        (
            |n| n.gpu.devices[0].ecc = Some(Ecc { enabled: true, pending: Some(true), ..Ecc::default() }),
            "warn ECC: memory waits to be replaced: GPU 0",
        ),
        (|n| n.gpu.devices[1].link_errors = Some(3), "warn NVLink errors: GPU 1"),
        (|n| roce(n, Some("dscp"), &[]), "warn QoS: trust dscp, PFC off"),
        (|n| roce(n, Some("pcp"), &[3]), "warn QoS: trust pcp, PFC on priorities 3"),
        (|n| n.gpu.on_the_bus = Some(3), "fail GPUs: 2 of the 3 on PCIe, driver 550.54.15"),
        (|n| n.gpu.devices[1].persistence = Some(false), "warn persistence: off: GPU 1"),
        (
            |n| n.gpu.devices[0].ecc = Some(Ecc { enabled: true, uncorrected: Some(2), ..Ecc::default() }),
            "fail ECC: memory errors: GPU 0",
        ),
        (
            |n| n.gpu.devices[0].ecc = Some(Ecc { enabled: true, remapping_failed: Some(true), ..Ecc::default() }),
            "fail ECC: memory errors: GPU 0",
        ),
        (|n| n.gpu.devices[1].ecc = Some(Ecc::default()), "warn ECC: off: GPU 1"),
        (|n| n.gpu.devices[1].nvlinks[4].active = false, "fail NVLink: links up: GPU 1: 17 of 18"),
        (
            |n| n.gpu.devices[0].fabric = Some(GpuFabric { state: "in progress".into(), succeeded: false }),
            "fail NVLink fabric: not joined: GPU 0",
        ),
        (|n| n.fabric_manager = Some("not running".into()), "fail fabric manager: not running"),
        (|n| n.gpu.devices[1].mig = Some(true), "warn MIG: on: GPU 1"),
        (|n| n.gpu.peers[1].status = "CNS".into(), "warn P2P: 1→0 CNS"),
        (|n| n.xids = Known::Known(vec![xid(31)]), "warn Xid: 31 at 0000:0f:00"),
        (|n| n.xids = Known::Known(vec![xid(31), xid(48)]), "fail Xid: 48 at 0000:0f:00"),
        (
            |n| n.nccl[0].cuda = Some("13.0".into()),
            "fail NCCL and driver: built for CUDA 13.0, the driver runs 12.4 (/usr/lib/libnccl.so.2)",
        ),
        (
            |n| n.cuda.push(Library { path: "/usr/local/cuda".into(), version: Some("13.0.1".into()), cuda: None }),
            "warn CUDA toolkit: 13.0.1 in /usr/local/cuda",
        ),
        (
            |n| {
                n.gpu.devices.iter_mut().flat_map(|gpu| &mut gpu.nvlinks).for_each(|link| link.active = false);
            },
            "fail NVLink: links up: GPU 0: 0 of 18, GPU 1: 0 of 18",
        ),
        (|n| n.gpu.open_module = Some(false), "fail GPUDirect RDMA: neither nvidia_peermem nor dma-buf"),
        (|n| n.kernel = Some("5.4.0-150-generic".into()), "fail GPUDirect RDMA: neither nvidia_peermem nor dma-buf"),
        (|n| n.rdma[0].ports[0].state = "INIT".into(), "fail port state: INIT, InfiniBand"),
        (|n| n.rdma[0].ports[0].active_mtu = Some(2048), "warn active MTU: 2048 of 4096"),
        (|n| width(n, 8), "fail link: 32 GT/s x8 at 0000:0c:00.0, 32 GT/s x16 is possible"),
        (|n| slot(n, 8), "fail link: 32 GT/s x8 at 0000:0c:00.0 is 31.5 GB/s, its ports need 50.0"),
        (
            |n| {
                slot(n, 8);
                n.rdma[0].ports[0].rate_gbps = Some(100.0);
            },
            "warn link: 32 GT/s x8 at 0000:0c:00.0, the card could do 32 GT/s x16",
        ),
        (
            |n| n.bridges[0].acs_redirects = Known::Known(true),
            "fail ACS: redirects at 0000:01:00.0 above GPU 0, mlx5_0",
        ),
        (|n| n.gpu.devices[0].pci.iommu = Some("DMA-FQ".into()), "warn IOMMU: translates for GPU 0"),
        (|n| n.gpu.devices[1].pci.numa_node = Some(1), "warn NUMA: no NIC on the node of GPU 1"),
        (|n| n.interfaces[0].rx_queues = 1, "warn queues: 1 to receive"),
        (
            |n| n.interfaces[0].rings = Some(Rings { rx: 256, rx_most: 8192, tx: 256, tx_most: 8192 }),
            "warn rings: 256 of 8192 to receive, 256 of 8192 to send",
        ),
        (
            |n| n.shared_memory = Known::Known(SharedMemory { size_bytes: 64 << 20, free_bytes: 64 << 20 }),
            "fail /dev/shm: 64 MiB, 64 MiB free",
        ),
        (
            |n| n.programs[0].version = Some("mpirun (Open MPI) 5.0.3".into()),
            "warn mpirun: mpirun (Open MPI) 5.0.3 (/usr/bin/mpirun)",
        ),
        (|n| n.programs[0].version = None, "warn mpirun: /usr/bin/mpirun does not tell its version"),
        (
            |n| drop(n.environment.insert("NCCL_SOCKET_IFNAME".into(), "ib".into())),
            "fail NCCL_SOCKET_IFNAME: ib: no such interface is up",
        ),
        (
            |n| drop(n.environment.insert("NCCL_SOCKET_IFNAME".into(), "^=docker0,eth0".into())),
            "fail NCCL_SOCKET_IFNAME: ^=docker0,eth0: leaves out every interface that is up",
        ),
        (
            |n| drop(n.environment.insert("UCX_TLS".into(), "tcp".into())),
            "warn variable: UCX_TLS=tcp: The variable keeps UCX, and with it Open MPI, on TCP sockets.",
        ),
        (
            |n| n.clock = Known::Known(Clock { synchronised: false, error_us: 0, together_us: None }),
            "warn clock: not synchronised",
        ),
        (|n| n.governors = [("powersave".to_owned(), 8)].into(), "warn governor: powersave on 8 cores"),
    ];
    for (edit, trouble) in cases {
        assert_eq!(troubles(&check(&[edited(&[edit])], &Hello::default())), [trouble]);
    }
}

/// What looks odd and is as it should be.
#[test]
fn what_is_sound_raises_no_alarm() {
    let cases: [(&str, Edit); 9] = [
        ("flow control on the class that DSCP chooses", |n| roce(n, Some("dscp"), &[3])),
        ("no flow control, and senders that are slowed down by marks", |n| {
            roce(n, Some("dscp"), &[]);
            n.interfaces[0].ecn_priorities = Some(vec![3]);
        }),
        ("GPUs on PCIe cards without a bridge have links, all of them down", |n| {
            n.fabric_manager = None;
            n.gpu.devices.iter_mut().flat_map(|gpu| &mut gpu.nvlinks).for_each(|link| link.active = false);
        }),
        ("a container does not see the host's fabric manager", |n| n.fabric_manager = Some("hidden".into())),
        ("EFA needs no peer memory module", |n| {
            n.gpu.open_module = Some(false);
            n.rdma[0].driver = Some("efa".into());
        }),
        ("storage on Ethernet is slower than compute on InfiniBand, with cards of one type", |n| {
            let mut storage = n.rdma[0].clone();
            storage.name = "mlx5_1".into();
            storage.ports[0].rate_gbps = Some(200.0);
            storage.ports[0].link_layer = Some(busbw_model::LinkLayer::Ethernet);
            let gid = "0000:0000:0000:0000:0000:ffff:0a00:0001".into();
            storage.ports[0].gids = vec![Gid { index: 3, gid, kind: GidKind::RoceV2, interface: None }];
            n.rdma.push(storage);
        }),
        ("a container may lock memory beyond its limit", |n| {
            if let Known::Known(limits) = &mut n.limits {
                limits.locked_memory.soft = Bound::At(64 << 10);
                limits.may_lock_all = true;
            }
        }),
        ("what leaves out containers leaves the network in", |n| {
            drop(n.environment.insert("NCCL_SOCKET_IFNAME".into(), "^docker,lo".into()));
        }),
        ("a name of an interface that is up", |n| {
            drop(n.environment.insert("NCCL_SOCKET_IFNAME".into(), "=eth0:0,eth1".into()));
        }),
    ];
    for (what, edit) in cases {
        assert_eq!(troubles(&check(&[edited(&[edit])], &Hello::default())), Vec::<String>::new(), "{what}");
    }
}

/// A variable that is wrong is not called `ok` by another line.
#[test]
fn a_variable_is_judged_by_one_line() {
    let set: Edit = |n| {
        drop(n.environment.insert("NCCL_SOCKET_IFNAME".into(), "nope".into()));
        drop(n.environment.insert("NCCL_IB_HCA".into(), "nope".into()));
    };
    let checked = check(&[edited(&[set])], &Hello::default());
    let told: Vec<&str> =
        checked.items.iter().filter(|item| item.detail.contains("nope")).map(|item| item.outcome.as_str()).collect();
    assert_eq!(told, ["fail", "fail"]);
}

fn xid(code: u32) -> XidLine {
    XidLine { pci: "0000:0f:00".into(), code, text: String::new() }
}

/// The HCA is eth0's, with RoCE.
fn roce(node: &mut NodeFacts, trust: Option<&str>, pfc_priorities: &[u32]) {
    let gid = "0000:0000:0000:0000:0000:ffff:0a00:0001".into();
    let port = &mut node.rdma[0].ports[0];
    port.link_layer = Some(busbw_model::LinkLayer::Ethernet);
    port.gids = vec![Gid { index: 3, gid, kind: GidKind::RoceV2, interface: Some("eth0".into()) }];
    node.interfaces[0].trust = trust.map(str::to_string);
    node.interfaces[0].pfc_priorities = Some(pfc_priorities.to_vec());
}

/// The HCA's link has this width, though both ends could do more.
fn width(node: &mut NodeFacts, width: u32) {
    let link = node.rdma[0].pci.as_mut().and_then(|pci| pci.link.as_mut());
    link.expect("the healthy node has one").width = width;
}

/// The HCA is in a slot of this width.
fn slot(node: &mut NodeFacts, lanes: u32) {
    width(node, lanes);
    let slot = node.rdma[0].pci.as_mut().and_then(|pci| pci.slot.as_mut()).and_then(|slot| slot.most.as_mut());
    slot.expect("the healthy node has one").width = lanes;
}

/// GPUs lower the speed of their link while idle.
#[test]
fn an_idle_gpu_is_no_trouble() {
    let mut node = healthy();
    node.gpu.devices[0].pci.link = Some(PcieLink { speed_gts: 2.5, width: 16, downgraded: false });
    assert_eq!(troubles(&check(&[node], &Hello::default())), Vec::<String>::new());
}

#[test]
fn the_odd_one_is_named_with_the_value_of_the_majority() {
    let named = |host: &str, edits: &[Edit]| NodeFacts { host: host.into(), ..edited(edits) };
    let time = |node: &mut NodeFacts, together_us| {
        node.clock = Known::Known(Clock { synchronised: true, error_us: 0, together_us: Some(together_us) });
    };
    let odd: &[Edit] = &[
        |n| n.nccl[0].version = Some("2.18.3".into()),
        |n| n.interfaces[0].mtu = Some(1500),
        |n| drop(n.environment.insert("NCCL_ALGO".into(), "Ring".into())),
        |n| n.rdma[0].ports[0].rate_gbps = Some(200.0),
    ];
    let mut nodes = vec![named("a", &[]), named("b", odd), named("c", &[])];
    for (node, together_us) in nodes.iter_mut().zip([5_000_000, 5_100_000, 9_000_000]) {
        time(node, together_us);
    }
    let checked = check(&nodes, &Hello::default());
    let told: Vec<String> = checked
        .odd_ones
        .iter()
        .map(|odd| {
            let differ: Vec<String> = odd.differ.iter().map(|(host, value)| format!("{host} {value}")).collect();
            format!("{}: {} not {}", odd.item, differ.join(", "), odd.majority.as_deref().unwrap_or("?"))
        })
        .collect();
    assert_eq!(
        told,
        [
            "NCCL: b 2.18.3 not 2.20.5",
            "rate of mlx5_0/1: b 200 Gbit/s not 400 Gbit/s",
            "MTU of eth0: b 1500 not 9000",
            "NCCL_ALGO: b Ring not none",
            "time: c 3.9 s ahead not within a second of each other",
        ]
    );
    assert!(checked.failed());
    let down: Edit = |n| {
        let spare =
            NetInterface { name: "eth1".into(), state: "down".into(), mtu: Some(9000), ..NetInterface::default() };
        n.interfaces.push(spare);
    };
    let other: Edit = |n| {
        n.interfaces[1].mtu = Some(1500);
        n.rdma[0].ports[0].rate_gbps = Some(200.0);
        if let Known::Known(limits) = &mut n.limits {
            limits.open_files.hard = Bound::At(65536);
        }
    };
    let three = check(&[named("a", &[down]), named("b", &[down, other]), named("c", &[down])], &Hello::default());
    let codes: Vec<(&str, &str)> =
        three.odd_ones.iter().map(|odd| (odd.item.as_str(), odd.code.map_or("", |code| code.as_str()))).collect();
    assert_eq!(codes, [("rate of mlx5_0/1", "nic.rate"), ("nofile", "limits.files")]);
    let two = check(&[named("a", &[]), named("b", &[|n| n.kernel = Some("5.15.0".into())])], &Hello::default());
    assert_eq!((two.odd_ones[0].majority.as_deref(), two.odd_ones[0].differ.len()), (None, 2));
}
