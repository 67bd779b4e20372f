//! Makes moments of samples: what moved since the sample before, and how fast.

use crate::alerts::{AlertLog, Thresholds};
use crate::known::{Counter, Family, Known, Quantity};
use crate::moment::Alert;
use crate::moment::{Device, HostLoad, Moment, Moved, Owner, Raised, Row};
use busbw_probe::counters::{Bond, Counters, HostCounters, Interface, Port, QueuePairs, Sample};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Linux counts processor time in hundredths of a second for programs, whatever its own clock (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// Follows samples.
#[derive(Debug, Default)]
pub struct Tracker {
    groups: HashMap<(Device, Family), Group>,
    states: HashMap<Device, String>,
    before: Option<Before>,
    alerts: AlertLog,
    first_us: Option<u64>,
}

/// What is kept of a sample besides its counters.
#[derive(Debug)]
struct Before {
    time_us: u64,
    cpu_busy_ticks: u64,
    cpu_total_ticks: u64,
    processes: HashMap<u32, u64>,
}

impl Tracker {
    /// Starts with thresholds of alerts.
    pub fn new(thresholds: Thresholds) -> Self {
        Tracker { alerts: AlertLog::new(thresholds), ..Tracker::default() }
    }

    pub fn feed(&mut self, sample: &Sample) -> Moment {
        self.first_us.get_or_insert(sample.time_us);
        let interval_us = self.before.as_ref().map(|before| sample.time_us.saturating_sub(before.time_us));
        let rows = self.rows(sample);
        self.forget_the_gone(&rows);
        let host = self.host(&sample.host);
        let owners = self.owners(&sample.queue_pairs, interval_us);
        self.alerts.settle(sample.time_us);
        let processes = sample.queue_pairs.iter().filter_map(|pairs| Some((pairs.pid?, pairs.cpu_ticks)));
        self.before = Some(Before {
            time_us: sample.time_us,
            cpu_busy_ticks: sample.host.cpu_busy_ticks,
            cpu_total_ticks: sample.host.cpu_total_ticks,
            processes: processes.collect(),
        });
        Moment {
            time_us: sample.time_us,
            interval_us,
            rows,
            host,
            gpus: sample.gpus.clone(),
            owners,
            jobs: sample.jobs.clone(),
            alerts: self.alerts.standing().to_vec(),
        }
    }

    pub fn alerts(&self) -> impl Iterator<Item = &Alert> {
        self.alerts.all()
    }

    /// Every counter that has raised an alert, and whether it stands.
    pub fn raised(&self) -> BTreeMap<Raised, bool> {
        let of = |alert: &Alert| Raised {
            device: alert.device.clone(),
            counter: alert.counter.clone(),
            code: alert.code,
            severity: alert.severity,
        };
        let all = self.alerts.all().map(|alert| (of(alert), false));
        all.chain(self.alerts.standing().iter().map(|alert| (of(alert), true))).collect()
    }

    /// When the first sample was taken, in microseconds since 1970.
    pub fn first_us(&self) -> Option<u64> {
        self.first_us
    }

    /// Bytes sent and received since the first sample, where any were.
    pub fn traffic(&self) -> BTreeMap<Device, (u64, u64)> {
        let mut traffic: BTreeMap<Device, (u64, u64)> = BTreeMap::new();
        for ((device, _), group) in &self.groups {
            let (sent, received) = (group.moved_in_all(Quantity::TxBytes), group.moved_in_all(Quantity::RxBytes));
            if sent > 0 || received > 0 {
                let sums = traffic.entry(device.clone()).or_default();
                *sums = (sums.0.saturating_add(sent), sums.1.saturating_add(received));
            }
        }
        traffic
    }

    fn rows(&mut self, sample: &Sample) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut shown: Vec<&str> = Vec::new();
        for port in &sample.ports {
            let row = self.port(port, sample);
            let device = row.device.clone();
            let first = rows.len();
            rows.push(row);
            for interface in sample.interfaces.iter().filter(|interface| carries(interface, port)) {
                shown.push(&interface.name);
                rows.push(self.interface(interface, Some(device.clone())));
            }
            complete(&mut rows[first..], port.interface.as_deref());
        }
        // The members of a bond follow it, where it is sampled as well.
        let members = |bond: &Interface| {
            let bond = bond.name.clone();
            sample.interfaces.iter().filter(move |other| other.bond == Some(Bond::Member(bond.clone())))
        };
        let is_below = |interface: &Interface| match &interface.bond {
            Some(Bond::Member(bond)) => sample.interfaces.iter().any(|other| other.name == *bond),
            _ => false,
        };
        for interface in sample.interfaces.iter().filter(|i| !is_below(i) && !shown.contains(&i.name.as_str())) {
            rows.push(self.interface(interface, None));
            for member in members(interface) {
                rows.push(self.interface(member, Some(Device::Interface(interface.name.clone()))));
            }
        }
        rows
    }

    fn port(&mut self, port: &Port, sample: &Sample) -> Row {
        let device = Device::Port { device: port.device.clone(), port: port.port };
        let before = self.states.insert(device.clone(), port.state.clone());
        if port.state != "ACTIVE" && before.is_some_and(|before| before == "ACTIVE") {
            self.alerts.port_down(&device, &port.state, sample.time_us);
        }
        let mut rates = BTreeMap::new();
        let counters = self.advance(&device, Family::Rdma, &port.counters, &mut rates);
        let on_device = sample.queue_pairs.iter().filter(|pairs| pairs.device == port.device);
        Row {
            below: None,
            member_of: None,
            state: port.state.clone(),
            link_gbit_s: port.rate_gbit_s,
            rates,
            bytes_of: None,
            queue_pairs: on_device.map(|pairs| pairs.count).sum(),
            counters,
            device,
        }
    }

    fn interface(&mut self, interface: &Interface, below: Option<Device>) -> Row {
        let device = Device::Interface(interface.name.clone());
        let mut rates = BTreeMap::new();
        let mut counters = self.advance(&device, Family::Interface, &interface.counters, &mut rates);
        counters.extend(self.advance(&device, Family::Driver, &interface.driver, &mut rates));
        let member_of = match &interface.bond {
            Some(Bond::Member(bond)) => Some(bond.clone()),
            _ => None,
        };
        Row {
            below,
            member_of,
            state: interface.state.clone(),
            link_gbit_s: interface.rate_gbit_s,
            rates,
            bytes_of: None,
            queue_pairs: 0,
            counters,
            device,
        }
    }

    /// Moves a group of counters on; adds what they give to `rates`.
    fn advance(
        &mut self,
        device: &Device,
        family: Family,
        counters: &Counters,
        rates: &mut BTreeMap<Quantity, f64>,
    ) -> Vec<Moved> {
        if counters.names.is_empty() {
            return Vec::new();
        }
        let group = self.groups.entry((device.clone(), family)).or_insert_with(|| Group::new(family, counters));
        if group.advance(family, counters) {
            for (moved, known) in group.moved.iter().zip(&group.known) {
                if let (Some(known), Some(by), Some(per_second)) = (known, moved.moved, moved.per_second) {
                    self.alerts.note(device, known, &moved.name, by, per_second, counters.time_us);
                }
            }
        }
        group.add_rates(rates);
        group.moved.clone()
    }

    fn host(&mut self, host: &HostCounters) -> HostLoad {
        let counters = self.advance(&Device::Host, Family::Tcp, &host.tcp, &mut BTreeMap::new());
        let per_second = |name: &str| counters.iter().find(|c| c.name.as_ref() == name).and_then(|c| c.per_second);
        let (again, sent) = (per_second("RetransSegs"), per_second("OutSegs"));
        let cpu_pct = self.before.as_ref().and_then(|before| {
            let busy = host.cpu_busy_ticks.checked_sub(before.cpu_busy_ticks)?;
            let total = host.cpu_total_ticks.checked_sub(before.cpu_total_ticks).filter(|total| *total > 0)?;
            Some(100.0 * busy as f64 / total as f64)
        });
        HostLoad {
            name: host.name.clone(),
            cpu_pct,
            cores: host.cores,
            memory_total_kib: host.memory_total_kib,
            memory_free_kib: host.memory_free_kib,
            memory_available_kib: host.memory_available_kib,
            tcp_retransmitted_per_second: again,
            tcp_retransmitted_pct: again.zip(sent).map(|(again, sent)| 100.0 * again / sent.max(1.0)),
            counters,
        }
    }

    fn owners(&self, all: &[QueuePairs], interval_us: Option<u64>) -> Vec<Owner> {
        let seconds = interval_us.filter(|interval| *interval > 0).map(|interval| interval as f64 / 1e6);
        let cpu_pct = |pairs: &QueuePairs| {
            let before = self.before.as_ref()?.processes.get(&pairs.pid?)?;
            Some(100.0 * pairs.cpu_ticks.checked_sub(*before)? as f64 / TICKS_PER_SECOND / seconds?)
        };
        all.iter().map(|pairs| Owner { queue_pairs: pairs.clone(), cpu_pct: cpu_pct(pairs) }).collect()
    }

    fn forget_the_gone(&mut self, rows: &[Row]) {
        self.states.retain(|device, _| rows.iter().any(|row| row.device == *device));
    }
}

/// Whether an interface is that of a RoCE port, or a member of the bond that is.
fn carries(interface: &Interface, port: &Port) -> bool {
    let Some(name) = &port.interface else { return false };
    interface.name == *name || interface.bond == Some(Bond::Member(name.clone()))
}

/// Gives a RoCE port what only its interfaces count: pauses and losses of the wire; and bytes where the device counts none.
fn complete(rows: &mut [Row], interface: Option<&str>) {
    use Quantity::{
        Discards, LinkDowns, OutOfBuffer, RxBytes, RxPause, RxPauseUs, SymbolErrors, TxBytes, TxPause, TxPauseUs,
    };
    let Some((port, below)) = rows.split_first_mut() else { return };
    // A bond's own counters are sums of its members'.
    let has_members = below.iter().any(|row| row.member_of.is_some());
    let wires = || below.iter().filter(|row| row.member_of.is_some() == has_members);
    for quantity in [TxPause, RxPause, TxPauseUs, RxPauseUs, Discards, OutOfBuffer, SymbolErrors, LinkDowns] {
        let counted: Vec<f64> = wires().filter_map(|row| row.rate(quantity)).collect();
        if !counted.is_empty() {
            port.rates.entry(quantity).or_insert_with(|| counted.iter().sum());
        }
    }
    let own = below.iter().find(|row| Some(row.device.to_string().as_str()) == interface);
    // The port of a bond carries what its members carry together, whatever member's rate it shows.
    if let Some(rate) = own.filter(|_| has_members).and_then(|bond| bond.link_gbit_s) {
        port.link_gbit_s = Some(port.link_gbit_s.map_or(rate, |own| own.max(rate)));
    }
    if port.rate(TxBytes).is_none() && port.rate(RxBytes).is_none() {
        for (quantity, rate) in own.iter().flat_map(|row| &row.rates) {
            if matches!(quantity, TxBytes | RxBytes) {
                port.rates.insert(*quantity, *rate);
                port.bytes_of = interface.map(str::to_owned);
            }
        }
    }
}

/// Counters that are read together, as they were last, and how they moved.
#[derive(Debug)]
struct Group {
    counters: Counters,
    known: Vec<Option<&'static Counter>>,
    /// Where the counters of each quantity stand.
    gives: BTreeMap<Quantity, Vec<usize>>,
    moved: Vec<Moved>,
    in_all: Vec<u64>,
}

impl Group {
    fn new(family: Family, counters: &Counters) -> Self {
        let (known, gives) = Known::get().gives(family, counters.names.iter().map(AsRef::as_ref));
        let still =
            |(name, value): (&Arc<str>, u64)| Moved { name: Arc::clone(name), value, moved: None, per_second: None };
        Group {
            moved: counters.iter().map(still).collect(),
            in_all: vec![0; known.len()],
            known,
            counters: counters.clone(),
            gives,
        }
    }

    /// Takes newer values; whether there were any.
    fn advance(&mut self, family: Family, newer: &Counters) -> bool {
        if newer.time_us == self.counters.time_us {
            return false;
        }
        let same = Arc::ptr_eq(&newer.names, &self.counters.names) || newer.names == self.counters.names;
        if !same {
            *self = Group::new(family, newer);
            return false;
        }
        let seconds = newer.time_us.saturating_sub(self.counters.time_us) as f64 / 1e6;
        let values = newer.values.iter().zip(&self.counters.values);
        for ((slot, in_all), (&new, &old)) in self.moved.iter_mut().zip(&mut self.in_all).zip(values) {
            slot.value = new;
            slot.moved = moved(old, new);
            slot.per_second = slot.moved.filter(|_| seconds > 0.0).map(|moved| moved as f64 / seconds);
            *in_all = in_all.saturating_add(slot.moved.unwrap_or(0));
        }
        self.counters = newer.clone();
        true
    }

    /// How much of a quantity there was since the group began, by the counters that give it.
    fn moved_in_all(&self, quantity: Quantity) -> u64 {
        let factor = |at: usize| self.known[at].map_or(1, |known| known.factor);
        let parts = self.gives.get(&quantity).into_iter().flatten();
        parts.map(|&at| self.in_all[at].saturating_mul(factor(at))).fold(0, u64::saturating_add)
    }

    fn add_rates(&self, rates: &mut BTreeMap<Quantity, f64>) {
        for (quantity, parts) in &self.gives {
            let factor = |at: usize| self.known[at].map_or(1.0, |known| known.factor as f64);
            let counted: Vec<f64> =
                parts.iter().filter_map(|&at| Some(self.moved[at].per_second? * factor(at))).collect();
            let adds = parts.iter().any(|&at| self.known[at].is_some_and(|known| known.adds));
            if counted.is_empty() || (!adds && rates.contains_key(quantity)) {
                continue;
            }
            *rates.entry(*quantity).or_default() += counted.iter().sum::<f64>();
        }
    }
}

/// How far a counter went from `old` to `new`. One of 32 bits that was in the last quarter and is in the first went through
/// zero; any other that went back was reset, and nobody knows how far it went.
fn moved(old: u64, new: u64) -> Option<u64> {
    const WRAP: u64 = 1 << 32;
    match new.checked_sub(old) {
        Some(moved) => Some(moved),
        None if (WRAP / 4 * 3..WRAP).contains(&old) && new < WRAP / 4 => Some(new + WRAP - old),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_go_on_wrap_or_begin_anew() {
        let cases = [
            (5, 9, Some(4)),
            (9, 9, Some(0)),
            (u64::from(u32::MAX), 4, Some(5)),
            (3_900_000_000, 100, Some(394_967_396)),
            (1000, 4, None),
            (u64::from(u32::MAX), 3_000_000_000, None),
            (u64::from(u32::MAX) + 1, 4, None),
            (u64::MAX, 0, None),
        ];
        for (old, new, expected) in cases {
            assert_eq!(moved(old, new), expected, "{old} to {new}");
        }
    }
}
