//! Connection lines: `Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM` and their forms since NCCL 2.4.

use crate::cursor::{Cursor, finder};
use busbw_model::{ChannelSet, Edge, EdgeEnd, EdgeUse, Place, Transport, TransportKind};

/// One connection line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EdgeLine<'a> {
    /// Its transport is not known yet.
    pub edge: Edge,
    /// The text after `via`.
    pub via: &'a [u8],
    /// RCCL names the communicator.
    pub comm: Option<u64>,
}

/// Reads a connection line. Forms, by NCCL version (`src/transport/{p2p,shm,net}.cc`):
/// 2.4 `Ring 00 : 3[1] -> 4[2] via P2P/IPC`, `Ring 00 : 7 -> 8 [send] via NET/IB/0/GDRDMA`;
/// 2.7 `Channel 00 : 0[bus] -> 1[bus] via …`; 2.12 `Channel 00/0 : …`;
/// RCCL appends `comm 0x… nRanks 16`.
pub(crate) fn read(message: &[u8]) -> Option<EdgeLine<'_>> {
    let mut at = Cursor::new(message);
    if !at.eat(b"Channel ") {
        at.expect(b"Ring ")?;
    }
    let channels = ChannelSet::of(at.small()?);
    let use_ = match at.eat(b"/") {
        true if at.small::<u16>()? == 1 => EdgeUse::PointToPoint,
        _ => EdgeUse::Collective,
    };
    at.expect(b" : ")?;
    let from = endpoint(&mut at)?;
    at.expect(b" -> ")?;
    let to = endpoint(&mut at)?;
    let end = if at.eat(b" [receive]") { EdgeEnd::Receive } else { EdgeEnd::Send };
    at.eat(b" [send]");
    at.expect(b" via ")?;
    let (via, comm) = split_comm(at.rest().trim_ascii_end());
    let edge = Edge { from, to, transport: 0, end, use_, channels };
    (!via.is_empty()).then_some(EdgeLine { edge, via, comm })
}

/// A rank with its device or bus id in brackets, which busbw does not need.
fn endpoint(at: &mut Cursor) -> Option<u32> {
    let rank = at.small()?;
    if at.rest().first() == Some(&b'[') {
        at.bracketed();
    }
    Some(rank)
}

/// Separates RCCL's `comm 0x… nRanks N` from the text after `via`.
fn split_comm(via: &[u8]) -> (&[u8], Option<u64>) {
    if via.len() < 20 {
        return (via, None); // the suffix alone is longer
    }
    match finder!(b" comm 0x").find(via) {
        Some(at) => (&via[..at], Cursor::new(&via[at + 6..]).hex()),
        None => (via, None),
    }
}

/// Reads the text after `via`; `None` when it is torn or unknown. The rank of a PXN neighbour or of an indirect path is dropped,
/// so that a communicator has few transports however many ranks it has.
pub(crate) fn transport(via: &[u8], first: Place) -> Option<Transport> {
    let text = std::str::from_utf8(via).ok()?;
    let local = |kind, via: &str| Transport { kind, via: via.to_string(), nic: None, pxn: false, gdr: false, first };
    if let Some(how) = text.strip_prefix("P2P/") {
        let how = how.split(['/', '[']).next().unwrap_or(how);
        let known = ["IPC", "CUMEM", "direct pointer", "indirect", "common device", "DMA", "MNNVL"];
        let via = if how == "indirect" { "P2P/indirect" } else { text }; // `P2P/indirect/3[b000]` names a relay rank
        return known.contains(&how).then(|| local(TransportKind::P2p(how.to_string()), via));
    }
    if text == "SHM" || text.starts_with("SHM/") || text == "direct shared memory" {
        let plain = text.bytes().all(|b| b.is_ascii_alphabetic() || b == b'/' || b == b' ');
        return plain.then(|| local(TransportKind::Shm, text));
    }
    if let Some(rest) = text.strip_prefix("COLLNET/") {
        let (_, options) = plugin_and_nic(rest)?;
        return Some(Transport { gdr: options.gdr, nic: Some(options.nic), ..local(TransportKind::CollNet, text) });
    }
    let (plugin, options) = plugin_and_nic(text.strip_prefix("NET/")?)?;
    let via = match options.pxn {
        true => format!("NET/{plugin}/{}{}", options.nic, options.suffix),
        false => text.to_string(),
    };
    let kind = TransportKind::Net(plugin.to_string());
    Some(Transport { kind, via, nic: Some(options.nic), pxn: options.pxn, gdr: options.gdr, first })
}

struct NetOptions<'a> {
    nic: u32,
    pxn: bool,
    gdr: bool,
    suffix: &'a str,
}

/// `IB/0(2)/GDRDMA/Shared` → `IB`, NIC 0 …; plugin names may hold spaces (`AWS Libfabric/2`).
fn plugin_and_nic(text: &str) -> Option<(&str, NetOptions<'_>)> {
    let (plugin, rest) = text.split_once('/')?;
    let name_fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b' ' | b'_' | b'-' | b'.' | b'+');
    if plugin.is_empty() || !plugin.bytes().all(name_fits) {
        return None;
    }
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let nic = rest[..digits].parse().ok()?;
    let mut suffix = &rest[digits..];
    let mut pxn = false;
    if let Some(inside) = suffix.strip_prefix('(') {
        let (rank, after) = inside.split_once(')')?;
        rank.parse::<u32>().ok()?;
        (pxn, suffix) = (true, after);
    }
    let mut gdr = false;
    for option in suffix.split('/').skip(1) {
        match option.trim_end() {
            "GDRDMA" | "GDRDMA(PCI)" => gdr = true,
            "Shared" | "Flush" | "GIN" => {}
            _ => return None,
        }
    }
    (suffix.is_empty() || suffix.starts_with('/')).then_some((plugin, NetOptions { nic, pxn, gdr, suffix }))
}

#[cfg(test)]
mod tests {
    /// A line that differs from the last in two digits of its channel shows the same connection, whatever stands between.
    #[test]
    fn a_connection_is_told_channel_by_channel() {
        let says = |channel: &str, to: u32| {
            format!("[1,0]<stdout>:n:1:2 [0] NCCL INFO Channel {channel} : 0[0] -> {to}[1] via P2P/CUMEM\n")
        };
        let told: String = ["00/0", "01/0", "101/0", "111/0", "11/0"].map(|channel| says(channel, 1)).concat();
        let log = told + "epoch 1\n" + &says("12/0", 1) + &says("12/0", 3) + &says("13/0", 3) + &says("13/1", 3);
        let run = crate::read_bytes(&[("log", log.as_bytes())]).expect("a log");
        let edges = run.communicators[0].edges.iter().map(|edge| (edge.to, edge.channels.iter().collect()));
        let edges: Vec<(u32, Vec<u16>)> = edges.collect();
        assert_eq!(edges, [(1, vec![0, 1, 11, 12, 101, 111]), (3, vec![12, 13]), (3, vec![13])]);
        assert_eq!(run.nccl.lines, 9);
    }
}
