//! Collects the facts of a node. What cannot be had is said with the reason; nothing here fails.

mod clock;
mod environment;
mod ethtool;
mod gpu;
mod interfaces;
mod kernel_log;
mod libraries;
mod nvml;
mod pci;
mod programs;
mod rdma;
mod system;
mod tuning_table;
mod verbs;

use crate::Root;
use busbw_model::node::{GpuFacts, Known, RdmaDevice};
use busbw_model::{LinkLayer, NodeFacts};

/// What `/sys/module` and `/proc/modules` are asked for: drivers of GPUs and of RDMA, and what joins the two.
const MODULES: [&str; 14] = [
    "nvidia",
    "nvidia_uvm",
    "nvidia_peermem",
    "nv_peer_mem",
    "gdrdrv",
    "ib_core",
    "ib_uverbs",
    "rdma_ucm",
    "mlx5_core",
    "mlx5_ib",
    "rdma_rxe",
    "irdma",
    "bnxt_re",
    "efa",
];

/// The facts of the node that a tree is of, named as it names itself.
pub fn node(root: &Root) -> NodeFacts {
    let host = root.value("/proc/sys/kernel/hostname").or_else(|| root.value("/etc/hostname"));
    let host = host.unwrap_or_else(|| "localhost".into());
    node_of(root, host.split('.').next().unwrap_or_default())
}

/// What is known of the settings that keep a RoCE port lossless, in words. Empty where nothing is, and on InfiniBand.
pub fn quality_of_service(root: &Root, device: &str, port: u32) -> Vec<String> {
    let port = rdma::port(root, device, port);
    if port.link_layer != Some(LinkLayer::Ethernet) {
        return Vec::new();
    }
    let interface = port.interface().map(|name| interfaces::interface(root, name.to_owned()));
    port.quality_of_service(interface.as_ref())
}

/// The facts of a node that others call `host`.
pub fn node_of(root: &Root, host: &str) -> NodeFacts {
    let gpu = gpu::collect(root);
    let interfaces = interfaces::collect(root);
    let rdma = rdma::collect(root, &interfaces);
    let bridges = pci::bridges(root, &devices(&gpu, &rdma));
    NodeFacts {
        host: host.to_owned(),
        kernel: root.value("/proc/sys/kernel/osrelease"),
        arch: root.is_live().then(|| std::env::consts::ARCH.to_owned()),
        xids: kernel_log::xids(root),
        fabric_manager: gpu::fabric_manager(root),
        nccl: libraries::nccl(root),
        cuda: libraries::cuda(root),
        modules: modules(root),
        limits: system::limits(root),
        shared_memory: system::shared_memory(root),
        huge_pages: system::huge_pages(root),
        programs: programs::collect(root),
        environment: environment::collect(root),
        tuning_table: tuning_table::collect(root),
        clock: clock::collect(root),
        governors: system::governors(root),
        gpu,
        interfaces,
        rdma,
        bridges,
        ..NodeFacts::default()
    }
}

/// GPUs and NICs by name, with their PCI address.
fn devices(gpu: &GpuFacts, rdma: &[RdmaDevice]) -> Vec<(String, String)> {
    let gpus = gpu.devices.iter().map(|gpu| (format!("GPU {}", gpu.index), gpu.pci.address.clone()));
    let nics = rdma.iter().filter_map(|nic| Some((nic.name.clone(), nic.pci.as_ref()?.address.clone())));
    gpus.chain(nics).collect()
}

fn modules(root: &Root) -> Known<Vec<String>> {
    let loaded = root
        .read("/proc/modules")
        .map(|text| text.lines().filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect::<Vec<_>>());
    let is_there = |name: &str| {
        root.exists(&format!("/sys/module/{name}"))
            || loaded.as_ref().is_ok_and(|l| l.iter().any(|other| other == name))
    };
    match &loaded {
        Err(error) if !root.exists("/sys/module") => Known::Unknown(format!("/proc/modules: {error}")),
        _ => Known::Known(MODULES.into_iter().filter(|name| is_there(name)).map(str::to_owned).collect()),
    }
}
