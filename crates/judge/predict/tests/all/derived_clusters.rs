//! Clusters derived from real logs, tables and topologies.

use busbw_model::Run;
use busbw_predict::cluster::{self, Cluster, GpuLinks, NetTransport, Underivable, derive};
use std::path::PathBuf;

fn read(files: &[&str]) -> Run {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let texts: Vec<(&str, Vec<u8>)> =
        files.iter().map(|file| (*file, std::fs::read(root.join(file)).unwrap())).collect();
    let texts: Vec<(&str, &[u8])> = texts.iter().map(|(name, text)| (*name, text.as_slice())).collect();
    busbw_ingest::read_bytes(&texts).unwrap()
}

/// `2x8 A100, switch 300, 4 x 100 Gbit/s Efa PIX gdr`.
fn summary(result: &Result<Cluster, Underivable>) -> String {
    let cluster = match result {
        Err(error) => return format!("{error:?}"),
        Ok(cluster) => cluster,
    };
    let links = match &cluster.links {
        GpuLinks::NvSwitch { per_gpu, domain, nvls } => {
            let nvls = if *nvls { " nvls" } else { "" };
            format!("switch of {domain} {}{nvls}", per_gpu.0)
        }
        GpuLinks::NvLinkMesh { per_gpu } => format!("mesh {}", per_gpu.0),
        GpuLinks::Pcie { per_gpu, peer_to_peer: true } => format!("pcie {} p2p", per_gpu.0),
        GpuLinks::Pcie { per_gpu, .. } => format!("pcie {}", per_gpu.0),
        GpuLinks::Single { per_gpu } => format!("single {}", per_gpu.0),
    };
    let nics = cluster.nics.as_ref().map_or("no network".to_string(), |nics| {
        let gdr = if nics.gpu_direct { " gdr" } else { "" };
        format!("{} x {} Gbit/s {:?} {}{gdr}", nics.count, nics.rate.gbit_per_s(), nics.transport, nics.place)
    });
    format!("{}x{} {}, {links}, {nics}", cluster.nodes, cluster.gpus_per_node, cluster.gpu.name)
}

/// Topologies, recorded runs and logs, each with the cluster that is derived from it.
#[test]
fn a_file_tells_its_cluster() {
    let expected = include_str!("../descriptions/derived.txt");
    let said = expected.lines().filter_map(|line| line.split_once(": ")).map(|(file, _)| {
        let cluster = derive(&read(&[file]));
        format!("{file}: {}\n", summary(&cluster))
    });
    assert_eq!(said.collect::<String>(), expected);
}

#[test]
fn a_topology_says_what_a_table_leaves_open() {
    let run = "tests/data/runs/h20-2x8-ib/run.log";
    let matrix = "crates/read/ingest/tests/data/smi_topo/h200-4nic-baremetal-smi-topo.txt";
    assert_eq!(
        summary(&derive(&read(&[run, matrix]))),
        "2x8 NVIDIA H20, switch of 8 450 nvls, 4 x 400 Gbit/s InfiniBand PIX gdr"
    );
}

#[test]
fn what_is_assumed_is_said() {
    let cluster = derive(&read(&["tests/data/runs/h20-2x8-roce-cross-switch/run.log"])).unwrap();
    let expected = [
        "4 NICs per host, because its rings leave it from 4 GPUs.",
        "The GPUs of a host are connected by NVSwitches, usual for H20.",
        "NVLink of 450 GB/s per GPU and direction, usual for H20.",
        "2 Intel processors per host, usual for H20.",
        "Network: InfiniBand.",
        "NICs of 400 Gbit/s, usual with these GPUs.",
        "Path from a NIC to its nearest GPU: PIX.",
        "GPUDirect RDMA is on.",
        "No bottleneck in the fabric, as if all NICs were on one switch.",
        "NCCL_ALGO=Ring, because the log shows rings and no trees.",
    ];
    assert_eq!(cluster.assumptions, expected);
    assert_eq!(cluster.environment["NCCL_ALGO"], "Ring");
}

#[test]
fn variables_and_version_come_along() {
    let cluster = derive(&read(&["tests/data/logs/052-p5-2203-16rank-mpirun-tuner.log"])).unwrap();
    assert_eq!(cluster.nccl, Some((2, 20)));
    assert_eq!(cluster.environment["NCCL_BUFFSIZE"], "8388608");
    assert_eq!(cluster.nics.unwrap().transport, NetTransport::Efa);
}

fn of_log(name: &str) -> Cluster {
    let path = format!("{}/../../../tests/data/choices/{name}.log", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read(&path).unwrap();
    derive(&busbw_ingest::read_bytes(&[(name, &text)]).unwrap()).unwrap()
}

/// The topology file of this log is one that nobody knows.
#[test]
fn a_dump_of_the_machine_tells_the_gpus_and_ranks_their_processes() {
    let cluster = of_log("C09-nc48v4-1x2");
    assert_eq!((cluster.gpu.name.as_str(), cluster.cpu.vendor), ("A100 PCIe", cluster::CpuVendor::Amd));
    assert_eq!(cluster.gpus_per_process, Some(1));
    assert!(cluster.assumptions.iter().any(|said| said.contains("number of their PCI device")), "{cluster:#?}");
}

/// With slower NICs, NCCL would search anew.
#[test]
fn what_a_search_found_holds_for_its_own_machine_alone() {
    let cluster = of_log("C14-ndv5-4x4");
    let found = cluster::Graphs::of(&cluster).unwrap();
    assert_eq!((found.ring.channels, found.ring.intra, found.nvls.unwrap().channels), (8, 24.0, 4));
    let mut harmed = cluster.clone();
    harmed.nics.as_mut().unwrap().rate = busbw_model::GBps(25.0);
    assert_eq!(cluster::Graphs::of(&harmed), None);
    assert!(cluster::Graphs::of(&Cluster { nodes: 2, ..cluster.clone() }).is_some());
}
