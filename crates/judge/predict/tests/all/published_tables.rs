//! Every published measurement parses, and is understood as a reader would.

use busbw_model::PathType;
use busbw_predict::cluster::{self, GpuLinks, NetTransport, Wiring};
use busbw_predict::{Cluster, Options, Traffic, simulate};
use std::collections::BTreeMap;

fn tables() -> BTreeMap<String, Cluster> {
    crate::described("tests/data/tables")
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

fn understood(cluster: &Cluster) -> String {
    format!("{}, {}", links(cluster), network(cluster))
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
    let said = |(name, cluster): (String, Cluster)| format!("{name}: {}\n", understood(&cluster));
    assert_eq!(tables().into_iter().map(said).collect::<String>(), include_str!("../descriptions/understood.txt"));
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

/// Texts of the same kind, as other people write them.
#[test]
fn other_words_for_the_same() {
    let cases: BTreeMap<String, Vec<[String; 5]>> = toml::from_str(include_str!("../descriptions/words.toml")).unwrap();
    for [gpu, intra, gpus, rest, expected] in &cases["case"] {
        let nodes = if rest.contains("nodes") { "" } else { "nodes = 1\n" };
        let text = format!("{nodes}gpus_per_node = {gpus}\ngpu = \"{gpu}\"\nintra = \"{intra}\"\n{rest}\n");
        let said = cluster::parse(&text).map_or_else(|error| error.to_string(), |cluster| understood(&cluster));
        assert_eq!(said, *expected, "{text}");
    }
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
