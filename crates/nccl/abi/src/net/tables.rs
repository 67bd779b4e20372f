//! The tables of functions that a plugin exports as `ncclNetPlugin_v6` to `ncclNetPlugin_v12`.

use super::calls::*;
use super::properties::*;
use std::ffi::{c_char, c_int};

/// `ncclNet_v6_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NetV6 {
    /// The network's name, for logs and `NCCL_NET`.
    pub name: *const c_char,
    pub init: Init,
    pub devices: Devices,
    pub properties: GetProperties<PropertiesV6>,
    pub listen: Listen,
    pub connect: Connect,
    pub accept: Accept,
    pub register: RegisterMemory<c_int>,
    pub register_dmabuf: RegisterDmaBuf,
    pub deregister: DeregisterMemory,
    pub isend: Isend<c_int>,
    pub irecv: Irecv<c_int>,
    /// Makes received data visible to the GPU.
    pub iflush: Iflush,
    pub test: Test,
    pub close_send: Close,
    pub close_recv: Close,
    pub close_listen: Close,
}

/// `ncclNet_v7_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NetV7 {
    /// The network's name, for logs and `NCCL_NET`.
    pub name: *const c_char,
    pub init: Init,
    pub devices: Devices,
    pub properties: GetProperties<PropertiesV7>,
    pub listen: Listen,
    pub connect: ConnectWithOffload,
    pub accept: AcceptWithOffload,
    pub register: RegisterMemory<c_int>,
    pub register_dmabuf: RegisterDmaBuf,
    pub deregister: DeregisterMemory,
    pub isend: Isend<c_int>,
    pub irecv: Irecv<c_int>,
    /// Makes received data visible to the GPU.
    pub iflush: Iflush,
    pub test: Test,
    pub close_send: Close,
    pub close_recv: Close,
    pub close_listen: Close,
    /// A registration for code on the GPU.
    pub device_memory: GetDeviceMemory,
    /// Word that code on the GPU took a receive.
    pub recv_consumed: IrecvConsumed,
}

/// `ncclNet_v8_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NetV8 {
    /// The network's name, for logs and `NCCL_NET`.
    pub name: *const c_char,
    pub init: Init,
    pub devices: Devices,
    pub properties: GetProperties<PropertiesV8>,
    pub listen: Listen,
    pub connect: ConnectWithOffload,
    pub accept: AcceptWithOffload,
    pub register: RegisterMemory<usize>,
    pub register_dmabuf: RegisterDmaBuf,
    pub deregister: DeregisterMemory,
    pub isend: Isend<c_int>,
    pub irecv: Irecv<c_int>,
    /// Makes received data visible to the GPU.
    pub iflush: Iflush,
    pub test: Test,
    pub close_send: Close,
    pub close_recv: Close,
    pub close_listen: Close,
    /// A registration for code on the GPU.
    pub device_memory: GetDeviceMemory,
    /// Word that code on the GPU took a receive.
    pub recv_consumed: IrecvConsumed,
}

/// `ncclNet_v9_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NetV9 {
    /// The network's name, for logs and `NCCL_NET`.
    pub name: *const c_char,
    pub init: Init,
    pub devices: Devices,
    pub properties: GetProperties<PropertiesV9<4>>,
    pub listen: Listen,
    pub connect: ConnectWithOffload,
    pub accept: AcceptWithOffload,
    pub register: RegisterMemory<usize>,
    pub register_dmabuf: RegisterDmaBuf,
    pub deregister: DeregisterMemory,
    pub isend: Isend<usize>,
    pub irecv: Irecv<usize>,
    /// Makes received data visible to the GPU.
    pub iflush: Iflush,
    pub test: Test,
    pub close_send: Close,
    pub close_recv: Close,
    pub close_listen: Close,
    /// A registration for code on the GPU.
    pub device_memory: GetDeviceMemory,
    /// Word that code on the GPU took a receive.
    pub recv_consumed: IrecvConsumed,
    pub make_virtual: MakeVirtualDevice<VirtualDevice<4>>,
}

/// `ncclNet_v10_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NetV10 {
    /// The network's name, for logs and `NCCL_NET`.
    pub name: *const c_char,
    pub init: InitWithProfiler,
    pub devices: Devices,
    pub properties: GetProperties<PropertiesV9<4>>,
    pub listen: Listen,
    pub connect: ConnectWithConfig,
    pub accept: AcceptWithOffload,
    pub register: RegisterMemory<usize>,
    pub register_dmabuf: RegisterDmaBuf,
    pub deregister: DeregisterMemory,
    pub isend: IsendProfiled,
    pub irecv: IrecvProfiled,
    /// Makes received data visible to the GPU.
    pub iflush: Iflush,
    pub test: Test,
    pub close_send: Close,
    pub close_recv: Close,
    pub close_listen: Close,
    /// A registration for code on the GPU.
    pub device_memory: GetDeviceMemory,
    /// Word that code on the GPU took a receive.
    pub recv_consumed: IrecvConsumed,
    pub make_virtual: MakeVirtualDevice<VirtualDevice<4>>,
}

/// `ncclNet_v11_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NetV11 {
    /// The network's name, for logs and `NCCL_NET`.
    pub name: *const c_char,
    pub init: InitContext,
    pub devices: Devices,
    pub properties: GetProperties<PropertiesV11>,
    pub listen: ListenInContext,
    pub connect: ConnectInContext,
    pub accept: AcceptWithOffload,
    pub register: RegisterMemory<usize>,
    pub register_dmabuf: RegisterDmaBuf,
    pub deregister: DeregisterMemory,
    pub isend: IsendProfiled,
    pub irecv: IrecvProfiled,
    /// Makes received data visible to the GPU.
    pub iflush: Iflush,
    pub test: Test,
    pub close_send: Close,
    pub close_recv: Close,
    pub close_listen: Close,
    /// A registration for code on the GPU.
    pub device_memory: GetDeviceMemory,
    /// Word that code on the GPU took a receive.
    pub recv_consumed: IrecvConsumed,
    pub make_virtual: MakeVirtualDevice<VirtualDevice<4>>,
    /// Ends a communicator's context.
    pub finalize: Close,
    /// Tells what NCCL is about to do.
    pub set_attributes: SetAttributes,
}

/// `ncclNet_v12_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NetV12 {
    /// The network's name, for logs and `NCCL_NET`.
    pub name: *const c_char,
    pub init: InitContext,
    pub devices: Devices,
    pub properties: GetProperties<PropertiesV12>,
    pub listen: ListenInContext,
    pub connect: ConnectInContext,
    pub accept: AcceptWithOffload,
    pub register: RegisterMemory<usize>,
    pub register_dmabuf: RegisterDmaBuf,
    pub deregister: DeregisterMemory,
    pub isend: IsendProfiled,
    pub irecv: IrecvProfiled,
    /// Makes received data visible to the GPU.
    pub iflush: Iflush,
    pub test: Test,
    pub close_send: Close,
    pub close_recv: Close,
    pub close_listen: Close,
    /// A registration for code on the GPU.
    pub device_memory: GetDeviceMemory,
    /// Word that code on the GPU took a receive.
    pub recv_consumed: IrecvConsumed,
    pub make_virtual: MakeVirtualDevice<VirtualDevice<8>>,
    /// Ends a communicator's context.
    pub finalize: Close,
    /// Tells what NCCL is about to do.
    pub set_attributes: SetAttributes,
}

macro_rules! constant {
    ($($table:ty),*) => {
        $(
            // SAFETY: a table is constant: a pointer to a constant name, and pointers to functions.
            unsafe impl Sync for $table {}
        )*
    };
}

constant!(NetV6, NetV7, NetV8, NetV9, NetV10, NetV11, NetV12);
