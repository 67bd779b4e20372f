//! Clusters derived from real logs, tables and topologies.

use busbw_model::Run;
use busbw_predict::cluster::{Cluster, GpuLinks, NetTransport, Underivable, derive};
use std::path::PathBuf;

fn read(files: &[&str]) -> Run {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
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

fn check(cases: &[(&str, &str)]) {
    let mut wrong = Vec::new();
    for (file, expected) in cases {
        let said = summary(&derive(&read(&[file])));
        if said != *expected {
            wrong.push(format!("{file}\n  expected {expected}\n  said     {said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn from_topologies() {
    check(&[
        ("crates/ingest/tests/data/nccl_xml/aws-g5.48xl-topo.xml", "Size"),
        (
            "crates/ingest/tests/data/nccl_xml/aws-p4d-24xl-topo.xml",
            "1x8 A100, switch of 8 300, 4 x 100 Gbit/s Efa PIX gdr",
        ),
        (
            "crates/ingest/tests/data/nccl_xml/aws-p4de-24xl-topo.xml",
            "1x8 A100, switch of 8 300, 4 x 100 Gbit/s Efa PIX gdr",
        ),
        (
            "crates/ingest/tests/data/nccl_xml/aws-p5.48xl-topo.xml",
            "1x8 H100, switch of 8 450 nvls, 32 x 100 Gbit/s Efa PIX gdr",
        ),
        ("crates/ingest/tests/data/nccl_xml/azure-nc48v4-topo.xml", "1x2 A100, mesh 300, 1 x 100 Gbit/s Tcp PHB"),
        ("crates/ingest/tests/data/nccl_xml/azure-ncv4-graph.xml", "Size"),
        ("crates/ingest/tests/data/nccl_xml/azure-ncv4-topo.xml", "1x4 A100 PCIe, pcie 24, 1 x 100 Gbit/s Tcp PHB"),
        ("crates/ingest/tests/data/nccl_xml/azure-ndv2-topo.xml", "1x8 V100, mesh 150, 1 x 100 Gbit/s InfiniBand PHB"),
        (
            "crates/ingest/tests/data/nccl_xml/azure-ndv4-topo.xml",
            "1x8 A100, switch of 8 300, 8 x 200 Gbit/s InfiniBand PIX gdr",
        ),
        (
            "crates/ingest/tests/data/nccl_xml/azure-ndv5-topo.xml",
            "1x8 H100, switch of 8 450 nvls, 8 x 400 Gbit/s InfiniBand PIX gdr",
        ),
        (
            "crates/ingest/tests/data/nccl_xml/oci-b4-topo-flattened.xml",
            "1x8 A100, switch of 8 300, 8 x 200 Gbit/s InfiniBand PIX gdr",
        ),
        (
            "crates/ingest/tests/data/nccl_xml/oci-h100-topology-kubernetes.xml",
            "1x8 H100, switch of 8 450 nvls, 16 x 200 Gbit/s InfiniBand PXB gdr",
        ),
        (
            "crates/ingest/tests/data/nccl_xml/oci-h100-topology.xml",
            "1x8 H100, switch of 8 450 nvls, 16 x 180 Gbit/s InfiniBand PXB gdr",
        ),
        (
            "crates/ingest/tests/data/nccl_xml/oci-topo-flattened.xml",
            "1x8 A100, switch of 8 300, 8 x 200 Gbit/s InfiniBand PIX gdr",
        ),
        ("crates/ingest/tests/data/smi_topo/2080ti-x2-pix-smi-topo.txt", "1x2 RTX 2080 Ti, pcie 12, no network"),
        (
            "crates/ingest/tests/data/smi_topo/alcf-polaris-topo.txt",
            "1x4 A100, mesh 300, 2 x 200 Gbit/s Slingshot PHB gdr",
        ),
        ("crates/ingest/tests/data/smi_topo/aws-g5.48xlarge-smi-topo.txt", "1x8 A10, pcie 24, no network"),
        ("crates/ingest/tests/data/smi_topo/aws-p3.16xlarge-smi-topo.txt", "1x8 V100, mesh 150, no network"),
        ("crates/ingest/tests/data/smi_topo/aws-p4d.24xlarge-smi-topo.txt", "1x8 A100, switch of 8 300, no network"),
        ("crates/ingest/tests/data/smi_topo/aws-p4de.24xlarge-smi-topo.txt", "1x8 A100, switch of 8 300, no network"),
        (
            "crates/ingest/tests/data/smi_topo/aws-p5.48xlarge-smi-topo.txt",
            "1x8 H100, switch of 8 450 nvls, no network",
        ),
        (
            "crates/ingest/tests/data/smi_topo/azure-gb300-smi-topo.txt",
            "1x4 GB300, switch of 72 900 nvls, 4 x 800 Gbit/s InfiniBand NODE gdr",
        ),
        ("crates/ingest/tests/data/smi_topo/case-043-ll128-forced-a100-nv4.txt", "1x4 A100, mesh 300, no network"),
        (
            "crates/ingest/tests/data/smi_topo/case-051-gdr-off-v100-two-nic.txt",
            "1x8 V100, mesh 150, 2 x 100 Gbit/s InfiniBand PIX gdr",
        ),
        ("crates/ingest/tests/data/smi_topo/case-053-p2p-hang-pix-pxb-vtd.txt", "Gpu"),
        ("crates/ingest/tests/data/smi_topo/case-086-nic-sys-distance-r7525.txt", "Gpu"),
        (
            "crates/ingest/tests/data/smi_topo/case-095-v100-two-edr-41gbs-two-nodes.txt",
            "1x4 V100, mesh 150, 2 x 100 Gbit/s InfiniBand PIX gdr",
        ),
        (
            "crates/ingest/tests/data/smi_topo/dell-r760xa-l40s-smi-topo.txt",
            "1x1 L40S, single 24, 10 x 200 Gbit/s InfiniBand NODE",
        ),
        (
            "crates/ingest/tests/data/smi_topo/gcp-a4-b200-smi-topo.txt",
            "1x8 B200, switch of 8 900 nvls, 8 x 400 Gbit/s Roce PIX gdr",
        ),
        (
            "crates/ingest/tests/data/smi_topo/h20-8nic-vm-smi-topo.txt",
            "1x8 H20, switch of 8 450 nvls, 8 x 400 Gbit/s InfiniBand PIX gdr",
        ),
        (
            "crates/ingest/tests/data/smi_topo/h200-4nic-baremetal-smi-topo.txt",
            "1x8 H200, switch of 8 450 nvls, 4 x 400 Gbit/s InfiniBand PIX gdr",
        ),
        (
            "crates/ingest/tests/data/smi_topo/oci-gb200-v3-smi-topo.txt",
            "1x4 GB200, switch of 72 900 nvls, 8 x 400 Gbit/s InfiniBand SYS gdr",
        ),
        ("crates/ingest/tests/data/smi_topo/v100-8gpu-smi-topo.txt", "1x8 V100, mesh 150, no network"),
    ]);
}

#[test]
fn from_the_recorded_runs() {
    check(&[
        (
            "tests/data/runs/h20-2x8-ib/run.log",
            "2x8 NVIDIA H20, switch of 8 450 nvls, 8 x 400 Gbit/s InfiniBand PIX gdr",
        ),
        (
            "tests/data/runs/h20-2x8-roce-cross-switch/run.log",
            "2x8 NVIDIA H20, switch of 8 450 nvls, 4 x 400 Gbit/s InfiniBand PIX gdr",
        ),
        (
            "tests/data/runs/h20-2x8-tcp/run.log",
            "2x8 NVIDIA H20, switch of 8 450 nvls, 8 x 400 Gbit/s InfiniBand PIX gdr",
        ),
    ]);
}

#[test]
fn from_logs() {
    check(&[
        ("tests/data/logs/002-nersc-cori-256-socket.log", "Gpu"),
        ("tests/data/logs/005-eks-p3dn-264-16rank-tfhorovod.log", "Gpu"),
        ("tests/data/logs/007-jeanzay-278-4rank-v100.log", "Gpu"),
        ("tests/data/logs/010-jeanzay-2103-16rank-v100.log", "Gpu"),
        ("tests/data/logs/011-jeanzay-2103-32rank-a100.log", "Gpu"),
        ("tests/data/logs/013-perlmutter-298-srun-warn.log", "Gpu"),
        ("tests/data/logs/014-perlmutter-283-srun-warn.log", "Size"),
        ("tests/data/logs/020-mlperf11-azure-2114-sharpwarn.log", "Size"),
        ("tests/data/logs/026-mlperf21-azure-n1-hugectr.log", "Gpu"),
        ("tests/data/logs/028-mlperf21-azure-nc96-2126azure3.log", "Size"),
        ("tests/data/logs/030-mlperf31-dell-xe8640-2185-bert.log", "Gpu"),
        ("tests/data/logs/031-mlperf31-dell-xe8640-2185-resnet.log", "Gpu"),
        ("tests/data/logs/035-mlperf50-oracle-8xh200-warnonly.log", "Size"),
        ("tests/data/logs/036-mlperf50-dell-xe9680-h200-cumem.log", "Gpu"),
        ("tests/data/logs/038-mlperf50-mango-mi300x-4node-rccl.log", "Size"),
        (
            "tests/data/logs/044-nebius-soperator-2193-16rank.log",
            "2x8 H100, switch of 8 450 nvls, 8 x 400 Gbit/s InfiniBand PIX gdr",
        ),
        ("tests/data/logs/046-bluerdma-2277-duplicate-gpu.log", "Gpu"),
        (
            "tests/data/logs/052-p5-2203-16rank-mpirun-tuner.log",
            "2x8 NVIDIA H100 80GB HBM3, switch of 8 450 nvls, 32 x 100 Gbit/s Efa PIX gdr",
        ),
        (
            "tests/data/logs/053-perlmutter-2234-ofi.log",
            "2x4 NVIDIA A100-SXM4-40GB, mesh 300, 4 x 200 Gbit/s Slingshot PIX gdr",
        ),
        (
            "tests/data/logs/056-perlmutter-2215-podman-mr-failure.log",
            "2x4 NVIDIA A100-SXM4-40GB, mesh 300, 4 x 200 Gbit/s Slingshot PIX gdr",
        ),
        ("tests/data/logs/058-sirius-2205-ofi-vae-timeout.log", "Gpu"),
        ("tests/data/logs/061-snellius-2223-2node.log", "2x4 NVIDIA H100, mesh 450, 4 x 400 Gbit/s InfiniBand PIX gdr"),
        (
            "tests/data/logs/069-oneflow-212-6tables-ctrlc.log",
            "4x8 NVIDIA GeForce RTX 3090, pcie 24, 8 x 200 Gbit/s InfiniBand NODE",
        ),
        ("tests/data/logs/075-megatron-2186-6gpu-3pp2tp.log", "Gpu"),
        ("tests/data/logs/077-dual8-2275-pdsh-ok.log", "Gpu"),
        (
            "tests/data/logs/081-rhelai-2262-roce-1gpu.log",
            "2x1 NVIDIA H100 80GB HBM3, single 48, 1 x 400 Gbit/s Roce NODE",
        ),
        ("tests/data/logs/090-cw-56tables.log", "1x2 NVIDIA A100-SXM4-80GB, switch of 2 300, no network"),
        ("tests/data/logs/091-n013-2165-1node-alltoall.log", "1x2 NVIDIA A100-PCIE-40GB, pcie 24 p2p, no network"),
        (
            "tests/data/logs/092-oneflow-4hosts-25tables.log",
            "4x8 NVIDIA GeForce RTX 3090, pcie 24, 8 x 200 Gbit/s InfiniBand NODE",
        ),
        (
            "tests/data/logs/096-rtx6000d-2183-9tables.log",
            "2x8 NVIDIA RTX 6000D, pcie 48 p2p, 8 x 400 Gbit/s InfiniBand NODE gdr",
        ),
        ("tests/data/logs/098-sagemaker-2171-ipynb.log", "2x8 A100, switch of 8 300, 4 x 100 Gbit/s Efa PIX gdr"),
        (
            "tests/data/logs/016-eks-p4d-283-16rank-md.md",
            "2x8 A100-SXM4-40GB, switch of 8 300, 4 x 100 Gbit/s Efa PIX gdr",
        ),
        ("tests/data/logs/084-eks-g5-2127-2rank-md.md", "2x1 Tesla T4, single 12, 1 x 50 Gbit/s Efa PHB"),
    ]);
}

#[test]
fn a_topology_says_what_a_table_leaves_open() {
    let run = "tests/data/runs/h20-2x8-ib/run.log";
    let matrix = "crates/ingest/tests/data/smi_topo/h200-4nic-baremetal-smi-topo.txt";
    assert_eq!(
        summary(&derive(&read(&[run, matrix]))),
        "2x8 NVIDIA H20, switch of 8 450 nvls, 4 x 400 Gbit/s InfiniBand PIX gdr"
    );
}

#[test]
fn what_is_assumed_is_said() {
    let cluster = derive(&read(&["tests/data/runs/h20-2x8-roce-cross-switch/run.log"])).unwrap();
    let expected = [
        "A host is taken to have 4 NICs, because its rings leave it from 4 GPUs.",
        "The GPUs of a host are taken to be joined by NVSwitches, as usual for H20.",
        "NVLink is taken to carry 450 GB/s per GPU and direction, as usual for H20.",
        "A host is taken to have 2 Intel processors, as usual for H20.",
        "The network is taken to be InfiniBand.",
        "A NIC is taken to carry 400 Gbit/s, as usual with such GPUs.",
        "The path between a NIC and its nearest GPU is taken to be PIX.",
        "GPUDirect RDMA is taken to be on: NICs read and write GPU memory.",
        "The fabric is taken to be without bottleneck, as if all NICs were on one switch.",
        "The log shows rings and no trees, so rings are taken to be forced (NCCL_ALGO=Ring).",
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
