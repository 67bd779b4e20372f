//! Any bytes as what peers hand each other through strangers: the handle of a listener, and the names of hosts.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = busbw_transport::tcp::Handle::from_bytes(data);
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = busbw_model::HostList::parse(text).map(|list| list.names(text));
    }
});
