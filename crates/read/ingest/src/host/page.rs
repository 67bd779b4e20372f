//! Where readers write what a line shows: the facts of its machine, and that this line told them.

use super::Context;
use busbw_model::node::{GpuDevice, NetInterface, RdmaDevice, RdmaPort};
use busbw_model::{FactLine, NodeFacts, SourceLine};
use rustc_hash::FxHashMap;

/// More lines add nothing new.
const MOST_KEPT: usize = 50_000;

/// Which machine: by its name, or as one of those that a stream shows without naming it.
#[derive(Debug, Default, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub host: Option<String>,
    pub stream: Box<str>,
    pub part: u32,
}

impl Key {
    /// The machine with this name, whichever input reports it.
    pub fn named(host: &str) -> Self {
        Key { host: Some(host.to_string()), ..Key::default() }
    }
}

/// Machines in the order in which they were reported.
#[derive(Debug, Default)]
pub(super) struct Machines {
    pub all: Vec<NodeFacts>,
    /// The index of each machine that this input reports, or of each name.
    pub known: FxHashMap<Key, usize>,
}

/// The machines, and the line that is read.
pub(super) struct Page<'a> {
    pub machines: &'a mut Machines,
    pub source: SourceLine,
}

impl Page<'_> {
    /// The same, after keeping that the line tells `item` of a device.
    pub fn tell(
        &mut self,
        context: &Context,
        command: &'static str,
        device: &str,
        item: &'static str,
    ) -> &mut NodeFacts {
        let told = FactLine { device: device.to_string(), item, command, source: self.source.clone() };
        let machine = self.facts(context);
        if machine.lines.len() < MOST_KEPT {
            machine.lines.push(told);
        }
        machine
    }

    /// The facts of the machine that the context speaks of.
    pub fn facts(&mut self, context: &Context) -> &mut NodeFacts {
        let Machines { all, known } = &mut *self.machines;
        let host = context.key.host.as_deref();
        let at = *known.entry(host.map_or_else(|| context.key.clone(), Key::named)).or_insert_with(|| {
            let host = host.unwrap_or_default().to_string();
            all.push(NodeFacts { host, partial: true, ..NodeFacts::default() });
            all.len() - 1
        });
        &mut all[at]
    }
}

/// The entry of a list that is meant, made where it is missing.
fn entry<T>(list: &mut Vec<T>, is_it: impl FnMut(&T) -> bool, make: impl FnOnce(usize) -> T) -> &mut T {
    let at = list.iter().position(is_it).unwrap_or_else(|| {
        list.push(make(list.len()));
        list.len() - 1
    });
    &mut list[at]
}

pub(super) fn rdma<'a>(facts: &'a mut NodeFacts, name: &str) -> &'a mut RdmaDevice {
    let make = |_| RdmaDevice { name: name.to_string(), ..RdmaDevice::default() };
    entry(&mut facts.rdma, |device| device.name == name, make)
}

pub(super) fn port<'a>(facts: &'a mut NodeFacts, device: &str, port: u32) -> &'a mut RdmaPort {
    let make = |_| RdmaPort { port, ..RdmaPort::default() };
    entry(&mut rdma(facts, device).ports, |known| known.port == port, make)
}

/// The network interface of a name.
pub(super) fn interface<'a>(facts: &'a mut NodeFacts, name: &str) -> &'a mut NetInterface {
    let make = |_| NetInterface { name: name.to_string(), ..NetInterface::default() };
    entry(&mut facts.interfaces, |known| known.name == name, make)
}

pub(super) fn gpu(facts: &mut NodeFacts, index: u32) -> &mut GpuDevice {
    entry(&mut facts.gpu.devices, |gpu| gpu.index == index, |_| GpuDevice { index, ..GpuDevice::default() })
}

/// The GPU at an address; where none is known there, the next index.
pub(super) fn gpu_at<'a>(facts: &'a mut NodeFacts, address: &str) -> &'a mut GpuDevice {
    let address = pci_address(address);
    let make = |count: usize| {
        let mut gpu = GpuDevice { index: count as u32, ..GpuDevice::default() };
        gpu.pci.address.clone_from(&address);
        gpu
    };
    entry(&mut facts.gpu.devices, |gpu| gpu.pci.address == address, make)
}

/// `00000000:18:00.0` and `18:00.0` are `0000:18:00.0`.
pub(super) fn pci_address(text: &str) -> String {
    let text = text.to_ascii_lowercase();
    match text.matches(':').count() {
        1 => format!("0000:{text}"),
        _ => text.strip_prefix("0000").filter(|rest| rest.find(':') == Some(4)).unwrap_or(&text).to_string(),
    }
}
