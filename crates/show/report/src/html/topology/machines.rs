//! Hosts with their GPUs and NICs, and the links between these, as SVG.

use super::layout::{Area, Layout};
use super::scene::{HostBox, Scene, Spot};
use super::wiring::NvLinks;
use crate::html::markup::escape;
use crate::style::{clean_line, clip};
use busbw_model::PathType;

/// A rough width of a character of the label font.
const LETTER: f64 = 7.5;
/// Narrower boxes have no label.
const LABELLED: f64 = 15.0;

/// Hosts and the links inside them, which the lines of channels go over.
pub(super) fn frames(scene: &Scene, layout: &Layout) -> String {
    scene.hosts.iter().enumerate().map(|(index, host)| frame(index, host, layout)).collect()
}

/// GPUs and NICs, which hide lines that go through them.
pub(super) fn devices(scene: &Scene, layout: &Layout) -> String {
    let device = |(index, host): (usize, &HostBox)| {
        let gpus: String = (0..host.gpus.len()).map(|gpu| self::gpu(index, host, gpu, layout)).collect();
        let nics: String = (0..host.nics.len()).map(|nic| self::nic(index, host, nic, layout)).collect();
        format!("<g class=\"node {}\">\n{gpus}{nics}</g>\n", color(index))
    };
    scene.hosts.iter().enumerate().map(device).collect()
}

/// The class that colours a host.
pub(super) fn color(host: usize) -> String {
    format!("n{}", host % 4)
}

fn frame(index: usize, host: &HostBox, layout: &Layout) -> String {
    let area = layout.host(index);
    let (x, y) = layout.title(index);
    let about = clean_line(&host.about);
    let shown = clip(&about, ((area.width - 20.0) / LETTER) as usize);
    let frame = format!(
        "<g class=\"node {}\">\n<g><title>{}</title>{}<text x=\"{x:.1}\" y=\"{y:.1}\">{}</text></g>\n",
        color(index),
        escape(&about),
        rectangle("box", area, 10),
        escape(&shown)
    );
    let nvlinks = match host.nvlinks() {
        NvLinks::None => String::new(),
        NvLinks::AllToAll(label) => bar(index, host, label, layout),
        NvLinks::Pairs(pairs) => pairs.iter().map(|pair| nvlink(index, *pair, layout)).collect(),
    };
    [frame, nvlinks, paths(index, host, layout), "</g>\n".into()].concat()
}

/// The links by which all GPUs reach each other: a bar, and a stem to each.
fn bar(index: usize, host: &HostBox, label: &str, layout: &Layout) -> String {
    let area = layout.bar(index);
    let stems = (0..host.gpus.len()).map(|gpu| {
        let port = layout.back(Spot { host: index, gpu });
        let end = if port.up { area.y + area.height } else { area.y };
        format!("<path class=\"nvlink\" d=\"M{:.1},{:.1} V{end:.1}\"/>", port.x, port.y)
    });
    let letters = (area.width / LETTER) as usize;
    let text = if letters < label.chars().count() { "NVLink" } else { label };
    format!(
        "<g><title>{}</title>{}{}<text class=\"tick mid\" x=\"{:.1}\" y=\"{:.1}\">{}</text></g>\n",
        escape(label),
        stems.collect::<String>(),
        rectangle("nvlink", area, 4),
        area.middle(),
        area.y + 12.5,
        escape(text)
    )
}

fn nvlink(index: usize, (a, b, links): (usize, usize, u32), layout: &Layout) -> String {
    let (from, to) = (layout.back(Spot { host: index, gpu: a }), layout.back(Spot { host: index, gpu: b }));
    let rise = 10.0 + (to.x - from.x).abs().min(400.0) * 0.09;
    let y = if from.up { from.y - rise } else { from.y + rise };
    format!(
        "<path class=\"nvlink\" d=\"M{:.1},{:.1} Q{:.1},{y:.1} {:.1},{:.1}\" stroke-width=\"{}\">\
         <title>NVLink between GPU {a} and GPU {b}: {links}</title></path>\n",
        from.x,
        from.y,
        (from.x + to.x) / 2.0,
        to.x,
        to.y,
        1 + links.min(4)
    )
}

/// The PCIe path of each GPU to its nearest NICs.
fn paths(index: usize, host: &HostBox, layout: &Layout) -> String {
    let mut out = String::new();
    for gpu in 0..host.gpus.len() {
        let found = |nic: usize| host.joined(gpu, nic).map(|path| (nic, path));
        let known: Vec<(usize, PathType)> = (0..host.nics.len()).filter_map(found).collect();
        let Some(nearest) = known.iter().map(|(_, path)| *path).min() else { continue };
        for (nic, path) in known.iter().filter(|(_, path)| *path == nearest && *path <= PathType::Phb) {
            let (from, (to, _)) = (layout.front(Spot { host: index, gpu }), layout.nic_ports(index, *nic));
            out.push_str(&format!(
                "<path class=\"pcie {}\" d=\"M{:.1},{:.1} L{:.1},{:.1}\"><title>GPU {gpu} and {}: {path}, {}</title></path>\n",
                if *path <= PathType::Pxb { "near" } else { "host-bridge" },
                from.x,
                from.y,
                to.x,
                to.y,
                escape(&host.nics[*nic].name),
                meaning(*path)
            ));
        }
    }
    out
}

/// What a path crosses, as `nvidia-smi topo -m` explains it.
fn meaning(path: PathType) -> &'static str {
    match path {
        PathType::Same => "the same device",
        PathType::NvLink(_) => "NVLink",
        PathType::Pix => "one PCIe switch",
        PathType::Pxb => "several PCIe switches, not the CPU",
        PathType::Phb => "the host bridge of a CPU",
        PathType::Node => "host bridges of one NUMA node",
        PathType::Sys => "the link between CPUs",
    }
}

fn gpu(index: usize, host: &HostBox, gpu: usize, layout: &Layout) -> String {
    let (area, known) = (layout.gpu(Spot { host: index, gpu }), &host.gpus[gpu]);
    let (label, title) = (&known.label, &known.title);
    let long = known.title.starts_with("rank") && area.width > 62.0;
    let label = if long { format!("rank {label}") } else { label.clone() };
    boxed("gpu", area, &label, title)
}

fn nic(index: usize, host: &HostBox, nic: usize, layout: &Layout) -> String {
    let known = &host.nics[nic];
    boxed("nic", layout.nic(index, nic), &clean_line(&known.name), &known.title)
}

/// A box with a label that fits, and a title.
fn boxed(class: &str, area: Area, label: &str, title: &str) -> String {
    let text = if area.width < LABELLED {
        String::new()
    } else {
        let label = clip(label, ((area.width / LETTER) as usize).max(2));
        let (x, y) = (area.middle(), area.y + area.height / 2.0 + 5.0);
        format!("<text class=\"mid\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(&label))
    };
    format!("<g><title>{}</title>{}{text}</g>\n", escape(title), rectangle(class, area, 5))
}

fn rectangle(class: &str, area: Area, radius: u32) -> String {
    let Area { x, y, width, height } = area;
    format!(
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{radius}\"/>"
    )
}
