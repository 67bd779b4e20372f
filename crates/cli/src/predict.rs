//! `busbw predict`: the table that a cluster should print.

use crate::cli::{Format, Predict};
use crate::{described, output};
use busbw_model::Collective;
use busbw_report::{html, json, text};
use std::process::ExitCode;

pub fn run(flags: &Predict) -> Result<ExitCode, String> {
    let sizes = flags.sizes.list()?;
    let cluster = described::cluster(&flags.cluster)?;
    let collective = flags.collective.or(cluster.collective).unwrap_or(Collective::AllReduce);
    let prediction = busbw_predict::predict(&cluster, collective, &sizes);
    output::write(flags.output.file(), |out| match flags.output.format() {
        Format::Json => json::write_predict(&prediction, out),
        Format::Html => output::page(out, &html::predict(&cluster, &prediction)),
        Format::Text => out.write_all(text::predict(&cluster, &prediction).as_bytes()),
    })?;
    Ok(ExitCode::SUCCESS)
}
