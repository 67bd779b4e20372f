//! Facts of every command, from output of the real ones.

use super::*;
use busbw_model::{Limit, LinkLayer, PcieLink, Place};
use proptest::prelude::*;

fn facts(text: &str) -> Vec<HostFact> {
    let mut reader = HostReader::default();
    for (i, text) in text.lines().enumerate() {
        reader.feed(&TextLine { place: Place { input: 0, line: i as u64 + 1 }, stream: "", text });
    }
    reader.finish()
}

fn told(text: &str) -> Vec<(String, Fact)> {
    facts(text).into_iter().map(|fact| (fact.device, fact.fact)).collect()
}

fn owned(facts: &[(&str, Fact)]) -> Vec<(String, Fact)> {
    facts.iter().map(|(device, fact)| (device.to_string(), fact.clone())).collect()
}

#[test]
fn ports_are_read_from_every_tool() {
    let text = "\
CA 'mlx5_0'
\tCA type: MT4129
\tFirmware version: 28.39.1002
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tLink layer: InfiniBand
hca_id:\tmlx5_bond_0
\tfw_ver:\t\t\t\t16.28.2006
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_DOWN (1)
\t\t\tmax_mtu:\t\t4096 (5)
\t\t\tactive_mtu:\t\t1024 (3)
\t\t\tactive_width:\t\t4X (2)
\t\t\tactive_speed:\t\t25.0 Gbps (32)
\t\t\tphys_state:\t\tLINK_UP (5)
\t\t\tGID[  3]:\t\t::ffff:10.0.0.1, RoCE v2
mlx5_2 port 1 ==> ens1f0np0 (Down)
link mlx5_3/1 state ACTIVE physical_state LINK_UP netdev ens5f0
mlx5_0  1       3       0000:0000:0000:0000:0000:ffff:0a00:0001 10.0.0.1        v2      ens1f0
mlx5_0  1       0       fe80:0000:0000:0000:ba59:9fff:fe0a:ee96                 v1      ens1f0
Settings for ens1f0:
\tSpeed: 100000Mb/s
\tLink detected: yes
2: ens1f0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP";
    let gid = |index, gid: &str, ipv4: Option<&str>, version, interface: Option<&str>| Fact::Gid {
        index,
        gid: gid.into(),
        ipv4: ipv4.map(str::to_string),
        roce_version: Some(version),
        interface: interface.map(str::to_string),
    };
    let interface = |name: &str, up| Fact::Interface { name: name.into(), up };
    let expected = [
        ("mlx5_0", Fact::Firmware("28.39.1002".into())),
        ("mlx5_0/1", Fact::PortState("Active".into())),
        ("mlx5_0/1", Fact::PhysicalState("LinkUp".into())),
        ("mlx5_0/1", Fact::RateGbps(400.0)),
        ("mlx5_0/1", Fact::LinkLayer(LinkLayer::InfiniBand)),
        ("mlx5_bond_0", Fact::Firmware("16.28.2006".into())),
        ("mlx5_bond_0/1", Fact::PortState("Down".into())),
        ("mlx5_bond_0/1", Fact::MaxMtu(4096)),
        ("mlx5_bond_0/1", Fact::ActiveMtu(1024)),
        ("mlx5_bond_0/1", Fact::RateGbps(100.0)),
        ("mlx5_bond_0/1", Fact::PhysicalState("LinkUp".into())),
        ("mlx5_bond_0/1", gid(3, "::ffff:10.0.0.1", Some("10.0.0.1"), 2, None)),
        ("mlx5_2/1", interface("ens1f0np0", false)),
        ("mlx5_3/1", Fact::PortState("Active".into())),
        ("mlx5_3/1", Fact::PhysicalState("LinkUp".into())),
        ("mlx5_3/1", interface("ens5f0", true)),
        ("mlx5_0/1", gid(3, "0000:0000:0000:0000:0000:ffff:0a00:0001", Some("10.0.0.1"), 2, Some("ens1f0"))),
        ("mlx5_0/1", gid(0, "fe80:0000:0000:0000:ba59:9fff:fe0a:ee96", None, 1, Some("ens1f0"))),
        ("ens1f0", Fact::RateGbps(100.0)),
        ("ens1f0", Fact::PhysicalState("LinkUp".into())),
        ("ens1f0", Fact::ActiveMtu(9000)),
    ];
    assert_eq!(told(text), owned(&expected));
}

#[test]
fn ibstatus_says_the_same() {
    let text = "Infiniband device 'mlx5_4' port 1 status:\n\tstate:\t\t 4: ACTIVE\n\tphys state:\t 5: LinkUp\n\trate:\t\t 200 Gb/sec (4X HDR)\n\tlink_layer:\t Ethernet";
    let expected = [
        ("mlx5_4/1", Fact::PortState("Active".into())),
        ("mlx5_4/1", Fact::PhysicalState("LinkUp".into())),
        ("mlx5_4/1", Fact::RateGbps(200.0)),
        ("mlx5_4/1", Fact::LinkLayer(LinkLayer::Ethernet)),
    ];
    assert_eq!(told(text), owned(&expected));
}

#[test]
fn pcie_links_and_redirection() {
    let text = "\
0000:17:00.0 Ethernet controller: Mellanox Technologies MT2892 Family [ConnectX-6 Dx]
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 8GT/s (downgraded), Width x8 (downgraded)
3b:00.0 PCI bridge: PLX Technology, Inc. PEX 8796
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-";
    let link = |speed_gts, width, downgraded| PcieLink { speed_gts, width, downgraded };
    let expected = [
        ("0000:17:00.0", Fact::PcieCapability(link(16.0, 16, false))),
        ("0000:17:00.0", Fact::PcieLink(link(8.0, 8, true))),
        ("3b:00.0", Fact::AcsRedirects(true)),
        ("3b:00.0", Fact::AcsRedirects(false)),
    ];
    assert_eq!(told(text), owned(&expected));
}

#[test]
fn gpus_their_driver_fabric_and_links() {
    let text = "\
| NVIDIA-SMI 535.104.05             Driver Version: 535.104.05   CUDA Version: 12.2     |
|   0  NVIDIA H100 80GB HBM3          On  | 00000000:18:00.0 Off |                    0 |
GPU 00000000:18:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Fabric
        State                             : In Progress
        Status                            : N/A
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-1)
\t Link 0: 25 GB/s
\t Link 1: <inactive>
 GPU0\tX\tOK\tCNS";
    let expected = [
        ("", Fact::Driver("535.104.05".into())),
        ("", Fact::CudaDriver("12.2".into())),
        ("GPU 0", Fact::GpuName("NVIDIA H100 80GB HBM3".into())),
        ("00000000:18:00.0", Fact::GpuName("NVIDIA H100 80GB HBM3".into())),
        ("00000000:18:00.0", Fact::FabricState("In Progress".into())),
        ("00000000:18:00.0", Fact::FabricStatus("N/A".into())),
        ("GPU 1", Fact::GpuName("NVIDIA A100-SXM4-80GB".into())),
        ("GPU 1", Fact::NvLink { link: 0, rate_gbs: Some(25.0) }),
        ("GPU 1", Fact::NvLink { link: 1, rate_gbs: None }),
        ("GPU0", Fact::PeerAccess { to: "GPU1".into(), status: "OK".into() }),
        ("GPU0", Fact::PeerAccess { to: "GPU2".into(), status: "CNS".into() }),
    ];
    assert_eq!(told(text), owned(&expected));
}

#[test]
fn limits_memory_modules_and_services() {
    let text = "\
max locked memory       (kbytes, -l) 64
open files                      (-n) 1024
Max locked memory         unlimited            unlimited            bytes
Max open files            4096                 65536                files
shm              64M     0   64M   0% /dev/shm
tmpfs      528237136     0 528237136   0% /dev/shm
nvidia_peermem         16384  0
lsmod: nvidia_peermem loaded
/sys/kernel/mm/memory_peers/nv_mem/version: No such file or directory
● nvidia-fabricmanager.service - NVIDIA fabric manager service
     Loaded: loaded (/lib/systemd/system/nvidia-fabricmanager.service; enabled)
     Active: failed (Result: exit-code) since Mon
Unit nvidia-fabricmanager.service could not be found.";
    let limit = |limit, soft| Fact::Limit { limit, soft };
    let service = |state: &str| Fact::Service { name: "nvidia-fabricmanager".into(), state: state.into() };
    let expected = [
        limit(Limit::LockedMemory, Some(65536)),
        limit(Limit::OpenFiles, Some(1024)),
        limit(Limit::LockedMemory, None),
        limit(Limit::OpenFiles, Some(4096)),
        Fact::SharedMemory { size: 64 << 20, free: Some(64 << 20) },
        Fact::SharedMemory { size: 528_237_136 << 10, free: Some(528_237_136 << 10) },
        Fact::ModuleLoaded("nvidia_peermem".into()),
        Fact::ModuleLoaded("nvidia_peermem".into()),
        Fact::GpuMemoryPeer { registered: false },
        service("failed"),
        service("not found"),
    ];
    let found: Vec<Fact> = told(text).into_iter().map(|(_, fact)| fact).collect();
    assert_eq!(found, expected);
}

#[test]
fn the_kernel_names_devices_and_hosts() {
    let text = "\
Jan  1 00:00:00 node7 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
[  12.3] pcieport 0000:16:02.0: AER: Corrected error received: 0000:17:00.0
[  12.3] pcieport 0000:16:02.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer
[  99.1] mlx5_core 0000:17:00.0 ens1f0: Link down
[   1.1] mlx5_core 0000:17:00.0: firmware version: 28.39.1002
[ 100.0] Out of memory: Killed process 1234 (python) total-vm:1kB";
    let found = facts(text);
    let devices: Vec<_> = found.iter().map(|fact| (fact.device.as_str(), fact.host.as_deref())).collect();
    let node = Some("node7");
    assert_eq!(
        devices,
        [("0000:3b:00", node), ("0000:16:02.0", node), ("0000:16:02.0", node), ("0000:17:00.0", node), ("", node)]
    );
    assert!(matches!(&found[0].fact, Fact::Xid { code: 79, text } if text.ends_with("fallen off the bus.")));
    assert!(matches!(&found[1].fact, Fact::PcieError { corrected: true, .. }));
    assert!(matches!(&found[2].fact, Fact::PcieError { corrected: false, .. }));
}

/// Rows of `nvidia-smi topo -p2p` look like a topology matrix, and are none.
#[test]
fn peer_access_is_no_topology() {
    let text = " \tGPU0\tGPU1\t\n GPU0\tX\tCNS\t\n GPU1\tCNS\tX\t\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n";
    let run = crate::read_bytes(&[("p2p", text.as_bytes())]).unwrap_or_default();
    assert_eq!((run.host_facts.len(), run.topo_matrices.len()), (2, 0));
}

#[test]
fn prompts_name_hosts_and_end_blocks() {
    let text =
        "root@node1:~# ibstat\nCA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n[user@node2 ~]$ cat notes\n\t\tState: Down";
    let found: Vec<_> = facts(text).into_iter().map(|fact| (fact.host, fact.fact)).collect();
    assert_eq!(found, [(Some("node1".to_string()), Fact::PortState("Active".into()))]);
}

#[test]
fn other_text_tells_nothing() {
    let text = "State: Active\nRate: 5\nloss: 0.2\nGPU memory: 3 GB\nLink 3: 25 GB/s\nActive: yes\nuser@host.com wrote: hi\nLnkSta: broken\nport: 8080";
    assert_eq!(told(text), []);
}

proptest! {
    #[test]
    fn any_text_is_read_without_panic(lines in proptest::collection::vec("\\PC{0,50}", 0..6), which in 0usize..12) {
        let heads = ["CA 'a'", "hca_id: a", "Settings for a:", "GPU 0: a", "00:00.0 a: b", "a.service - b", "LnkSta: Speed ", "Xid (",
            "AER: ", "mlx5_core ", "GID[", "Max open files "];
        facts(&format!("{}\n{}{}", heads[which], heads[which], lines.join("\n")));
    }
}
