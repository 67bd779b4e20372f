//! PMIx (Open MPI's mpirun, PRRTE, srun --mpi=pmix), through libpmix.so.2 opened at run time.
//!
//! Layouts are those of the PMIx standard, versions 3 and 4 (pmix_common.h): names of 512 bytes, a value of a 16-bit type and
//! a union that begins 8 bytes later. We only write values that begin our own, larger ones.

use super::{KEY, Store};
use crate::error::BY_HAND;
use crate::{Error, Result};
use busbw_model::NO_LIBRARIES;
use libloading::{Library, Symbol};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::PathBuf;

const SUCCESS: c_int = 0;
const TYPE_BOOL: u16 = 1;
const TYPE_STRING: u16 = 3;
const SCOPE_GLOBAL: u8 = 3;
const COLLECT_DATA: &str = "pmix.collect";

/// `pmix_proc_t`.
#[repr(C)]
struct Process {
    namespace: [c_char; 256],
    rank: u32,
}

/// `pmix_value_t`, with more room than any version's union needs.
#[repr(C)]
struct Value {
    kind: u16,
    data: [*mut c_void; 8],
}

/// `pmix_info_t`, alone (an array of several would need the union's true size).
#[repr(C)]
struct Info {
    key: [c_char; 512],
    flags: u32,
    value: Value,
}

type Init = unsafe extern "C" fn(*mut Process, *const Info, usize) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Process, usize, *const Info, usize) -> c_int;
type Get = unsafe extern "C" fn(*const Process, *const c_char, *const Info, usize, *mut *mut Value) -> c_int;
type Finalize = unsafe extern "C" fn(*const Info, usize) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;

/// A session with the PMIx server of this host.
pub(super) struct Session {
    /// Never unloaded: PMIx leaves threads and destructors that would run code that is gone.
    library: ManuallyDrop<Library>,
    me: Process,
}

/// Text in a fixed array, ended by a zero.
fn fixed<const N: usize>(text: &str) -> [c_char; N] {
    let bytes = text.as_bytes();
    std::array::from_fn(|i| if i + 1 < N { bytes.get(i).map_or(0, |&byte| byte as c_char) } else { 0 })
}

/// Where libpmix.so.2 may be: where the loader looks, in Open MPI's own directory, where Debian puts it.
fn candidates() -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("libpmix.so.2")];
    let mut directories: Vec<PathBuf> = Vec::new();
    for variable in ["PMIX_PREFIX", "OPAL_PREFIX", "PRTE_PREFIX"] {
        directories.extend(std::env::var_os(variable).map(|prefix| PathBuf::from(prefix).join("lib")));
    }
    // mpirun's or its daemon's: our parent, unless a shell is between us.
    let parent = std::fs::read_link(format!("/proc/{}/exe", std::os::unix::process::parent_id()));
    directories.extend(parent.ok().and_then(|exe| Some(exe.parent()?.parent()?.join("lib"))));
    for root in ["/usr/lib", "/usr/lib64"] {
        directories.push(root.into());
        directories.extend(std::fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path()));
    }
    for directory in directories {
        for place in ["libpmix.so.2", "pmix2/lib/libpmix.so.2", "pmix/lib/libpmix.so.2"] {
            found.extend(Some(directory.join(place)).filter(|path| path.exists()));
        }
    }
    found
}

fn open() -> Result<Library> {
    if let Some(reason) = NO_LIBRARIES {
        return Err(Error::Join(format!(
            "started by mpirun or srun with PMIx, which needs libpmix.so.2, and {reason}; or {BY_HAND}"
        )));
    }
    let mut problem = None;
    for path in candidates() {
        // SAFETY: loading libpmix runs its initialisers, which do nothing but set its own variables.
        match unsafe { Library::new(&path) } {
            Ok(library) => return Ok(library),
            // The first place is the loader's own: its reason tells most.
            Err(error) => problem = problem.or(Some(reason(&error))),
        }
    }
    let problem = problem.unwrap_or_default();
    Err(Error::Join(format!(
        "started by mpirun or srun with PMIx, but libpmix.so.2 is not found, so this rank cannot find the others ({problem}): \
         install libpmix (Debian: libpmix2) or add its directory to LD_LIBRARY_PATH; or {BY_HAND}"
    )))
}

/// The loader's own words, which libloading's error holds behind its own.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |source| source.to_string())
}

impl Session {
    pub fn start(namespace: &str) -> Result<Self> {
        let mut session =
            Session { library: ManuallyDrop::new(open()?), me: Process { namespace: fixed(namespace), rank: 0 } };
        let mut me = Process { namespace: [0; 256], rank: 0 };
        let init: Symbol<Init> = symbol(&session.library, "PMIx_Init")?;
        // SAFETY: PMIx_Init fills in one pmix_proc_t, and may be given no info.
        let status = unsafe { init(&mut me, std::ptr::null(), 0) };
        session.check("PMIx_Init", status)?;
        session.me = me;
        Ok(session)
    }

    fn check(&self, function: &str, status: c_int) -> Result<()> {
        if status == SUCCESS {
            return Ok(());
        }
        let text = symbol::<ErrorString>(&self.library, "PMIx_Error_string").ok().map(|error_string| {
            // SAFETY: gives a text that lives as long as the library.
            let text = unsafe { error_string(status) };
            // SAFETY: as above; PMIx gives a text for every number.
            if text.is_null() { String::new() } else { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() }
        });
        let text = text.unwrap_or_default();
        Err(Error::Join(format!(
            "{function} failed ({text}, {status}), so this rank cannot find the others: check that libpmix fits the launcher's; or {BY_HAND}"
        )))
    }
}

fn symbol<'a, T>(library: &'a Library, name: &str) -> Result<Symbol<'a, T>> {
    // SAFETY: T is the type that the PMIx standard gives the function of this name; every caller names both together.
    unsafe { library.get(name) }.map_err(|error| Error::Join(format!("libpmix has no {name} ({error}); {BY_HAND}")))
}

fn text(value: &str) -> Result<CString> {
    CString::new(value).map_err(|_| Error::Join("a zero byte in what rank 0 publishes".into()))
}

impl Store for Session {
    fn put(&mut self, value: &str) -> Result<()> {
        let (key, value) = (text(KEY)?, text(value)?);
        let mut data = [std::ptr::null_mut(); 8];
        data[0] = value.as_ptr().cast_mut().cast();
        let mut value = Value { kind: TYPE_STRING, data };
        let put: Symbol<Put> = symbol(&self.library, "PMIx_Put")?;
        // SAFETY: key and value live through the call; PMIx copies both.
        let status = unsafe { put(SCOPE_GLOBAL, key.as_ptr(), &mut value) };
        self.check("PMIx_Put", status)?;
        let commit: Symbol<Commit> = symbol(&self.library, "PMIx_Commit")?;
        // SAFETY: takes nothing.
        let status = unsafe { commit() };
        self.check("PMIx_Commit", status)
    }

    fn fence(&mut self) -> Result<()> {
        let mut data = [std::ptr::null_mut(); 8];
        // The union's first byte: true.
        data[0] = std::ptr::without_provenance_mut(usize::from_le(1));
        let info = Info { key: fixed(COLLECT_DATA), flags: 0, value: Value { kind: TYPE_BOOL, data } };
        let fence: Symbol<Fence> = symbol(&self.library, "PMIx_Fence")?;
        // SAFETY: no processes means all of the namespace; info lives through the call.
        let status = unsafe { fence(std::ptr::null(), 0, &info, 1) };
        self.check("PMIx_Fence", status)
    }

    fn get(&mut self) -> Result<String> {
        let from = Process { namespace: self.me.namespace, rank: 0 };
        let key = text(KEY)?;
        let mut value: *mut Value = std::ptr::null_mut();
        let get: Symbol<Get> = symbol(&self.library, "PMIx_Get")?;
        // SAFETY: the process and key live through the call; PMIx allocates the value.
        let status = unsafe { get(&from, key.as_ptr(), std::ptr::null(), 0, &mut value) };
        self.check("PMIx_Get", status)?;
        if value.is_null() {
            return Err(Error::Join(format!("PMIx has nothing under {KEY}; {BY_HAND}")));
        }
        // SAFETY: a pmix_value_t that PMIx allocated with malloc; of our larger struct only type and the union's first
        // pointer are read, which a string value has.
        unsafe {
            let kind = std::ptr::addr_of!((*value).kind).read();
            let held = std::ptr::addr_of!((*value).data).cast::<*mut c_char>().read();
            let string =
                (kind == TYPE_STRING && !held.is_null()).then(|| CStr::from_ptr(held).to_string_lossy().into_owned());
            if string.is_some() {
                libc::free(held.cast());
            }
            libc::free(value.cast());
            string.ok_or_else(|| Error::Join(format!("PMIx has no text under {KEY}; {BY_HAND}")))
        }
    }

    fn finish(&mut self) -> Result<()> {
        let finalize: Symbol<Finalize> = symbol(&self.library, "PMIx_Finalize")?;
        // SAFETY: may be given no info.
        let status = unsafe { finalize(std::ptr::null(), 0) };
        self.check("PMIx_Finalize", status)
    }
}
