//! Where trials are kept: an SQLite database in a folder, with the log of every trial beside it. Every change is one
//! transaction that is on disk before the next trial starts, so a kill at any moment loses at most the trials under way.

use rusqlite::{Connection, OptionalExtension, Row, params};
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The layout of the tables; a store of another layout is refused.
const LAYOUT: &str = "busbw.tune-store/1";

/// Trials of one space and command.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    database: Connection,
    /// Held as long as the store is open: two sweeps would start the same trials. The system lets go when the process ends.
    _lock: Lock,
}

/// Which trial of the sweep: a setting runs once in a round. Round 0 is warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub round: u32,
    pub setting: usize,
}

/// How a trial ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Value(f64),
    /// It ended well, but its output holds no value.
    NoValue(String),
    Failed(String),
    TimedOut(Duration),
}

impl Outcome {
    /// The value, which only a trial that ended well has.
    pub fn value(&self) -> Option<f64> {
        match self {
            Outcome::Value(value) => Some(*value),
            Outcome::NoValue(_) | Outcome::Failed(_) | Outcome::TimedOut(_) => None,
        }
    }

    /// Why there is no value, where there is none.
    pub fn failure(&self) -> Option<String> {
        match self {
            Outcome::Value(_) => None,
            Outcome::NoValue(reason) | Outcome::Failed(reason) => Some(reason.clone()),
            Outcome::TimedOut(limit) => Some(format!("took more than {} s", limit.as_secs_f64())),
        }
    }
}

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{}: {source}; choose another place with --store", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{}: {source}; if it is damaged, move it away and begin again", path.display())]
    Database { path: PathBuf, source: rusqlite::Error },
    #[error("{}: another busbw tune is running there; wait for it, or choose another place with --store", .0.display())]
    InUse(PathBuf),
    #[error(
        "{}: holds trials of another {what}; repeat that command to continue it, or choose another place with --store",
        path.display()
    )]
    Foreign {
        path: PathBuf,
        /// What differs: `command`, `space`.
        what: String,
    },
}

/// What keeps others out. A program that another thread is about to start holds a copy of every open file until it runs, so
/// closing this one would not be enough.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Where that fails, closing the file unlocks it a moment later.
        let _ = self.0.unlock();
    }
}

impl Store {
    /// Opens the store of a folder, made anew where there is none. `identity` says of what it holds the trials: names and
    /// texts, all of which must be those that it was made with.
    pub fn open(folder: &Path, identity: &[(&str, String)]) -> Result<Self, StoreError> {
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |source| StoreError::File { path, source }
        };
        fs::create_dir_all(folder).map_err(failed(folder))?;
        // Jobs on other nodes need absolute paths to files in the store.
        let folder = folder.canonicalize().map_err(failed(folder))?;
        let lock_path = folder.join("lock");
        let lock = File::options().create(true).append(true).open(&lock_path).map_err(failed(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::InUse(folder)),
            Err(TryLockError::Error(source)) => return Err(StoreError::File { path: lock_path, source }),
        }
        let lock = Lock(lock);
        let path = folder.join("trials.sqlite");
        let database = Connection::open(&path).map_err(|source| StoreError::Database { path, source })?;
        let store = Store { folder, database, _lock: lock };
        store.prepare()?;
        store.identify(identity)?;
        Ok(store)
    }

    /// The folder of a trial's files.
    pub fn trial_folder(&self, key: Key) -> PathBuf {
        self.folder.join(format!("round-{}-setting-{}", key.round, key.setting))
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Notes that a trial starts.
    pub fn begin(&self, key: Key) -> Result<(), StoreError> {
        self.execute(
            "INSERT OR REPLACE INTO trial (round, setting, state) VALUES (?1, ?2, 'running')",
            params![key.round, key.setting as i64],
        )
    }

    /// Notes under which Slurm job a trial runs.
    pub fn submitted(&self, key: Key, job: u64) -> Result<(), StoreError> {
        self.execute(
            "UPDATE trial SET job = ?3 WHERE round = ?1 AND setting = ?2",
            params![key.round, key.setting as i64, job as i64],
        )
    }

    /// Notes that the Slurm job of a trial was cancelled before it ended.
    pub fn cancelled(&self, key: Key) -> Result<(), StoreError> {
        self.execute(
            "UPDATE trial SET job = NULL WHERE round = ?1 AND setting = ?2",
            params![key.round, key.setting as i64],
        )
    }

    /// The Slurm job of a trial that was under way when the sweep was interrupted.
    pub fn job_under_way(&self, key: Key) -> Result<Option<u64>, StoreError> {
        let found = self.database.query_row(
            "SELECT job FROM trial WHERE round = ?1 AND setting = ?2 AND state = 'running' AND job IS NOT NULL",
            params![key.round, key.setting as i64],
            |row| row.get::<_, i64>(0),
        );
        Ok(found.optional().map_err(|source| self.failed(source))?.map(|job| job as u64))
    }

    /// Notes how a trial ended.
    pub fn finish(&self, key: Key, outcome: &Outcome) -> Result<(), StoreError> {
        let (state, value, reason) = match outcome {
            Outcome::Value(value) => ("done", Some(*value), None),
            Outcome::NoValue(reason) => ("no-value", None, Some(reason.clone())),
            Outcome::Failed(reason) => ("failed", None, Some(reason.clone())),
            Outcome::TimedOut(limit) => ("timed-out", Some(limit.as_secs_f64()), None),
        };
        self.execute(
            "UPDATE trial SET state = ?3, value = ?4, reason = ?5 WHERE round = ?1 AND setting = ?2",
            params![key.round, key.setting as i64, state, value, reason],
        )
    }

    /// How a trial ended, if it has.
    pub fn outcome(&self, key: Key) -> Result<Option<Outcome>, StoreError> {
        let found = self.database.query_row(
            "SELECT state, value, reason FROM trial WHERE round = ?1 AND setting = ?2 AND state != 'running'",
            params![key.round, key.setting as i64],
            read_outcome,
        );
        found.optional().map_err(|source| self.failed(source))
    }

    fn prepare(&self) -> Result<(), StoreError> {
        // A write-ahead log needs shared memory, which network file systems of clusters do not have: the plain journal does not.
        let sql = "PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL;
            CREATE TABLE IF NOT EXISTS identity (name TEXT PRIMARY KEY, value TEXT NOT NULL);
            CREATE TABLE IF NOT EXISTS trial (
                round INTEGER NOT NULL, setting INTEGER NOT NULL, state TEXT NOT NULL,
                value REAL, reason TEXT, job INTEGER, PRIMARY KEY (round, setting));";
        self.database.execute_batch(sql).map_err(|source| self.failed(source))
    }

    fn identify(&self, identity: &[(&str, String)]) -> Result<(), StoreError> {
        let identity = identity.iter().map(|(name, value)| (*name, value.as_str())).chain([("layout", LAYOUT)]);
        for (name, value) in identity {
            self.execute("INSERT OR IGNORE INTO identity (name, value) VALUES (?1, ?2)", params![name, value])?;
            let known = self.database.query_row("SELECT value FROM identity WHERE name = ?1", [name], |row| row.get(0));
            let known: String = known.map_err(|source| self.failed(source))?;
            if known != value {
                return Err(StoreError::Foreign { path: self.folder.clone(), what: name.to_string() });
            }
        }
        Ok(())
    }

    fn execute(&self, sql: &str, values: impl rusqlite::Params) -> Result<(), StoreError> {
        self.database.execute(sql, values).map(|_| ()).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: rusqlite::Error) -> StoreError {
        StoreError::Database { path: self.folder.join("trials.sqlite"), source }
    }
}

fn read_outcome(row: &Row) -> rusqlite::Result<Outcome> {
    let state: String = row.get(0)?;
    Ok(match state.as_str() {
        "done" => Outcome::Value(row.get(1)?),
        "no-value" => Outcome::NoValue(row.get(2)?),
        "timed-out" => Outcome::TimedOut(Duration::try_from_secs_f64(row.get(1)?).unwrap_or_default()),
        _ => Outcome::Failed(row.get(2)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(command: &str) -> Vec<(&'static str, String)> {
        vec![("command", command.to_string())]
    }

    #[test]
    fn trials_are_there_again_after_reopening() {
        let folder = tempfile::tempdir().unwrap();
        let keys = [0, 1, 2, 3, 4].map(|setting| Key { round: 1, setting });
        let ends = [
            Outcome::Value(3.25),
            Outcome::NoValue("nothing in the output".into()),
            Outcome::Failed("exit status 3".into()),
            Outcome::TimedOut(Duration::from_secs(9)),
        ];
        let store = Store::open(folder.path(), &identity("train")).unwrap();
        for (key, end) in keys.iter().zip(&ends) {
            store.begin(*key).unwrap();
            store.finish(*key, end).unwrap();
        }
        store.begin(keys[4]).unwrap();
        store.submitted(keys[4], 42).unwrap();
        drop(store);
        let store = Store::open(folder.path(), &identity("train")).unwrap();
        for (key, end) in keys.iter().zip(&ends) {
            assert_eq!(store.outcome(*key).unwrap().as_ref(), Some(end));
        }
        assert_eq!((store.outcome(keys[4]).unwrap(), store.job_under_way(keys[4]).unwrap()), (None, Some(42)));
        store.cancelled(keys[4]).unwrap();
        assert_eq!((store.outcome(keys[4]).unwrap(), store.job_under_way(keys[4]).unwrap()), (None, None));
    }

    #[test]
    fn a_store_of_something_else_or_in_use_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), &identity("train")).unwrap();
        assert!(matches!(Store::open(folder.path(), &identity("train")), Err(StoreError::InUse(_))));
        drop(store);
        let error = Store::open(folder.path(), &identity("other")).unwrap_err().to_string();
        assert!(error.contains("trials of another command"), "{error}");
    }
}
