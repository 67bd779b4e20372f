//! The terminal screen: what it shows, and what its keys do.

mod draw;
mod panes;
mod run;

pub use run::run;

use crate::known::Quantity;
use crate::moment::Alert;
use crate::moment::{Device, Moment, Row};
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

/// How many intervals a sparkline remembers, and a mean is taken over.
const HISTORY: usize = 120;
const MEAN_OF: usize = 10;

/// What a key asks of the session; the rest the screen does by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Nothing,
    Quit,
    Slower,
    Faster,
}

/// In what order ports stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Order {
    #[default]
    Name,
    Sent,
    Received,
    Lost,
    Congested,
}

impl Order {
    fn next(self) -> Self {
        match self {
            Order::Name => Order::Sent,
            Order::Sent => Order::Received,
            Order::Received => Order::Lost,
            Order::Lost => Order::Congested,
            Order::Congested => Order::Name,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Order::Name => "name",
            Order::Sent => "sent",
            Order::Received => "received",
            Order::Lost => "lost",
            Order::Congested => "congestion",
        }
    }

    /// The largest first.
    fn key(self, row: &Row) -> f64 {
        match self {
            Order::Name => 0.0,
            Order::Sent => row.tx_gbit_s().unwrap_or(0.0),
            Order::Received => row.rx_gbit_s().unwrap_or(0.0),
            Order::Lost => lost(row).unwrap_or(0.0),
            Order::Congested => congested(row).unwrap_or(0.0),
        }
    }
}

/// What lies over the panes below the ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Over {
    #[default]
    Nothing,
    Help,
    Counters,
}

#[derive(Debug, Default)]
pub struct Screen {
    latest: Moment,
    frozen: Option<Box<Moment>>,
    past: Vec<Alert>,
    history: HashMap<Device, VecDeque<(f64, f64)>>,
    order: Order,
    selected: usize,
    scroll: u16,
    mean: bool,
    over: Over,
    /// What stands at the right of the title: `every 1s`, `run.rec`.
    pub note: String,
    /// What cannot be told here, and why.
    pub untold: Option<String>,
}

impl Screen {
    pub fn new(note: String) -> Self {
        Screen { note, ..Screen::default() }
    }

    /// Takes a moment, with all alerts so far, the latest last.
    pub fn show(&mut self, moment: Moment, alerts: Vec<Alert>) {
        for row in moment.rows.iter().filter(|_| moment.interval_us.is_some()) {
            let past = self.history.entry(row.device.clone()).or_default();
            past.push_back((row.tx_gbit_s().unwrap_or(0.0), row.rx_gbit_s().unwrap_or(0.0)));
            if past.len() > HISTORY {
                past.pop_front();
            }
        }
        self.history.retain(|device, _| moment.rows.iter().any(|row| row.device == *device));
        (self.latest, self.past) = (moment, alerts);
    }

    pub fn key(&mut self, key: KeyEvent) -> Asked {
        if key.kind == KeyEventKind::Release {
            return Asked::Nothing;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { Asked::Quit } else { Asked::Nothing };
        }
        match key.code {
            KeyCode::Esc if self.over != Over::Nothing => self.over = Over::Nothing,
            KeyCode::Char('q') | KeyCode::Esc => return Asked::Quit,
            KeyCode::Char('>') => return Asked::Slower,
            KeyCode::Char('<') => return Asked::Faster,
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('m') => self.mean = !self.mean,
            KeyCode::Char('f' | ' ') => {
                self.frozen = if self.frozen.is_some() { None } else { Some(Box::new(self.latest.clone())) };
            }
            KeyCode::Char('h' | '?') => self.toggle(Over::Help),
            KeyCode::Enter => self.toggle(Over::Counters),
            KeyCode::Up | KeyCode::Char('k') => self.select(self.selected.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(self.selected.saturating_add(1)),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_add(10),
            _ => {}
        }
        Asked::Nothing
    }

    fn toggle(&mut self, over: Over) {
        self.over = if self.over == over { Over::Nothing } else { over };
        self.scroll = 0;
    }

    fn select(&mut self, row: usize) {
        self.selected = row.min(self.moment().rows.len().saturating_sub(1));
        self.scroll = 0;
    }

    /// What is shown: the latest, or what was when the screen was frozen.
    fn moment(&self) -> &Moment {
        self.frozen.as_deref().unwrap_or(&self.latest)
    }

    /// The rows in the order asked for, each port followed by what is below it.
    fn rows(&self) -> Vec<&Row> {
        let rows = &self.moment().rows;
        let mut tops: Vec<&Row> = rows.iter().filter(|row| row.below.is_none()).collect();
        // Rates are finite, and the sort is stable.
        tops.sort_by(|a, b| self.order.key(b).total_cmp(&self.order.key(a)));
        let below = |top: &Row| {
            let device = top.device.clone();
            rows.iter().filter(move |row| row.below.as_ref() == Some(&device))
        };
        tops.into_iter().flat_map(|top| std::iter::once(top).chain(below(top))).collect()
    }

    /// What a port sent and received in Gbit/s: now, or on the mean of the last intervals.
    fn rates(&self, row: &Row) -> (Option<f64>, Option<f64>) {
        let past = self.history.get(&row.device).filter(|past| self.mean && !past.is_empty());
        let Some(past) = past else { return (row.tx_gbit_s(), row.rx_gbit_s()) };
        let of = past.len().min(MEAN_OF);
        let (sent, received) =
            past.iter().rev().take(of).fold((0.0, 0.0), |(sent, received), (tx, rx)| (sent + tx, received + rx));
        (Some(sent / of as f64), Some(received / of as f64))
    }

    /// Alerts that stand, then those that are over, the latest first.
    fn alerts(&self) -> Vec<(&Alert, bool)> {
        let standing = &self.moment().alerts;
        let is_over = |alert: &&Alert| !standing.iter().any(|s| s.device == alert.device && s.counter == alert.counter);
        let mut over: Vec<&Alert> = self.past.iter().filter(is_over).collect();
        over.sort_by_key(|alert| Reverse(alert.last_us));
        standing.iter().map(|alert| (alert, true)).chain(over.into_iter().map(|alert| (alert, false))).collect()
    }
}

/// The sum of those rates that the port counts.
fn sum(row: &Row, quantities: &[Quantity]) -> Option<f64> {
    let counted: Vec<f64> = quantities.iter().filter_map(|quantity| row.rate(*quantity)).collect();
    (!counted.is_empty()).then(|| counted.iter().sum())
}

/// Packets lost, sent again or damaged, per second.
pub(crate) fn lost(row: &Row) -> Option<f64> {
    use Quantity::{AckTimeouts, Discards, Errors, OutOfBuffer, OutOfSequence, PacketSequenceErrors, Retransmissions};
    let parts = [OutOfSequence, PacketSequenceErrors, Retransmissions, AckTimeouts, OutOfBuffer, Discards, Errors];
    sum(row, &parts)
}

/// Signs of congestion per second.
pub(crate) fn congested(row: &Row) -> Option<f64> {
    sum(row, &[Quantity::CnpSent, Quantity::CnpHandled, Quantity::EcnMarked])
}
