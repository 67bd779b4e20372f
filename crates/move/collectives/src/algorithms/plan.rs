//! What a plan is made of: a numbered list of moves per lane, each a message in, a message out, or a copy, with what it
//! waits for. [`super::flow`] carries plans out.

use super::chunks::WINDOW;
use crate::{Data, Room};

/// What has to be done before something else may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    /// What arrives at this position is in place or reduced.
    Arrived(usize),
    /// What leaves at this position has left.
    Departed(usize),
}

/// Where a reduced chunk goes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Output {
    At(Room),
    /// Into a slot of the scratch memory, to be sent on from there.
    Slot,
}

/// What becomes of a chunk that arrives.
#[derive(Debug, Clone, Copy)]
pub(super) enum Landing {
    /// It is received straight into place.
    At(Room),
    /// It is received into a slot, and reduced with `local` into `output` once `need` is met. `complete`: nothing more is
    /// to be added, an average is divided here.
    Reduce { local: Data, output: Output, need: Need, complete: bool },
    /// It is received into a slot, and copied to its place once `need` is met.
    Through { place: Room, need: Need },
}

/// One chunk from each of one or two peers, of `count` elements each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub peers: [Option<usize>; 2],
    pub count: usize,
    pub landing: Landing,
    /// What must be done before the receive may be posted.
    pub need: Need,
}

/// Where the data of a departure lies.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    At(Data),
    /// In the slot into which the arrival of this position was reduced.
    Slot(usize),
}

/// One chunk of `count` elements to one or two peers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Departure {
    pub peers: [Option<usize>; 2],
    pub count: usize,
    pub source: Source,
    pub need: Need,
}

/// A copy within this rank, made after the departure of its position is posted.
#[derive(Debug, Clone, Copy)]
pub(super) struct LocalCopy {
    pub from: Data,
    pub to: Room,
    pub bytes: usize,
}

/// What a rank does at one position.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Move {
    pub arrival: Option<Arrival>,
    pub departure: Option<Departure>,
    pub copy: Option<LocalCopy>,
}

/// The moves of one rank on one lane.
pub(super) trait Plan {
    fn positions(&self) -> usize;

    /// How many positions are looked at together.
    fn window(&self) -> usize {
        WINDOW
    }

    /// What is to be done at `position`.
    fn at(&self, position: usize) -> Move;
}
