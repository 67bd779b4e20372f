//! What a process finds around it when it loads a tuner or profiler: a table, a place for events, or something that went wrong with either.

use std::io;
use std::path::Path;
use tempfile::TempDir;

/// Variables that name a tuner's table: busbw's, and that of NCCL's example (`plugins/tuner/example/plugin.c`).
const TABLES: [&str; 2] = ["BUSBW_TUNING_TABLE", "NCCL_TUNER_CONFIG_FILE"];

/// The table of NCCL's example, which busbw reads too: collective, sizes, algorithm, protocol, channels, nodes, ranks, operations,
/// registered.
const OWN_MACHINE: &str = "allreduce,0,65536,tree,simple,3,2,16,-1,-1\n";
const OTHER_MACHINE: &str = "allreduce,0,4294967295,tree,simple,3,999,7992,-1,-1\n";
/// A table that was cut while it was written.
const DAMAGED: &str = "format = \"busbw.tuning/1\"\n\n[[choice]]\ncollective = \"all_red";

/// What is to be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Surroundings {
    /// What the user has.
    AsTheyAre,
    /// A table for the communicator that is played (16 ranks on 2 nodes).
    OwnTable,
    /// A variable with the name of a table that is not there.
    MissingTable,
    DamagedTable,
    OthersTable,
    /// A folder for events.
    Folder,
    /// A variable with the name of a folder that is not there.
    MissingFolder,
}

/// Surroundings as long as it lives.
pub(crate) struct Made {
    _folder: Option<TempDir>,
    pub variables: Vec<(String, String)>,
}

impl Surroundings {
    /// Makes them: the variables that the process is given.
    pub fn make(self) -> io::Result<Made> {
        if self == Surroundings::AsTheyAre {
            return Ok(Made { _folder: None, variables: Vec::new() });
        }
        let folder = tempfile::Builder::new().prefix("busbw-plugin-").tempdir()?;
        let table = folder.path().join("table.toml");
        let variables = match self {
            Surroundings::AsTheyAre => Vec::new(),
            Surroundings::OwnTable => table_of(&table, Some(OWN_MACHINE))?,
            Surroundings::MissingTable => table_of(&table, None)?,
            Surroundings::DamagedTable => table_of(&table, Some(DAMAGED))?,
            Surroundings::OthersTable => table_of(&table, Some(OTHER_MACHINE))?,
            Surroundings::Folder => events_in(folder.path()),
            Surroundings::MissingFolder => events_in(&folder.path().join("none")),
        };
        Ok(Made { _folder: Some(folder), variables })
    }
}

fn table_of(path: &Path, content: Option<&str>) -> io::Result<Vec<(String, String)>> {
    content.map_or(Ok(()), |content| std::fs::write(path, content))?;
    Ok(TABLES.map(|name| (name.to_owned(), path.display().to_string())).into())
}

/// What has profilers ask for events, and write them into a folder: busbw's, NCCL's example and NCCL's inspector
/// (`plugins/profiler/example/plugin.cc:269`, `plugins/profiler/inspector/inspector.cc:827`, 2.30.7).
fn events_in(folder: &Path) -> Vec<(String, String)> {
    let folder = folder.display().to_string();
    let variables = [
        ("BUSBW_PROFILE", folder.clone()),
        ("NCCL_PROFILE_EVENT_MASK", "8191".to_owned()),
        ("NCCL_PROFILE_DUMP_FILE", format!("{folder}/events")),
        ("NCCL_INSPECTOR_ENABLE", "1".to_owned()),
        ("NCCL_INSPECTOR_DUMP_DIR", folder),
    ];
    variables.map(|(name, value)| (name.to_owned(), value)).into()
}
