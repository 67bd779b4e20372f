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
            let name = text(at.rest().trim_ascii());
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

#[cfg(test)]
mod tests {
    use super::*;

    fn names(line: &str) -> Vec<(Option<u32>, String, Option<String>)> {
        match read(line.as_bytes()).map(|l| l.statement) {
            Some(NetworkStatement::Using(nics)) => nics.into_iter().map(|n| (n.index, n.name, n.address)).collect(),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn hcas_are_listed_with_index_and_port() {
        let line = "NET/IB : Using [0]mlx5_0:1/IB/SHARP [1]mlx5_3:1/RoCE [RO]; OOB eno1:10.0.0.1<0>";
        assert_eq!(names(line), [(Some(0), "mlx5_0".into(), None), (Some(1), "mlx5_3".into(), None)]);
    }

    #[test]
    fn merged_hcas_keep_the_outer_index() {
        let line = "NET/IB : Using [0]={[0] rocep145s0:1/RoCE, [1] rocep146s0:1/RoCE} [1]={[0] nicC:1/RoCE} [RO]; OOB eth0:1.2.3.4<0>";
        let found = names(line);
        assert_eq!(
            found.iter().map(|n| (n.0, n.1.as_str())).collect::<Vec<_>>(),
            [(Some(0), "rocep145s0"), (Some(0), "rocep146s0"), (Some(1), "nicC")]
        );
    }

    #[test]
    fn interfaces_are_listed_with_their_address() {
        assert_eq!(
            names("Bootstrap : Using eth0:172.17.3.106<0>"),
            [(None, "eth0".into(), Some("172.17.3.106".into()))]
        );
        assert_eq!(names("Bootstrap: Using hsn0:10.250.0.47<0>").len(), 1);
        assert_eq!(names("NET : Using interface lo:127.0.0.1<0>"), [(None, "lo".into(), Some("127.0.0.1".into()))]);
        assert_eq!(
            names("NET/Socket : Using [0]ib1:10.101.105.115<0> [1]hsn0:chn:10.0.0.1<0>")[1],
            (Some(1), "hsn0:chn".into(), Some("10.0.0.1".into()))
        );
        assert_eq!(
            names("NET/Socket : Using [0]eth0:fe80::1:2%eth0<0>")[0],
            (Some(0), "eth0".into(), Some("fe80::1:2%eth0".into()))
        );
    }

    #[test]
    fn a_list_without_devices_means_none() {
        for line in ["NET/IB : No device found.", "NET/IB : Using [RO]; OOB eth0:10.0.0.1<0>"] {
            assert_eq!(read(line.as_bytes()).map(|l| l.statement), Some(NetworkStatement::NoDevice), "{line}");
        }
    }

    /// NCCL 2.3 and 2.4 name the interface beside the HCAs in a line of its own.
    #[test]
    fn an_interface_for_sideband_is_no_list() {
        let line = "NET/IB : Using interface eth0 for sideband communication";
        assert!(matches!(read(line.as_bytes()).map(|l| l.statement), Some(NetworkStatement::Note(_))));
    }

    #[test]
    fn the_chosen_network_is_told_with_its_whole_name() {
        for (line, network) in
            [("Using network AWS Libfabric", "AWS Libfabric"), ("Assigned NET plugin Socket to comm", "Socket")]
        {
            assert_eq!(
                read(line.as_bytes()),
                Some(NetLine { network: network.into(), statement: NetworkStatement::Chosen })
            );
        }
    }
}
