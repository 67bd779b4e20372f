//! An exchange among ranks that are threads of one process.

use crate::{Cancellation, Error, Exchange, Result};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// The exchange of one rank; see [`ThreadExchange::among`].
pub struct ThreadExchange {
    rank: usize,
    round: usize,
    cancel: Arc<Cancellation>,
    table: Arc<Table>,
}

struct Table {
    size: usize,
    rounds: Mutex<Vec<Vec<Option<Vec<u8>>>>>,
    changed: Condvar,
}

impl ThreadExchange {
    /// The exchanges of `size` ranks: one for each thread. Waiting ends when `cancel` is triggered.
    pub fn among(size: usize, cancel: &Arc<Cancellation>) -> Vec<Self> {
        let table = Arc::new(Table { size, rounds: Mutex::default(), changed: Condvar::new() });
        let one = |rank| ThreadExchange { rank, round: 0, cancel: Arc::clone(cancel), table: Arc::clone(&table) };
        (0..size).map(one).collect()
    }
}

impl Exchange for ThreadExchange {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.table.size
    }

    fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let round = self.round;
        self.round += 1;
        let poisoned = || Error::Config("a rank panicked while it exchanged addresses".into());
        let mut rounds = self.table.rounds.lock().map_err(|_| poisoned())?;
        if rounds.len() <= round {
            rounds.resize(round + 1, vec![None; self.table.size]);
        }
        rounds[round][self.rank] = Some(mine.to_vec());
        self.table.changed.notify_all();
        loop {
            if let Some(all) = rounds[round].iter().cloned().collect::<Option<Vec<_>>>() {
                return Ok(all);
            }
            self.cancel.check()?;
            rounds = self.table.changed.wait_timeout(rounds, Duration::from_millis(50)).map_err(|_| poisoned())?.0;
        }
    }
}
