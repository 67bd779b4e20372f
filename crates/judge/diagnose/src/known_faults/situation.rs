//! What is known of a job and its machines, as far as known faults depend on it.

use super::printed::Printed;
use super::releases;
use super::table::{Condition, Fault, OneOrMore};
use crate::case::Case;
use crate::data::Template;
use busbw_model::{
    Bytes, Communicator, Component, KnownFact, Library, NodeFacts, PrintedVersion, Speaker, TransportKind, Version,
};
use busbw_predict::cluster::{Generation, product};
use std::collections::{BTreeMap, BTreeSet};

/// Versions in use, and what is known of each condition.
#[derive(Debug, Clone, Default)]
pub struct Situation {
    versions: BTreeMap<Component, BTreeSet<Version>>,
    /// Programs whose version a person states; they did not print it.
    stated: BTreeSet<Component>,
    seen: BTreeMap<Condition, Seen>,
    /// Lines of a run, and frames of stacks.
    printed: Printed,
    /// What a person wrote.
    written: String,
}

/// What is known of one condition.
#[derive(Debug, Clone, Default)]
struct Seen {
    present: BTreeSet<String>,
    absent: BTreeSet<String>,
    /// Nothing else is present.
    all: bool,
}

/// The longest text that counts as what a person wrote: in a long log stands a word of everything.
const LONGEST_WRITTEN: usize = 128 << 10;
/// Lines of NCCL that are no warnings.
const USUAL: [&str; 2] = [" NCCL INFO ", " NCCL TRACE "];
/// What PyTorch alone has.
const OF_TORCH: [&str; 7] =
    ["flight-recorder", "watchdog", "fsdp", "ddp", "compile", "functional-collectives", "elastic"];
/// Fabrics that carry traffic between hosts.
const NETWORKS: [&str; 6] = ["infiniband", "roce", "sockets", "efa", "slingshot", "tcpx"];
/// How aws-ofi-nccl gives its version: `NET/OFI Initializing aws-ofi-nccl 1.13.2-aws` (`src/nccl_ofi_net.cpp`).
const OFI_SAYS: &str = "aws-ofi-nccl ";
/// How it gives the provider that it took (`src/nccl_ofi_net.cpp`).
const PROVIDER: &str = "Selected Provider is ";
/// How PyTorch's errors give NCCL's version: `NCCL error in: …, unhandled system error, NCCL version 2.25.1` (`NCCLUtils.hpp`).
const TORCH_SAYS: &str = ", NCCL version ";

impl Situation {
    pub fn uses(&mut self, component: Component, version: Version) {
        self.versions.entry(component).or_default().insert(version);
    }

    /// Something that is so.
    pub fn tell(&mut self, condition: Condition, value: impl Into<String>) {
        self.seen.entry(condition).or_default().present.insert(value.into());
    }

    /// Something that a user says is so, in the words of the tables. Of what a job has one of, there is no other then.
    pub fn tell_user(&mut self, condition: Condition, value: &str) {
        match condition {
            Condition::Gpu => self.tell_gpu(value),
            Condition::Arch => self.tell_arch(value),
            Condition::Nodes | Condition::Gpus | Condition::Processes => {
                self.tell(condition, value);
                self.tell_all(condition);
            }
            Condition::Size => {
                let bytes = value.parse::<Bytes>().map_or_else(|_| value.to_owned(), |size| size.0.to_string());
                self.tell(condition, bytes);
            }
            _ => self.tell(condition, value),
        }
    }

    /// That only what was told of a condition is so.
    pub fn tell_all(&mut self, condition: Condition) {
        self.seen.entry(condition).or_default().all = true;
    }

    /// Features that the job uses: it uses no others.
    pub fn only_features(&mut self, features: impl IntoIterator<Item = String>) {
        features.into_iter().for_each(|feature| self.tell(Condition::Feature, feature));
        self.tell_all(Condition::Feature);
    }

    /// GPUs by a name that people or machines give them.
    pub fn tell_gpu(&mut self, name: &str) {
        let Some((model, generation)) = product(name) else { return };
        self.tell(Condition::Gpu, model);
        // Several may be sold of one model: MI325X is of MI300X.
        let words = name.split(|c: char| !c.is_ascii_alphanumeric());
        let sold = words.filter(|word| product(word).is_some_and(|(of_word, _)| of_word == model));
        sold.for_each(|word| self.tell(Condition::Gpu, word.to_ascii_uppercase()));
        self.tell(Condition::Gpu, format!("{generation:?}"));
        self.tell_all(Condition::Gpu);
        // The superchips of Grace; all others are sold with either processor.
        if ["GH", "GB"].iter().any(|grace| model.starts_with(grace)) {
            self.tell_arch("aarch64");
        }
        if generation < Generation::Hopper {
            self.without(Condition::Feature, "nvls");
        }
    }

    /// The architecture, by any of its names.
    pub fn tell_arch(&mut self, name: &str) {
        self.tell(Condition::Arch, if name == "arm64" { "aarch64" } else { name });
        self.tell_all(Condition::Arch);
    }

    pub fn tell_nodes(&mut self, nodes: usize) {
        self.tell(Condition::Nodes, if nodes > 1 { "several" } else { "one" });
        self.tell_all(Condition::Nodes);
    }

    /// The networks between hosts: there are no others.
    pub fn tell_networks(&mut self, networks: &[&str]) {
        for network in NETWORKS {
            self.tell_whether(Condition::Fabric, network, networks.contains(&network));
        }
    }

    /// What connects GPUs and hosts. Where a network is among them, there is no other.
    pub fn tell_fabrics(&mut self, fabrics: &[&str]) {
        if fabrics.iter().any(|fabric| NETWORKS.contains(fabric)) {
            self.tell_networks(fabrics);
        }
        fabrics.iter().for_each(|fabric| self.tell(Condition::Fabric, *fabric));
    }

    /// A variable that is set: `NCCL_ALGO=NVLSTree` says which algorithm runs, `NCCL_ALGO=^Tree` only which does not.
    pub(super) fn tell_variable(&mut self, set: &str) {
        match set.split_once('=') {
            Some(("NCCL_ALGO", value)) => self.tell(Condition::Algorithm, algorithm(value)),
            Some(("NCCL_PROTO", value)) => self.tell(Condition::Protocol, protocol(value)),
            _ => {}
        }
        self.tell(Condition::Variable, set);
    }

    pub(super) fn knows(&self, condition: Condition) -> bool {
        self.seen.contains_key(&condition)
    }

    fn without(&mut self, condition: Condition, value: &str) {
        self.seen.entry(condition).or_default().absent.insert(value.to_owned());
    }

    /// Takes as present or absent what a log shows to be one of the two.
    fn tell_whether(&mut self, condition: Condition, value: &str, present: bool) {
        if present { self.tell(condition, value) } else { self.without(condition, value) }
    }

    pub fn versions(&self) -> impl Iterator<Item = (Component, &Version)> {
        self.versions.iter().flat_map(|(component, versions)| versions.iter().map(|version| (*component, version)))
    }

    /// The versions of a component; none where it is not known.
    pub fn of(&self, component: Component) -> Option<&BTreeSet<Version>> {
        self.versions.get(&component)
    }

    /// Whether one of the values of a condition is so; none where that is not known.
    pub fn meets(&self, condition: Condition, wanted: &OneOrMore<String>) -> Option<bool> {
        let seen = self.seen.get(&condition)?;
        let wanted = wanted.all();
        let is = |wanted: &String| seen.present.iter().any(|value| condition.matches(wanted, value));
        // Of other programs' variables NCCL says nothing.
        let told = |wanted: &String| condition != Condition::Variable || wanted.starts_with("NCCL_");
        let is_not = |wanted: &String| seen.absent.contains(wanted) || seen.all && told(wanted);
        match (wanted.iter().any(is), wanted.iter().all(is_not)) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        }
    }

    /// Whether the run has one of some texts.
    pub fn shows(&self, texts: &[Template]) -> bool {
        self.shown(texts) > 0
    }

    /// How many of some texts the run has.
    pub fn shown(&self, texts: &[Template]) -> usize {
        texts.iter().filter(|text| self.printed.has(text)).count()
    }

    /// Whether the run may have a text; quicker than to look.
    pub(super) fn may_show(&self, text: &Template) -> bool {
        self.printed.may_have(text)
    }

    /// Versions that a text states, of what prints none of its own. Of a branch (`2.29`) all releases that the tables name.
    pub fn states(&mut self, stated: Vec<PrintedVersion>, faults: &[Fault]) {
        let printed: BTreeSet<Component> = self.versions.keys().copied().collect();
        for PrintedVersion { component, version } in
            stated.into_iter().filter(|told| !printed.contains(&told.component))
        {
            let of_branch = releases(faults, component).into_iter().filter(|release| release.is_release_of(&version));
            of_branch.for_each(|release| self.uses(component, release.clone()));
            self.uses(component, version);
            self.stated.insert(component);
        }
    }

    /// Whether it is a person who tells the version of a program.
    pub(super) fn is_stated(&self, component: Component) -> bool {
        self.stated.contains(&component)
    }

    /// The lines of a text of any kind, for texts that show what no reader knows.
    pub fn prints(&mut self, text: &str) {
        self.printed.extend(text.lines().map(str::to_owned));
    }

    /// A text of a person, with what programs print of a failure in it: `likeness` looks for what it is about. What NCCL
    /// prints in every run says nothing of that.
    pub fn writes(&mut self, text: &str) {
        let is_usual = |line: &&str| USUAL.iter().any(|level| line.contains(level));
        let told: Vec<&str> = text.lines().filter(|line| !is_usual(line)).collect();
        let told = told.join("\n");
        if told.len() <= LONGEST_WRITTEN {
            self.written.push_str(&told);
            self.written.push('\n');
        }
    }

    /// The texts of people, one behind the other.
    pub fn written(&self) -> &str {
        &self.written
    }

    /// Whether a person wrote a post around what programs print: it has marks of Markdown that no program prints.
    pub(super) fn is_a_post(&self) -> bool {
        self.written.lines().any(|line| line.starts_with("```") || line.starts_with("### "))
    }

    /// What is known, for people.
    pub fn facts(&self) -> Vec<KnownFact> {
        let fact = |what: &str, values: Vec<String>| KnownFact { what: what.to_owned(), values };
        let versions = self
            .versions
            .iter()
            .map(|(component, versions)| fact(component.name(), versions.iter().map(Version::to_string).collect()));
        let seen = self.seen.iter().filter(|(_, seen)| !seen.present.is_empty());
        versions.chain(seen.map(|(key, seen)| fact(key.name(), seen.present.iter().cloned().collect()))).collect()
    }

    /// What one machine tells.
    pub fn of_machine(node: &NodeFacts) -> Self {
        let mut known = Situation::default();
        known.machine(node);
        known.libraries(node);
        known
    }

    /// What a run tells, and the machines among its inputs.
    pub fn of_case(case: &Case) -> Self {
        let frames = case.run.stacks.iter().flat_map(|stack| &stack.frames).map(|frame| frame.text.to_string());
        let mut known = Situation::default();
        known.printed.extend(case.lines.iter().map(|line| line.text.clone()).chain(frames));
        known.log(case);
        for node in &case.run.machines {
            known.machine(node);
        }
        if known.of(Component::Nccl).is_none() && known.of(Component::Rccl).is_none() {
            case.run.machines.iter().for_each(|node| known.libraries(node));
        }
        for comm in &case.run.communicators {
            known.communicator(comm);
        }
        known.networks(case);
        known.tables(case);
        known
    }

    fn machine(&mut self, node: &NodeFacts) {
        let versions = [(Component::Driver, &node.gpu.driver), (Component::Kernel, &node.kernel)];
        for (component, version) in versions {
            let version = version.as_deref().and_then(|version| version.parse().ok());
            version.into_iter().for_each(|version| self.uses(component, version));
        }
        node.arch.iter().for_each(|arch| self.tell_arch(arch));
        node.gpu.devices.iter().for_each(|gpu| self.tell_gpu(&gpu.name));
    }

    /// The NCCL and CUDA that a program of the machine would find first.
    fn libraries(&mut self, node: &NodeFacts) {
        let Some(library) = node.nccl.first() else { return };
        let versions = [(Component::Nccl, &library.version), (Component::Cuda, &library.cuda)];
        for (component, version) in versions {
            let version = version.as_deref().and_then(|version| version.parse().ok());
            version.into_iter().for_each(|version| self.uses(component, version));
        }
    }

    fn log(&mut self, case: &Case) {
        let log = &case.run.nccl;
        for line in &log.versions {
            let library = if line.library == Library::Rccl { Component::Rccl } else { Component::Nccl };
            let cuda = line.cuda.as_deref().filter(|_| library == Component::Nccl).map(|cuda| (Component::Cuda, cuda));
            for (component, version) in [(library, line.version.as_str())].into_iter().chain(cuda) {
                version.parse().into_iter().for_each(|version| self.uses(component, version));
            }
        }
        // What a library says of itself when it runs goes before what is installed.
        for told in &case.run.versions {
            if self.of(told.component).is_none() || told.component != Component::Nccl {
                self.uses(told.component, told.version.clone());
            }
        }
        self.versions_behind(case, OFI_SAYS, Component::OfiPlugin);
        if self.of(Component::Nccl).is_none() && self.of(Component::Rccl).is_none() {
            self.versions_behind(case, TORCH_SAYS, Component::Nccl);
        }
        for set in &log.env {
            self.tell_variable(&format!("{}={}", set.name, set.value.trim()));
        }
        // NCCL prints the variables that it finds as its communicators come up.
        if log.lines > 0 && !case.run.communicators.is_empty() {
            self.tell_all(Condition::Variable);
        }
        for choice in &log.tuning {
            self.tell(Condition::Algorithm, algorithm(&choice.algorithm));
            self.tell(Condition::Protocol, protocol(&choice.protocol));
        }
        for cpu in case.run.topo_xmls.iter().flat_map(|topology| &topology.cpus) {
            cpu.arch.iter().for_each(|arch| self.tell_arch(arch));
        }
        let gpus = case.run.nodes.iter().flat_map(|node| &node.gpus).filter_map(|gpu| gpu.name.as_deref());
        let listed = case.run.tables.iter().flat_map(|table| &table.devices).map(|device| device.name.as_str());
        let gpus: BTreeSet<&str> = gpus.chain(listed).collect();
        gpus.iter().for_each(|name| self.tell_gpu(name));
        if !gpus.is_empty() {
            self.tell_whether(Condition::Differ, "gpu", gpus.len() > 1);
        }
    }

    /// Versions that lines give behind a text.
    fn versions_behind(&mut self, case: &Case, text: &str, component: Component) {
        let behind = case.lines.iter().filter(|line| line.speaker != Speaker::Program);
        for (_, behind) in behind.filter_map(|line| line.text.split_once(text)) {
            let version = behind.split_whitespace().next().unwrap_or_default();
            version.parse().into_iter().for_each(|version| self.uses(component, version));
        }
    }

    fn communicator(&mut self, comm: &Communicator) {
        comm.nnodes.iter().for_each(|nodes| self.tell_nodes(*nodes as usize));
        if let Some(ranks) = comm.nranks {
            self.tell(Condition::Gpus, ranks.to_string());
            self.tell_all(Condition::Gpus);
        }
        let processes: Vec<_> = comm.ranks.values().filter_map(|rank| Some((rank.node?, rank.pid?))).collect();
        let apart: BTreeSet<_> = processes.iter().collect();
        if processes.len() > 1 {
            self.tell(Condition::Processes, if apart.len() < processes.len() { "one" } else { "several" });
            self.tell_all(Condition::Processes);
        }
        if let Some(uneven) = uneven(comm) {
            self.tell_whether(Condition::Differ, "ranks", uneven);
        }
        if comm.came_up() && !comm.transports.is_empty() {
            let any = |of: fn(&busbw_model::Transport) -> bool| comm.transports.iter().any(of);
            self.tell_whether(Condition::Feature, "nvls", comm.nvls);
            self.tell_whether(Condition::Feature, "sharp", comm.collnet);
            self.tell_whether(Condition::Feature, "pxn", any(|t| t.pxn));
            self.tell_whether(Condition::Feature, "gdr", any(|t| t.gdr));
            self.tell_whether(Condition::Feature, "cumem", any(|t| t.via.contains("CUMEM")));
        }
    }

    /// What carries traffic between hosts, and whether NVLink joins the GPUs.
    fn networks(&mut self, case: &Case) {
        let listed = |link: &str| {
            let mut nics = case.run.nodes.iter().flat_map(|node| &node.nics);
            nics.any(|nic| nic.link.as_deref() == Some(link))
        };
        let provider = provider(case);
        let of = |kind: &TransportKind| match kind {
            TransportKind::Net(name) if name.eq_ignore_ascii_case("socket") => Some("sockets"),
            kind if is_of_plugin(kind) == Some(true) => provider,
            TransportKind::Net(name) if name.starts_with("IB") => {
                Some(if listed("RoCE") { "roce" } else { "infiniband" })
            }
            _ => None,
        };
        let transports = || case.run.communicators.iter().flat_map(|comm| &comm.transports);
        // NCCL loads a plugin that it then does not take, where the plugin finds no device.
        let nets: Vec<bool> = transports().filter_map(|transport| is_of_plugin(&transport.kind)).collect();
        if !nets.is_empty() && !nets.contains(&true) {
            self.versions.remove(&Component::OfiPlugin);
        }
        let carried: Vec<&str> = transports().filter_map(|transport| of(&transport.kind)).collect();
        let foreign = transports().any(|t| matches!(t.kind, TransportKind::Net(_)) && of(&t.kind).is_none());
        let alone = case.run.communicators.iter().any(|comm| comm.came_up() && comm.nnodes == Some(1));
        if !foreign && (!carried.is_empty() || alone) {
            self.tell_networks(&carried);
        }
        if case.has_nvlink() {
            self.tell(Condition::Fabric, "nvlink");
        }
    }

    /// What a benchmark did; it does nothing else.
    fn tables(&mut self, case: &Case) {
        for table in &case.run.tables {
            table.collective.iter().for_each(|collective| self.tell(Condition::Collective, collective.name()));
            let sizes = table.rows.iter().map(|row| row.size.0.to_string());
            sizes.for_each(|bytes| self.tell(Condition::Size, bytes));
            let graph = table.settings.graph.map(|launches| launches > 0);
            graph.iter().for_each(|on| self.tell_whether(Condition::Feature, "cuda-graphs", *on));
            let version = table.settings.nccl_tests_version.as_deref().and_then(|version| version.parse().ok());
            version.into_iter().for_each(|version| self.uses(Component::NcclTests, version));
            let nccl = table.settings.nccl_version.as_deref().and_then(|version| version.parse().ok());
            let none_printed = self.of(Component::Nccl).is_none() && self.of(Component::Rccl).is_none();
            nccl.filter(|_| none_printed).into_iter().for_each(|version| self.uses(Component::Nccl, version));
        }
        if !case.run.tables.is_empty() {
            [Condition::Collective, Condition::Size].into_iter().for_each(|key| self.tell_all(key));
            OF_TORCH.into_iter().for_each(|feature| self.without(Condition::Feature, feature));
        }
    }
}

/// Whether nodes have unequal numbers of a communicator's ranks; none where the place of a rank is not known.
fn uneven(comm: &Communicator) -> Option<bool> {
    let mut of_node: BTreeMap<_, usize> = BTreeMap::new();
    for rank in comm.ranks.values() {
        *of_node.entry(rank.node?).or_default() += 1;
    }
    let placed: usize = of_node.values().sum();
    let counts: BTreeSet<usize> = of_node.into_values().collect();
    (comm.nranks? as usize == placed).then_some(counts.len() > 1)
}

/// Whether a network is that of aws-ofi-nccl (`AWS Libfabric`, `Libfabric`, `OFI`); none for what stays within a node.
fn is_of_plugin(kind: &TransportKind) -> Option<bool> {
    match kind {
        TransportKind::Net(name) => Some(name.contains("Libfabric") || name.contains("OFI")),
        _ => None,
    }
}

/// The network below libfabric, as its plugin says: `NET/OFI Selected Provider is cxi (found 4 nics)`.
fn provider(case: &Case) -> Option<&'static str> {
    let named = case.lines.iter().find_map(|line| line.text.split_once(PROVIDER))?.1.split_whitespace().next()?;
    match named.trim_end_matches(';') {
        "efa" => Some("efa"),
        "cxi" => Some("slingshot"),
        name if name.contains("tcp") => Some("sockets"),
        _ => None,
    }
}

impl Condition {
    /// Whether a value that is so is what a table asks for.
    fn matches(self, wanted: &str, value: &str) -> bool {
        let within = |compare: &dyn Fn(&str) -> Option<std::cmp::Ordering>| {
            super::table::Bounds::try_from(wanted.to_owned()).is_ok_and(|bounds| bounds.hold(compare))
        };
        match self {
            Condition::Gpus => within(&|limit| Some(value.parse::<u32>().ok()?.cmp(&limit.parse().ok()?))),
            Condition::Size => within(&|limit| Some(value.parse::<u64>().ok()?.cmp(&limit.parse::<Bytes>().ok()?.0))),
            Condition::Variable if !wanted.contains('=') => {
                value.split_once('=').is_some_and(|(name, _)| name == wanted)
            }
            Condition::Gpu => wanted.eq_ignore_ascii_case(value),
            _ => wanted == value,
        }
    }
}

/// `COLLNET_DIRECT` as tables write it: `CollNetDirect`.
fn algorithm(printed: &str) -> &str {
    let same = |known: &&&str| known.eq_ignore_ascii_case(&printed.replace('_', ""));
    Condition::Algorithm.values().unwrap_or_default().iter().find(same).map_or(printed, |known| known)
}

fn protocol(printed: &str) -> &str {
    let same = |known: &&&str| known.eq_ignore_ascii_case(printed);
    Condition::Protocol.values().unwrap_or_default().iter().find(same).map_or(printed, |known| known)
}
