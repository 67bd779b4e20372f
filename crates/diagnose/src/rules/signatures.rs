//! Texts that tell their cause: `signatures.toml` says which text means what.
//!
//! A signature is looked for in NCCL's WARN lines and in what programs and launchers say of errors. The first WARN of
//! the rank that failed first is the cause; what others say after it follows from it.

use crate::case::Case;
use busbw_model::{Code, Evidence, Finding, Severity, SourceLine};
use serde::Deserialize;
use std::sync::LazyLock;

static SIGNATURES: LazyLock<Vec<Signature>> =
    LazyLock::new(|| toml::from_str::<File>(include_str!("signatures.toml")).map(|f| f.signature).unwrap_or_default());

#[derive(Deserialize)]
struct File {
    signature: Vec<Signature>,
}

#[derive(Deserialize)]
struct Signature {
    code: String,
    /// Any of these texts; a text with ` & ` asks for all of its parts.
    text: Vec<String>,
    /// None of these.
    #[serde(default)]
    unless: Vec<String>,
    confidence: f64,
    #[serde(default)]
    warning: bool,
    title: String,
    explanation: String,
    remedy: Vec<String>,
}

/// A line to look at.
struct Line<'a> {
    text: &'a str,
    source: &'a SourceLine,
    host: Option<&'a str>,
    count: u64,
}

/// A finding per signature that matches, with the first lines that show it.
pub fn rule(case: &Case) -> Vec<Finding> {
    let mut lines: Vec<Line> = Vec::new();
    for warning in &case.run.nccl.warnings {
        let host = warning.speaker.as_ref().map(|s| &*s.host);
        lines.push(Line { text: &warning.message, source: &warning.source, host, count: warning.count });
    }
    for remark in &case.run.remarks {
        lines.push(Line { text: &remark.source.text, source: &remark.source, host: None, count: remark.count });
    }
    lines.sort_by_key(|line| line.source.place);
    SIGNATURES.iter().filter_map(|signature| signature.find(&lines)).collect()
}

impl Signature {
    fn find(&self, lines: &[Line]) -> Option<Finding> {
        let (code, ..) = Code::ALL.iter().find(|(_, text, _)| *text == self.code)?;
        let matching: Vec<&Line> = lines.iter().filter(|line| self.matches(line.text)).collect();
        let first = matching.first()?;
        let evidence = matching.iter().take(4).map(|l| Evidence::new(l.source.clone())).collect();
        Some(Finding {
            code: *code,
            severity: if self.warning { Severity::Warning } else { Severity::Error },
            confidence: self.confidence,
            title: format!("{}{}", self.title, first.host.map_or(String::new(), |host| format!(" (first on {host})"))),
            explanation: format!("{}{}", self.explanation, repeated(&matching)),
            evidence,
            remedy: self.remedy.clone(),
            expected_gain: None,
        })
    }

    fn matches(&self, text: &str) -> bool {
        let all = |wanted: &String| wanted.split(" & ").all(|part| text.contains(part));
        self.text.iter().any(all) && !self.unless.iter().any(all)
    }
}

fn repeated(matching: &[&Line]) -> String {
    let total: u64 = matching.iter().map(|l| l.count).sum();
    if total > 1 { format!(" The input has {total} such lines.") } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signature_names_a_code_and_a_remedy() {
        assert!(SIGNATURES.len() > 15);
        for signature in SIGNATURES.iter() {
            assert!(Code::ALL.iter().any(|(_, text, _)| *text == signature.code), "{}", signature.code);
            assert!(!signature.remedy.is_empty() && !signature.text.is_empty(), "{}", signature.title);
        }
    }

    /// The same trouble in the words of several versions of NCCL.
    #[test]
    fn wordings_of_all_versions_tell_their_cause() {
        let cases = [
            ("NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129", "ib.transport-error"),
            (
                "NET/IB : Got completion from peer 10.1.0.4<4971> with error 5, opcode 48, len 0, vendor err 244",
                "ib.transport-error",
            ),
            (
                "NET/IB: Got completion from peer 10.1.0.4<4971> with status=12 opcode=0 len=0 vendor err 129 (Send) hca mlx5_0",
                "ib.transport-error",
            ),
            (
                "NET/IB : Got completion from peer 10.1.0.4<4971> with error 4, opcode 0, len 32, vendor err 81",
                "pcie.acs",
            ),
            ("NET/IB : mlx5_0:1 Got async error event: port error", "ib.transport-error"),
            ("Net : Connect to 10.1.0.4<4971> failed : No route to host", "net.unreachable"),
            (
                "socketStartConnect: Connect to 10.1.0.4<4971> failed : Software caused connection abort",
                "net.unreachable",
            ),
            (
                "socketConnect: connect to 10.1.0.4<4971> returned Connection refused, exceeded error retry count after 35 attempts",
                "net.unreachable",
            ),
            ("socketConnect: connect to 10.1.0.4<4971> failed : Cannot assign requested address", "net.unreachable"),
            ("Error while attaching to shared memory segment /dev/shm/nccl-m7PZ2y (size 9637892)", "limits.shm"),
            (
                "Error: failed to extend /dev/shm/nccl-m7PZ2y to 33030532 bytes, error: No space left on device (28)",
                "limits.shm",
            ),
            ("Cuda failure 'out of memory'", "gpu.error"),
            ("Failed to CUDA calloc async 4194304 bytes", "gpu.error"),
            ("Mismatched NCCL version detected : rank 0 version 22703 rank 1 version 22203", "version.mismatch"),
        ];
        for (text, code) in cases {
            let matched: Vec<&str> = SIGNATURES.iter().filter(|s| s.matches(text)).map(|s| s.code.as_str()).collect();
            assert_eq!(matched, [code], "{text}");
        }
    }

    #[test]
    fn noise_of_healthy_runs_matches_nothing() {
        let noise = [
            "NET/IB : mlx5_0:1 Got async event : client reregistration",
            "NET/IB : Got async event : GID table change",
            "[Service thread] Could not receive type from localRank 3, res=3, closed=0",
            "[Proxy Service 3] Failed to execute operation Close from rank 3, retcode 3",
            "[Service thread] Accept failed Resource temporarily unavailable",
            "NET/IB :SHARP coll init error: Cannot create SHArP job(-11)",
            "Cannot initialize CollNet, using point-to-point network instead",
            "MSCCL++: Cannot enable MSCCL++; environment is not MSCCL compatible",
        ];
        for text in noise {
            let matched: Vec<&str> = SIGNATURES.iter().filter(|s| s.matches(text)).map(|s| s.code.as_str()).collect();
            assert!(matched.is_empty(), "{text}: {matched:?}");
        }
    }
}
