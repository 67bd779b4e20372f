//! Where libraries are looked for: a path that is given, the library path, CUDA's folders, Python's packages.

use crate::{Error, Result, python};
use busbw_model::NO_LIBRARIES;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CStr, OsStr, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Looks up a variable of the environment.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A library, and where it may be.
#[derive(Debug, Clone, Copy)]
pub struct LibraryNames {
    /// Its file names, the best first.
    pub names: &'static [&'static str],
    /// The variable that names a file, or a folder that has it.
    pub variable: &'static str,
    /// Variables that name a folder with `lib64` or `lib` in it.
    pub homes: &'static [&'static str],
    /// Folders, with `*` for any part of one name.
    pub folders: &'static [&'static str],
    /// Folders below Python's `site-packages`; empty where no package brings the library.
    pub packages: &'static [&'static str],
    pub remedy: &'static str,
}

/// A library that is open. It stays open to the end of the process: NCCL and CUDA have threads of their own.
#[derive(Debug)]
pub struct Opened {
    library: Library,
    path: PathBuf,
    remedy: &'static str,
}

impl LibraryNames {
    /// Opens the first that is there. `given` is a path that a flag names: then only that is tried.
    pub fn open(&self, given: Option<&Path>, variable: Lookup<'_>) -> Result<Opened> {
        if let Some(reason) = NO_LIBRARIES {
            return Err(Error::Static { name: self.names[0], reason });
        }
        let by_variable = || variable(self.variable).filter(|path| !path.is_empty()).map(PathBuf::from);
        if let Some(path) = given.map(Path::to_path_buf).or_else(by_variable) {
            // A name alone is a file here; the linker would look for it on the library path.
            return self.open_named(&std::path::absolute(&path).unwrap_or(path));
        }
        for name in self.names {
            if let Some(opened) = self.try_open(Path::new(name))? {
                return Ok(opened);
            }
        }
        // Looking into Python costs a process: last.
        for candidate in
            self.in_folders(variable).into_iter().chain(std::iter::once_with(|| self.in_python()).flatten())
        {
            if let Some(opened) = self.try_open(&candidate)? {
                return Ok(opened);
            }
        }
        Err(Error::Missing { name: self.names[0], searched: self.searched(), remedy: self.remedy })
    }

    fn open_named(&self, path: &Path) -> Result<Opened> {
        let file = match path.is_dir() {
            true => self.in_folder(path).into_iter().next(),
            false => Some(path.to_path_buf()).filter(|path| path.is_file()),
        };
        let missing = || Error::Unusable {
            path: path.to_path_buf(),
            reason: format!("no {} is there", self.names[0]),
            remedy: self.remedy,
        };
        let file = file.ok_or_else(missing)?;
        self.try_open(&file)?.ok_or_else(missing)
    }

    /// `None` when there is no such file; an error when there is one that cannot be opened.
    fn try_open(&self, path: &Path) -> Result<Option<Opened>> {
        // SAFETY: opening runs the constructors of NVIDIA's or AMD's libraries, which is what a program linked to them does.
        match unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) } {
            Ok(library) => {
                let mut opened = Opened { library, path: path.to_path_buf(), remedy: self.remedy };
                opened.path = opened.place(self.names[0]).unwrap_or(opened.path);
                Ok(Some(opened))
            }
            // By a bare name, the linker says the same of a file that is not there and of a missing dependency; the
            // folders that follow are asked for the file itself.
            Err(_) if !path.is_absolute() || !path.exists() => Ok(None),
            Err(error) => {
                let reason = error.to_string().replace('\n', " ");
                Err(Error::Unusable { path: path.to_path_buf(), reason, remedy: self.remedy })
            }
        }
    }

    fn in_folders(&self, variable: Lookup<'_>) -> Vec<PathBuf> {
        let homes =
            self.homes.iter().filter_map(|home| variable(home)).filter(|home| !home.is_empty()).map(PathBuf::from);
        let homes = homes.flat_map(|home| [home.join("lib64"), home.join("lib")]);
        let folders = homes.chain(self.folders.iter().flat_map(|pattern| matching(pattern)));
        folders.flat_map(|folder| self.in_folder(&folder)).collect()
    }

    fn in_python(&self) -> Vec<PathBuf> {
        if self.packages.is_empty() {
            return Vec::new();
        }
        let folders = python::site_packages().into_iter();
        let folders = folders.flat_map(|site| self.packages.iter().map(move |package| site.join(package)));
        folders.flat_map(|folder| self.in_folder(&folder)).collect()
    }

    fn in_folder(&self, folder: &Path) -> Vec<PathBuf> {
        self.names.iter().map(|name| folder.join(name)).filter(|file| file.exists()).collect()
    }

    fn searched(&self) -> String {
        let mut places = vec!["on the library path".to_string()];
        places.extend(self.folders.first().map(|folder| format!("in the usual folders ({folder} and others)")));
        if !self.packages.is_empty() {
            places.push("in the packages of PATH's python3".to_string());
        }
        match places.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            _ => places.concat(),
        }
    }
}

impl Opened {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A function, as `T`, which must be its type; `None` where the library has none of this name.
    ///
    /// # Safety
    /// `T` is a function pointer with the C function's signature.
    pub(crate) unsafe fn optional<T: Copy>(&self, name: &str) -> Option<T> {
        // SAFETY: the caller names the function's own type.
        unsafe { self.library.get::<T>(name).ok().map(|symbol| *symbol) }
    }

    /// As [`Opened::optional`].
    ///
    /// # Safety
    /// As of [`Opened::optional`].
    pub(crate) unsafe fn required<T: Copy>(&self, name: &'static str) -> Result<T> {
        let missing = || Error::Symbol { path: self.path.clone(), symbol: name, remedy: self.remedy };
        // SAFETY: the caller names the function's own type.
        unsafe { self.optional(name) }.ok_or_else(missing)
    }

    /// Where the linker found it, by a function that any such library has.
    fn place(&self, name: &str) -> Option<PathBuf> {
        let function = match name {
            name if name.starts_with("libnccl") || name.starts_with("librccl") => "ncclGetVersion",
            name if name.starts_with("libcuda") => "cuInit",
            name if name.starts_with("libamdhip64") => "hipInit",
            _ => "nvrtcVersion",
        };
        // SAFETY: only the address is used.
        let address: *const c_void = unsafe { self.optional(function)? };
        let mut info = libc::Dl_info {
            dli_fname: std::ptr::null(),
            dli_fbase: std::ptr::null_mut(),
            dli_sname: std::ptr::null(),
            dli_saddr: std::ptr::null_mut(),
        };
        // SAFETY: fills `info`; the name that it points to lives as long as the library.
        let found = unsafe { libc::dladdr(address, &mut info) } != 0 && !info.dli_fname.is_null();
        // SAFETY: as above.
        found.then(|| PathBuf::from(OsStr::from_bytes(unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes())))
    }
}

/// The folders that a pattern names, in the order of later versions first; `*` stands for any part of a name.
fn matching(pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from("/")];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let Some((before, behind)) = part.split_once('*') else {
            found.iter_mut().for_each(|folder| folder.push(part));
            continue;
        };
        let fits = |name: &str| {
            name.len() >= before.len() + behind.len() && name.starts_with(before) && name.ends_with(behind)
        };
        found = found
            .iter()
            .flat_map(|folder| {
                let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
                let mut names: Vec<PathBuf> = entries
                    .filter(|entry| entry.file_name().to_str().is_some_and(fits))
                    .map(|entry| entry.path())
                    .collect();
                names.sort_by(|a, b| b.cmp(a));
                names
            })
            .collect();
    }
    found.retain(|folder| folder.is_dir());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: LibraryNames = LibraryNames {
        names: &["libbusbw-no-such.so.2", "libbusbw-no-such.so"],
        variable: "NO_SUCH_LIBRARY",
        homes: &["NO_SUCH_HOME"],
        folders: &["/usr/local/busbw-no-such*/lib64"],
        packages: &[],
        remedy: "build it",
    };

    #[test]
    fn what_is_nowhere_is_told_with_the_remedy() {
        let error = WANTED.open(None, &|_| None).unwrap_err().to_string();
        assert_eq!(
            error,
            "libbusbw-no-such.so.2 was not found on the library path or in the usual folders \
             (/usr/local/busbw-no-such*/lib64 and others); build it"
        );
    }

    #[test]
    fn what_is_no_library_is_told_by_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lib64/libbusbw-no-such.so");
        std::fs::create_dir(folder.path().join("lib64")).unwrap();
        std::fs::write(&file, "no library").unwrap();
        let home = folder.path().display().to_string();
        let shown = file.display().to_string();
        let by_home = |name: &str| (name == "NO_SUCH_HOME").then(|| home.clone());
        let by_variable = |name: &str| (name == "NO_SUCH_LIBRARY").then(|| format!("{home}/lib64"));
        for error in [
            WANTED.open(None, &by_home).unwrap_err(),
            WANTED.open(None, &by_variable).unwrap_err(),
            WANTED.open(Some(&file), &|_| None).unwrap_err(),
        ] {
            let error = error.to_string();
            assert!(error.starts_with(&shown) && error.ends_with("build it"), "{error}");
        }
        let error = WANTED.open(Some(folder.path()), &|_| None).unwrap_err().to_string();
        assert!(error.contains("no libbusbw-no-such.so.2 is there"), "{error}");
    }

    #[test]
    fn a_name_alone_is_a_file_of_the_current_folder() {
        // Tests run in the crate's folder.
        let error = WANTED.open(Some(Path::new("Cargo.toml")), &|_| None).unwrap_err().to_string();
        let path = std::env::current_dir().unwrap().join("Cargo.toml");
        assert!(error.starts_with(&format!("{} cannot be opened: ", path.display())), "{error}");
        assert!(!error.contains("is there"), "{error}");
    }

    #[test]
    fn an_empty_variable_names_nothing() {
        let error = WANTED.open(None, &|_| Some(String::new())).unwrap_err();
        assert!(matches!(error, Error::Missing { .. }), "{error}");
    }

    #[test]
    fn patterns_find_later_versions_first() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["cuda-12.2/lib64", "cuda-12.4/lib64", "cuda-13.0", "other/lib64"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let found = matching(&format!("{}/cuda*/lib64", folder.path().display()));
        let wanted = ["cuda-12.4/lib64", "cuda-12.2/lib64"].map(|name| folder.path().join(name));
        assert_eq!(found, wanted);
    }
}
