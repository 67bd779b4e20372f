//! How the output of each stream goes on in a block: its last line that is of no traceback, and its last lines of a wording that the
//! block has before.

use crate::cursor::lossy;
use crate::ends::MOST_SHOWN;
use crate::facts::{BlockFacts, KnownLines, LastLine};
use busbw_model::SourceLine;

/// By stream. Few lines are the last of their stream, so the text of a line is taken at the block's end, from where it stands.
#[derive(Debug, Default)]
pub(crate) struct LastLines {
    by_stream: Vec<Option<Stream>>,
    /// The streams of the block, in the order of their first lines.
    met: Vec<u32>,
    /// Where the block begins in memory.
    block: usize,
    length: usize,
    /// Texts that do not stand so in the block.
    copies: Vec<u8>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    last: Option<Last>,
    known: KnownLines,
    /// The last line that shows an end.
    end: Option<u32>,
}

/// The number of a line in the block, and where its text stands: in the block, or behind its end in the copies.
#[derive(Debug, Clone, Copy)]
struct Last {
    line: u32,
    at: usize,
    length: usize,
    of_program: bool,
}

impl LastLines {
    pub fn begin_block(&mut self, block: &[u8]) {
        (self.block, self.length) = (block.as_ptr() as usize, block.len());
        self.copies.clear();
    }

    /// Takes the next line of a stream.
    pub fn take(&mut self, stream: u32, line: u32, text: &[u8]) {
        self.keep(stream, line, text, true);
    }

    /// Takes a line that a library prints in the stream: it shows that there is an output, where the program itself says nothing.
    pub fn heard(&mut self, stream: u32, line: u32, text: &[u8]) {
        if self.stream(stream).last.is_none() {
            self.keep(stream, line, text, false);
        }
    }

    fn keep(&mut self, stream: u32, line: u32, text: &[u8], of_program: bool) {
        let text = &text[..text.len().min(SourceLine::MAX_TEXT)];
        let at = (text.as_ptr() as usize).wrapping_sub(self.block);
        let stands_there = at <= self.length && text.len() <= self.length - at;
        let at = if stands_there { at } else { self.length + self.copies.len() };
        if !stands_there {
            self.copies.extend_from_slice(text);
        }
        self.stream(stream).last = Some(Last { line, at, length: text.len(), of_program });
    }

    /// Takes a line of a stream that shows an end.
    pub fn ended(&mut self, stream: u32, line: u32) {
        self.stream(stream).end = Some(line);
    }

    /// Takes a line of a wording that the block has since a line; false where it does not show that the stream goes on: it is the first, or
    /// all stand behind an end, whose message they may be.
    pub fn goes_on(&mut self, stream: u32, line: u32, since: u32) -> bool {
        let stream = self.stream(stream);
        let goes_on = since < line && stream.end.is_none_or(|end| since < end);
        if goes_on {
            stream.known.push(line);
        }
        goes_on
    }

    fn stream(&mut self, number: u32) -> &mut Stream {
        let index = number as usize;
        if self.by_stream.len() <= index {
            self.by_stream.resize(index + 1, None);
        }
        self.by_stream[index].get_or_insert_with(|| {
            self.met.push(number);
            Stream::default()
        })
    }

    /// Writes down what the block shows, which ends.
    pub fn end_block(&mut self, block: &[u8], facts: &mut BlockFacts) {
        for number in self.met.drain(..) {
            let Some(Stream { last, known, .. }) = self.by_stream[number as usize].take() else { continue };
            if !known.lines().is_empty() {
                facts.known_lines.push((number, known));
            }
            if let Some(Last { line, at, length, of_program }) = last {
                let text = match at.checked_sub(block.len()) {
                    Some(at) if length > 0 => &self.copies[at..at + length],
                    _ => &block[at.min(block.len())..][..length],
                };
                let text = lossy(text).trim_end().into();
                facts.last_lines.push(LastLine { stream: number, line, text, of_program });
            }
        }
    }
}

impl KnownLines {
    fn push(&mut self, line: u32) {
        if usize::from(self.count) == MOST_SHOWN {
            self.lines.rotate_left(1);
            self.count -= 1;
        }
        self.lines[usize::from(self.count)] = line;
        self.count += 1;
    }
}
