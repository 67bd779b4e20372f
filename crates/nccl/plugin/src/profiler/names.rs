//! NCCL's names and numbers of functions, datatypes, algorithms and protocols (`src/collectives.cc`, `src/include/nccl_common.h`,
//! 2.30.7). They are read for every operation, so nothing is allocated.

use busbw_events::Function;
use busbw_model::{Algorithm, Collective, Datatype, Protocol};
use std::ffi::{CStr, c_char};

/// What is not known of an algorithm or protocol.
const UNKNOWN: u8 = 0xff;

/// A name of NCCL's; empty for null.
///
/// # Safety
/// The pointer is null or a C string that lasts.
pub(super) unsafe fn name(text: *const c_char) -> &'static [u8] {
    // SAFETY: the caller's promise.
    if text.is_null() { b"" } else { unsafe { CStr::from_ptr(text) }.to_bytes() }
}

pub(super) fn function(name: &[u8]) -> Option<Function> {
    Some(Function::Collective(match name {
        b"Send" => return Some(Function::Send),
        b"Recv" => return Some(Function::Receive),
        b"AllReduce" => Collective::AllReduce,
        b"AllGather" => Collective::AllGather,
        b"ReduceScatter" => Collective::ReduceScatter,
        b"Broadcast" => Collective::Broadcast,
        b"Reduce" => Collective::Reduce,
        b"AlltoAll" => Collective::AllToAll,
        b"SendRecv" => Collective::SendRecv,
        b"Gather" => Collective::Gather,
        b"Scatter" => Collective::Scatter,
        _ => return None,
    }))
}

/// `ncclFunc_t`, which 1 has instead of names.
pub(super) fn function_of_number(number: u8) -> Option<Function> {
    Some(Function::Collective(match number {
        0 => Collective::Broadcast,
        1 => Collective::Reduce,
        2 => Collective::AllGather,
        3 => Collective::ReduceScatter,
        4 => Collective::AllReduce,
        5 => Collective::SendRecv,
        6 => return Some(Function::Send),
        7 => return Some(Function::Receive),
        _ => return None,
    }))
}

pub(super) fn datatype(name: &[u8]) -> Option<Datatype> {
    Some(match name {
        b"ncclInt8" => Datatype::Int8,
        b"ncclUint8" => Datatype::Uint8,
        b"ncclInt32" => Datatype::Int32,
        b"ncclUint32" => Datatype::Uint32,
        b"ncclInt64" => Datatype::Int64,
        b"ncclUint64" => Datatype::Uint64,
        b"ncclFloat16" => Datatype::Half,
        b"ncclFloat32" => Datatype::Float,
        b"ncclFloat64" => Datatype::Double,
        b"ncclBfloat16" => Datatype::Bfloat16,
        b"ncclFloat8e4m3" => Datatype::F8e4m3,
        b"ncclFloat8e5m2" => Datatype::F8e5m2,
        _ => return None,
    })
}

/// `ncclDataType_t`.
pub(super) fn datatype_of_number(number: u8) -> Option<Datatype> {
    Datatype::ALL.get(usize::from(number)).copied()
}

pub(super) fn algorithm(name: &[u8]) -> u8 {
    let algorithm = match name {
        b"TREE" => Algorithm::Tree,
        b"RING" => Algorithm::Ring,
        b"COLLNET_DIRECT" => Algorithm::CollNetDirect,
        b"COLLNET_CHAIN" => Algorithm::CollNetChain,
        b"NVLS" => Algorithm::Nvls,
        b"NVLS_TREE" => Algorithm::NvlsTree,
        b"PAT" => Algorithm::Pat,
        _ => return UNKNOWN,
    };
    algorithm as u8
}

pub(super) fn protocol(name: &[u8]) -> u8 {
    let protocol = match name {
        b"LL" => Protocol::Ll,
        b"LL128" => Protocol::Ll128,
        b"SIMPLE" => Protocol::Simple,
        _ => return UNKNOWN,
    };
    protocol as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1's numbers are those of the names.
    #[test]
    fn numbers_and_names_say_the_same() {
        let names = ["Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv", "Send", "Recv"];
        for (number, name) in names.into_iter().enumerate() {
            assert_eq!(function_of_number(number as u8), function(name.as_bytes()), "{name}");
            assert!(function(name.as_bytes()).is_some());
        }
        let names =
            ["Int8", "Uint8", "Int32", "Uint32", "Int64", "Uint64", "Float16", "Float32", "Float64", "Bfloat16"];
        for (number, name) in names.into_iter().enumerate() {
            assert_eq!(datatype_of_number(number as u8), datatype(format!("nccl{name}").as_bytes()), "{name}");
        }
        assert_eq!((algorithm(b"RING"), protocol(b"SIMPLE")), (1, 2));
        assert_eq!((function(b""), datatype(b"x"), algorithm(b"Unknown")), (None, None, UNKNOWN));
    }
}
