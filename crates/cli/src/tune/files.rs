//! The files with the best setting, in the store's folder.

use super::Tune;
use crate::output::say;
use busbw_model::Bytes;
use busbw_tune::outputs::{Scope, command_lines, environment, nccl_conf, tuner_csv};
use busbw_tune::runner::Workload;
use busbw_tune::space::Setting;
use std::fs;
use std::path::Path;

/// The largest size that the tuner plugin's README gives for "all sizes".
const ALL_SIZES: Bytes = Bytes(4_294_967_295);

/// Writes the files and says on standard error which.
pub fn write(flags: &Tune, folder: &Path, workload: &Workload, best: &Setting) -> Result<(), String> {
    // A result measured at one size is valid for that size only.
    let (from, to) = flags.size().map_or((Bytes(0), ALL_SIZES), |size| (size, size));
    let scope = Scope { collective: flags.collective, from, to, nodes: None, ranks: None };
    let files = [
        ("best.env", Some(environment(best))),
        ("nccl.conf", Some(nccl_conf(best))),
        ("commands.txt", Some(command_lines(workload, best))),
        ("nccl_tuner.conf", tuner_csv(best, scope)),
    ];
    let mut written = Vec::new();
    for (name, text) in files.into_iter().filter_map(|(name, text)| Some((name, text?))) {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        written.push(name);
    }
    say(format_args!("the best setting is in {}: {}", folder.display(), written.join(", ")));
    Ok(())
}
