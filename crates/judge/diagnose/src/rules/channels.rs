//! Too few channels to fill the links of a node.

use super::found;
use crate::case::Case;
use busbw_model::{EnvSetting, Evidence, Finding};

/// Rings over NVSwitch need more channels than this; NCCL chooses 8 to 32 there (`src/graph/search.cc`).
const FEW: u32 = 4;

/// A communicator over several NVLink GPUs of a node with a handful of channels.
pub fn rule(case: &Case) -> Vec<Finding> {
    let limit = ["NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_MAX_NRINGS"]
        .iter()
        .find_map(|name| case.run.nccl.env_value(name));
    let limited_to = limit.and_then(|setting| setting.value.trim().parse().ok()).filter(|n| (1..FEW).contains(n));
    few(case, limit).or_else(|| Some(finding(limited_to?, limit))).into_iter().collect()
}

/// A communicator that says itself how few channels it has.
fn few(case: &Case, limit: Option<&EnvSetting>) -> Option<Finding> {
    let comm = case.largest()?;
    let (channels, nranks) = (comm.coll_channels?, comm.nranks?);
    let several = nranks / 4 >= comm.nnodes.unwrap_or(1);
    (channels < FEW && several && (case.has_nvlink() || limit.is_some())).then(|| finding(channels, limit))
}

fn finding(channels: u32, limit: Option<&EnvSetting>) -> Finding {
    let evidence: Vec<Evidence> =
        limit.map(|setting| Evidence::noted(setting.source.clone(), "limits the channels")).into_iter().collect();
    let confidence = if limit.is_some() { 0.8 } else { 0.6 };
    Finding { confidence, ..found("channels.few", &[("channels", &channels)], evidence) }
}
