//! Where hosts, GPUs and NICs stand: up to four hosts in two rows that face each other, more in a grid.

use super::scene::{HostBox, Scene, Spot};

pub(super) const WIDTH: f64 = 1000.0;
/// The room between two rows of hosts, which crossings go through.
const MIDDLE: f64 = 190.0;
const GAP: f64 = 16.0;
const PADDING: f64 = 12.0;
const TITLE: f64 = 26.0;
/// The room for NVLinks and hops beside the GPUs.
const ARCS: f64 = 46.0;
const GPU_HEIGHT: f64 = 34.0;
/// The room for PCIe paths between GPUs and NICs.
const PATHS: f64 = 30.0;
const NIC_HEIGHT: f64 = 24.0;
const NIC_WIDTH: f64 = 92.0;
/// Hosts that face each other at most.
const FACING: usize = 4;
/// Columns of a grid of up to 16 hosts, and of more.
const COLUMNS: [usize; 2] = [4, 8];

/// Lanes of a NIC's two directions stand this far from its middle.
const LANE: f64 = 9.0;

/// The places of everything in a picture.
pub(super) struct Layout {
    pub height: f64,
    boxes: Vec<HostArea>,
}

/// A host's place.
#[derive(Debug, Clone, Copy)]
struct HostArea {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
    gpus: usize,
    nics: usize,
    /// Whether its NICs are at its top.
    flipped: bool,
}

/// A rectangle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Area {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

/// A point, and whether what leaves it there goes up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Port {
    pub x: f64,
    pub y: f64,
    pub up: bool,
}

/// A direction through a NIC. Each has its own lane, so that two do not cover each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    Out,
    In,
}

impl Layout {
    pub fn of(scene: &Scene) -> Self {
        let heights: Vec<f64> = scene.hosts.iter().map(height).collect();
        let tallest = heights.iter().copied().fold(0.0, f64::max);
        let count = scene.hosts.len();
        let facing = count <= FACING;
        let columns = match count {
            0..=FACING => count.div_ceil(2).max(1),
            5..=16 => COLUMNS[0],
            _ => COLUMNS[1],
        };
        let between = if facing { MIDDLE } else { GAP * 2.0 };
        let place = |(index, host): (usize, &HostBox)| {
            let (row, column) = (index / columns, index % columns);
            let in_row = columns.min(count - row * columns);
            let width = if facing { WIDTH / in_row as f64 } else { WIDTH / columns as f64 };
            HostArea {
                x: column as f64 * width + GAP / 2.0,
                y: row as f64 * (tallest + between) + 1.0,
                width: width - GAP,
                height: tallest,
                gpus: host.gpus.len(),
                nics: host.nics.len(),
                flipped: facing && row > 0,
            }
        };
        let boxes: Vec<HostArea> = scene.hosts.iter().enumerate().map(place).collect();
        let height = boxes.iter().map(|place| place.y + place.height).fold(0.0, f64::max);
        Layout { height: height + if facing { 1.0 } else { GAP * 2.0 }, boxes }
    }

    pub fn host(&self, host: usize) -> Area {
        let HostArea { x, y, width, height, .. } = self.boxes[host];
        Area { x, y, width, height }
    }

    /// The middle of the line of a host's title.
    pub fn title(&self, host: usize) -> (f64, f64) {
        let place = self.boxes[host];
        (place.x + PADDING, place.height_at(TITLE / 2.0 + 4.0) + 5.0)
    }

    pub fn gpu(&self, spot: Spot) -> Area {
        let place = self.boxes[spot.host];
        let each = (place.width - 2.0 * PADDING) / place.gpus.max(1) as f64;
        let gap = (each * 0.1).min(6.0);
        let y = place.height_at(TITLE + ARCS + GPU_HEIGHT / 2.0) - GPU_HEIGHT / 2.0;
        let x = place.x + PADDING + spot.gpu as f64 * each + gap / 2.0;
        Area { x, y, width: each - gap, height: GPU_HEIGHT }
    }

    pub fn nic(&self, host: usize, nic: usize) -> Area {
        let place = self.boxes[host];
        let each = (place.width - 2.0 * PADDING) / place.nics.max(1) as f64;
        let width = (each * 0.9).min(NIC_WIDTH);
        let middle = TITLE + ARCS + GPU_HEIGHT + PATHS + NIC_HEIGHT / 2.0;
        let y = place.height_at(middle) - NIC_HEIGHT / 2.0;
        Area { x: place.x + PADDING + (nic as f64 + 0.5) * each - width / 2.0, y, width, height: NIC_HEIGHT }
    }

    /// Where NVLinks and hops inside the host meet a GPU.
    pub fn back(&self, spot: Spot) -> Port {
        let flipped = self.boxes[spot.host].flipped;
        self.gpu(spot).port(!flipped)
    }

    /// Where PCIe and the network meet a GPU.
    pub fn front(&self, spot: Spot) -> Port {
        let flipped = self.boxes[spot.host].flipped;
        self.gpu(spot).port(flipped)
    }

    /// Where the GPUs' side and the network's side meet a NIC.
    pub fn nic_ports(&self, host: usize, nic: usize) -> (Port, Port) {
        let (area, flipped) = (self.nic(host, nic), self.boxes[host].flipped);
        (area.port(!flipped), area.port(flipped))
    }

    pub fn nic_lanes(&self, host: usize, nic: usize, lane: Lane) -> (Port, Port) {
        let (inner, outer) = self.nic_ports(host, nic);
        let shift = if (lane == Lane::Out) == self.boxes[host].flipped { LANE } else { -LANE };
        let moved = |port: Port| Port { x: port.x + shift, ..port };
        (moved(inner), moved(outer))
    }

    /// The bar of links that join all GPUs.
    pub fn bar(&self, host: usize) -> Area {
        let place = self.boxes[host];
        let y = place.height_at(TITLE + 10.0) - 8.0;
        Area { x: place.x + PADDING, y, width: place.width - 2.0 * PADDING, height: 16.0 }
    }

    /// How far a bow between hosts reaches.
    pub fn reach(&self) -> f64 {
        if self.boxes.len() <= FACING { MIDDLE * 0.62 } else { 40.0 }
    }
}

impl HostArea {
    /// The height at a distance from the side that is turned away from the network.
    fn height_at(&self, distance: f64) -> f64 {
        if self.flipped { self.y + self.height - distance } else { self.y + distance }
    }
}

impl Area {
    pub fn middle(&self) -> f64 {
        self.x + self.width / 2.0
    }

    fn port(&self, up: bool) -> Port {
        Port { x: self.middle(), y: if up { self.y } else { self.y + self.height }, up }
    }
}

fn height(host: &HostBox) -> f64 {
    let nics = if host.nics.is_empty() { 0.0 } else { PATHS + NIC_HEIGHT };
    TITLE + ARCS + GPU_HEIGHT + nics + PADDING
}
