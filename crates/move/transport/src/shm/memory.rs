//! Anonymous memory files and their mappings.

use super::available::available_bytes;
use crate::{Error, Result};
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Alignment of mappings of at least this size, so that they can hold huge pages.
const HUGE_PAGE: usize = 2 << 20;
const PAGE: usize = 4096;
/// Bytes that are touched before it is asked again how much memory there is: other ranks allocate at the same time.
const POPULATE_STEP: usize = 64 << 20;
/// Less than this is taken without asking.
const WORTH_ASKING: usize = 1 << 20;

/// A memory file mapped into this process, readable and writable, with its pages present.
pub struct Mapping {
    address: *mut u8,
    bytes: usize,
    reserved: *mut libc::c_void,
    reserved_bytes: usize,
    file: OwnedFd,
}

// SAFETY: a mapping is memory that belongs to no thread; who reads and writes it when is up to its users' unsafe code.
unsafe impl Send for Mapping {}
// SAFETY: as above; the mapping itself does not change between its creation and its end.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// New zeroed memory of at least `bytes` bytes. Lack of memory is an error here, never a signal later.
    pub fn create(bytes: usize) -> Result<Self> {
        let doing = || format!("allocate {bytes} bytes of shared memory");
        let system = |source: nix::Error| Error::system(doing(), source.into());
        let unit = if bytes >= HUGE_PAGE { HUGE_PAGE } else { PAGE };
        let size = bytes.max(1).checked_next_multiple_of(unit).and_then(|size| i64::try_from(size).ok());
        let size = size.ok_or_else(|| system(nix::Error::ENOMEM))?;
        let file = memfd_create(c"busbw", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).map_err(system)?;
        let may = |bytes: usize| match available_bytes().filter(|_| bytes >= WORTH_ASKING) {
            Some(most) if bytes > most => {
                let remedy = "use smaller buffers, or fewer ranks on this host";
                Err(Error::Config(format!("{}: only {most} more bytes can be had; {remedy}", doing())))
            }
            _ => Ok(()),
        };
        may(size as usize)?;
        nix::unistd::ftruncate(&file, size).map_err(system)?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(system)?;
        let mapping = Self::map(file, size as usize, doing)?;
        mapping.populate(doing, may)?;
        // Called after the first touch under MADV_HUGEPAGE: this call alone would populate small pages only.
        fallocate(&mapping.file, FallocateFlags::empty(), 0, size).map_err(system)?;
        Ok(mapping)
    }

    /// Maps memory that a peer has created and passed on.
    pub(super) fn adopt(file: OwnedFd, bytes: usize, peer: &str) -> Result<Self> {
        let doing = || format!("map {bytes} bytes of the memory of {peer}");
        let stat = nix::sys::stat::fstat(&file).map_err(|source| Error::system(doing(), source.into()))?;
        // Memory that its owner could shorten would end this process by SIGBUS.
        let seals = fcntl(&file, FcntlArg::F_GET_SEALS).map_err(|source| Error::system(doing(), source.into()))?;
        let stays = SealFlag::from_bits_truncate(seals).contains(SealFlag::F_SEAL_SHRINK);
        if stays && usize::try_from(stat.st_size).is_ok_and(|size| bytes > 0 && bytes <= size) {
            let mapping = Self::map(file, bytes, doing)?;
            mapping.populate(doing, |_| Ok(()))?;
            return Ok(mapping);
        }
        Err(Error::Protocol {
            peer: peer.into(),
            what: format!("memory of {} bytes as {bytes}, or that can shrink", stat.st_size),
        })
    }

    fn map(file: OwnedFd, bytes: usize, doing: impl Fn() -> String) -> Result<Self> {
        let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { PAGE };
        let reserved_bytes = bytes + align;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping without access at an address of the kernel's choice touches no memory in use.
        let reserved = unsafe { libc::mmap(std::ptr::null_mut(), reserved_bytes, libc::PROT_NONE, flags, -1, 0) };
        if reserved == libc::MAP_FAILED {
            return Err(Error::last_os(doing()));
        }
        let address = (reserved as usize).next_multiple_of(align) as *mut libc::c_void;
        let mapping = Mapping { address: address.cast(), bytes, reserved, reserved_bytes, file };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: the range lies within the reservation above, which nothing else uses.
        let mapped = unsafe { libc::mmap(address, bytes, access, flags, mapping.file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(Error::last_os(doing()));
        }
        if bytes >= HUGE_PAGE {
            // SAFETY: advice on our own mapping; huge pages are a favour, and small ones do where they are refused.
            unsafe { libc::madvise(address, bytes, libc::MADV_HUGEPAGE) };
        }
        Ok(mapping)
    }

    /// Touches all pages, step by step, each if `may` allows that many bytes.
    fn populate(&self, doing: impl Fn() -> String, may: impl Fn(usize) -> Result<()>) -> Result<()> {
        for from in (0..self.bytes).step_by(POPULATE_STEP) {
            let step = POPULATE_STEP.min(self.bytes - from);
            may(step)?;
            // SAFETY: within our own mapping; populating reports lack of memory where touching would raise SIGBUS.
            if unsafe { libc::madvise(self.address.add(from).cast(), step, libc::MADV_POPULATE_WRITE) } != 0 {
                let error = std::io::Error::last_os_error();
                // EINVAL: a kernel before 5.14, where the first touch does it.
                if error.raw_os_error() != Some(libc::EINVAL) {
                    return Err(Error::system(doing(), error));
                }
            }
        }
        Ok(())
    }

    /// The first byte; aligned to a page, and to 2 MiB from that size up.
    pub fn address(&self) -> *mut u8 {
        self.address
    }

    /// Bytes that are mapped.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The file behind the memory; the mapping shows it from its beginning.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the reservation is ours, and holders of pointers into it keep the mapping alive.
        unsafe { libc::munmap(self.reserved, self.reserved_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_aligned_and_shared_with_who_maps_the_file() {
        for (bytes, align) in [(1, 4096), (4097, 4096), (3 << 20, 2 << 20)] {
            let mapping = Mapping::create(bytes).unwrap();
            assert_eq!(mapping.address() as usize % align, 0, "{bytes}");
            let other = Mapping::adopt(mapping.fd().try_clone_to_owned().unwrap(), bytes, "rank 1").unwrap();
            // SAFETY: both mappings hold at least `bytes` bytes.
            unsafe {
                assert_eq!(*mapping.address().add(bytes - 1), 0);
                *mapping.address().add(bytes - 1) = 7;
                assert_eq!(*other.address().add(bytes - 1), 7);
            }
        }
    }

    #[test]
    fn lack_of_memory_is_an_error() {
        for bytes in [usize::MAX, usize::MAX / 2, 1 << 50] {
            let error = Mapping::create(bytes).err().unwrap().to_string();
            assert!(error.starts_with(&format!("allocate {bytes} bytes of shared memory: ")), "{error}");
        }
    }

    #[test]
    fn a_file_smaller_than_was_said_is_refused() {
        let mapping = Mapping::create(4096).unwrap();
        let error = Mapping::adopt(mapping.fd().try_clone_to_owned().unwrap(), 8192, "rank 1").err().unwrap();
        assert!(matches!(error, Error::Protocol { .. }), "{error}");
    }
}
