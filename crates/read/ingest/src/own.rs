//! Answers that busbw kept as JSON: `busbw.explain/1` of explain and doctor, `busbw.check/1`, `busbw.link/1`, `busbw.watch/1`,
//! and the lines of `busbw.monitor/1`.

use busbw_model::answer::known;
use busbw_model::{
    BenchDevice, BenchRow, BenchTable, CheckItem, Code, Collective, EnvOrigin, EnvSetting, GBps, Gpu, Link, LinkEnd,
    LinkRun, LinkTransport, NcclVersion, Node, Outcome, Place, Run, SavedFinding, Severity, SourceLine, VersionLine,
    Watched,
};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Where the schema's name stands: it is the first field.
const START: usize = 256;

/// The schemas that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schema {
    Explain,
    Check,
    Link,
    Monitor,
    Watch,
}

impl Schema {
    /// Which a text begins as, if any.
    pub fn of(text: &[u8]) -> Option<Self> {
        let start = String::from_utf8_lossy(&text[..text.len().min(START)]);
        let begins = |schema: &str| start.trim_start().starts_with('{') && start.contains(schema);
        let known = [
            ("\"busbw.explain/1\"", Schema::Explain),
            ("\"busbw.check/1\"", Schema::Check),
            ("\"busbw.link/1\"", Schema::Link),
            ("\"busbw.monitor/1\"", Schema::Monitor),
            ("\"busbw.watch/1\"", Schema::Watch),
        ];
        known.into_iter().find(|(name, _)| begins(name)).map(|(_, schema)| schema)
    }
}

/// The command whose text, meant for people, a text begins as: only its JSON is read.
pub(crate) fn text_of(start: &[u8]) -> Option<&'static str> {
    const HEAD: usize = 12;
    let start = String::from_utf8_lossy(&start[..start.len().min(8 * START)]).into_owned();
    let lines: Vec<String> = start.lines().take(HEAD).map(busbw_model::text::clean).map(Into::into).collect();
    let is_check = lines.iter().find(|line| !line.is_empty())?.starts_with("busbw check of ");
    let is_link = lines.iter().any(|line| line.trim_start().starts_with(r"from \ to "));
    if is_check { Some("check") } else { is_link.then_some("link") }
}

/// Whether a text begins as the pages do that busbw writes: they quote lines of their inputs, which are none of theirs.
pub(crate) fn is_page(start: &[u8]) -> bool {
    const BEGIN: &[u8] = b"<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n";
    start.starts_with(BEGIN) && start.windows(STYLE.len()).any(|part| part == STYLE)
}

/// A colour of their style sheet by its name.
const STYLE: &[u8] = b"--back: #ffffff; --card: #f6f7f9;";

pub(crate) fn read(schema: Schema, text: &str, input: u32, run: &mut Run) -> serde_json::Result<()> {
    let place = Place { input, line: 0 };
    match schema {
        Schema::Explain => {
            let explained = explained(text)?;
            let at = |table: BenchTable| BenchTable { place, ..table };
            run.tables.extend(explained.run.tables.into_iter().map(at));
            let host = explained.only_host;
            run.saved_findings.extend(explained.findings.into_iter().map(|finding| saved(finding, &host, place)));
        }
        Schema::Check => {
            let Checked { items } = serde_json::from_str(text)?;
            run.saved_findings.extend(items.into_iter().filter_map(|item| called_for(item, place)));
        }
        Schema::Link => {
            let Links { transport, ends, links, findings } = serde_json::from_str(text)?;
            run.link_runs.push((
                SourceLine::new(place, ""),
                LinkRun { transport, ends, links, expected_gbit_s: None, interrupted: None },
            ));
            run.saved_findings.extend(findings.into_iter().filter_map(|finding| finding.with_advice(place)));
        }
        Schema::Monitor => run.saved_findings.extend(alerts(text, input)),
        Schema::Watch => run.watched.push((place, serde_json::from_str::<Watched>(text)?)),
    }
    Ok(())
}

/// What explain or doctor kept.
#[derive(Debug)]
pub struct Explained {
    /// Its tables, versions and variables.
    pub run: Run,
    /// What was found then, the first finding first.
    pub findings: Vec<(Code, Severity, String)>,
    only_host: Option<String>,
}

/// Reads `busbw.explain/1`.
///
/// # Errors
/// The text is no JSON, or not of this schema.
pub fn explained(text: &str) -> serde_json::Result<Explained> {
    let Document { tables, findings, environment, launch_environment, nccl, nodes } = serde_json::from_str(text)?;
    let devices = devices(&nodes);
    let with_devices = |table: Table| {
        let all_known = table.nranks == Some(devices.len() as u32);
        BenchTable { devices: if all_known { devices.clone() } else { Vec::new() }, ..table.into() }
    };
    let mut run = Run { tables: tables.into_iter().map(with_devices).collect(), ..Run::default() };
    let by_log = environment.into_iter().map(|setting| (setting, EnvOrigin::NcclLog));
    let by_command = launch_environment.into_iter().map(|setting| (setting, EnvOrigin::CommandLine));
    let setting = |((name, value), origin)| EnvSetting {
        name,
        value,
        origin,
        source: SourceLine::default(),
        until: None,
        hosts: Vec::new(),
    };
    run.nccl.env = by_log.chain(by_command).map(setting).collect();
    let line = |NcclVersion { version, cuda, library }| {
        Some(VersionLine { version: version?, cuda, library, processes: Vec::new(), source: SourceLine::default() })
    };
    run.nccl.versions = nccl.and_then(line).into_iter().collect();
    let only_host = match nodes.as_slice() {
        [only] => Some(only.host.clone()),
        _ => None,
    };
    Ok(Explained { run, findings: findings.into_iter().filter_map(Found::known).collect(), only_host })
}

fn saved((code, severity, text): (Code, Severity, String), host: &Option<String>, place: Place) -> SavedFinding {
    let source = SourceLine::new(place, &text);
    let (explanation, remedy) = Default::default();
    SavedFinding { host: host.clone(), code, severity, text, explanation, remedy, source }
}

/// What calls for action and leads to a finding.
fn called_for(item: CheckItem, place: Place) -> Option<SavedFinding> {
    let severity = match item.outcome {
        Outcome::Fail => Severity::Error,
        Outcome::Warn => Severity::Warning,
        Outcome::Ok | Outcome::Skip => return None,
    };
    let device = item.device.map_or(String::new(), |device| format!(" of {device}"));
    let text = format!("{}{device}: {}", item.item, item.detail);
    Some(saved((item.code?, severity, text), &Some(item.host), place))
}

/// What moved and should not, each counter once: as its last line shows it. A line that is cut off, as that of a monitor which was
/// killed, is passed over.
fn alerts(text: &str, input: u32) -> Vec<SavedFinding> {
    let mut last = BTreeMap::new();
    for (line, text) in (1..).zip(text.lines()) {
        let Ok(Moment { alerts }) = serde_json::from_str(text) else { continue };
        for alert in alerts {
            let place = Place { input, line };
            if let Some(found) = alert.found() {
                last.insert((alert.place, alert.counter), saved(found, &None, place));
            }
        }
    }
    last.into_values().collect()
}

/// The ranks of the nodes' GPUs: what the table's device list was made of.
fn devices(nodes: &[Node]) -> Vec<BenchDevice> {
    let device = |node: &Node, gpu: &Gpu| {
        let (device, bus_id) = (gpu.device.unwrap_or(0), gpu.bus_id.clone().unwrap_or_default());
        let name = gpu.name.clone().unwrap_or_default();
        Some(BenchDevice { rank: gpu.rank?, host: node.host.clone(), device, bus_id, name, ..BenchDevice::default() })
    };
    nodes.iter().flat_map(|node| node.gpus.iter().filter_map(move |gpu| device(node, gpu))).collect()
}

// Of each answer, the members that are read: their types are those that are written.

#[derive(Default, Deserialize)]
#[serde(default)]
struct Document {
    tables: Vec<Table>,
    findings: Vec<Found>,
    environment: BTreeMap<String, String>,
    launch_environment: BTreeMap<String, String>,
    nccl: Option<NcclVersion>,
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Found {
    #[serde(default, deserialize_with = "known")]
    code: Option<Code>,
    severity: Option<Severity>,
    title: String,
    #[serde(default)]
    explanation: String,
    #[serde(default)]
    remedy: Vec<String>,
}

impl Found {
    /// Of a code that this version knows.
    fn known(self) -> Option<(Code, Severity, String)> {
        Some((self.code?, self.severity.unwrap_or(Severity::Info), self.title))
    }

    /// The same, with all that it says.
    fn with_advice(mut self, place: Place) -> Option<SavedFinding> {
        let (explanation, remedy) = (std::mem::take(&mut self.explanation), std::mem::take(&mut self.remedy));
        Some(SavedFinding { explanation, remedy, ..saved(self.known()?, &None, place) })
    }
}

#[derive(Deserialize)]
struct Table {
    #[serde(default, deserialize_with = "known")]
    collective: Option<Collective>,
    nranks: Option<u32>,
    rows: Vec<BenchRow>,
    avg_busbw_gbs: Option<GBps>,
}

impl From<Table> for BenchTable {
    fn from(Table { collective, nranks, rows, avg_busbw_gbs }: Table) -> Self {
        BenchTable { collective, nranks, rows, printed_avg_busbw: avg_busbw_gbs, ..BenchTable::default() }
    }
}

#[derive(Deserialize)]
struct Checked {
    #[serde(default)]
    items: Vec<CheckItem>,
}

#[derive(Deserialize)]
struct Links {
    transport: LinkTransport,
    ends: Vec<LinkEnd>,
    links: Vec<Link>,
    #[serde(default)]
    findings: Vec<Found>,
}

/// A line of `monitor --json`.
#[derive(Deserialize)]
struct Moment {
    #[serde(default)]
    alerts: Vec<Alert>,
}

#[derive(Deserialize)]
struct Alert {
    place: String,
    counter: String,
    what: String,
    #[serde(default, deserialize_with = "known")]
    code: Option<Code>,
    severity: Severity,
    meaning: String,
    moved: u64,
}

impl Alert {
    fn found(&self) -> Option<(Code, Severity, String)> {
        let Alert { place, counter, what, meaning, moved, .. } = self;
        Some((self.code?, self.severity, format!("{place}: {what} ({counter}) moved by {moved}: {meaning}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_told_from_the_beginning() {
        let cases: [(&str, Option<Schema>); 4] = [
            ("{\n  \"schema\": \"busbw.explain/1\",\n", Some(Schema::Explain)),
            ("{\"schema\": \"busbw.check/1\"", Some(Schema::Check)),
            ("{\"schema\": \"busbw.facts/1\"", None),
            ("the schema \"busbw.link/1\"", None),
        ];
        for (text, schema) in cases {
            assert_eq!(Schema::of(text.as_bytes()), schema, "{text}");
        }
    }

    #[test]
    fn an_answer_of_explain_gives_figures_versions_and_what_was_found() {
        let text = r#"{"schema": "busbw.explain/1",
            "nccl": {"version": "2.27.7", "cuda": "12.4", "library": "nccl"},
            "tables": [{"collective": "all_reduce", "nranks": 8, "avg_busbw_gbs": 1.5, "rows": [
                {"size_bytes": 8, "count": 2, "datatype": "of later", "redop": "sum", "root": 3,
                 "out_of_place": {"time_us": 2.0, "algbw_gbs": 1.0, "busbw_gbs": 1.75, "wrong": 4},
                 "in_place": {"time_us": null, "algbw_gbs": 1.0, "busbw_gbs": null, "wrong": null}}]}],
            "findings": [{"code": "pcie.acs", "severity": "warning", "title": "ACS is on"}, {"code": "of.later", "title": ""}]}"#;
        let Explained { run, findings, .. } = explained(text).expect("such a document");
        assert_eq!(run.nccl.versions[0].version, "2.27.7");
        assert_eq!(findings, [(Code::PcieAcs, Severity::Warning, "ACS is on".to_string())]);
        let row = &run.tables[0].rows[0];
        assert_eq!((row.count, row.datatype, row.root, &row.in_place), (Some(2), None, None, &None));
        let half = row.out_of_place.as_ref().expect("its figures are numbers");
        assert_eq!((half.busbw, half.check), (GBps(1.75), busbw_model::Check::NotDone));
    }

    #[test]
    fn a_monitor_gives_each_counter_that_moved_once() {
        let line = |moved: u64, severity: &str| {
            format!(
                r#"{{"schema": "busbw.monitor/1", "alerts": [{{"place": "mlx5_0/1", "counter": "symbol_error", "what": "symbol errors",
                "code": "nic.rate", "severity": "{severity}", "meaning": "Bits arrive wrong.", "moved": {moved}}}]}}"#
            )
            .replace('\n', " ")
        };
        let text = [line(2, "info"), line(7, "warning"), "{\"schema\": \"busbw.mon".into()].join("\n");
        assert_eq!(Schema::of(text.as_bytes()), Some(Schema::Monitor));
        let mut run = Run::default();
        read(Schema::Monitor, &text, 0, &mut run).expect("lines of it");
        let [found] = &run.saved_findings[..] else { panic!("{:?}", run.saved_findings) };
        assert_eq!((found.code, found.severity, found.source.place.line), (Code::NicRate, Severity::Warning, 2));
        assert_eq!(found.text, "mlx5_0/1: symbol errors (symbol_error) moved by 7: Bits arrive wrong.");
    }

    #[test]
    fn a_check_gives_what_calls_for_action() {
        let text = r#"{"schema": "busbw.check/1", "items": [
            {"area": "pcie", "item": "link", "host": "a", "device": "mlx5_0", "detail": "x8 of x16", "result": "fail", "code": "pcie.degraded"},
            {"area": "rdma", "item": "port", "host": "a", "device": null, "detail": "Active", "result": "ok", "code": null}]}"#;
        let mut run = Run::default();
        read(Schema::Check, text, 3, &mut run).expect("such a document");
        let found: Vec<_> = run.saved_findings.iter().map(|f| (f.host.as_deref(), f.code, &*f.text)).collect();
        assert_eq!(found, [(Some("a"), Code::PcieDegraded, "link of mlx5_0: x8 of x16")]);
        assert_eq!(run.saved_findings[0].source.place.input, 3);
    }
}
