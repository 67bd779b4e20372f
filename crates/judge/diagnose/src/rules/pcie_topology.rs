//! PCIe links as NCCL sees them: virtual machines that hide them, and links below what their siblings have.

use super::found;
use crate::case::Case;
use crate::curve::median;
use crate::words::listed;
use busbw_model::{
    DeviceKind, Evidence, Finding, PathType, SourceLine, SystemDump, SystemNode, TopoDevice, TopoMatrix, XmlPci,
    XmlTopology,
};

/// NCCL's figure for a link of 2.5 GT/s x1, GB/s, and a little more: what virtual machines show (`src/graph/topo.cc`).
const HIDDEN_GBS: f64 = 0.5;

/// GPUs that a finding names at most.
const MOST_NAMED: usize = 4;

/// Virtual topologies and degraded links in NCCL's dump, its graph search, and topology XMLs.
pub fn rule(case: &Case) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(hidden(case).or_else(|| without_numa(case)));
    findings.extend(case.run.topo_xmls.iter().find_map(|xml| degraded_xml(case, xml)));
    findings.extend(case.run.system_dumps.iter().find_map(|dump| degraded_dump(case, dump)));
    findings
}

fn hidden(case: &Case) -> Option<Finding> {
    let run = case.run;
    let pattern = run.nccl.patterns.iter().find(|p| {
        let slow = |bw: Option<f64>| bw.is_some_and(|bw| bw > 0.0 && bw <= HIDDEN_GBS);
        slow(p.bw_intra) || slow(p.bw_inter)
    });
    let is_hidden =
        |node: &&SystemNode| node.link == "PCI" && node.bw_gbs.is_some_and(|bw| bw > 0.0 && bw <= HIDDEN_GBS);
    let dump = run.system_dumps.iter().find(|dump| dump.nodes.iter().any(|n| is_hidden(&n)));
    let xml = run.topo_xmls.iter().find(|xml| {
        let pcis = xml.all_pcis();
        let slow = |pci: &&&XmlPci| pci.link_speed_gts == Some(2.5) && pci.link_width.unwrap_or(0) <= 1;
        let bridges: Vec<&&XmlPci> = pcis.iter().filter(|p| !p.children.is_empty()).collect();
        let silent =
            !bridges.is_empty() && bridges.iter().all(|p| p.link_speed_gts.is_none() && p.link_width.is_none());
        pcis.iter().any(|pci| slow(&pci)) || silent
    });
    let source = pattern
        .map(|p| p.source.clone())
        .or_else(|| dump.map(|d| line_of(case, d.place)))
        .or_else(|| xml.map(|x| line_of(case, x.place)))?;
    Some(found("topo.hidden", &[], vec![Evidence::noted(source, "no real link")]))
}

/// `nvidia-smi topo -m` names several NUMA nodes for every GPU: no host bridge says whose it is. Virtual machines show that,
/// and so do real ones whose firmware tells no distances, so it is a note.
fn without_numa(case: &Case) -> Option<Finding> {
    let names_several =
        |device: &&TopoDevice| device.numa_affinity.as_ref().is_some_and(|nodes| nodes.contains(['-', ',']));
    let matrix = case.run.topo_matrices.iter().find(|matrix| {
        let mut gpus = matrix.of_kind(DeviceKind::Gpu).peekable();
        gpus.peek().is_some() && gpus.all(|gpu| names_several(&gpu))
    })?;
    let shown = Evidence::noted(case.line_of(matrix), "`NUMA Affinity` names several nodes for every GPU");
    Some(found("topo.no-numa", &[], vec![shown]))
}

/// GPUs that reach all others over fewer NVLinks than these reach each other, or over none.
pub fn apart(case: &Case) -> Vec<Finding> {
    case.run.topo_matrices.iter().find_map(|matrix| apart_in(case, matrix)).into_iter().collect()
}

fn apart_in(case: &Case, matrix: &TopoMatrix) -> Option<Finding> {
    let gpus: Vec<&str> = matrix.of_kind(DeviceKind::Gpu).map(|gpu| gpu.name.as_str()).collect();
    let paths = |of: &str, among: &[&str]| -> Vec<PathType> {
        among.iter().filter(|other| **other != of).filter_map(|other| matrix.path(of, other)).collect()
    };
    let links = |path: &PathType| if let PathType::NvLink(links) = path { Some(*links) } else { None };
    let usual = PathType::NvLink(gpus.iter().flat_map(|gpu| paths(gpu, &gpus)).filter_map(|path| links(&path)).max()?);
    let (board, odd): (Vec<&str>, Vec<&str>) = gpus.iter().copied().partition(|gpu| paths(gpu, &gpus).contains(&usual));
    let is_joined = board.iter().all(|gpu| paths(gpu, &board).iter().all(|path| *path == usual));
    // Bridges join two. Boards have 4, 8 or 16 GPUs: beside a whole one, another without NVLink is no part of it, as the display card of a DGX Station.
    let is_alone = |gpu: &&str| paths(gpu, &gpus).iter().all(|path| links(path).is_none());
    let is_whole = board.len().is_power_of_two() && !gpus.len().is_power_of_two() && odd.iter().all(is_alone);
    if board.len() < 3 || board.len() <= odd.len() || !is_joined || is_whole {
        return None;
    }
    let path = paths(odd.first()?, &gpus).first().copied()?;
    let gpus = listed(odd.iter(), MOST_NAMED);
    let reach = if odd.len() == 1 { "reaches" } else { "reach" };
    let words: [(&str, &dyn std::fmt::Display); 4] =
        [("gpu", &gpus), ("reach", &reach), ("path", &path), ("usual", &usual)];
    Some(found("topo.apart", &words, vec![Evidence::noted(case.line_of(matrix), "the matrix")]))
}

fn line_of(case: &Case, place: busbw_model::Place) -> SourceLine {
    case.run.line(place).unwrap_or(SourceLine { place, text: "".into() })
}

/// GPUs or NICs whose link is narrower or slower than that of others of their kind.
fn degraded_xml(case: &Case, xml: &XmlTopology) -> Option<Finding> {
    let rate = |pci: &XmlPci| Some(pci.link_speed_gts? * f64::from(pci.link_width?));
    let pcis = xml.all_pcis();
    let of = |is: fn(&XmlPci) -> bool| -> Vec<(String, f64)> {
        pcis.iter().filter(|p| is(p)).filter_map(|p| Some((p.bus_id.clone(), rate(p)?))).collect()
    };
    let (gpus, nics) = (of(|p| p.gpu.is_some()), of(|p| p.nics.iter().any(|n| !n.nets.is_empty())));
    let (bus_id, what) = odd(&gpus).map(|id| (id, "GPU")).or_else(|| odd(&nics).map(|id| (id, "NIC")))?;
    Some(degraded(line_of(case, xml.place), &format!("the {what} at {bus_id}")))
}

fn degraded_dump(case: &Case, dump: &SystemDump) -> Option<Finding> {
    let of = |kind: &str| -> Vec<(String, f64)> {
        let links = dump.nodes.iter().filter(|n| n.link == "PCI" && n.device.starts_with(kind));
        links.filter_map(|n| Some((n.device.clone(), n.bw_gbs?))).collect()
    };
    let device = odd(&of("GPU/")).or_else(|| odd(&of("NIC/")))?;
    Some(degraded(line_of(case, dump.place), &device))
}

/// The one that has at most 60% of what most of its kind have.
fn odd(devices: &[(String, f64)]) -> Option<String> {
    let usual = median(devices.iter().map(|(_, rate)| *rate).collect()).filter(|_| devices.len() >= 3)?;
    devices.iter().find(|(_, rate)| *rate > HIDDEN_GBS && *rate <= 0.6 * usual).map(|(name, _)| name.clone())
}

fn degraded(source: SourceLine, what: &str) -> Finding {
    found("pcie.sibling", &[("what", &what)], vec![Evidence::noted(source, "the topology")])
}

#[cfg(test)]
mod tests {
    use super::*;
    use busbw_model::{Code, Severity};

    #[test]
    fn gpus_without_a_numa_node_are_noted() {
        let machines = [
            (include_str!("../../../../read/ingest/tests/data/smi_topo/aws-g5.48xlarge-smi-topo.txt"), true),
            (include_str!("../../../../read/ingest/tests/data/smi_topo/aws-p3.16xlarge-smi-topo.txt"), true),
            (include_str!("../../../../read/ingest/tests/data/smi_topo/aws-p4de.24xlarge-smi-topo.txt"), false),
            (include_str!("../../../../read/ingest/tests/data/smi_topo/2080ti-x2-pix-smi-topo.txt"), false),
            (include_str!("../../../../read/ingest/tests/data/smi_topo/azure-gb300-smi-topo.txt"), false),
            (include_str!("../../../../read/ingest/tests/data/smi_topo/oci-gb200-v3-smi-topo.txt"), false),
        ];
        for (text, is_virtual) in machines {
            let run = busbw_ingest::read_bytes(&[("topo.txt", text.as_bytes())]).expect("text");
            let found = rule(&Case::new(&run));
            assert_eq!(found.iter().any(|f| f.code == Code::TopoVirtualized), is_virtual, "{text}");
            assert!(found.iter().all(|f| f.severity == Severity::Info), "{text}");
        }
    }
}
