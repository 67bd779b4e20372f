//! One operation, its buffers as nccl-tests lays them out, and what a plain computation gives.

use crate::{Data, Operation, Room};
use busbw_model::{Collective, Datatype, RedOp};

/// What is tried.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub collective: Collective,
    pub datatype: Datatype,
    pub redop: RedOp,
    pub count: usize,
    pub root: usize,
    pub in_place: bool,
}

impl Default for Case {
    fn default() -> Self {
        let (collective, datatype, redop) = (Collective::AllReduce, Datatype::Float, RedOp::Sum);
        Case { collective, datatype, redop, count: 0, root: 0, in_place: false }
    }
}

/// A small number that distinguishes ranks and elements; sums and products of nine of them are exact in half precision.
fn value(redop: RedOp, rank: usize, element: usize) -> f64 {
    match redop {
        RedOp::Prod => (1 + (rank + element) % 2) as f64,
        _ => ((rank * 5 + element * 3) % 7) as f64,
    }
}

/// Elements from rank `from` to rank `to` of an all-to-all-v.
fn pair_count(count: usize, from: usize, to: usize) -> usize {
    count * ((from * 3 + to * 2) % 4) / 3
}

fn put(datatype: Datatype, bytes: &mut [u8], value: f64) {
    match datatype {
        Datatype::Uint8 => bytes.copy_from_slice(&[value as u64 as u8]),
        Datatype::Int32 => bytes.copy_from_slice(&(value as i32).to_ne_bytes()),
        Datatype::Half => bytes.copy_from_slice(&half::f16::from_f64(value).to_ne_bytes()),
        Datatype::Float => bytes.copy_from_slice(&(value as f32).to_ne_bytes()),
        Datatype::Double => bytes.copy_from_slice(&value.to_ne_bytes()),
        other => panic!("{other:?} is not among the types tried here"),
    }
}

fn get(datatype: Datatype, bytes: &[u8]) -> f64 {
    match datatype {
        Datatype::Uint8 => f64::from(bytes[0]),
        Datatype::Int32 => f64::from(i32::from_ne_bytes(bytes.try_into().unwrap())),
        Datatype::Half => half::f16::from_ne_bytes(bytes.try_into().unwrap()).to_f64(),
        Datatype::Float => f64::from(f32::from_ne_bytes(bytes.try_into().unwrap())),
        Datatype::Double => f64::from_ne_bytes(bytes.try_into().unwrap()),
        other => panic!("{other:?} is not among the types tried here"),
    }
}

impl Case {
    /// The operation on these buffers.
    pub(super) fn operation<'a>(&self, send: Data, receive: Room, counts: &'a [usize]) -> Operation<'a> {
        let Case { collective, datatype, redop, count, root, .. } = *self;
        Operation { collective, datatype, redop, count, root, send, receive, counts }
    }

    fn given(&self, rank: usize, ranks: usize) -> Vec<f64> {
        let len = match self.collective {
            Collective::ReduceScatter | Collective::AllToAll => ranks * self.count,
            Collective::Scatter if rank == self.root => ranks * self.count,
            Collective::Scatter => 0,
            Collective::Broadcast if rank != self.root => 0,
            Collective::AllToAllV => (0..ranks).map(|to| pair_count(self.count, rank, to)).sum(),
            _ => self.count,
        };
        (0..len).map(|element| value(self.redop, rank, element)).collect()
    }

    /// What `rank` gets; nothing where it is not the root.
    fn expected(&self, rank: usize, ranks: usize) -> Vec<f64> {
        let count = self.count;
        let all: Vec<Vec<f64>> = (0..ranks).map(|rank| self.given(rank, ranks)).collect();
        match self.collective {
            Collective::AllReduce => self.reduced(&all, 0),
            Collective::Reduce if rank == self.root => self.reduced(&all, 0),
            Collective::ReduceScatter => self.reduced(&all, rank * count),
            Collective::AllGather | Collective::HyperCube => all.concat(),
            Collective::Gather if rank == self.root => all.concat(),
            Collective::Gather | Collective::Reduce => Vec::new(),
            Collective::Broadcast => all[self.root].clone(),
            Collective::Scatter => all[self.root][rank * count..(rank + 1) * count].to_vec(),
            Collective::SendRecv => all[(rank + ranks - 1) % ranks].clone(),
            Collective::AllToAll => {
                all.iter().flat_map(|from| from[rank * count..(rank + 1) * count].to_vec()).collect()
            }
            Collective::AllToAllV => {
                let part = |from: usize| {
                    let start: usize = (0..rank).map(|to| pair_count(count, from, to)).sum();
                    all[from][start..start + pair_count(count, from, rank)].to_vec()
                };
                (0..ranks).flat_map(part).collect()
            }
        }
    }

    fn reduced(&self, all: &[Vec<f64>], start: usize) -> Vec<f64> {
        let one = |element: usize| {
            let values = all.iter().map(|given| given[start + element]);
            let sum: f64 = values.clone().sum();
            match self.redop {
                RedOp::Prod => values.product(),
                RedOp::Max => values.fold(f64::MIN, f64::max),
                RedOp::Min => values.fold(f64::MAX, f64::min),
                RedOp::Avg if matches!(self.datatype, Datatype::Uint8 | Datatype::Int32) => {
                    (sum / all.len() as f64).trunc()
                }
                RedOp::Avg => sum / all.len() as f64,
                _ => sum,
            }
        };
        (0..self.count).map(one).collect()
    }
}

/// One rank's buffers.
pub(super) struct Work {
    given: Vec<u8>,
    result: Vec<u8>,
    counts: Vec<usize>,
    /// Where, in `result`, the result begins, and what this rank gives begins when in place.
    result_at: usize,
    given_at: usize,
}

impl Work {
    pub(super) fn new(case: &Case, rank: usize, ranks: usize) -> Self {
        let element = case.datatype.size() as usize;
        let values = case.given(rank, ranks);
        let mut given = vec![0; values.len() * element];
        for (bytes, value) in given.chunks_mut(element).zip(&values) {
            put(case.datatype, bytes, *value);
        }
        let counts: Vec<usize> = match case.collective {
            Collective::AllToAllV => {
                (0..ranks * ranks).map(|pair| pair_count(case.count, pair / ranks, pair % ranks)).collect()
            }
            _ => Vec::new(),
        };
        let offset = if case.in_place { rank * case.count * element } else { 0 };
        let (result_at, given_at) = match case.collective {
            Collective::AllGather | Collective::Gather | Collective::HyperCube => (0, offset),
            Collective::ReduceScatter | Collective::Scatter => (offset, 0),
            _ => (0, 0),
        };
        // A guard behind the result shows whether more than the result is written.
        let mut result = vec![0x5A; (ranks + 1) * case.count * element + 64];
        if case.in_place {
            result[given_at..given_at + given.len()].copy_from_slice(&given);
        }
        Work { given, result, counts, result_at, given_at }
    }

    /// The operation on these buffers, as `rank`.
    pub(super) fn operation<'a>(&'a mut self, case: &Case, rank: usize, ranks: usize) -> Operation<'a> {
        // SAFETY: the operation is over when this is borrowed again.
        let (result, given) = unsafe {
            let result = Room::new(self.result.as_mut_ptr(), self.result.len());
            (result, Data::new(self.given.as_ptr(), self.given.len()))
        };
        // Not a byte more than NCCL says, so that an algorithm that reaches further fails.
        let taken = case.expected(rank, ranks).len() * case.datatype.size() as usize;
        let receive = result.skip(self.result_at).take(taken);
        let send = if case.in_place { result.data().skip(self.given_at).take(given.len()) } else { given };
        case.operation(send, receive, &self.counts)
    }

    /// Fails unless the result is that of a plain computation, and nothing else was written.
    pub(super) fn check(&self, case: &Case, rank: usize, ranks: usize) {
        let element = case.datatype.size() as usize;
        let expected = case.expected(rank, ranks);
        let bytes = &self.result[self.result_at..];
        for (at, (bytes, expected)) in bytes.chunks(element).zip(&expected).enumerate() {
            let got = get(case.datatype, bytes);
            // Only an average of floats is rounded.
            let bound = if case.redop == RedOp::Avg { expected.abs() * 1e-3 } else { 0.0 };
            assert!(
                (got - expected).abs() <= bound,
                "{case:?}: rank {rank} of {ranks} has {got} at {at}, not {expected}"
            );
        }
        let end = self.result_at + expected.len() * element;
        let guard = end.max(self.given_at + self.given.len());
        assert!(
            self.result[guard..].iter().all(|byte| *byte == 0x5A),
            "{case:?}: rank {rank} writes behind its result"
        );
        if !case.in_place {
            let values = case.given(rank, ranks);
            let kept =
                self.given.chunks(element).zip(&values).all(|(bytes, value)| get(case.datatype, bytes) == *value);
            assert!(kept, "{case:?}: rank {rank} writes to what it gives");
        }
    }
}
