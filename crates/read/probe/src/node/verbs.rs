//! Asks libibverbs for what sysfs does not tell: the MTU of each port. The library is opened when it is there.

use libloading::{Library, Symbol};
use std::ffi::{CStr, c_char, c_int, c_void};

/// The MTU of a port, in bytes.
pub(super) struct PortMtu {
    pub device: String,
    pub port: u32,
    pub active: u32,
    pub most: u32,
}

/// The beginning of `struct ibv_port_attr` (rdma-core's libibverbs/verbs.h), and room for the rest of it.
#[repr(C)]
struct PortAttributes {
    state: u32,
    max_mtu: u32,
    active_mtu: u32,
    rest: [u64; 32],
}

type List = unsafe extern "C" fn(*mut c_int) -> *mut *mut c_void;
type FreeList = unsafe extern "C" fn(*mut *mut c_void);
type Name = unsafe extern "C" fn(*mut c_void) -> *const c_char;
type Open = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Query = unsafe extern "C" fn(*mut c_void, u8, *mut PortAttributes) -> c_int;
type Close = unsafe extern "C" fn(*mut c_void) -> c_int;

/// No device has more ports.
const MOST_PORTS: u8 = 4;

/// The MTUs of all ports that may be asked; none where there is no library or no permission.
pub(super) fn mtus() -> Vec<PortMtu> {
    // SAFETY: the library is the system's own, and its functions have had these signatures since version 1.
    unsafe { ask() }.unwrap_or_default()
}

unsafe fn ask() -> Result<Vec<PortMtu>, libloading::Error> {
    // SAFETY: see `mtus`; device handles are used between the list's making and its freeing only, and each is closed.
    unsafe {
        let library = Library::new("libibverbs.so.1")?;
        let list: Symbol<List> = library.get(b"ibv_get_device_list\0")?;
        let free: Symbol<FreeList> = library.get(b"ibv_free_device_list\0")?;
        let name: Symbol<Name> = library.get(b"ibv_get_device_name\0")?;
        let open: Symbol<Open> = library.get(b"ibv_open_device\0")?;
        let query: Symbol<Query> = library.get(b"ibv_query_port\0")?;
        let close: Symbol<Close> = library.get(b"ibv_close_device\0")?;
        let mut found = Vec::new();
        let mut count = 0;
        let devices = list(&mut count);
        if devices.is_null() {
            return Ok(found);
        }
        for at in 0..usize::try_from(count).unwrap_or(0) {
            let device = *devices.add(at);
            let context = open(device);
            if context.is_null() {
                continue;
            }
            let name = CStr::from_ptr(name(device)).to_string_lossy().into_owned();
            for port in 1..=MOST_PORTS {
                let mut attributes = PortAttributes { state: 0, max_mtu: 0, active_mtu: 0, rest: [0; 32] };
                if query(context, port, &mut attributes) != 0 {
                    break;
                }
                if let (Some(active), Some(most)) = (bytes(attributes.active_mtu), bytes(attributes.max_mtu)) {
                    found.push(PortMtu { device: name.clone(), port: u32::from(port), active, most });
                }
            }
            close(context);
        }
        free(devices);
        // Providers' libraries start threads and register handlers: this one stays loaded.
        std::mem::forget(library);
        Ok(found)
    }
}

/// `enum ibv_mtu`: 1 is 256 bytes, 5 is 4096.
fn bytes(mtu: u32) -> Option<u32> {
    (1..=5).contains(&mtu).then(|| 128 << mtu)
}
