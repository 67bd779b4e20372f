//! A loaded profiler, with the same functions for every version of the interface. What a version does not know is not told to it, as in
//! NCCL's translation to older ones (`src/plugin/profiler/profiler_v*.cc`, 2.30.7).

use super::call::{Answer, call};
use super::library::{self, PROFILER};
use super::log;
use busbw_nccl_abi::profiler::*;
use libloading::os::unix::Library;
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{null, null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicI32, Ordering};

/// NCCL's number of the communicators that are played.
const COMMUNICATOR: u64 = 0xB0B;
/// Elements of the operations that are played.
const COUNT: usize = 1 << 20;
/// Kinds of events that come from parts of an operation: where one of them is wanted, NCCL tells the operation too
/// (`src/plugin/profiler.cc:481`).
const PARTS: u64 = kinds::PROXY_OPERATION | kinds::PROXY_STEP | kinds::KERNEL | kinds::NET_PLUGIN;

/// A profiler by one version of the interface.
pub(crate) struct Profiler {
    version: u8,
    library: &'static Library,
    /// What `init` asked for last: one mask for the process (`ncclProfilerEventMask`, `src/plugin/profiler.cc:219`), which the next `init` may
    /// change or leave as it is.
    mask: AtomicI32,
    table: Form,
    stop: Stop,
    record: RecordState,
    finalize: Finalize,
}

enum Form {
    V1(&'static ProfilerV1),
    V2(&'static ProfilerV2),
    V3(&'static ProfilerV3),
    V4(&'static ProfilerV4),
    V5(&'static ProfilerV5),
    V6(&'static ProfilerV6),
}

/// What comes with a state in versions 1 to 3 (`ncclProfilerEventStateArgs_v1_t`); later ones read its first eight bytes.
#[repr(C)]
struct StateOfOldest {
    value: u64,
    steps: c_int,
}

/// How far a proxy's operation is: states of versions 1 to 3, which NCCL told until 2.26.
pub(crate) mod progress {
    use std::ffi::c_int;

    pub const SEND: [c_int; 4] = [0, 1, 2, 3];
    pub const RECEIVE: [c_int; 4] = [4, 5, 6, 7];
}

/// What a profiler holds of a communicator: an address, for threads hand it on.
#[derive(Clone, Copy)]
pub(crate) struct Profiled(usize);

/// The profiler's handle of an event; none where it does not want to hear of it.
#[derive(Clone, Copy)]
pub(crate) struct Event(usize);

impl Event {
    pub const NONE: Self = Event(0);
    /// The handle of an event of another process, which means nothing in this one.
    pub const OF_ANOTHER_PROCESS: Self = Event(0x7f00_0000_1230);

    pub fn is_some(self) -> bool {
        self.0 != 0
    }

    fn pointer(self) -> *mut c_void {
        with_exposed_provenance_mut(self.0)
    }
}

/// What begins.
#[derive(Clone, Copy)]
pub(crate) enum What {
    GroupCall,
    CollectiveCall { captured: bool },
    P2pCall,
    KernelLaunch,
    Group,
    Collective { group: Event },
    P2p { group: Event },
    ProxyControl,
    ProxyOperation { process: u32, sends: bool, steps: c_int },
    ProxyStep { number: c_int },
    Kernel { timer: u64 },
    CopyEngine,
}

impl What {
    fn kind(self) -> u64 {
        match self {
            What::GroupCall => kinds::GROUP_CALL,
            What::CollectiveCall { .. } => kinds::COLLECTIVE_CALL,
            What::P2pCall => kinds::P2P_CALL,
            What::KernelLaunch => kinds::KERNEL_LAUNCH,
            What::Group => kinds::GROUP,
            What::Collective { .. } => kinds::COLLECTIVE,
            What::P2p { .. } => kinds::P2P,
            What::ProxyControl => kinds::PROXY_CONTROL,
            What::ProxyOperation { .. } => kinds::PROXY_OPERATION,
            What::ProxyStep { .. } => kinds::PROXY_STEP,
            What::Kernel { .. } => kinds::KERNEL,
            What::CopyEngine => kinds::COPY_ENGINE,
        }
    }

    /// Kinds of which one must be in the mask.
    fn wanted_by(self) -> u64 {
        let calls = kinds::COLLECTIVE_CALL | kinds::P2P_CALL | kinds::KERNEL_LAUNCH | kinds::COLLECTIVE | kinds::P2P;
        match self {
            What::GroupCall => kinds::GROUP_CALL | calls | PARTS,
            What::CollectiveCall { .. } => kinds::COLLECTIVE_CALL | kinds::COLLECTIVE | PARTS,
            What::P2pCall => kinds::P2P_CALL | kinds::P2P | PARTS,
            What::Group => kinds::GROUP | kinds::COLLECTIVE | kinds::P2P | PARTS,
            What::Collective { .. } => kinds::COLLECTIVE | PARTS,
            What::P2p { .. } => kinds::P2P | PARTS,
            What::ProxyOperation { .. } => kinds::PROXY_OPERATION | kinds::PROXY_STEP | kinds::NET_PLUGIN,
            What::ProxyStep { .. } => kinds::PROXY_STEP | kinds::NET_PLUGIN,
            _ => self.kind(),
        }
    }
}

impl Profiler {
    /// The profiler of a file by `version`, or else the newest.
    pub fn open(path: &Path, version: Option<u8>) -> Result<Self, String> {
        let library = library::load(path)?;
        let version = PROFILER.chosen(library, version)?;
        macro_rules! of {
            ($form:path) => {
                PROFILER.exported(library, version).map(|table| Profiler {
                    version,
                    library,
                    mask: AtomicI32::new(0),
                    table: $form(table),
                    stop: table.stop,
                    record: table.record_state,
                    finalize: table.finalize,
                })
            };
        }
        let profiler = match version {
            1 => of!(Form::V1),
            2 => of!(Form::V2),
            3 => of!(Form::V3),
            4 => of!(Form::V4),
            5 => of!(Form::V5),
            _ => of!(Form::V6),
        };
        profiler.ok_or_else(|| format!("exports no profiler of version {version}"))
    }

    /// Has the file closed and loaded again, as NCCL does between a process's last communicator and the next. The mask stays: it is NCCL's.
    pub fn load_again(&mut self, path: &Path) -> Result<(), String> {
        let mask = self.mask();
        library::close(self.library);
        *self = Self::open(path, Some(self.version))?;
        self.mask.store(mask, Ordering::Relaxed);
        Ok(())
    }

    /// Starts a communicator of 4 ranks on 2 nodes, as `ncclProfilerPluginInit` does (`src/plugin/profiler.cc:250`).
    pub fn init(&self, rank: c_int) -> Answer<Profiled> {
        let (mut context, mut mask) = (null_mut::<c_void>(), self.mask());
        let (name, logger) = (c"dp".as_ptr(), Some(log::logger()));
        let of = COMMUNICATOR;
        macro_rules! init {
            ($table:expr, $($argument:expr),*) => { call!("init", $table.init, $($argument),*) };
        }
        match self.table {
            Form::V1(table) => init!(table, &mut context, &mut mask),
            Form::V2(table) => init!(table, &mut context, &mut mask),
            Form::V3(table) => init!(table, &mut context, &mut mask),
            Form::V4(table) => init!(table, &mut context, &mut mask, name, of, 2, 4, rank, logger),
            Form::V5(table) => init!(table, &mut context, of, &mut mask, name, 2, 4, rank, logger),
            Form::V6(table) => init!(table, &mut context, of, &mut mask, name, 2, 4, rank, logger),
        }?;
        self.mask.store(mask, Ordering::Relaxed);
        Ok(Profiled(context.expose_provenance()))
    }

    /// The kinds of events that are asked for.
    pub fn mask(&self) -> c_int {
        self.mask.load(Ordering::Relaxed)
    }

    /// Begins an event; `None` where the profiler asked for no such or the version has none.
    pub fn start(&self, communicator: Profiled, parent: Event, what: What) -> Answer<Option<Event>> {
        if u64::from(self.mask().cast_unsigned()) & what.wanted_by() == 0 {
            return Ok(None);
        }
        let mut handle: *mut c_void = null_mut();
        macro_rules! start {
            ($table:expr) => {{
                let Some(of) = described(what) else { return Ok(None) };
                // Up to version 4 the group is the parent of what it holds.
                let parent = match what {
                    What::Collective { group } | What::P2p { group } if self.version < 5 => group,
                    _ => parent,
                };
                // A byte in older versions, which have no kinds beyond.
                let kind = what.kind().try_into().unwrap_or_default();
                let descriptor = Descriptor { kind, parent: parent.pointer(), rank: 1, of };
                let context: *mut c_void = with_exposed_provenance_mut(communicator.0);
                call!("startEvent", $table.start, context, &mut handle, &descriptor)
            }};
        }
        match self.table {
            Form::V1(table) => start!(table),
            Form::V2(table) => start!(table),
            Form::V3(table) => start!(table),
            Form::V4(table) => start!(table),
            Form::V5(table) => start!(table),
            Form::V6(table) => start!(table),
        }?;
        Ok(Some(Event(handle.expose_provenance())))
    }

    /// Whether this state can be told of this event: where there is one. Versions 1 to 3 know fewer states, and an operation's own progress.
    pub fn has_state(&self, event: Event, state: c_int) -> bool {
        let known = if self.version > 3 { state >= states::SEND_GPU_WAIT } else { state < states::PROXY_IN_PROGRESS };
        event.is_some() && known
    }

    /// Ends an event: NCCL does so where there is one.
    pub fn stop(&self, event: Event) -> Answer<()> {
        if event.is_some() { call!("stopEvent", self.stop, event.pointer()) } else { Ok(()) }
    }

    /// Tells an event's state, with its bytes or the GPU's time, and how far an operation is.
    pub fn record(&self, event: Event, state: c_int, value: u64, steps: c_int) -> Answer<()> {
        if !self.has_state(event, state) {
            return Ok(());
        }
        let arguments = StateOfOldest { value, steps };
        call!("recordEventState", self.record, event.pointer(), state, (&raw const arguments).cast::<StateArguments>())
    }

    /// Ends a communicator, as `ncclProfilerPluginFinalize` does (`src/plugin/profiler.cc:266`), where the profiler has a context.
    pub fn finalize(&self, communicator: Profiled) -> Answer<()> {
        if communicator.0 == 0 {
            return Ok(());
        }
        call!("finalize", self.finalize, with_exposed_provenance_mut(communicator.0))
    }
}

/// A version's form of what begins; `None` where it has none.
fn described<T: Described>(what: What) -> Option<T> {
    // SAFETY: unions of numbers and pointers, for which zeros are values; NCCL sets all to zero as well.
    let mut of = unsafe { std::mem::zeroed::<T>() };
    of.describe(what).then_some(of)
}

/// What a version tells of an event: a union of which the kind's member is set.
trait Described {
    /// Sets the member; false where the version does not know the kind.
    fn describe(&mut self, what: What) -> bool;
}

const FUNCTION: *const c_char = c"AllReduce".as_ptr();
const DATATYPE: *const c_char = c"ncclFloat32".as_ptr();
/// Numbers of the same (`ncclFunc_t`, `ncclDataType_t`, and those of algorithms and protocols).
const ALL_REDUCE: u8 = 4;
const SEND: u8 = 6;
const FLOAT: u8 = 7;
const CHANNELS: u8 = 2;

fn named<T>(traffic: T) -> Named<T> {
    Named {
        sequence: 5,
        function: FUNCTION,
        send: null(),
        receive: null_mut(),
        count: COUNT,
        root: 0,
        datatype: DATATYPE,
        traffic,
        channels: CHANNELS,
        warps: 16,
        algorithm: c"RING".as_ptr(),
        protocol: c"SIMPLE".as_ptr(),
    }
}

fn p2p() -> P2p {
    P2p { function: c"Send".as_ptr(), buffer: null_mut(), datatype: DATATYPE, count: COUNT, peer: 2 }
}

fn proxy_operation(process: u32, sends: bool, steps: c_int) -> ProxyOperation {
    let peer = if sends { 2 } else { 3 };
    let (process, sends) = (process.cast_signed(), c_int::from(sends));
    ProxyOperation { process, channel: 1, peer, steps, chunk: 1 << 19, sends }
}

/// Of 2 and 3, which name the communicator.
fn of_communicator<C>(what: C) -> OfCommunicator<C> {
    OfCommunicator { name: null(), communicator: 0, what }
}

impl Described for OfV1 {
    fn describe(&mut self, what: What) -> bool {
        match what {
            What::Group | What::ProxyControl => {}
            What::Collective { .. } => {
                let Named { sequence, count, channels, warps, .. } = named(());
                self.collective.sequence = sequence;
                self.collective.function = ALL_REDUCE;
                self.collective.count = count;
                self.collective.datatype = FLOAT;
                self.collective.channels = channels;
                self.collective.warps = warps;
                (self.collective.algorithm, self.collective.protocol) = (1, 2);
            }
            What::P2p { .. } => {
                let P2p { count, peer, .. } = p2p();
                (self.p2p.function, self.p2p.datatype, self.p2p.count, self.p2p.peer) = (SEND, FLOAT, count, peer);
            }
            What::ProxyOperation { process, sends, steps } => {
                self.proxy_operation = proxy_operation(process, sends, steps)
            }
            What::ProxyStep { number } => self.proxy_step = number,
            _ => return false,
        }
        true
    }
}

impl Described for OfV2 {
    fn describe(&mut self, what: What) -> bool {
        match what {
            What::Group | What::ProxyControl => {}
            What::Collective { .. } => self.collective = of_communicator(named(0)),
            What::P2p { .. } => self.p2p = of_communicator(p2p()),
            What::ProxyOperation { process, sends, steps } => {
                self.proxy_operation = proxy_operation(process, sends, steps)
            }
            What::ProxyStep { number } => self.proxy_step = number,
            _ => return false,
        }
        true
    }
}

impl Described for OfV3 {
    fn describe(&mut self, what: What) -> bool {
        match what {
            What::Group | What::ProxyControl => {}
            What::Collective { .. } => self.collective = of_communicator(named(())),
            What::P2p { .. } => self.p2p = of_communicator(p2p()),
            What::ProxyOperation { process, sends, steps } => {
                self.proxy_operation = proxy_operation(process, sends, steps)
            }
            What::ProxyStep { number } => self.proxy_step = number,
            What::Kernel { .. } => self.kernel = 1,
            _ => return false,
        }
        true
    }
}

impl Described for OfV4 {
    fn describe(&mut self, what: What) -> bool {
        match what {
            What::Group | What::ProxyControl => {}
            What::Collective { .. } => self.collective = named(()),
            What::P2p { .. } => self.p2p = p2p(),
            What::ProxyOperation { process, sends, steps } => {
                self.proxy_operation = proxy_operation(process, sends, steps)
            }
            What::ProxyStep { number } => self.proxy_step = number,
            What::Kernel { timer } => self.kernel = Kernel { channel: 1, timer },
            _ => return false,
        }
        true
    }
}

impl Described for OfV5 {
    fn describe(&mut self, what: What) -> bool {
        let stream = null_mut();
        match what {
            What::GroupCall => self.group_call = GroupCall { captured: false, depth: 1 },
            What::CollectiveCall { captured } => {
                let (function, datatype) = (FUNCTION, DATATYPE);
                self.collective_call = CollectiveCall { function, count: COUNT, datatype, root: 0, stream, captured }
            }
            What::P2pCall => {
                let P2p { function, count, datatype, .. } = p2p();
                self.p2p_call = P2pCall { function, count, datatype, stream, captured: false }
            }
            What::KernelLaunch => self.kernel_launch = stream,
            What::Collective { group } => {
                self.collective = CollectiveOfGroup { what: named(()), group: group.pointer() }
            }
            What::P2p { group } => {
                let P2p { function, buffer, datatype, count, peer } = p2p();
                let (channels, group) = (CHANNELS, group.pointer());
                self.p2p = P2pOfGroup { function, buffer, datatype, count, peer, channels, group }
            }
            _ => {
                // SAFETY: what 4 has is a union of numbers and pointers too, and was set to zero.
                return unsafe { &mut self.v4 }.describe(what);
            }
        }
        true
    }
}

impl Described for OfV6 {
    fn describe(&mut self, what: What) -> bool {
        match what {
            What::CopyEngine => {
                self.copy_engine.function = FUNCTION;
                self.copy_engine.count = COUNT;
                self.copy_engine.datatype = DATATYPE;
                self.copy_engine.strategy = c"MC".as_ptr();
            }
            _ => {
                // SAFETY: what 5 has is a union of numbers and pointers too, and was set to zero.
                return unsafe { &mut self.v5 }.describe(what);
            }
        }
        true
    }
}
