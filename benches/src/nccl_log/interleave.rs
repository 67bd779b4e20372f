//! Many ranks printing at once: their lines come in bursts of a few, as in the output of a real job.

use super::graph::Link;
use super::lines::Lines;
use super::speaker::{Communicator, Phase, Speaker};
use crate::random::Random;
use std::io::{self, Write};

/// Ranks whose lines are mixed at any one moment.
const SPEAKING_AT_ONCE: usize = 64;
/// The most lines that a rank prints before another one gets in.
const LONGEST_BURST: usize = 6;

/// A rank in the middle of its phase.
struct Slot {
    lines: Lines,
    printed: usize,
}

/// Writes one phase of all ranks.
pub(super) fn write_phase(
    comm: &Communicator<'_>,
    phase: Phase,
    random: &mut Random,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut links: Vec<Link> = Vec::new();
    let mut waiting = starting_order(comm, random).into_iter();
    let mut slots: Vec<Slot> = Vec::with_capacity(SPEAKING_AT_ONCE);
    for rank in waiting.by_ref().take(SPEAKING_AT_ONCE) {
        let mut lines = Lines::new(comm.shape.cut);
        Speaker::new(comm, rank).speak(phase, &mut lines, &mut links);
        slots.push(Slot { lines, printed: 0 });
    }
    while !slots.is_empty() {
        let chosen = random.below(slots.len());
        let slot = &mut slots[chosen];
        let until = slot.lines.len().min(slot.printed + 1 + random.below(LONGEST_BURST));
        out.write_all(slot.lines.range(slot.printed, until))?;
        slot.printed = until;
        if until < slot.lines.len() {
            continue;
        }
        match waiting.next() {
            Some(rank) => {
                slot.lines.clear();
                slot.printed = 0;
                Speaker::new(comm, rank).speak(phase, &mut slot.lines, &mut links);
            }
            None => {
                slots.swap_remove(chosen);
            }
        }
    }
    Ok(())
}

/// Nodes reach a phase in any order, the ranks of a node about together.
fn starting_order(comm: &Communicator<'_>, random: &mut Random) -> Vec<u32> {
    let gpus = comm.shape.gpus();
    let mut nodes: Vec<u32> = (0..comm.shape.nodes()).collect();
    random.shuffle(&mut nodes);
    nodes.into_iter().flat_map(|node| node * gpus..(node + 1) * gpus).collect()
}
