//! The last line of each stream in a block that is of no traceback: how the output of a rank ends.

use crate::facts::LastLine;
use busbw_model::SourceLine;
use rustc_hash::FxHashMap;

/// By stream, the number of the line in the block and its text.
#[derive(Debug, Default)]
pub(crate) struct LastLines(FxHashMap<u32, (u32, Vec<u8>)>);

impl LastLines {
    /// Takes the next line of a stream.
    pub fn take(&mut self, stream: u32, line: u32, text: &[u8]) {
        let (last, kept) = self.0.entry(stream).or_default();
        *last = line;
        kept.clear();
        kept.extend_from_slice(&text[..text.len().min(SourceLine::MAX_TEXT)]);
    }

    /// Those of the block, which ends.
    pub fn drain(&mut self) -> impl Iterator<Item = LastLine> {
        let text = |text: Vec<u8>| crate::cursor::lossy(&text).trim_end().into();
        self.0.drain().map(move |(stream, (line, kept))| LastLine { stream, line, text: text(kept) })
    }
}
