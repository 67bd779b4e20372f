//! Single figures that people published, beside what `predict` says.

use crate::statistics::Spread;
use busbw_model::Bytes;
use busbw_predict::{cluster, predict};
use serde::Deserialize;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// What was published with a description in the short form, whose keys lie beside these.
#[derive(Deserialize)]
struct Figure {
    source: String,
    what: Option<String>,
    bytes: u64,
    busbw_gbs: Option<f64>,
    algbw_gbs: Option<f64>,
    time_us: Option<f64>,
}

/// The median deviation of the time over all figures of a file, as a share, and a line for each.
pub fn figures(file: &Path) -> Result<(f64, String), String> {
    let told = |error: &dyn ToString| format!("{}: {}", file.display(), error.to_string());
    let text = fs::read_to_string(file).map_err(|e| told(&e))?;
    let mut root: toml::Table = text.parse().map_err(|e: toml::de::Error| told(&e))?;
    let Some(toml::Value::Array(entries)) = root.remove("figure") else { return Err(told(&"no [[figure]]")) };
    let mut lines = String::new();
    let mut off = Vec::new();
    for entry in entries {
        let figure: Figure = entry.clone().try_into().map_err(|e: toml::de::Error| told(&e))?;
        let cluster = cluster::parse(&as_file(&entry)).map_err(|e| told(&e))?;
        let collective = cluster.collective.ok_or_else(|| told(&"no collective"))?;
        let row = predict(&cluster, collective, &[Bytes(figure.bytes)]).rows.remove(0);
        let ranks = u32::try_from(cluster.ranks()).unwrap_or(u32::MAX);
        let algbw = figure.algbw_gbs.or(figure.busbw_gbs.map(|busbw| busbw / collective.busbw_factor(ranks)));
        let measured = figure.time_us.or(algbw.map(|algbw| figure.bytes as f64 / algbw / 1e3));
        let measured = measured.ok_or_else(|| told(&format!("{}: nothing was measured", figure.source)))?;
        let deviation = row.time.0 / measured - 1.0;
        off.push(deviation.abs());
        let what = figure.what.unwrap_or_else(|| collective.to_string());
        let _ = writeln!(
            lines,
            "{:+5.0}%  {what} of {} on {} x {} {}: {measured:.1} us measured, {:.1} predicted ({}/{}; {}); {}",
            100.0 * deviation,
            row.size,
            cluster.nodes,
            cluster.gpus_per_node,
            cluster.gpu.name,
            row.time.0,
            row.algorithm,
            row.protocol,
            row.bottleneck,
            figure.source
        );
    }
    let median = Spread::of(off.iter().copied()).map_or(0.0, |spread| spread.median);
    let _ = writeln!(lines, "{}: median deviation of {} figures {:.1}%", file.display(), off.len(), 100.0 * median);
    Ok((median, lines))
}

/// A table as a file of its own.
fn as_file(entry: &toml::Value) -> String {
    entry.as_table().map(ToString::to_string).unwrap_or_default()
}
