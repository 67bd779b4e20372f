//! Every published measurement parses, and is understood as a reader would.

use busbw_model::PathType;
use busbw_predict::cluster::{self, GpuLinks, NetTransport, Wiring};
use busbw_predict::{Cluster, Options, Traffic, simulate};
use std::collections::BTreeMap;
use std::path::PathBuf;

fn tables() -> BTreeMap<String, Cluster> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tables");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let descriptions = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    let parsed = descriptions.map(|path| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let cluster = cluster::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        (name, cluster)
    });
    parsed.collect()
}

/// `switch 300`, `switch 450 nvls`, `mesh 150`, `pcie 24 p2p`, `single 12`.
fn links(cluster: &Cluster) -> String {
    match &cluster.links {
        GpuLinks::NvSwitch { per_gpu, nvls: true, .. } => format!("switch {} nvls", per_gpu.0),
        GpuLinks::NvSwitch { per_gpu, .. } => format!("switch {}", per_gpu.0),
        GpuLinks::NvLinkMesh { per_gpu } => format!("mesh {}", per_gpu.0),
        GpuLinks::Pcie { per_gpu, peer_to_peer: true } => format!("pcie {} p2p", per_gpu.0),
        GpuLinks::Pcie { per_gpu, .. } => format!("pcie {}", per_gpu.0),
        GpuLinks::Single { per_gpu } => format!("single {}", per_gpu.0),
    }
}

/// `8x200 InfiniBand gdr`.
fn network(cluster: &Cluster) -> String {
    cluster.nics.as_ref().map_or("none".to_string(), |nics| {
        let gdr = if nics.gpu_direct { " gdr" } else { "" };
        format!("{}x{} {:?}{gdr}", nics.count, nics.rate.gbit_per_s(), nics.transport)
    })
}

#[test]
fn all_parse() {
    let tables = tables();
    assert_eq!(tables.len(), 36);
    for (name, cluster) in &tables {
        assert!(!cluster.assumptions.is_empty(), "{name}");
        assert!(cluster.links.per_gpu().0 > 5.0, "{name}");
        assert!(cluster.collective.is_some(), "{name}");
    }
}

#[test]
fn each_is_understood() {
    let expected = [
        ("003-aws-p4de-2node-allreduce", "switch 300", "4x100 Efa gdr"),
        ("004-aws-p5-2node-allreduce-nccl2185", "switch 450 nvls", "32x100 Efa gdr"),
        ("008-aws-g4dn8xl-2node-allreduce-efa", "single 12", "1x50 Efa"),
        ("009-aws-g4dnmetal-2node-allreduce-efa", "single 12", "1x100 Efa"),
        ("010-azure-ndv4-2node-allreduce-ib", "switch 300", "8x200 InfiniBand gdr"),
        ("011-azure-ndv4-2node-allreduce-ipoib", "switch 300", "8x200 Tcp"),
        ("012-azure-nd40rsv2-v100-2node-allreduce", "mesh 150", "1x100 InfiniBand"),
        ("014-gcp-a3mega-2node-allgather", "switch 450 nvls", "8x200 Tcpxo gdr"),
        ("015-gcp-a3high-2node-allgather", "switch 450 nvls", "4x200 Tcpx gdr"),
        ("022-gcp-a4-b200-2node-allgather", "switch 900 nvls", "8x400 Roce gdr"),
        ("026-lambda-b200-2node-allreduce", "switch 900 nvls", "8x400 InfiniBand gdr"),
        ("029-coreweave-a100-4node-allreduce-sharp", "switch 300", "8x200 InfiniBand gdr"),
        ("031-coreweave-gb200-20rack-allreduce", "switch 900 nvls", "4x400 InfiniBand gdr"),
        ("032-cscs-gh200-2node-allreduce", "mesh 450", "4x200 Slingshot gdr"),
        ("033-cscs-gh200-2node-allreduce-nocxi", "mesh 450", "4x200 Tcp"),
        ("035-dgxa100-2node-allreduce", "switch 300", "8x200 InfiniBand gdr"),
        ("041-a100-1node-reducescatter", "switch 300", "none"),
        ("042-l40s-1gpu-2node-allreduce", "single 24", "1x400 Roce gdr"),
        ("043-l40s-2gpu-2node-allreduce-roce", "pcie 24 p2p", "2x400 Roce gdr"),
        ("048-moc-h100-4gpu-2node-sendrecv", "mesh 450", "1x400 Roce gdr"),
        ("050-2080ti-1node-allgather", "pcie 12", "none"),
        ("054-4090-2gpu-1node-allreduce-k8s", "pcie 24", "none"),
        ("055-4090-4gpu-1node-allreduce-k8s", "pcie 24", "none"),
        ("060-h100-1node-allreduce", "switch 450 nvls", "none"),
        ("065-h100-8node-allreduce-default", "switch 450 nvls", "8x400 InfiniBand gdr"),
        ("066-h100-8node-allreduce-tuned", "switch 450 nvls", "8x400 InfiniBand gdr"),
        ("069-h20-2node-alltoall-vm", "switch 450", "2x400 Roce gdr"),
        ("075-b200-1node-sendrecv", "switch 900 nvls", "none"),
        ("076-b200-2node-allreduce", "switch 900 nvls", "8x400 InfiniBand gdr"),
        ("077-b200-2node-reducescatter", "switch 900 nvls", "8x400 InfiniBand gdr"),
        ("078-b200-2node-alltoall", "switch 900 nvls", "8x400 InfiniBand gdr"),
        ("079-v100-1node-allreduce", "mesh 150", "none"),
        ("082-h800-4gpu-2node-allreduce-crossnic0", "switch 200", "4x400 Roce gdr"),
        ("S01-oci-h100-2node-allreduce", "switch 450 nvls", "16x200 Roce gdr"),
        ("S02-oci-b48-a100-2node-allreduce", "switch 300", "16x100 Roce gdr"),
        ("S04-coreweave-gb200-1rack-allreduce", "switch 900 nvls", "none"),
    ];
    let tables = tables();
    let understood: Vec<(&str, String, String)> =
        tables.iter().map(|(name, cluster)| (name.as_str(), links(cluster), network(cluster))).collect();
    let understood: Vec<(&str, &str, &str)> = understood.iter().map(|(a, b, c)| (*a, b.as_str(), c.as_str())).collect();
    assert_eq!(understood, expected);
}

#[test]
fn racks_are_nvlink_domains() {
    let tables = tables();
    let racks = &tables["031-coreweave-gb200-20rack-allreduce"];
    assert_eq!((racks.ranks(), racks.domains(), racks.domain_nics()), (1440, 20, 72));
    assert_eq!(tables["S04-coreweave-gb200-1rack-allreduce"].domains(), 1);
    assert_eq!(tables["082-h800-4gpu-2node-allreduce-crossnic0"].domains(), 2);
}

#[test]
fn variables_are_kept() {
    let tables = tables();
    let tuned = &tables["066-h100-8node-allreduce-tuned"].environment;
    assert_eq!((tuned["NCCL_MIN_CTAS"].as_str(), tuned["NCCL_IB_QPS_PER_CONNECTION"].as_str()), ("24", "2"));
    assert_eq!(tables["032-cscs-gh200-2node-allreduce"].environment["NCCL_NET"], "AWS Libfabric");
    assert_eq!(tables["029-coreweave-a100-4node-allreduce-sharp"].environment["NCCL_COLLNET_ENABLE"], "1");
    assert_eq!(tables["026-lambda-b200-2node-allreduce"].nccl, Some((2, 26)));
}

/// Texts of the same kind, as other people write them: gpu, intra, GPUs of a node, the rest of the description, what is
/// understood.
#[test]
fn other_words_for_the_same() {
    let none = "transport = \"none\"";
    let cases = [
        ("A100 PCIe 80GB", "pcie4, no NVLink", 4, none, "pcie 24 p2p", "none"),
        ("A100-PCIE-40GB", "NVLink bridge pairs", 2, none, "mesh 300", "none"),
        ("A100-PCIE-40GB", "NVLink bridges", 4, none, "pcie 24 p2p", "none"),
        ("A100 40GB (p4d.24xlarge)", "nvlink3 NVSwitch 600GB/s", 8, "nodes = 2", "switch 300", "4x100 Efa gdr"),
        ("A10G (g5.48xlarge)", "pcie4", 8, "nodes = 2\ntransport = \"tcp\"", "pcie 24", "1x100 Tcp"),
        ("A30", "pcie 4.0 x16, PIX, P2P", 2, none, "pcie 24 p2p", "none"),
        ("RTX 3090", "NVLink bridge 112.5GB/s", 2, none, "mesh 56.25", "none"),
        ("RTX 3090", "PCIe Gen4, P2P unsupported", 4, none, "pcie 24", "none"),
        ("RTX 5090", "pcie5 x16", 8, none, "pcie 48", "none"),
        ("RTX PRO 6000 Blackwell", "PCIe 5.0 x16 with PCIe switch, PIX", 4, none, "pcie 48 p2p", "none"),
        ("L40S (g6e.48xlarge)", "pcie", 8, "nodes = 2", "pcie 24", "4x100 Efa"),
        ("L4", "pcie4 x8", 2, none, "pcie 12 p2p", "none"),
        ("P100-SXM2", "nvlink1 hybrid cube mesh 160GB/s", 8, none, "mesh 80", "none"),
        ("V100-SXM3-32GB (DGX-2)", "nvlink2 NVSwitch 300GB/s", 16, none, "switch 150", "none"),
        ("V100 (p3.16xlarge)", "", 8, "nodes = 2", "mesh 150", "1x25 Tcp"),
        ("A800-SXM4-80GB", "nvlink3 NVSwitch 400GB/s (NV8)", 8, none, "switch 200", "none"),
        ("H800", "NVLink 200 GB/s per direction, NVSwitch", 8, none, "switch 200 nvls", "none"),
        ("H200", "all pairs NV18", 8, none, "switch 450 nvls", "none"),
        ("H200 141GB (p5en.48xlarge)", "nvlink4 NVSwitch", 8, "nodes = 4", "switch 450 nvls", "16x200 Efa gdr"),
        ("H100 SXM (4 GPUs)", "nvlink4 NV6 all-to-all", 4, none, "mesh 450", "none"),
        ("H100 NVL", "NVL bridge 600GB/s", 2, none, "mesh 300", "none"),
        ("H20", "NVLink 900 GB/s bidirectional, NVSwitch", 8, none, "switch 450 nvls", "none"),
        ("H100", "nvlink4 NVSwitch, NVLS disabled", 8, none, "switch 450", "none"),
        ("H100", "nvlink4 NVSwitch", 8, "algo_env = \"NCCL_NVLS_ENABLE=0\"", "switch 450", "none"),
        ("H100", "nvlink4 NVSwitch", 8, "nccl = \"2.16.2\"", "switch 450", "none"),
        ("GH200 (Isambard-AI)", "", 4, "nodes = 2", "mesh 450", "4x200 Slingshot gdr"),
        (
            "GH200",
            "1 superchip a node",
            1,
            "nodes = 2\ntransport = \"ib\"\nnic_gbps = 400\nnics_per_node = 1",
            "single 450",
            "1x400 InfiniBand gdr",
        ),
        ("GB300 NVL72", "nvlink5 NVL72 1800GB/s", 4, "nodes = 18", "switch 900 nvls", "none"),
        ("B300 (HGX)", "nvlink5 NVSwitch 1.8TB/s", 8, none, "switch 900 nvls", "none"),
        ("B200 (BM.GPU.B200.8)", "nvlink5 NVSwitch 1800GB/s", 8, "nodes = 2", "switch 900 nvls", "8x400 Roce gdr"),
        ("A100 (Perlmutter)", "nvlink3 NV4 all-to-all", 4, "nodes = 2", "mesh 300", "4x200 Slingshot gdr"),
        (
            "A100 (Perlmutter)",
            "nvlink3, 4 GPUs",
            4,
            "nodes = 2\ntransport = \"other\"\nfabric = \"Slingshot 11\"\nalgo_env = \"NCCL_NET_GDR_LEVEL=PXB\"",
            "mesh 300",
            "4x200 Slingshot",
        ),
        (
            "H100 (A3 Mega)",
            "nvlink4 NVSwitch 900GB/s",
            8,
            "nodes = 2\ntransport = \"tcp\"\nalgo_env = \"FasTrak plugin\"",
            "switch 450 nvls",
            "8x200 Tcpxo gdr",
        ),
        (
            "H100",
            "nvlink4 NVSwitch",
            8,
            "nodes = 2\ntransport = \"ib\"\nalgo_env = \"NCCL_NET_GDR_LEVEL=LOC\"",
            "switch 450 nvls",
            "8x400 InfiniBand",
        ),
        ("H100 (GCP A3 Mega)", "nvlink4", 8, "nodes = 2\ntransport = \"tcp\"", "switch 450 nvls", "8x200 Tcpxo gdr"),
        (
            "H100 (GCP A3 Mega)",
            "nvlink4",
            8,
            "nodes = 2\ntransport = \"tcp\"\nfabric = \"plain sockets\"",
            "switch 450 nvls",
            "8x200 Tcp",
        ),
        ("B200 NVL8", "nvlink5", 8, "nodes = 2\ntransport = \"ib\"", "switch 900 nvls", "8x400 InfiniBand gdr"),
        ("H100", "NVSwitch, 3.6TB/s bisection", 8, none, "switch 450 nvls", "none"),
        ("4x RTX 4090", "PCIe 4.0 x16 without NVLink or P2P", 4, none, "pcie 24", "none"),
        ("A100", "nvlink3 NVSwitch", 8, "algo_env = \"NCCL_P2P_DISABLE=1\"", "pcie 24", "none"),
        ("A10", "pcie4, PIX", 4, "algo_env = \"NCCL_P2P_DISABLE=1\"", "pcie 24", "none"),
    ];
    let mut wrong = Vec::new();
    for (gpu, intra, gpus, rest, expected_links, expected_network) in cases {
        let nodes = if rest.contains("nodes") { "" } else { "nodes = 1\n" };
        let text = format!("{nodes}gpus_per_node = {gpus}\ngpu = \"{gpu}\"\nintra = \"{intra}\"\n{rest}\n");
        let said = cluster::parse(&text)
            .map_or_else(|error| error.to_string(), |cluster| format!("{}, {}", links(&cluster), network(&cluster)));
        if said != format!("{expected_links}, {expected_network}") {
            wrong.push(format!("{text}  expected {expected_links}, {expected_network}\n  said     {said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn flows_over_tcp_on_aws_are_limited() {
    let text = "nodes = 2\ngpus_per_node = 1\ngpu = \"T4 (g4dn.8xlarge)\"\ntransport = \"tcp\"\n";
    let cluster = cluster::parse(text).unwrap();
    let nics = cluster.nics.as_ref().unwrap();
    assert_eq!((nics.transport, nics.flow_limit.map(|limit| limit.gbit_per_s())), (NetTransport::Tcp, Some(5.0)));
    // NCCL opens 16 sockets per connection there, which fill the NIC of 50 Gbit/s all the same.
    let busbw = |cluster: &Cluster| {
        let traffic = Traffic::of_cluster(cluster).unwrap();
        simulate(cluster, &traffic, &Options::default()).unwrap().busbw.p50.gbit_per_s()
    };
    assert!((busbw(&cluster) - 0.94 * 50.0).abs() < 1e-9);
    let text = format!("{text}algo_env = \"NCCL_SOCKET_NTHREADS=1 NCCL_NSOCKS_PERTHREAD=1\"\n");
    // Two channels of a socket each.
    assert!((busbw(&cluster::parse(&text).unwrap()) - 10.0).abs() < 1e-9);
}

#[test]
fn a_fabric_text_is_read() {
    let parse = |fabric: &str| {
        let text =
            format!("nodes = 4\ngpus_per_node = 8\ngpu = \"H100\"\ntransport = \"roce\"\nfabric = \"{fabric}\"\n");
        cluster::parse(&text).unwrap()
    };
    assert!(matches!(parse("rail-optimized, NDR").fabric.wiring, Wiring::RailOptimised { nodes_per_group: 4, .. }));
    assert_eq!(parse("two-tier Clos").fabric.wiring, Wiring::SingleSwitch);
    assert_eq!(parse("GPU-NIC path NODE").nics.unwrap().place, PathType::Node);
}
