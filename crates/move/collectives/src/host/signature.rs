//! What the ranks of an operation must agree on, and what to say when they do not.

use crate::Operation;
use busbw_model::{Collective, Datatype, RedOp};

/// The values of an operation that must be the same on every rank. Those that its collective does not use are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Signature {
    count: u64,
    root: u64,
    counts: u64,
    collective: u8,
    datatype: u8,
    redop: u8,
}

/// Mixes `word` into `hash`, each bit into all: the finalizer of SplitMix64.
fn mix(hash: u64, word: u64) -> u64 {
    let mut z = (hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Signature {
    pub(super) fn of(operation: &Operation<'_>) -> Self {
        let collective = operation.collective;
        let by_counts = collective == Collective::AllToAllV;
        let counts = |counts: &[usize]| counts.iter().fold(1, |hash, count| mix(hash, *count as u64));
        Signature {
            count: if by_counts { 0 } else { operation.count as u64 },
            root: if collective.has_root() { operation.root as u64 } else { 0 },
            counts: if by_counts { counts(operation.counts) } else { 0 },
            collective: collective as u8,
            datatype: operation.datatype as u8,
            redop: if collective.reduces() { operation.redop as u8 } else { 0 },
        }
    }

    /// A short form, the same for all ranks that agree.
    pub(super) fn hash(&self) -> u32 {
        let kinds = u64::from(self.collective) | u64::from(self.datatype) << 8 | u64::from(self.redop) << 16;
        let short = mix(mix(self.count, kinds | self.root << 24), self.counts);
        (short >> 32) as u32
    }

    fn collective_name(&self) -> &'static str {
        name(&Collective::ALL, self.collective, |one| *one as u8, |one| one.name())
    }

    fn datatype_name(&self) -> &'static str {
        name(&Datatype::ALL, self.datatype, |one| *one as u8, |one| one.name())
    }

    fn redop_name(&self) -> &'static str {
        name(&RedOp::ALL, self.redop, |one| *one as u8, |one| one.name())
    }

    /// In what `self` differs from `other`, first what matters most.
    fn difference(&self, other: &Signature) -> String {
        let (a, b) = (self, other);
        if a.collective != b.collective {
            format!("runs {}, not {}", a.collective_name(), b.collective_name())
        } else if a.datatype != b.datatype {
            format!("runs {} of {}, not of {}", a.collective_name(), a.datatype_name(), b.datatype_name())
        } else if a.redop != b.redop {
            format!("runs {} with {}, not with {}", a.collective_name(), a.redop_name(), b.redop_name())
        } else if a.root != b.root {
            format!("runs {} with root {}, not root {}", a.collective_name(), a.root, b.root)
        } else if a.count != b.count {
            format!("runs {} of {} elements, not of {}", a.collective_name(), a.count, b.count)
        } else {
            format!("runs {} with other counts", a.collective_name())
        }
    }
}

fn name<T>(all: &[T], number: u8, number_of: impl Fn(&T) -> u8, name_of: impl Fn(&T) -> &'static str) -> &'static str {
    all.iter().find(|one| number_of(one) == number).map_or("an unknown kind", name_of)
}

/// Names the first rank that differs from most, and how. Where no side has more ranks, rank 0's is taken as right.
pub(super) fn disagreement(all: &[Signature]) -> Option<String> {
    let votes = |one: &Signature| all.iter().filter(|other| *other == one).count();
    let most = all.iter().map(votes).max()?;
    let right = all.iter().find(|one| votes(one) == most)?;
    let (rank, wrong) = all.iter().enumerate().find(|(_, one)| *one != right)?;
    let model = all.iter().position(|one| one == right)?;
    let difference = wrong.difference(right);
    Some(format!("local rank {rank} {difference} as local rank {model} does; start every rank with the same flags"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Data, Room};

    fn signature(change: impl Fn(&mut Operation<'static>)) -> Signature {
        let mut operation = Operation {
            collective: Collective::Reduce,
            datatype: Datatype::Float,
            redop: RedOp::Sum,
            count: 8,
            root: 0,
            send: Data::NONE,
            receive: Room::NONE,
            counts: &[],
        };
        change(&mut operation);
        Signature::of(&operation)
    }

    #[test]
    fn names_the_rank_that_differs_and_how() {
        let usual = signature(|_| ());
        let cases = [
            (signature(|op| op.collective = Collective::AllGather), "runs all_gather, not reduce"),
            (signature(|op| op.datatype = Datatype::Half), "runs reduce of half, not of float"),
            (signature(|op| op.redop = RedOp::Max), "runs reduce with max, not with sum"),
            (signature(|op| op.root = 1), "runs reduce with root 1, not root 0"),
            (signature(|op| op.count = 9), "runs reduce of 9 elements, not of 8"),
        ];
        for (other, how) in cases {
            assert_ne!(other.hash(), usual.hash(), "{how}");
            for (all, rank, model) in [([usual, usual, other], 2, 0), ([other, usual, usual], 0, 1)] {
                let text = disagreement(&all).unwrap();
                assert!(text.starts_with(&format!("local rank {rank} {how} as local rank {model} does")), "{text}");
            }
        }
        assert_eq!(disagreement(&[usual, usual]), None);
    }

    #[test]
    fn what_a_collective_does_not_use_may_differ() {
        let gather = |redop| signature(|op| (op.collective, op.redop) = (Collective::Gather, redop));
        assert_eq!(gather(RedOp::Sum), gather(RedOp::Max));
        let all_to_all = |root| signature(|op| (op.collective, op.root) = (Collective::AllToAll, root));
        assert_eq!(all_to_all(0), all_to_all(1));
        let counted =
            |counts: &'static [usize]| signature(|op| (op.collective, op.counts) = (Collective::AllToAllV, counts));
        assert_ne!(counted(&[1, 2]), counted(&[2, 1]));
    }
}
