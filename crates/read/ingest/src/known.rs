//! How many lines of a sample somebody understands: what tells which of several ways to read an input is right.

use crate::cursor::lossy;
use crate::ends::{self, EndLine};
use crate::evidence;
use crate::facts::Offered;
use crate::launcher::{LabelledLine, peel_labels};
use crate::nccl_log::read_version;
use crate::prefix;
use crate::readers::{Readers, may_belong};
use crate::speaker;
use crate::text::TextLine;
use busbw_model::{InputKind, Place, Speaker};

/// Lines that are understood.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Known {
    /// What no program's own logger writes: NCCL's lines, rows of tables, frames of tracebacks.
    pub printed: usize,
    /// Others: what launchers, libraries and tools print.
    pub others: usize,
}

impl Known {
    /// Those of lines that follow each other, each with whether something was taken off its front: it belongs to a traceback whose head lost it
    /// too.
    pub fn of<'l>(lines: impl Iterator<Item = (bool, &'l [u8])>) -> Self {
        let mut known = Known::default();
        let mut readers = Readers::default();
        let mut head = None;
        for (is_behind, line) in lines {
            let lossy = lossy(line);
            let LabelledLine { stream, text: body } = peel_labels(&lossy);
            if prefix::whole(body.trim_start().as_bytes()).is_some() {
                known.printed += 1;
                continue;
            }
            let wanted = evidence::of(body.as_bytes());
            if let Some(EndLine::Header { .. }) = ends::beginning(body) {
                head = Some(is_behind);
            }
            match Some(body).filter(|_| wanted.end).and_then(|body| ends::read(body, false)) {
                // PyTorch's hook puts its label before what nobody caught.
                Some(EndLine::Frame { .. } | EndLine::Exception { .. }) if stream.starts_with("rank") => {
                    known.printed += 1
                }
                Some(EndLine::Frame { .. }) => known.printed += usize::from(head == Some(is_behind)),
                // A program that logs an error itself may write either.
                None | Some(EndLine::Exception { .. }) => {
                    let speaks = wanted.speaker || body.trim_start().starts_with('[');
                    let is_known =
                        read_version(body.as_bytes()).is_some() || speaks && speaker::of(body) != Speaker::Program;
                    known.others += usize::from(is_known);
                }
                Some(_) => known.others += 1,
            }
            let offered = if wanted.torch { Offered::All } else { Offered::Lines };
            if wanted.torch || wanted.other || may_belong(body.as_bytes()) {
                readers.feed(&TextLine { place: Place::default(), stream: "", text: body }, offered);
            }
        }
        for (kind, lines) in readers.claimed {
            let is_table = kind == InputKind::NcclTests;
            *(if is_table { &mut known.printed } else { &mut known.others }) += lines as usize;
        }
        known
    }

    pub fn all(self) -> usize {
        self.printed + self.others
    }
}
