//! Reads the result lines of NCCL's built-in diagnostics: `host:pid NCCL DIAG [OK] check: text in comm 0x…`.
//!
//! NCCL 2.31 and later print them on standard output (`DIAG_PRINT` in `src/include/diagnostics_log.h`); up to 2.30 nothing
//! says DIAG. Excerpts lack the host.

use crate::TextLine;
use busbw_model::{DiagLine, DiagTag, SourceLine};
use rustc_hash::FxHashMap;

/// More different results add nothing new.
const MOST_KEPT: usize = 10_000;

const MARK: &str = "NCCL DIAG ";

/// Collects results from lines.
///
/// ```
/// use busbw_ingest::{TextLine, nccl_diag::DiagReader};
/// use busbw_model::{DiagTag, Place};
/// let text = "node042:12345 NCCL DIAG [INFO] p2p: only 52/56 GPU-to-GPU peer accesses passed verification";
/// let mut reader = DiagReader::default();
/// assert!(reader.feed(&TextLine { place: Place::default(), stream: "", text }));
/// let found = reader.finish();
/// assert_eq!((found[0].tag, found[0].check.as_str()), (DiagTag::Info, "p2p"));
/// ```
#[derive(Debug, Default)]
pub struct DiagReader {
    found: Vec<DiagLine>,
    known: FxHashMap<(DiagTag, String), usize>,
}

impl DiagReader {
    /// Takes a line; true when it is a result.
    pub fn feed(&mut self, line: &TextLine) -> bool {
        let Some((before, rest)) = line.text.split_once(MARK) else { return false };
        let rest = rest.trim();
        let (tag, body) = match (rest.strip_prefix("[OK]"), rest.strip_prefix("[INFO]")) {
            (Some(body), _) => (DiagTag::Ok, body.trim_start()),
            (_, Some(body)) => (DiagTag::Info, body.trim_start()),
            _ => (DiagTag::None, rest),
        };
        match self.known.get(&(tag, body.to_string())) {
            Some(index) => self.found[*index].count += 1,
            None if self.found.len() < MOST_KEPT => {
                self.known.insert((tag, body.to_string()), self.found.len());
                self.found.push(result(before, (tag, body), SourceLine::new(line.place, line.text)));
            }
            None => {}
        }
        true
    }

    /// The results in order, each once.
    pub fn finish(self) -> Vec<DiagLine> {
        self.found
    }
}

fn result(before: &str, (tag, body): (DiagTag, &str), source: SourceLine) -> DiagLine {
    let speaker = before.split_whitespace().next_back().and_then(|word| word.rsplit_once(':'));
    let speaker = speaker.and_then(|(host, pid)| Some((host.to_string(), pid.parse().ok()?)));
    let communicator = body
        .split_once(" comm 0x")
        .map(|(_, rest)| rest.chars().take_while(char::is_ascii_hexdigit).collect::<String>().to_ascii_lowercase());
    let (check, text) = match body.split_once(": ") {
        Some((check, text)) if tag != DiagTag::None && is_check(check) => (check, text),
        _ => ("", body),
    };
    DiagLine {
        host: speaker.as_ref().map(|(host, _)| host.clone()),
        pid: speaker.map(|(_, pid)| pid),
        tag,
        check: check.to_string(),
        text: text.to_string(),
        communicator: communicator.filter(|hash| !hash.is_empty()),
        source,
        count: 1,
    }
}

/// A check's name is a few words: `p2p`, `net bw`, `CUDA driver version`.
fn is_check(text: &str) -> bool {
    text.len() <= 32 && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b' ' | b'-' | b'_' | b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use busbw_model::Place;
    use proptest::prelude::*;

    fn read(text: &str) -> Vec<DiagLine> {
        let mut reader = DiagReader::default();
        for text in text.lines() {
            reader.feed(&TextLine { place: Place::default(), stream: "", text });
        }
        reader.finish()
    }

    /// The documents' examples (troubleshooting/ras and troubleshooting/diagnostics of 2.31) and `src/diagnostics` of 2.32.
    #[test]
    fn results_of_both_kinds_are_read() {
        let text = "\
NCCL DIAG === NCCL Diagnostics ===
node042:12345 NCCL DIAG [OK]   NVLink: found 18 link(s) per device, all active across 8 ranks in comm 0x1234
node042:12345 NCCL DIAG [INFO] NCCL environment: mismatch across 8 ranks in comm 0x1234 for NCCL_DEBUG
node042:12345 NCCL DIAG [INFO] NCCL environment: NCCL_DEBUG=WARN on rank(s) {4,5,6,7}
n1:7 NCCL DIAG [INFO] p2p: write mismatch srcRank=0 srcCudaDev=0 srcNvmlDev=0 dstRank=1 dstCudaDev=1 dstNvmlDev=1 path=PIX handle=CUMEM_POSIX_FD expected=0x1 got=0x0 verify=0x0; check the affected pair
n1:7 NCCL DIAG [INFO] net bw: same-nic rank 3 (node-3): 96.1 Gbit/s, >30% off median 388.2 Gbit/s in comm 0xAE94
n1:7 NCCL DIAG [INFO] net bw: same-nic rank 3 (node-3): 96.1 Gbit/s, >30% off median 388.2 Gbit/s in comm 0xAE94
NCCL DIAG [INFO] transport detect returned 3";
        let found = read(text);
        let short: Vec<_> = found
            .iter()
            .map(|d| (d.host.as_deref(), d.tag, d.check.as_str(), d.communicator.as_deref(), d.count))
            .collect();
        let expected = [
            (None, DiagTag::None, "", None, 1),
            (Some("node042"), DiagTag::Ok, "NVLink", Some("1234"), 1),
            (Some("node042"), DiagTag::Info, "NCCL environment", Some("1234"), 1),
            (Some("node042"), DiagTag::Info, "NCCL environment", None, 1),
            (Some("n1"), DiagTag::Info, "p2p", None, 1),
            (Some("n1"), DiagTag::Info, "net bw", Some("ae94"), 2),
            (None, DiagTag::Info, "", None, 1),
        ];
        assert_eq!(short, expected);
        assert_eq!((found[4].field("path"), found[4].field("dstRank")), (Some("PIX"), Some("1")));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(before in "\\PC{0,20}", after in "\\PC{0,60}") {
            read(&format!("{before}NCCL DIAG [INFO] {after}"));
        }
    }
}
