//! The machines of a run as a picture, with the ring or tree of one channel lit at a time. Which one is chosen with radio
//! buttons, and shown by style alone: no script.

mod channels;
mod layout;
mod machines;
mod scene;
mod wiring;

use super::markup::{escape, picture, section};
use crate::words::{self, counted};
use busbw_model::{Channel, Communicator, Run};
use channels::Lines;
use layout::{Layout, WIDTH};
use scene::Scene;

/// Rings and trees that a page holds at most, as bytes of their lines.
const MAX_LINES: usize = 300_000;
/// Longer rings are not written out below the picture.
const MAX_WRITTEN: usize = 64;

/// The picture of the first communicator that has rings, else of the machines alone; nothing where nothing is known, or
/// more than stays legible.
pub(super) fn topology(run: &Run) -> String {
    let comm = run.communicators.iter().find(|comm| comm.ring_count() > 0).or(run.communicators.first());
    let Some(scene) = Scene::of(run, comm) else { return String::new() };
    let layout = Layout::of(&scene);
    let lit = comm.map(|comm| Highlights::of(run, comm, &scene, &layout)).unwrap_or_default();
    let label = match comm {
        Some(comm) => format!("{}: {}", counted(scene.hosts.len(), "host"), words::communicator(comm).join(", ")),
        None => counted(scene.hosts.len(), "host"),
    };
    let picture = picture(&format!(
        "<svg class=\"nodes\" viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"{}\">\n{}{}{}{}</svg>\n",
        layout.height,
        escape(&label),
        channels::tips(),
        machines::frames(&scene, &layout),
        lit.lines(),
        machines::devices(&scene, &layout)
    ));
    let body = [lit.style(), lit.picker(), picture, lit.captions()].concat();
    section("Topology", &format!("<div class=\"topology\">\n{body}</div>\n"))
}

/// Rings, trees and crossings of which one is lit at a time.
#[derive(Default)]
struct Highlights {
    choices: Vec<Choice>,
    shapes: Vec<Shape>,
    /// Whether there are trees beside rings.
    trees: bool,
    /// Channels that found no room.
    omitted: usize,
}

/// What a radio button stands for.
struct Choice {
    id: String,
    label: String,
    /// Index of the shape of its ring, and of its tree.
    ring: Option<usize>,
    tree: Option<usize>,
}

/// Lines that are lit together, and the words below the picture.
struct Shape {
    lines: String,
    caption: String,
}

impl Highlights {
    fn of(run: &Run, comm: &Communicator, scene: &Scene, layout: &Layout) -> Self {
        let drawing = Lines::of(run, comm, scene, layout);
        let mut lit = Highlights::default();
        let rings = words::distinct_rings(comm);
        let crossings = comm.crossings();
        let arrows = drawing.crossings(&crossings);
        if !arrows.is_empty() {
            let pairs = counted(crossings.len(), "ordered rank pair");
            let caption = format!(
                "<p class=\"muted\">Rings leave a host over {pairs}: an arrow each, in its sender's colour, the wider the \
                 more channels use it.</p>"
            );
            let all = Some(lit.shape(arrows, caption));
            lit.choices.push(Choice {
                id: "every-crossing".into(),
                label: "every crossing".into(),
                ring: all,
                tree: all,
            });
        }
        let mut size = 0;
        for (id, channel) in &comm.channels {
            let ring = channel.ring.as_ref().map(|ring| drawing.ring(*id, ring.pairs())).unwrap_or_default();
            let tree = drawing.tree(*id, comm.tree(*id));
            if ring.is_empty() && tree.is_empty() {
                continue;
            }
            size += ring.len() + tree.len();
            if size > MAX_LINES {
                lit.omitted += 1;
                continue;
            }
            lit.trees |= !tree.is_empty();
            let ring = (!ring.is_empty()).then(|| lit.shape(ring, ring_caption(comm, *id, channel, &rings)));
            let tree = (!tree.is_empty()).then(|| lit.shape(tree, tree_caption(comm, *id)));
            lit.choices.push(Choice { id: format!("channel-{id}"), label: id.to_string(), ring, tree });
        }
        lit
    }

    fn shape(&mut self, lines: String, caption: String) -> usize {
        self.shapes.push(Shape { lines, caption });
        self.shapes.len() - 1
    }

    fn lines(&self) -> String {
        let lines = |(index, shape): (usize, &Shape)| format!("<g class=\"lit l{index}\">\n{}</g>\n", shape.lines);
        self.shapes.iter().enumerate().map(lines).collect()
    }

    fn captions(&self) -> String {
        let caption =
            |(index, shape): (usize, &Shape)| format!("<div class=\"lit l{index}\">{}</div>\n", shape.caption);
        let captions: String = self.shapes.iter().enumerate().map(caption).collect();
        let omitted = match self.omitted {
            0 => String::new(),
            count => {
                format!("<p class=\"muted\">{} more: too many lines for one page.</p>\n", counted(count, "channel"))
            }
        };
        if captions.is_empty() { captions } else { format!("<div aria-live=\"polite\">\n{captions}</div>\n{omitted}") }
    }

    /// The rules that light what is chosen; a browser that does not know `:has` shows the first choice.
    fn style(&self) -> String {
        if self.choices.is_empty() {
            return String::new();
        }
        let mut rules = String::from("<style>\n");
        for Choice { id, ring, tree, .. } in &self.choices {
            for (kind, shape) in [("ring", ring), ("tree", tree)] {
                let Some(shape) = shape else { continue };
                let kind = if self.trees { format!(":has(#as-{kind}:checked)") } else { String::new() };
                rules.push_str(&format!(".topology:has(#{id}:checked){kind} .l{shape} {{ display: inline }}\n"));
            }
        }
        rules.push_str("@supports not selector(:has(*)) { .topology .l0 { display: inline } }\n</style>\n");
        rules
    }

    fn picker(&self) -> String {
        if self.choices.is_empty() {
            return String::new();
        }
        let radio = |group: &str, id: &str, label: &str, checked: bool| {
            let checked = if checked { " checked" } else { "" };
            format!(
                "<span><input type=\"radio\" name=\"{group}\" id=\"{id}\"{checked}><label for=\"{id}\">{label}</label></span>\n"
            )
        };
        let channels = self.choices.iter().enumerate();
        let channels: String =
            channels.map(|(index, choice)| radio("channel", &choice.id, &choice.label, index == 0)).collect();
        let kinds = match self.trees {
            true => format!(
                "<fieldset><legend>as</legend>{}{}</fieldset>\n",
                radio("as", "as-ring", "ring", true),
                radio("as", "as-tree", "tree", false)
            ),
            false => String::new(),
        };
        format!("<form class=\"picker\">\n<fieldset><legend>channel</legend>{channels}</fieldset>\n{kinds}</form>\n")
    }
}

/// `rings` are the rings that differ, each with the channels that have it.
fn ring_caption(comm: &Communicator, id: u16, channel: &Channel, rings: &[(Vec<u16>, &[u32])]) -> String {
    let ranks = channel.ring.as_ref().map(|ring| ring.ranks.as_slice()).unwrap_or_default();
    let shared =
        rings.iter().map(|(channels, _)| channels).find(|channels| channels.contains(&id) && channels.len() > 1);
    let same = shared.map(|channels| format!(" (as in {})", words::channel_ids(channels))).unwrap_or_default();
    let written = if ranks.len() <= MAX_WRITTEN { words::ring(comm, ranks) } else { counted(ranks.len(), "rank") };
    format!("<p>Ring of channel {id}{same}: <code>{}</code></p>", escape(&written))
}

fn tree_caption(comm: &Communicator, id: u16) -> String {
    let roots = comm.tree(id).filter(|(_, links)| links.parent().is_none() && links.children().next().is_some());
    let roots: Vec<String> = roots.map(|(rank, _)| rank.to_string()).collect();
    let crossing = |(rank, links): &(u32, busbw_model::TreeLinks)| {
        let parent = links.parent().and_then(|parent| comm.node_of(parent));
        parent.is_some() && comm.node_of(*rank).is_some() && parent != comm.node_of(*rank)
    };
    let crossings = comm.tree(id).filter(crossing).count();
    let root = if roots.is_empty() { String::new() } else { format!(", root rank {}", roots.join(", ")) };
    format!("<p>Tree of channel {id}{root}: {} between hosts</p>", counted(crossings, "link"))
}
