//! The schema `busbw.check/1`, described in `docs/schema/check-1.schema.json`, and the facts that it judges.

use busbw_model::node::FactsFile;
use busbw_model::{Area, CheckItem, Checked, Code, OddOne, Outcome};
use serde::Serialize;
use std::io;

/// The name of the schema.
const SCHEMA: &str = "busbw.check/1";

/// Writes the JSON of a check, with a closing line feed.
///
/// # Errors
/// What the writer returns.
pub fn write_check(checked: &Checked, out: &mut dyn io::Write) -> io::Result<()> {
    super::write(&Document::new(checked), out)
}

/// Writes the facts of nodes as they are kept in a file, with a closing line feed.
///
/// # Errors
/// What the writer returns.
pub fn write_facts(facts: &FactsFile, out: &mut dyn io::Write) -> io::Result<()> {
    super::write(facts, out)
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    hosts: &'a [String],
    failed: bool,
    counts: Counts,
    items: Vec<Item<'a>>,
    differences: Vec<Difference<'a>>,
}

#[derive(Serialize)]
struct Counts {
    ok: usize,
    warn: usize,
    fail: usize,
    skip: usize,
}

#[derive(Serialize)]
struct Item<'a> {
    area: Area,
    item: &'static str,
    host: &'a str,
    device: Option<&'a str>,
    detail: &'a str,
    result: &'static str,
    why: Option<&'a str>,
    remedy: Option<&'a str>,
    code: Option<Code>,
}

#[derive(Serialize)]
struct Difference<'a> {
    area: Area,
    item: &'a str,
    majority: Option<&'a str>,
    differ: Vec<Differing<'a>>,
    result: &'static str,
    remedy: &'a str,
    code: Option<Code>,
}

#[derive(Serialize)]
struct Differing<'a> {
    host: &'a str,
    value: &'a str,
}

impl<'a> Document<'a> {
    fn new(checked: &'a Checked) -> Self {
        let [ok, warn, fail, skip] = checked.counts();
        Document {
            schema: SCHEMA,
            hosts: &checked.hosts,
            failed: checked.failed(),
            counts: Counts { ok, warn, fail, skip },
            items: checked.items.iter().map(Item::new).collect(),
            differences: checked.odd_ones.iter().map(Difference::new).collect(),
        }
    }
}

impl<'a> Item<'a> {
    fn new(item: &'a CheckItem) -> Self {
        let why = match &item.outcome {
            Outcome::Skip { why } => Some(why.as_str()),
            _ => None,
        };
        Item {
            area: item.area,
            item: item.item,
            host: &item.host,
            device: item.device.as_deref(),
            detail: &item.detail,
            result: item.outcome.as_str(),
            why,
            remedy: item.outcome.remedy(),
            code: item.outcome.code(),
        }
    }
}

impl<'a> Difference<'a> {
    fn new(odd: &'a OddOne) -> Self {
        Difference {
            area: odd.area,
            item: &odd.item,
            majority: odd.majority.as_deref(),
            differ: odd.differ.iter().map(|(host, value)| Differing { host, value }).collect(),
            result: if odd.fails { "fail" } else { "warn" },
            remedy: &odd.remedy,
            code: odd.code,
        }
    }
}
