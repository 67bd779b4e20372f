//! The files with what was found, in the store's folder.

use super::Tune;
use crate::output::say;
use crate::tuning_file;
use busbw_model::{Bytes, Tuning, TuningTable};
use busbw_tune::outputs::{Scope, command_lines, environment, nccl_conf, tuner_csv};
use busbw_tune::runner::{LOG, Workload};
use std::fs;
use std::path::Path;

/// The largest size that the tuner plugin's README gives for "all sizes".
const ALL_SIZES: Bytes = Bytes(4_294_967_295);

/// Writes the files and says on standard error which. Where nothing beats the default they set nothing, and say why.
pub fn write(
    flags: &Tune,
    folder: &Path,
    workload: &Workload,
    tuning: &Tuning,
    table: Option<&TuningTable>,
) -> Result<(), String> {
    if tuning.trials.failed > 0 {
        say(format_args!("what the trials that failed printed is in {}/*/{LOG}", folder.display()));
    }
    let Some(choice) = tuning.choice() else { return Ok(()) };
    // A result measured at one size is valid for that size only.
    let (from, to) = flags.size().map_or((Bytes(0), ALL_SIZES), |size| (size, size));
    let scope = Scope { collective: flags.collective(), from, to, nodes: None, ranks: None };
    let files = [
        ("best.env", Some(environment(choice, &tuning.summary))),
        ("nccl.conf", Some(nccl_conf(choice, &tuning.summary))),
        ("commands.txt", Some(command_lines(workload, choice))),
        ("nccl_tuner.conf", tuner_csv(choice, scope)),
    ];
    let mut written = Vec::new();
    for (name, text) in files.into_iter().filter_map(|(name, text)| Some((name, text?))) {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        written.push(name);
    }
    if let Some(table) = table {
        let path = folder.join("tuning.toml");
        let origin = format!("Tuning table found by busbw tune with: {}", tuning.command);
        tuning_file::write(&path, table, &origin, &told(table, &path))?;
    }
    let (folder, written) = (folder.display(), written.join(", "));
    if choice.is_default() {
        say(format_args!(
            "no setting is significantly better than the default: the files in {folder} set nothing: {written}"
        ));
    } else {
        say(format_args!("the best setting is in {folder}: {written}"));
    }
    Ok(())
}

/// What a tuning table is for, in a sentence.
fn told(table: &TuningTable, path: &Path) -> String {
    let path = path.display();
    match table.choices.len() {
        0 => format!(
            "size by size no algorithm is faster than the default for sure: {path} has no choice (with --exhaustive, every setting is measured often enough to tell)"
        ),
        1 => format!(
            "at some sizes an algorithm is faster than the default: 1 choice in {path} (BUSBW_TUNING_TABLE={path})"
        ),
        n => format!("size by size there are {n} choices faster than the default: {path} (BUSBW_TUNING_TABLE={path})"),
    }
}
