//! The answer of `busbw link`.

use super::finding::FindingView;
use busbw_model::answer::Answer;
use busbw_model::{Diagnosis, Link, LinkEnd, LinkRun, LinkTransport, MeasuredLink, Run, Verdict};
use schemars::JsonSchema;
use serde::Serialize;
use std::io;

/// Writes the JSON of measured links and of what is wrong with them, with a closing line feed. No number is rounded; one
/// that is not finite becomes `null`.
pub fn write_link(run: &LinkRun, diagnosis: &Diagnosis, out: &mut dyn io::Write) -> io::Result<()> {
    super::write(&Links::new(run, diagnosis, &Run::default()), out)
}

/// What `busbw link --format json` prints. Bandwidths are Gbit/s, 10^9 bits per second (_gbit_s), times are microseconds (_us).
/// No number is rounded; a number that is not finite is null. Readers must accept fields that are not described here: they may be
/// added without a new schema name.
#[derive(Serialize, JsonSchema)]
pub(super) struct Links<'a> {
    /// The state of the links as a whole. no-errors: measured, and nothing says what they should reach.
    verdict: Verdict,
    /// One sentence that says it.
    summary: &'a str,
    /// What carried the bytes.
    transport: LinkTransport,
    /// What the user expects of each direction (--expect).
    expected_gbit_s: Option<f64>,
    /// Why the run ended before all pairs were measured.
    interrupted: Option<&'a str>,
    /// Who took part, by rank.
    ends: Vec<End<'a>>,
    /// Every ordered pair, but for those within a host where there are several hosts.
    #[schemars(with = "Vec<MeasuredLink>")]
    links: &'a [Link],
    /// What is wrong, the worst first, as in busbw.explain/1. Links have no input whose lines could show it.
    findings: Vec<FindingView<'a>>,
}

impl Answer for Links<'_> {
    const SCHEMA: &'static str = "busbw.link/1";
}

/// Who took part.
#[derive(Serialize, JsonSchema)]
struct End<'a> {
    /// The host, and its NIC where the host has several ends.
    name: String,
    #[serde(flatten)]
    end: &'a LinkEnd,
}

impl<'a> Links<'a> {
    /// Findings of links have no line of an input as evidence, so `no_inputs` is a run without any.
    fn new(run: &'a LinkRun, diagnosis: &'a Diagnosis, no_inputs: &'a Run) -> Self {
        Links {
            verdict: diagnosis.verdict,
            summary: &diagnosis.summary,
            transport: run.transport,
            expected_gbit_s: run.expected_gbit_s,
            interrupted: run.interrupted.as_deref(),
            ends: run.ends.iter().enumerate().map(|(number, end)| End { name: run.name(number), end }).collect(),
            links: &run.links,
            findings: diagnosis.findings.iter().map(|finding| FindingView::new(no_inputs, finding)).collect(),
        }
    }
}
