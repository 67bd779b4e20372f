//! The interface of tuner plugins, `ncclTuner_v2_t` to `ncclTuner_v6_t` (`src/include/plugin/tuner/tuner_v*.h`, NCCL 2.30).
//!
//! | version | newest that NCCL loads | what it brought |
//! | --- | --- | --- |
//! | 2 | 2.21 | the choice as three numbers |
//! | 3 | 2.22, 2.23 | the table of costs, which the plugin changes |
//! | 4 | 2.24 to 2.27 | whether the buffers are registered |
//! | 5 | 2.28, 2.29 | the communicator's number, NVLink domains, constants of the model |
//! | 6 | 2.30 | the size of chunks |
//!
//! NCCL looks for the newest it knows (`src/plugin/tuner.cc`). It calls `getCollInfo` at the end of a group, on the
//! application's thread, for each collective that has an algorithm: not for sends and receives (`ncclGetAlgoInfo` in
//! `src/enqueue.cc`). What `getCollInfo` returns goes to the application: the header says that an error falls back to NCCL's own
//! choice, and 2.27.7 and 2.30.7 pass it on.

use crate::{Logger, NcclResult};
use std::ffi::{c_char, c_int, c_void};

/// Algorithms of the table of costs, `NCCL_NUM_ALGORITHMS`: 6 before 2.23, without PAT.
pub const ALGORITHMS: usize = 7;
/// Protocols of the table of costs, `NCCL_NUM_PROTOCOLS`.
pub const PROTOCOLS: usize = 3;

/// `ncclFunc_t`.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function(pub c_int);

impl Function {
    pub const BROADCAST: Self = Function(0);
    pub const REDUCE: Self = Function(1);
    pub const ALL_GATHER: Self = Function(2);
    pub const REDUCE_SCATTER: Self = Function(3);
    pub const ALL_REDUCE: Self = Function(4);
}

/// `ncclNvlDomainInfo_v5_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NvlDomains {
    pub count: c_int,
    pub least_ranks: c_int,
    pub most_ranks: c_int,
}

/// `init` of 2 to 4.
pub type Init = Option<
    unsafe extern "C" fn(ranks: usize, nodes: usize, log: Option<Logger>, context: *mut *mut c_void) -> NcclResult,
>;
/// `init` since 5; the constants (`ncclTunerConstants_v5_t`) may be changed.
pub type InitWithDomains = Option<
    unsafe extern "C" fn(
        context: *mut *mut c_void,
        communicator: u64,
        ranks: usize,
        nodes: usize,
        log: Option<Logger>,
        domains: *mut NvlDomains,
        constants: *mut c_void,
    ) -> NcclResult,
>;
/// `getCollInfo` of 2: what is not set is NCCL's to choose.
pub type Choose = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        function: Function,
        bytes: usize,
        collnet: c_int,
        nvls: c_int,
        operations: c_int,
        algorithm: *mut c_int,
        protocol: *mut c_int,
        channels: *mut c_int,
    ) -> NcclResult,
>;
/// `getCollInfo` of 3. The table is declared as pointers to rows, and is one array, row after row.
pub type ChooseByCost = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        function: Function,
        bytes: usize,
        operations: c_int,
        costs: *mut *mut f32,
        algorithms: c_int,
        protocols: c_int,
        channels: *mut c_int,
    ) -> NcclResult,
>;
/// `getCollInfo` since 4.
pub type ChooseRegistered = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        function: Function,
        bytes: usize,
        operations: c_int,
        costs: *mut *mut f32,
        algorithms: c_int,
        protocols: c_int,
        registered: c_int,
        channels: *mut c_int,
    ) -> NcclResult,
>;
/// `getChunkSize` since 6: NCCL bounds what is written by its buffers.
pub type ChunkSize = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        function: Function,
        bytes: usize,
        algorithm: c_int,
        protocol: c_int,
        channels: c_int,
        chunk: *mut usize,
    ) -> NcclResult,
>;
/// `destroy`, since 5 `finalize`.
pub type Finalize = Option<unsafe extern "C" fn(context: *mut c_void) -> NcclResult>;

/// `ncclTuner_v2_t` to `ncclTuner_v5_t`: they differ in the forms of two functions.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Tuner<I, C> {
    /// The tuner's name, for logs.
    pub name: *const c_char,
    pub init: I,
    pub choose: C,
    pub finalize: Finalize,
}

/// `ncclTuner_v2_t`.
pub type TunerV2 = Tuner<Init, Choose>;
/// `ncclTuner_v3_t`.
pub type TunerV3 = Tuner<Init, ChooseByCost>;
/// `ncclTuner_v4_t`.
pub type TunerV4 = Tuner<Init, ChooseRegistered>;
/// `ncclTuner_v5_t`.
pub type TunerV5 = Tuner<InitWithDomains, ChooseRegistered>;

/// `ncclTuner_v6_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TunerV6 {
    /// What 5 has.
    pub v5: TunerV5,
    /// May be null.
    pub chunk_size: ChunkSize,
}

// SAFETY: a table is constant: a pointer to a constant name, and pointers to functions.
unsafe impl<I, C> Sync for Tuner<I, C> {}
// SAFETY: the same.
unsafe impl Sync for TunerV6 {}
