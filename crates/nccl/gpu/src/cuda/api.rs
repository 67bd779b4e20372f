//! The functions of `libcuda.so.1` that are used, as `cuda.h` declares them. Names end in `_v2` where the header's macros
//! say so; all have been there since CUDA 11.4.

use crate::Result;
use crate::find::Opened;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// `CUresult`: 0 is success.
pub(super) type Code = c_int;
/// `CUdevice`.
pub(super) type RawDevice = c_int;
/// `CUdeviceptr`.
pub(super) type Address = u64;
/// `CUcontext`, `CUstream`, `CUevent`, `CUmodule`, `CUfunction`, `CUgraph` and `CUgraphExec`.
pub(super) type Handle = *mut c_void;

macro_rules! functions {
    ($($field:ident = $symbol:literal: fn($($argument:ty),*);)*) => {
        /// The driver's functions.
        pub(super) struct Api {
            $(pub $field: unsafe extern "C" fn($($argument),*) -> Code,)*
        }

        impl Api {
            /// Looks all of them up.
            ///
            /// # Errors
            /// The driver is too old to have one.
            pub fn of(library: &Opened) -> Result<Self> {
                // SAFETY: the types are those of cuda.h.
                unsafe { Ok(Api { $($field: library.required($symbol)?,)* }) }
            }
        }
    };
}

functions! {
    init = "cuInit": fn(c_uint);
    driver_version = "cuDriverGetVersion": fn(*mut c_int);
    error_name = "cuGetErrorName": fn(Code, *mut *const c_char);
    error_string = "cuGetErrorString": fn(Code, *mut *const c_char);
    device_count = "cuDeviceGetCount": fn(*mut c_int);
    device_get = "cuDeviceGet": fn(*mut RawDevice, c_int);
    device_name = "cuDeviceGetName": fn(*mut c_char, c_int, RawDevice);
    device_attribute = "cuDeviceGetAttribute": fn(*mut c_int, c_int, RawDevice);
    context_retain = "cuDevicePrimaryCtxRetain": fn(*mut Handle, RawDevice);
    context_release = "cuDevicePrimaryCtxRelease_v2": fn(RawDevice);
    context_set = "cuCtxSetCurrent": fn(Handle);
    memory_info = "cuMemGetInfo_v2": fn(*mut usize, *mut usize);
    memory_alloc = "cuMemAlloc_v2": fn(*mut Address, usize);
    memory_free = "cuMemFree_v2": fn(Address);
    host_alloc = "cuMemHostAlloc": fn(*mut *mut c_void, usize, c_uint);
    host_free = "cuMemFreeHost": fn(*mut c_void);
    copy_to_device = "cuMemcpyHtoDAsync_v2": fn(Address, *const c_void, usize, Handle);
    copy_to_host = "cuMemcpyDtoHAsync_v2": fn(*mut c_void, Address, usize, Handle);
    copy_on_device = "cuMemcpyDtoDAsync_v2": fn(Address, Address, usize, Handle);
    set_bytes = "cuMemsetD8Async": fn(Address, u8, usize, Handle);
    stream_create = "cuStreamCreate": fn(*mut Handle, c_uint);
    stream_destroy = "cuStreamDestroy_v2": fn(Handle);
    stream_query = "cuStreamQuery": fn(Handle);
    stream_begin_capture = "cuStreamBeginCapture_v2": fn(Handle, c_int);
    stream_end_capture = "cuStreamEndCapture": fn(Handle, *mut Handle);
    event_create = "cuEventCreate": fn(*mut Handle, c_uint);
    event_destroy = "cuEventDestroy_v2": fn(Handle);
    event_record = "cuEventRecord": fn(Handle, Handle);
    event_query = "cuEventQuery": fn(Handle);
    event_elapsed = "cuEventElapsedTime": fn(*mut f32, Handle, Handle);
    module_load = "cuModuleLoadData": fn(*mut Handle, *const c_void);
    module_unload = "cuModuleUnload": fn(Handle);
    module_function = "cuModuleGetFunction": fn(*mut Handle, Handle, *const c_char);
    launch = "cuLaunchKernel": fn(Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle,
        *mut *mut c_void, *mut *mut c_void);
    graph_instantiate = "cuGraphInstantiateWithFlags": fn(*mut Handle, Handle, u64);
    graph_launch = "cuGraphLaunch": fn(Handle, Handle);
    graph_executable_destroy = "cuGraphExecDestroy": fn(Handle);
    graph_destroy = "cuGraphDestroy": fn(Handle);
}

/// `CUDA_ERROR_NO_DEVICE`.
pub(super) const NO_DEVICE: Code = 100;
/// `CUDA_ERROR_NOT_READY`: asked too early.
pub(super) const NOT_READY: Code = 600;

/// `CU_STREAM_NON_BLOCKING`: does not wait for the null stream.
pub(super) const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: other threads, NCCL's among them, may allocate while this one captures.
pub(super) const CAPTURE_THREAD_LOCAL: c_int = 1;
/// `CU_EVENT_DISABLE_TIMING`.
pub(super) const EVENT_WITHOUT_TIME: c_uint = 2;

/// Members of `CUdevice_attribute`.
pub(super) mod attribute {
    use std::ffi::c_int;

    /// `CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT`.
    pub const PROCESSORS: c_int = 16;
    /// `CU_DEVICE_ATTRIBUTE_PCI_BUS_ID`.
    pub const PCI_BUS: c_int = 33;
    /// `CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID`.
    pub const PCI_DEVICE: c_int = 34;
    /// `CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID`.
    pub const PCI_DOMAIN: c_int = 50;
    /// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`.
    pub const CAPABILITY_MAJOR: c_int = 75;
    /// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR`.
    pub const CAPABILITY_MINOR: c_int = 76;
}
