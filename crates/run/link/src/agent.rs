//! A rank: runs the commands of rank 0, and answers, until the command to leave.

use crate::limit::Limit;
use crate::perftest::{Perftest, Process};
use crate::tcp::{End, Kept, Task};
use crate::wire::{Answer, Connection, Lost, Order};
use crate::{Error, Result, losses};
use busbw_probe::Root;
use busbw_transport::interfaces::Interface;
use busbw_transport::{Cancellation, Token};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// A rank, as rank 0 leads it.
pub(crate) struct Agent {
    pub interface: Interface,
    pub token: Token,
    /// Whether what arrives is checked (`BUSBW_NET_CHECKSUM`).
    pub checksum: bool,
    /// Raised when the whole run ends.
    pub cancel: Arc<Cancellation>,
    end: Option<End>,
    /// The last connection, which its other end may still need.
    kept: Option<Kept>,
    /// A server of perftest that runs.
    server: Option<Server>,
}

struct Server {
    process: Process,
    limit: Limit,
    test: Perftest,
    before: Vec<(String, u64)>,
}

impl Agent {
    pub fn new(interface: Interface, token: Token, checksum: bool, cancel: Arc<Cancellation>) -> Self {
        Agent { interface, token, checksum, cancel, end: None, kept: None, server: None }
    }

    /// Follows orders until the last.
    pub fn follow(mut self, mut rank_0: Connection) -> Result<()> {
        let gone = |lost: Lost| Error::Job(format!("rank 0: {lost}"));
        loop {
            let answer = match rank_0.receive(None, &self.cancel).map_err(gone)? {
                Order::Leave => return Ok(()),
                order => self.obey(order).unwrap_or_else(Answer::Failed),
            };
            rank_0.send(&answer).map_err(gone)?;
        }
    }

    fn obey(&mut self, order: Order) -> std::result::Result<Answer, String> {
        match order {
            Order::Listen { flows, limit } => self.listen(flows, limit),
            Order::Move { task, to, from } => self.move_bytes(task, to.as_deref(), from),
            Order::Serve { test, limit } => self.serve(test, limit),
            Order::Drive { test, server, limit } => self.drive(&test, server, limit),
            Order::Conclude { failed } => self.conclude(failed),
            Order::Leave => Err("was told to leave".into()),
        }
    }

    fn listen(&mut self, flows: u32, limit: Duration) -> std::result::Result<Answer, String> {
        self.kept = None;
        let limit = Limit::start(limit, &self.cancel);
        let end = End::listen(&self.interface, flows, self.token, self.checksum, limit);
        let end = end.map_err(|error| error.to_string())?;
        let handle = end.handle();
        self.end = Some(end);
        Ok(Answer::Listening(handle))
    }

    fn move_bytes(&mut self, task: Task, to: Option<&[u8]>, from: bool) -> std::result::Result<Answer, String> {
        let end = self.end.take().ok_or("was told to move bytes before it listened")?;
        let (moved, kept) = end.run(task, to, from).map_err(|error| error.to_string())?;
        self.kept = Some(kept);
        Ok(Answer::Moved(moved))
    }

    fn serve(&mut self, test: Perftest, limit: Duration) -> std::result::Result<Answer, String> {
        // One that is left from a pair that failed goes first.
        self.server = None;
        let limit = Limit::start(limit, &self.cancel);
        let before = counters(&test);
        let (process, address) = test.serve(self.interface.address, limit.cancellation())?;
        self.server = Some(Server { process, limit, test, before });
        Ok(Answer::Serving(address))
    }

    fn drive(&self, test: &Perftest, server: SocketAddr, limit: Duration) -> std::result::Result<Answer, String> {
        let limit = Limit::start(limit, &self.cancel);
        let before = counters(test);
        let mut figures = test.drive(server, limit.cancellation())?;
        figures.losses = losses::moved(&before, &counters(test));
        Ok(Answer::Driven(figures))
    }

    fn conclude(&mut self, failed: bool) -> std::result::Result<Answer, String> {
        let Some(Server { process, limit, test, before }) = self.server.take() else {
            return Ok(Answer::Concluded(Vec::new()));
        };
        if failed {
            drop(process);
        } else {
            process.end(limit.cancellation())?;
        }
        Ok(Answer::Concluded(losses::moved(&before, &counters(&test))))
    }
}

fn counters(test: &Perftest) -> Vec<(String, u64)> {
    losses::rdma(&Root::live(), &test.end.device, test.end.port)
}
