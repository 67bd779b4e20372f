//! `busbw predict`: the table that a cluster should print.

use crate::cli::Predict;
use crate::flags::Format;
use crate::{described, output, tuning_file};
use busbw_model::{BenchRow, BenchTable, Bytes, Collective, Load, counted};
use busbw_predict::{Calibrated, Cluster, MeasuredTable, Prediction, calibrate, predict_load, proposals};
use busbw_report::{html, json, text};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub fn run(flags: &Predict) -> Result<ExitCode, String> {
    let sizes = flags.sizes.list()?;
    let (collective, described) = flags.collective.among(&flags.cluster);
    if described.is_empty() {
        return Err("no cluster to predict for; name its description, or the log of a run on it".into());
    }
    flags.collective.refuse_late(described)?;
    let mut cluster = described::cluster(described)?;
    let calibrated = calibrated(&cluster, &flags.calibrate)?;
    if let Some(calibrated) = &calibrated {
        cluster.calibration = calibrated.factors;
    }
    if let (Some(collective), Some(load)) = (collective.filter(|asked| !takes_a_load(*asked)), &flags.load) {
        return Err(format!("--load {load} is for alltoallv, not for {collective}; leave the collective out"));
    }
    let collective = collective.or(cluster.collective).unwrap_or(Collective::AllReduce);
    let predicted = match &flags.load {
        Some(load) => predict_load(&cluster, &self::load(load, cluster.ranks())?, &sizes),
        None => busbw_predict::predict(&cluster, collective, &sizes),
    };
    let prediction = Prediction { calibrated, ..predicted };
    let style = flags.look.style(flags.output.file());
    let json = |out: &mut dyn Write| json::write(&prediction, out);
    output::answer(&flags.output, json, |format, out| match format {
        Format::Html => output::page(out, &html::predict(&cluster, &prediction)),
        _ => out.write_all(text::predict(&cluster, &prediction, &style).as_bytes()),
    })?;
    flags.tuning_file.path().map_or(Ok(()), |path| propose(path, &cluster, collective, &sizes))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes what is worth measuring.
fn propose(path: &Path, cluster: &Cluster, collective: Collective, sizes: &[Bytes]) -> Result<(), String> {
    let table = proposals(cluster, collective, sizes);
    let origin = "Predicted by busbw predict, not measured: nothing follows a choice that is predicted. busbw tune algo measures it";
    let told = match table.choices.len() {
        0 => format!("no other algorithm should be faster than NCCL's choice: {} has no choice", path.display()),
        n => format!(
            "{} in {}; nothing follows a prediction: measure with busbw tune algo",
            counted(n, "predicted choice"),
            path.display()
        ),
    };
    tuning_file::write(path, &table, origin, &told)
}

fn takes_a_load(collective: Collective) -> bool {
    matches!(collective, Collective::AllToAll | Collective::AllToAllV)
}

pub fn load(named: &str, ranks: usize) -> Result<Load, String> {
    Load::named(named, ranks, |file| fs::read_to_string(file)).map_err(|error| format!("--load {named}: {error}"))
}

/// What the tables of some logs make of the model; none where no log is given.
fn calibrated(cluster: &Cluster, logs: &[PathBuf]) -> Result<Option<Calibrated>, String> {
    if logs.is_empty() {
        return Ok(None);
    }
    let tables: Vec<MeasuredTable> = described::run_of(logs)?.tables.iter().filter_map(measured).collect();
    let none = || {
        format!(
            "--calibrate {}: no table of nccl-tests on {} ranks or on whole hosts of {}; give logs of this cluster",
            described::names(logs),
            cluster.ranks(),
            cluster.gpus_per_node
        )
    };
    calibrate(cluster, &tables).map(Some).ok_or_else(none)
}

fn measured(table: &BenchTable) -> Option<MeasuredTable> {
    let time = |row: &BenchRow| {
        let half = row.halves().next()?;
        (row.size.0 > 0 && half.time.0 > 0.0).then_some((row.size, half.time))
    };
    Some(MeasuredTable {
        collective: table.collective?,
        ranks: table.nranks? as usize,
        rows: table.rows.iter().filter_map(time).collect(),
    })
}
