//! Facts of every command, from output of the real ones.

use super::*;
use busbw_model::node::*;
use busbw_model::{LinkLayer, PcieLink, Place};
use proptest::prelude::*;

fn machines(text: &str) -> Vec<Machine> {
    let mut reader = HostReader::default();
    for (line, text) in (1..).zip(text.lines()) {
        reader.feed(&TextLine { place: Place { input: 0, line }, stream: "", text });
    }
    reader.finish()
}

/// The only machine.
fn machine(text: &str) -> Machine {
    let mut all = machines(text);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// Device and item of each line that tells something to judge.
fn judged(machine: &Machine) -> Vec<(&str, &str)> {
    let told = machine.told.iter().filter(|told| !told.item.is_empty());
    told.map(|told| (told.device.as_str(), told.item)).collect()
}

#[test]
fn ports_are_read_from_every_tool() {
    let text = "\
CA 'mlx5_0'
\tCA type: MT4129
\tFirmware version: 28.39.1002
\tPort 1:
\t\tState: Initializing
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tSM lid: 0
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
Infiniband device 'mlx5_4' port 1 status:
\tstate:\t\t 4: ACTIVE
\tphys state:\t 5: LinkUp
\trate:\t\t 200 Gb/sec (4X HDR)
\tlink_layer:\t Ethernet
mlx5_2 port 1 ==> ens1f0np0 (Down)
link mlx5_3/1 state ACTIVE physical_state LINK_UP netdev ens5f0
mlx5_0  1       3       0000:0000:0000:0000:0000:ffff:0a00:0001 10.0.0.1        v2      ens1f0
mlx5_0  1       0       fe80:0000:0000:0000:ba59:9fff:fe0a:ee96                 v1      ens1f0
Settings for ens1f0:
\tSpeed: 100000Mb/s
\tDuplex: Full
\tLink detected: yes
2: ens1f0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP";
    let read = machine(text);
    let port = |state: &str, link: &str| RdmaPort {
        port: 1,
        state: state.into(),
        physical_state: Some(link.into()),
        ..RdmaPort::default()
    };
    let gid = |index, gid: &str, kind, interface: Option<&str>| Gid {
        index,
        gid: gid.into(),
        kind,
        interface: interface.map(str::to_string),
    };
    let of_show_gids = vec![
        gid(3, "0000:0000:0000:0000:0000:ffff:0a00:0001", GidKind::RoceV2, Some("ens1f0")),
        gid(0, "fe80:0000:0000:0000:ba59:9fff:fe0a:ee96", GidKind::IbOrRoceV1, Some("ens1f0")),
    ];
    let expected = [
        RdmaPort {
            rate_gbps: Some(400.0),
            link_layer: Some(LinkLayer::InfiniBand),
            gids: of_show_gids,
            ..port("INIT", "LinkUp")
        },
        RdmaPort {
            rate_gbps: Some(100.0),
            active_mtu: Some(1024),
            max_mtu: Some(4096),
            gids: vec![gid(3, "::ffff:10.0.0.1", GidKind::RoceV2, None)],
            ..port("DOWN", "LinkUp")
        },
        RdmaPort { rate_gbps: Some(200.0), link_layer: Some(LinkLayer::Ethernet), ..port("ACTIVE", "LinkUp") },
        port("ACTIVE", "LinkUp"),
    ];
    let names: Vec<&str> = read.facts.rdma.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["mlx5_0", "mlx5_bond_0", "mlx5_4", "mlx5_3"]);
    let ports: Vec<&RdmaPort> = read.facts.rdma.iter().flat_map(|device| &device.ports).collect();
    assert_eq!(ports, expected.iter().collect::<Vec<_>>());
    let known = |device: &RdmaDevice| (device.hca_type.clone(), device.firmware.clone());
    assert_eq!(known(&read.facts.rdma[0]), (Some("MT4129".into()), Some("28.39.1002".into())));
    let interface = |interface: &NetInterface| {
        (interface.name.clone(), interface.state.clone(), interface.mtu, interface.speed_mbps)
    };
    let interfaces: Vec<_> = read.facts.interfaces.iter().map(interface).collect();
    let plain = |name: &str, state: &str| (name.to_string(), state.to_string(), None, None);
    let ens1f0 = ("ens1f0".to_string(), "up".to_string(), Some(9000), Some(100_000));
    assert_eq!(interfaces, [plain("ens1f0np0", "down"), plain("ens5f0", "up"), ens1f0]);
    assert_eq!(judged(&read)[..3], [("mlx5_0/1", "port state"), ("mlx5_0/1", "rate"), ("mlx5_bond_0/1", "port state")]);
}

#[test]
fn pcie_links_and_redirection() {
    let text = "\
17:00.0 Ethernet controller: Mellanox Technologies MT2892 Family [ConnectX-6 Dx]
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 8GT/s (downgraded), Width x8 (downgraded)
0000:2a:00.0 3D controller: NVIDIA Corporation GA100 [A100 SXM4 80GB] (rev a1)
\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x16 (ok)
04:00.0 Non-Volatile memory controller: Samsung Electronics Co Ltd NVMe SSD
\t\tLnkSta:\tSpeed 8GT/s (downgraded), Width x4
3b:00.0 PCI bridge: PLX Technology, Inc. PEX 8796
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
3c:00.0 PCI bridge: PLX Technology, Inc. PEX 8796
\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-";
    let read = machine(text);
    let link = |speed_gts, width, downgraded| Some(PcieLink { speed_gts, width, downgraded });
    let nic = read.facts.rdma[0].pci.clone().unwrap_or_default();
    assert_eq!((nic.address.as_str(), nic.most, nic.link), ("0000:17:00.0", link(16.0, 16, false), link(8.0, 8, true)));
    let gpu = &read.facts.gpu.devices[0].pci;
    assert_eq!((gpu.address.as_str(), gpu.link), ("0000:2a:00.0", link(2.5, 16, false)));
    assert_eq!((read.facts.rdma.len(), read.facts.gpu.devices.len()), (1, 1), "a disk is neither");
    let bridges: Vec<_> = read.facts.bridges.iter().map(|b| (b.address.as_str(), b.acs_redirects.get())).collect();
    assert_eq!(bridges, [("3b:00.0", Some(&true)), ("3c:00.0", Some(&false))]);
}

#[test]
fn gpus_their_driver_fabric_memory_and_links() {
    let text = "\
| NVIDIA-SMI 535.104.05             Driver Version: 535.104.05   CUDA Version: 12.2     |
|   0  NVIDIA H100 80GB HBM3          On  | 00000000:18:00.0 Off |                    0 |
GPU 00000000:18:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    MIG Mode
        Current                           : Disabled
    GPU Link Info
        PCIe Generation
            Max                           : 5
            Current                       : 5
        Link Width
            Max                           : 16x
            Current                       : 8x
    ECC Mode
        Current                           : Enabled
    ECC Errors
        Volatile
            SRAM Uncorrectable Parity     : 0
            DRAM Correctable              : 7
            DRAM Uncorrectable            : 2
        Aggregate
            DRAM Uncorrectable            : 9
    Remapped Rows
        Remapping Failure Occurred        : Yes
    Fabric
        State                             : In Progress
        Status                            : N/A
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-1)
\t Link 0: 25 GB/s
\t Link 1: <inactive>
 GPU0\tX\tOK\tCNS";
    let facts = machine(text).facts.gpu;
    assert_eq!((facts.driver.as_deref(), facts.cuda_driver.as_deref()), (Some("535.104.05"), Some("12.2")));
    let link = |width| Some(PcieLink { speed_gts: 32.0, width, downgraded: false });
    let first = GpuDevice {
        index: 0,
        name: "NVIDIA H100 80GB HBM3".into(),
        pci: PciFunction { address: "0000:18:00.0".into(), link: link(8), most: link(16), ..PciFunction::default() },
        ecc: Some(Ecc {
            enabled: true,
            uncorrected: Some(2),
            corrected: None,
            remapping_failed: Some(true),
            pending: None,
        }),
        fabric: Some(GpuFabric { state: "in progress".into(), succeeded: false }),
        mig: Some(false),
        ..GpuDevice::default()
    };
    let nvlink = |link, rate_gbs: Option<f64>| NvLinkState { link, active: rate_gbs.is_some(), rate_gbs };
    let second = GpuDevice {
        index: 1,
        name: "NVIDIA A100-SXM4-80GB".into(),
        nvlinks: vec![nvlink(0, Some(25.0)), nvlink(1, None)],
        ..GpuDevice::default()
    };
    assert_eq!(facts.devices, [first, second]);
    let peers: Vec<_> = facts.peers.iter().map(|peer| (peer.from, peer.to, peer.status.as_str())).collect();
    assert_eq!(peers, [(0, 1, "OK"), (0, 2, "CNS")]);
}

#[test]
fn memory_that_waits_and_links_that_were_trained_again() {
    let text = "\
GPU 00000000:18:00.0
    Clocks Event Reasons
        SW Power Cap                      : Active
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Not Active
            HW Power Brake Slowdown       : Active
    Retired Pages
        Single Bit ECC                    : 4
        Pending Page Blacklist            : No
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : 2
        Pending                           : Yes
        Remapping Failure Occurred        : No
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-abcdefab-cdef-abdc-abcd-abababababab)
         Link 0: Replay Errors: 7
         Link 0: Recovery Errors: 0
         Link 0: CRC Errors: 0

         Link 1: Replay Errors: 0
         Link 1: Recovery Errors: 2
         Link 1: CRC Errors: 0";
    let gpu = &machine(text).facts.gpu.devices[0];
    let ecc = Ecc { enabled: true, remapping_failed: Some(false), pending: Some(true), ..Ecc::default() };
    assert_eq!((gpu.ecc.clone(), gpu.link_errors), (Some(ecc), Some(2)));
    assert_eq!(gpu.slowdowns, Some(vec!["HW Power Brake Slowdown".to_string()]));
}

/// ROCm/ROCm issue 4268 (the table), ROCm 4.2 (issue 1503) and rocm_smi.py of ROCm 6.2.
#[test]
fn gpus_of_amd() {
    let text = "\
$ rocm-smi
Expected integer value from monitor, but got \"\"
=============== ROCm System Management Interface ===============
========================= Concise Info =========================
Device  Node  IDs              Temp        Power     Partitions          SCLK     MCLK     Fan  Perf  PwrCap       VRAM%  GPU%
              (DID,     GUID)  (Junction)  (Socket)  (Mem, Compute, ID)
================================================================
0       2     0x74b5,   65402  56.0°C      321.0W    NPS1, N/A, 0        2074Mhz  1300Mhz  0%   auto  750.0W       90%    58%
1       9     0x74b5,   60025  N/A         N/A       NPS1, N/A, 0        None     None     0%   auto  Unsupported  0%     0%
================================================================
======================= XGMI Error status ======================
GPU[0]\t\t: XGMI Error count: 0 (No errors detected since last read)
GPU[1]\t\t: XGMI Error count: 2 (Multiple errors detected since last read)
=========================== RAS Info ===========================

GPU[1]: \tRAS INFO
         Block       Status    Correctable Error  Uncorrectable Error  
           UMC      ENABLED                  3                    1  
           GFX     DISABLED                  0                    0  
================== Link Type between two GPUs ==================
       GPU0         GPU1         
GPU0   0            XGMI         
GPU1   PCIE         0            
============== Link accessibility between two GPUs =============
GPU0 GPU1
GPU0 True True
GPU1 False True
GPU[0]\t\t: Card Series: \t\tAMD Instinct MI300X";
    let read = machine(text);
    let link = |active| vec![NvLinkState { active, ..NvLinkState::default() }];
    let first = GpuDevice {
        name: "AMD Instinct MI300X".into(),
        readable: Some(true),
        link_errors: Some(0),
        nvlinks: link(true),
        ..GpuDevice::default()
    };
    let second = GpuDevice {
        index: 1,
        name: "AMD".into(),
        readable: Some(false),
        link_errors: Some(2),
        nvlinks: link(false),
        ecc: Some(Ecc { enabled: true, uncorrected: Some(1), ..Ecc::default() }),
        ..GpuDevice::default()
    };
    assert_eq!(read.facts.gpu.devices, [first, second]);
    let peers: Vec<_> = read.facts.gpu.peers.iter().map(|peer| (peer.from, peer.status.as_str())).collect();
    assert_eq!(peers, [(0, "OK"), (1, "not accessible")]);
    let asleep = "WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status\n\n\
                  ==== ROCm System Management Interface ====\n========= Concise Info =========\n\
                  0    N/A   N/A     None  None  0%   unknown  Unsupported    0%   0%";
    assert_eq!(machine(asleep).facts.gpu.devices[0].readable, None);
    let amd_smi = "| 0000:83:00.0 AMD Instinct MI300X VF | 0 %      37 °C   2           135/750 W |\n\
                   |   0       0       0        SPX/NPS1 | 0 %        N/A           285/196288 MB |";
    let listed = &machine(amd_smi).facts.gpu.devices[0];
    let errors = listed.ecc.as_ref().and_then(|ecc| ecc.uncorrected);
    assert_eq!((listed.name.as_str(), errors), ("AMD Instinct MI300X VF", Some(2)));
}

/// mlnx_qos and ethtool do not say which interface they speak of; the command does. ibdiagnet 2.7.
#[test]
fn flow_control_counters_and_the_subnet() {
    let text = "\
root@a:~# ibdev2netdev
mlx5_1 port 1 ==> enp4s0f1 (Up)
root@a:~# sudo mlnx_qos -i enp4s0f1
DCBX mode: OS controlled
Priority trust state: dscp
dscp2prio mapping:
\tprio:0 dscp:07,06,05,04,03,02,01,00,
Cable len: 7
PFC configuration:
\tpriority    0   1   2   3   4   5   6   7
\tenabled     0   0   0   1   0   0   0   0   
\tbuffer      0   2   5   7   1   2   3   6   
root@a:~# ethtool -S enp4s0f1
NIC statistics:
     rx_packets: 333854100
     rx_out_of_buffer: 990473555
     rx_discards_phy: 585
     rx0_xdp_drop: 3753342954
root@a:~# sleep 60; ethtool -S enp4s0f1 | grep phy
     rx_discards_phy: 587
-E- Link: sw041/U1/P24<-->S900a840300308e40/N900a840300308e40/P49 - Unexpected width, actual link width is 2x
-I- Stage                               Warnings   Errors     Comment
-I- Discovery                           3          0
-I- Speed / Width checks                0          15
-I- Database                            : /var/tmp/ibdiagnet2/ibdiagnet2.db_csv";
    let read = machine(text);
    let interface = NetInterface {
        name: "enp4s0f1".into(),
        state: "up".into(),
        rdma: Some("mlx5_1/1".into()),
        trust: Some("dscp".into()),
        pfc_priorities: Some(vec![3]),
        counters: [
            ("rx_out_of_buffer".into(), NicCounter { count: 990_473_555, rise: None }),
            ("rx_discards_phy".into(), NicCounter { count: 587, rise: Some(2) }),
        ]
        .into(),
        ..NetInterface::default()
    };
    assert_eq!(read.facts.interfaces, [interface]);
    let stages = [("Discovery".to_string(), 0), ("Speed / Width checks".to_string(), 15)];
    assert_eq!(read.facts.subnet, stages.into());
    let unnamed = machine("Priority trust state: pcp\nPFC configuration:\n\tenabled     0   0   0   0   0   0   0   0");
    let known = &unnamed.facts.interfaces[0];
    assert_eq!((known.trust.as_deref(), known.pfc_priorities.as_deref()), (Some("pcp"), Some(&[][..])));
}

#[test]
fn limits_memory_modules_and_services() {
    let text = "\
max locked memory       (kbytes, -l) 64
open files                      (-n) 1024
Max processes             unlimited            unlimited            processes
Max open files            4096                 65536                files
shm              64M     0   64M   0% /dev/shm
nvidia_peermem         16384  0
● nvidia-fabricmanager.service - NVIDIA fabric manager service
     Loaded: loaded (/lib/systemd/system/nvidia-fabricmanager.service; enabled)
     Active: failed (Result: exit-code) since Mon";
    let read = machine(text);
    let limits = Limits {
        locked_memory: LinuxLimit { soft: Bound::At(65536), hard: Bound::Unlimited },
        open_files: LinuxLimit { soft: Bound::At(4096), hard: Bound::At(65536) },
        ..Limits::default()
    };
    assert_eq!(read.facts.limits, Known::Known(limits));
    assert_eq!(read.facts.shared_memory.get(), Some(&SharedMemory { size_bytes: 64 << 20, free_bytes: 64 << 20 }));
    assert_eq!(read.facts.modules.get(), Some(&vec!["nvidia_peermem".to_string()]));
    assert_eq!(read.facts.fabric_manager.as_deref(), Some("not running"));
    let items: Vec<&str> = judged(&read).into_iter().map(|(_, item)| item).collect();
    assert_eq!(items, ["memlock", "nproc", "nofile", "/dev/shm", "GPUDirect RDMA", "fabric manager"]);
    let absent = machine("Unit nvidia-fabricmanager.service could not be found.");
    assert_eq!(absent.facts.fabric_manager.as_deref(), Some("not running"));
    let df = machine("tmpfs      528237136     0 528237136   0% /dev/shm").facts.shared_memory;
    assert_eq!(df.get().map(|memory| memory.size_bytes), Some(528_237_136 << 10));
}

#[test]
fn the_kernel_names_devices_and_hosts() {
    let text = "\
Jan  1 00:00:00 node7 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
[  12.3] pcieport 0000:16:02.0: AER: Corrected error received: 0000:17:00.0
[  12.3] pcieport 0000:16:02.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer
[   1.1] mlx5_core 0000:17:00.0: firmware version: 28.39.1002
[ 100.0] Out of memory: Killed process 1234 (python) total-vm:1kB";
    let Machine { facts, .. } = machine(text);
    assert_eq!(facts.host, "node7");
    let xids: Vec<_> = facts.xids.get().into_iter().flatten().map(|xid| (xid.pci.as_str(), xid.code)).collect();
    assert_eq!(xids, [("0000:3b:00", 79)]);
    assert_eq!(facts.pcie_errors, ["0000:16:02.0"]);
    assert_eq!(facts.memory_kills, ["1234 (python)"]);
}

/// Rows of `nvidia-smi topo -p2p` look like a topology matrix, and are none.
#[test]
fn peer_access_is_no_topology() {
    let text = " \tGPU0\tGPU1\t\n GPU0\tX\tCNS\t\n GPU1\tCNS\tX\t\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n";
    let run = crate::read_bytes(&[("p2p", text.as_bytes())]).unwrap_or_default();
    assert_eq!((run.machines[0].told.len(), run.topo_matrices.len()), (2, 0));
}

#[test]
fn machines_are_told_apart() {
    let ibstat = |state: &str| format!("CA 'mlx5_0'\n\tPort 1:\n\t\tState: {state}\n");
    let cases = [
        (
            "a prompt names one, and ends a block",
            format!("root@a:~# ibstat\n{}[u@b ~]$ cat notes\n\t\tState: Down\n", ibstat("Active")),
            vec![("a", "ACTIVE")],
        ),
        (
            "a machine is known again",
            format!("root@a:~# ibstat\n{0}root@a:~# ibstat\n{1}", ibstat("Down"), ibstat("Active")),
            vec![("a", "ACTIVE")],
        ),
        ("one command twice is two machines", ibstat("Active") + &ibstat("Down"), vec![("", "ACTIVE"), ("", "DOWN")]),
        ("what follows is not indented", ibstat("Active") + "\nepoch 1\nState: Down\n", vec![("", "ACTIVE")]),
    ];
    for (what, text, expected) in cases {
        let found = machines(&text);
        let found: Vec<_> =
            found.iter().map(|m| (m.facts.host.as_str(), m.facts.rdma[0].ports[0].state.as_str())).collect();
        assert_eq!(found, expected, "{what}");
    }
    let ulimit = "root@a:~# ulimit -l\nmax locked memory       (kbytes, -l) 64\n";
    let first = format!("root@a:~# ibstat\n{}", ibstat("Active"));
    let run = crate::read_bytes(&[("1", first.as_bytes()), ("2", ulimit.as_bytes())]).unwrap_or_default();
    assert_eq!(run.machines.iter().map(|machine| machine.told.len()).collect::<Vec<_>>(), [2]);
}

#[test]
fn other_text_tells_nothing() {
    let text = "State: Active\nRate: 5\nloss: 0.2\nGPU memory: 3 GB\nLink 3: 25 GB/s\nActive: yes\nuser@host.com wrote: hi\nLnkSta: broken\nport: 8080\nGPU 0: busy\nshm: 64M";
    assert_eq!(machines(text), []);
}

proptest! {
    #[test]
    fn any_text_is_read_without_panic(lines in proptest::collection::vec("\\PC{0,50}", 0..6), which in 0usize..16) {
        let heads = ["CA 'a'", "hca_id: a", "Settings for a:", "GPU 0: a", "00:00.0 a: b", "a.service - b", "LnkSta: Speed ", "NVRM: Xid (",
            "AER: ", "mlx5_core ", "GID[", "Max open files ", "=== Concise Info", "=== Link Type between two GPUs", "mlnx_qos -i ", "-I- a  "];
        machines(&format!("{}\n{}{}", heads[which], heads[which], lines.join("\n")));
    }
}
