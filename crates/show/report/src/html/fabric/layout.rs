//! Where the parts of a fabric's picture stand: hosts in a row at the bottom, a row of switches per level above.

use super::skeleton::{Bundle, End, Skeleton};

pub const WIDTH: f64 = 1000.0;
pub const HOST_HEIGHT: f64 = 44.0;
pub const SWITCH_HEIGHT: f64 = 30.0;
/// From one row to the next.
const ROW: f64 = 120.0;
/// Above the highest row, and above the numbers beside its links.
const MARGIN: f64 = 10.0;
const GAP: f64 = 12.0;
const MAX_HOST: f64 = 260.0;
const MAX_SWITCH: f64 = 190.0;
/// Between parallel links.
const APART: f64 = 26.0;

/// Places of hosts and switches.
pub struct Layout {
    pub height: f64,
    hosts: usize,
    nics: usize,
    /// The middle of each switch, and its width.
    switches: Vec<(f64, f64, f64)>,
}

/// A link's line.
pub struct Line {
    pub data: String,
    pub middle: (f64, f64),
}

impl Layout {
    pub fn of(skeleton: &Skeleton) -> Self {
        let levels = skeleton.switches.iter().map(|switch| switch.level).max().unwrap_or(1);
        let of_a_row = |bundle: &&Bundle| level(skeleton, bundle.from) == level(skeleton, bundle.to);
        let arcs = skeleton.bundles.iter().filter(of_a_row).map(|bundle| bundle.count.min(super::MAX_SINGLE)).max();
        let top = MARGIN + arcs.map_or(0.0, |count| rise(count.saturating_sub(1))) + SWITCH_HEIGHT / 2.0;
        let mut switches = vec![(0.0, 0.0, 0.0); skeleton.switches.len()];
        for of_level in 1..=levels {
            let row: Vec<usize> =
                (0..switches.len()).filter(|index| skeleton.switches[*index].level == of_level).collect();
            let step = WIDTH / row.len().max(1) as f64;
            for (place, index) in row.iter().enumerate() {
                let y = top + (levels - of_level) as f64 * ROW;
                switches[*index] = ((place as f64 + 0.5) * step, y, (step - GAP).min(MAX_SWITCH));
            }
        }
        let height = top + levels as f64 * ROW - SWITCH_HEIGHT / 2.0 + HOST_HEIGHT;
        Layout { height, hosts: skeleton.hosts, nics: skeleton.nics, switches }
    }

    /// The middle of a host from left to right, its top, and its width.
    pub fn host(&self, host: usize) -> (f64, f64, f64) {
        let step = WIDTH / self.hosts.max(1) as f64;
        ((host as f64 + 0.5) * step, self.height - HOST_HEIGHT - 1.0, (step - GAP).min(MAX_HOST))
    }

    /// The middle of a NIC's port, at the top of its host.
    pub fn port(&self, host: usize, nic: usize) -> (f64, f64) {
        let (x, y, width) = self.host(host);
        (x - width / 2.0 + (nic as f64 + 0.5) * width / self.nics.max(1) as f64, y)
    }

    /// The middle of a switch, and its width.
    pub fn switch(&self, switch: usize) -> (f64, f64, f64) {
        self.switches.get(switch).copied().unwrap_or((0.0, 0.0, 0.0))
    }

    /// The line of one of several parallel links, `number` of `count`.
    pub fn path(&self, bundle: &Bundle, (number, count): (usize, usize)) -> Line {
        let aside = number as f64 - (count as f64 - 1.0) / 2.0;
        match (bundle.from, bundle.to) {
            (End::Switch(a), End::Switch(b)) if self.switch(a).1 == self.switch(b).1 => self.arc(a, b, number),
            (from, to) => {
                let ((x1, y1), (x2, y2)) = (self.top_of(from), self.bottom_of(to));
                let shift = aside * APART / 3.0;
                let data = format!("M{:.1},{y1:.1} L{:.1},{y2:.1}", x1 + shift, x2 + shift);
                // Labels of links that cross stand apart where links stand apart: near their lower end.
                Line { data, middle: (x1 + shift + (x2 - x1) * 0.3, y1 + (y2 - y1) * 0.3) }
            }
        }
    }

    /// A bow over the switches between two of the same row.
    fn arc(&self, a: usize, b: usize, number: usize) -> Line {
        let ((x1, y, _), (x2, ..)) = (self.switch(a), self.switch(b));
        let edge = y - SWITCH_HEIGHT / 2.0;
        let rise = rise(number);
        let inset = 20.0 + 14.0 * number as f64;
        let (x1, x2) = (x1.min(x2) + 70.0 - inset, x1.max(x2) - 70.0 + inset);
        let top = edge - rise * 4.0 / 3.0;
        let data = format!("M{x1:.1},{edge:.1} C{x1:.1},{top:.1} {x2:.1},{top:.1} {x2:.1},{edge:.1}");
        Line { data, middle: ((x1 + x2) / 2.0, edge - rise) }
    }

    fn top_of(&self, end: End) -> (f64, f64) {
        match end {
            End::Nic { host, nic } => self.port(host, nic),
            End::Switch(index) => {
                let (x, y, _) = self.switch(index);
                (x, y - SWITCH_HEIGHT / 2.0)
            }
        }
    }

    fn bottom_of(&self, end: End) -> (f64, f64) {
        match end {
            End::Nic { host, nic } => self.port(host, nic),
            End::Switch(index) => {
                let (x, y, _) = self.switch(index);
                (x, y + SWITCH_HEIGHT / 2.0)
            }
        }
    }
}

/// How high over its switches a bow goes.
fn rise(number: usize) -> f64 {
    12.0 + number as f64 * APART * 1.05
}

fn level(skeleton: &Skeleton, end: End) -> usize {
    match end {
        End::Nic { .. } => 0,
        End::Switch(index) => skeleton.switches.get(index).map_or(0, |switch| switch.level),
    }
}
