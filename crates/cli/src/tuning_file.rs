//! The file of a tuning table that a command was asked for.

use crate::output::say;
use busbw_model::TuningTable;
use clap::{Args, ValueHint};
use std::fs;
use std::path::{Path, PathBuf};

/// Where a tuning table goes
#[derive(Args)]
pub struct TuningFile {
    /// Write a tuning table for NCCL's tuner plugin and busbw bench: what gains by another algorithm, size by size
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    tuning_table: Option<PathBuf>,
}

impl TuningFile {
    pub fn path(&self) -> Option<&Path> {
        self.tuning_table.as_deref()
    }
}

/// Writes a table with where it comes from in its head, and says on standard error what is in it.
pub fn write(path: &Path, table: &TuningTable, origin: &str, told: &str) -> Result<(), String> {
    let about = format!("{origin}\nFor NCCL's tuner plugin and busbw bench: {}=this file", TuningTable::VARIABLE);
    fs::write(path, table.to_toml(&about)).map_err(|e| format!("{}: {e}", path.display()))?;
    say(format_args!("{told}"));
    Ok(())
}
