//! NCCL's built-in diagnostics since 2.31: the `NCCL DIAG` lines of NCCL_RUN_DIAGNOSTICS, NCCL_RUN_RAS_DIAGNOSTICS and
//! `ncclras -D`.

use crate::place::SourceLine;

/// One result line: `node042:12345 NCCL DIAG [INFO] p2p: write mismatch srcRank=0 … in comm 0x1234`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiagLine {
    /// Host that printed it.
    pub host: Option<String>,
    /// Process that printed it.
    pub pid: Option<u64>,
    /// The tag that begins the line.
    pub tag: DiagTag,
    /// `p2p`, `net bw`, `GPU inventory`, `CUDA driver version`, `ECC`, `NVLink`, `NCCL environment`; empty where none is named.
    pub check: String,
    /// What it found: the text behind the check.
    pub text: String,
    /// Communicator hash in hexadecimal, without `0x`.
    pub communicator: Option<String>,
    /// The first such line.
    pub source: SourceLine,
    /// How many lines said the same.
    pub count: u64,
}

/// The tag of a result line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DiagTag {
    /// `[OK]`: the check found nothing.
    Ok,
    /// `[INFO]`: something to look at. NCCL has no stronger tag.
    Info,
    /// No tag: the header and the end of a report.
    None,
}

impl DiagLine {
    /// The value of a `name=value` field: `path`, `handle`, `reason`, `srcRank`, `client_host` …
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut words = self.text.split([' ', ';', ',']);
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> DiagLine {
        DiagLine {
            host: None,
            pid: None,
            tag: DiagTag::Info,
            check: String::new(),
            text: text.to_string(),
            communicator: None,
            source: SourceLine::default(),
            count: 1,
        }
    }

    #[test]
    fn fields_are_found() {
        let import =
            line("peer-memory import failed srcRank=0 dstRank=1 path=NVL handle=CUMEM_FABRIC reason=import; check");
        assert_eq!(
            (import.field("reason"), import.field("path"), import.field("Rank")),
            (Some("import"), Some("NVL"), None)
        );
    }
}
