//! The answer of `busbw check`, and the facts that it judges.

use busbw_model::answer::Answer;
use busbw_model::node::FactsFile;
use busbw_model::{CheckItem, Checked, OddOne};
use schemars::JsonSchema;
use serde::Serialize;
use std::io;

/// Writes the JSON of a check, with a closing line feed.
pub fn write_check(checked: &Checked, out: &mut dyn io::Write) -> io::Result<()> {
    super::write(&Check::new(checked), out)
}

/// Writes the facts of nodes as they are kept in a file, with a closing line feed.
pub fn write_facts(facts: &FactsFile, out: &mut dyn io::Write) -> io::Result<()> {
    super::write_value(facts, out)
}

/// What `busbw check --format json` prints. Readers must accept fields that are not described here: they may be added without a
/// new schema name.
#[derive(Serialize, JsonSchema)]
pub(super) struct Check<'a> {
    /// The hosts that were checked, and those that did not answer.
    hosts: &'a [String],
    /// Whether anything failed: the exit status is 1 then.
    failed: bool,
    /// How many items came out how; differences between hosts count as well.
    counts: Counts,
    /// What was checked: area by area, each with the hosts in order.
    items: &'a [CheckItem],
    /// What should be equal on all hosts and is not.
    differences: &'a [OddOne],
}

/// How many items came out how.
#[derive(Serialize, JsonSchema)]
struct Counts {
    /// As they should be.
    ok: usize,
    /// May cost speed, or a run.
    warn: usize,
    /// Will cost speed, or a run.
    fail: usize,
    /// Could not be checked.
    skip: usize,
}

impl Answer for Check<'_> {
    const SCHEMA: &'static str = "busbw.check/1";
}

impl<'a> Check<'a> {
    fn new(checked: &'a Checked) -> Self {
        let [ok, warn, fail, skip] = checked.counts();
        Check {
            hosts: &checked.hosts,
            failed: checked.failed(),
            counts: Counts { ok, warn, fail, skip },
            items: &checked.items,
            differences: &checked.odd_ones,
        }
    }
}
