//! The interface of `libnccl.so` itself (`src/nccl.h.in`), as far as a benchmark calls it: 2.18 to 2.30.

use crate::NcclResult;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// Bytes of [`UniqueId`] (`NCCL_UNIQUE_ID_BYTES`).
pub const UNIQUE_ID_BYTES: usize = 128;

/// `ncclUniqueId`: how the ranks of a communicator find one another. Passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId {
    /// What rank 0 got, for all others to have the same.
    pub internal: [u8; UNIQUE_ID_BYTES],
}

/// `ncclComm_t`.
pub type Comm = *mut c_void;
/// `ncclWindow_t`, since 2.27.
pub type Window = *mut c_void;
/// `cudaStream_t`, which is the driver's `CUstream`.
pub type Stream = *mut c_void;

/// `ncclDataType_t`.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataType(pub c_int);

impl DataType {
    pub const INT8: Self = DataType(0);
    pub const UINT8: Self = DataType(1);
    pub const INT32: Self = DataType(2);
    pub const UINT32: Self = DataType(3);
    pub const INT64: Self = DataType(4);
    pub const UINT64: Self = DataType(5);
    pub const FLOAT16: Self = DataType(6);
    pub const FLOAT32: Self = DataType(7);
    pub const FLOAT64: Self = DataType(8);
    pub const BFLOAT16: Self = DataType(9);
    /// Since 2.24.
    pub const FLOAT8_E4M3: Self = DataType(10);
    /// Since 2.24.
    pub const FLOAT8_E5M2: Self = DataType(11);
}

/// `ncclRedOp_t`: one of these, or what `ncclRedOpCreatePreMulSum` gave.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedOp(pub c_int);

impl RedOp {
    pub const SUM: Self = RedOp(0);
    pub const PROD: Self = RedOp(1);
    pub const MAX: Self = RedOp(2);
    pub const MIN: Self = RedOp(3);
    pub const AVG: Self = RedOp(4);
}

/// `ncclScalarHostImmediate`: the scalar of `ncclRedOpCreatePreMulSum` is in the host's memory and read at once.
pub const SCALAR_HOST_IMMEDIATE: c_int = 1;

/// `NCCL_WIN_COLL_SYMMETRIC`: the buffers of all ranks are registered as one window.
pub const WINDOW_SYMMETRIC: c_int = 0x01;

/// `NCCL_CONFIG_UNDEF_INT`: NCCL's own default.
pub const UNDEFINED: c_int = c_int::MIN;

/// `ncclConfig_t` of 2.30. Older versions read as many bytes of it as their own has: members were only ever appended
/// (`ncclConfig_v21700`, `v22700`, `v22800`, `v23000`).
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Bytes of this struct.
    pub size: usize,
    /// `NCCL_API_MAGIC`.
    pub magic: c_uint,
    /// The version of NCCL that it is filled for: members that came later are not looked at.
    pub version: c_uint,
    /// 0: calls return before they have done their work.
    pub blocking: c_int,
    /// Size of thread block clusters.
    pub cga_cluster_size: c_int,
    /// Least number of thread blocks.
    pub min_ctas: c_int,
    /// Greatest number of thread blocks.
    pub max_ctas: c_int,
    pub net_name: *const c_char,
    /// Whether split communicators share resources.
    pub split_share: c_int,
    /// Traffic class of the network, since 2.25.
    pub traffic_class: c_int,
    /// Name of the communicator, since 2.27.
    pub comm_name: *const c_char,
    /// Whether CollNet is used, since 2.27.
    pub collnet_enable: c_int,
    /// `NCCL_CTA_POLICY_*`, since 2.27.
    pub cta_policy: c_int,
    /// Whether shrunk communicators share resources, since 2.27.
    pub shrink_share: c_int,
    /// Thread blocks for NVLS, since 2.27.
    pub nvls_ctas: c_int,
    /// Channels per peer on the network, since 2.28.
    pub channels_per_net_peer: c_int,
    /// Whether NVLink decides the schedule, since 2.28: nccl-tests sets 1.
    pub nvlink_centric_sched: c_int,
    /// How graphs are used, since 2.29.
    pub graph_usage_mode: c_int,
    /// Contexts for one-sided operations, since 2.29.
    pub rma_contexts: c_int,
    /// Most peers of point-to-point operations, since 2.30.
    pub max_p2p_peers: c_int,
    /// Order of streams in graphs, since 2.30.
    pub graph_stream_ordering: c_int,
}

impl Config {
    /// `NCCL_API_MAGIC`.
    pub const MAGIC: c_uint = 0xcafe_beef;

    /// Defaults all over, for a library of this version (as `ncclGetVersion` tells it).
    pub fn for_version(version: c_int) -> Self {
        Config {
            size: size_of::<Config>(),
            magic: Self::MAGIC,
            version: version.max(0).cast_unsigned(),
            blocking: UNDEFINED,
            cga_cluster_size: UNDEFINED,
            min_ctas: UNDEFINED,
            max_ctas: UNDEFINED,
            net_name: std::ptr::null(),
            split_share: UNDEFINED,
            traffic_class: UNDEFINED,
            comm_name: std::ptr::null(),
            collnet_enable: UNDEFINED,
            cta_policy: UNDEFINED,
            shrink_share: UNDEFINED,
            nvls_ctas: UNDEFINED,
            channels_per_net_peer: UNDEFINED,
            nvlink_centric_sched: UNDEFINED,
            graph_usage_mode: UNDEFINED,
            rma_contexts: UNDEFINED,
            max_p2p_peers: UNDEFINED,
            graph_stream_ordering: UNDEFINED,
        }
    }
}

/// `ncclGetVersion`: 22707 for 2.27.7.
pub type GetVersion = unsafe extern "C" fn(version: *mut c_int) -> NcclResult;
pub type GetUniqueId = unsafe extern "C" fn(id: *mut UniqueId) -> NcclResult;
/// `ncclCommInitRankConfig`.
pub type CommInitRankConfig =
    unsafe extern "C" fn(comm: *mut Comm, nranks: c_int, id: UniqueId, rank: c_int, config: *mut Config) -> NcclResult;
/// `ncclCommDestroy`, `ncclCommAbort`, `ncclCommFinalize`.
pub type CommEnd = unsafe extern "C" fn(comm: Comm) -> NcclResult;
pub type CommGetAsyncError = unsafe extern "C" fn(comm: Comm, error: *mut NcclResult) -> NcclResult;
/// `ncclGetLastError`: what this process last warned of.
pub type GetLastError = unsafe extern "C" fn(comm: Comm) -> *const c_char;
/// `ncclGroupStart`, `ncclGroupEnd`.
pub type Group = unsafe extern "C" fn() -> NcclResult;
/// `ncclAllReduce`, `ncclReduceScatter`.
pub type Reducing = unsafe extern "C" fn(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: DataType,
    op: RedOp,
    comm: Comm,
    stream: Stream,
) -> NcclResult;
/// `ncclReduce`.
pub type Reduce = unsafe extern "C" fn(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: DataType,
    op: RedOp,
    root: c_int,
    comm: Comm,
    stream: Stream,
) -> NcclResult;
/// `ncclBroadcast`; `ncclGather` and `ncclScatter` since 2.28.
pub type Rooted = unsafe extern "C" fn(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: DataType,
    root: c_int,
    comm: Comm,
    stream: Stream,
) -> NcclResult;
/// `ncclAllGather`; `ncclAlltoAll` since 2.28.
pub type CopyCollective = unsafe extern "C" fn(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    datatype: DataType,
    comm: Comm,
    stream: Stream,
) -> NcclResult;
/// `ncclSend`.
pub type Send = unsafe extern "C" fn(
    buffer: *const c_void,
    count: usize,
    datatype: DataType,
    peer: c_int,
    comm: Comm,
    stream: Stream,
) -> NcclResult;
/// `ncclRecv`.
pub type Recv = unsafe extern "C" fn(
    buffer: *mut c_void,
    count: usize,
    datatype: DataType,
    peer: c_int,
    comm: Comm,
    stream: Stream,
) -> NcclResult;
/// `ncclRedOpCreatePreMulSum`.
pub type RedOpCreatePreMulSum = unsafe extern "C" fn(
    op: *mut RedOp,
    scalar: *mut c_void,
    datatype: DataType,
    residence: c_int,
    comm: Comm,
) -> NcclResult;
pub type RedOpDestroy = unsafe extern "C" fn(op: RedOp, comm: Comm) -> NcclResult;
/// `ncclMemAlloc`, since 2.19.
pub type MemAlloc = unsafe extern "C" fn(pointer: *mut *mut c_void, bytes: usize) -> NcclResult;
/// `ncclMemFree`, since 2.19.
pub type MemFree = unsafe extern "C" fn(pointer: *mut c_void) -> NcclResult;
/// `ncclCommRegister`, since 2.19.
pub type CommRegister =
    unsafe extern "C" fn(comm: Comm, buffer: *mut c_void, bytes: usize, handle: *mut *mut c_void) -> NcclResult;
/// `ncclCommDeregister`, since 2.19.
pub type CommDeregister = unsafe extern "C" fn(comm: Comm, handle: *mut c_void) -> NcclResult;
/// `ncclCommWindowRegister`, since 2.27; every rank calls it.
pub type CommWindowRegister = unsafe extern "C" fn(
    comm: Comm,
    buffer: *mut c_void,
    bytes: usize,
    window: *mut Window,
    flags: c_int,
) -> NcclResult;
/// `ncclCommWindowDeregister`, since 2.27.
pub type CommWindowDeregister = unsafe extern "C" fn(comm: Comm, window: Window) -> NcclResult;

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// The offsets that C gives on 64-bit machines: a library of any version reads its own members.
    #[test]
    fn the_configuration_lies_as_in_c() {
        assert_eq!(offset_of!(Config, net_name), 32);
        assert_eq!(offset_of!(Config, split_share), 40);
        assert_eq!(offset_of!(Config, comm_name), 48);
        assert_eq!(offset_of!(Config, cta_policy), 60);
        assert_eq!(offset_of!(Config, nvlink_centric_sched), 76);
        assert_eq!((offset_of!(Config, graph_stream_ordering), size_of::<Config>()), (92, 96));
        assert_eq!(size_of::<UniqueId>(), UNIQUE_ID_BYTES);
    }
}
