//! What a rank of a job does: one rank per host reports its host, and rank 0 prints the answer.

use super::Found;
use busbw_launch::{JobRank, ProcessGroup, Rendezvous, Settings, host};
use busbw_model::NodeFacts;
use busbw_model::node::{Hello, Known};
use busbw_probe::Root;
use busbw_transport::{Cancellation, Exchange};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The facts of all hosts of this process's job on rank 0, none on the others; those of this node without a job.
pub fn gather(patience: Duration) -> Result<Option<Found>, String> {
    let look = |name: &str| std::env::var(name).ok();
    let job_rank = JobRank::detect(&look).map_err(|e| e.to_string())?;
    let name = host::name(&look);
    if job_rank.size == 1 {
        return Ok(Some(Found::at_hand(vec![busbw_probe::node_of(&Root::live(), &name)])));
    }
    let settings = Settings { timeout: patience, flags: "check".into(), ..Settings::default() };
    let rendezvous = Rendezvous::open(&job_rank, &look, settings).map_err(|e| e.to_string())?;
    let world = rendezvous.join(0, Cancellation::new()).map_err(|e| e.to_string())?;
    together(world, &name)
}

fn together(mut world: ProcessGroup, name: &str) -> Result<Option<Found>, String> {
    let rank = world.rank();
    let mine = if speaks(&world) { Some(busbw_probe::node_of(&Root::live(), name)) } else { None };
    // All ranks read their clocks at the same moment: when the last one is ready.
    world.barrier().map_err(|e| e.to_string())?;
    let bytes = mine.map_or(Ok(Vec::new()), |node| serde_json::to_vec(&with_time(node)));
    let bytes = bytes.map_err(|e| format!("this node's facts: {e}"))?;
    let all = world.gather(0, &bytes).map_err(|e| e.to_string())?;
    world.leave().map_err(|e| e.to_string())?;
    if rank != 0 {
        return Ok(None);
    }
    let nodes = all.iter().filter(|bytes| !bytes.is_empty()).map(|bytes| serde_json::from_slice(bytes));
    let nodes: Result<Vec<NodeFacts>, _> = nodes.collect();
    let nodes = nodes.map_err(|e| format!("the facts of another rank: {e}; start the same busbw on every host"))?;
    let hello = Hello { asked: nodes.len(), ..Hello::default() };
    Ok(Some(Found { nodes, hello }))
}

/// Whether this is the first rank of its host.
fn speaks(world: &ProcessGroup) -> bool {
    let ranks = world.ranks();
    let mine = &ranks[world.rank()];
    ranks.iter().position(|info| info.host_id == mine.host_id) == Some(world.rank())
}

fn with_time(mut node: NodeFacts) -> NodeFacts {
    if let Known::Known(clock) = &mut node.clock {
        clock.together_us = SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|time| time.as_micros() as u64);
    }
    node
}
