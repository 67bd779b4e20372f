//! Choices of algorithm and protocol, and the results of the graph search.

use crate::cursor::{Cursor, text};
use busbw_model::{Bytes, Collective};

/// `AllReduce: 4194304 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}` and older forms.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChoiceLine {
    pub collective: Option<Collective>,
    pub bytes: Bytes,
    pub algorithm: String,
    pub protocol: String,
    pub time_us: Option<f64>,
}

/// Names of the numbers that NCCL prints up to 2.23 (`NCCL_ALGO_*`, `NCCL_PROTO_*` in `src/include/nccl_tuner.h`).
const ALGORITHMS: [&str; 7] = ["TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT"];
const PROTOCOLS: [&str; 3] = ["LL", "LL128", "SIMPLE"];

pub(crate) fn choice(message: &[u8]) -> Option<ChoiceLine> {
    let mut at = Cursor::new(message);
    let mut collective = None;
    if !message.first()?.is_ascii_digit() {
        collective = Some(Collective::from_name(std::str::from_utf8(at.take_while(|b| b != b':')).ok()?)?);
        at.expect(b": ")?;
    }
    let bytes = Bytes(at.number()?);
    at.expect(b" Bytes -> Algo ")?;
    let algorithm = named(at.word(), &ALGORITHMS)?;
    at.expect(b" proto ")?;
    let protocol = named(at.word(), &PROTOCOLS)?;
    let time_us = at.eat(b" time ").then(|| std::str::from_utf8(at.word()).ok()?.parse().ok()).flatten();
    Some(ChoiceLine { collective, bytes, algorithm, protocol, time_us })
}

fn named(word: &[u8], names: &[&str]) -> Option<String> {
    let word = std::str::from_utf8(word).ok()?;
    match word.parse::<usize>() {
        Ok(number) => names.get(number).map(ToString::to_string),
        Err(_) => word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_').then(|| word.to_string()),
    }
}

/// `Pattern 4, crossNic 0, nChannels 8, bw 24.000000/24.000000, type NVL/PIX, sameChannels 1` (`speed` up to 2.11).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PatternLine {
    pub pattern: i32,
    pub cross_nic: i32,
    pub channels: u32,
    pub bw: Option<(f64, f64)>,
    pub types: Option<(String, String)>,
}

pub(crate) fn pattern(message: &[u8]) -> Option<PatternLine> {
    let mut at = Cursor::new(message);
    at.expect(b"Pattern ")?;
    let pattern = at.small::<u16>()?.into();
    at.expect(b", crossNic ")?;
    let cross_nic = at.small::<u16>()?.into();
    at.expect(b", nChannels ")?;
    let channels = at.small()?;
    let (mut bw, mut types) = (None, None);
    if at.eat(b", bw ") || at.eat(b", speed ") {
        let pair = at.take_while(|b| b != b',');
        bw = std::str::from_utf8(pair)
            .ok()
            .and_then(|p| p.split_once('/'))
            .and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    }
    if at.eat(b", type ") {
        types = text(at.take_while(|b| b != b',')).split_once('/').map(|(a, b)| (a.to_string(), b.trim().to_string()));
    }
    Some(PatternLine { pattern, cross_nic, channels, bw, types })
}
