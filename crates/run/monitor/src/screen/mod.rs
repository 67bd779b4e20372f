//! The terminal screen: what it shows, and what its keys do.

mod draw;
mod panes;
mod run;
pub mod terminal;

pub use run::{run, run_fleet};

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

/// What is shown of a host.
#[derive(Debug, Default)]
struct Host {
    name: String,
    latest: Moment,
    past: Vec<Alert>,
    history: HashMap<Device, VecDeque<(f64, f64)>>,
    /// Why it tells nothing, where that is so.
    silent: Option<String>,
}

/// A row, and the number of its host.
#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    host: usize,
    row: &'a Row,
}

#[derive(Debug, Default)]
pub struct Screen {
    hosts: Vec<Host>,
    frozen: Option<Vec<Moment>>,
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
    /// Of this host.
    pub fn new(note: String) -> Self {
        Screen { hosts: vec![Host::default()], note, ..Screen::default() }
    }

    /// Of hosts with these names.
    pub fn of<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let host = |name: &str| Host { name: name.to_owned(), ..Host::default() };
        Screen { hosts: names.map(host).collect(), ..Screen::default() }
    }

    /// Takes a moment of this host, with all alerts so far, the latest last.
    pub fn show(&mut self, moment: Moment, alerts: Vec<Alert>) {
        self.show_host(0, moment, alerts);
    }

    /// Takes a moment of a host.
    pub fn show_host(&mut self, at: usize, moment: Moment, alerts: Vec<Alert>) {
        let Some(host) = self.hosts.get_mut(at) else { return };
        for row in moment.rows.iter().filter(|_| moment.interval_us.is_some()) {
            let past = host.history.entry(row.device.clone()).or_default();
            past.push_back((row.tx_gbit_s().unwrap_or(0.0), row.rx_gbit_s().unwrap_or(0.0)));
            if past.len() > HISTORY {
                past.pop_front();
            }
        }
        host.history.retain(|device, _| moment.rows.iter().any(|row| row.device == *device));
        (host.latest, host.past) = (moment, alerts);
    }

    /// Takes why a host tells nothing, or that it does.
    pub fn silent(&mut self, at: usize, why: Option<String>) {
        if let Some(host) = self.hosts.get_mut(at) {
            host.silent = why;
        }
    }

    fn several(&self) -> bool {
        self.hosts.len() > 1
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
                let now = || self.hosts.iter().map(|host| host.latest.clone()).collect();
                self.frozen = if self.frozen.is_some() { None } else { Some(now()) };
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
        self.selected = row.min(self.rows().len().saturating_sub(1));
        self.scroll = 0;
    }

    /// What is shown of each host: the latest, or what was when the screen was frozen.
    fn moments(&self) -> impl Iterator<Item = &Moment> {
        let frozen = self.frozen.iter().flatten();
        frozen.chain(self.hosts.iter().filter(|_| self.frozen.is_none()).map(|host| &host.latest))
    }

    /// The rows in the order asked for, each port followed by what is below it.
    fn rows(&self) -> Vec<Place<'_>> {
        let all = self.moments().enumerate();
        let mut rows = all.flat_map(|(host, moment)| moment.rows.iter().map(move |row| Place { host, row }));
        let (mut tops, below): (Vec<Place>, Vec<Place>) = rows.by_ref().partition(|place| place.row.below.is_none());
        // Rates are finite, and the sort is stable.
        tops.sort_by(|a, b| self.order.key(b.row).total_cmp(&self.order.key(a.row)));
        let below = |top: Place| {
            let is_below =
                move |place: &&Place| place.host == top.host && place.row.below.as_ref() == Some(&top.row.device);
            below.iter().filter(is_below).copied().collect::<Vec<_>>()
        };
        tops.iter().flat_map(|top| std::iter::once(*top).chain(below(*top))).collect()
    }

    /// What a port sent and received in Gbit/s: now, or on the mean of the last intervals.
    fn rates(&self, Place { host, row }: Place) -> (Option<f64>, Option<f64>) {
        let past = self.hosts[host].history.get(&row.device).filter(|past| self.mean && !past.is_empty());
        let Some(past) = past else { return (row.tx_gbit_s(), row.rx_gbit_s()) };
        let of = past.len().min(MEAN_OF);
        let (sent, received) =
            past.iter().rev().take(of).fold((0.0, 0.0), |(sent, received), (tx, rx)| (sent + tx, received + rx));
        (Some(sent / of as f64), Some(received / of as f64))
    }

    /// Alerts that stand, then those that are over, the latest first; each with its host's name where there are several.
    fn alerts(&self) -> Vec<(&str, &Alert, bool)> {
        let hosts = || self.hosts.iter().zip(self.moments());
        let mut standing: Vec<(&str, &Alert, bool)> = hosts()
            .flat_map(|(host, moment)| moment.alerts.iter().map(|alert| (host.name.as_str(), alert, true)))
            .collect();
        // Of one host, they stand in this order.
        standing.sort_by_key(|(_, alert, _)| (Reverse(alert.severity), Reverse(alert.last_us)));
        let is_over = |alert: &&Alert, moment: &Moment| {
            !moment.alerts.iter().any(|s| s.device == alert.device && s.counter == alert.counter)
        };
        let mut over: Vec<(&str, &Alert, bool)> = hosts()
            .flat_map(|(host, moment)| {
                let over = host.past.iter().filter(move |alert| is_over(alert, moment));
                over.map(|alert| (host.name.as_str(), alert, false))
            })
            .collect();
        over.sort_by_key(|(_, alert, _)| Reverse(alert.last_us));
        standing.into_iter().chain(over).collect()
    }
}

/// The sum of those rates that the port counts.
fn sum(row: &Row, quantities: &[Quantity]) -> Option<f64> {
    let counted: Vec<f64> = quantities.iter().filter_map(|quantity| row.rate(*quantity)).collect();
    (!counted.is_empty()).then(|| counted.iter().sum())
}

/// Packets lost, retransmitted or damaged, per second.
pub(crate) fn lost(row: &Row) -> Option<f64> {
    use Quantity::{AckTimeouts, Discards, Errors, OutOfBuffer, OutOfSequence, PacketSequenceErrors, Retransmissions};
    let parts = [OutOfSequence, PacketSequenceErrors, Retransmissions, AckTimeouts, OutOfBuffer, Discards, Errors];
    sum(row, &parts)
}

/// Signs of congestion per second.
pub(crate) fn congested(row: &Row) -> Option<f64> {
    sum(row, &[Quantity::CnpSent, Quantity::CnpHandled, Quantity::EcnMarked])
}
