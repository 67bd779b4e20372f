//! Reads what `fr_trace` prints of flight-recorder dumps: which ranks did not join a collective, or joined it with something else.
//!
//! `error_analysis` in `torch/distributed/flight_recorder/components/utils.py`, `EntryState.log` in `types.py` beside it, of PyTorch 2.7 and later; `tools/flight_recorder` before.

use super::ranks_in;
use crate::TextLine;
use crate::text::leading;
use busbw_model::{GroupName, SourceLine, TorchEvent, TorchStatement};

/// Collects what fr_trace prints of collectives that do not match.
#[derive(Debug, Default)]
pub(crate) struct TraceReader {
    /// The collective that the lines speak of, and its group.
    open: Option<(u64, GroupName)>,
    found: Vec<TorchStatement>,
}

impl TraceReader {
    /// Takes a line; true when it is fr_trace's.
    pub fn feed(&mut self, line: &TextLine) -> bool {
        let text = line.text.trim();
        const HEADS: [&str; 2] =
            ["Not all ranks joining collective, sequence number: ", "Collective sequence number: "];
        if let Some(sequence) = HEADS.iter().find_map(|head| leading(text.strip_prefix(head)?)) {
            self.open = Some((sequence, GroupName::default()));
            return true;
        }
        let Some((sequence, group)) = &mut self.open else { return false };
        if let Some(info) = text.strip_prefix("group info: ") {
            let (name, description) = info.split_once(':').unwrap_or((info, ""));
            let owned = |text: &str| Some(text.trim().to_string()).filter(|text| !text.is_empty());
            *group = GroupName { id: None, name: owned(name), description: owned(description) };
            return true;
        }
        let Some(event) = missing(text, *sequence).or_else(|| differs(text, *sequence)) else { return false };
        self.found.push(TorchStatement {
            rank: None,
            group: group.clone(),
            event,
            source: SourceLine::new(line.place, line.text),
        });
        self.open = None;
        true
    }

    /// The statements in order.
    pub fn finish(self) -> Vec<TorchStatement> {
        self.found
    }
}

/// `missing ranks: {3, 5}`.
fn missing(text: &str, sequence: u64) -> Option<TorchEvent> {
    Some(TorchEvent::NotJoined { ranks: ranks_in(text.strip_prefix("missing ranks: {")?), sequence })
}

/// `error msg: Culprit rank 1; Error type: SIZE_OR_SYNTAX_MISMATCH, Expected …, Culprit rank 3; Error type: …`.
fn differs(text: &str, sequence: u64) -> Option<TorchEvent> {
    let culprits = text.strip_prefix("error msg: ")?.split("Culprit rank ").skip(1);
    let mut ranks: Vec<u32> = culprits.filter_map(leading).collect();
    ranks.sort_unstable();
    let what = text.split_once("Error type: ")?.1.split(',').next()?.to_string();
    Some(TorchEvent::Differs { ranks, sequence, what })
}
