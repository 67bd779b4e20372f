//! A rank, as rank 0 sees it: gets one command after the other, and counts as lost once it does not answer.

use crate::wire::{Answer, Connection, Introduction, Lost, Order};
use busbw_model::text::clean_line;
use busbw_transport::Cancellation;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a rank may need beyond what its task takes, to answer: a slow machine, a busy scheduler.
const GRACE: Duration = Duration::from_secs(10);

/// A rank, and what it said of itself.
pub(crate) struct Peer {
    pub introduction: Introduction,
    connection: Option<Connection>,
    cancel: Arc<Cancellation>,
    pub trouble: Option<String>,
}

impl Peer {
    pub fn new(introduction: Introduction, connection: Connection, cancel: Arc<Cancellation>) -> Self {
        Peer { introduction, connection: Some(connection), cancel, trouble: None }
    }

    /// Gives an order, whose answer is waited for with [`Peer::answer`].
    pub fn tell(&mut self, order: &Order) -> Result<(), String> {
        let told = self.connection()?.send(order);
        told.map_err(|lost| self.lost(&lost))
    }

    /// Waits for the answer to what takes so long.
    pub fn answer(&mut self, takes: Duration) -> Result<Answer, String> {
        let cancel = Arc::clone(&self.cancel);
        let answered = self.connection()?.receive(Some(Instant::now() + takes + GRACE), &cancel);
        match answered {
            Ok(Answer::Failed(reason)) => Err(format!("{}: {}", self.introduction.host, clean_line(&reason))),
            Ok(answer) => Ok(answer),
            Err(lost) => Err(self.lost(&lost)),
        }
    }

    /// Gives an order and waits for its answer.
    pub fn ask(&mut self, order: &Order, takes: Duration) -> Result<Answer, String> {
        self.tell(order)?;
        self.answer(takes)
    }

    fn dismiss(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            // A rank that is lost ends on its own.
            let _ = connection.send(&Order::Leave);
        }
    }

    /// It answered what nobody asked.
    pub fn confused(&mut self) -> String {
        self.lost(&Lost::Strange("an unexpected answer".into()))
    }

    fn connection(&mut self) -> Result<&mut Connection, String> {
        match (&mut self.connection, &self.trouble) {
            (Some(connection), _) => Ok(connection),
            (None, trouble) => Err(trouble.clone().unwrap_or_else(|| "has left".into())),
        }
    }

    fn lost(&mut self, lost: &Lost) -> String {
        self.connection = None;
        if let Lost::Cancelled(reason) = lost {
            // The run ends; the rank is not to blame.
            return reason.clone();
        }
        let trouble = format!("{}: {lost}", self.introduction.host);
        self.trouble.get_or_insert(trouble).clone()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.dismiss();
    }
}
