//! `[links]`: how the GPUs of a host reach each other.

use super::Hosts;
use crate::cluster::Generation;
use crate::cluster::facts::{LinkFacts, LinkKind};
use crate::cluster::rate::Unit;
use crate::cluster::section::DescriptionError;
use crate::cluster::section::{Section, Stated};
use busbw_model::GBps;

const KINDS: [(&str, LinkKind); 4] = [
    ("nvswitch", LinkKind::NvSwitch),
    ("nvlink", LinkKind::Mesh),
    ("pcie", LinkKind::Pcie),
    ("single", LinkKind::Single),
];

/// NVLink per GPU and direction by its generation, where neither a rate nor a GPU model is given: P100, V100, A100, H100,
/// B200.
const NVLINK_RATES: [(usize, f64); 5] = [(1, 80.0), (2, 150.0), (3, 300.0), (4, 450.0), (5, 900.0)];

pub(super) fn read(root: &Section, hosts: &Hosts) -> Result<LinkFacts, DescriptionError> {
    let Some(section) = root.section("links")? else { return Ok(LinkFacts::default()) };
    let kind = section.choice("kind", &KINDS)?;
    check_kind(&section, kind, hosts)?;
    let kind = kind.map(|kind| kind.value);
    let over_nvlink = kind.is_none_or(|kind| matches!(kind, LinkKind::NvSwitch | LinkKind::Mesh));
    let facts = LinkFacts {
        kind,
        nvlink: if over_nvlink { nvlink(&section, hosts)? } else { None },
        domain: if kind.is_none_or(|kind| kind == LinkKind::NvSwitch) { domain(&section, hosts)? } else { None },
        nvls: nvls(&section, kind, hosts)?,
        peer_to_peer: section.flag("peer_to_peer")?.map(|flag| flag.value),
        path: section.choice("path", &super::network::PATHS)?.map(|path| path.value),
        pcie: section.pcie("pcie")?.map(|pcie| pcie.value),
    };
    section.finish()?;
    Ok(facts)
}

fn check_kind(section: &Section, kind: Option<Stated<LinkKind>>, hosts: &Hosts) -> Result<(), DescriptionError> {
    let Some(kind) = kind else { return Ok(()) };
    match kind.value {
        LinkKind::Single if hosts.gpus > 1 => {
            let message = format!("links.kind = \"single\", but a host has {} GPUs", hosts.gpus);
            Err(section.error(kind.at, message, "write \"nvswitch\", \"nvlink\" or \"pcie\""))
        }
        LinkKind::NvSwitch | LinkKind::Mesh if hosts.model.is_some_and(|model| model.nvlink.is_none()) => {
            let name = hosts.model.map_or("", |model| model.name.as_str());
            let message = format!("links.kind names NVLink, but {name} has none");
            Err(section.error(kind.at, message, "write kind = \"pcie\""))
        }
        _ => Ok(()),
    }
}

fn nvlink(section: &Section, hosts: &Hosts) -> Result<Option<GBps>, DescriptionError> {
    let generation = section.at_least_one("generation", "4")?;
    let rate = section.rate("rate", Unit::Bytes)?;
    if let (Some(stated), Some(nvlink)) = (generation, hosts.model.and_then(|model| model.nvlink))
        && stated.value != nvlink.generation as usize
    {
        let name = hosts.model.map_or("", |model| model.name.as_str());
        let message = format!("links.generation = {}, but {name} has NVLink {}", stated.value, nvlink.generation);
        return Err(section.error(stated.at, message, format!("write generation = {}", nvlink.generation)));
    }
    if let Some(rate) = rate {
        let most = hosts.model.and_then(|model| model.nvlink).map(|nvlink| nvlink.rate());
        if let Some(most) = most.filter(|most| rate.value.0 > most.0 * 1.001) {
            let name = hosts.model.map_or("", |model| model.name.as_str());
            let message = format!(
                "links.rate is {} GB/s, but the NVLinks of {name} carry {} GB/s per direction",
                rate.value.0, most.0
            );
            return Err(section.error(rate.at, message, format!("write \"{} GB/s\" or less", most.0)));
        }
        return Ok(Some(rate.value));
    }
    let Some(stated) = generation.filter(|_| hosts.model.is_none()) else { return Ok(None) };
    let known = NVLINK_RATES.iter().find(|(generation, _)| *generation == stated.value);
    let unknown = || {
        let message = format!("links.generation = {} is no NVLink generation that busbw knows", stated.value);
        section.error(stated.at, message, "write 1 to 5, or rate = \"450 GB/s\"")
    };
    known.map(|(_, rate)| Some(GBps(*rate))).ok_or_else(unknown)
}

fn domain(section: &Section, hosts: &Hosts) -> Result<Option<usize>, DescriptionError> {
    let Some(domain) = section.at_least_one("domain", "72")? else { return Ok(None) };
    if domain.value < hosts.gpus || !domain.value.is_multiple_of(hosts.gpus) {
        let message = format!("links.domain = {} is no multiple of the {} GPUs of a host", domain.value, hosts.gpus);
        let near = domain.value.div_ceil(hosts.gpus) * hosts.gpus;
        return Err(section.error(domain.at, message, format!("write whole hosts, for example domain = {near}")));
    }
    Ok(Some(domain.value))
}

fn nvls(section: &Section, kind: Option<LinkKind>, hosts: &Hosts) -> Result<Option<bool>, DescriptionError> {
    let Some(nvls) = section.flag("nvls")? else { return Ok(None) };
    if !nvls.value {
        return Ok(Some(false));
    }
    let reason = if kind.is_some_and(|kind| kind != LinkKind::NvSwitch) {
        "needs NVSwitches".to_string()
    } else if hosts.generation < Generation::Hopper {
        format!("needs Hopper or later, and the GPUs are {:?}", hosts.generation)
    } else {
        return Ok(Some(true));
    };
    Err(section.error(nvls.at, format!("links.nvls = true {reason}"), "write nvls = false, or delete it"))
}
