//! Reads the facts of nodes that `busbw check --save` keeps (`busbw.facts/1`), as facts that commands of the system tell.

use crate::host::capitalised;
use crate::json_objects::{JsonObject, Lines};
use busbw_model::node::{
    Bound, FACTS_SCHEMA, FactsFile, GidKind, GpuFacts, Known, Limits, LinuxLimit, PciFunction, RdmaDevice, RdmaPort,
};
use busbw_model::{Fact, HostFact, HostTool, Limit, NodeFacts, PcieLink, SourceLine};

/// Whether an object is such a file.
pub(crate) fn looks_like_facts(value: &serde_json::Value) -> bool {
    value["schema"] == FACTS_SCHEMA
}

/// The facts of an object; none where it is not what its schema says.
pub(crate) fn read(object: &JsonObject) -> Option<Vec<HostFact>> {
    let file: FactsFile = serde_json::from_str(&object.text).ok()?;
    let mut teller = Teller { lines: Lines::of(object), host: String::new(), found: Vec::new() };
    for node in &file.nodes {
        teller.node(node);
    }
    Some(teller.found)
}

/// Walks through the file as its facts are told: members are read in the order written.
struct Teller<'a> {
    lines: Lines<'a>,
    host: String,
    found: Vec<HostFact>,
}

impl Teller<'_> {
    fn node(&mut self, node: &NodeFacts) {
        self.host.clone_from(&node.host);
        self.pass(&node.host);
        self.gpus(&node.gpu, node.is_joined_by_nvlink());
        for xid in node.xids.get().into_iter().flatten() {
            let fact = Fact::Xid { code: xid.code, text: xid.text.clone() };
            self.tell(&xid.pci, "code", format!("Xid {}: {}", xid.code, xid.text), fact);
        }
        if let Some(state) = node.fabric_manager.as_deref().filter(|state| *state != "hidden") {
            let state = if state == "running" { "active" } else { "inactive" };
            let fact = Fact::Service { name: "nvidia-fabricmanager".into(), state: state.into() };
            self.tell("", "fabric_manager", format!("nvidia-fabricmanager is {state}"), fact);
        }
        for device in &node.rdma {
            self.rdma(device);
        }
        for bridge in &node.bridges {
            if let Known::Known(redirects) = bridge.acs_redirects {
                self.pass(&bridge.address);
                let text = format!("access control redirects: {redirects}");
                self.tell(&bridge.address, "acs_redirects", text, Fact::AcsRedirects(redirects));
            }
        }
        for module in node.modules.get().into_iter().flatten() {
            self.tell("", module, format!("module {module} is loaded"), Fact::ModuleLoaded(module.clone()));
        }
        if let Known::Known(limits) = &node.limits {
            self.limits(limits, !node.rdma.is_empty() && !limits.may_lock_all);
        }
        if let Known::Known(memory) = node.shared_memory {
            let text = format!("/dev/shm: {} bytes, {} free", memory.size_bytes, memory.free_bytes);
            let fact = Fact::SharedMemory { size: memory.size_bytes, free: Some(memory.free_bytes) };
            self.tell("", "shared_memory", text, fact);
        }
    }

    fn gpus(&mut self, gpu: &GpuFacts, joined: bool) {
        if let Some(driver) = &gpu.driver {
            self.tell("", "driver", format!("NVIDIA driver {driver}"), Fact::Driver(driver.clone()));
        }
        if let Some(cuda) = &gpu.cuda_driver {
            self.tell("", "cuda_driver", format!("CUDA driver {cuda}"), Fact::CudaDriver(cuda.clone()));
        }
        for device in &gpu.devices {
            let name = format!("GPU {}", device.index);
            self.tell(&name, &quoted(&device.name), device.name.clone(), Fact::GpuName(device.name.clone()));
            // GPUs lower the speed of their link while idle: only lanes tell.
            let lanes = |link: &PcieLink, most: &PcieLink| link.width < most.width;
            self.link(&name, &device.pci, lanes);
            for link in device.nvlinks.iter().filter(|link| joined && !link.active) {
                let fact = Fact::NvLink { link: link.link, rate_gbs: None };
                self.tell(&name, "\"nvlinks\"", format!("NVLink {} is inactive", link.link), fact);
            }
            if let Some(fabric) = &device.fabric {
                let text = format!("NVLink fabric: {}", fabric.state);
                self.tell(&name, "\"fabric\"", text, Fact::FabricState(fabric.state.clone()));
            }
        }
        for peer in &gpu.peers {
            let (from, to) = (format!("GPU {}", peer.from), format!("GPU {}", peer.to));
            let fact = Fact::PeerAccess { to: to.clone(), status: peer.status.clone() };
            self.tell(&from, "\"status\"", format!("reads {to}: {}", peer.status), fact);
        }
    }

    fn rdma(&mut self, device: &RdmaDevice) {
        self.pass(&device.name);
        if let Some(pci) = &device.pci {
            let slower = |link: &PcieLink, most: &PcieLink| link.width < most.width || link.speed_gts < most.speed_gts;
            self.link(&device.name, pci, slower);
        }
        if let Some(firmware) = &device.firmware {
            self.tell(&device.name, "\"firmware\"", format!("firmware {firmware}"), Fact::Firmware(firmware.clone()));
        }
        for port in &device.ports {
            self.port(&format!("{}/{}", device.name, port.port), port);
        }
    }

    fn port(&mut self, name: &str, port: &RdmaPort) {
        let state = capitalised(&port.state);
        self.tell(name, "\"state\"", format!("port state {state}"), Fact::PortState(state));
        if let Some(state) = &port.physical_state {
            let fact = Fact::PhysicalState(state.clone());
            self.tell(name, "\"physical_state\"", format!("physical state {state}"), fact);
        }
        if let Some(layer) = port.link_layer {
            self.tell(name, "\"link_layer\"", format!("link layer {layer:?}"), Fact::LinkLayer(layer));
        }
        // A port that is down tells the rate of no link.
        if let Some(rate) = port.rate_gbps.filter(|_| port.state == "ACTIVE") {
            self.tell(name, "\"rate_gbps\"", format!("rate {rate} Gbit/s"), Fact::RateGbps(rate));
        }
        if let Some(mtu) = port.active_mtu {
            self.tell(name, "\"active_mtu\"", format!("active MTU {mtu}"), Fact::ActiveMtu(mtu));
        }
        if let Some(mtu) = port.max_mtu {
            self.tell(name, "\"max_mtu\"", format!("largest MTU {mtu}"), Fact::MaxMtu(mtu));
        }
        for gid in &port.gids {
            let fact = Fact::Gid {
                index: gid.index,
                gid: gid.gid.clone(),
                ipv4: gid.ipv4().map(|address| address.to_string()),
                roce_version: (gid.kind == GidKind::RoceV2).then_some(2),
                interface: gid.interface.clone(),
            };
            self.tell(name, "\"gid\"", format!("GID {}: {}", gid.index, gid.gid), fact);
        }
    }

    fn link(&mut self, device: &str, pci: &PciFunction, is_less: impl Fn(&PcieLink, &PcieLink) -> bool) {
        let shown = |link: &PcieLink| format!("{} GT/s x{}", link.speed_gts, link.width);
        let Some(mut link) = pci.link else { return };
        link.downgraded = pci.most.is_some_and(|most| is_less(&link, &most));
        self.tell(device, "\"link\"", format!("PCIe link {}", shown(&link)), Fact::PcieLink(link));
        if let Some(most) = pci.most {
            self.tell(device, "\"most\"", format!("PCIe link could be {}", shown(&most)), Fact::PcieCapability(most));
        }
    }

    /// Locked memory is told only where RDMA needs it and the limit binds.
    fn limits(&mut self, limits: &Limits, is_bound: bool) {
        let told = [
            (Limit::LockedMemory, "\"locked_memory\"", limits.locked_memory, is_bound),
            (Limit::OpenFiles, "\"open_files\"", limits.open_files, true),
            (Limit::Processes, "\"processes\"", limits.processes, true),
        ];
        for (limit, key, LinuxLimit { soft, .. }, _) in told.into_iter().filter(|told| told.3) {
            let soft = match soft {
                Bound::Unlimited => None,
                Bound::At(value) => Some(value),
            };
            let shown = soft.map_or("unlimited".to_owned(), |value| value.to_string());
            self.tell("", key, format!("{}: {shown}", key.trim_matches('"')), Fact::Limit { limit, soft });
        }
    }

    /// Goes on to where a name stands.
    fn pass(&mut self, name: &str) {
        self.lines.next(&quoted(name));
    }

    /// A fact, on the line where `words` stand next.
    fn tell(&mut self, device: &str, words: &str, text: String, fact: Fact) {
        let place = self.lines.next(words).place;
        let about: Vec<&str> = [self.host.as_str(), device].into_iter().filter(|word| !word.is_empty()).collect();
        let source = SourceLine::new(place, &format!("{}: {text}", about.join(" ")));
        let host = Some(self.host.clone());
        self.found.push(HostFact { host, device: device.to_owned(), fact, tool: HostTool::BusbwCheck, source });
    }
}

fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}
