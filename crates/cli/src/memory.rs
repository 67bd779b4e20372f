//! The allocator: mimalloc, and one clear line instead of a crash where memory is used up.
//!
//! Reading a log makes millions of small allocations in several threads, which the system's allocator serves at half the speed.
//! Rust ends a process that gets no memory with a signal and a backtrace; on a login node with a limit (`ulimit -v`, a cgroup)
//! that looks like a fault of busbw.

#![allow(unsafe_code)] // an allocator is made of unsafe functions

use mimalloc::MiMalloc;
use std::alloc::{GlobalAlloc, Layout};
use std::io::Write;

/// What is said, without allocating.
const OUT_OF_MEMORY: &[u8] =
    b"busbw: out of memory. Give it fewer files at once, or raise the limit: `ulimit -v unlimited`\n";

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
        let _ = std::io::stderr().write_all(OUT_OF_MEMORY);
        std::process::exit(2);
    }
    block
}
