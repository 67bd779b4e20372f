//! The short form: the facts that people publish with a measurement, in their own words.

use super::Gpu;
use super::facts::{CpuFacts, Facts, NetworkFacts, StatedTransport};
use super::hardware::{GpuProduct, HARDWARE, MachineProduct, usual_places};
use super::section::DescriptionError;
use super::section::{Section, Stated};
use super::vocabulary::{self, LinkText};
use super::words::Words;
use super::{NetTransport, environment};
use busbw_model::{Collective, GBps};

/// The keys of the short form; all others are ignored.
pub(super) const KEYS: [&str; 11] = [
    "nodes",
    "gpus_per_node",
    "gpu",
    "intra",
    "nics_per_node",
    "nic_gbps",
    "transport",
    "fabric",
    "nccl",
    "algo_env",
    "collective",
];

/// Reads the short form. Keys that describe the publication (source, note, status …) are ignored.
pub(super) fn read(root: &Section) -> Result<Facts, DescriptionError> {
    let nodes = root.required_count("nodes", "2")?;
    let gpus = root.required_count("gpus_per_node", "8")?;
    let gpu_text = root.required_text("gpu", "\"H100\"")?;
    let intra = optional_text(root, "intra")?;
    let fabric = optional_text(root, "fabric")?;
    let (gpu, machine) = gpu(root, gpu_text, fabric)?;
    check_gpus(root, gpus, gpu, machine)?;
    check_nics(root, gpu.board.max(gpus.value))?;
    let links = vocabulary::links(&LinkText { intra, gpu: gpu_text.value, gpus: gpus.value, model: gpu });
    let mut assumptions = Vec::new();
    let environment = environment::read(optional_text(root, "algo_env")?);
    let network = network(root, fabric, machine, &mut assumptions)?;
    let (nccl, collective) = (environment::nccl_version(optional_text(root, "nccl")?), collective(root)?);
    root.refuse_misspelt()?;
    Ok(Facts {
        nodes: nodes.value,
        gpus_per_node: gpus.value,
        gpu: Gpu::of(gpu, gpu_text.value),
        machine,
        links,
        cpu: CpuFacts { sockets: vocabulary::sockets(intra), ..CpuFacts::default() },
        network,
        fabric: vocabulary::fabric(fabric, nodes.value),
        nccl,
        environment,
        collective,
        gpus_per_process: None,
        assumptions,
    })
}

fn optional_text<'a>(root: &Section<'a>, key: &str) -> Result<&'a str, DescriptionError> {
    Ok(root.text(key, "\"…\"")?.map_or("", |text| text.value))
}

/// The GPU model and the machine that the texts name.
fn gpu(
    root: &Section,
    gpu: Stated<&str>,
    fabric: &str,
) -> Result<(&'static GpuProduct, Option<&'static MachineProduct>), DescriptionError> {
    let words = Words::of(gpu.value);
    let model = HARDWARE.find_gpu(&words);
    let machine = HARDWARE.find_machine(&words, model).or_else(|| HARDWARE.find_machine(&Words::of(fabric), model));
    let known = model.or_else(|| machine.and_then(MachineProduct::gpu)).ok_or_else(|| {
        let remedy = "write a name such as \"H100\", or use the full form, where [gpu] has generation";
        root.error(gpu.at, format!("gpu = \"{}\" names no GPU that busbw knows", gpu.value), remedy)
    })?;
    Ok((known, machine))
}

fn check_gpus(
    root: &Section,
    gpus: Stated<usize>,
    model: &GpuProduct,
    machine: Option<&MachineProduct>,
) -> Result<(), DescriptionError> {
    let (name, most) = match machine {
        Some(machine) => (&machine.name, machine.gpus.max(model.domain.unwrap_or(0))),
        None => (&model.name, model.most_gpus()),
    };
    if gpus.value <= most {
        return Ok(());
    }
    let message = format!("gpus_per_node = {}, but {name} means {most} GPUs at most", gpus.value);
    Err(root.error(gpus.at, message, format!("write gpus_per_node = {most} or less, and more nodes")))
}

fn check_nics(root: &Section, gpus: usize) -> Result<(), DescriptionError> {
    let most = usual_places(gpus);
    match root.count("nics_per_node", "8")?.filter(|count| count.value > most) {
        Some(count) => {
            let message = format!("nics_per_node = {}, but such a host has {most} PCIe places for NICs", count.value);
            Err(root.error(count.at, message, format!("write nics_per_node = {most} or less")))
        }
        None => Ok(()),
    }
}

fn network(
    root: &Section,
    fabric: &str,
    machine: Option<&MachineProduct>,
    assumptions: &mut Vec<String>,
) -> Result<NetworkFacts, DescriptionError> {
    let count = root.count("nics_per_node", "8")?;
    let gbps = root.number("nic_gbps", "400")?;
    let transport = transport(root, fabric, machine, assumptions)?;
    if let StatedTransport::Is(_) = transport {
        for (key, zero) in [("nics_per_node", count.filter(|c| c.value == 0).map(|c| c.at)), ("nic_gbps", zero(gbps))] {
            if let Some(at) = zero {
                let remedy = format!("write the real {key}, or transport = \"none\"");
                return Err(root.error(at, format!("{key} = 0, but transport names a network"), remedy));
            }
        }
    }
    if let Some(negative) = gbps.filter(|gbps| gbps.value < 0.0) {
        let message = format!("nic_gbps = {} is negative", negative.value);
        return Err(root.error(
            negative.at,
            message,
            "write the rate of one NIC in Gbit/s, for example nic_gbps = 400",
        ));
    }
    Ok(NetworkFacts {
        transport,
        count: count.map(|count| count.value).filter(|count| *count > 0),
        count_by_rings: false,
        rate: gbps.filter(|gbps| gbps.value > 0.0).map(|gbps| GBps(gbps.value / 8.0)),
        place: vocabulary::nic_place(fabric),
        flow_limit: None,
        gpu_direct: None,
        pcie: None,
    })
}

fn zero(gbps: Option<Stated<f64>>) -> Option<usize> {
    gbps.filter(|gbps| gbps.value == 0.0).map(|gbps| gbps.at)
}

fn transport(
    root: &Section,
    fabric: &str,
    machine: Option<&MachineProduct>,
    assumptions: &mut Vec<String>,
) -> Result<StatedTransport, DescriptionError> {
    let Some(stated) = root.text("transport", "\"ib\"")? else { return Ok(StatedTransport::Unknown) };
    let hints = Words::of(&format!("{fabric} {}", optional_text(root, "algo_env")?));
    Ok(match stated.value.to_ascii_lowercase().as_str() {
        "" => StatedTransport::Unknown,
        "none" => StatedTransport::None,
        "ib" | "infiniband" => StatedTransport::Is(NetTransport::InfiniBand),
        "roce" => StatedTransport::Is(NetTransport::Roce),
        "efa" => StatedTransport::Is(NetTransport::Efa),
        "tcp" => StatedTransport::Is(vocabulary::tcp(&hints, machine, assumptions)),
        "other" => StatedTransport::Is(vocabulary::other(&hints, assumptions)),
        _ => {
            let message = format!("transport = \"{}\" is not known", stated.value);
            return Err(root.error(stated.at, message, "write one of ib, roce, efa, tcp, none, other"));
        }
    })
}

fn collective(root: &Section) -> Result<Option<Collective>, DescriptionError> {
    let Some(name) = root.text("collective", "\"all_reduce\"")?.filter(|name| !name.value.is_empty()) else {
        return Ok(None);
    };
    let unknown = || {
        let names: Vec<&str> = Collective::ALL.iter().map(|collective| collective.name()).collect();
        let message = format!("collective = \"{}\" is no collective", name.value);
        root.error(name.at, message, format!("write one of {}", names.join(", ")))
    };
    Collective::from_name(name.value).map(Some).ok_or_else(unknown)
}
