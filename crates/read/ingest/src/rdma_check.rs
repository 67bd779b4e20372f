//! Reads the table of an RDMA configuration check: `* link_up eth1: yes ok` below `* ITEM DETAIL RESULT`.

use crate::TextLine;
use busbw_model::{CheckResult, RdmaCheckItem};
use rustc_hash::FxHashMap;

/// Collects the items of checks from lines.
///
/// ```
/// use busbw_ingest::{TextLine, rdma_check::CheckReader};
/// use busbw_model::{CheckResult, Place};
/// let mut reader = CheckReader::default();
/// for text in ["* ITEM DETAIL RESULT", "* link_up eth1: yes ok"] {
///     assert!(reader.feed(&TextLine { place: Place::default(), stream: "", text }));
/// }
/// assert_eq!(reader.finish()[0].result, CheckResult::Ok);
/// ```
#[derive(Debug, Default)]
pub struct CheckReader {
    items: Vec<RdmaCheckItem>,
    /// Streams inside a table, and whether it has an item yet.
    open: FxHashMap<Box<str>, bool>,
}

impl CheckReader {
    /// False only when the text cannot belong to a check; looks at the first bytes only.
    pub fn may_belong(text: &[u8]) -> bool {
        let text = text.trim_ascii_start();
        [b"* ".as_slice(), b"====", b"----", b"..."].iter().any(|start| text.starts_with(start))
    }

    /// Takes a line; true when it belongs to a check.
    pub fn feed(&mut self, line: &TextLine) -> bool {
        let text = line.text.trim_ascii();
        let Some(entry) = text.strip_prefix("* ") else { return self.between_items(line.stream, text) };
        let words: Vec<&str> = entry.split_whitespace().collect();
        match words.as_slice() {
            ["ITEM", "DETAIL", "RESULT"] => {
                self.open.insert(line.stream.into(), false);
                true
            }
            [title] => title.starts_with("rdma") && title.ends_with("_check"),
            [item, detail @ .., result] if is_name(item) => {
                let Some(has_items) = self.open.get_mut(line.stream) else { return false };
                *has_items = true;
                let detail = detail.join(" ");
                let item = item.to_string();
                self.items.push(RdmaCheckItem { place: line.place, item, detail, result: read_result(result) });
                true
            }
            _ => false,
        }
    }

    /// The items in the order printed.
    pub fn finish(self) -> Vec<RdmaCheckItem> {
        self.items
    }

    /// A rule, of which the one after the items ends the table, or `...` where somebody left items out.
    fn between_items(&mut self, stream: &str, text: &str) -> bool {
        let Some(&has_items) = self.open.get(stream) else { return false };
        let is_rule = |mark: u8| text.len() > 3 && text.bytes().all(|b| b == mark);
        let is_end = is_rule(b'=') && has_items;
        if is_end {
            self.open.remove(stream);
        }
        text == "..." || is_rule(b'=') || is_rule(b'-')
    }
}

fn is_name(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

fn read_result(word: &str) -> CheckResult {
    match word.to_ascii_lowercase().as_str() {
        "ok" => CheckResult::Ok,
        "warn" | "warning" => CheckResult::Warn,
        "fail" | "failed" | "error" | "no" => CheckResult::Fail,
        _ => CheckResult::Other(word.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use busbw_model::Place;

    #[test]
    fn results_are_read_in_any_case_until_the_table_ends() {
        let mut reader = CheckReader::default();
        let text = "* ITEM DETAIL RESULT\n* a x FAILED\n* b warn\n* c y no\n* d z skipped\n=====\n* e after ok";
        let claimed = text.lines().filter(|text| reader.feed(&TextLine { place: Place::default(), stream: "", text }));
        assert_eq!(claimed.count(), 6);
        let results: Vec<_> = reader.finish().into_iter().map(|item| item.result).collect();
        let skipped = CheckResult::Other("skipped".into());
        assert_eq!(results, [CheckResult::Fail, CheckResult::Warn, CheckResult::Fail, skipped]);
    }
}
