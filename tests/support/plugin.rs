//! NCCL's part, as far as tests of the network plugin play it: loads the library, and calls its newest table.

use busbw_nccl_abi::net::{CommConfig, HANDLE_BYTES, NetV12};
use busbw_nccl_abi::{LogLevel, Logger, NcclResult};
use libloading::{Library, Symbol};
use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long anything may take before a test takes it for hung.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What the plugin has logged as warnings.
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The warnings so far.
pub fn warnings() -> Vec<String> {
    WARNINGS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// NCCL's logger is variadic, which Rust cannot define. The plugin always passes the format `%s` and one text, which come as
/// further arguments do.
unsafe extern "C" fn log(
    level: LogLevel,
    _flags: c_ulong,
    _file: *const c_char,
    _line: c_int,
    format: *const c_char,
    text: *const c_char,
) {
    // SAFETY: the plugin passes C strings.
    let (format, text) = unsafe { (CStr::from_ptr(format), CStr::from_ptr(text)) };
    assert_eq!(format, c"%s", "a format that is not constant");
    if level == LogLevel::WARN {
        WARNINGS.lock().unwrap_or_else(PoisonError::into_inner).push(text.to_string_lossy().into_owned());
    }
}

/// The library of this build: Cargo puts what a test depends on beside the test.
pub fn library() -> PathBuf {
    let library = std::env::current_exe().expect("the test knows its file").with_file_name("libnccl_net_busbw.so");
    assert!(library.is_file(), "{} was not built", library.display());
    library
}

/// Calls `step` until it gives something.
pub fn until<T>(what: &str, mut step: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(done) = step() {
            return done;
        }
        assert!(since.elapsed() < PATIENCE, "{what}: nothing in {PATIENCE:?}; {:?}", warnings());
        std::thread::yield_now();
    }
}

/// The plugin, started for a communicator. It stays loaded.
pub struct Plugin {
    table: &'static NetV12,
    context: *mut c_void,
}

/// A listener, a connection's end, a request.
pub type Object = *mut c_void;
pub type Handle = [u8; HANDLE_BYTES];

impl Plugin {
    /// Loads and starts it; `Err` with the result of `init`.
    pub fn start() -> Result<Self, NcclResult> {
        // SAFETY: the library's initializers are Rust's own.
        let library: &'static Library = Box::leak(Box::new(unsafe { Library::new(library()) }.expect("it loads")));
        // SAFETY: the name says the type.
        let table: Symbol<'static, *const NetV12> =
            unsafe { library.get(b"ncclNetPlugin_v12") }.expect("it exports version 12");
        // SAFETY: the table is constant, and the library stays loaded.
        let table = unsafe { &**table };
        let mut context = ptr::null_mut();
        let config = CommConfig { traffic_class: -1 };
        // SAFETY: the same arguments in the same registers, for the one format in use.
        let logger = unsafe {
            std::mem::transmute::<
                unsafe extern "C" fn(LogLevel, c_ulong, *const c_char, c_int, *const c_char, *const c_char),
                Logger,
            >(log)
        };
        // SAFETY: as NCCL calls it.
        let result = unsafe { (table.init.expect("init"))(&mut context, 1, &config, Some(logger), None) };
        if result.is_success() { Ok(Plugin { table, context }) } else { Err(result) }
    }

    pub fn listen(&self) -> (Object, Handle) {
        self.listen_on(0)
    }

    pub fn listen_on(&self, device: c_int) -> (Object, Handle) {
        let (mut listener, mut handle) = (ptr::null_mut(), [0; HANDLE_BYTES]);
        // SAFETY: as NCCL calls it.
        let result = unsafe {
            (self.table.listen.expect("listen"))(self.context, device, handle.as_mut_ptr().cast(), &mut listener)
        };
        assert!(result.is_success() && !listener.is_null(), "{result}: {:?}", warnings());
        (listener, handle)
    }

    /// One call of `connect`.
    pub fn connect(&self, handle: &Handle) -> Result<Option<Object>, NcclResult> {
        self.connect_from(0, handle)
    }

    /// One call of `connect`, from a device.
    pub fn connect_from(&self, device: c_int, handle: &Handle) -> Result<Option<Object>, NcclResult> {
        let (mut sender, mut handle) = (ptr::null_mut(), *handle);
        // SAFETY: as NCCL calls it.
        let result = unsafe {
            (self.table.connect.expect("connect"))(
                self.context,
                device,
                handle.as_mut_ptr().cast(),
                &mut sender,
                ptr::null_mut(),
            )
        };
        given(result, sender)
    }

    /// One call of `accept`.
    pub fn accept(&self, listener: Object) -> Result<Option<Object>, NcclResult> {
        let mut receiver = ptr::null_mut();
        // SAFETY: as NCCL calls it.
        let result = unsafe { (self.table.accept.expect("accept"))(listener, &mut receiver, ptr::null_mut()) };
        given(result, receiver)
    }

    /// A sender and a receiver, joined by way of `handle`, which may lead through a proxy.
    pub fn join(&self, listener: Object, handle: &Handle) -> (Object, Object) {
        let (mut sender, mut receiver) = (None, None);
        until("a connection", || {
            sender = sender.or_else(|| self.connect(handle).expect("connect"));
            receiver = receiver.or_else(|| self.accept(listener).expect("accept"));
            sender.zip(receiver)
        })
    }

    /// A sender and a receiver.
    pub fn pair(&self) -> (Object, Object) {
        let (listener, handle) = self.listen();
        let pair = self.join(listener, &handle);
        self.close_listen(listener);
        pair
    }

    pub fn close_listen(&self, listener: Object) {
        // SAFETY: a listener that is not used again.
        let result = unsafe { (self.table.close_listen.expect("closeListen"))(listener) };
        assert!(result.is_success());
    }

    /// One call of `isend`. The message must live until the request is done, or the connection closed.
    pub fn isend(&self, sender: Object, message: &[u8], tag: c_int) -> Result<Option<Object>, NcclResult> {
        let mut request = ptr::null_mut();
        let data = message.as_ptr().cast_mut().cast();
        // SAFETY: as NCCL calls it.
        let result = unsafe {
            (self.table.isend.expect("isend"))(
                sender,
                data,
                message.len(),
                tag,
                ptr::null_mut(),
                ptr::null_mut(),
                &mut request,
            )
        };
        given(result, request)
    }

    /// One call of `irecv`, of one room, which must live as a message must.
    pub fn irecv(&self, receiver: Object, room: &mut [u8], tag: c_int) -> Result<Option<Object>, NcclResult> {
        let (mut data, mut size, mut tag) = (room.as_mut_ptr().cast(), room.len(), tag);
        let (mut registration, mut profile, mut request) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: as NCCL calls it.
        let result = unsafe {
            (self.table.irecv.expect("irecv"))(
                receiver,
                1,
                &mut data,
                &mut size,
                &mut tag,
                &mut registration,
                &mut profile,
                &mut request,
            )
        };
        given(result, request)
    }

    /// The size of a request's message, if it is done.
    pub fn test(&self, request: Object) -> Result<Option<usize>, NcclResult> {
        let (mut done, mut size) = (0, 0);
        // SAFETY: as NCCL calls it.
        let result = unsafe { (self.table.test.expect("test"))(request, &mut done, &mut size) };
        if result.is_success() { Ok((done == 1).then_some(size as usize)) } else { Err(result) }
    }

    /// Sends one message and receives it; what came, or the first error of either side.
    pub fn carry(&self, (sender, receiver): (Object, Object), message: &[u8]) -> Result<Vec<u8>, NcclResult> {
        let mut room = vec![0; message.len()];
        let mut receive = self.irecv(receiver, &mut room, 0)?;
        let mut send = self.isend(sender, message, 0)?;
        until("a message", || {
            for request in [&mut send, &mut receive] {
                match request.map(|request| self.test(request)) {
                    Some(Err(result)) => return Some(Err(result)),
                    Some(Ok(Some(_))) => *request = None,
                    _ => {}
                }
            }
            (send.is_none() && receive.is_none()).then_some(Ok(()))
        })?;
        Ok(room)
    }

    /// Closes a sender and a receiver.
    pub fn close(&self, (sender, receiver): (Object, Object)) {
        // SAFETY: they are not used again.
        let results = unsafe {
            ((self.table.close_send.expect("closeSend"))(sender), (self.table.close_recv.expect("closeRecv"))(receiver))
        };
        assert!(results.0.is_success() && results.1.is_success());
    }
}

fn given(result: NcclResult, object: Object) -> Result<Option<Object>, NcclResult> {
    if result.is_success() { Ok((!object.is_null()).then_some(object)) } else { Err(result) }
}

/// Bytes that tell where they belong.
pub fn content(message: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(131) ^ (i >> 9) ^ message.wrapping_mul(97)) as u8).collect()
}
