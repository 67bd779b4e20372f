//! A line on its way to the readers of line-based formats.

use busbw_model::Place;

/// A line, or the part of a line that is no NCCL log line, with launcher prefixes, colour codes and time stamps peeled off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextLine<'a> {
    /// Where it stands.
    pub place: Place,
    /// Who printed it, as the launcher labels it (`1,0`, `rank3`, `12`); empty without a launcher. Two streams never
    /// share a table row.
    pub stream: &'a str,
    /// The text. It is a piece when NCCL log lines landed inside the line: the next piece of the stream continues it.
    pub text: &'a str,
}
