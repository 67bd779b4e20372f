//! Reads what `fr_trace` prints of flight-recorder dumps: which ranks did not join a collective.
//!
//! `torch/distributed/flight_recorder/components/utils.py` of PyTorch 2.7 and later; `tools/flight_recorder` before.

use crate::TextLine;
use crate::text::leading;
use busbw_model::{GroupName, SourceLine, TorchEvent, TorchStatement};

/// Collects what fr_trace prints of collectives that not all ranks joined.
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
        if let Some(rest) = text.strip_prefix("Not all ranks joining collective, sequence number: ") {
            self.open = leading(rest).map(|sequence| (sequence, GroupName::default()));
            return self.open.is_some();
        }
        let Some((sequence, group)) = &mut self.open else { return false };
        if let Some(info) = text.strip_prefix("group info: ") {
            let (name, description) = info.split_once(':').unwrap_or((info, ""));
            let owned = |text: &str| Some(text.trim().to_string()).filter(|text| !text.is_empty());
            *group = GroupName { id: None, name: owned(name), description: owned(description) };
            return true;
        }
        let Some(ranks) = text.strip_prefix("missing ranks: {") else { return false };
        let ranks = ranks.split(|c: char| !c.is_ascii_digit()).filter_map(|rank| rank.parse().ok()).collect();
        let event = TorchEvent::NotJoined { ranks, sequence: *sequence };
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
