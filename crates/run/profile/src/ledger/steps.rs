//! Where the time of steps over the network goes.

use busbw_events::State;
use serde::{Deserialize, Serialize};

/// An operation's steps: time by what they waited for, in nanoseconds, and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Steps {
    /// Steps that ended.
    pub count: u64,
    pub send_gpu: u64,
    pub send_peer: u64,
    pub send_network: u64,
    pub receive_network: u64,
    pub receive_gpu: u64,
    /// Bytes that busbw's own network says it sent for them.
    pub sent_bytes: u64,
}

impl Steps {
    pub(crate) fn is_none(&self) -> bool {
        *self == Steps::default()
    }

    pub(super) fn add(&mut self, state: State, spent: u64) {
        let sum = match state {
            State::SendGpu => &mut self.send_gpu,
            State::SendPeer => &mut self.send_peer,
            State::SendNetwork => &mut self.send_network,
            State::ReceiveNetwork => &mut self.receive_network,
            State::ReceiveFlush | State::ReceiveGpu => &mut self.receive_gpu,
            State::KernelEnd | State::Bytes | State::Resent => return,
        };
        *sum = sum.saturating_add(spent);
    }
}

/// A step under way: what it waits for, and since when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    state: State,
    since_ns: u64,
}

impl Step {
    /// NCCL says the first state when it has posted the step: until then a sender waits for its GPU, a receiver for the network.
    pub fn begin(time_ns: u64, sends: bool) -> Self {
        Step { state: if sends { State::SendGpu } else { State::ReceiveNetwork }, since_ns: time_ns }
    }

    /// Goes into a state; the one before and the time in it.
    pub fn change(&mut self, state: State, time_ns: u64) -> Option<(State, u64)> {
        let before = *self;
        if matches!(state, State::KernelEnd | State::Bytes | State::Resent) || state == before.state {
            return None;
        }
        *self = Step { state, since_ns: time_ns };
        Some((before.state, time_ns.saturating_sub(before.since_ns)))
    }

    /// Its last state and the time in it.
    pub fn end(self, time_ns: u64) -> Option<(State, u64)> {
        Some((self.state, time_ns.checked_sub(self.since_ns)?))
    }
}
