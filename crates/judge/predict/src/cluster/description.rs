//! Text to cluster: tells the full form of a description from the short one, and says what is wrong with either.

use super::complete::complete;
use super::section::{DescriptionError, Section};
use super::{Cluster, full, short};
use crate::calibration::Calibration;
use busbw_model::Collective;
use toml::de::DeTable;

/// Reads a description of a cluster: TOML in the full form (tables `[cluster]`, `[gpu]`, `[links]` …) or in the short one
/// (`nodes`, `gpus_per_node`, `gpu`, `intra` …). `docs/clusters.md` lists the keys of both.
///
/// What a description leaves out follows from its GPU and machine; [`Cluster::assumptions`] says what did.
///
/// # Errors
/// The first thing that is wrong, with its line and what to write instead.
///
/// ```
/// let cluster = busbw_predict::cluster::parse(r#"
///     nodes = 2
///     gpus_per_node = 8
///     gpu = "H100 (DGX H100)"
/// "#)?;
/// assert_eq!((cluster.ranks(), cluster.domain_nics()), (16, 8));
/// # Ok::<(), busbw_predict::cluster::DescriptionError>(())
/// ```
pub fn parse(text: &str) -> Result<Cluster, DescriptionError> {
    let table = DeTable::parse(text).map_err(|error| not_toml(text, &error))?;
    let root = Section::root(text, table.get_ref());
    let calibration = calibration(&root)?;
    let facts = if is_full(&root)? { full::read(&root)? } else { short::read(&root)? };
    let cluster = Cluster { calibration, ..complete(facts) };
    if cluster.nics.is_none() && cluster.domains() > 1 {
        let at = root.keys().find(|key| key.value == "transport").map_or(0, |key| key.at);
        let message = format!("{} nodes without a network cannot reach each other", cluster.nodes);
        return Err(root.error(at, message, "write the transport and the NICs, or nodes = 1"));
    }
    Ok(cluster)
}

/// How the machine differs from published ones: what `busbw predict --calibrate` prints.
fn calibration(root: &Section) -> Result<Calibration, DescriptionError> {
    let Some(section) = root.section("calibration")? else { return Ok(Calibration::NONE) };
    let mut factors = [1.0; 4];
    for (factor, (name, _)) in factors.iter_mut().zip(Calibration::NONE.factors()) {
        let Some(stated) = section.number(name, "1.1")? else { continue };
        if !(0.05..=20.0).contains(&stated.value) {
            let message = format!("{} = {} is no factor that machines differ by", section.name(name), stated.value);
            return Err(section.error(stated.at, message, "write 0.05 to 20; 1 is as published machines are"));
        }
        *factor = stated.value;
    }
    let named = |name: &str| Collective::from_name(name);
    let collective = section.text("collective", "all_reduce")?;
    if let Some(stated) = collective.as_ref().filter(|stated| named(stated.value).is_none()) {
        let message = format!("{} = {} is no collective", section.name("collective"), stated.value);
        return Err(section.error(stated.at, message, "write it as nccl-tests does: all_reduce, all_gather, alltoall"));
    }
    section.finish()?;
    let collective = collective.and_then(|stated| named(stated.value));
    Ok(Calibration { collective, ..Calibration::of(factors) })
}

/// Whether the tables of the full form are there. A mixture of both forms is refused.
fn is_full(root: &Section) -> Result<bool, DescriptionError> {
    let table = full::TABLES.iter().find(|table| root.has_table(table));
    let short = root.keys().filter(|key| short::KEYS.contains(&key.value) && !root.has_table(key.value));
    match (table, short.min_by_key(|key| key.at)) {
        (Some(table), Some(key)) => {
            let message = format!("{} belongs to the short form, and [{table}] to the full one", key.value);
            Err(root.error(key.at, message, format!("write it below its table, or delete [{table}]")))
        }
        (Some(_), None) => Ok(true),
        (None, Some(_)) => Ok(false),
        (None, None) => {
            let remedy = "write nodes, gpus_per_node and gpu, or the tables [cluster], [gpu], [node] …";
            Err(root.error(0, "this describes no cluster", remedy))
        }
    }
}

fn not_toml(text: &str, error: &toml::de::Error) -> DescriptionError {
    let message = format!("this is not TOML: {}", error.message().lines().next().unwrap_or_default());
    let at = error.span().map_or(0, |span| span.start);
    DescriptionError::at(text, at, message, "write lines of the form key = value, and texts in quotes")
}
