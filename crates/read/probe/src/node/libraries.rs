//! NCCL's libraries and CUDA's toolkits: where, which version.

use crate::Root;
use busbw_model::node::Library;
use memchr::memmem;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;

/// Folders where distributions, NVIDIA's packages, containers and HPC SDKs put libnccl.so.2.
const FOLDERS: [&str; 9] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/local/cuda/lib64",
    "/usr/local/nccl/lib",
];
/// Folders with Python versions below, whose packages (`nvidia-nccl-cu12`) bring their own.
const PYTHONS: [&str; 3] = ["/usr/lib", "/usr/local/lib", "/opt/conda/lib"];
/// What NCCL has in its binary (`src/init.cc`: VERSION_STRING).
const VERSION: &[u8] = b"NCCL version ";
/// NCCL's library has some 300 MB; nothing that is larger is one.
const LARGEST: u64 = 2 << 30;

/// NCCL's libraries, each once, in the order in which the loader and then Python would find them.
pub(super) fn nccl(root: &Root) -> Vec<Library> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for folder in folders(root) {
        let path = format!("{folder}/libnccl.so.2");
        let Some(real) = root.resolve(&path).filter(|real| seen.insert(real.clone())) else { continue };
        let (version, cuda) = root.open(&real).ok().and_then(version_inside).unwrap_or_default();
        found.push(Library { path, version: version.or_else(|| version_of_name(&real)), cuda });
    }
    found
}

fn folders(root: &Root) -> Vec<String> {
    let mut folders: Vec<String> = Vec::new();
    if root.is_live() {
        let path = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
        folders.extend(path.split(':').filter(|folder| folder.starts_with('/')).map(str::to_owned));
    }
    folders.extend(configured(root));
    folders.extend(FOLDERS.map(str::to_owned));
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(|name| std::env::var(name).ok());
    let own = environments.filter(|_| root.is_live()).map(|folder| format!("{folder}/lib"));
    for folder in own.chain(PYTHONS.map(str::to_owned)) {
        for python in root.list(&folder).into_iter().filter(|name| name.starts_with("python3")) {
            for packages in ["site-packages", "dist-packages"] {
                folders.push(format!("{folder}/{python}/{packages}/nvidia/nccl/lib"));
            }
        }
    }
    folders
}

/// Folders that the loader's configuration names.
fn configured(root: &Root) -> Vec<String> {
    const FOLDER: &str = "/etc/ld.so.conf.d";
    let files = root.list(FOLDER);
    let texts = files.iter().filter_map(|file| root.value(&format!("{FOLDER}/{file}")));
    let lines = texts.flat_map(|text| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>());
    lines.filter(|line| line.starts_with('/')).collect()
}

/// `libnccl.so.2.21.5`.
fn version_of_name(path: &str) -> Option<String> {
    let (_, version) = path.rsplit_once(".so.")?;
    version.contains('.').then(|| version.to_owned())
}

/// The version of NCCL and of the CUDA that it was built for: `NCCL version 2.21.5+cuda12.4`.
fn version_inside(file: File) -> Option<(Option<String>, Option<String>)> {
    const BLOCK: usize = 1 << 20;
    /// A text that begins at the end of a block is read again with the next.
    const OVERLAP: usize = 64;
    let mut file = file.take(LARGEST);
    let (mut block, mut kept) = (vec![0; BLOCK + OVERLAP], 0);
    let finder = memmem::Finder::new(VERSION);
    loop {
        let read = file.read(&mut block[kept..]).ok()?;
        let filled = &block[..kept + read];
        let found = finder.find_iter(filled).find_map(|at| parse_version(&filled[at + VERSION.len()..]));
        if found.is_some() || read == 0 {
            return found;
        }
        let from = filled.len().saturating_sub(OVERLAP);
        kept = filled.len() - from;
        block.copy_within(from..from + kept, 0);
    }
}

/// A text that goes on beyond the block is looked at again.
fn parse_version(bytes: &[u8]) -> Option<(Option<String>, Option<String>)> {
    let end = bytes.iter().position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'.' | b'+' | b'-')))?;
    let text = std::str::from_utf8(&bytes[..end]).ok().filter(|text| text.starts_with(|c: char| c.is_ascii_digit()))?;
    let (version, build) = text.split_once('+').unwrap_or((text, ""));
    Some((Some(version.to_owned()), build.strip_prefix("cuda").map(str::to_owned)))
}

pub(super) fn cuda(root: &Root) -> Vec<Library> {
    let mut seen = BTreeSet::new();
    let names = root.list("/usr/local").into_iter().filter(|name| name.starts_with("cuda"));
    let toolkits = names.filter_map(|name| {
        let path = format!("/usr/local/{name}");
        let version = root.value(&format!("{path}/version.json"))?;
        root.resolve(&path).filter(|real| seen.insert(real.clone()))?;
        let version: serde_json::Value = serde_json::from_str(&version).ok()?;
        let version = version["cuda"]["version"].as_str()?.to_owned();
        Some(Library { path, version: Some(version), cuda: None })
    });
    toolkits.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wherever the text lies, also across two blocks.
    #[test]
    fn the_version_is_found_in_the_binary() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libnccl.so.2");
        for at in [0, 1000, (1 << 20) - 7, (1 << 20) + 50, (2 << 20) + 11] {
            let mut bytes = vec![0x90_u8; 3 << 20];
            bytes[at..at + 29].copy_from_slice(b"NCCL version 2.21.5+cuda12.4\0");
            std::fs::write(&path, bytes).unwrap();
            let found = version_inside(File::open(&path).unwrap());
            assert_eq!(found, Some((Some("2.21.5".into()), Some("12.4".into()))), "{at}");
        }
        std::fs::write(&path, b"NCCL version %d").unwrap();
        assert_eq!(version_inside(File::open(&path).unwrap()), None);
    }

    #[test]
    fn a_version_may_be_in_the_name() {
        assert_eq!(version_of_name("/usr/lib/libnccl.so.2.21.5").as_deref(), Some("2.21.5"));
        assert_eq!(version_of_name("/usr/lib/libnccl.so.2"), None);
    }
}
