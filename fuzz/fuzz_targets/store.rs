//! Any bytes as the database of `busbw tune`'s store, which lies on a disk that others may write to.

#![no_main]

use busbw_tune::store::{Key, Store};
use libfuzzer_sys::fuzz_target;
use std::path::PathBuf;

/// In memory, so that the disk does not matter.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let folder = Folder(PathBuf::from(format!("/dev/shm/busbw-fuzz-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).expect("a folder in memory");
    std::fs::write(folder.0.join("trials.sqlite"), bytes).expect("a file in memory");
    let Ok(store) = Store::open(&folder.0, &[("command", "train".into()), ("space", "default".into())]) else { return };
    for key in (0..3).flat_map(|round| (0..4).map(move |setting| Key { round, setting })) {
        let _ = (store.outcome(key), store.job_under_way(key));
        let _ = store.begin(key);
    }
});
