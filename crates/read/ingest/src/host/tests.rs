//! Facts of every command, from output of the real ones.

use super::*;
use busbw_model::node::FabricState;
use busbw_model::{LinkLayer, PcieLink, Place};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn machines(text: &str) -> Vec<NodeFacts> {
    let mut reader = HostReader::default();
    for (line, text) in (1..).zip(text.lines()) {
        reader.feed(&TextLine { place: Place { input: 0, line }, stream: "", text });
    }
    reader.finish()
}

/// The only machine.
fn machine(text: &str) -> NodeFacts {
    let mut all = machines(text);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// Device and item of each line that shows something to judge.
fn judged(machine: &NodeFacts) -> Vec<(&str, &str)> {
    let told = machine.lines.iter().filter(|told| !told.item.is_empty());
    told.map(|told| (told.device.as_str(), told.item)).collect()
}

/// What is known of the machine, and device and item of each line that shows something to judge.
fn told(machine: &NodeFacts) -> Value {
    let usual = json!(NodeFacts { partial: true, ..NodeFacts::default() });
    let mut told = json!(machine);
    let keys = told.as_object_mut().expect("facts");
    keys.retain(|key, value| usual[key] != *value);
    keys.insert("judged".into(), json!(judged(machine)));
    without_nothing(told)
}

/// A value without what is empty in it.
fn without_nothing(value: Value) -> Value {
    let is_nothing = |value: &Value| [json!(null), json!(""), json!([]), json!({})].contains(value);
    match value {
        Value::Array(all) => all.into_iter().map(without_nothing).collect(),
        Value::Object(all) => {
            let kept = all.into_iter().map(|(key, value)| (key, without_nothing(value)));
            kept.filter(|(_, value)| !is_nothing(value)).collect()
        }
        other => other,
    }
}

/// Each file of commands with the facts beside it. `amd.txt` is of ROCm/ROCm issue 4268 (the table), ROCm 4.2 (issue 1503) and
/// rocm_smi.py of ROCm 6.2. In `flow-control.txt`, mlnx_qos and ethtool do not say which interface they speak of; the command does. ibdiagnet is 2.7.
#[test]
fn commands_tell_facts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/host");
    let paths = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let texts: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|end| end == "txt")).collect();
    assert!(texts.len() > 10, "{texts:?}");
    for path in texts {
        let read = |path: &Path| std::fs::read_to_string(path).expect("a file");
        let told = told(&machine(&read(&path)));
        let facts: Value = serde_json::from_str(&read(&path.with_extension("json"))).expect("facts");
        assert_eq!(told, facts, "{}", path.display());
    }
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
    let nic = read.rdma[0].pci.clone().unwrap_or_default();
    assert_eq!((nic.address.as_str(), nic.most, nic.link), ("0000:17:00.0", link(16.0, 16, false), link(8.0, 8, true)));
    let gpu = &read.gpu.devices[0].pci;
    assert_eq!((gpu.address.as_str(), gpu.link), ("0000:2a:00.0", link(2.5, 16, false)));
    assert_eq!((read.rdma.len(), read.gpu.devices.len()), (1, 1), "a disk is neither");
    let bridges: Vec<_> = read.bridges.iter().map(|b| (b.address.as_str(), b.acs_redirects.get())).collect();
    assert_eq!(bridges, [("3b:00.0", Some(&true)), ("3c:00.0", Some(&false))]);
}

/// Rows of `nvidia-smi topo -p2p` look like a topology matrix, and are none.
#[test]
fn peer_access_is_no_topology() {
    let text = " \tGPU0\tGPU1\t\n GPU0\tX\tCNS\t\n GPU1\tCNS\tX\t\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n";
    let run = crate::read_bytes(&[("p2p", text.as_bytes())]).unwrap_or_default();
    assert_eq!((run.machines[0].lines.len(), run.topo_matrices.len()), (2, 0));
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
        let found: Vec<_> = found.iter().map(|m| (m.host.as_str(), m.rdma[0].ports[0].state.as_str())).collect();
        assert_eq!(found, expected, "{what}");
    }
    let ulimit = "root@a:~# ulimit -l\nmax locked memory       (kbytes, -l) 64\n";
    let first = format!("root@a:~# ibstat\n{}", ibstat("Active"));
    let run = crate::read_bytes(&[("1", first.as_bytes()), ("2", ulimit.as_bytes())]).unwrap_or_default();
    assert_eq!(run.machines.iter().map(|machine| machine.lines.len()).collect::<Vec<_>>(), [2]);
}

/// Each section would be looked for among all before it.
#[test]
fn sections_of_more_gpus_than_a_host_has_are_left() {
    let text = "    Fabric\n        State : Completed\n".repeat(200);
    assert_eq!(machine(&text).gpu.devices.len(), 64);
}

/// A command that is given again speaks of the same GPUs, and the answer before it is old.
#[test]
fn sections_that_are_asked_again_are_of_the_same_gpus() {
    let asked =
        |state: &str| format!("root@a:~# nvidia-smi -q | grep -A1 Fabric\n    Fabric\n        State : {state}\n");
    let gpu = machine(&format!("{}{}", asked("In Progress"), asked("Completed"))).gpu;
    assert_eq!(gpu.devices.len(), 1);
    assert_eq!(gpu.devices[0].fabric.as_ref().map(|fabric| fabric.state.as_str()), Some("completed"));
}

#[test]
fn a_gpu_whose_fabric_is_not_healthy_is_not_sound() {
    let text = "    Fabric\n        State : Completed\n        Status : Success\n        Health\n            Summary : Unhealthy\n";
    let fabric = machine(text).gpu.devices.remove(0).fabric;
    assert_eq!(fabric, Some(FabricState { state: FabricState::UNHEALTHY.into(), succeeded: false }));
}

#[test]
fn a_loop_of_mlxlink_shows_a_port_each() {
    let link = |state: &str| format!("\nOperational Info\n----\nState : {state}\nSpeed : IB-NDR\nWidth : 4x\n");
    for asked in ["root@a:~# for i in 0 1; do mlxlink -d mlx5_$i; done\n", ""] {
        let devices = machine(&format!("{asked}{}{}", link("Polling"), link("Active"))).rdma;
        let ports = devices.iter().map(|device| (device.name.as_str(), &device.ports[0]));
        let told: Vec<_> = ports.map(|(name, port)| (name, port.state.as_str(), port.rate_gbps)).collect();
        let expected = [("<device 1>", "DOWN", Some(400.0)), ("<device 2>", "ACTIVE", Some(400.0))];
        assert_eq!(told, expected, "{asked}");
    }
}

/// Of a link that is down mlxlink tells no rate.
#[test]
fn a_rate_stays_where_a_later_tool_tells_none() {
    let ibstat = "root@a:~# ibstat\nCA 'mlx5_0'\n\tPort 1:\n\t\tRate: 200\n\t\tLink layer: InfiniBand\n";
    let mlxlink = "root@a:~# mlxlink -d mlx5_0\nState : Polling\nSpeed : N/A\nWidth : N/A\nRecommendation : N/A\n";
    let port = machine(&format!("{ibstat}{mlxlink}")).rdma.remove(0).ports.remove(0);
    assert_eq!((port.rate_gbps, port.link_layer), (Some(200.0), Some(LinkLayer::InfiniBand)));
    assert_eq!((port.state.as_str(), port.trouble), ("DOWN", None));
}

/// Hosts are in labels of pdsh, ranks in those of torchrun and PyTorch.
#[test]
fn a_rank_in_a_label_is_no_host() {
    for (stream, host) in [("node3", "node3"), ("default3", ""), ("rank3", "")] {
        let mut reader = HostReader::default();
        let text = "NVRM: Xid (PCI:0000:1b:00): 79, pid=4242, GPU has fallen off the bus.";
        reader.feed(&TextLine { place: Place { input: 0, line: 1 }, stream, text });
        assert_eq!(reader.finish()[0].host, host);
    }
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
