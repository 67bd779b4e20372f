//! `[fabric]`: how switches and NICs are cabled.

use super::Hosts;
use super::explicit;
use crate::cluster::facts::NetworkFacts;
use crate::cluster::section::DescriptionError;
use crate::cluster::section::Section;
use crate::cluster::{Cores, Fabric, Routing, Uplinks, Wiring};
use busbw_model::GBps;

#[derive(Clone, Copy)]
enum Kind {
    SingleSwitch,
    RailOptimised,
    LeafSpine,
    HostToSwitch,
    Explicit,
}

const KINDS: [(&str, Kind); 6] = [
    ("single-switch", Kind::SingleSwitch),
    ("rail-optimised", Kind::RailOptimised),
    ("rail-optimized", Kind::RailOptimised),
    ("leaf-spine", Kind::LeafSpine),
    ("host-to-switch", Kind::HostToSwitch),
    ("explicit", Kind::Explicit),
];

pub(super) fn read(root: &Section, hosts: &Hosts, network: &NetworkFacts) -> Result<Option<Fabric>, DescriptionError> {
    let Some(section) = root.section("fabric")? else { return Ok(None) };
    let routing = section.choice("routing", &[("hash", Routing::Hash), ("adaptive", Routing::Adaptive)])?;
    let kind = section.choice("wiring", &KINDS)?;
    let names =
        "write wiring = \"single-switch\", \"rail-optimised\", \"leaf-spine\", \"host-to-switch\" or \"explicit\"";
    let kind = kind.ok_or_else(|| section.missing("wiring", names))?;
    let wiring = match kind.value {
        Kind::SingleSwitch => Wiring::SingleSwitch,
        Kind::RailOptimised => rail_optimised(&section, hosts)?,
        Kind::LeafSpine => leaf_spine(&section)?,
        Kind::HostToSwitch => Wiring::HostToSwitch { between: uplinks(&section, "between")? },
        Kind::Explicit => explicit::read(&section, hosts, network)?,
    };
    section.finish()?;
    Ok(Some(Fabric { wiring, routing: routing.map_or(Routing::Hash, |routing| routing.value) }))
}

/// `uplinks = { count = 4, rate = "400 Gbit/s" }`.
fn uplinks(section: &Section, key: &str) -> Result<Uplinks, DescriptionError> {
    let example = format!("write {key} = {{ count = 4, rate = \"400 Gbit/s\" }}");
    let links = section.section(key)?.ok_or_else(|| section.missing(key, example))?;
    let read = explicit::links_of(&links)?;
    links.finish()?;
    Ok(read)
}

fn rail_optimised(section: &Section, hosts: &Hosts) -> Result<Wiring, DescriptionError> {
    let per_group = section.at_least_one("nodes_per_group", "32")?;
    let nodes_per_group = per_group.map_or(hosts.nodes, |nodes| nodes.value);
    let spines = section.count("spines", "4")?.map_or(0, |spines| spines.value);
    let none = Uplinks { count: 0, rate: GBps(0.0) };
    if spines == 0 {
        if let Some(per_group) = per_group.filter(|_| nodes_per_group < hosts.nodes) {
            let message = format!("groups of {nodes_per_group} nodes never meet: fabric.spines is 0 or missing");
            return Err(section.error(per_group.at, message, "write spines and uplinks, or delete nodes_per_group"));
        }
        return Ok(Wiring::RailOptimised { nodes_per_group, spines, uplinks: none });
    }
    Ok(Wiring::RailOptimised { nodes_per_group, spines, uplinks: uplinks(section, "uplinks")? })
}

fn leaf_spine(section: &Section) -> Result<Wiring, DescriptionError> {
    let nodes_per_leaf = section.required_count("nodes_per_leaf", "16")?.value;
    let spines = section.required_count("spines", "4")?.value;
    let uplinks = uplinks(section, "uplinks")?;
    let cores = match section.section("cores")? {
        None => None,
        Some(cores) => {
            let read = Cores {
                leaves_per_pod: cores.required_count("leaves_per_pod", "8")?.value,
                switches: cores.required_count("switches", "16")?.value,
                uplinks: self::uplinks(&cores, "uplinks")?,
            };
            cores.finish()?;
            Some(read)
        }
    };
    Ok(Wiring::LeafSpine { nodes_per_leaf, spines, uplinks, cores })
}
