//! Who is let in, who is not, and what is left open.

use super::*;
use std::io::{Read, Write};

#[test]
fn strangers_are_dropped_and_disturb_nobody() {
    let net = net(config(0, 2));
    let mut listener = net.listen(0).unwrap();
    let address = listener.handle().address();
    let silent = TcpStream::connect(address).unwrap();
    let mut garbage = TcpStream::connect(address).unwrap();
    garbage.write_all(&[b'G'; 100]).unwrap();
    drop(TcpStream::connect(address).unwrap());
    let mut forged = listener.handle().to_bytes();
    forged[Handle::SIZE - 1] ^= 1;
    let mut connecting = net.connect(0, &Handle::from_bytes(&forged).unwrap(), 9).unwrap();
    let outsider = until(|| {
        assert!(listener.accept().unwrap().is_none());
        connecting.poll().err()
    });
    assert!(outsider.to_string().starts_with(&format!("{address} closed the connection")), "{outsider}");

    let mut connecting = net.connect(0, &listener.handle(), 42).unwrap();
    let (mut send, mut receive) = join(&mut connecting, &mut listener);
    carry(&mut send, &mut receive, &[8, 1 << 20], 0);

    until(|| {
        assert!(listener.accept().unwrap().is_none());
        (listener.strangers().count() == 6).then_some(())
    });
    let lines = listener.strangers().lines(Instant::now() + Duration::from_secs(1)).join("\n");
    for why in ["it speaks another protocol", "it closed before it said who it is", "it does not have the token"] {
        assert!(lines.contains(why), "{lines}");
    }
    assert!(lines.ends_with("dropped 3 more connections: 3 from 127.0.0.1"), "{lines}");
    assert_eq!(garbage.read(&mut [0; 1]).unwrap_or(0), 0);
    drop(silent);
}

#[test]
fn nobody_listening_is_an_error_that_names_the_address() {
    let net = net(Config::default());
    let listener = net.listen(0).unwrap();
    let handle = listener.handle();
    drop(listener);
    let error = match net.connect(0, &handle, 0) {
        Ok(mut connecting) => until(|| connecting.poll().err()),
        Err(error) => error,
    };
    let says = format!("connect to {} from lo (127.0.0.1): Connection refused", handle.address());
    assert!(error.to_string().starts_with(&says), "{error}");
    assert!(net.listen(1).is_err());
}

/// Runs a test of this file in a process of its own: true there, where it is to go on.
fn alone(test: &str) -> bool {
    const ALONE: &str = "BUSBW_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let own = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("tcp::tests::listening::{test}"), "--test-threads", "1", "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    assert!(own.status.success(), "{}", String::from_utf8_lossy(&own.stderr));
    false
}

#[test]
fn leaks_no_descriptor() {
    // Other tests open descriptors at the same time.
    if !alone("leaks_no_descriptor") {
        return;
    }
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    for round in 0..1000 {
        let net = net(config(round % 2, 2));
        let (mut send, mut receive) = pair(&net);
        if round % 100 == 0 {
            carry(&mut send, &mut receive, &[8, 100_000], 0);
        }
        assert!(open() > before);
    }
    assert_eq!(open(), before);
}

#[test]
fn a_listener_that_is_short_of_descriptors_says_so() {
    // The limit is that of a process.
    if !alone("a_listener_that_is_short_of_descriptors_says_so") {
        return;
    }
    let net = net(config(0, 16));
    let mut listener = net.listen(0).unwrap();
    let silent = TcpStream::connect(listener.handle().address()).unwrap();
    let mut connecting = net.connect(0, &listener.handle(), 42).unwrap();
    let open = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, open + 5, open + 5).unwrap();
    let error = until(|| {
        assert!(connecting.poll().unwrap().is_none());
        listener.accept().err()
    });
    let error = error.to_string();
    assert!(error.contains("ulimit -n") && error.contains("Too many open files"), "{error}");
    // Whoever says nothing goes first, and whoever has proven that it holds the token never.
    let line = format!("dropped a connection from {}: too many others wait to be let in", silent.local_addr().unwrap());
    assert_eq!(listener.strangers().lines(Instant::now()), [line]);
}
