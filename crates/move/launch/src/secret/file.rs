//! A token in a file of mode 0600 in the user's home directory.

use crate::derive::{self, Words};
use crate::error::SET_TOKEN;
use crate::{Error, Lookup, Result};
use busbw_transport::Token;
use nix::sys::statfs::statfs;
use nix::unistd::{AccessFlags, access, geteuid};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// File systems that hosts share, by what statfs says of them: AFS, kAFS, CephFS, CIFS, NFS, OCFS2, SMB2 (Linux' magic.h), BeeGFS, GFS2,
/// GPFS, Lustre, OrangeFS, PanFS (coreutils' stat.c). Not FUSE, which serves local ones too.
const SHARED: [u32; 13] = [
    0x5346_414f,
    0x6b41_4653,
    0x00c3_6400,
    0xff53_4d42,
    0x6969,
    0x7461_636f,
    0xfe53_4d42,
    0x1983_0326,
    0x0116_1970,
    0x4750_4653,
    0x0bd0_0bd0,
    0x2003_0528,
    0xaad7_aaea,
];

/// What a file's name begins with until it is whole.
const TEMPORARY: &str = ".busbw-";
/// A file as old as this is of no job that still waits for ranks: that takes minutes.
const LEFT_BEHIND: Duration = Duration::from_secs(24 * 60 * 60);

/// The folder of such files, if all ranks of the job see it: each rank finds the same.
pub(super) fn folder(look: Lookup, one_host: bool) -> Option<PathBuf> {
    let home = look("HOME").filter(|home| home.starts_with('/')).map(PathBuf::from);
    let home = home.or_else(|| Some(nix::unistd::User::from_uid(geteuid()).ok()??.dir))?;
    let folder = home.join(".cache/busbw/jobs");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).ok()?;
    let seen = one_host || is_shared(&folder);
    let ours = is_private(&std::fs::metadata(&folder).ok()?, 0o022);
    (seen && ours && access(&folder, AccessFlags::W_OK | AccessFlags::X_OK).is_ok()).then_some(folder)
}

/// What the job's file is called. Jobs of two hosts may have the same public words (a number of `sbatch`'s on each of two
/// clusters, `torchrun --standalone`) and one home: where all ranks are on one host, that host is in the name. It is the kernel that
/// counts, not [`host::id`](crate::host::id), which ranks of one host may have been told to differ in.
pub(super) fn name(words: &Words, one_host: bool) -> String {
    match crate::host::boot().filter(|_| one_host) {
        Some(boot) => format!("{}-{:016x}", words.name(), derive::number(&boot)),
        None => words.name(),
    }
}

/// Whether a file in the folder may be one of ours: [`name`], or its first name, which tempfile makes.
fn is_ours(name: &str) -> bool {
    name.starts_with(TEMPORARY)
        || name.len() >= 2 * Token::SIZE && name.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// Takes away what killed jobs have left. Ages are by the clock of the file system, which may be another host's.
fn sweep(folder: &Path, now: SystemTime) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)?.flatten() {
        // Of a link itself, not of what it names.
        let Ok(metadata) = entry.metadata() else { continue };
        let age = metadata.modified().ok().and_then(|then| now.duration_since(then).ok());
        let old = age.is_some_and(|age| age > LEFT_BEHIND);
        if old && metadata.is_file() && is_private(&metadata, 0o077) && entry.file_name().to_str().is_some_and(is_ours)
        {
            // Another job may have taken it away in this moment.
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(())
}

fn is_shared(folder: &Path) -> bool {
    // Of another type on each architecture, and with a sign on some.
    statfs(folder).is_ok_and(|told| SHARED.contains(&(told.filesystem_type().0 as u32)))
}

/// Whether it is this user's, and others have none of these permissions.
fn is_private(metadata: &std::fs::Metadata, permissions: u32) -> bool {
    metadata.uid() == geteuid().as_raw() && metadata.mode() & permissions == 0
}

/// A file that rank 0 has written. It is taken away when this is dropped, unless another job has replaced it.
pub(crate) struct TokenFile {
    path: PathBuf,
    token: Token,
}

impl TokenFile {
    /// Writes the file beside its place and renames it: what a killed job has left is replaced, and nobody reads half a token.
    pub fn write(path: &Path, token: Token) -> Result<Self> {
        let write = || {
            let folder = path.parent().unwrap_or(Path::new("/"));
            // Of mode 0600, and new.
            let mut file = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(folder)?;
            writeln!(file, "{token}")?;
            let file = file.persist(path).map_err(|error| error.error)?;
            // Whoever's files they are, this job's own is written.
            let _ = file.metadata().and_then(|metadata| sweep(folder, metadata.modified()?));
            Ok(())
        };
        write().map_err(|error: std::io::Error| {
            Error::Join(format!("rank 0 cannot write this job's token to {} ({error}): {SET_TOKEN}", path.display()))
        })?;
        Ok(TokenFile { path: path.to_owned(), token })
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        if read(&self.path).is_ok_and(|token| token.matches(self.token.as_bytes())) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The token that rank 0 wrote.
pub(super) fn read(path: &Path) -> Result<Token> {
    let cannot = |problem: String| {
        Error::Join(format!(
            "rank 0 has written this job's token to {}, and this rank cannot read it there ({problem}): all hosts must share this home \
             directory, and all ranks this user; or {SET_TOKEN}",
            path.display()
        ))
    };
    // An NFS client keeps for up to a minute what it knows of a directory, and that a name was not there, unless somebody opens the
    // directory (nfs(5), "Directory entry caching" and "Close-to-open cache consistency").
    drop(path.parent().map(std::fs::read_dir));
    let mut open = std::fs::OpenOptions::new();
    let file = open
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .map_err(|e| cannot(e.to_string()))?;
    let metadata = file.metadata().map_err(|e| cannot(e.to_string()))?;
    if !metadata.is_file() || !is_private(&metadata, 0o077) {
        return Err(cannot("it is not this user's alone".into()));
    }
    let mut text = String::new();
    let digits = 2 * Token::SIZE as u64;
    file.take(digits).read_to_string(&mut text).map_err(|e| cannot(e.to_string()))?;
    text.parse().map_err(|_| cannot("it holds no token".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_private_replaces_what_was_left_and_goes_with_its_job() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job");
        std::fs::write(&path, "left behind").unwrap();
        let (first, second) = (Token::random().unwrap(), Token::random().unwrap());
        let kept = TokenFile::write(&path, first).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(read(&path).unwrap().matches(first.as_bytes()));
        // Another job of the same words: its file stays when the first one goes.
        let newer = TokenFile::write(&path, second).unwrap();
        drop(kept);
        assert!(read(&path).unwrap().matches(second.as_bytes()));
        drop(newer);
        assert!(!path.exists());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn jobs_of_one_host_have_its_name_in_the_file_s() {
        let words = Words::of(&|name| (name == "SLURM_JOB_ID").then(|| "7".to_owned()), derive::SLURM);
        let host = format!("{:016x}", derive::number(&crate::host::boot().unwrap()));
        assert_eq!(name(&words, true), format!("{}-{host}", words.name()));
        assert_eq!(name(&words, false), words.name());
        assert!([true, false].into_iter().all(|one_host| is_ours(&name(&words, one_host))));
    }

    #[test]
    fn what_killed_jobs_left_goes_after_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let digits = "0123456789abcdef0123456789abcdef";
        let hours = |hours: u64| SystemTime::now() - Duration::from_secs(hours * 60 * 60);
        for (name, mode, age, stays) in [
            (digits.to_owned(), 0o600, 25, false),
            (format!("{digits}-0123456789abcdef"), 0o600, 25, false),
            (".busbw-abcdef".into(), 0o600, 25, false),
            (digits.replace('0', "1"), 0o600, 23, true),
            (digits.replace('0', "2"), 0o644, 25, true),
            ("notes".into(), 0o600, 25, true),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, "left behind").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            std::fs::File::options().write(true).open(&path).unwrap().set_modified(hours(age)).unwrap();
            drop(TokenFile::write(&folder.path().join("job"), Token::random().unwrap()).unwrap());
            assert_eq!(path.exists(), stays, "{}", path.display());
        }
    }

    #[test]
    fn a_file_that_others_could_have_made_or_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job");
        let token = Token::random().unwrap();
        let refused = |why: &str| {
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(path.to_str().unwrap()) && error.contains(why), "{error}");
            assert!(error.contains("BUSBW_TOKEN="), "{error}");
        };
        refused("No such file");
        std::fs::write(&path, token.to_string()).unwrap();
        for mode in [0o644, 0o660] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            refused("not this user's alone");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(read(&path).unwrap().matches(token.as_bytes()));
        let elsewhere = folder.path().join("elsewhere");
        std::fs::rename(&path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        refused("symbolic links");
        std::fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        refused("not this user's alone");
    }

    #[test]
    fn the_folder_is_used_where_every_rank_sees_it() {
        let home = tempfile::tempdir().unwrap();
        let at = home.path().to_str().unwrap().to_owned();
        let look = |name: &str| (name == "HOME").then(|| at.clone());
        let folder_of_one_host = folder(&look, true).unwrap();
        assert_eq!(folder_of_one_host, home.path().join(".cache/busbw/jobs"));
        // A file system of this host.
        assert_eq!(folder(&look, false), None);
        std::fs::set_permissions(&folder_of_one_host, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(folder(&look, true), None);
        assert_eq!(folder(&|name| (name == "HOME").then(|| "/proc".to_owned()), true), None);
    }
}
