//! Which GPUs and machines these are: by name, else by what their links reveal.

use super::Underivable;
use super::host::HostClues;
use super::network;
use crate::cluster::Gpu;
use crate::cluster::NetTransport;
use crate::cluster::facts::LinkKind;
use crate::cluster::hardware::{GpuProduct, HARDWARE, MachineProduct};
use crate::cluster::words::Words;
use busbw_model::Run;

/// Finds the GPU and the machine.
pub(super) fn read(
    run: &Run,
    host: &HostClues,
    gpus: usize,
    notes: &mut Vec<String>,
) -> Result<(Gpu, Option<&'static MachineProduct>), Underivable> {
    let names = names(run);
    let Some(name) = names.first() else { return by_clues(run, host, notes) };
    if names.iter().any(|other| other != name) {
        notes.push(format!("All GPUs are {name}, although others are listed too."));
    }
    let model = HARDWARE.find_gpu(&Words::of(name)).ok_or(Underivable::Gpu)?;
    let named = hints(run).find_map(|hint| HARDWARE.find_machine(&Words::of(&hint), Some(model)));
    if let Some(machine) = named {
        notes.push(format!("The hosts are {}, which NCCL_TOPO_FILE names.", machine.name));
    }
    let machine = named.or_else(|| on_efa(run, model, gpus, notes));
    Ok((Gpu::of(model, name), machine))
}

/// EFA is AWS's, which has few machines with such GPUs.
fn on_efa(run: &Run, model: &GpuProduct, gpus: usize, notes: &mut Vec<String>) -> Option<&'static MachineProduct> {
    let machine = HARDWARE.machine_on(network::transport(run).filter(|t| *t == NetTransport::Efa)?, model, gpus)?;
    notes.push(format!("The hosts are {}, because EFA is AWS's network.", machine.name));
    Some(machine)
}

/// Names of GPUs in device lists and logs; where these have none, what `nvidia-smi` and the like say of the machines, if all have the same.
pub(super) fn names(run: &Run) -> Vec<&str> {
    let listed = run.tables.iter().flat_map(|table| &table.devices).map(|device| device.name.as_str());
    let used = run.nodes.iter().flat_map(|node| &node.gpus).filter_map(|gpu| gpu.name.as_deref());
    let names: Vec<&str> = listed.chain(used).filter(|name| !name.is_empty()).collect();
    if !names.is_empty() {
        return names;
    }
    let mut seen = run.machines.iter().flat_map(|machine| &machine.gpu.devices).map(|gpu| gpu.name.as_str());
    let first = seen.next().filter(|first| HARDWARE.find_gpu(&Words::of(first)).is_some());
    first.filter(|first| seen.all(|name| name == *first)).into_iter().collect()
}

/// The topology file that a cloud's image or plugin sets, without its folder: it often names the machine.
fn hints(run: &Run) -> impl Iterator<Item = String> {
    run.nccl.env_value("NCCL_TOPO_FILE").map(|setting| file_name(&setting.value).to_string()).into_iter()
}

fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// Names of the files that hold topologies.
fn topology_files(run: &Run) -> impl Iterator<Item = &str> {
    let xmls = run.topo_xmls.iter().map(|xml| xml.place);
    let matrices = run.topo_matrices.iter().map(|matrix| matrix.place);
    xmls.chain(matrices).map(|place| run.path(place)).map(file_name)
}

fn by_clues(
    run: &Run,
    host: &HostClues,
    notes: &mut Vec<String>,
) -> Result<(Gpu, Option<&'static MachineProduct>), Underivable> {
    let facts = |model: &'static GpuProduct| Gpu::of(model, &model.name);
    let linked = by_links(host);
    let texts = hints(run).chain(topology_files(run).map(str::to_string));
    for text in texts {
        let words = Words::of(&text);
        let named = HARDWARE.find_gpu(&words);
        let machine = HARDWARE.find_machine(&words, named);
        if let Some(model) = machine.and_then(MachineProduct::gpu).or(named).filter(|model| fits(model, host)) {
            let name = machine.map_or(&model.name, |machine| &machine.name);
            notes.push(format!("The hosts are {name}, by the name of the topology file, {text}."));
            return Ok((facts(model), machine));
        }
    }
    if let Some(model) = host.product {
        notes.push(format!("The GPUs are {}, by the number of their PCI device.", model.name));
        return Ok((facts(model), None));
    }
    if let Some((name, why)) = linked {
        let model = HARDWARE.find_gpu(&Words::of(name)).ok_or(Underivable::Gpu)?;
        notes.push(format!("The GPUs are {}: {why}.", model.name));
        return Ok((facts(model), None));
    }
    let nvls = run.communicators.iter().any(|comm| comm.nvls);
    let model = HARDWARE.find_gpu(&Words::of("H100")).filter(|_| nvls).ok_or(Underivable::Gpu)?;
    notes.push("The GPUs are H100, the first with NVLS, which the log shows.".to_string());
    Ok((facts(model), None))
}

/// Whether a model does not contradict a compute capability.
fn fits(model: &GpuProduct, host: &HostClues) -> bool {
    let named = host.capability.and_then(of_capability).and_then(|(name, _)| HARDWARE.find_gpu(&Words::of(name)));
    named.is_none_or(|named| named.generation == model.generation)
}

/// The usual GPU of a compute capability.
fn of_capability(capability: i32) -> Option<(&'static str, &'static str)> {
    Some(match capability {
        60..=62 => ("P100", "the topology says compute capability 6.x"),
        70..=72 => ("V100", "the topology says compute capability 7.0"),
        75 => ("T4", "the topology says compute capability 7.5"),
        80 => ("A100", "the topology says compute capability 8.0"),
        86 | 87 => ("A10", "the topology says compute capability 8.6"),
        89 => ("L40S", "the topology says compute capability 8.9"),
        90 => ("H100", "the topology says compute capability 9.0"),
        100..=102 => ("B200", "the topology says compute capability 10.0"),
        103..=119 => ("B300", "the topology says compute capability 10.3"),
        120.. => ("RTX PRO 6000", "the topology says compute capability 12.0"),
        _ => return None,
    })
}

/// What compute capability and NVLinks reveal.
fn by_links(host: &HostClues) -> Option<(&'static str, &'static str)> {
    let switched = host.kind == Some(LinkKind::NvSwitch);
    match (host.capability, host.nvlinks) {
        (Some(90), Some(8)) => return Some(("H800", "compute capability 9.0 with 8 NVLinks")),
        (Some(80), Some(8)) => return Some(("A800", "compute capability 8.0 with 8 NVLinks")),
        (Some(80), _) if host.kind == Some(LinkKind::Bridge) => {
            return Some(("A100 PCIe", "compute capability 8.0 with NVLink bridges"));
        }
        (Some(capability), _) => return of_capability(capability),
        (None, _) => {}
    }
    let Some(links) = host.nvlinks else { return by_pcie(host) };
    Some(match (links, switched, host.gpus) {
        (18, true, 4) => ("GB200", "four of them have 18 NVLinks to switches (GB300 has as many)"),
        (18, _, 4) => ("GH200", "four of them are joined by 18 NVLinks each (H100 on boards of four has as many)"),
        (18, _, _) => ("H100", "they have 18 NVLinks (H200, H20 and B200 have as many)"),
        (12, _, 2) => ("A100 PCIe", "two of them are joined by 12 NVLinks"),
        (12, _, _) => ("A100", "they have 12 NVLinks"),
        (8, _, _) => ("H800", "they have 8 NVLinks (A800 has as many)"),
        (4, _, 2) => ("A40", "two of them are joined by 4 NVLinks (RTX A6000, A30 and RTX 3090 have as many)"),
        (3..=6, _, _) => ("V100", "they have up to 6 NVLinks"),
        _ => return None,
    })
}

/// The usual GPU of eight in a host with a PCIe generation. Clouds show their guests other generations than there are.
fn by_pcie(host: &HostClues) -> Option<(&'static str, &'static str)> {
    Some(match host.gpu_pcie.filter(|_| host.gpus >= 8)?.generation {
        3 => ("V100", "eight of them have PCIe 3.0"),
        4 => ("A100", "eight of them have PCIe 4.0"),
        5 => ("H100", "eight of them have PCIe 5.0"),
        _ => return None,
    })
}
