//! Any bytes as the answers of a launcher that speaks PMI-1 or PMI-2; the first byte chooses.

#![no_main]

use busbw_launch::{Discovery, exchange};
use libfuzzer_sys::fuzz_target;
use std::io::Write;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

fuzz_target!(|bytes: &[u8]| {
    let Some((which, answers)) = bytes.split_first() else { return };
    let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
    // What does not fit the socket is cut off.
    theirs.set_nonblocking(true).expect("a socket that does not block");
    let _ = theirs.write(answers);
    theirs.shutdown(Shutdown::Write).expect("an end");
    let fd = ours.as_raw_fd();
    let discovery = if which % 2 == 0 { Discovery::Pmi1 { fd } } else { Discovery::Pmi2 { fd, job: "7.0".into() } };
    if let Err(refused) = exchange(&discovery, 0, Some("10.0.0.1:7/ab"), Instant::now() + Duration::from_secs(5)) {
        assert!(!refused.to_string().is_empty(), "a refusal says why");
    }
});
