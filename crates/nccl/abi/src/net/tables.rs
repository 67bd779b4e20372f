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
    /// Starts the network.
    pub init: Init,
    /// Counts devices.
    pub devices: Devices,
    /// Describes a device.
    pub properties: GetProperties<PropertiesV6>,
    /// Listens on a device.
    pub listen: Listen,
    /// Connects to a handle.
    pub connect: Connect,
    /// Takes a connection.
    pub accept: Accept,
    /// Registers memory.
    pub register: RegisterMemory<c_int>,
    /// Registers a DMA-BUF.
    pub register_dmabuf: RegisterDmaBuf,
    /// Lets go of a registration.
    pub deregister: DeregisterMemory,
    /// Posts a send.
    pub isend: Isend<c_int>,
    /// Posts receives.
    pub irecv: Irecv<c_int>,
    /// Makes received data visible to the GPU.
    pub iflush: Iflush,
    /// Asks after a request.
    pub test: Test,
    /// Ends a sender.
    pub close_send: Close,
    /// Ends a receiver.
    pub close_recv: Close,
    /// Ends a listener.
    pub close_listen: Close,
}

/// `ncclNet_v7_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NetV7 {
    /// The network's name, for logs and `NCCL_NET`.
    pub name: *const c_char,
    /// Starts the network.
    pub init: Init,
    /// Counts devices.
    pub devices: Devices,
    /// Describes a device.
    pub properties: GetProperties<PropertiesV7>,
    /// Listens on a device.
    pub listen: Listen,
    /// Connects to a handle.
    pub connect: ConnectWithOffload,
    /// Takes a connection.
    pub accept: AcceptWithOffload,
    /// Registers memory.
    pub register: RegisterMemory<c_int>,
    /// Registers a DMA-BUF.
    pub register_dmabuf: RegisterDmaBuf,
    /// Lets go of a registration.
    pub deregister: DeregisterMemory,
    /// Posts a send.
    pub isend: Isend<c_int>,
    /// Posts receives.
    pub irecv: Irecv<c_int>,
    /// Makes received data visible to the GPU.
    pub iflush: Iflush,
    /// Asks after a request.
    pub test: Test,
    /// Ends a sender.
    pub close_send: Close,
    /// Ends a receiver.
    pub close_recv: Close,
    /// Ends a listener.
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
    /// Starts the network.
    pub init: Init,
    /// Counts devices.
    pub devices: Devices,
    /// Describes a device.
    pub properties: GetProperties<PropertiesV8>,
    /// Listens on a device.
    pub listen: Listen,
    /// Connects to a handle.
    pub connect: ConnectWithOffload,
    /// Takes a connection.
    pub accept: AcceptWithOffload,
    /// Registers memory.
    pub register: RegisterMemory<usize>,
    /// Registers a DMA-BUF.
    pub register_dmabuf: RegisterDmaBuf,
    /// Lets go of a registration.
    pub deregister: DeregisterMemory,
    /// Posts a send.
    pub isend: Isend<c_int>,
    /// Posts receives.
    pub irecv: Irecv<c_int>,
    /// Makes received data visible to the GPU.
    pub iflush: Iflush,
    /// Asks after a request.
    pub test: Test,
    /// Ends a sender.
    pub close_send: Close,
    /// Ends a receiver.
    pub close_recv: Close,
    /// Ends a listener.
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
    /// Starts the network.
    pub init: Init,
    /// Counts devices.
    pub devices: Devices,
    /// Describes a device.
    pub properties: GetProperties<PropertiesV9<4>>,
    /// Listens on a device.
    pub listen: Listen,
    /// Connects to a handle.
    pub connect: ConnectWithOffload,
    /// Takes a connection.
    pub accept: AcceptWithOffload,
    /// Registers memory.
    pub register: RegisterMemory<usize>,
    /// Registers a DMA-BUF.
    pub register_dmabuf: RegisterDmaBuf,
    /// Lets go of a registration.
    pub deregister: DeregisterMemory,
    /// Posts a send.
    pub isend: Isend<usize>,
    /// Posts receives.
    pub irecv: Irecv<usize>,
    /// Makes received data visible to the GPU.
    pub iflush: Iflush,
    /// Asks after a request.
    pub test: Test,
    /// Ends a sender.
    pub close_send: Close,
    /// Ends a receiver.
    pub close_recv: Close,
    /// Ends a listener.
    pub close_listen: Close,
    /// A registration for code on the GPU.
    pub device_memory: GetDeviceMemory,
    /// Word that code on the GPU took a receive.
    pub recv_consumed: IrecvConsumed,
    /// Joins devices to one.
    pub make_virtual: MakeVirtualDevice<VirtualDevice<4>>,
}

/// `ncclNet_v10_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NetV10 {
    /// The network's name, for logs and `NCCL_NET`.
    pub name: *const c_char,
    /// Starts the network.
    pub init: InitWithProfiler,
    /// Counts devices.
    pub devices: Devices,
    /// Describes a device.
    pub properties: GetProperties<PropertiesV9<4>>,
    /// Listens on a device.
    pub listen: Listen,
    /// Connects to a handle.
    pub connect: ConnectWithConfig,
    /// Takes a connection.
    pub accept: AcceptWithOffload,
    /// Registers memory.
    pub register: RegisterMemory<usize>,
    /// Registers a DMA-BUF.
    pub register_dmabuf: RegisterDmaBuf,
    /// Lets go of a registration.
    pub deregister: DeregisterMemory,
    /// Posts a send.
    pub isend: IsendProfiled,
    /// Posts receives.
    pub irecv: IrecvProfiled,
    /// Makes received data visible to the GPU.
    pub iflush: Iflush,
    /// Asks after a request.
    pub test: Test,
    /// Ends a sender.
    pub close_send: Close,
    /// Ends a receiver.
    pub close_recv: Close,
    /// Ends a listener.
    pub close_listen: Close,
    /// A registration for code on the GPU.
    pub device_memory: GetDeviceMemory,
    /// Word that code on the GPU took a receive.
    pub recv_consumed: IrecvConsumed,
    /// Joins devices to one.
    pub make_virtual: MakeVirtualDevice<VirtualDevice<4>>,
}

/// `ncclNet_v11_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NetV11 {
    /// The network's name, for logs and `NCCL_NET`.
    pub name: *const c_char,
    /// Starts the network.
    pub init: InitContext,
    /// Counts devices.
    pub devices: Devices,
    /// Describes a device.
    pub properties: GetProperties<PropertiesV11>,
    /// Listens on a device.
    pub listen: ListenInContext,
    /// Connects to a handle.
    pub connect: ConnectInContext,
    /// Takes a connection.
    pub accept: AcceptWithOffload,
    /// Registers memory.
    pub register: RegisterMemory<usize>,
    /// Registers a DMA-BUF.
    pub register_dmabuf: RegisterDmaBuf,
    /// Lets go of a registration.
    pub deregister: DeregisterMemory,
    /// Posts a send.
    pub isend: IsendProfiled,
    /// Posts receives.
    pub irecv: IrecvProfiled,
    /// Makes received data visible to the GPU.
    pub iflush: Iflush,
    /// Asks after a request.
    pub test: Test,
    /// Ends a sender.
    pub close_send: Close,
    /// Ends a receiver.
    pub close_recv: Close,
    /// Ends a listener.
    pub close_listen: Close,
    /// A registration for code on the GPU.
    pub device_memory: GetDeviceMemory,
    /// Word that code on the GPU took a receive.
    pub recv_consumed: IrecvConsumed,
    /// Joins devices to one.
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
    /// Starts the network.
    pub init: InitContext,
    /// Counts devices.
    pub devices: Devices,
    /// Describes a device.
    pub properties: GetProperties<PropertiesV12>,
    /// Listens on a device.
    pub listen: ListenInContext,
    /// Connects to a handle.
    pub connect: ConnectInContext,
    /// Takes a connection.
    pub accept: AcceptWithOffload,
    /// Registers memory.
    pub register: RegisterMemory<usize>,
    /// Registers a DMA-BUF.
    pub register_dmabuf: RegisterDmaBuf,
    /// Lets go of a registration.
    pub deregister: DeregisterMemory,
    /// Posts a send.
    pub isend: IsendProfiled,
    /// Posts receives.
    pub irecv: IrecvProfiled,
    /// Makes received data visible to the GPU.
    pub iflush: Iflush,
    /// Asks after a request.
    pub test: Test,
    /// Ends a sender.
    pub close_send: Close,
    /// Ends a receiver.
    pub close_recv: Close,
    /// Ends a listener.
    pub close_listen: Close,
    /// A registration for code on the GPU.
    pub device_memory: GetDeviceMemory,
    /// Word that code on the GPU took a receive.
    pub recv_consumed: IrecvConsumed,
    /// Joins devices to one.
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
