//! The full form: tables with units, every key checked.

mod ends;
mod explicit;
mod fabric;
mod links;
mod network;

use super::facts::{CpuFacts, Facts};
use super::hardware::{GpuProduct, HARDWARE, MachineProduct};
use super::rate::Unit;
use super::section::DescriptionError;
use super::section::{Section, Stated};
use super::words::Words;
use super::{CpuVendor, Generation, Gpu, environment};
use busbw_model::Collective;
use std::collections::BTreeMap;

/// The tables of the full form.
pub(super) const TABLES: [&str; 8] = ["cluster", "gpu", "node", "links", "cpu", "nic", "fabric", "nccl"];

const GENERATIONS: [(&str, Generation); 8] = [
    ("cdna", Generation::Cdna),
    ("pascal", Generation::Pascal),
    ("volta", Generation::Volta),
    ("turing", Generation::Turing),
    ("ampere", Generation::Ampere),
    ("ada", Generation::Ada),
    ("hopper", Generation::Hopper),
    ("blackwell", Generation::Blackwell),
];

const VENDORS: [(&str, CpuVendor); 4] =
    [("intel", CpuVendor::Intel), ("amd", CpuVendor::Amd), ("arm", CpuVendor::Arm), ("power", CpuVendor::Power)];

/// The hosts: what several tables are checked against.
#[derive(Debug, Clone, Copy)]
struct Hosts {
    nodes: usize,
    gpus: usize,
    /// GPU and machine, where these are known by name.
    model: Option<&'static GpuProduct>,
    machine: Option<&'static MachineProduct>,
    generation: Generation,
}

pub(super) fn read(root: &Section) -> Result<Facts, DescriptionError> {
    let cluster =
        root.section("cluster")?.ok_or_else(|| root.missing("[cluster]", "write [cluster] with nodes = 2"))?;
    cluster.text("name", "\"…\"")?;
    let nodes = cluster.required_count("nodes", "2")?;
    let collective = collective(&cluster)?;
    let node = root.section("node")?;
    let machine = machine(node.as_ref())?;
    let gpu = gpu(root, machine)?;
    let gpus = gpus(root, node.as_ref(), gpu.product, machine)?;
    let hosts = Hosts { nodes: nodes.value, gpus, model: gpu.product, machine, generation: gpu.generation };
    let links = links::read(root, &hosts)?;
    let environment = environment(root)?;
    let network = network::read(root, node.as_ref(), &hosts, &environment.values)?;
    let fabric = fabric::read(root, &hosts, &network)?;
    let facts = Facts {
        nodes: nodes.value,
        gpus_per_node: gpus,
        gpu,
        machine,
        links,
        cpu: cpu(root)?,
        network,
        fabric,
        nccl: environment.version,
        environment: environment.values,
        collective,
        gpus_per_process: None,
        assumptions: Vec::new(),
    };
    cluster.finish()?;
    node.map_or(Ok(()), |node| node.finish())?;
    root.finish()?;
    Ok(facts)
}

fn collective(cluster: &Section) -> Result<Option<Collective>, DescriptionError> {
    let names: Vec<(&str, Collective)> =
        Collective::ALL.iter().map(|collective| (collective.name(), *collective)).collect();
    Ok(cluster.choice("collective", &names)?.map(|collective| collective.value))
}

fn machine(node: Option<&Section>) -> Result<Option<&'static MachineProduct>, DescriptionError> {
    let Some(node) = node else { return Ok(None) };
    let Some(name) = node.text("machine", "\"DGX H100\"")? else { return Ok(None) };
    let unknown = || {
        let message = format!("node.machine = \"{}\" is no machine that busbw knows", name.value);
        node.error(name.at, message, "delete it and describe the machine in [gpu], [links] and [nic]")
    };
    HARDWARE.find_machine(&Words::of(name.value), None).map(Some).ok_or_else(unknown)
}

fn gpu(root: &Section, machine: Option<&'static MachineProduct>) -> Result<Gpu, DescriptionError> {
    let of_machine = machine.and_then(MachineProduct::gpu);
    let Some(section) = root.section("gpu")? else {
        let model = of_machine.ok_or_else(|| root.missing("[gpu]", "write [gpu] with model = \"H100\""))?;
        return Ok(Gpu::of(model, &model.name));
    };
    let name = section.text("model", "\"H100\"")?;
    let generation = section.choice("generation", &GENERATIONS)?;
    section.finish()?;
    let named = name.and_then(|name| HARDWARE.find_gpu(&Words::of(name.value)));
    let model = if name.is_some() { named } else { of_machine };
    if let (Some(machine), Some(model), Some(name)) = (machine, model, name)
        && !machine.holds(model)
    {
        let message = format!("gpu.model = \"{}\", but {} has other GPUs", name.value, machine.name);
        return Err(section.error(name.at, message, "delete gpu.model or node.machine"));
    }
    let stated = check_generation(&section, model, generation)?;
    let Some(generation) = stated.or(model.map(|model| model.generation)) else {
        return Err(unknown_gpu(&section, name));
    };
    let named = name.map(|name| name.value.to_string()).or(model.map(|model| model.name.clone()));
    Ok(Gpu { name: named.unwrap_or_else(|| format!("{generation:?} GPU")), generation, product: model })
}

fn check_generation(
    section: &Section,
    model: Option<&GpuProduct>,
    generation: Option<Stated<Generation>>,
) -> Result<Option<Generation>, DescriptionError> {
    let (Some(model), Some(stated)) = (model, generation) else { return Ok(generation.map(|g| g.value)) };
    if model.generation == stated.value {
        return Ok(Some(stated.value));
    }
    let real = format!("{:?}", model.generation).to_lowercase();
    let message = format!("gpu.generation contradicts gpu.model: {} is {real}", model.name);
    Err(section.error(stated.at, message, format!("delete it, or write generation = \"{real}\"")))
}

fn unknown_gpu(section: &Section, name: Option<Stated<&str>>) -> DescriptionError {
    let remedy = "write a name as nvidia-smi -L shows it, for example model = \"H100\", or add generation = \"hopper\"";
    match name {
        Some(name) => {
            section.error(name.at, format!("gpu.model = \"{}\" is no GPU that busbw knows", name.value), remedy)
        }
        None => section.missing("model", remedy),
    }
}

fn gpus(
    root: &Section,
    node: Option<&Section>,
    model: Option<&GpuProduct>,
    machine: Option<&MachineProduct>,
) -> Result<usize, DescriptionError> {
    let stated = node.map_or(Ok(None), |node| node.at_least_one("gpus", "8"))?;
    let Some(stated) = stated else {
        let missing =
            || node.unwrap_or(root).missing(if node.is_some() { "gpus" } else { "[node]" }, "write gpus = 8 in [node]");
        return machine.map(|machine| machine.gpus).ok_or_else(missing);
    };
    let of_machine = machine.map(|machine| (&machine.name, machine.gpus));
    let most = of_machine.or(model.map(|model| (&model.name, model.most_gpus())));
    if let Some((name, most)) = most.filter(|(_, most)| stated.value > *most) {
        let message = format!("node.gpus = {}, but {name} means {most} GPUs at most", stated.value);
        return Err(root.error(stated.at, message, format!("write gpus = {most} or less, and more nodes")));
    }
    Ok(stated.value)
}

fn cpu(root: &Section) -> Result<CpuFacts, DescriptionError> {
    let Some(section) = root.section("cpu")? else { return Ok(CpuFacts::default()) };
    let facts = CpuFacts {
        vendor: section.choice("vendor", &VENDORS)?.map(|vendor| vendor.value),
        sockets: section.at_least_one("sockets", "2")?.map(|sockets| sockets.value),
        link: section.rate("link", Unit::Bytes)?.map(|link| link.value),
    };
    section.finish()?;
    Ok(facts)
}

/// NCCL's version and variables.
struct Nccl {
    version: Option<(u32, u32)>,
    values: BTreeMap<String, String>,
}

fn environment(root: &Section) -> Result<Nccl, DescriptionError> {
    let Some(section) = root.section("nccl")? else { return Ok(Nccl { version: None, values: BTreeMap::new() }) };
    let version = match section.text("version", "\"2.27\"")? {
        None => None,
        Some(text) => {
            let message = format!("nccl.version = \"{}\" is no version", text.value);
            let wrong = || section.error(text.at, message, "write it as NCCL prints it, for example \"2.27.7\"");
            Some(environment::nccl_version(text.value).ok_or_else(wrong)?)
        }
    };
    let mut values = BTreeMap::new();
    if let Some(env) = section.section("env")? {
        for key in env.keys().map(|key| key.value.to_string()) {
            if let Some(text) = env.plain(&key, "\"1\"")? {
                values.insert(key, text.value);
            }
        }
    }
    section.finish()?;
    Ok(Nccl { version, values })
}
