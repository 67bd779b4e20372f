//! NCCL, or RCCL in its place: the library, what its version has, and communicators.

mod communicator;
mod held;
mod registration;
mod version;

pub use communicator::{Buffers, Communicator, Pending, Plain, Whole};
pub use held::CommunicatorUse;
pub use registration::{NcclMemory, Registration};
pub use version::{Feature, Version};

use crate::cuda::Vendor;
use crate::find::{LibraryNames, Lookup, Opened};
use crate::{Error, Result};
use busbw_nccl_abi::NcclResult;
use busbw_nccl_abi::library::*;
use std::ffi::CStr;
use std::path::Path;
use std::sync::Arc;

const NCCL: LibraryNames = LibraryNames {
    names: &["libnccl.so.2", "libnccl.so"],
    variable: "NCCL_LIBRARY",
    homes: &["NCCL_HOME", "CUDA_HOME", "CUDA_PATH"],
    folders: &[
        "/usr/local/cuda*/lib64",
        "/usr/local/nccl*/lib",
        "/opt/nvidia/hpc_sdk/Linux_*/*/comm_libs/nccl/lib",
        "/usr/local/nvidia/lib64",
    ],
    packages: &["nvidia/nccl/lib", "torch/lib"],
    remedy: "install it (apt-get install libnccl2, or pip install nvidia-nccl-cu12) or name it with --nccl-library PATH",
};

const RCCL: LibraryNames = LibraryNames {
    names: &["librccl.so.1", "librccl.so"],
    variable: "NCCL_LIBRARY",
    homes: &["ROCM_PATH"],
    folders: &["/opt/rocm/lib", "/opt/rocm*/lib"],
    packages: &["torch/lib"],
    remedy: "install it (apt-get install rccl, of ROCm's repository) or name it with --nccl-library PATH",
};

macro_rules! functions {
    (required { $($field:ident: $type:ty = $symbol:literal;)* } optional { $($later:ident: $other:ty = $name:literal;)* }) => {
        /// NCCL's functions; what later versions brought may be missing.
        struct Api {
            $($field: $type,)*
            $($later: Option<$other>,)*
        }

        impl Api {
            fn of(library: &Opened) -> Result<Self> {
                // SAFETY: the types are those of nccl.h.
                unsafe {
                    Ok(Api {
                        $($field: library.required($symbol)?,)*
                        $($later: library.optional($name),)*
                    })
                }
            }
        }
    };
}

functions! {
    required {
        get_unique_id: GetUniqueId = "ncclGetUniqueId";
        init_rank: CommInitRankConfig = "ncclCommInitRankConfig";
        destroy: CommEnd = "ncclCommDestroy";
        abort: CommEnd = "ncclCommAbort";
        async_error: CommGetAsyncError = "ncclCommGetAsyncError";
        last_error: GetLastError = "ncclGetLastError";
        group_start: Group = "ncclGroupStart";
        group_end: Group = "ncclGroupEnd";
        all_reduce: Reducing = "ncclAllReduce";
        reduce_scatter: Reducing = "ncclReduceScatter";
        reduce: Reduce = "ncclReduce";
        broadcast: Rooted = "ncclBroadcast";
        all_gather: CopyCollective = "ncclAllGather";
        send: Send = "ncclSend";
        receive: Recv = "ncclRecv";
        create_premul_sum: RedOpCreatePreMulSum = "ncclRedOpCreatePreMulSum";
        destroy_op: RedOpDestroy = "ncclRedOpDestroy";
    }
    optional {
        all_to_all: CopyCollective = "ncclAlltoAll";
        gather: Rooted = "ncclGather";
        scatter: Rooted = "ncclScatter";
        mem_alloc: MemAlloc = "ncclMemAlloc";
        mem_free: MemFree = "ncclMemFree";
        register: CommRegister = "ncclCommRegister";
        deregister: CommDeregister = "ncclCommDeregister";
        window_register: CommWindowRegister = "ncclCommWindowRegister";
        window_deregister: CommWindowDeregister = "ncclCommWindowDeregister";
    }
}

/// The library.
pub struct Nccl {
    api: Api,
    library: Opened,
    code: i32,
}

impl Nccl {
    /// Opens it, or AMD's RCCL, which has the same functions: `given` if a flag names it, else the first that is found. Nothing of it runs yet, so that variables which
    /// it reads may still be set.
    ///
    /// # Errors
    /// It is not there, cannot be opened, or is older than 2.18.
    pub fn open(vendor: Vendor, given: Option<&Path>, variable: Lookup<'_>) -> Result<Arc<Self>> {
        let library = vendor.either(NCCL, RCCL).open(given, variable)?;
        let version = || {
            // SAFETY: the type is that of nccl.h, and the pointer is to a value that lives through the call.
            unsafe {
                let mut code = 0;
                let told = library.required::<GetVersion>("ncclGetVersion")?(&mut code);
                checked("ncclGetVersion", told, String::new).map(|()| code)
            }
        };
        let code = version()?;
        let found = Version::of_code(code);
        if found < Version::OLDEST {
            let path = library.path().to_path_buf();
            return Err(Error::Version { what: "--backend nccl".into(), needed: Version::OLDEST, found, path });
        }
        let mut api = Api::of(&library)?;
        // SAFETY: as of nccl.h; RCCL has had it under this name since before NCCL had it.
        api.all_to_all = api.all_to_all.or_else(|| unsafe { library.optional("ncclAllToAll") });
        Ok(Arc::new(Nccl { api, library, code }))
    }

    pub fn version(&self) -> Version {
        Version::of_code(self.code)
    }

    /// Its version as `ncclGetVersion` tells it: 22707.
    pub fn version_code(&self) -> i32 {
        self.code
    }

    pub fn path(&self) -> &Path {
        self.library.path()
    }

    pub fn has(&self, feature: Feature) -> bool {
        self.version() >= feature.since()
    }

    /// Goes on only if this version has what `what` needs.
    pub fn needs(&self, what: &str, feature: Feature) -> Result<()> {
        if self.has(feature) {
            return Ok(());
        }
        let (found, path) = (self.version(), self.path().to_path_buf());
        Err(Error::Version { what: what.into(), needed: feature.since(), found, path })
    }

    /// What the ranks of a new communicator find one another by.
    pub fn unique_id(&self) -> Result<UniqueId> {
        let mut id = UniqueId { internal: [0; UNIQUE_ID_BYTES] };
        // SAFETY: the pointer is to a value that lives through the call.
        self.checked("ncclGetUniqueId", unsafe { (self.api.get_unique_id)(&mut id) })?;
        Ok(id)
    }

    /// Begins a group: what this thread calls until [`Nccl::group_end`] is started together.
    pub fn group_start(&self) -> Result<()> {
        // SAFETY: a plain call.
        self.checked("ncclGroupStart", unsafe { (self.api.group_start)() })
    }

    pub fn group_end(&self) -> Result<()> {
        // SAFETY: a plain call.
        self.checked("ncclGroupEnd", unsafe { (self.api.group_end)() })
    }

    /// Runs calls as a group. The group is ended also when one of them fails, whose error then counts.
    pub fn group(&self, calls: impl FnOnce() -> Result<()>) -> Result<()> {
        self.group_start()?;
        let called = calls();
        let ended = self.group_end();
        called.and(ended)
    }

    fn checked(&self, call: &'static str, result: NcclResult) -> Result<()> {
        checked(call, result, || {
            // SAFETY: null stands for whichever communicator; the text is NCCL's own.
            let text = unsafe { (self.api.last_error)(std::ptr::null_mut()) };
            if text.is_null() {
                return String::new();
            }
            // SAFETY: a text that ends with 0. Another thread may change it meanwhile, but not its end.
            let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            if words.is_empty() { words } else { format!(": {words}") }
        })
    }
}

fn checked(call: &'static str, result: NcclResult, last: impl FnOnce() -> String) -> Result<()> {
    if result.is_success() { Ok(()) } else { Err(Error::Nccl { call, result, last: last() }) }
}
