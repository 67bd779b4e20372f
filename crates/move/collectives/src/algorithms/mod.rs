//! Algorithms over a `Mesh`: ring, double binary tree, recursive doubling and halving, two-level, pairwise.
//!
//! None knows what carries its messages, and none relies on a transport that keeps a message before its receive is posted.

mod binomial;
mod choice;
mod chunks;
mod doubling;
mod flow;
mod layout;
mod pairwise;
mod plan;
mod ring;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tree;
mod two_level;

pub use choice::{Choice, parse};

pub(crate) use choice::{Algorithm, choose};
pub(crate) use layout::Layout;
pub(crate) use two_level::{HostCollectives, two_level};

use crate::Operation;
use crate::mesh::Mesh;
use busbw_model::Collective;
use busbw_transport::{Error, Result};

/// The name of the algorithm that an event of [`busbw_events`] has by its number.
pub fn name_of(number: u8) -> Option<&'static str> {
    Algorithm::name_of(number)
}

/// Carries out `op` by `algorithm` among all ranks of `mesh`. [`Algorithm::TwoLevel`] is [`two_level()`]'s, and
/// [`Algorithm::Direct`] is for the ranks of one host: both are an error here, as is an algorithm that has no such collective.
pub(crate) fn run<M: Mesh + ?Sized>(mesh: &mut M, algorithm: Algorithm, op: &Operation<'_>) -> Result<()> {
    op.check(mesh.size())?;
    op.check_buffers(mesh.rank(), mesh.size())?;
    if mesh.size() == 1 {
        pairwise::alone(op);
        return Ok(());
    }
    let ranks = mesh.size();
    match (algorithm, op.collective) {
        (Algorithm::Ring, Collective::AllReduce | Collective::AllGather | Collective::ReduceScatter) => {
            ring::ring(mesh, op)
        }
        (Algorithm::Ring, Collective::Broadcast | Collective::Reduce) => ring::chain(mesh, op, ranks),
        (Algorithm::Tree, Collective::AllReduce | Collective::Broadcast | Collective::Reduce) => tree::tree(mesh, op),
        (Algorithm::Doubling, Collective::AllReduce) => doubling::all_reduce(mesh, op, ranks),
        (Algorithm::Doubling, Collective::AllGather) => doubling::all_gather(mesh, op),
        (Algorithm::Doubling, Collective::HyperCube) => doubling::hypercube(mesh, op),
        (Algorithm::Doubling, Collective::Broadcast) => binomial::broadcast(mesh, op),
        (Algorithm::Doubling, Collective::Reduce) => binomial::reduce(mesh, op),
        (Algorithm::Doubling, Collective::Gather) => binomial::gather(mesh, op),
        (Algorithm::Doubling, Collective::Scatter) => binomial::scatter(mesh, op),
        (Algorithm::Pairwise, Collective::AllToAll) => pairwise::all_to_all(mesh, op),
        (Algorithm::Pairwise, Collective::AllToAllV) => pairwise::all_to_all_v(mesh, op),
        (Algorithm::Pairwise, Collective::SendRecv) => pairwise::send_receive(mesh, op),
        (Algorithm::Pairwise, Collective::ReduceScatter) => pairwise::reduce_scatter(mesh, op),
        (Algorithm::Pairwise, Collective::Gather | Collective::Scatter) => pairwise::to_or_from_root(mesh, op),
        (algorithm, collective) => Err(Error::Config(format!(
            "{} does not go by {algorithm} over connections; choose one of {}",
            collective.name(),
            choice::names(choice::algorithms(collective).iter().copied().filter(|other| other.is_over_mesh()))
        ))),
    }
}
