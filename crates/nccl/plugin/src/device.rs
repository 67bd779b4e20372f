//! What NCCL learns about a NIC.

use busbw_nccl_abi::net::{
    DEVICE_HOST, DEVICE_NO_VERSION, ID_UNDEF, MOST_BYTES, PTR_HOST, PropertiesV6, PropertiesV7, PropertiesV8,
    PropertiesV9, PropertiesV11, PropertiesV12, VirtualDevice,
};
use busbw_transport::interfaces::Interface;
use std::ffi::{CString, c_int};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::ptr;

/// A NIC; it lives as long as the process, for NCCL keeps pointers to its name.
pub(crate) struct Device {
    name: CString,
    pci_path: Option<CString>,
    number: c_int,
    speed_mbps: c_int,
}

impl Device {
    /// Where a NIC's driver does not say: NCCL's own guess (`ncclNetSocketGetSpeed`).
    const SPEED_MBPS: c_int = 10_000;
    /// What NCCL's own socket transport says.
    const MOST_CONNECTIONS: c_int = 65_536;
    /// A group of receives is done as a whole, and NCCL lets the pairs of ranks that share a connection run apart, trusting
    /// that a send waits for the group it belongs to (`sendProxyConnect`, `recvProxyProgress` in `src/transport/net.cc`).
    /// Over TCP that would cost a message back per receive; with 1, each pair has a connection of its own.
    const MOST_GROUPED: c_int = 1;

    pub fn new(number: usize, interface: &Interface) -> Self {
        let pci = pci_path(&Path::new("/sys/class/net").join(&interface.name).join("device"));
        let speed = interface.speed_mbps.and_then(|speed| c_int::try_from(speed).ok());
        Device {
            name: CString::new(interface.name.as_str()).unwrap_or_default(),
            pci_path: pci.and_then(|path| CString::new(path.into_os_string().into_vec()).ok()),
            number: number as c_int,
            speed_mbps: speed.unwrap_or(Self::SPEED_MBPS),
        }
    }

    /// What versions 9 to 12 have in common.
    fn properties<const MOST: usize>(&self) -> PropertiesV9<MOST> {
        let mut devices = [0; MOST];
        devices[0] = self.number;
        let PropertiesV8 { name, pci_path, guid, .. } = self.into();
        PropertiesV9 {
            name,
            pci_path,
            guid,
            ptr_support: PTR_HOST,
            registration_is_global: 0,
            force_flush: 0,
            speed_mbps: self.speed_mbps,
            port: 0,
            latency_us: 0.0,
            most_connections: Self::MOST_CONNECTIONS,
            most_grouped: Self::MOST_GROUPED,
            device_type: DEVICE_HOST,
            device_version: DEVICE_NO_VERSION,
            made_of: VirtualDevice { count: 1, devices },
            most_p2p_bytes: MOST_BYTES,
            most_collective_bytes: MOST_BYTES,
        }
    }
}

/// The PCI device of a NIC: its own, or for one behind a bus such as virtio's that of the bus. NCCL attaches what is not on PCI
/// to the first CPU (`ncclTopoFillNet` in `src/graph/xml.cc`), however near to a GPU it is.
fn pci_path(device: &Path) -> Option<PathBuf> {
    let is_pci = |device: &&Path| device.join("subsystem").canonicalize().is_ok_and(|bus| bus.ends_with("pci"));
    device.canonicalize().ok()?.ancestors().find(is_pci).map(Path::to_owned)
}

impl From<&Device> for PropertiesV6 {
    fn from(device: &Device) -> Self {
        PropertiesV6 {
            name: device.name.as_ptr(),
            pci_path: device.pci_path.as_ref().map_or(ptr::null(), |path| path.as_ptr()),
            // One port each, so that the number distinguishes them, as with NCCL's own socket transport.
            guid: device.number as u64,
            ptr_support: PTR_HOST,
            speed_mbps: device.speed_mbps,
            port: 0,
            latency_us: 0.0,
            most_connections: Device::MOST_CONNECTIONS,
            most_grouped: Device::MOST_GROUPED,
        }
    }
}

impl From<&Device> for PropertiesV7 {
    fn from(device: &Device) -> Self {
        PropertiesV7 { base: device.into(), device_type: DEVICE_HOST, device_version: DEVICE_NO_VERSION }
    }
}

impl From<&Device> for PropertiesV8 {
    fn from(device: &Device) -> Self {
        let base = PropertiesV6::from(device);
        PropertiesV8 {
            name: base.name,
            pci_path: base.pci_path,
            guid: base.guid,
            ptr_support: base.ptr_support,
            // Nothing is registered. Were it said to be global, NCCL (2.20 to 2.23, `ncclNetRegister`) would connect each
            // device to itself only to find that memory of a GPU is not taken.
            registration_is_global: 0,
            speed_mbps: base.speed_mbps,
            port: base.port,
            latency_us: base.latency_us,
            most_connections: base.most_connections,
            most_grouped: base.most_grouped,
            device_type: DEVICE_HOST,
            device_version: DEVICE_NO_VERSION,
        }
    }
}

impl From<&Device> for PropertiesV9<4> {
    fn from(device: &Device) -> Self {
        device.properties()
    }
}

impl From<&Device> for PropertiesV11 {
    fn from(device: &Device) -> Self {
        PropertiesV11 { base: device.properties(), most_multi_request: 1 }
    }
}

impl From<&Device> for PropertiesV12 {
    fn from(device: &Device) -> Self {
        PropertiesV12 { base: device.properties(), most_multi_request: 1, rail: ID_UNDEF, plane: ID_UNDEF }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_pci_device_is_found_behind_other_buses() {
        let sys = tempfile::tempdir().unwrap();
        let root = sys.path().canonicalize().unwrap();
        for bus in ["bus/pci", "bus/virtio", "class/net", "devices/virtual/net/br0"] {
            std::fs::create_dir_all(root.join(bus)).unwrap();
        }
        let function = root.join("devices/pci0000:00/0000:00:03.0");
        std::fs::create_dir_all(function.join("virtio1")).unwrap();
        symlink(root.join("bus/pci"), function.join("subsystem")).unwrap();
        symlink(root.join("bus/virtio"), function.join("virtio1/subsystem")).unwrap();
        for (name, device) in [("eth0", function.join("virtio1")), ("eth1", function.clone())] {
            symlink(device, root.join("class/net").join(name)).unwrap();
            assert_eq!(pci_path(&root.join("class/net").join(name)), Some(function.clone()), "{name}");
        }
        assert_eq!(pci_path(&root.join("devices/virtual/net/br0")), None);
        assert_eq!(pci_path(&root.join("class/net/none")), None);
    }
}
