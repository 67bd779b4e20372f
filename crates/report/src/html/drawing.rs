//! The nodes as a picture: two rows of nodes, their GPUs towards the middle, an arrow per rank pair that crosses.

use super::markup::escape;
use crate::style::clip;
use crate::words;
use busbw_model::{Communicator, Crossing, Run};
use std::collections::BTreeMap;

/// What stays legible.
const MAX_NODES: usize = 4;
const MAX_RANKS: usize = 64;
/// More arrows than this have no label.
const MAX_LABELS: usize = 16;

const WIDTH: f64 = 1000.0;
const NODE_HEIGHT: f64 = 104.0;
const MIDDLE: f64 = 230.0;
const GAP: f64 = 16.0;
const GPU_HEIGHT: f64 = 40.0;
const PADDING: f64 = 12.0;
/// A rough width of a character of the label font.
const LETTER: f64 = 7.5;

/// A node's place.
struct NodeBox {
    node: u32,
    ranks: Vec<u32>,
    x: f64,
    width: f64,
    upper: bool,
}

/// A rank's GPU: the middle of the edge at which arrows begin and end.
#[derive(Clone, Copy)]
struct Gpu {
    x: f64,
    width: f64,
    upper: bool,
    /// Which of the nodes, for the colour.
    color: usize,
}

/// The picture, for 2 to 4 nodes and 64 ranks at most.
pub(super) fn drawing(run: &Run, comm: &Communicator, crossings: &[Crossing]) -> Option<String> {
    let boxes = place(comm)?;
    let mut gpus: BTreeMap<u32, Gpu> = BTreeMap::new();
    for (color, node) in boxes.iter().enumerate() {
        for (index, rank) in node.ranks.iter().enumerate() {
            let width = (node.width - 2.0 * PADDING) / node.ranks.len() as f64;
            let x = node.x + PADDING + (index as f64 + 0.5) * width;
            gpus.insert(*rank, Gpu { x, width, upper: node.upper, color });
        }
    }
    let height = 2.0 * NODE_HEIGHT + MIDDLE;
    let nodes: String = boxes.iter().enumerate().map(|(color, node)| node_box(run, node, color, &gpus)).collect();
    let labels = crossings.len() <= MAX_LABELS;
    let arrows: String = crossings.iter().filter_map(|crossing| arrow(run, comm, crossing, &gpus, labels)).collect();
    let tips: String = (0..boxes.len()).map(tip).collect();
    Some(format!(
        "<svg class=\"nodes\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"{} rank pairs between {} nodes\">\n<defs>{tips}</defs>\n{nodes}{arrows}</svg>\n\
         <p class=\"muted\">Each arrow is a rank pair in its sender's colour; its width{} says how many channels use it.</p>\n",
        crossings.len(),
        boxes.len(),
        if labels { " (and number)" } else { "" },
    ))
}

/// Nodes by their ranks, in two rows; `None` when they are too many or their ranks are not known.
fn place(comm: &Communicator) -> Option<Vec<NodeBox>> {
    let mut ranks: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for rank in comm.ranks.keys() {
        ranks.entry(comm.node_of(*rank)?).or_default().push(*rank);
    }
    if ranks.len() < 2 || ranks.len() > MAX_NODES || comm.ranks.len() > MAX_RANKS {
        return None;
    }
    let in_upper = ranks.len().div_ceil(2);
    let total = ranks.len();
    let boxes = ranks.into_iter().enumerate().map(|(index, (node, ranks))| {
        let upper = index < in_upper;
        let (column, columns) = if upper { (index, in_upper) } else { (index - in_upper, total - in_upper) };
        let width = (WIDTH - GAP * (columns as f64 - 1.0)) / columns as f64;
        NodeBox { node, ranks, x: column as f64 * (width + GAP), width, upper }
    });
    Some(boxes.collect())
}

fn node_box(run: &Run, node: &NodeBox, color: usize, gpus: &BTreeMap<u32, Gpu>) -> String {
    let (x, width) = (node.x + 1.0, node.width - 2.0);
    let top = if node.upper { 1.0 } else { NODE_HEIGHT + MIDDLE };
    let (title, strip) = if node.upper {
        (top + 30.0, top + NODE_HEIGHT - GPU_HEIGHT - PADDING)
    } else {
        (top + NODE_HEIGHT - 18.0, top + PADDING)
    };
    let model = run.nodes.get(node.node as usize);
    let about = [model.map(words::gpus), model.map(words::nics)];
    let about: Vec<String> = about.into_iter().flatten().filter(|text| !text.is_empty()).collect();
    let about = format!("{} · {}", words::host(run, node.node), about.join(" · "));
    let about = clip(about.trim_end_matches(" · "), (width / LETTER) as usize).into_owned();
    let mut out = format!(
        "<g class=\"node n{color}\">\n<rect class=\"box\" x=\"{x:.1}\" y=\"{top}\" width=\"{width:.1}\" \
         height=\"{:.1}\" rx=\"10\"/>\n<text x=\"{:.1}\" y=\"{title}\">{}</text>\n",
        NODE_HEIGHT - 2.0,
        x + PADDING,
        escape(&about)
    );
    for rank in &node.ranks {
        if let Some(gpu) = gpus.get(rank) {
            out.push_str(&gpu_box(run, node.node, *rank, gpu, strip));
        }
    }
    out + "</g>\n"
}

fn gpu_box(run: &Run, node: u32, rank: u32, gpu: &Gpu, top: f64) -> String {
    let gap = (gpu.width * 0.08).min(6.0);
    let (left, width) = (gpu.x - gpu.width / 2.0 + gap / 2.0, gpu.width - gap);
    let known = run.nodes.get(node as usize).and_then(|node| node.gpus.iter().find(|g| g.rank == Some(rank)));
    let details = known.map(|g| {
        let device = g.device.map(|device| format!(", device {device}")).unwrap_or_default();
        let bus_id = g.bus_id.as_deref().map(|id| format!(", {id}")).unwrap_or_default();
        format!("{device}{bus_id}")
    });
    let label = if width > 56.0 { format!("rank {rank}") } else { rank.to_string() };
    format!(
        "<g><title>rank {rank}{}</title><rect class=\"gpu\" x=\"{left:.1}\" y=\"{top}\" width=\"{width:.1}\" \
         height=\"{GPU_HEIGHT}\" rx=\"5\"/><text class=\"mid\" x=\"{:.1}\" y=\"{}\">{label}</text></g>\n",
        escape(&details.unwrap_or_default()),
        gpu.x,
        top + 25.0
    )
}

/// An arrow in the sender's colour, from GPU to GPU through the middle.
fn arrow(
    run: &Run,
    comm: &Communicator,
    crossing: &Crossing,
    gpus: &BTreeMap<u32, Gpu>,
    label: bool,
) -> Option<String> {
    let (from, to) = (gpus.get(&crossing.from)?, gpus.get(&crossing.to)?);
    let edge = |upper: bool| if upper { NODE_HEIGHT - PADDING + 2.0 } else { NODE_HEIGHT + MIDDLE + PADDING - 2.0 };
    // Arrows leave on the left of a GPU and arrive on its right, so that two directions do not cover each other.
    let (x1, y1) = (from.x - from.width * 0.18, edge(from.upper));
    let (x2, y2) = (to.x + to.width * 0.18, edge(to.upper));
    let bend = |upper: bool, y: f64| if upper { y + MIDDLE * 0.62 } else { y - MIDDLE * 0.62 };
    let (b1, b2) = (bend(from.upper, y1), bend(to.upper, y2));
    let channels = crossing.channels.len();
    let title = format!(
        "{} rank {} to {} rank {}: channels {}",
        words::host_of(run, comm, crossing.from),
        crossing.from,
        words::host_of(run, comm, crossing.to),
        crossing.to,
        words::channel_ids(&crossing.channels)
    );
    let width = 1.0 + channels.min(10) as f64 * 0.4;
    let color = from.color;
    let mut out = format!(
        "<path class=\"arrow n{color}\" d=\"M{x1:.1},{y1:.1} C{x1:.1},{b1:.1} {x2:.1},{b2:.1} {x2:.1},{y2:.1}\" \
         stroke-width=\"{width:.1}\" marker-end=\"url(#tip{color})\"><title>{}</title></path>\n",
        escape(&title)
    );
    if label {
        let y = if from.upper { y1 + 26.0 } else { y1 - 18.0 };
        out.push_str(&format!(
            "<text class=\"count n{color}\" x=\"{:.1}\" y=\"{y:.1}\">{channels} ch</text>\n",
            x1 - 6.0
        ));
    }
    Some(out)
}

fn tip(color: usize) -> String {
    format!(
        "<marker id=\"tip{color}\" class=\"n{color}\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"12\" \
         markerHeight=\"12\" markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0,0 L10,5 L0,10 z\"/></marker>"
    )
}
