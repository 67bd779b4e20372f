//! Version lines: `NCCL version 2.27.7+cuda12.4`, `RCCL version : 2.22.3-HEAD:271856d`.

use busbw_model::Library;

/// A version as printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    pub version: String,
    pub cuda: Option<String>,
    pub library: Library,
}

/// Reads a version line (a whole message or a line of its own). PyTorch's `…, NCCL version 20.9.8` inside an error message is none:
/// the words must begin the text.
pub(crate) fn read(message: &[u8]) -> Option<Version> {
    let (library, rest) = match message.strip_prefix(b"NCCL version ") {
        Some(rest) => (Library::Nccl, rest),
        None => (Library::Rccl, message.strip_prefix(b"RCCL version ")?),
    };
    let rest = std::str::from_utf8(&rest[..rest.len().min(200)]).ok()?.trim_start_matches([' ', ':']);
    let word = rest.split_ascii_whitespace().next()?;
    let version = whole_version(word)?;
    let cuda =
        version.split_once("+cuda").map(|(_, cuda)| cuda.trim_end_matches('.').to_string()).filter(|c| !c.is_empty());
    Some(Version { version: version.to_string(), cuda, library })
}

/// The version at the start of a word that other output may have run into (`2.7.8+cuda10.2NCCL`).
fn whole_version(word: &str) -> Option<&str> {
    let numbers = word.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    if !word.starts_with(|c: char| c.is_ascii_digit())
        || word[..numbers].split('.').filter(|p| !p.is_empty()).count() < 2
    {
        return None;
    }
    for toolkit in ["+cuda", "+hip"] {
        if let Some(at) = word.find(toolkit) {
            let start = at + toolkit.len();
            let digits = word[start..].bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
            return Some(&word[..if digits == 0 { at } else { start + digits }]);
        }
    }
    let end = word.bytes().position(|b| !(b.is_ascii_alphanumeric() || b".-:_".contains(&b))).unwrap_or(word.len());
    Some(&word[..end])
}
