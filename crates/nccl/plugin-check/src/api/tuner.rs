//! A loaded tuner, with the same functions for every version of the interface, and the choice that NCCL makes of what it says.

use super::call::{Answer, call};
use super::library::{self, TUNER};
use super::log;
use busbw_model::{Bytes, Collective, TunedOperation};
use busbw_nccl_abi::tuner::*;
use libloading::os::unix::Library;
use std::ffi::{c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;

/// NCCL's number of the communicators that are played.
const COMMUNICATOR: u64 = 0xB0B;
/// What an algorithm costs that is not possible (`NCCL_ALGO_PROTO_IGNORE`, `src/include/plugin/nccl_tuner.h`).
const IMPOSSIBLE: f32 = -1.0;
/// What is written beside the table of costs is seen here.
const GUARD: f32 = -77.0;
const GUARDS: usize = PROTOCOLS;
const CELLS: usize = ALGORITHMS * PROTOCOLS;
/// Room for the constants of NCCL's model (`ncclTunerConstants_v5_t`), which a tuner may change: larger than they are.
const CONSTANTS: usize = 256;

/// A tuner by one version of the interface.
pub(crate) struct Tuner {
    version: u8,
    library: &'static Library,
    init: InitForm,
    choose: ChooseForm,
    chunk: ChunkSize,
    finalize: Finalize,
}

enum InitForm {
    Plain(Init),
    Domains(InitWithDomains),
}

enum ChooseForm {
    Plain(Choose),
    Cost(ChooseByCost),
    Registered(ChooseRegistered),
}

/// What a tuner holds of a communicator.
#[derive(Clone, Copy)]
pub(crate) struct Tuned(*mut c_void);

impl Tuned {
    /// A communicator that was never started.
    pub const NONE: Self = Tuned(null_mut());
}

/// What NCCL goes by: how it carries out an operation, on how many channels (0: as many as it takes), in chunks of what size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Way {
    pub algorithm: usize,
    pub protocol: usize,
    pub channels: c_int,
    pub chunk: usize,
}

/// The table of costs that NCCL hands over, one array with a row per algorithm, between guards.
#[derive(Clone, PartialEq)]
pub(crate) struct Costs([f32; GUARDS + CELLS + GUARDS]);

impl Costs {
    /// What NCCL might think that an operation costs in µs: rings and trees are there, NVLS where blocks or sums are moved, its tree for
    /// sums between nodes, PAT for blocks between nodes of one rank, and small sizes go by LL.
    pub fn of(operation: &TunedOperation) -> Self {
        let mut costs = Costs([GUARD; GUARDS + CELLS + GUARDS]);
        costs.cells_mut().fill(IMPOSSIBLE);
        let Bytes(bytes) = operation.size;
        let sums = operation.collective == Collective::AllReduce;
        let blocks = matches!(operation.collective, Collective::AllGather | Collective::ReduceScatter);
        let (latencies, bandwidths) = ([8.0, 14.0, 30.0], [2.0, 3.5, 4.0]);
        for (protocol, (latency, bandwidth)) in latencies.iter().zip(bandwidths).enumerate() {
            let transfer = bytes as f32 / bandwidth / 1e4;
            costs.cells_mut()[PROTOCOLS + protocol] = 1.5 * latency + transfer;
            if sums {
                costs.cells_mut()[protocol] = latency + transfer / 0.9;
            }
        }
        if sums || blocks {
            costs.cells_mut()[5 * PROTOCOLS - 1] = 60.0 + bytes as f32 / 3.9e4;
        }
        if sums && operation.nodes > 1 {
            costs.cells_mut()[6 * PROTOCOLS - 1] = 90.0 + bytes as f32 / 3.9e4;
        }
        if blocks && operation.nodes == operation.ranks {
            costs.cells_mut()[7 * PROTOCOLS - 1] = 50.0 + bytes as f32 / 3.0e4;
        }
        costs
    }

    fn cells(&self) -> &[f32] {
        &self.0[GUARDS..GUARDS + CELLS]
    }

    fn cells_mut(&mut self) -> &mut [f32] {
        &mut self.0[GUARDS..GUARDS + CELLS]
    }

    /// The cheapest that is possible, as `topoGetAlgoInfo` finds it (`src/enqueue.cc:2035`): its algorithm and protocol.
    pub fn cheapest(&self) -> Option<(usize, usize)> {
        let possible = self.cells().iter().enumerate().filter(|(_, cost)| **cost >= 0.0);
        let (cell, _) = possible.min_by(|(_, one), (_, other)| one.total_cmp(other))?;
        Some((cell / PROTOCOLS, cell % PROTOCOLS))
    }

    pub fn is_possible(&self, (algorithm, protocol): (usize, usize)) -> bool {
        self.cells()[algorithm * PROTOCOLS + protocol] >= 0.0
    }

    /// Whether nothing was written beside the table.
    pub fn guards_hold(&self) -> bool {
        self.0[..GUARDS].iter().chain(&self.0[GUARDS + CELLS..]).all(|guard| *guard == GUARD)
    }
}

impl Tuner {
    /// The tuner of a file by `version`, or else the newest.
    pub fn open(path: &Path, version: Option<u8>) -> Result<Self, String> {
        let library = library::load(path)?;
        let version = TUNER.chosen(library, version)?;
        macro_rules! of {
            ($table:ty, $init:path, $choose:path) => {
                TUNER.exported::<$table>(library, version).map(|table| Tuner {
                    version,
                    library,
                    init: $init(table.init),
                    choose: $choose(table.choose),
                    chunk: None,
                    finalize: table.finalize,
                })
            };
        }
        let tuner = match version {
            2 => of!(TunerV2, InitForm::Plain, ChooseForm::Plain),
            3 => of!(TunerV3, InitForm::Plain, ChooseForm::Cost),
            4 => of!(TunerV4, InitForm::Plain, ChooseForm::Registered),
            _ => of!(TunerV5, InitForm::Domains, ChooseForm::Registered),
        };
        let newest = TUNER.exported::<TunerV6>(library, version).filter(|_| version == 6);
        let chunk = newest.and_then(|table| table.chunk_size);
        tuner.map(|tuner| Tuner { chunk, ..tuner }).ok_or_else(|| format!("exports no tuner of version {version}"))
    }

    /// Has the file closed and loaded again, as NCCL does between a process's last communicator and the next.
    pub fn load_again(&mut self, path: &Path) -> Result<(), String> {
        library::close(self.library);
        *self = Self::open(path, Some(self.version))?;
        Ok(())
    }

    /// Starts a communicator, as `initTransportsRank` does (`src/init.cc:1641`).
    pub fn init(&self, ranks: usize, nodes: usize) -> Answer<Tuned> {
        let (mut context, logger) = (null_mut(), Some(log::logger()));
        match self.init {
            InitForm::Plain(init) => call!("init", init, ranks, nodes, logger, &mut context),
            InitForm::Domains(init) => {
                let in_a_node = (ranks / nodes.max(1)) as c_int;
                let mut domains = NvlDomains { count: nodes as c_int, least_ranks: in_a_node, most_ranks: in_a_node };
                let mut constants = [0.0_f64; CONSTANTS];
                let constants = constants.as_mut_ptr().cast();
                call!("init", init, &mut context, COMMUNICATOR, ranks, nodes, logger, &mut domains, constants)
            }
        }?;
        Ok(Tuned(context))
    }

    /// Ends a communicator, as `commFree` does (`src/init.cc:2775`).
    pub fn finalize(&self, communicator: Tuned) -> Answer<()> {
        call!("finalize", self.finalize, communicator.0)
    }

    /// Asks for an operation, as `ncclGetAlgoInfo` does (`src/enqueue.cc:2147`), and through the same translation for older versions
    /// (`src/plugin/tuner/tuner_v*.cc`). The channels that are asked for.
    pub fn choose(&self, communicator: Tuned, operation: &TunedOperation, costs: &mut Costs) -> Answer<c_int> {
        let (function, Bytes(bytes)) = (function(operation.collective), operation.size);
        let (bytes, operations) = (bytes as usize, operation.operations as c_int);
        let (algorithms, protocols) = (ALGORITHMS as c_int, PROTOCOLS as c_int);
        let (nvls, mut channels) = (c_int::from(costs.is_possible((4, 2))), 0);
        // NCCL declares an array as pointers to rows, and hands over the array.
        let table = costs.cells_mut().as_mut_ptr().cast::<*mut f32>();
        match self.choose {
            ChooseForm::Plain(choose) => {
                let (mut algorithm, mut protocol) = (-1, -1);
                call!(
                    "getCollInfo",
                    choose,
                    communicator.0,
                    function,
                    bytes,
                    0,
                    nvls,
                    operations,
                    &mut algorithm,
                    &mut protocol,
                    &mut channels,
                )?;
                prefer(costs, algorithm, protocol);
            }
            ChooseForm::Cost(choose) => call!(
                "getCollInfo",
                choose,
                communicator.0,
                function,
                bytes,
                operations,
                table,
                algorithms,
                protocols,
                &mut channels,
            )?,
            ChooseForm::Registered(choose) => {
                let registered = c_int::from(operation.registered);
                call!(
                    "getCollInfo",
                    choose,
                    communicator.0,
                    function,
                    bytes,
                    operations,
                    table,
                    algorithms,
                    protocols,
                    registered,
                    &mut channels,
                )?;
            }
        }
        Ok(channels)
    }

    /// Asks for the size of chunks, as `calcCollChunking` does (`src/enqueue.cc:2310`), where the version can be asked.
    pub fn chunk(&self, communicator: Tuned, operation: &TunedOperation, way: &mut Way) -> Answer<()> {
        if self.chunk.is_none() {
            return Ok(());
        }
        let (function, Bytes(bytes)) = (function(operation.collective), operation.size);
        let (algorithm, protocol) = (way.algorithm as c_int, way.protocol as c_int);
        call!(
            "getChunkSize",
            self.chunk,
            communicator.0,
            function,
            bytes as usize,
            algorithm,
            protocol,
            way.channels,
            &mut way.chunk,
        )
    }
}

/// What NCCL makes of a choice by numbers (`src/plugin/tuner/tuner_v2.cc:50`).
fn prefer(costs: &mut Costs, algorithm: c_int, protocol: c_int) {
    let within = |number: c_int, count: usize| usize::try_from(number).ok().filter(|number| *number < count);
    if let (Some(algorithm), Some(protocol)) = (within(algorithm, ALGORITHMS), within(protocol, PROTOCOLS))
        && costs.is_possible((algorithm, protocol))
    {
        costs.cells_mut()[algorithm * PROTOCOLS + protocol] = 0.0;
    }
}

fn function(collective: Collective) -> Function {
    match collective {
        Collective::Broadcast => Function::BROADCAST,
        Collective::Reduce => Function::REDUCE,
        Collective::AllGather => Function::ALL_GATHER,
        Collective::ReduceScatter => Function::REDUCE_SCATTER,
        // Sends and receives, and what is made of them, are not asked about.
        _ => Function::ALL_REDUCE,
    }
}
