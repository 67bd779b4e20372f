//! What tools said of a machine: perftest, RDMA checks and monitors, topology matrices.

use super::page::Page;
use crate::style::clean_line;
use crate::words::counted;
use busbw_model::{
    Bytes, CheckResult, DeviceKind, PathType, PerfRow, PerfTest, RdmaSample, Run, TopoMatrix, XmlTopology,
};

/// At most this many lines of a kind: a monitor may run for days.
const MOST: usize = 8;

/// Sections for everything that is no run of a collective.
pub(super) fn machine(page: &mut Page, run: &Run) {
    if !run.perftests.is_empty() {
        page.heading("Link tests");
        for test in run.perftests.iter().take(MOST) {
            page.indented(2, &perftest(test));
        }
        page.more(run.perftests.len(), MOST);
    }
    if !run.rdma_checks.is_empty() {
        page.heading("RDMA checks");
        checks(page, run);
    }
    if let Some(last) = run.rdma_samples.last() {
        page.heading("RDMA monitor");
        page.indented(2, &monitor(last, run.rdma_samples.len()));
    }
    for matrix in run.topo_matrices.iter().take(MOST) {
        page.heading("Topology");
        page.indented(2, &topology(matrix));
    }
    for xml in run.topo_xmls.iter().take(MOST) {
        page.heading("Topology");
        page.indented(2, &xml_topology(xml));
    }
}

/// Counts of an NCCL topology XML.
fn xml_topology(topology: &XmlTopology) -> String {
    let pcis = topology.all_pcis();
    let gpus = pcis.iter().filter(|pci| pci.is_gpu()).count();
    let nics = pcis.iter().filter(|pci| pci.is_nic()).count();
    let slow = pcis.iter().filter(|pci| pci.link_speed_gts.is_none() || pci.link_width.is_none()).count();
    let devices = counted(pcis.len(), "PCI device");
    let known = if gpus + nics == 0 { devices.clone() } else { gpus_and_nics(gpus, nics) };
    let mut text = format!("NCCL topology XML: {known} on {}", counted(topology.cpus.len(), "NUMA node"));
    if slow > 0 {
        text.push_str(&format!("; {slow} of {devices} without a link speed"));
    }
    text
}

fn gpus_and_nics(gpus: usize, nics: usize) -> String {
    format!("{}, {}", counted(gpus, "GPU"), counted(nics, "NIC"))
}

fn perftest(test: &PerfTest) -> String {
    let mut parts: Vec<String> = vec![clean_line(test.test.as_deref().unwrap_or("perftest")).into_owned()];
    parts.extend(test.device.as_deref().map(|device| format!("on {}", clean_line(device))));
    parts.extend(test.link_type.as_deref().map(|link| format!("({})", clean_line(link))));
    parts.extend(test.queue_pairs.map(|count| counted(count as usize, "QP")));
    parts.extend(test.mtu.map(|mtu| format!("MTU {mtu}")));
    let at = |size: &Option<Bytes>| size.map_or(String::new(), |size| format!(" at {size}"));
    let best = test.rows.iter().filter_map(|row| match row {
        PerfRow::Bandwidth { size, average_gbit_s, .. } => {
            Some((*average_gbit_s, format!("{average_gbit_s:.2} Gbit/s{}", at(size))))
        }
        PerfRow::Latency { .. } => None,
    });
    let fastest = test.rows.iter().find_map(|row| match row {
        PerfRow::Latency { size, typical, average, .. } => {
            typical.or(*average).map(|time| (0.0, format!("{time}{}", at(size))))
        }
        PerfRow::Bandwidth { .. } => None,
    });
    let result = best.max_by(|a, b| a.0.total_cmp(&b.0)).or(fastest).map_or("no result".to_string(), |(_, text)| text);
    format!("{}: {result}", parts.join(" "))
}

fn checks(page: &mut Page, run: &Run) {
    let good = run.rdma_checks.iter().filter(|check| check.result == CheckResult::Ok).count();
    page.indented(2, &format!("{good} of {} ok", run.rdma_checks.len()));
    let bad: Vec<_> = run.rdma_checks.iter().filter(|check| check.result != CheckResult::Ok).collect();
    for check in bad.iter().take(MOST) {
        let result = match &check.result {
            CheckResult::Ok => "ok",
            CheckResult::Warn => "warn",
            CheckResult::Fail => "fail",
            CheckResult::Other(other) => other,
        };
        page.clipped(2, &format!("{result}  {} {}", check.item, check.detail));
    }
    page.more(bad.len(), MOST);
}

/// The rates, and every counter that is not zero.
fn monitor(sample: &RdmaSample, count: usize) -> String {
    let counts = sample.values.iter().filter(|value| value.total != 0.0);
    let values: Vec<String> =
        counts.map(|value| format!("{} {}{}", clean_line(&value.name), value.total, value.unit())).collect();
    let time = sample.time.as_deref().map_or(String::new(), |time| format!("{}: ", clean_line(time)));
    let of = if count > 1 { format!("last of {count} samples, ") } else { String::new() };
    format!("{of}{time}{}", values.join(", "))
}

/// GPUs and NICs, the worst path between GPUs, and the nearest NIC of each GPU in a few words.
fn topology(matrix: &TopoMatrix) -> String {
    let gpus: Vec<&str> = matrix.of_kind(DeviceKind::Gpu).map(|d| d.name.as_str()).collect();
    let nics: Vec<&str> = matrix.of_kind(DeviceKind::Nic).map(|d| d.name.as_str()).collect();
    let pairs = gpus.iter().enumerate().flat_map(|(index, a)| gpus[..index].iter().map(move |b| (*a, *b)));
    let farthest = pairs.filter_map(|(a, b)| matrix.path(a, b)).max();
    let nearest: Vec<PathType> =
        gpus.iter().filter_map(|gpu| nics.iter().filter_map(|nic| matrix.path(gpu, nic)).min()).collect();
    let mut text = gpus_and_nics(gpus.len(), nics.len());
    if let Some(path) = farthest {
        text.push_str(&format!("; GPUs reach each other over {path} at worst"));
    }
    if let (Some(best), Some(worst)) = (nearest.iter().min(), nearest.iter().max()) {
        let range = if best == worst { best.to_string() } else { format!("{best} to {worst}") };
        text.push_str(&format!("; the nearest NIC of a GPU is {range} away"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use busbw_model::{XmlCpu, XmlGpu, XmlPci};

    #[test]
    fn a_gpu_is_one_whatever_its_class() {
        let pci = XmlPci { class: Some("0x120000".into()), gpu: Some(XmlGpu::default()), ..XmlPci::default() };
        let topology =
            XmlTopology { cpus: vec![XmlCpu { pcis: vec![pci], ..XmlCpu::default() }], ..XmlTopology::default() };
        let text = xml_topology(&topology);
        assert!(text.starts_with("NCCL topology XML: 1 GPU, 0 NICs on 1 NUMA node;"), "{text}");
    }
}
