//! Some of a mesh's ranks as a mesh of their own: a rail of a two-level algorithm.

use crate::mesh::{Mesh, Request};
use crate::{Data, Room};
use busbw_transport::Result;

/// Some of the ranks of a mesh, numbered anew from 0.
pub struct Subset<'a, M: ?Sized> {
    mesh: &'a mut M,
    ranks: &'a [usize],
    rank: usize,
}

impl<'a, M: Mesh + ?Sized> Subset<'a, M> {
    /// The `ranks` of `mesh`, in this order; `rank` is this rank's place among them.
    pub fn new(mesh: &'a mut M, ranks: &'a [usize], rank: usize) -> Self {
        Subset { mesh, ranks, rank }
    }
}

impl<M: Mesh + ?Sized> Mesh for Subset<'_, M> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.ranks.len()
    }

    fn lanes(&self) -> usize {
        self.mesh.lanes()
    }

    fn send(&mut self, peer: usize, lane: usize, data: Data) -> Result<Request> {
        self.mesh.send(self.ranks[peer], lane, data)
    }

    fn receive(&mut self, peer: usize, lane: usize, room: Room) -> Result<Request> {
        self.mesh.receive(self.ranks[peer], lane, room)
    }

    fn test(&mut self, request: Request) -> Result<bool> {
        self.mesh.test(request)
    }

    fn wait(&mut self, request: Request) -> Result<()> {
        self.mesh.wait(request)
    }

    fn pause(&mut self) -> Result<()> {
        self.mesh.pause()
    }

    fn scratch(&mut self, len: usize) -> Room {
        self.mesh.scratch(len)
    }
}
