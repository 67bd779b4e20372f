//! What a plugin says of its devices, and what NCCL says of communicators.

use std::ffi::{c_char, c_int};

/// `ncclNetProperties_v6_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PropertiesV6 {
    pub name: *const c_char,
    /// Its PCI device's path in `/sys`; null where it has none.
    pub pci_path: *const c_char,
    /// Tells NICs with several PCI functions apart.
    pub guid: u64,
    /// Kinds of memory that can be sent from: [`super::PTR_HOST`] and others.
    pub ptr_support: c_int,
    pub speed_mbps: c_int,
    /// Number of the port.
    pub port: c_int,
    /// Latency in µs; 0 leaves NCCL's guess.
    pub latency_us: f32,
    /// Most connections at once.
    pub most_connections: c_int,
    /// Most receives in one request.
    pub most_grouped: c_int,
}

/// `ncclNetProperties_v7_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PropertiesV7 {
    /// What version 6 has.
    pub base: PropertiesV6,
    /// Kind of offload; [`super::DEVICE_HOST`] for none.
    pub device_type: c_int,
    /// Version of the offload.
    pub device_version: c_int,
}

/// `ncclNetProperties_v8_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PropertiesV8 {
    pub name: *const c_char,
    /// Its PCI device's path in `/sys`; null where it has none.
    pub pci_path: *const c_char,
    /// Tells NICs with several PCI functions apart.
    pub guid: u64,
    /// Kinds of memory that can be sent from.
    pub ptr_support: c_int,
    /// Whether a registration holds for every connection.
    pub registration_is_global: c_int,
    pub speed_mbps: c_int,
    pub port: c_int,
    /// Latency in µs; 0 leaves NCCL's guess.
    pub latency_us: f32,
    /// Most connections at once.
    pub most_connections: c_int,
    pub most_grouped: c_int,
    pub device_type: c_int,
    pub device_version: c_int,
}

/// `ncclNetVDeviceProps_v9_t` to `_v11_t` with room for 4 devices, `_v12_t` for 8.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VirtualDevice<const MOST: usize> {
    pub count: c_int,
    pub devices: [c_int; MOST],
}

/// `ncclNetProperties_v9_t` and `_v10_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PropertiesV9<const MOST: usize = 4> {
    pub name: *const c_char,
    /// Its PCI device's path in `/sys`; null where it has none.
    pub pci_path: *const c_char,
    /// Tells NICs with several PCI functions apart.
    pub guid: u64,
    /// Kinds of memory that can be sent from.
    pub ptr_support: c_int,
    /// Whether a registration holds for every connection.
    pub registration_is_global: c_int,
    /// Whether `iflush` is needed whatever the GPU.
    pub force_flush: c_int,
    pub speed_mbps: c_int,
    pub port: c_int,
    /// Latency in µs; 0 leaves NCCL's guess.
    pub latency_us: f32,
    /// Most connections at once.
    pub most_connections: c_int,
    pub most_grouped: c_int,
    pub device_type: c_int,
    pub device_version: c_int,
    /// The devices that it is made of: itself alone for a physical one.
    pub made_of: VirtualDevice<MOST>,
    /// Greatest message of a point-to-point operation in bytes.
    pub most_p2p_bytes: usize,
    /// Greatest message of a collective operation in bytes.
    pub most_collective_bytes: usize,
}

/// `ncclNetProperties_v11_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PropertiesV11 {
    /// What version 9 has.
    pub base: PropertiesV9<4>,
    /// Most requests that one call may carry; 1 for none.
    pub most_multi_request: c_int,
}

/// `ncclNetProperties_v12_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PropertiesV12 {
    /// What version 9 has, with room for 8 devices.
    pub base: PropertiesV9<8>,
    /// Most requests that one call may carry; 1 for none.
    pub most_multi_request: c_int,
    /// Rail of the NIC, [`super::ID_UNDEF`] where it is not known.
    pub rail: i16,
    /// Plane of the NIC, [`super::ID_UNDEF`] where it is not known.
    pub plane: i16,
}

/// `ncclNetCommConfig_v10_t` to `_v12_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommConfig {
    /// The traffic class, [`super::TRAFFIC_CLASS_UNDEF`] for none.
    pub traffic_class: c_int,
}

/// `ncclNetCommAttr_v11_t` and `_v12_t`: how one side will be used; −1 is not known.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SideAttributes {
    /// Most peers at once.
    pub most_peers: i32,
    /// Fewest peers at once.
    pub fewest_peers: i32,
    /// Most flows to a peer.
    pub most_flows: i32,
    /// Fewest flows to a peer.
    pub fewest_flows: i32,
}

/// `ncclNetAttr_v11_t` and `_v12_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetAttributes {
    pub send: SideAttributes,
    pub receive: SideAttributes,
    /// The operation, a bit each.
    pub operation: u32,
    /// The algorithm, a bit each.
    pub algorithm: u32,
    /// The protocol, a bit each.
    pub protocol: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    /// Sizes and offsets as a C compiler gives them on 64-bit Linux; `tests` of `nccl-net` compare with a real one.
    #[test]
    fn layouts_are_those_of_c() {
        assert_eq!(size_of::<PropertiesV6>(), 48);
        assert_eq!(size_of::<PropertiesV7>(), 56);
        assert_eq!(size_of::<PropertiesV8>(), 64);
        assert_eq!(offset_of!(PropertiesV9<4>, made_of), 64);
        assert_eq!(size_of::<PropertiesV9<4>>(), 104);
        assert_eq!(size_of::<PropertiesV11>(), 112);
        assert_eq!(size_of::<PropertiesV12>(), 128);
        assert_eq!(offset_of!(PropertiesV12, rail), 124);
        assert_eq!(size_of::<NetAttributes>(), 44);
    }
}
