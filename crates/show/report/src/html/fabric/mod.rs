//! The fabric as a picture: hosts below, switches above, and how loaded the links between them are.

mod layout;
mod skeleton;

use super::markup::escape;
use crate::description;
use crate::words::counted;
use busbw_predict::{Cluster, LinkLoad};
use layout::{HOST_HEIGHT, Layout, SWITCH_HEIGHT, WIDTH};
use skeleton::{Bundle, Skeleton};
use std::collections::BTreeMap;

/// Parallel links are drawn one by one up to this many.
const MAX_SINGLE: usize = 8;
/// With more cables between switches, parallel links are one line.
const MAX_CABLES: usize = 64;
/// With more cables between switches, numbers beside them would cover each other.
const MAX_LABELS: usize = 8;
/// Lines of links.
const THINNEST: f64 = 1.5;
const WIDEST: f64 = 7.0;
const LETTER: f64 = 7.5;

/// The section of a described fabric, and of what loads its links where that is known; nothing where it would not stay
/// legible.
pub(super) fn section(cluster: &Cluster, loads: &[LinkLoad]) -> String {
    let words = format!("<p class=\"muted\">{}</p>\n", escape(&description::fabric(&cluster.fabric)));
    match drawing(cluster, loads) {
        drawing if drawing.is_empty() => drawing,
        drawing => super::markup::section("Fabric, as described", &(words + &drawing)),
    }
}

/// The picture of a small fabric and its loads; nothing where it would not stay legible.
pub(super) fn drawing(cluster: &Cluster, loads: &[LinkLoad]) -> String {
    let picture = picture(cluster, loads);
    if picture.is_empty() || loads.is_empty() {
        return picture;
    }
    format!(
        "{picture}<p class=\"muted\"><span class=\"swatch idle\"></span> link, \
         <span class=\"swatch\"></span> among the most loaded, <span class=\"swatch deciding\"></span> holds the run back \
         under some seeds, the redder the more; the width says how many flows it carries in the mean.</p>\n"
    )
}

fn picture(cluster: &Cluster, loads: &[LinkLoad]) -> String {
    let Some(skeleton) = skeleton::of(cluster) else { return String::new() };
    let layout = Layout::of(&skeleton);
    let loads = Loads::of(loads);
    let links: String = skeleton.bundles.iter().map(|bundle| links(&skeleton, &layout, bundle, &loads)).collect();
    let boxes = hosts(cluster, &skeleton, &layout) + &switches(&skeleton, &layout);
    super::markup::picture(&format!(
        "<svg class=\"fabric\" viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"{}\">\n{links}{boxes}</svg>\n",
        layout.height,
        escape(&format!("fabric: {}", description::fabric(&cluster.fabric)))
    ))
}

/// A link's sender and receiver.
type Ends<'a> = (&'a str, &'a str);

/// A load, and which of several parallel links has it.
type Numbered<'a> = (Option<usize>, &'a LinkLoad);

/// The listed loads by the two ends of their links.
struct Loads<'a> {
    by_ends: BTreeMap<Ends<'a>, Vec<Numbered<'a>>>,
    most_flows: f64,
    most_decides: f64,
}

impl<'a> Loads<'a> {
    fn of(links: &'a [LinkLoad]) -> Self {
        let mut by_ends: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for link in links {
            if let Some((from, to, number)) = ends(&link.name) {
                by_ends.entry((from, to)).or_default().push((number, link));
            }
        }
        let most_flows = links.iter().map(|link| link.flows_mean).fold(1.0, f64::max);
        let most_decides = links.iter().map(|link| link.decides).fold(f64::MIN_POSITIVE, f64::max);
        Loads { by_ends, most_flows, most_decides }
    }

    /// The loads of link `number` of a bundle, or of all its links; one per direction that is listed.
    fn between(&self, a: &str, b: &str, number: Option<usize>) -> Vec<&'a LinkLoad> {
        let of = |ends| self.by_ends.get(&ends).into_iter().flatten();
        let wanted = |found: &&(Option<usize>, _)| number.is_none() || found.0.is_none() || found.0 == number;
        of((a, b)).filter(wanted).chain(of((b, a)).filter(wanted)).map(|(_, load)| *load).collect()
    }
}

/// The two ends of a link's name, and which of several parallel links it is: `leaf 0 → spine 3, link 2`.
fn ends(name: &str) -> Option<(&str, &str, Option<usize>)> {
    let name = name.split_once(" and ").map_or(name, |(first, _)| first);
    let (from, rest) = name.split_once(" → ")?;
    match rest.rsplit_once(", link ") {
        Some((to, number)) => Some((from, to, number.parse().ok())),
        None => Some((from, rest, None)),
    }
}

/// The cables of a bundle: one line each while they are few, else one for all.
fn links(skeleton: &Skeleton, layout: &Layout, bundle: &Bundle, loads: &Loads<'_>) -> String {
    let names = skeleton.name(bundle.from).zip(skeleton.name(bundle.to));
    let single = bundle.count <= MAX_SINGLE && skeleton.cables() <= MAX_CABLES && names.is_some();
    let drawn = if single { bundle.count } else { 1 };
    let link = |number: usize| {
        let which = (single && bundle.count > 1).then_some(number);
        let found = names.map(|(a, b)| loads.between(a, b, which)).unwrap_or_default();
        let line = layout.path(bundle, (number, drawn));
        let (class, style) = look(&found, loads);
        let label = if skeleton.cables() <= MAX_LABELS { label(&found, line.middle) } else { String::new() };
        let title = title(names, bundle, &found);
        format!(
            "<path class=\"link{class}\" d=\"{}\" style=\"{style}\"><title>{}</title></path>\n{label}",
            line.data,
            escape(&title)
        )
    };
    (0..drawn).map(link).collect()
}

/// Class and style of a link: wider with more flows, redder the more often it holds the run back.
fn look(found: &[&LinkLoad], loads: &Loads<'_>) -> (&'static str, String) {
    let most = |value: fn(&LinkLoad) -> f64| found.iter().map(|load| value(load)).fold(0.0, f64::max);
    let width = THINNEST + most(|load| load.flows_mean) / loads.most_flows * (WIDEST - THINNEST);
    let decides = most(|load| load.decides);
    let class = match (found.is_empty(), decides > 0.0) {
        (true, _) => return ("", format!("stroke-width:{THINNEST}")),
        (false, false) => " used",
        (false, true) => " deciding",
    };
    let share = 30.0 + 70.0 * decides / loads.most_decides;
    (class, format!("stroke-width:{width:.1};--share:{share:.0}%"))
}

/// What a link carries, beside it; both directions where both are listed.
fn label(found: &[&LinkLoad], (x, y): (f64, f64)) -> String {
    if found.is_empty() {
        return String::new();
    }
    let flows: Vec<String> = found.iter().map(|load| format!("{:.1}", load.flows_mean)).collect();
    format!("<text class=\"load\" x=\"{x:.1}\" y=\"{:.1}\">{} flows</text>\n", y + 4.0, flows.join(" + "))
}

fn title(names: Option<(&str, &str)>, bundle: &Bundle, found: &[&LinkLoad]) -> String {
    let rate = description::rate(bundle.rate);
    let mut title = match names {
        Some((a, b)) => format!("{a} – {b}: {} of {rate}", counted(bundle.count, "link")),
        None => rate,
    };
    for load in found {
        let LinkLoad { name, flows_mean, flows_max, decides, .. } = load;
        let share = decides * 100.0;
        title.push_str(&format!(
            "\n{name}: {flows_mean:.2} flows, at most {flows_max}, slowest in {share:.1}% of seeds"
        ));
    }
    title
}

fn hosts(cluster: &Cluster, skeleton: &Skeleton, layout: &Layout) -> String {
    let gpus = cluster.gpus_per_node;
    let host = |host: usize| {
        let (x, y, width) = layout.host(host);
        let name = if width > 125.0 { format!("node {host} · {gpus} GPUs") } else { host.to_string() };
        let ports: String = (0..skeleton.nics).map(|nic| port(layout.port(host, nic), host, nic)).collect();
        format!(
            "<g><title>node {host}</title><rect class=\"host\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"{HOST_HEIGHT}\" rx=\"8\"/><text class=\"mid\" x=\"{x:.1}\" y=\"{:.1}\">{name}</text></g>\n{ports}",
            x - width / 2.0,
            y + HOST_HEIGHT / 2.0 + 8.0
        )
    };
    (0..skeleton.hosts).map(host).collect()
}

fn port((x, y): (f64, f64), host: usize, nic: usize) -> String {
    format!(
        "<rect class=\"port\" x=\"{:.1}\" y=\"{:.1}\" width=\"8\" height=\"8\"><title>NIC {nic} of node {host}</title></rect>\n",
        x - 4.0,
        y - 4.0
    )
}

fn switches(skeleton: &Skeleton, layout: &Layout) -> String {
    let switch = |(index, switch): (usize, &skeleton::Switch)| {
        let (x, y, width) = layout.switch(index);
        let letters = (width / LETTER) as usize;
        let name = if switch.name.chars().count() > letters { short(&switch.name) } else { switch.name.as_str() };
        let name = crate::style::clip(name, letters.max(1)).into_owned();
        format!(
            "<g><title>{}</title><rect class=\"switch\" x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" \
             height=\"{SWITCH_HEIGHT}\" rx=\"5\"/><text class=\"mid\" x=\"{x:.1}\" y=\"{:.1}\">{}</text></g>\n",
            escape(&switch.name),
            x - width / 2.0,
            y - SWITCH_HEIGHT / 2.0,
            y + 5.0,
            escape(&name)
        )
    };
    skeleton.switches.iter().enumerate().map(switch).collect()
}

/// The number of `spine 12`, where the whole name does not fit.
fn short(name: &str) -> &str {
    name.split(' ').find(|word| word.bytes().all(|b| b.is_ascii_digit()) && !word.is_empty()).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_known_by_its_ends() {
        let cases = [
            ("leaf 0 → spine 3", Some(("leaf 0", "spine 3", None))),
            ("switch of node 0 → switch of node 1, link 2", Some(("switch of node 0", "switch of node 1", Some(2)))),
            ("leaf 0 → spine 0, link 1 and 7 links like it", Some(("leaf 0", "spine 0", Some(1)))),
            ("NIC 0 of node 1, sending and 3 NIC ports as busy", None),
        ];
        for (name, found) in cases {
            assert_eq!(ends(name), found, "{name}");
        }
    }
}
