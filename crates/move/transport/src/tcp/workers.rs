//! Who moves a connection's data sockets: helper threads, whoever calls `test`, or both.

use super::failure::Failure;
use super::growth::{Advice, Growth};
use super::helpers::{Helpers, Lane};
use crate::{Error, Result};
use std::time::Instant;

/// Those of one end of a connection.
pub(super) struct Workers<L: Lane> {
    /// The share of whoever calls `test`.
    own: Option<L>,
    helpers: Helpers<L>,
    growth: Option<Growth>,
}

impl<L: Lane> Workers<L> {
    /// A helper for each lane; without `threads`, the caller moves the only one, and gets help as `growth` advises.
    pub fn new(mut lanes: Vec<L>, threads: usize, growth: Option<Growth>) -> Result<Self> {
        let mut helpers = Helpers::new();
        let own = if threads == 0 { lanes.pop() } else { None };
        for lane in lanes {
            helpers.start(lane).map_err(|(error, _)| error)?;
        }
        Ok(Workers { own, helpers, growth })
    }

    /// How many move bytes at once.
    pub fn count(&self) -> usize {
        (self.helpers.len() + usize::from(self.own.is_some())).max(1)
    }

    /// The share of whoever calls `test`.
    pub fn own(&self) -> Option<&L> {
        self.own.as_ref()
    }

    /// Whether helper threads move some of it.
    pub fn have_helpers(&self) -> bool {
        self.helpers.len() > 0
    }

    /// Tells the helpers that something was posted.
    pub fn wake(&self) {
        self.helpers.wake();
    }

    /// Moves what the caller can move, without waiting; the number of bytes. `total` is what all of them have moved so far.
    pub fn progress(&mut self, total: impl Fn() -> u64) -> std::result::Result<usize, Failure> {
        let Some(own) = &mut self.own else { return Ok(0) };
        let moved = own.progress()?;
        if moved > 0
            && let Some(growth) = &mut self.growth
        {
            let advice = growth.note(Instant::now(), total());
            self.follow(advice)?;
        }
        Ok(moved)
    }

    /// Follows an advice on helpers.
    pub fn follow(&mut self, advice: Advice) -> std::result::Result<(), Failure> {
        match advice {
            Advice::Stay => Ok(()),
            Advice::Grow => self.grow(),
            Advice::Shrink => self.shrink(),
        }
    }

    /// Hands half of the caller's sockets to a new helper, if one can be had.
    fn grow(&mut self) -> std::result::Result<(), Failure> {
        let Some(own) = &mut self.own else { return Ok(()) };
        let refused = match own.split().map_err(lost)? {
            None => None,
            // If no helper thread can be started, the caller's thread does all the work.
            Some(half) => match self.helpers.start(half) {
                Ok(()) => return Ok(()),
                Err((_, half)) => half,
            },
        };
        if let Some(growth) = &mut self.growth {
            growth.failed();
        }
        refused.map_or(Ok(()), |half| absorb(own, half))
    }

    /// Takes the newest helper's sockets back.
    fn shrink(&mut self) -> std::result::Result<(), Failure> {
        match (&mut self.own, self.helpers.stop_newest()) {
            (Some(own), Some(lane)) => absorb(own, lane),
            _ => Ok(()),
        }
    }
}

fn absorb<L: Lane>(own: &mut L, other: L) -> std::result::Result<(), Failure> {
    own.absorb(other).map_err(lost)
}

/// A socket was lost when it changed hands.
fn lost(error: Error) -> Failure {
    match error {
        Error::System { source, .. } => Failure::system("watch the sockets to", &source),
        _ => Failure::Closed,
    }
}
