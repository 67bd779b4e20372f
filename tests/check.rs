//! `busbw check` from end to end: this machine, captured trees with one fault each, several hosts, files of facts.

use crate::support::command::BUSBW;
use crate::support::process::{Ended, LIMIT, run};
use crate::support::tree::Tree;
use serde_json::Value;
use std::process::Command;

pub const H100: &str = "oci-h100";
/// The first card and the bridge above it, and the first GPU and its.
const NIC: &str = "/sys/devices/pci0000:07/0000:07:01.0/0000:08:00.0/0000:0a:00.0/0000:0c:00.0";
const GPU_BRIDGE: &str = "/sys/devices/pci0000:07/0000:07:01.0/0000:08:00.0/0000:0d:00.0";

pub fn check(arguments: &[&str]) -> Ended {
    run(Command::new(BUSBW).arg("check").args(arguments), LIMIT)
}

fn of_tree(tree: &Tree) -> Value {
    check(&["--json", "--root", &tree.path().display().to_string()]).json()
}

/// Items that came out as `result`: what was checked and what was found.
pub fn items<'a>(answer: &'a Value, result: &str) -> Vec<(&'a str, String)> {
    let all = answer["items"].as_array().expect("items");
    let with = all.iter().filter(|item| item["result"] == result);
    with.map(|item| (item["item"].as_str().expect("a name"), told(item))).collect()
}

/// `mlx5_0/1: ACTIVE`.
fn told(item: &Value) -> String {
    let device = item["device"].as_str().map_or(String::new(), |device| format!("{device}: "));
    device + item["detail"].as_str().expect("a text")
}

#[test]
fn a_healthy_node_is_healthy() {
    let tree = Tree::unpack(H100);
    let answer = of_tree(&tree);
    assert_eq!((items(&answer, "fail"), items(&answer, "warn")), (vec![], vec![]));
    let ok = items(&answer, "ok");
    for (item, detail) in [
        ("GPUs", "8 × NVIDIA H100 80GB HBM3, driver 550.54.15"),
        ("fabric manager", "running"),
        ("NCCL", "2.20.5 (/usr/lib/x86_64-linux-gnu/libnccl.so.2)"),
        ("port state", "mlx5_0/1: ACTIVE, LinkUp, Ethernet (RoCE)"),
        ("rate", "mlx5_0/1: 200 Gbit/s"),
        ("active MTU", "mlx5_0/1: 4096, its interface has 4220"),
        ("RoCE v2 GID", "mlx5_0/1: index 3 (IPv4)"),
        ("firmware", "MT4129: 28.39.2048"),
        ("driver", "mlx5_core 24.04-0.7.0"),
        ("GPUDirect RDMA", "nvidia_peermem is loaded"),
        ("QoS", "mlx5_0/1: ECN on priorities 5, traffic class 104 (DSCP 26)"),
        ("link", "mlx5_0: 32 GT/s x16"),
        ("link", "GPU 0: 32 GT/s x16"),
        ("ACS", "off on the 32 bridges above GPUs and NICs"),
        ("IOMMU", "passes addresses through"),
        ("interface", "eth0: up, 100 Gbit/s, full duplex, MTU 9000"),
        ("memlock", "unlimited"),
    ] {
        assert!(ok.contains(&(item, detail.to_owned())), "{item}: {detail} is not in {ok:#?}");
    }
}

/// A fault of the healthy node, and the line that must tell it.
struct Fault {
    files: &'static [(&'static str, &'static str)],
    result: &'static str,
    item: &'static str,
    detail: &'static str,
    code: &'static str,
}

const PORT: &str = "infiniband/mlx5_0/ports/1";

const FAULTS: &[Fault] = &[
    Fault {
        files: &[("NIC/current_link_width", "8")],
        result: "fail",
        item: "link",
        detail: "mlx5_0: 32 GT/s x8 at 0000:0c:00.0, 32 GT/s x16 is possible",
        code: "pcie.degraded",
    },
    Fault {
        files: &[("PORT/state", "1: DOWN"), ("PORT/phys_state", "3: Disabled")],
        result: "fail",
        item: "port state",
        detail: "mlx5_0/1: DOWN, Disabled, Ethernet (RoCE)",
        code: "ib.transport-error",
    },
    Fault {
        files: &[("PORT/rate", "100 Gb/sec (4X EDR)")],
        result: "fail",
        item: "rate",
        detail: "mlx5_0/1: 100 of 200 Gbit/s",
        code: "nic.rate",
    },
    Fault {
        files: &[("NIC/net/rdma0/mtu", "1500")],
        result: "warn",
        item: "active MTU",
        detail: "mlx5_0/1: 1024 of 4096, its interface has 1500",
        code: "roce.config",
    },
    Fault {
        files: &[("PORT/gid_attrs/types/1", "IB/RoCE v1"), ("PORT/gid_attrs/types/3", "IB/RoCE v1")],
        result: "fail",
        item: "RoCE v2 GID",
        detail: "mlx5_0/1: none",
        code: "roce.config",
    },
    Fault {
        files: &[("/proc/self/environ", "NCCL_IB_GID_INDEX=2")],
        result: "fail",
        item: "RoCE v2 GID",
        detail: "mlx5_0/1: NCCL_IB_GID_INDEX=2 is RoCE v1",
        code: "roce.config",
    },
    Fault {
        files: &[("/proc/self/environ", "NCCL_IB_HCA=mlx4")],
        result: "fail",
        item: "NCCL_IB_HCA",
        detail: "mlx4: no device mlx4",
        code: "net.socket-fallback",
    },
    Fault {
        files: &[("BRIDGE/config", "acs 001d")],
        result: "fail",
        item: "ACS",
        detail: "redirects at 0000:0d:00.0 above GPU 0",
        code: "pcie.acs",
    },
    Fault {
        files: &[(
            "/proc/self/limits",
            "Max processes 1 1 processes\\nMax open files 64 64 files\\nMax locked memory 65536 65536 bytes",
        )],
        result: "fail",
        item: "memlock",
        detail: "64 KiB",
        code: "limits.memlock",
    },
    Fault {
        files: &[("/dev/kmsg", "4,9,9;NVRM: Xid (PCI:0000:0f:00): 79, pid=1, GPU has fallen off the bus.")],
        result: "fail",
        item: "Xid",
        detail: "79 at 0000:0f:00",
        code: "gpu.error",
    },
    Fault {
        files: &[("/proc/4127/comm", "bash")],
        result: "fail",
        item: "fabric manager",
        detail: "not running",
        code: "nvlink.fabric",
    },
    Fault {
        files: &[("/usr/local/lib/libnccl.so.2", "NCCL version 2.18.3+cuda12.1")],
        result: "warn",
        item: "NCCL",
        detail: "2.20.5 (/usr/lib/x86_64-linux-gnu/libnccl.so.2), 2.18.3 (/usr/local/lib/libnccl.so.2)",
        code: "version.mismatch",
    },
    Fault {
        files: &[("/sys/devices/pci0000:63/0000:63:02.0/0000:64:00.0/net/eth0/duplex", "half")],
        result: "fail",
        item: "interface",
        detail: "eth0: up, 100 Gbit/s, half duplex, MTU 9000",
        code: "nic.rate",
    },
    Fault {
        files: &[("/etc/nccl.conf", "NCCL_SOCKET_IFNAME=ens1")],
        result: "fail",
        item: "NCCL_SOCKET_IFNAME",
        detail: "ens1: no such interface is up",
        code: "net.wrong-interface",
    },
];

#[test]
fn each_fault_is_told_with_remedy_and_code() {
    for fault in FAULTS {
        let tree = Tree::unpack(H100);
        for (path, text) in fault.files {
            let path = path.replace("NIC", NIC).replace("PORT", &format!("{NIC}/{PORT}")).replace("BRIDGE", GPU_BRIDGE);
            tree.write(&path, text);
        }
        let answer = of_tree(&tree);
        let told_as = items(&answer, fault.result);
        assert!(
            told_as.contains(&(fault.item, fault.detail.to_owned())),
            "{}: {} is not in {told_as:#?}",
            fault.item,
            fault.detail
        );
        let all = answer["items"].as_array().expect("items");
        let item = all.iter().find(|item| told(item) == fault.detail).expect("just found");
        assert_eq!(item["code"], fault.code, "{item}");
        assert!(item["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{item}");
    }
}

/// A port that is down, and a bridge that redirects what GPUs send each other.
pub fn break_port_and_bridge(tree: &Tree) {
    tree.write(&format!("{NIC}/{PORT}/state"), "1: DOWN");
    tree.write(&format!("{GPU_BRIDGE}/config"), "acs 001d");
}

/// The table shows what JSON tells, and the exit status is that of the worst.
#[test]
fn the_table_tells_the_remedy() {
    let tree = Tree::unpack(H100);
    let path = tree.path().display().to_string();
    let healthy = check(&["--root", &path]);
    assert_eq!(healthy.status.code(), Some(0), "{healthy:?}");
    insta::assert_snapshot!("check_healthy", healthy.stdout);
    break_port_and_bridge(&tree);
    let ended = check(&["--root", &path]);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    insta::assert_snapshot!("check_faults", ended.stdout);
}

/// Facts that were kept are judged as if they were here, and several nodes together.
#[test]
fn kept_facts_are_judged_later() {
    let (tree, folder) = (Tree::unpack(H100), tempfile::tempdir().expect("a folder"));
    let [first, second] = ["first.json", "second.json"].map(|name| folder.path().join(name));
    let path = tree.path().display().to_string();
    let kept = check(&["--json", "--root", &path, "--save", &first.display().to_string()]);
    let again = check(&["--json", &first.display().to_string()]);
    assert_eq!(kept.stdout, again.stdout);
    tree.write("/proc/sys/kernel/hostname", "node2");
    tree.write(&format!("{NIC}/net/rdma0/mtu"), "1500");
    check(&["--root", &path, "--save", &second.display().to_string()]);
    let both = check(&["--json", &first.display().to_string(), &second.display().to_string()]).json();
    assert_eq!(both["hosts"], serde_json::json!(["node1", "node2"]));
    let differences = both["differences"].as_array().expect("differences");
    let items: Vec<&str> = differences.iter().map(|odd| odd["item"].as_str().expect("a name")).collect();
    assert_eq!(items, ["active MTU of mlx5_0/1", "MTU of rdma0"]);
}

/// `explain` finds in kept facts what `check` finds in them, and shows the host, the device and what it is.
#[test]
fn kept_facts_are_judged_as_check_judges_them() {
    let (tree, folder) = (Tree::unpack(H100), tempfile::tempdir().expect("a folder"));
    let path = folder.path().join("evidence.json");
    tree.write(&format!("{NIC}/{PORT}/state"), "1: DOWN");
    tree.write(&format!("{GPU_BRIDGE}/config"), "acs 001d");
    let (root, shown) = (tree.path().display().to_string(), path.display().to_string());
    check(&["--root", &root, "--save", &shown]);
    let answer = run(Command::new(BUSBW).args(["explain", "--json", &shown]), LIMIT).json();
    let findings = answer["findings"].as_array().expect("findings");
    for (code, severity, text) in [
        ("pcie.acs", "error", "node1 ACS: redirects at 0000:0d:00.0"),
        ("ib.transport-error", "error", "node1 mlx5_0/1 port state: DOWN"),
    ] {
        let finding = findings.iter().find(|finding| finding["code"] == code && finding["severity"] == severity);
        let finding = finding.unwrap_or_else(|| panic!("no {code}: {answer:#}"));
        let evidence = finding["evidence"][0]["text"].as_str();
        assert!(evidence.is_some_and(|evidence| evidence.starts_with(text)), "{finding:#}");
    }
}

/// One line that names the place and the remedy, and exit status 2.
#[test]
fn bad_input_is_refused_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bad.json");
    let shown = path.display().to_string();
    let cases = [
        ("", ":1: no facts of nodes"),
        ("no JSON\n", ":1: no facts of nodes"),
        ("{\n  \"schema\": \"busbw.facts/1\",\n  \"nodes\": 7\n}", ":3: no facts of nodes"),
        ("{\"schema\": \"busbw.facts/9\", \"nodes\": []}", "\"busbw.facts/1\" was expected"),
        ("{\"schema\": \"busbw.facts/1\", \"nodes\": []}", "no nodes in it"),
        (
            "{\"schema\": \"busbw.facts/1\", \"nodes\": [{\"rdma\": [{\"ports\": [{\"rate_gbps\": \"fast\"}]}]}]}",
            ":1: no facts",
        ),
    ];
    let refused = |arguments: &[&str], says: &str| {
        let ended = check(arguments);
        assert_eq!((ended.status.code(), ended.stderr.lines().count()), (Some(2), 1), "{arguments:?}: {ended:?}");
        assert!(ended.stderr.starts_with("busbw: ") && ended.stderr.contains(says), "{arguments:?}: {ended:?}");
        assert!(ended.stdout.is_empty());
    };
    for (text, says) in cases {
        std::fs::write(&path, text).expect("a temporary file");
        refused(&[&shown], says);
    }
    refused(&["/no/such/facts.json"], "check the path");
    refused(&["--root", "/no/such/tree"], "give a directory that holds sys and proc");
    refused(&["--hosts", "a,,b"], "place 2 has no host");
}

/// Trees that hold nonsense where numbers belong, links in circles, or nothing at all.
#[test]
fn odd_trees_are_judged_as_far_as_they_go() {
    let tree = Tree::unpack(H100);
    for file in ["state", "rate", "link_layer", "gids/3", "gid_attrs/types/3"] {
        tree.write(&format!("{NIC}/{PORT}/{file}"), "\\n\\t?");
    }
    for file in ["current_link_width", "max_link_speed", "numa_node", "net/rdma0/mtu", "net/rdma0/speed"] {
        tree.write(&format!("{NIC}/{file}"), "-99999999999999999999");
    }
    tree.write(&format!("{GPU_BRIDGE}/config"), "short");
    tree.write("/proc/self/limits", "Max locked memory much more");
    tree.write("/proc/meminfo", "");
    tree.remove("/proc/modules");
    let answer = of_tree(&tree);
    assert!(items(&answer, "skip").len() > 2, "{answer}");
    tree.remove("sys");
    let answer = of_tree(&tree);
    let failed: Vec<&str> = items(&answer, "fail").into_iter().map(|(item, _)| item).collect();
    assert_eq!(failed, ["NCCL_IB_HCA", "interfaces"]);
    tree.remove("proc");
    let refused = check(&["--root", &tree.path().display().to_string()]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(refused.stderr.contains("it holds no sys and no proc"), "{refused:?}");
}
