//! A loaded plugin, with the same functions for every version of the interface.

mod call;
mod calls;
mod library;
mod log;
mod memory;
mod profiler;
mod tuner;
mod watchdog;

pub(crate) use call::Answer;
pub(crate) use memory::Memory;
pub(crate) use profiler::{Event, Profiled, Profiler, What, progress};
pub(crate) use tuner::{Costs, Tuned, Tuner, Way};
pub(crate) use watchdog::Watchdog;

use crate::wire::Wrong;
use busbw_model::{NetworkOffer, PartOffer, PluginDevice, UnusablePlugin};
use busbw_nccl_abi::net::*;
use call::call;
use calls::*;
use library::{NETWORK, PROFILER, TUNER, Table, text};
use std::ffi::{c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;

/// Sizes of a request's messages, as `test` wrote them; `None` where it wrote none.
pub(crate) type MessageSizes = Vec<Option<usize>>;

/// What stands in the place of a size until `test` writes one.
const UNTOLD: c_int = c_int::MIN;

/// What `listen` wrote, to be carried to the other end.
pub(crate) type Handle = [u8; HANDLE_BYTES];

/// Objects of the plugin. They stay the plugin's: who closes them does so by name.
#[derive(Clone, Copy)]
pub(crate) struct Listener(*mut c_void);
#[derive(Clone, Copy)]
pub(crate) struct Sender(*mut c_void);
#[derive(Clone, Copy)]
pub(crate) struct Receiver(*mut c_void);
#[derive(Clone, Copy)]
pub(crate) struct Registration(*mut c_void);
#[derive(Clone, Copy)]
pub(crate) struct Request(*mut c_void);

/// A message that is to be received.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub memory: Memory,
    pub tag: i32,
    pub registration: Registration,
}

/// A loaded plugin.
pub(crate) struct Plugin {
    calls: Calls,
    context: *mut c_void,
    network: String,
    version: u8,
    versions: Vec<u8>,
}

impl Plugin {
    /// Loads a file's network by the newest version that is known, or by the one that is asked for.
    pub fn open(path: &Path, version: Option<u8>) -> Result<Self, String> {
        let found = library::network(library::load(path)?, version)?;
        Ok(Plugin {
            calls: found.calls,
            context: null_mut(),
            network: found.name,
            version: found.version,
            versions: found.versions,
        })
    }

    /// Starts the network, as NCCL does for a communicator.
    pub fn init(&mut self, communicator: u64) -> Answer<()> {
        let logger = Some(log::logger());
        let config = CommConfig { traffic_class: TRAFFIC_CLASS_UNDEF };
        match self.calls.init {
            InitForm::Plain(init) => call!("init", init, logger),
            InitForm::Profiled(init) => call!("init", init, logger, None),
            InitForm::Context(init) => call!("init", init, &mut self.context, communicator, &config, logger, None),
        }
    }

    /// Starts it once more, as for another communicator; gives the plugin in that context. `None` where versions have no contexts.
    pub fn another(&self, communicator: u64) -> Answer<Option<Plugin>> {
        if !matches!(self.calls.init, InitForm::Context(_)) {
            return Ok(None);
        }
        let (network, versions) = (self.network.clone(), self.versions.clone());
        let mut other = Plugin { calls: self.calls, context: null_mut(), network, version: self.version, versions };
        other.init(communicator)?;
        Ok(Some(other))
    }

    /// Ends a communicator's context, where the version has contexts.
    pub fn finalize(&self) -> Answer<()> {
        match self.calls.init {
            InitForm::Context(_) => call!("finalize", self.calls.finalize, self.context),
            _ => Ok(()),
        }
    }

    /// What the plugin says of its network.
    pub fn offer(&self) -> Answer<NetworkOffer> {
        let devices = (0..self.devices()?).map(|device| self.properties(device)).collect::<Answer<_>>()?;
        let (name, versions) = (self.network.clone(), self.versions.clone());
        Ok(NetworkOffer { name, version: self.version, versions, devices, said: log::lines() })
    }

    pub fn devices(&self) -> Answer<c_int> {
        let mut count = 0;
        call!("devices", self.calls.devices, &mut count)?;
        if count <= 0 { Err(Wrong::from(format!("devices found {count}"))) } else { Ok(count) }
    }

    /// Requests that NCCL would keep under way on a connection.
    pub fn most_requests(&self) -> usize {
        // NCCL_NET_MAX_REQUESTS was 8 until 2.18, which loads version 6 at most.
        if self.version == 6 { 8 } else { MOST_REQUESTS }
    }

    pub fn properties(&self, device: c_int) -> Answer<PluginDevice> {
        /// Calls `getProperties` of a version and takes the fields that all versions have from `$base` of the answer.
        macro_rules! of {
            ($function:expr, $zero:ty, $($base:ident)*) => {{
                // SAFETY: numbers and pointers, for which zeros are values.
                let mut found: $zero = unsafe { std::mem::zeroed() };
                call!("getProperties", $function, device, &mut found)?;
                let base = found$(.$base)*;
                PluginDevice {
                    name: text(base.name).ok_or_else(|| Wrong::from(format!("getProperties gave device {device} no name")))?,
                    pci_path: text(base.pci_path),
                    speed_mbps: base.speed_mbps,
                    latency_us: base.latency_us,
                    most_grouped: base.most_grouped,
                    most_connections: base.most_connections,
                    gpu_memory: base.ptr_support & (PTR_CUDA | PTR_DMABUF) != 0,
                }
            }};
        }
        Ok(match self.calls.properties {
            PropertiesForm::V6(function) => of!(function, PropertiesV6,),
            PropertiesForm::V7(function) => of!(function, PropertiesV7, base),
            PropertiesForm::V8(function) => of!(function, PropertiesV8,),
            PropertiesForm::V9(function) => of!(function, PropertiesV9<4>,),
            PropertiesForm::V11(function) => of!(function, PropertiesV11, base),
            PropertiesForm::V12(function) => of!(function, PropertiesV12, base),
        })
    }

    pub fn listen(&self, device: c_int) -> Answer<(Handle, Listener)> {
        let (mut handle, mut listener) = ([0_u8; HANDLE_BYTES], null_mut());
        let room = handle.as_mut_ptr().cast();
        match self.calls.listen {
            ListenForm::Plain(listen) => call!("listen", listen, device, room, &mut listener),
            ListenForm::Context(listen) => call!("listen", listen, self.context, device, room, &mut listener),
        }?;
        if listener.is_null() {
            Err(Wrong::from("listen gave no listener".to_owned()))
        } else {
            Ok((handle, Listener(listener)))
        }
    }

    /// One try to connect; `None` while it is under way. The plugin may keep notes in the handle from try to try.
    pub fn connect(&self, device: c_int, handle: &mut Handle) -> Answer<Option<Sender>> {
        let (mut sender, mut offload) = (null_mut(), null_mut());
        let config = CommConfig { traffic_class: TRAFFIC_CLASS_UNDEF };
        let handle = handle.as_mut_ptr().cast();
        match self.calls.connect {
            ConnectForm::Plain(connect) => call!("connect", connect, device, handle, &mut sender),
            ConnectForm::Offload(connect) => call!("connect", connect, device, handle, &mut sender, &mut offload),
            ConnectForm::Config(connect) => {
                call!("connect", connect, device, &config, handle, &mut sender, &mut offload)
            }
            ConnectForm::Context(connect) => {
                call!("connect", connect, self.context, device, handle, &mut sender, &mut offload)
            }
        }?;
        Ok((!sender.is_null()).then_some(Sender(sender)))
    }

    /// One try to accept; `None` while nobody is there.
    pub fn accept(&self, listener: Listener) -> Answer<Option<Receiver>> {
        let (mut receiver, mut offload) = (null_mut(), null_mut());
        match self.calls.accept {
            AcceptForm::Plain(accept) => call!("accept", accept, listener.0, &mut receiver),
            AcceptForm::Offload(accept) => call!("accept", accept, listener.0, &mut receiver, &mut offload),
        }?;
        Ok((!receiver.is_null()).then_some(Receiver(receiver)))
    }

    pub fn register_to_send(&self, sender: Sender, memory: Memory) -> Answer<Registration> {
        self.register(sender.0, memory)
    }

    pub fn register_to_receive(&self, receiver: Receiver, memory: Memory) -> Answer<Registration> {
        self.register(receiver.0, memory)
    }

    fn register(&self, connection: *mut c_void, memory: Memory) -> Answer<Registration> {
        let mut registration = null_mut();
        let (start, len) = (memory.start().cast(), memory.len());
        match self.calls.register {
            RegisterForm::Int(register) => {
                call!("regMr", register, connection, start, as_int(len)?, PTR_HOST, &mut registration)
            }
            RegisterForm::Size(register) => {
                call!("regMr", register, connection, start, len, PTR_HOST, &mut registration)
            }
        }?;
        Ok(Registration(registration))
    }

    /// Lets go of memory registered with a sender.
    pub fn deregister(&self, sender: Sender, registration: Registration) -> Answer<()> {
        call!("deregMr", self.calls.deregister, sender.0, registration.0)
    }

    /// Posts a send; `None` when the plugin is busy.
    pub fn isend(
        &self,
        sender: Sender,
        memory: Memory,
        tag: i32,
        registration: Registration,
    ) -> Answer<Option<Request>> {
        let mut request = null_mut();
        let (start, len) = (memory.start().cast(), memory.len());
        match self.calls.isend {
            IsendForm::Int(isend) => {
                call!("isend", isend, sender.0, start, as_int(len)?, tag, registration.0, &mut request)
            }
            IsendForm::Size(isend) => call!("isend", isend, sender.0, start, len, tag, registration.0, &mut request),
            IsendForm::Profiled(isend) => {
                call!("isend", isend, sender.0, start, len, tag, registration.0, null_mut(), &mut request)
            }
        }?;
        Ok((!request.is_null()).then_some(Request(request)))
    }

    /// Posts a group of receives; `None` when the plugin is busy.
    pub fn irecv(&self, receiver: Receiver, rooms: &[Room]) -> Answer<Option<Request>> {
        let mut request = null_mut();
        let n = as_int(rooms.len())?;
        let mut data: Vec<*mut c_void> = rooms.iter().map(|room| room.memory.start().cast()).collect();
        let mut sizes: Vec<usize> = rooms.iter().map(|room| room.memory.len()).collect();
        let mut tags: Vec<c_int> = rooms.iter().map(|room| room.tag).collect();
        let mut registrations: Vec<*mut c_void> = rooms.iter().map(|room| room.registration.0).collect();
        let (data, tags, kept) = (data.as_mut_ptr(), tags.as_mut_ptr(), registrations.as_mut_ptr());
        match self.calls.irecv {
            IrecvForm::Int(irecv) => {
                let mut sizes = sizes.iter().map(|size| as_int(*size)).collect::<Answer<Vec<_>>>()?;
                call!("irecv", irecv, receiver.0, n, data, sizes.as_mut_ptr(), tags, kept, &mut request)
            }
            IrecvForm::Size(irecv) => {
                call!("irecv", irecv, receiver.0, n, data, sizes.as_mut_ptr(), tags, kept, &mut request)
            }
            IrecvForm::Profiled(irecv) => {
                let mut profiles: Vec<*mut c_void> = vec![null_mut(); rooms.len()];
                let (sizes, profiles) = (sizes.as_mut_ptr(), profiles.as_mut_ptr());
                call!("irecv", irecv, receiver.0, n, data, sizes, tags, kept, profiles, &mut request)
            }
        }?;
        Ok((!request.is_null()).then_some(Request(request)))
    }

    /// Asks for what was received to be visible to the GPU; `None` when there is nothing to wait for.
    pub fn iflush(&self, receiver: Receiver, room: Room) -> Answer<Option<Request>> {
        let mut request = null_mut();
        let (mut data, mut registration) = (room.memory.start().cast::<c_void>(), room.registration.0);
        let mut size = as_int(room.memory.len())?;
        call!("iflush", self.calls.iflush, receiver.0, 1, &mut data, &mut size, &mut registration, &mut request)?;
        Ok((!request.is_null()).then_some(Request(request)))
    }

    /// Asks after a request of `n` messages: their sizes once it is done. Then the request is gone. A flush has none: NCCL
    /// gives no room for sizes then (`src/transport/net.cc:1700` in 2.30.7).
    pub fn test(&self, request: Request, n: usize) -> Answer<Option<MessageSizes>> {
        let (mut done, mut sizes) = (0, vec![UNTOLD; n]);
        let room = if n == 0 { null_mut() } else { sizes.as_mut_ptr() };
        call!("test", self.calls.test, request.0, &mut done, room)?;
        if done == 0 {
            return Ok(None);
        }
        let told = |size| if size == UNTOLD { Ok(None) } else { usize::try_from(size).map(Some) };
        let sizes = sizes.into_iter().map(told).collect::<Result<MessageSizes, _>>();
        sizes.map(Some).map_err(|_| Wrong::from("test gave a size below zero".to_owned()))
    }

    pub fn close_send(&self, sender: Sender) -> Answer<()> {
        call!("closeSend", self.calls.close_send, sender.0)
    }

    pub fn close_recv(&self, receiver: Receiver) -> Answer<()> {
        call!("closeRecv", self.calls.close_recv, receiver.0)
    }

    pub fn close_listen(&self, listener: Listener) -> Answer<()> {
        call!("closeListen", self.calls.close_listen, listener.0)
    }
}

/// What a file exports beside a network: a tuner and a profiler.
pub(crate) struct Exports {
    pub network: bool,
    pub tuner: Option<PartOffer>,
    pub profiler: Option<PartOffer>,
}

/// Looks which of NCCL's tables a file exports.
pub(crate) fn exports(path: &Path) -> Result<Exports, String> {
    let library = library::load(path)?;
    let part = |table: &Table| {
        let versions = table.versions_of(library);
        let name = table.name(library, *versions.first()?).unwrap_or_default();
        Some(PartOffer { name, versions })
    };
    let network = !NETWORK.versions_of(library).is_empty();
    Ok(Exports { network, tuner: part(&TUNER), profiler: part(&PROFILER) })
}

/// The last of what a plugin logged.
pub(crate) fn last_line() -> Option<String> {
    log::lines().pop()
}

/// Why a plugin cannot be used, with all that it logged.
pub(crate) fn unusable(why: String) -> UnusablePlugin {
    UnusablePlugin { why, logged: log::with_levels() }
}

fn as_int(size: usize) -> Answer<c_int> {
    c_int::try_from(size).map_err(|_| Wrong::from(format!("{size} bytes do not fit this version's sizes")))
}
