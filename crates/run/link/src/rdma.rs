//! What RDMA runs on at this host: device, port and GID, checked before perftest is started, so that one line says what is
//! wrong.

use crate::plan::RdmaChoice;
use busbw_probe::Root;
use serde::{Deserialize, Serialize};

const DEVICES: &str = "/sys/class/infiniband";
const ROCE_V2: &str = "RoCE v2";

/// One port of one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RdmaEnd {
    pub device: String,
    pub port: u32,
    /// None on InfiniBand, where addresses need no GID.
    pub gid_index: Option<u32>,
    /// What the port runs at; none for devices of software, whose figure means nothing.
    pub rate_gbit_s: Option<f64>,
    pub hardware: bool,
    /// What keeps RoCE lossless here, in words.
    pub quality_of_service: Option<String>,
}

/// Whether this host has any.
pub(crate) fn has_device(root: &Root) -> bool {
    !root.list(DEVICES).is_empty()
}

/// Finds the port that the rank number `local_rank` of this host uses.
pub(crate) fn find(root: &Root, choice: &RdmaChoice, local_rank: usize) -> Result<RdmaEnd, String> {
    let devices = root.list(DEVICES);
    if devices.is_empty() {
        return Err(format!("no RDMA device ({DEVICES} is empty): load the NIC's driver, or measure with --tcp"));
    }
    let (device, port) = if choice.devices.is_empty() {
        first_active(root, &devices, local_rank)?
    } else {
        named(root, &devices, &choice.devices[local_rank % choice.devices.len()])?
    };
    let folder = folder(&device, port);
    let state = root.value(&format!("{folder}/state")).unwrap_or_default();
    if !state.ends_with("ACTIVE") {
        let state = state.rsplit(' ').next().unwrap_or_default();
        return Err(format!(
            "port {port} of {device} is {state}, not ACTIVE: connect its cable, bring its interface up, or choose another \
             with --devices"
        ));
    }
    let gid_index = gid_index(root, &device, port, choice.gid_index)?;
    let node = format!("{DEVICES}/{device}");
    // Soft-RoCE and Soft-iWARP have no device behind them, or name the interface that they run on as their parent.
    let hardware = root.exists(&format!("{node}/device")) && !root.exists(&format!("{node}/parent"));
    let rate_gbit_s = root.value(&format!("{folder}/rate")).and_then(|text| rate(&text)).filter(|_| hardware);
    let settings = busbw_probe::quality_of_service(root, &device, port).join(", ");
    let quality_of_service = Some(settings).filter(|settings| !settings.is_empty());
    Ok(RdmaEnd { device, port, gid_index, rate_gbit_s, hardware, quality_of_service })
}

fn folder(device: &str, port: u32) -> String {
    format!("{DEVICES}/{device}/ports/{port}")
}

fn ports(root: &Root, device: &str) -> Vec<u32> {
    root.list(&format!("{DEVICES}/{device}/ports")).iter().filter_map(|name| name.parse().ok()).collect()
}

fn first_active(root: &Root, devices: &[String], local_rank: usize) -> Result<(String, u32), String> {
    let all: Vec<(String, u32)> =
        devices.iter().flat_map(|name| ports(root, name).into_iter().map(|port| (name.clone(), port))).collect();
    let active = |(device, port): &&(String, u32)| {
        root.value(&format!("{}/state", folder(device, *port))).is_some_and(|state| state.ends_with("ACTIVE"))
    };
    let active: Vec<&(String, u32)> = all.iter().filter(active).collect();
    // Without an active one, the first says what is wrong.
    let chosen = active.get(local_rank % active.len().max(1)).copied().or(all.first());
    chosen.cloned().ok_or_else(|| format!("{} has no port: look at its driver in the kernel's log", devices.join(", ")))
}

/// `mlx5_0`, or `mlx5_0:2`.
fn named(root: &Root, devices: &[String], wanted: &str) -> Result<(String, u32), String> {
    let (name, port) = wanted.split_once(':').unwrap_or((wanted, "1"));
    if !devices.iter().any(|device| device == name) {
        return Err(format!("no RDMA device {name}; this host has {}: correct --devices", devices.join(", ")));
    }
    let there = ports(root, name);
    match port.parse().ok().filter(|port| there.contains(port)) {
        Some(port) => Ok((name.to_owned(), port)),
        None => Err(format!("{name} has no port {port}, but {}: correct --devices", join(&there))),
    }
}

/// The GID index to use: that asked for if there is a GID, else the first RoCE v2 one of an IPv4 address, else any RoCE v2
/// one. As NCCL chooses since 2.21 (`ncclIbGetGidIndex` in its `src/transport/net_ib.cc`).
fn gid_index(root: &Root, device: &str, port: u32, wanted: Option<u32>) -> Result<Option<u32>, String> {
    let folder = folder(device, port);
    let gid = |index: &u32| {
        root.value(&format!("{folder}/gids/{index}")).filter(|gid| gid.chars().any(|c| !matches!(c, '0' | ':')))
    };
    let indices: Vec<u32> = root.list(&format!("{folder}/gids")).iter().filter_map(|name| name.parse().ok()).collect();
    let is_v2 =
        |index: &&u32| root.value(&format!("{folder}/gid_attrs/types/{index}")).is_some_and(|kind| kind == ROCE_V2);
    let roce_v2: Vec<u32> = indices.iter().filter(|index| gid(index).is_some()).filter(is_v2).copied().collect();
    if let Some(index) = wanted {
        return match gid(&index) {
            Some(_) => Ok(Some(index)),
            None if roce_v2.is_empty() => Err(format!("{device} has no GID at index {index}: correct --gid-index")),
            None => Err(format!(
                "{device} has no GID at index {index}; its RoCE v2 GIDs are at {}: correct --gid-index, or leave it away",
                join(&roce_v2)
            )),
        };
    }
    if root.value(&format!("{folder}/link_layer")).is_some_and(|layer| layer == "InfiniBand") {
        return Ok(None);
    }
    // An IPv4 address is mapped: ::ffff:a.b.c.d.
    let is_ipv4 = |index: &&u32| gid(index).is_some_and(|gid| gid.starts_with("0000:0000:0000:0000:0000:ffff:"));
    let chosen = roce_v2.iter().find(is_ipv4).or(roce_v2.first()).copied();
    chosen.map(Some).ok_or_else(|| {
        format!("port {port} of {device} has no RoCE v2 GID: give its interface an IP address, or choose one with --gid-index")
    })
}

/// `100 Gb/sec (4X EDR)`.
fn rate(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once(' ')?;
    unit.starts_with("Gb/sec").then(|| number.parse().ok()).flatten()
}

fn join(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A host with a RoCE NIC whose IPv4 GID is at 3, one that is down, and an InfiniBand NIC.
    fn host() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let zero = "0000:0000:0000:0000:0000:0000:0000:0000";
        let v6 = "fe80:0000:0000:0000:ae1f:6bff:fe00:0001";
        let v4 = "0000:0000:0000:0000:0000:ffff:0a00:0001";
        for (device, state, layer) in [
            ("mlx5_0", "4: ACTIVE", "Ethernet"),
            ("mlx5_1", "1: DOWN", "Ethernet"),
            ("mlx5_2", "4: ACTIVE", "InfiniBand"),
        ] {
            let port = format!("sys/class/infiniband/{device}/ports/1");
            write(folder.path(), &format!("sys/class/infiniband/{device}/device/vendor"), "0x15b3\n");
            write(folder.path(), &format!("{port}/state"), state);
            write(folder.path(), &format!("{port}/link_layer"), layer);
            write(folder.path(), &format!("{port}/rate"), "100 Gb/sec (4X EDR)\n");
            for (index, (gid, kind)) in
                [(v6, "IB/RoCE v1"), (v6, "RoCE v2"), (v4, "IB/RoCE v1"), (v4, "RoCE v2"), (zero, "")]
                    .iter()
                    .enumerate()
            {
                write(folder.path(), &format!("{port}/gids/{index}"), gid);
                write(folder.path(), &format!("{port}/gid_attrs/types/{index}"), kind);
            }
        }
        let root = Root::captured(folder.path()).unwrap();
        (folder, root)
    }

    fn choice(devices: &[&str], gid_index: Option<u32>) -> RdmaChoice {
        RdmaChoice { devices: devices.iter().map(|name| name.to_string()).collect(), gid_index }
    }

    #[test]
    fn finds_device_port_and_gid() {
        let (_folder, root) = host();
        for (choice, local_rank, device, gid_index) in [
            (choice(&[], None), 0, "mlx5_0", Some(3)),
            (choice(&[], None), 1, "mlx5_2", None),
            (choice(&[], None), 2, "mlx5_0", Some(3)),
            (choice(&["mlx5_0:1"], Some(1)), 0, "mlx5_0", Some(1)),
            (choice(&["mlx5_0", "mlx5_2"], None), 1, "mlx5_2", None),
        ] {
            let rate_gbit_s = Some(100.0);
            let expected = RdmaEnd {
                device: device.into(),
                port: 1,
                gid_index,
                rate_gbit_s,
                hardware: true,
                quality_of_service: None,
            };
            assert_eq!(find(&root, &choice, local_rank), Ok(expected), "{choice:?} {local_rank}");
        }
    }

    #[test]
    fn one_line_says_what_is_wrong() {
        let (_folder, root) = host();
        for (choice, says) in [
            (choice(&["mlx5_1"], None), "port 1 of mlx5_1 is DOWN, not ACTIVE"),
            (choice(&["mlx5_9"], None), "no RDMA device mlx5_9; this host has mlx5_0, mlx5_1, mlx5_2"),
            (choice(&["mlx5_0:2"], None), "mlx5_0 has no port 2, but 1"),
            (choice(&["mlx5_0"], Some(4)), "mlx5_0 has no GID at index 4; its RoCE v2 GIDs are at 1, 3"),
            (choice(&["mlx5_0"], Some(77)), "no GID at index 77"),
        ] {
            let error = find(&root, &choice, 0).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        let empty = tempfile::tempdir().unwrap();
        let error = find(&Root::captured(empty.path()).unwrap(), &choice(&[], None), 0).unwrap_err();
        assert!(error.contains("no RDMA device"), "{error}");
    }
}
