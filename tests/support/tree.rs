//! Captured trees of /sys and /proc, kept as one text each (tests/data/trees), unpacked where a test may change them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Where access control lies in a configuration space that `acs HEX` stands for.
const ACS_AT: usize = 0x148;

/// A tree on disk; gone when dropped.
pub struct Tree(TempDir);

impl Tree {
    /// Unpacks `tests/data/trees/NAME.tree`.
    pub fn unpack(name: &str) -> Self {
        let tree = Tree(tempfile::tempdir().expect("a temporary folder can be made"));
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/trees").join(format!("{name}.tree"));
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            match (line.split_once(" -> "), line.split_once(" =")) {
                (Some((link, target)), _) => {
                    let link = tree.place(link);
                    symlink(target, &link).unwrap_or_else(|error| panic!("{}: {error}", link.display()));
                }
                (None, Some((file, text))) => tree.write(file, text.trim_start()),
                _ => panic!("{}: {line}", path.display()),
            }
        }
        tree
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file of the tree, `\n` and `\t` spelled out; `acs HEX` is a configuration space.
    pub fn write(&self, file: &str, text: &str) {
        let bytes = match text.strip_prefix("acs ") {
            Some(control) => configuration(control),
            None => format!("{}\n", text.replace("\\n", "\n").replace("\\t", "\t")).into_bytes(),
        };
        let place = self.place(file);
        fs::write(&place, bytes).unwrap_or_else(|error| panic!("{}: {error}", place.display()));
    }

    /// Removes a file or folder of the tree.
    pub fn remove(&self, file: &str) {
        let place = self.place(file);
        let removed =
            if place.is_dir() && !place.is_symlink() { fs::remove_dir_all(&place) } else { fs::remove_file(&place) };
        removed.unwrap_or_else(|error| panic!("{}: {error}", place.display()));
    }

    fn place(&self, file: &str) -> PathBuf {
        let place = self.path().join(file.trim_start_matches('/'));
        let folder = place.parent().expect("a file is in a folder");
        fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        place
    }
}

/// A configuration space whose list of extended capabilities is error reporting, then access control (0x000d).
fn configuration(control: &str) -> Vec<u8> {
    let control = u16::from_str_radix(control.trim(), 16).expect("four hexadecimal digits");
    let mut bytes = vec![0; 4096];
    bytes[0x100..0x104].copy_from_slice(&(0x0001_u32 | 1 << 16 | (ACS_AT as u32) << 20).to_le_bytes());
    bytes[ACS_AT..ACS_AT + 4].copy_from_slice(&(0x000d_u32 | 1 << 16).to_le_bytes());
    bytes[ACS_AT + 6..ACS_AT + 8].copy_from_slice(&control.to_le_bytes());
    bytes
}
