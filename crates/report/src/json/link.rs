//! The schema `busbw.link/1`, described in `docs/schema/link-1.schema.json`.

use super::finding::FindingView;
use busbw_model::{Diagnosis, Link, LinkFigures, LinkRun, LinkTransport, Run};
use serde::Serialize;
use std::io;

/// The name of the schema.
const SCHEMA: &str = "busbw.link/1";

/// Writes the JSON of measured links and of what is wrong with them, with a closing line feed. No number is rounded; one
/// that is not finite becomes `null`.
///
/// # Errors
/// What the writer returns.
pub fn write_link(run: &LinkRun, diagnosis: &Diagnosis, out: &mut dyn io::Write) -> io::Result<()> {
    super::write(&Document::new(run, diagnosis, &Run::default()), out)
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    verdict: &'static str,
    summary: &'a str,
    transport: LinkTransport,
    interrupted: Option<&'a str>,
    ends: Vec<End<'a>>,
    links: Vec<Measured<'a>>,
    findings: Vec<FindingView<'a>>,
}

#[derive(Serialize)]
struct End<'a> {
    name: String,
    host: &'a str,
    nic: &'a str,
    address: &'a str,
    rate_gbit_s: Option<f64>,
    trouble: Option<&'a str>,
}

#[derive(Serialize)]
struct Measured<'a> {
    from: usize,
    to: usize,
    error: Option<&'a str>,
    gbit_s: Option<f64>,
    gbit_s_both_ways: Option<f64>,
    latency_median_us: Option<f64>,
    latency_p99_us: Option<f64>,
    flows: Vec<ByFlows>,
    sizes: Vec<BySize>,
    losses: Vec<Loss<'a>>,
    resent_share: Option<f64>,
}

#[derive(Serialize)]
struct ByFlows {
    flows: u32,
    gbit_s: f64,
}

#[derive(Serialize)]
struct BySize {
    size_bytes: u64,
    gbit_s: f64,
}

#[derive(Serialize)]
struct Loss<'a> {
    counter: &'a str,
    count: u64,
}

impl<'a> Document<'a> {
    /// Findings of links have no line of an input as evidence, so `no_inputs` is a run without any.
    fn new(run: &'a LinkRun, diagnosis: &'a Diagnosis, no_inputs: &'a Run) -> Self {
        let end = |(number, end): (usize, &'a busbw_model::LinkEnd)| End {
            name: run.name(number),
            host: &end.host,
            nic: &end.nic,
            address: &end.address,
            rate_gbit_s: end.rate_gbit_s,
            trouble: end.trouble.as_deref(),
        };
        Document {
            schema: SCHEMA,
            verdict: diagnosis.verdict.as_str(),
            summary: &diagnosis.summary,
            transport: run.transport,
            interrupted: run.interrupted.as_deref(),
            ends: run.ends.iter().enumerate().map(end).collect(),
            links: run.links.iter().map(Measured::new).collect(),
            findings: diagnosis.findings.iter().map(|finding| FindingView::new(no_inputs, finding)).collect(),
        }
    }
}

impl<'a> Measured<'a> {
    fn new(link: &'a Link) -> Self {
        let nothing = LinkFigures::default();
        let (figures, error) = match &link.outcome {
            Ok(figures) => (figures, None),
            Err(reason) => (&nothing, Some(reason.as_str())),
        };
        let loss = |(counter, count): &'a (String, u64)| Loss { counter, count: *count };
        Measured {
            from: link.from,
            to: link.to,
            error,
            gbit_s: error.is_none().then_some(figures.gbit_s),
            gbit_s_both_ways: figures.gbit_s_both_ways,
            latency_median_us: figures.latency.map(|latency| latency.median.0),
            latency_p99_us: figures.latency.map(|latency| latency.p99.0),
            flows: figures.flows.iter().map(|&(flows, gbit_s)| ByFlows { flows, gbit_s }).collect(),
            sizes: figures.sizes.iter().map(|&(size, gbit_s)| BySize { size_bytes: size.0, gbit_s }).collect(),
            losses: link.outcome.as_ref().map_or(&[][..], |figures| &figures.losses).iter().map(loss).collect(),
            resent_share: figures.resent_share,
        }
    }
}
