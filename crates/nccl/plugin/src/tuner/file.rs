//! The tuning table of this process: found and read once, and told in NCCL's log.

use super::Chosen;
use crate::log;
use busbw_model::{TunedChoice, TunedOperation, TuningTable, counted};
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The variable that names the table.
const VARIABLE: &str = TuningTable::VARIABLE;
/// More than any table has: what is larger is another file.
const MOST_BYTES: u64 = 16 << 20;
/// `NCCL_CTA_POLICY_EFFICIENCY` (`src/nccl.h.in`, 2.30): a bit.
const EFFICIENCY: u32 = 1;

/// The table, and what was told of it.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    table: TuningTable,
    /// What each choice means to NCCL: names are read once, not for every collective.
    meant: Vec<Option<Chosen>>,
    /// Where it was found, with its hash.
    source: String,
    told: Mutex<Told>,
}

/// What the log has.
#[derive(Debug, Default)]
struct Told {
    /// By ranks and nodes.
    communicators: HashSet<(u32, u32)>,
    /// By number, and whether it was followed.
    choices: HashSet<(usize, bool)>,
}

/// The table of this process: the job's, as long as it runs.
pub(super) fn loaded() -> &'static Loaded {
    static LOADED: OnceLock<Loaded> = OnceLock::new();
    LOADED.get_or_init(|| {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        match set(VARIABLE) {
            Some(path) => read(Path::new(&path)).unwrap_or_else(|| {
                log::tuner_warn(&format!("{VARIABLE}={path}: no such file; NCCL's own choices hold"));
                Loaded::default()
            }),
            None => TuningTable::places(&set).iter().find_map(|path| read(path)).unwrap_or_default(),
        }
    })
}

/// Reads a table; `None` where there is no such file. What cannot be read is told, and is empty.
fn read(path: &Path) -> Option<Loaded> {
    let bytes = match bytes(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => return Some(unusable(path, &error.to_string())),
    };
    let hash: String = Sha256::digest(&bytes).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let text = String::from_utf8_lossy(&bytes);
    Some(match TuningTable::parse(&text) {
        Ok(table) => {
            let source = format!("{} (sha256 {hash})", path.display());
            log::tuner_info(&format!("{} of {source}", counted(table.choices.len(), "choice")));
            let meant = table.choices.iter().map(Chosen::of).collect();
            Loaded { table, meant, source, ..Loaded::default() }
        }
        Err(error) => unusable(path, &error.to_string()),
    })
}

fn unusable(path: &Path, reason: &str) -> Loaded {
    log::tuner_warn(&format!("{}: {reason}; NCCL's own choices hold", path.display()));
    Loaded::default()
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    // To open a pipe would keep NCCL waiting for who writes into it.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("this is no file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(io::Error::other("this is too large for a tuning table"));
    }
    Ok(bytes)
}

/// Whether NCCL would choose NVLS for registered buffers where no tuner is loaded (`ncclGetAlgoInfo`, `src/enqueue.cc`, 2.27 to
/// 2.30): as far as the environment says so. An application's `ncclConfig_t` is not shown to a tuner.
pub(super) fn asks_for_efficiency() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some();
    let policy = std::env::var("NCCL_CTA_POLICY").ok().and_then(|policy| policy.trim().parse::<u32>().ok());
    policy.is_some_and(|policy| policy & EFFICIENCY != 0) && !is_set("NCCL_ALGO") && !is_set("NCCL_PROTO")
}

impl Loaded {
    /// The choice for an operation, with its place in the table, and what it means to NCCL.
    pub fn choose(&self, operation: &TunedOperation) -> Option<(usize, &TunedChoice, Option<Chosen>)> {
        let (number, choice) = self.table.choose(operation)?;
        Some((number, choice, self.meant.get(number).copied().flatten()))
    }

    /// Says once how many choices are for communicators of this size.
    pub fn tell_of(&self, ranks: u32, nodes: u32) {
        let choices = &self.table.choices;
        let told = &mut *self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if choices.is_empty() || !told.communicators.insert((ranks, nodes)) {
            return;
        }
        let valid = choices.iter().filter(|choice| choice.is_of(ranks, nodes) && choice.is_proven()).count();
        let nodes = counted(nodes as usize, "node");
        log::tuner_info(&format!(
            "{valid} of {} choices are for {ranks} ranks on {nodes}: {}",
            choices.len(),
            self.source
        ));
    }

    /// Says once that a choice is followed, or that NCCL cannot carry it out here.
    pub fn tell_use(&self, number: usize, choice: &TunedChoice, followed: bool) {
        let told = &mut *self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if !told.choices.insert((number, followed)) {
            return;
        }
        let protocol = choice.protocol.map_or(String::new(), |protocol| format!(" {protocol}"));
        let what = format!("{} from {} goes by {}{protocol}", choice.collective, choice.from, choice.algorithm);
        let gain = match choice.gain_percent {
            Some([least, most]) => format!("measured {least:.1} to {most:.1}% faster"),
            None => "without figures in the table".to_owned(),
        };
        let number = number + 1;
        if followed {
            log::tuner_info(&format!("choice {number}: {what}, {gain}"));
        } else {
            log::tuner_info(&format!("choice {number} is not followed: NCCL cannot do it here ({what})"));
        }
    }
}
