//! The tables of functions that a plugin exports as `ncclNetPlugin_v6` to `ncclNetPlugin_v12`.

use super::calls::*;
use super::properties::*;
use std::ffi::{c_char, c_int};

/// `ncclNet_v6_t` to `ncclNet_v12_t`: they differ in the forms of some functions, and in what stands behind those that all have.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Net<Init, Properties, Listen, Connect, Accept, Register, Isend, Irecv, More> {
    /// The network's name, for logs and `NCCL_NET`.
    pub name: *const c_char,
    pub init: Init,
    pub devices: Devices,
    pub properties: GetProperties<Properties>,
    pub listen: Listen,
    pub connect: Connect,
    pub accept: Accept,
    pub register: Register,
    pub register_dmabuf: RegisterDmaBuf,
    pub deregister: DeregisterMemory,
    pub isend: Isend,
    pub irecv: Irecv,
    /// Makes received data visible to the GPU.
    pub iflush: Iflush,
    pub test: Test,
    pub close_send: Close,
    pub close_recv: Close,
    pub close_listen: Close,
    pub more: More,
}

/// What versions 7 and 8 have beside.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Offload {
    /// A registration for code on the GPU.
    pub device_memory: GetDeviceMemory,
    /// Word that code on the GPU took a receive.
    pub recv_consumed: IrecvConsumed,
}

/// What versions 9 and 10 have beside.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct WithVirtual<const MOST: usize> {
    pub offload: Offload,
    pub make_virtual: MakeVirtualDevice<VirtualDevice<MOST>>,
}

/// What versions 11 and 12 have beside.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct WithContext<const MOST: usize> {
    pub devices: WithVirtual<MOST>,
    /// Ends a communicator's context.
    pub finalize: Close,
    /// Tells what NCCL is about to do.
    pub set_attributes: SetAttributes,
}

/// `ncclNet_v6_t`.
pub type NetV6 =
    Net<Init, PropertiesV6, Listen, Connect, Accept, RegisterMemory<c_int>, Isend<c_int>, Irecv<c_int>, ()>;
/// Versions 7 to 9, with sizes of memory and of messages.
type NetWithOffload<Properties, Size, Length, More> = Net<
    Init,
    Properties,
    Listen,
    ConnectWithOffload,
    AcceptWithOffload,
    RegisterMemory<Size>,
    Isend<Length>,
    Irecv<Length>,
    More,
>;
/// `ncclNet_v7_t`.
pub type NetV7 = NetWithOffload<PropertiesV7, c_int, c_int, Offload>;
/// `ncclNet_v8_t`.
pub type NetV8 = NetWithOffload<PropertiesV8, usize, c_int, Offload>;
/// `ncclNet_v9_t`.
pub type NetV9 = NetWithOffload<PropertiesV9<4>, usize, usize, WithVirtual<4>>;
/// Versions since 10.
type NetProfiled<Init, Properties, Listen, Connect, More> = Net<
    Init,
    Properties,
    Listen,
    Connect,
    AcceptWithOffload,
    RegisterMemory<usize>,
    IsendProfiled,
    IrecvProfiled,
    More,
>;
/// `ncclNet_v10_t`.
pub type NetV10 = NetProfiled<InitWithProfiler, PropertiesV9<4>, Listen, ConnectWithConfig, WithVirtual<4>>;
/// `ncclNet_v11_t`.
pub type NetV11 = NetProfiled<InitContext, PropertiesV11, ListenInContext, ConnectInContext, WithContext<4>>;
/// `ncclNet_v12_t`.
pub type NetV12 = NetProfiled<InitContext, PropertiesV12, ListenInContext, ConnectInContext, WithContext<8>>;

// SAFETY: a table is constant: a pointer to a constant name, and pointers to functions.
unsafe impl<I, P, L, C, A, R, S, T, M> Sync for Net<I, P, L, C, A, R, S, T, M> {}
