//! The rings and trees of channels, and all crossings together, as lines over the machines.

use super::layout::{Lane, Layout, Port};
use super::machines::color;
use super::scene::{Scene, Spot};
use crate::html::markup::escape;
use crate::words;
use busbw_model::{ChannelSet, Communicator, Crossing, EdgeEnd, EdgeUse, Run, TreeLinks};
use std::collections::BTreeMap;

/// More arrows than this have no label.
const MAX_LABELS: usize = 16;

/// What draws the lines of one communicator.
pub(super) struct Lines<'a> {
    run: &'a Run,
    comm: &'a Communicator,
    scene: &'a Scene,
    layout: &'a Layout,
    /// The ends of connections between hosts by sender and receiver.
    connections: BTreeMap<(u32, u32), Vec<Connection>>,
}

/// One end of a connection over a network.
struct Connection {
    end: EdgeEnd,
    channels: ChannelSet,
    nic: u32,
    transport: String,
}

impl<'a> Lines<'a> {
    pub fn of(run: &'a Run, comm: &'a Communicator, scene: &'a Scene, layout: &'a Layout) -> Self {
        let mut connections: BTreeMap<(u32, u32), Vec<Connection>> = BTreeMap::new();
        for edge in comm.edges.iter().filter(|edge| edge.use_ == EdgeUse::Collective) {
            let Some(transport) = comm.transports.get(usize::from(edge.transport)) else { continue };
            if let Some(nic) = transport.nic.filter(|_| scene.crosses(edge.from, edge.to) == Some(true)) {
                let gdr = if transport.gdr { "/GDRDMA" } else { "" };
                let transport = format!("{}{gdr}", transport.kind);
                let connection = Connection { end: edge.end, channels: edge.channels, nic, transport };
                connections.entry((edge.from, edge.to)).or_default().push(connection);
            }
        }
        Lines { run, comm, scene, layout, connections }
    }

    /// An arrow per rank pair that crosses between hosts, as wide as it has channels.
    pub fn crossings(&self, crossings: &[Crossing]) -> String {
        let labels = crossings.len() <= MAX_LABELS;
        crossings.iter().filter_map(|crossing| self.crossing(crossing, labels)).collect()
    }

    fn crossing(&self, crossing: &Crossing, label: bool) -> Option<String> {
        let (from, to) = self.spots(crossing.from, crossing.to)?;
        let (mut start, mut end) = (self.layout.front(from), self.layout.front(to));
        // Arrows leave on the left of a GPU and arrive on its right, so that two directions do not cover each other.
        start.x -= self.layout.gpu(from).width * 0.18;
        end.x += self.layout.gpu(to).width * 0.18;
        let channels = crossing.channels.len();
        let title =
            format!("{}: channels {}", self.pair(crossing.from, crossing.to), words::channel_ids(&crossing.channels));
        let color = color(from.host);
        let mut out = format!(
            "<path class=\"arrow {color}\" d=\"{}\" stroke-width=\"{:.1}\" marker-end=\"url(#tip-{color})\">\
             <title>{}</title></path>\n",
            self.bow(start, end),
            1.0 + channels.min(10) as f64 * 0.4,
            escape(&title)
        );
        if label {
            let (x, y) = (start.x - 6.0, if start.up { start.y - 18.0 } else { start.y + 26.0 });
            out.push_str(&format!("<text class=\"count {color}\" x=\"{x:.1}\" y=\"{y:.1}\">{channels} ch</text>\n"));
        }
        Some(out)
    }

    /// The hops of a ring, as one channel goes them.
    pub fn ring(&self, channel: u16, pairs: impl Iterator<Item = (u32, u32)>) -> String {
        pairs.filter_map(|(from, to)| self.hop(channel, from, to, "hop")).collect()
    }

    /// The links of a tree, and a frame around its root.
    pub fn tree(&self, channel: u16, links: impl Iterator<Item = (u32, TreeLinks)> + Clone) -> String {
        let up = links.clone().filter_map(|(rank, of_rank)| self.hop(channel, rank, of_rank.parent()?, "hop up"));
        let roots = links.filter(|(_, of_rank)| of_rank.parent().is_none() && of_rank.children().next().is_some());
        let root = |(rank, _): (u32, TreeLinks)| {
            let area = self.layout.gpu(*self.scene.ranks.get(&rank)?);
            Some(format!(
                "<rect class=\"root\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"5\">\
                 <title>rank {rank} is the root</title></rect>\n",
                area.x, area.y, area.width, area.height
            ))
        };
        up.chain(roots.filter_map(root)).collect()
    }

    /// One hop: a bow inside its host, or over NICs between hosts.
    fn hop(&self, channel: u16, from: u32, to: u32, class: &str) -> Option<String> {
        let (a, b) = self.spots(from, to)?;
        let (path, class, title) = if a.host == b.host {
            (self.inside(a, b), class.to_owned(), format!("rank {from} to rank {to}"))
        } else {
            let (path, over) = self.between(channel, (from, a), (to, b));
            let class =
                if self.scene.crosses(from, to) == Some(true) { format!("{class} cross") } else { class.into() };
            (path, class, format!("{}{over}", self.pair(from, to)))
        };
        Some(format!(
            "<path class=\"{class}\" data-from=\"{from}\" data-to=\"{to}\" d=\"{path}\" marker-end=\"url(#tip-{})\">\
             <title>{}</title></path>\n",
            if class.contains("cross") { "cross" } else { "hop" },
            escape(&title)
        ))
    }

    fn inside(&self, a: Spot, b: Spot) -> String {
        let (from, to) = (self.layout.back(a), self.layout.back(b));
        // Beside each other's arrow heads: out on one side, in on the other.
        let aside = self.layout.gpu(a).width.min(30.0) * 0.15 * (to.x - from.x).signum();
        let rise = 12.0 + (to.x - from.x).abs().min(500.0) * 0.1;
        let y = if from.up { from.y - rise } else { from.y + rise };
        let (x1, x2) = (from.x + aside, to.x - aside);
        format!("M{x1:.1},{:.1} Q{:.1},{y:.1} {x2:.1},{:.1}", from.y, (x1 + x2) / 2.0, to.y)
    }

    /// The path from a GPU over its NIC and that of the other host, as far as these are known, and what to say of it.
    fn between(&self, channel: u16, (from, a): (u32, Spot), (to, b): (u32, Spot)) -> (String, String) {
        let of_channel = |connection: &&Connection| connection.channels.iter().any(|id| id == channel);
        let known: Vec<&Connection> =
            self.connections.get(&(from, to)).into_iter().flatten().filter(of_channel).collect();
        let nic = |end: EdgeEnd, spot: Spot| {
            let connection = known.iter().find(|connection| connection.end == end)?;
            self.scene.hosts[spot.host].nics.iter().position(|nic| nic.index == Some(connection.nic))
        };
        let (sender, receiver) = (nic(EdgeEnd::Send, a), nic(EdgeEnd::Receive, b));
        let (mut start, mut end) = (self.layout.front(a), self.layout.front(b));
        let (mut before, mut after) = (String::new(), String::new());
        let mut over = known.first().map(|connection| format!(", {}", connection.transport)).unwrap_or_default();
        if let Some(nic) = sender {
            let (inner, outer) = self.layout.nic_lanes(a.host, nic, Lane::Out);
            before = format!(
                "M{:.1},{:.1} L{:.1},{:.1} L{:.1},{:.1} ",
                start.x, start.y, inner.x, inner.y, outer.x, outer.y
            );
            start = outer;
            over.push_str(&format!(" from {}", self.scene.hosts[a.host].nics[nic].name));
        }
        if let Some(nic) = receiver {
            let (inner, outer) = self.layout.nic_lanes(b.host, nic, Lane::In);
            after = format!(" L{:.1},{:.1} L{:.1},{:.1}", inner.x, inner.y, end.x, end.y);
            end = outer;
            over.push_str(&format!(" to {}", self.scene.hosts[b.host].nics[nic].name));
        }
        (format!("{before}{}{after}", self.bow(start, end)), over)
    }

    /// A bow from one port to another, leaving and arriving straight.
    fn bow(&self, start: Port, end: Port) -> String {
        let reach = self.layout.reach();
        let bend = |port: Port| if port.up { port.y - reach } else { port.y + reach };
        let (x1, y1, x2, y2) = (start.x, start.y, end.x, end.y);
        format!("M{x1:.1},{y1:.1} C{x1:.1},{:.1} {x2:.1},{:.1} {x2:.1},{y2:.1}", bend(start), bend(end))
    }

    fn spots(&self, from: u32, to: u32) -> Option<(Spot, Spot)> {
        Some((*self.scene.ranks.get(&from)?, *self.scene.ranks.get(&to)?))
    }

    fn pair(&self, from: u32, to: u32) -> String {
        let host = |rank| words::host_of(self.run, self.comm, rank);
        format!("{} rank {from} to {} rank {to}", host(from), host(to))
    }
}

/// The heads of arrows: one per colour of hosts, one for hops, one for hops between hosts.
pub(super) fn tips() -> String {
    let tip = |name: &str| {
        format!(
            "<marker id=\"tip-{name}\" class=\"{name}\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"11\" \
             markerHeight=\"11\" markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0,0 L10,5 L0,10 z\"/></marker>"
        )
    };
    let names = ["n0", "n1", "n2", "n3", "hop", "cross"];
    format!("<defs>{}</defs>\n", names.map(tip).concat())
}
