//! A tree with `/sys` and `/proc` in it: this machine's, or one that was captured.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Files of sysfs and procfs are small; the largest that is read is a list of processes' sockets or a kernel's log.
const MOST: u64 = 4 << 20;

/// The tree that facts are read from. Paths inside it are given as on a live machine: `/sys/class/net`.
#[derive(Debug, Clone)]
pub struct Root {
    /// None is this machine.
    captured: Option<PathBuf>,
}

impl Root {
    pub fn live() -> Self {
        Root { captured: None }
    }

    /// A captured tree. No path and no link in it leads outside.
    ///
    /// # Errors
    /// `directory` cannot be read or is no directory.
    pub fn captured(directory: &Path) -> io::Result<Self> {
        let captured = directory.canonicalize()?;
        captured.read_dir()?;
        Ok(Root { captured: Some(captured) })
    }

    /// Whether this is the machine that busbw runs on, so that programs and libraries can be asked too.
    pub fn is_live(&self) -> bool {
        self.captured.is_none()
    }

    /// Where `path` lies.
    ///
    /// # Errors
    /// There is no such thing, or a link of a captured tree leads outside.
    fn locate(&self, path: &str) -> io::Result<PathBuf> {
        let Some(captured) = &self.captured else { return Ok(PathBuf::from(path)) };
        let real = captured.join(path.trim_start_matches('/')).canonicalize()?;
        if real.starts_with(captured) {
            Ok(real)
        } else {
            Err(io::Error::new(io::ErrorKind::NotFound, format!("{path} leads out of {}", captured.display())))
        }
    }

    /// A file, to be read.
    pub fn open(&self, path: &str) -> io::Result<File> {
        File::open(self.locate(path)?)
    }

    /// What a file holds.
    ///
    /// # Errors
    /// As [`Root::read`].
    pub fn bytes(&self, path: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open(path)?.take(MOST).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// What a file holds, without white space at its ends; what is not UTF-8 is replaced.
    ///
    /// # Errors
    /// It is not there, may not be read, or the driver behind it says no, as `speed` does of a link that is down.
    pub fn read(&self, path: &str) -> io::Result<String> {
        let bytes = self.bytes(path)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// What a file holds, where it can be read and holds anything.
    pub fn value(&self, path: &str) -> Option<String> {
        self.read(path).ok().filter(|text| !text.is_empty())
    }

    /// The number that a file holds, where it does.
    pub fn number<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.value(path)?.parse().ok()
    }

    /// The names in a directory, sorted, numbers by value (`eth2` before `eth10`); empty where there is none.
    pub fn list(&self, path: &str) -> Vec<String> {
        let entries = self.locate(path).and_then(std::fs::read_dir);
        let names = entries.into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort_by_cached_key(|name| natural(name));
        names
    }

    /// The last name of what a link points to: `driver -> ../../bus/pci/drivers/mlx5_core` is `mlx5_core`.
    pub fn link_name(&self, path: &str) -> Option<String> {
        let target = match &self.captured {
            None => std::fs::read_link(path),
            Some(captured) => std::fs::read_link(captured.join(path.trim_start_matches('/'))),
        };
        Some(target.ok()?.file_name()?.to_str()?.to_owned())
    }

    /// Where `path` leads when all links are followed, as a path inside the tree.
    pub fn resolve(&self, path: &str) -> Option<String> {
        let real = self.locate(path).and_then(|path| path.canonicalize()).ok()?;
        let inside = match &self.captured {
            None => real.as_path(),
            Some(captured) => real.strip_prefix(captured).ok()?,
        };
        Some(format!("/{}", inside.to_str()?.trim_start_matches('/')))
    }

    /// Whether there is such a thing.
    /// Whether it is a file of bytes, and no folder or pipe.
    pub fn is_file(&self, path: &str) -> bool {
        self.locate(path).is_ok_and(|path| path.is_file())
    }

    pub fn exists(&self, path: &str) -> bool {
        self.locate(path).is_ok_and(|path| path.exists())
    }
}

/// A key that sorts numbers inside names by value.
fn natural(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(digits);
        let end = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
        let (number, behind) = behind.split_at(end);
        parts.push((word.to_owned(), number.parse().unwrap_or(0)));
        rest = behind;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_captured_tree_is_read_as_a_live_one_and_nothing_outside() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        for device in ["eth10", "eth2"] {
            std::fs::create_dir_all(tree.join("sys/devices/pci0").join(device)).unwrap();
        }
        std::fs::create_dir_all(tree.join("sys/class/net")).unwrap();
        std::fs::write(tree.join("sys/devices/pci0/eth2/mtu"), "9000\n").unwrap();
        symlink("../../devices/pci0/eth2", tree.join("sys/class/net/eth2")).unwrap();
        std::fs::write(folder.path().join("secret"), "42\n").unwrap();
        symlink("../../secret", tree.join("sys/secret")).unwrap();
        symlink("/etc/hostname", tree.join("sys/hostname")).unwrap();

        let root = Root::captured(&tree).unwrap();
        assert!(!root.is_live());
        assert_eq!(root.number::<u32>("/sys/class/net/eth2/mtu"), Some(9000));
        assert_eq!(root.list("/sys/devices/pci0"), ["eth2", "eth10"]);
        assert_eq!(root.link_name("/sys/class/net/eth2").as_deref(), Some("eth2"));
        assert_eq!(root.resolve("/sys/class/net/eth2").as_deref(), Some("/sys/devices/pci0/eth2"));
        for outside in ["/sys/secret", "/sys/hostname", "/../secret", "/sys/../../secret"] {
            assert_eq!(root.value(outside), None, "{outside}");
            assert!(!root.exists(outside), "{outside}");
        }
        assert!(Root::captured(&tree.join("absent")).is_err());
        assert!(Root::captured(&folder.path().join("secret")).is_err());
    }

    #[test]
    fn a_live_tree_is_this_machine() {
        let root = Root::live();
        assert!(root.is_live() && root.exists("/proc/self"));
        assert_eq!(root.number::<u32>("/proc/self/stat"), None);
        assert!(root.value("/proc/self/status").unwrap().starts_with("Name:"));
        assert!(root.list("/absent").is_empty());
    }
}
