//! Network lines: bootstrap interface, plugins, HCAs and socket interfaces.

use crate::cursor::{Cursor, text};
use busbw_model::{NetworkStatement, Nic};
use std::net::IpAddr;

/// What a network line says: `NET/IB : Using [0]mlx5_0:1/RoCE ; OOB eth0:10.0.0.1<0>` → network `IB`, its NICs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NetLine {
    pub network: String,
    pub statement: NetworkStatement,
}

/// Reads a network line, or gives `None` for other messages.
pub(crate) fn read(message: &[u8]) -> Option<NetLine> {
    let said = |network: &str, statement| Some(NetLine { network: network.to_string(), statement });
    let mut at = Cursor::new(message);
    for chosen in [&b"Using network "[..], b"Assigned NET plugin "] {
        if at.eat(chosen) {
            // A quote is of what holds the line.
            let name = text(at.take_while(|b| b != b'"').trim_ascii());
            return said(name.strip_suffix(" to comm").unwrap_or(&name), NetworkStatement::Chosen);
        }
    }
    if at.eat(b"Bootstrap") {
        at.spaces();
        at.expect(b":")?;
        at.spaces();
        at.expect(b"Using")?;
        return said("Bootstrap", NetworkStatement::Using(nics(&text(at.rest()), "Socket")));
    }
    if at.eat(b"NET : Using interface ") {
        // NCCL 2.3 and 2.4: a line for each interface.
        return said("Socket", NetworkStatement::Using(nics(&text(at.rest()), "Socket")));
    }
    at.expect(b"NET/")?;
    if at.rest().first().is_some_and(u8::is_ascii_digit) {
        return None; // `NET/0 :GPU/B000 (…)`: a path of the machine's dump
    }
    let network = text(at.take_while(|b| b.is_ascii_alphanumeric() || b == b'_'));
    at.spaces();
    at.eat(b":");
    at.spaces();
    if at.rest().starts_with(b"Using")
        && !at.rest().starts_with(b"Using interface")
        && matches!(network.as_str(), "IB" | "Socket")
    {
        at.eat(b"Using");
        let list = text(at.rest());
        let list = list.split(';').next().unwrap_or_default().replace("[RO]", "");
        let found = nics(&list, &network);
        if !found.is_empty() {
            return said(&network, NetworkStatement::Using(found));
        }
        // "Using [RO]; OOB eth0…" after "No device found" means no device.
        let nothing = if network == "IB" { NetworkStatement::NoDevice } else { NetworkStatement::Note(list) };
        return said(&network, nothing);
    }
    if at.rest().starts_with(b"No device found") {
        return said(&network, NetworkStatement::NoDevice);
    }
    said(&network, NetworkStatement::Note(text(at.rest().trim_ascii_end())))
}

/// Reads a list of NICs: `[0]mlx5_0:1/IB/SHARP [1]mlx5_1:1/RoCE`, `[0]={[0] nicA:1/RoCE, [1] nicB:1/RoCE}` (merged
/// NICs, which keep the outer index), `[0]eth0:10.0.0.1<0>`, `eth0:10.0.0.1<0>`.
fn nics(list: &str, network: &str) -> Vec<Nic> {
    let mut found = Vec::new();
    let mut index = None;
    let mut merged = false;
    for word in list.split([' ', ',', '\t']) {
        let mut rest = word;
        while let Some((number, after)) = rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
            if !merged {
                index = number.parse().ok();
            }
            rest = after;
        }
        if let Some(after) = rest.strip_prefix("={") {
            merged = true;
            rest = after.rsplit(']').next().unwrap_or_default();
        }
        let ends = rest.ends_with('}');
        if let Some(nic) = nic(rest.trim_end_matches('}'), network, index) {
            found.push(nic);
        }
        merged &= !ends;
    }
    found
}

fn nic(word: &str, network: &str, index: Option<u32>) -> Option<Nic> {
    let word = word.trim();
    if let Some(address_end) = word.find('<') {
        // The interface's own name may hold a colon (`hsn0:chn:10.0.0.1<0>`), and so may an IPv6 address.
        let before = &word[..address_end];
        let is_address = |text: &str| text.split('%').next().is_some_and(|ip| ip.parse::<IpAddr>().is_ok());
        let split = before.match_indices(':').map(|(at, _)| at).find(|at| is_address(&before[at + 1..]));
        let (name, address) = split.map_or((before, None), |at| (&before[..at], Some(before[at + 1..].to_string())));
        let name_fits = !name.is_empty() && !name.contains(['<', '>']);
        return name_fits.then(|| Nic {
            index,
            name: name.to_string(),
            port: None,
            link: Some("Socket".into()),
            address,
        });
    }
    if network != "IB" {
        return None;
    }
    let (name, rest) = word.split_once(':')?;
    let (port, link) = rest.split_once('/')?;
    let link = link.split('/').next().unwrap_or(link);
    let fits = !name.is_empty() && matches!(link, "IB" | "RoCE");
    fits.then_some(())?;
    Some(Nic {
        index,
        name: name.to_string(),
        port: Some(port.parse().ok()?),
        link: Some(link.to_string()),
        address: None,
    })
}
