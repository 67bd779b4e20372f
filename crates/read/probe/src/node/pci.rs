//! PCI functions: their links, the bridges above them, access control (ACS) and the IOMMU.

use crate::Root;
use busbw_model::PcieLink;
use busbw_model::node::{Bridge, Known, PciFunction, PcieSlot};

/// Extended capabilities begin here. Users other than root are shown the first 64 bytes (`pci_read_config` in the kernel's
/// drivers/pci/pci-sysfs.c), root all that there is: no more than this of a bridge that a virtual machine made up.
const EXTENDED: usize = 0x100;
/// PCI Express Base Specification: capability of access control services, and its control bits for source validation and for
/// redirecting requests and completions of one device to another.
const ACS: u16 = 0x000d;
const ACS_REDIRECTS: u16 = 0x01 | 0x04 | 0x08;

/// The function that a link like `/sys/class/net/eth0/device` leads to.
pub(super) fn function(root: &Root, path: &str) -> Option<PciFunction> {
    let path = root.resolve(path)?;
    let (above, address) = path.rsplit_once('/')?;
    if !is_address(address) {
        // A virtio device sits on a PCI function of its own.
        return is_address(above.rsplit('/').next()?).then(|| function(root, above)).flatten();
    }
    let slot = above
        .rsplit('/')
        .next()
        .filter(|name| is_address(name))
        .map(|bridge| PcieSlot { address: bridge.to_owned(), most: link(root, above, "max") });
    Some(PciFunction {
        address: address.to_owned(),
        link: link(root, &path, "current"),
        most: link(root, &path, "max"),
        slot,
        numa_node: root.number::<i64>(&format!("{path}/numa_node")).and_then(|node| u32::try_from(node).ok()),
        iommu: root.value(&format!("{path}/iommu_group/type")),
    })
}

/// `max_link_speed` and `max_link_width`, or those of `current`. Virtual functions say `Unknown` and 0.
fn link(root: &Root, path: &str, which: &str) -> Option<PcieLink> {
    let speed = root.value(&format!("{path}/{which}_link_speed"))?;
    let speed_gts = speed.split(' ').next()?.parse().ok()?;
    let width = root.number(&format!("{path}/{which}_link_width")).filter(|width| (1..=32).contains(width))?;
    Some(PcieLink { speed_gts, width, downgraded: false })
}

/// `0000:17:00.0`.
fn is_address(name: &str) -> bool {
    let parts: Vec<&str> = name.split([':', '.']).collect();
    let hex = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_hexdigit());
    parts.len() == 4 && parts.iter().all(|part| hex(part))
}

/// The bridges above the devices, each once.
pub(super) fn bridges(root: &Root, devices: &[(String, String)]) -> Vec<Bridge> {
    let mut found: Vec<Bridge> = Vec::new();
    for (name, address) in devices {
        let Some(path) = root.resolve(&format!("/sys/bus/pci/devices/{address}")) else { continue };
        let mut above = path.as_str();
        while let Some((rest, _)) = above.rsplit_once('/') {
            above = rest;
            let Some(bridge) = above.rsplit('/').next().filter(|name| is_address(name)) else { break };
            match found.iter_mut().find(|known| known.address == bridge) {
                Some(known) => known.above.push(name.clone()),
                None => found.push(Bridge {
                    address: bridge.to_owned(),
                    acs_redirects: acs(root, above),
                    above: vec![name.clone()],
                }),
            }
        }
    }
    found.sort_by(|a, b| a.address.cmp(&b.address));
    found
}

fn acs(root: &Root, path: &str) -> Known<bool> {
    match root.bytes(&format!("{path}/config")) {
        Err(error) => Known::Unknown(format!("{path}/config: {error}")),
        Ok(config) if config.len() < EXTENDED => {
            Known::Unknown("the kernel shows the whole configuration space to root only".into())
        }
        Ok(config) if config.len() == EXTENDED => Known::Unknown(
            "the bridges have no extended configuration space, as in virtual machines: look on the host".into(),
        ),
        Ok(config) => Known::Known(acs_control(&config).is_some_and(|control| control & ACS_REDIRECTS != 0)),
    }
}

/// The control register of access control, where the device has the capability. A list that leads in circles ends.
fn acs_control(config: &[u8]) -> Option<u16> {
    let word = |at: usize| Some(u16::from_le_bytes([*config.get(at)?, *config.get(at + 1)?]));
    let mut at = EXTENDED;
    for _ in 0..config.len() / 8 {
        if word(at)? == ACS {
            return word(at + 6);
        }
        let next = usize::from(word(at + 2)? >> 4) & !3;
        if next < EXTENDED {
            return None;
        }
        at = next;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration space with a capability of another kind first, then access control.
    fn config(control: u16) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        bytes[0x100..0x104].copy_from_slice(&(0x0001_u32 | 1 << 16 | 0x148 << 20).to_le_bytes());
        bytes[0x148..0x14c].copy_from_slice(&(u32::from(ACS) | 1 << 16).to_le_bytes());
        bytes[0x14e..0x150].copy_from_slice(&control.to_le_bytes());
        bytes
    }

    #[test]
    fn access_control_is_found_in_the_list_of_capabilities() {
        assert_eq!(acs_control(&config(0x1d)), Some(0x1d));
        assert_eq!(acs_control(&config(0)), Some(0));
        assert_eq!(acs_control(&[0; 256]), None);
        assert_eq!(acs_control(&[0xff; 4096]), None);
        let mut circle = vec![0; 4096];
        circle[0x100..0x104].copy_from_slice(&(0x0001_u32 | 0x100 << 20).to_le_bytes());
        assert_eq!(acs_control(&circle), None);
    }

    #[test]
    fn what_cannot_be_read_of_a_bridge_is_told_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::captured(folder.path()).unwrap();
        let told = |bytes: &[u8]| {
            std::fs::write(folder.path().join("config"), bytes).unwrap();
            acs(&root, "")
        };
        assert_eq!(told(&config(0x1d)), Known::Known(true));
        assert!(told(&[0; 64]).why().is_some_and(|why| why.contains("root only")));
        assert!(told(&[0; 256]).why().is_some_and(|why| why.contains("virtual machines")));
    }

    #[test]
    fn addresses_are_told_from_other_names() {
        for (name, is) in [("0000:17:00.0", true), ("pci0000:15", false), ("virtio0", false), ("0000:17:00", false)] {
            assert_eq!(is_address(name), is, "{name}");
        }
    }
}
