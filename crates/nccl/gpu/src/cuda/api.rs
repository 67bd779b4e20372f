//! The functions of `libcuda.so.1` that are used, as `cuda.h` declares them, and those of `libamdhip64.so` with the same
//! parameters (`hip_runtime_api.h` of HIP 6.2). CUDA's names end in `_v2` where the header's macros say so; all have been there
//! since CUDA 11.4.

use crate::Result;
use crate::cuda::Vendor;
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
    ($($field:ident = $cuda:literal / $hip:literal: fn($($argument:ty),*);)*) => {
        /// The driver's functions.
        pub(super) struct Api {
            $(pub $field: unsafe extern "C" fn($($argument),*) -> Code,)*
        }

        impl Api {
            /// Looks all of them up.
            pub fn of(library: &Opened, vendor: Vendor) -> Result<Self> {
                // SAFETY: the types are those of cuda.h and hip_runtime_api.h.
                unsafe { Ok(Api { $($field: library.required(vendor.either($cuda, $hip))?,)* }) }
            }
        }

        /// What AMD's driver calls a function of CUDA's.
        pub(super) fn hip_name(cuda: &'static str) -> &'static str {
            [$(($cuda, $hip)),*].iter().find(|(name, _)| name.trim_end_matches("_v2") == cuda).map_or(cuda, |(_, hip)| hip)
        }
    };
}

functions! {
    init = "cuInit" / "hipInit": fn(c_uint);
    driver_version = "cuDriverGetVersion" / "hipDriverGetVersion": fn(*mut c_int);
    error_name = "cuGetErrorName" / "hipDrvGetErrorName": fn(Code, *mut *const c_char);
    error_string = "cuGetErrorString" / "hipDrvGetErrorString": fn(Code, *mut *const c_char);
    device_count = "cuDeviceGetCount" / "hipGetDeviceCount": fn(*mut c_int);
    device_get = "cuDeviceGet" / "hipDeviceGet": fn(*mut RawDevice, c_int);
    device_name = "cuDeviceGetName" / "hipDeviceGetName": fn(*mut c_char, c_int, RawDevice);
    device_attribute = "cuDeviceGetAttribute" / "hipDeviceGetAttribute": fn(*mut c_int, c_int, RawDevice);
    context_retain = "cuDevicePrimaryCtxRetain" / "hipDevicePrimaryCtxRetain": fn(*mut Handle, RawDevice);
    context_release = "cuDevicePrimaryCtxRelease_v2" / "hipDevicePrimaryCtxRelease": fn(RawDevice);
    context_set = "cuCtxSetCurrent" / "hipCtxSetCurrent": fn(Handle);
    memory_info = "cuMemGetInfo_v2" / "hipMemGetInfo": fn(*mut usize, *mut usize);
    memory_alloc = "cuMemAlloc_v2" / "hipMalloc": fn(*mut Address, usize);
    memory_free = "cuMemFree_v2" / "hipFree": fn(Address);
    host_alloc = "cuMemHostAlloc" / "hipHostMalloc": fn(*mut *mut c_void, usize, c_uint);
    host_free = "cuMemFreeHost" / "hipHostFree": fn(*mut c_void);
    copy_to_device = "cuMemcpyHtoDAsync_v2" / "hipMemcpyHtoDAsync": fn(Address, *const c_void, usize, Handle);
    copy_to_host = "cuMemcpyDtoHAsync_v2" / "hipMemcpyDtoHAsync": fn(*mut c_void, Address, usize, Handle);
    copy_on_device = "cuMemcpyDtoDAsync_v2" / "hipMemcpyDtoDAsync": fn(Address, Address, usize, Handle);
    set_bytes = "cuMemsetD8Async" / "hipMemsetD8Async": fn(Address, u8, usize, Handle);
    stream_create = "cuStreamCreate" / "hipStreamCreateWithFlags": fn(*mut Handle, c_uint);
    stream_destroy = "cuStreamDestroy_v2" / "hipStreamDestroy": fn(Handle);
    stream_query = "cuStreamQuery" / "hipStreamQuery": fn(Handle);
    stream_begin_capture = "cuStreamBeginCapture_v2" / "hipStreamBeginCapture": fn(Handle, c_int);
    stream_end_capture = "cuStreamEndCapture" / "hipStreamEndCapture": fn(Handle, *mut Handle);
    event_create = "cuEventCreate" / "hipEventCreateWithFlags": fn(*mut Handle, c_uint);
    event_destroy = "cuEventDestroy_v2" / "hipEventDestroy": fn(Handle);
    event_record = "cuEventRecord" / "hipEventRecord": fn(Handle, Handle);
    event_query = "cuEventQuery" / "hipEventQuery": fn(Handle);
    event_elapsed = "cuEventElapsedTime" / "hipEventElapsedTime": fn(*mut f32, Handle, Handle);
    module_load = "cuModuleLoadData" / "hipModuleLoadData": fn(*mut Handle, *const c_void);
    module_unload = "cuModuleUnload" / "hipModuleUnload": fn(Handle);
    module_function = "cuModuleGetFunction" / "hipModuleGetFunction": fn(*mut Handle, Handle, *const c_char);
    launch = "cuLaunchKernel" / "hipModuleLaunchKernel": fn(Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle,
        *mut *mut c_void, *mut *mut c_void);
    graph_instantiate = "cuGraphInstantiateWithFlags" / "hipGraphInstantiateWithFlags": fn(*mut Handle, Handle, u64);
    graph_launch = "cuGraphLaunch" / "hipGraphLaunch": fn(Handle, Handle);
    graph_executable_destroy = "cuGraphExecDestroy" / "hipGraphExecDestroy": fn(Handle);
    graph_destroy = "cuGraphDestroy" / "hipGraphDestroy": fn(Handle);
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

/// Members of `CUdevice_attribute`, and of `hipDeviceAttribute_t`.
pub(super) mod attribute {
    use crate::cuda::Vendor;
    use std::ffi::c_int;

    /// What is asked of a device.
    #[derive(Clone, Copy)]
    pub struct Attribute {
        cuda: c_int,
        hip: c_int,
    }

    impl Attribute {
        pub fn of(self, vendor: Vendor) -> c_int {
            vendor.either(self.cuda, self.hip)
        }
    }

    /// `MULTIPROCESSOR_COUNT`.
    pub const PROCESSORS: Attribute = Attribute { cuda: 16, hip: 63 };
    /// `PCI_BUS_ID`.
    pub const PCI_BUS: Attribute = Attribute { cuda: 33, hip: 67 };
    /// `PCI_DEVICE_ID`.
    pub const PCI_DEVICE: Attribute = Attribute { cuda: 34, hip: 68 };
    /// `PCI_DOMAIN_ID`.
    pub const PCI_DOMAIN: Attribute = Attribute { cuda: 50, hip: 69 };
    /// `COMPUTE_CAPABILITY_MAJOR`.
    pub const CAPABILITY_MAJOR: Attribute = Attribute { cuda: 75, hip: 23 };
    /// `COMPUTE_CAPABILITY_MINOR`.
    pub const CAPABILITY_MINOR: Attribute = Attribute { cuda: 76, hip: 61 };
}
