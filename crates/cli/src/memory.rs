//! The allocator: mimalloc, and one clear line instead of a crash where memory is used up.
//!
//! Reading a log makes millions of small allocations in several threads, which the system's allocator serves at half the speed.
//! Rust ends a process that gets no memory with a signal and a backtrace; on a login node with a limit (`ulimit -v`, a cgroup)
//! that looks like a fault of busbw.

#![allow(unsafe_code)] // an allocator is made of unsafe functions

use mimalloc::MiMalloc;
use nix::libc::{_exit, RLIM_INFINITY, c_int, c_long};
use nix::sys::resource::{Resource, getrlimit};
use std::alloc::{GlobalAlloc, Layout};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of logs that this process reads; it needs up to `MOST` times as much, where every line is about another rank.
static READS: AtomicU64 = AtomicU64::new(0);
const MOST: u64 = 20;
/// What it needs for the smallest: threads' stacks, blocks under way.
const LEAST: u64 = 128 << 20;

/// Tells how much is going to be read.
pub fn reads(bytes: u64) {
    READS.store(bytes, Ordering::Relaxed);
    keep_one_arena();
    keep_pages();
}

unsafe extern "C" {
    /// mimalloc.h; its crate offers this with a further dependency only.
    fn mi_option_set(option: c_int, value: c_long);
}

/// A reader takes memory until it ends. Pages that mimalloc gives back on the way come back as zeros, which took the kernel a third of a second per gigabyte.
fn keep_pages() {
    /// `mi_option_purge_delay`, in milliseconds; below zero none is given back.
    const PURGE_DELAY: c_int = 15;
    // SAFETY: sets a number in mimalloc, which is linked in.
    unsafe { mi_option_set(PURGE_DELAY, -1) };
}

/// A thread that starts registers its destructors in memory of glibc's own, and glibc ends the process with words of its own where it gets none.
/// It would take an arena of 64 MiB for each thread, or under a limit of memory a page from the kernel; the first arena has room for all.
#[cfg(target_env = "gnu")]
fn keep_one_arena() {
    // SAFETY: sets a number in glibc.
    unsafe { nix::libc::mallopt(nix::libc::M_ARENA_MAX, 1) };
}

#[cfg(not(target_env = "gnu"))]
fn keep_one_arena() {}

/// mimalloc that says so when there is nothing left.
pub struct Allocator;

// SAFETY: every function hands its arguments to mimalloc's of the same name, and gives back what that gave.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: mimalloc asks of its caller what `GlobalAlloc` asks of ours.
        given(unsafe { MiMalloc.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: mimalloc asks of its caller what `GlobalAlloc` asks of ours.
        given(unsafe { MiMalloc.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: mimalloc asks of its caller what `GlobalAlloc` asks of ours.
        given(unsafe { MiMalloc.realloc(block, layout, size) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: mimalloc asks of its caller what `GlobalAlloc` asks of ours.
        unsafe { MiMalloc.dealloc(block, layout) }
    }
}

/// The block, or the end of the process with status 2, as for any other input that cannot be read.
fn given(block: *mut u8) -> *mut u8 {
    if block.is_null() {
        end();
    }
    block
}

/// Says so once, without allocating, and without what `exit` would still run: that may ask for memory, too.
#[cold]
fn end() -> ! {
    static ENDS: AtomicBool = AtomicBool::new(false);
    while ENDS.swap(true, Ordering::Relaxed) {
        std::thread::sleep(Duration::from_secs(1));
    }
    let mut line = [0; 512];
    let mut rest = &mut line[..];
    // A line that does not fit is cut.
    let _ = tell(&mut rest);
    let length = 512 - rest.len();
    let _ = std::io::stderr().write_all(&line[..length]);
    // SAFETY: ends the process, whatever state it is in.
    unsafe { _exit(2) }
}

fn tell(line: &mut impl Write) -> std::io::Result<()> {
    write!(line, "busbw: out of memory")?;
    let limit = getrlimit(Resource::RLIMIT_AS).map_or(RLIM_INFINITY, |(limit, _)| limit);
    if limit != RLIM_INFINITY {
        write!(line, ": it may take {} MiB (`ulimit -v`)", limit >> 20)?;
    }
    let reads = READS.load(Ordering::Relaxed);
    if reads > 0 {
        let most = LEAST + MOST * reads;
        write!(line, "; reading {} MiB takes {} to {} MiB", reads.div_ceil(1 << 20), LEAST >> 20, most >> 20)?;
    }
    writeln!(line, ". Raise the limit, or give it fewer files at once")
}
