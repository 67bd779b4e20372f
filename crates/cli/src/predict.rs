//! `busbw predict`: the table that a cluster should print.

use crate::cli::Predict;
use crate::flags::Format;
use crate::{described, output};
use busbw_model::Collective;
use busbw_report::{html, json, text};
use std::io::Write;
use std::process::ExitCode;

pub fn run(flags: &Predict) -> Result<ExitCode, String> {
    let sizes = flags.sizes.list()?;
    let (collective, described) = flags.collective.among(&flags.cluster);
    if described.is_empty() {
        return Err("no cluster to predict for; name its description, or the log of a run on it".into());
    }
    let cluster = described::cluster(described)?;
    let collective = collective.or(cluster.collective).unwrap_or(Collective::AllReduce);
    let prediction = busbw_predict::predict(&cluster, collective, &sizes);
    let style = flags.look.style(flags.output.file());
    let json = |out: &mut dyn Write| json::write_predict(&prediction, out);
    output::answer(&flags.output, json, |format, out| match format {
        Format::Html => output::page(out, &html::predict(&cluster, &prediction)),
        _ => out.write_all(text::predict(&cluster, &prediction, &style).as_bytes()),
    })?;
    Ok(ExitCode::SUCCESS)
}
