//! The tuner: NCCL's choices, but where a tuning table (docs/plugin.md) has a measured better one.
//!
//! Every rank must choose the same or all hang, and ranks cannot ask each other here. So a choice follows from the operation,
//! the communicator's size and the table alone, and the table is read once per process; its hash stands in the log.
//! Nothing is ever an error to NCCL, which would hand it to the application.

mod file;
mod tables;

use crate::border::caught;
use crate::log;
use busbw_model::{Algorithm, Bytes, Collective, Protocol, TunedChoice, TunedOperation};
use busbw_nccl_abi::NcclResult;
use busbw_nccl_abi::tuner::{Function, NvlDomains};
use file::{Loaded, loaded};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

/// No cost of NCCL's is as large: where a table has such a value, it says "impossible", as -1 does (`NCCL_ALGO_PROTO_IGNORE`), which a
/// plugin must not write: it would be the least cost where costs below zero are not passed over.
const NO_COST: f32 = 1e30;
/// A chunk smaller than this gains nothing, and rounded down to a line of a protocol it could be none.
const LEAST_CHUNK: u64 = 4096;

/// What NCCL holds as a context is a number, so that a communicator that is ended twice, or was never there, is no pointer that
/// is followed.
static CONTEXTS: RwLock<Option<HashMap<usize, Arc<Tuner>>>> = RwLock::new(None);
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// The tuner of a communicator.
#[derive(Debug)]
struct Tuner {
    table: &'static Loaded,
    ranks: u32,
    nodes: u32,
    /// Whether NCCL would go by NVLS for registered buffers, if no tuner were there.
    prefers_nvls: bool,
}

/// How an operation is to be carried out; what is `None` is NCCL's to choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Chosen {
    algorithm: Algorithm,
    protocol: Protocol,
    channels: Option<u32>,
}

/// Makes the context of a communicator.
fn create(ranks: usize, nodes: usize, domains: Option<NvlDomains>) -> usize {
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let (ranks, nodes) = (number(ranks), number(nodes));
    let table = loaded();
    table.tell_of(ranks, nodes);
    // More hosts than domains: NVLink goes from host to host, and NCCL leaves its choice of NVLS there (`src/enqueue.cc`).
    let nvlink_between_hosts = domains.is_some_and(|domains| domains.count.max(0).cast_unsigned() < nodes);
    let prefers_nvls = file::asks_for_efficiency() && !nvlink_between_hosts;
    let context = NEXT.fetch_add(1, Ordering::Relaxed);
    let tuner = Arc::new(Tuner { table, ranks, nodes, prefers_nvls });
    let mut contexts = CONTEXTS.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    contexts.get_or_insert_default().insert(context, tuner);
    context
}

fn find(context: usize) -> Option<Arc<Tuner>> {
    let contexts = CONTEXTS.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    contexts.as_ref()?.get(&context).cloned()
}

fn end(context: usize) {
    let mut contexts = CONTEXTS.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(contexts) = contexts.as_mut() {
        contexts.remove(&context);
    }
}

fn collective(function: Function) -> Option<Collective> {
    Some(match function {
        Function::BROADCAST => Collective::Broadcast,
        Function::REDUCE => Collective::Reduce,
        Function::ALL_GATHER => Collective::AllGather,
        Function::REDUCE_SCATTER => Collective::ReduceScatter,
        Function::ALL_REDUCE => Collective::AllReduce,
        _ => return None,
    })
}

impl Tuner {
    fn operation(&self, function: Function, bytes: usize, operations: i32, registered: bool) -> Option<TunedOperation> {
        Some(TunedOperation {
            collective: collective(function)?,
            size: Bytes(bytes as u64),
            ranks: self.ranks,
            nodes: self.nodes,
            operations: operations.max(1).cast_unsigned(),
            registered,
        })
    }

    /// The choice, where the table has one that NCCL can carry out (`possible`), or NCCL would make one of its own if no tuner
    /// were there.
    fn choose(&self, operation: &TunedOperation, possible: impl Fn(Algorithm, Protocol) -> bool) -> Option<Chosen> {
        if let Some((number, choice, meant)) = self.table.choose(operation) {
            let chosen = meant.filter(|chosen| possible(chosen.algorithm, chosen.protocol));
            self.table.tell_use(number, choice, chosen.is_some());
            if chosen.is_some() {
                return chosen;
            }
        }
        let in_blocks = matches!(operation.collective, Collective::AllGather | Collective::ReduceScatter);
        let nvls = Chosen { algorithm: Algorithm::Nvls, protocol: Protocol::Simple, channels: None };
        let wanted = self.prefers_nvls && operation.registered && in_blocks;
        (wanted && possible(nvls.algorithm, nvls.protocol)).then_some(nvls)
    }

    /// Makes the choice the cheapest of the table of costs; its channels. `costs` has a row of `protocols` per algorithm.
    fn choose_by_cost(&self, operation: &TunedOperation, costs: &mut [f32], protocols: usize) -> Option<u32> {
        let cell = |algorithm: Algorithm, protocol: Protocol| algorithm as usize * protocols + protocol as usize;
        let possible = |algorithm: Algorithm, protocol: Protocol| {
            let inside = (protocol as usize) < protocols && algorithm != Algorithm::PointToPoint;
            inside && costs.get(cell(algorithm, protocol)).is_some_and(|cost| (0.0..NO_COST).contains(cost))
        };
        let chosen = self.choose(operation, possible)?;
        costs[cell(chosen.algorithm, chosen.protocol)] = 0.0;
        chosen.channels
    }

    /// The size of chunks that the table asks for where it chose this algorithm and protocol.
    fn chunk(&self, operation: &TunedOperation, algorithm: i32, protocol: i32) -> Option<u64> {
        // Whether buffers are registered is not told here: a choice for such buffers only has no chunks.
        let (_, choice, meant) = self.table.choose(operation)?;
        let chosen = meant?;
        let Bytes(chunk) = choice.chunk.filter(|Bytes(chunk)| *chunk >= LEAST_CHUNK)?;
        (chosen.algorithm as i32 == algorithm && chosen.protocol as i32 == protocol).then_some(chunk)
    }
}

impl Chosen {
    /// What a choice of a table means to NCCL; `None` where it is one of another engine.
    fn of(choice: &TunedChoice) -> Option<Chosen> {
        let algorithm = Algorithm::from_name(&choice.algorithm)?;
        let protocol = choice.protocol?;
        Some(Chosen { algorithm, protocol, channels: choice.channels })
    }
}

/// What NCCL can carry out as far as interface 2 tells it, which has no table of costs. LL128 is left to NCCL: where it does not
/// choose it by itself, it may corrupt data (NCCL's documentation of `NCCL_PROTO`).
fn possible_by_kind(collective: Collective, collnet: bool, nvls: bool) -> impl Fn(Algorithm, Protocol) -> bool {
    move |algorithm, protocol| {
        let reduces_all = collective == Collective::AllReduce;
        let in_blocks = matches!(collective, Collective::AllGather | Collective::ReduceScatter);
        let simple = protocol == Protocol::Simple;
        protocol != Protocol::Ll128
            && match algorithm {
                Algorithm::Ring => true,
                Algorithm::Tree => reduces_all,
                Algorithm::CollNetDirect => simple && collnet && (reduces_all || in_blocks),
                Algorithm::CollNetChain => simple && collnet && reduces_all,
                Algorithm::Nvls => simple && nvls && (reduces_all || in_blocks),
                Algorithm::NvlsTree => simple && nvls && reduces_all,
                Algorithm::Pat | Algorithm::PointToPoint => false,
            }
    }
}

/// Calls one of the tuner's functions for C: whatever happens, NCCL goes on with its own choice.
fn guard(call: impl FnOnce()) -> NcclResult {
    if let Err(told) = caught(call) {
        log::tuner_warn(&format!("{told}; NCCL's own choice holds"));
    }
    NcclResult::SUCCESS
}
