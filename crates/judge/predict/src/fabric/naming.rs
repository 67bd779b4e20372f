//! What links between switches are called.

use crate::cluster::Wiring;

/// The names of the switches of a fabric.
#[derive(Debug, Clone, Copy)]
pub enum Names {
    /// `switch of node 3`.
    OfNodes,
    /// `leaf 3`.
    Leaves,
    /// `rail switch 3`, or `rail switch 3 of group 1`.
    Rails(u32),
}

impl Names {
    pub fn of(wiring: &Wiring, rails: usize) -> Self {
        match wiring {
            Wiring::HostToSwitch { .. } => Names::OfNodes,
            Wiring::RailOptimised { .. } => Names::Rails(rails as u32),
            _ => Names::Leaves,
        }
    }

    fn leaf(self, leaf: u32) -> String {
        match self {
            Names::OfNodes => format!("switch of node {leaf}"),
            Names::Leaves => format!("leaf {leaf}"),
            Names::Rails(rails) => format!("rail switch {} of group {}", leaf % rails, leaf / rails),
        }
    }

    pub fn direct(self, from: u32, to: u32) -> String {
        format!("{} → {}", self.leaf(from), self.leaf(to))
    }

    pub fn up(self, leaf: u32, pod: Option<u32>, spine: u32) -> String {
        format!("{} → {}", self.leaf(leaf), spine_name(pod, spine))
    }

    pub fn down(self, leaf: u32, pod: Option<u32>, spine: u32) -> String {
        format!("{} → {}", spine_name(pod, spine), self.leaf(leaf))
    }

    pub fn core_up(self, pod: u32, spine: u32, core: u32) -> String {
        format!("{} → core {core}", spine_name(Some(pod), spine))
    }

    pub fn core_down(self, pod: u32, spine: u32, core: u32) -> String {
        format!("core {core} → {}", spine_name(Some(pod), spine))
    }
}

fn spine_name(pod: Option<u32>, spine: u32) -> String {
    match pod {
        None => format!("spine {spine}"),
        Some(pod) => format!("spine {spine} of pod {pod}"),
    }
}
