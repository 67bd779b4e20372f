//! The tuning table that NCCL's tuner plugin finds here (docs/plugin.md).

use super::environment::process;
use crate::Root;
use busbw_model::TuningTable;
use busbw_model::node::TuningTableFile;
use sha2::{Digest, Sha256};
use std::io;

/// The table that a variable names, or else the first that lies where tables are looked for.
pub(super) fn collect(root: &Root) -> Option<TuningTableFile> {
    let environment = process(root);
    let variable = |name: &str| environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    if let Some(path) = variable(TuningTable::VARIABLE).filter(|path| !path.trim().is_empty()) {
        return Some(read(root, &path));
    }
    let places = TuningTable::places(&variable);
    let place = places.iter().filter_map(|place| place.to_str()).find(|place| root.exists(place))?;
    Some(read(root, place))
}

fn read(root: &Root, path: &str) -> TuningTableFile {
    let mut found = TuningTableFile { path: path.to_owned(), ..TuningTableFile::default() };
    match bytes(root, path) {
        Ok(bytes) => {
            found.sha256 = Some(Sha256::digest(&bytes).iter().take(6).map(|byte| format!("{byte:02x}")).collect());
            match TuningTable::parse(&String::from_utf8_lossy(&bytes)) {
                Ok(table) => found.choices = Some(table.choices.len()),
                Err(error) => found.problem = Some(error.to_string()),
            }
        }
        Err(error) => found.problem = Some(error.to_string()),
    }
    found
}

fn bytes(root: &Root, path: &str) -> io::Result<Vec<u8>> {
    // To open a pipe would wait for who writes into it.
    if root.exists(path) && !root.is_file(path) {
        return Err(io::Error::other("this is no file"));
    }
    root.bytes(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_table_is_found_where_the_tuner_finds_it() {
        let tree = tempfile::tempdir().unwrap();
        let file = |path: &str, text: &str| {
            let path = tree.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let root = Root::captured(tree.path()).unwrap();
        assert_eq!(collect(&root), None);
        // As `printf 'allreduce,0,65536,tree,ll,-1,2,16\n' | sha256sum` says.
        file("/etc/busbw/tuning.toml", "allreduce,0,65536,tree,ll,-1,2,16\n");
        let found = collect(&root).unwrap();
        let expected = ("/etc/busbw/tuning.toml", Some("1198154ed01d"), Some(1), None);
        assert_eq!((found.path.as_str(), found.sha256.as_deref(), found.choices, found.problem), expected);
        for (environment, path, problem) in [
            ("HOME=/home/a\0", "/home/a/.config/busbw/tuning.toml", "line 1: "),
            ("HOME=/home/a\0BUSBW_TUNING_TABLE=/none\0", "/none", "No such file"),
            ("BUSBW_TUNING_TABLE=/etc\0", "/etc", "this is no file"),
        ] {
            file("/home/a/.config/busbw/tuning.toml", "allreduce,0\n");
            file("/proc/self/environ", environment);
            let found = collect(&root).unwrap();
            assert_eq!(found.path, path);
            assert!(found.problem.as_deref().unwrap_or_default().starts_with(problem), "{found:?}");
        }
    }
}
