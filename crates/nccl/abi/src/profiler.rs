//! The interface of profiler plugins, `ncclProfiler_v1_t` to `ncclProfiler_v6_t` (`src/include/plugin/profiler/profiler_v*.h` and
//! `src/include/plugin/nccl_profiler.h`, NCCL 2.30.7).
//!
//! | version | newest that NCCL loads | what it brought |
//! | --- | --- | --- |
//! | 1 | 2.23 to 2.25 | functions, datatypes, algorithms as numbers |
//! | 2 | 2.26 | their names instead |
//! | 3 | 2.26 | the GPU's kernels, the network plugin's events |
//! | 4 | 2.27 | the communicator at `init`; the GPU's time, bytes of a step, the wait for the receiver |
//! | 5 | 2.28 | the application's calls, CUDA graphs |
//! | 6 | 2.29, 2.30 | copy engines |
//!
//! NCCL looks for the newest it knows (`src/plugin/profiler.cc`) and translates to older ones (`src/plugin/profiler/profiler_v*.cc`).
//! What `startEvent` writes as a handle is the plugin's own: NCCL hands it back and never looks at it.

use crate::{Logger, NcclResult};
use std::ffi::{c_char, c_int, c_void};

/// Kinds of events: bits of a descriptor's `kind` and of the mask.
pub mod kinds {
    pub const GROUP: u64 = 1 << 0;
    pub const COLLECTIVE: u64 = 1 << 1;
    pub const P2P: u64 = 1 << 2;
    pub const PROXY_OPERATION: u64 = 1 << 3;
    pub const PROXY_STEP: u64 = 1 << 4;
    pub const PROXY_CONTROL: u64 = 1 << 5;
    pub const KERNEL: u64 = 1 << 6;
    pub const NET_PLUGIN: u64 = 1 << 7;
    pub const GROUP_CALL: u64 = 1 << 8;
    pub const COLLECTIVE_CALL: u64 = 1 << 9;
    pub const P2P_CALL: u64 = 1 << 10;
    pub const KERNEL_LAUNCH: u64 = 1 << 11;
    pub const COPY_ENGINE: u64 = 1 << 12;
}

/// States (`ncclProfilerEventState_t`).
pub mod states {
    use std::ffi::c_int;

    pub const SEND_GPU_WAIT: c_int = 8;
    pub const SEND_WAIT: c_int = 9;
    pub const RECV_WAIT: c_int = 10;
    pub const RECV_FLUSH_WAIT: c_int = 11;
    pub const RECV_GPU_WAIT: c_int = 12;
    pub const CONTROL_IDLE: c_int = 13;
    pub const CONTROL_ACTIVE: c_int = 14;
    pub const PROXY_IN_PROGRESS: c_int = 19;
    pub const SEND_PEER_WAIT: c_int = 20;
    pub const NET_PLUGIN_UPDATE: c_int = 21;
    pub const KERNEL_STOP: c_int = 22;
    pub const GROUP_START_STOP: c_int = 23;
    pub const GROUP_END_START: c_int = 24;
}

/// An event that begins: `ncclProfilerEventDescr_v*_t`. `K` is a byte up to 4, eight since 5.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Descriptor<K, D> {
    pub kind: K,
    /// The handle of what this is part of.
    pub parent: *mut c_void,
    pub rank: c_int,
    pub of: D,
}

/// What all versions tell of a proxy operation.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ProxyOperation {
    /// The process that made the parent.
    pub process: c_int,
    pub channel: u8,
    pub peer: c_int,
    pub steps: c_int,
    pub chunk: c_int,
    pub sends: c_int,
}

/// A collective, as 1 has it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CollectiveV1 {
    pub name: *const c_char,
    pub communicator: u64,
    pub sequence: u64,
    pub function: u8,
    pub send: *const c_void,
    pub receive: *mut c_void,
    pub count: usize,
    pub root: c_int,
    pub datatype: u8,
    pub operator: u32,
    pub traffic: usize,
    pub channels: u8,
    pub warps: u8,
    pub algorithm: u8,
    pub protocol: u8,
    pub collnet: c_int,
    pub nvls: c_int,
}

/// A send or receive, as 1 has it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct P2pV1 {
    pub name: *const c_char,
    pub communicator: u64,
    pub function: u8,
    pub buffer: *mut c_void,
    pub datatype: u8,
    pub count: usize,
    pub peer: c_int,
}

/// A collective with the names of things; `T` is a size in 2, and nothing later.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Named<T> {
    pub sequence: u64,
    pub function: *const c_char,
    pub send: *const c_void,
    pub receive: *mut c_void,
    pub count: usize,
    pub root: c_int,
    pub datatype: *const c_char,
    pub traffic: T,
    pub channels: u8,
    pub warps: u8,
    pub algorithm: *const c_char,
    pub protocol: *const c_char,
}

/// A collective of 2 and 3, which name its communicator.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct OfCommunicator<C> {
    pub name: *const c_char,
    pub communicator: u64,
    pub what: C,
}

/// A send or receive with the names of things, of 2 and 3 behind the communicator's.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct P2p {
    pub function: *const c_char,
    pub buffer: *mut c_void,
    pub datatype: *const c_char,
    pub count: usize,
    pub peer: c_int,
}

/// A collective of 5, which names its group behind all that 4 has.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CollectiveOfGroup {
    pub what: Named<()>,
    pub group: *mut c_void,
}

/// A send or receive of 5: what 4 has, on how many channels, and its group.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct P2pOfGroup {
    pub function: *const c_char,
    pub buffer: *mut c_void,
    pub datatype: *const c_char,
    pub count: usize,
    pub peer: c_int,
    pub channels: u8,
    pub group: *mut c_void,
}

/// Calls of the application's that belong together.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct GroupCall {
    pub captured: bool,
    pub depth: c_int,
}

/// What the GPU tells of a channel; `timer` since 4.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    pub channel: u8,
    pub timer: u64,
}

/// An event of a network plugin, whose number says of which and what `data` is.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NetPlugin {
    pub plugin: i64,
    pub data: *mut c_void,
}

/// A call of the application's to a collective.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CollectiveCall {
    pub function: *const c_char,
    pub count: usize,
    pub datatype: *const c_char,
    pub root: c_int,
    pub stream: *mut c_void,
    pub captured: bool,
}

/// A call of the application's to send or receive.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct P2pCall {
    pub function: *const c_char,
    pub count: usize,
    pub datatype: *const c_char,
    pub stream: *mut c_void,
    pub captured: bool,
}

/// A collective of the copy engines.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CopyEngine {
    pub sequence: u64,
    pub function: *const c_char,
    pub send: *const c_void,
    pub receive: *mut c_void,
    pub count: usize,
    pub root: c_int,
    pub datatype: *const c_char,
    pub strategy: *const c_char,
    pub within_batches: bool,
    pub batch: u32,
    pub batches: u32,
    pub number: u32,
    pub stream: *mut c_void,
}

/// What `of` is in 1.
#[repr(C)]
#[derive(Clone, Copy)]
pub union OfV1 {
    pub collective: CollectiveV1,
    pub p2p: P2pV1,
    pub proxy_operation: ProxyOperation,
    pub proxy_step: c_int,
}

/// What `of` is in 2.
#[repr(C)]
#[derive(Clone, Copy)]
pub union OfV2 {
    pub collective: OfCommunicator<Named<usize>>,
    pub p2p: OfCommunicator<P2p>,
    pub proxy_operation: ProxyOperation,
    pub proxy_step: c_int,
}

/// What `of` is in 3.
#[repr(C)]
#[derive(Clone, Copy)]
pub union OfV3 {
    pub collective: OfCommunicator<Named<()>>,
    pub p2p: OfCommunicator<P2p>,
    pub proxy_operation: ProxyOperation,
    pub proxy_step: c_int,
    pub kernel: u8,
    pub net_plugin: NetPlugin,
}

/// What `of` is in 4.
#[repr(C)]
#[derive(Clone, Copy)]
pub union OfV4 {
    pub collective: Named<()>,
    pub p2p: P2p,
    pub proxy_operation: ProxyOperation,
    pub proxy_step: c_int,
    pub kernel: Kernel,
    pub net_plugin: NetPlugin,
}

/// What `of` is in 5.
#[repr(C)]
#[derive(Clone, Copy)]
pub union OfV5 {
    pub v4: OfV4,
    pub collective: CollectiveOfGroup,
    pub p2p: P2pOfGroup,
    pub group_call: GroupCall,
    /// The stream.
    pub kernel_launch: *mut c_void,
    pub collective_call: CollectiveCall,
    pub p2p_call: P2pCall,
}

/// What `of` is in 6.
#[repr(C)]
#[derive(Clone, Copy)]
pub union OfV6 {
    pub v5: OfV5,
    pub copy_engine: CopyEngine,
}

pub type DescriptorV1 = Descriptor<u8, OfV1>;
pub type DescriptorV2 = Descriptor<u8, OfV2>;
pub type DescriptorV3 = Descriptor<u8, OfV3>;
pub type DescriptorV4 = Descriptor<u8, OfV4>;
pub type DescriptorV5 = Descriptor<u64, OfV5>;
pub type DescriptorV6 = Descriptor<u64, OfV6>;

/// What comes with a state, of all versions: 1 to 3 have nothing there that is used.
#[repr(C)]
#[derive(Clone, Copy)]
pub union StateArguments {
    /// Bytes of a step.
    pub bytes: usize,
    /// Of a network plugin.
    pub data: *mut c_void,
    /// The GPU's time.
    pub timer: u64,
}

/// `init` of 1 to 3.
pub type Init = Option<unsafe extern "C" fn(context: *mut *mut c_void, mask: *mut c_int) -> NcclResult>;
/// `init` of 4.
pub type InitV4 = Option<
    unsafe extern "C" fn(
        context: *mut *mut c_void,
        mask: *mut c_int,
        name: *const c_char,
        communicator: u64,
        nodes: c_int,
        ranks: c_int,
        rank: c_int,
        log: Option<Logger>,
    ) -> NcclResult,
>;
/// `init` since 5.
pub type InitV5 = Option<
    unsafe extern "C" fn(
        context: *mut *mut c_void,
        communicator: u64,
        mask: *mut c_int,
        name: *const c_char,
        nodes: c_int,
        ranks: c_int,
        rank: c_int,
        log: Option<Logger>,
    ) -> NcclResult,
>;
/// `startEvent`.
pub type Start<D> =
    Option<unsafe extern "C" fn(context: *mut c_void, handle: *mut *mut c_void, descriptor: *const D) -> NcclResult>;
/// `stopEvent`.
pub type Stop = Option<unsafe extern "C" fn(handle: *mut c_void) -> NcclResult>;
/// `recordEventState`.
pub type RecordState =
    Option<unsafe extern "C" fn(handle: *mut c_void, state: c_int, arguments: *const StateArguments) -> NcclResult>;
pub type Finalize = Option<unsafe extern "C" fn(context: *mut c_void) -> NcclResult>;

/// `ncclProfiler_v1_t` to `ncclProfiler_v6_t`: they differ in the forms of two functions.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Profiler<I, D> {
    /// The profiler's name, for logs.
    pub name: *const c_char,
    pub init: I,
    pub start: Start<D>,
    pub stop: Stop,
    pub record_state: RecordState,
    pub finalize: Finalize,
}

pub type ProfilerV1 = Profiler<Init, DescriptorV1>;
pub type ProfilerV2 = Profiler<Init, DescriptorV2>;
pub type ProfilerV3 = Profiler<Init, DescriptorV3>;
pub type ProfilerV4 = Profiler<InitV4, DescriptorV4>;
pub type ProfilerV5 = Profiler<InitV5, DescriptorV5>;
pub type ProfilerV6 = Profiler<InitV5, DescriptorV6>;

// SAFETY: a table is constant: a pointer to a constant name, and pointers to functions.
unsafe impl<I, D> Sync for Profiler<I, D> {}
