//! Takes samples: follows devices as they come and go, and keeps open what is read again and again.

use super::ethtool::Driver;
use super::gpus::Gpus;
use super::host::OpenHost;
use super::jobs::Jobs;
use super::open::{OpenCounters, Reread};
use super::queue_pairs::{Owners, QueuePair, QueuePairReader};
use super::{Bond, Interface, Port, Sample, now_us};
use crate::Root;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::collections::BTreeMap;

/// Facts beside counters (rate, bond, interface) change rarely and some cost a question to the firmware: they are read
/// again when the state of a port changes, and every so many samples.
const FACTS_EVERY: u32 = 10;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Devices {
    /// Every RDMA device and the interfaces that may carry the node's traffic: not `lo`, not what hangs on a bridge (the
    /// host's ends of containers), nothing virtual that is down.
    #[default]
    Usual,
    /// Those of these names, of which `*` at the end stands for any rest, and the interfaces of RDMA devices among them.
    Named(Vec<String>),
}

impl Devices {
    /// Names that fit no RDMA device and no interface of a tree, and what is there.
    pub fn missing(&self, root: &Root) -> Option<(Vec<String>, Vec<String>)> {
        let Devices::Named(names) = self else { return None };
        let there: Vec<String> =
            ["infiniband", "net"].iter().flat_map(|class| root.list(&format!("/sys/class/{class}"))).collect();
        let fits = |wanted: &String| there.iter().any(|name| is_meant(wanted, name));
        let missing: Vec<String> = names.iter().filter(|wanted| !fits(wanted)).cloned().collect();
        (!missing.is_empty()).then_some((missing, there))
    }

    fn include(&self, name: &str) -> Option<bool> {
        let Devices::Named(names) = self else { return None };
        Some(names.iter().any(|wanted| is_meant(wanted, name)))
    }
}

fn is_meant(wanted: &str, name: &str) -> bool {
    wanted.strip_suffix('*').map_or(name == wanted, |beginning| name.starts_with(beginning))
}

/// Takes samples of a tree.
#[derive(Debug)]
pub struct Sampler {
    root: Root,
    devices: Devices,
    /// Which interfaces are sampled, as was found when they came, or at the last look at all of them.
    wanted: BTreeMap<String, bool>,
    samples: u32,
    ports: Vec<OpenPort>,
    interfaces: Vec<OpenInterface>,
    host: OpenHost,
    gpus: Gpus,
    queue_pairs: Option<QueuePairReader>,
    owners: Owners,
    jobs: Jobs,
    untold: Option<String>,
}

impl Sampler {
    /// Makes ready to sample. Programs and libraries are asked only where the tree is this machine.
    ///
    /// Counter files stay open, some hundred for each port, so that the soft limit of this process's open files is raised
    /// to the hard one.
    pub fn new(root: Root, devices: Devices) -> Self {
        if root.is_live() {
            // Files that may not be kept open are opened for each sample instead.
            let _ =
                getrlimit(Resource::RLIMIT_NOFILE).and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
        }
        Sampler {
            host: OpenHost::new(&root),
            gpus: Gpus::new(&root),
            ports: Vec::new(),
            interfaces: Vec::new(),
            owners: Owners::default(),
            jobs: Jobs::default(),
            queue_pairs: None,
            untold: None,
            wanted: BTreeMap::new(),
            samples: 0,
            devices,
            root,
        }
    }

    /// What the last sample could not tell, and why.
    pub fn untold(&self) -> Option<&str> {
        self.untold.as_deref()
    }

    /// Reads everything once.
    pub fn sample(&mut self) -> Sample {
        let time_us = now_us();
        let ports = self.ports();
        let queue_pairs = if ports.is_empty() || !self.root.is_live() { Vec::new() } else { self.queue_pairs() };
        Sample {
            time_us,
            interfaces: self.interfaces(&ports),
            ports,
            host: self.host.read(),
            gpus: self.gpus.read(),
            queue_pairs: self.owners.group(&self.root, &queue_pairs),
            jobs: self.jobs.read(&self.root),
        }
    }

    fn is_wanted(&self, name: &str, ports: &[Port]) -> bool {
        let carries_rdma = |name: &str| ports.iter().any(|port| port.interface.as_deref() == Some(name));
        let folder = format!("/sys/class/net/{name}");
        let bond = bond(&self.root, name);
        let is_member_of_rdma = matches!(&bond, Some(Bond::Member(master)) if carries_rdma(master));
        let usual = || {
            let has = |part: &str| self.root.exists(&format!("{folder}/{part}"));
            let is_up = || self.root.value(&format!("{folder}/operstate")).is_none_or(|state| state != "down");
            bond.is_some() || has("device") || name != "lo" && !has("brport") && is_up()
        };
        carries_rdma(name) || is_member_of_rdma || self.devices.include(name).unwrap_or_else(usual)
    }

    fn queue_pairs(&mut self) -> Vec<QueuePair> {
        let reader = match self.queue_pairs.take() {
            Some(reader) => Ok(reader),
            None => QueuePairReader::open(),
        };
        match reader.and_then(|mut reader| Ok((reader.read()?, reader))) {
            Ok((pairs, reader)) => {
                self.queue_pairs = Some(reader);
                self.untold = None;
                pairs
            }
            Err(error) => {
                self.untold = Some(format!("no queue pairs and owners: RDMA netlink says {error}"));
                Vec::new()
            }
        }
    }

    fn ports(&mut self) -> Vec<Port> {
        let mut places = devices(&self.root);
        places.retain(|(device, _)| self.devices.include(device).unwrap_or(true));
        self.ports.retain(|open| places.iter().any(|(device, port)| open.is(device, *port)));
        let mut ports = Vec::with_capacity(places.len());
        for (device, port) in places {
            let at = self.ports.iter().position(|open| open.is(&device, port)).or_else(|| {
                self.ports.push(OpenPort::new(&self.root, device, port)?);
                Some(self.ports.len() - 1)
            });
            let Some(at) = at else { continue };
            match self.ports[at].read(&self.root) {
                Some(port) => ports.push(port),
                // Made anew since: opened again with the next sample.
                None => drop(self.ports.swap_remove(at)),
            }
        }
        ports
    }

    fn interfaces(&mut self, ports: &[Port]) -> Vec<Interface> {
        let mut names = self.root.list("/sys/class/net");
        if self.samples.is_multiple_of(FACTS_EVERY) {
            self.wanted.clear();
        }
        self.samples = self.samples.wrapping_add(1);
        names.retain(|name| match self.wanted.get(name) {
            Some(is_wanted) => *is_wanted,
            None => {
                let is_wanted = self.is_wanted(name, ports);
                self.wanted.insert(name.clone(), is_wanted);
                is_wanted
            }
        });
        self.interfaces.retain(|open| names.contains(&open.facts.name));
        let mut interfaces = Vec::with_capacity(names.len());
        for name in names {
            let at = self.interfaces.iter().position(|open| open.facts.name == name).or_else(|| {
                self.interfaces.push(OpenInterface::new(&self.root, name)?);
                Some(self.interfaces.len() - 1)
            });
            let Some(at) = at else { continue };
            match self.interfaces[at].read(&self.root) {
                Some(interface) => interfaces.push(interface),
                None => drop(self.interfaces.swap_remove(at)),
            }
        }
        interfaces
    }
}

/// The ports of all RDMA devices.
fn devices(root: &Root) -> Vec<(String, u32)> {
    let ports = |device: &String| root.list(&format!("/sys/class/infiniband/{device}/ports"));
    let devices = root.list("/sys/class/infiniband").into_iter();
    devices
        .flat_map(|device| ports(&device).into_iter().map(move |port| (device.clone(), port)))
        .filter_map(|(device, port)| Some((device, port.parse().ok()?)))
        .collect()
}

#[derive(Debug)]
struct OpenPort {
    facts: Port,
    folder: String,
    state: Reread,
    physical_state: Reread,
    counters: OpenCounters,
    age: u32,
}

impl OpenPort {
    fn new(root: &Root, device: String, port: u32) -> Option<Self> {
        let folder = format!("/sys/class/infiniband/{device}/ports/{port}");
        let counters = OpenCounters::of_folders(root, &[format!("{folder}/counters"), format!("{folder}/hw_counters")]);
        let file = |name: &str| Reread::open(root, &format!("{folder}/{name}")).ok();
        let (state, physical_state) = (file("state")?, file("phys_state")?);
        let facts = Port { device, port, ..Port::default() };
        Some(OpenPort { facts, folder, state, physical_state, counters, age: 0 })
    }

    fn is(&self, device: &str, port: u32) -> bool {
        self.facts.device == device && self.facts.port == port
    }

    fn read(&mut self, root: &Root) -> Option<Port> {
        let state = without_number(&self.state.text());
        if state != self.facts.state || self.age.is_multiple_of(FACTS_EVERY) {
            self.read_facts(root);
        }
        self.age = self.age.wrapping_add(1);
        self.facts.state = state;
        self.facts.physical_state = without_number(&self.physical_state.text());
        Some(Port { counters: self.counters.read().ok()?, ..self.facts.clone() })
    }

    fn read_facts(&mut self, root: &Root) {
        let value = |name: &str| root.value(&format!("{}/{name}", self.folder));
        // `100 Gb/sec (4X EDR)`.
        self.facts.rate_gbit_s = value("rate").and_then(|rate| rate.split(' ').next()?.parse().ok());
        self.facts.link_layer = value("link_layer").unwrap_or_default();
        self.facts.interface = value("gid_attrs/ndevs/0").or_else(|| {
            let mut below = root.list(&format!("/sys/class/infiniband/{}/device/net", self.facts.device));
            (self.facts.link_layer == "Ethernet" && below.len() == 1).then(|| below.remove(0))
        });
    }
}

/// `4: ACTIVE` is ACTIVE.
fn without_number(state: &str) -> String {
    state.split_once(": ").map_or(state, |(_, name)| name).to_owned()
}

#[derive(Debug)]
struct OpenInterface {
    facts: Interface,
    state: Reread,
    counters: OpenCounters,
    driver: Option<Driver>,
    age: u32,
}

impl OpenInterface {
    /// None for what is no interface, such as the file `bonding_masters`.
    fn new(root: &Root, name: String) -> Option<Self> {
        let folder = format!("/sys/class/net/{name}");
        let state = Reread::open(root, &format!("{folder}/operstate")).ok()?;
        let statistics = format!("{folder}/statistics");
        let counted = root.list(&statistics).into_iter().map(|name| (format!("{statistics}/{name}"), name));
        let flaps =
            ["carrier_up_count", "carrier_down_count"].map(|name| (format!("{folder}/{name}"), name.to_owned()));
        let counters = OpenCounters::of_files(root, counted.chain(flaps));
        let facts = Interface { name, ..Interface::default() };
        Some(OpenInterface { facts, state, counters, driver: None, age: 0 })
    }

    fn read(&mut self, root: &Root) -> Option<Interface> {
        let state = self.state.text();
        if state != self.facts.state || self.age.is_multiple_of(FACTS_EVERY) {
            self.read_facts(root);
        }
        self.age = self.age.wrapping_add(1);
        self.facts.state = state;
        let driver = self.driver.as_mut().and_then(Driver::read);
        if driver.is_none() {
            // Its counters are others now: asked for anew with the facts.
            self.driver = None;
        }
        let driver = driver.unwrap_or_default();
        Some(Interface { counters: self.counters.read().ok()?, driver, ..self.facts.clone() })
    }

    fn read_facts(&mut self, root: &Root) {
        let folder = format!("/sys/class/net/{}", self.facts.name);
        // Mbit/s; -1, or an error, where there is no speed to tell.
        let speed: Option<f64> = root.number(&format!("{folder}/speed"));
        self.facts.rate_gbit_s = speed.filter(|speed| *speed > 0.0).map(|speed| speed / 1000.0);
        self.facts.bond = bond(root, &self.facts.name);
        if self.driver.is_none() && root.is_live() && root.exists(&format!("{folder}/device")) {
            self.driver = Driver::open(&self.facts.name);
        }
    }
}

/// What an interface has to do with a bond.
fn bond(root: &Root, interface: &str) -> Option<Bond> {
    let is_bond = |name: &str| root.exists(&format!("/sys/class/net/{name}/bonding"));
    if is_bond(interface) {
        return Some(Bond::Master);
    }
    let master = root.link_name(&format!("/sys/class/net/{interface}/master"))?;
    is_bond(&master).then_some(Bond::Member(master))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_of_a_container_is_left_out_whenever_it_comes() {
        let folder = tempfile::tempdir().unwrap();
        let add = |name: &str, part: &str| {
            let interface = folder.path().join("sys/class/net").join(name);
            std::fs::create_dir_all(interface.join("statistics")).unwrap();
            std::fs::create_dir_all(interface.join(part)).unwrap();
            std::fs::write(interface.join("operstate"), "up\n").unwrap();
            std::fs::write(interface.join("statistics/tx_bytes"), "7\n").unwrap();
        };
        let mut sampler = Sampler::new(Root::captured(folder.path()).unwrap(), Devices::Usual);
        let mut names = || sampler.sample().interfaces.into_iter().map(|one| one.name).collect::<Vec<_>>();
        add("eth0", "device");
        assert_eq!(names(), ["eth0"]);
        add("veth1", "brport");
        add("eth1", "device");
        assert_eq!(names(), ["eth0", "eth1"]);
    }
}
