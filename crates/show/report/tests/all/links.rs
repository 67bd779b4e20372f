//! Links as text, JSON and a page.

use crate::common;

use busbw_model::{
    Bytes, Code, Diagnosis, Link, LinkEnd, LinkFigures, LinkLatency, LinkRun, LinkTransport, Micros, Severity, Verdict,
};
use busbw_report::text::Style;
use busbw_report::{html, json, text};
use common::{PAGES, finding, schema_errors, unbalanced};

const SCHEMA: &str = include_str!("../../../../../docs/schema/link-1.schema.json");

/// Three hosts; what the second sends is slow, and the third was lost on its way to the first.
fn three() -> (LinkRun, Diagnosis) {
    let end = |name: &str, number: usize| LinkEnd {
        host: name.into(),
        nic: "eth0".into(),
        address: format!("10.0.0.{number}"),
        rate_gbit_s: Some(25.0),
        quality_of_service: None,
        trouble: None,
    };
    let figures = |gbit_s: f64| LinkFigures {
        gbit_s,
        latency: Some(LinkLatency { median: Micros(21.4), p99: Micros(1250.0) }),
        flows: vec![(1, gbit_s / 2.0), (4, gbit_s)],
        sizes: vec![(Bytes(65536), gbit_s * 0.9), (Bytes(4 << 20), gbit_s)],
        losses: if gbit_s < 1.0 { vec![("out_of_sequence".into(), 7)] } else { vec![] },
        ..LinkFigures::default()
    };
    let link = |from, to, gbit_s| Link { from, to, outcome: Ok(figures(gbit_s)) };
    let mut links = vec![link(0, 1, 23.4), link(0, 2, 23.1), link(1, 0, 0.94), link(1, 2, 0.95)];
    links.push(Link { from: 2, to: 0, outcome: Err("h3: <its> process has ended".into()) });
    links.push(link(2, 1, 20.2));
    let ends = vec![end("h1", 1), end("h2", 2), end("h3", 3)];
    let run = LinkRun { transport: LinkTransport::Tcp, ends, links, expected_gbit_s: None, interrupted: None };
    let title = "h2 is slow: it sends 0.94 Gbit/s, where links of the others carry 23.1";
    let diagnosis = Diagnosis {
        verdict: Verdict::Degraded,
        summary: title.into(),
        findings: vec![finding(Code::StragglerNode, Severity::Error, title, "Nearly all links of h2 are slow.")],
        ..Diagnosis::default()
    };
    (run, diagnosis)
}

#[test]
fn links_as_text() {
    let (run, diagnosis) = three();
    insta::assert_snapshot!(text::link(&run, &diagnosis, &Style::default()));
    let coloured = text::link(&run, &diagnosis, &Style { color: true, width: 100, ..Style::default() });
    assert!(coloured.contains("\u{1b}[1m\u{1b}[31m  !0.94\u{1b}[0m"), "{coloured}");
}

#[test]
fn a_wide_matrix_is_cut_into_blocks() {
    let (mut run, diagnosis) = three();
    for number in 3..30 {
        run.ends.push(LinkEnd { host: format!("host{number:02}"), ..run.ends[0].clone() });
    }
    let shown = text::link(&run, &diagnosis, &Style { color: false, width: 80, ..Style::default() });
    assert!(shown.lines().filter(|line| line.contains("from \\ to")).count() > 3, "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 100), "{shown}");
}

#[test]
fn settings_of_roce_are_one_line_where_hosts_agree() {
    let (mut run, diagnosis) = three();
    let shown = |run: &LinkRun| text::link(run, &diagnosis, &Style { width: 150, ..Style::default() });
    assert!(!shown(&run).contains("RoCE"), "what no host tells is not claimed");
    for end in &mut run.ends {
        end.quality_of_service = Some("trust dscp, PFC on priorities 3".into());
    }
    assert!(shown(&run).contains("\n  RoCE settings: trust dscp, PFC on priorities 3\n"), "{}", shown(&run));
    run.ends[1].quality_of_service = Some("trust pcp, PFC off".into());
    run.ends[2].quality_of_service = None;
    let differ = "\n  RoCE settings: h1: trust dscp, PFC on priorities 3; h2: trust pcp, PFC off\n";
    assert!(shown(&run).contains(differ), "{}", shown(&run));
}

#[test]
fn links_as_json() {
    let (run, diagnosis) = three();
    let mut out = Vec::new();
    json::write_link(&run, &diagnosis, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(schema_errors(SCHEMA, &text), Vec::<String>::new());
}

#[test]
fn links_as_a_page() {
    let (run, diagnosis) = three();
    let page = html::link(&run, &diagnosis).to_string().replace(PAGES, "");
    assert_eq!(unbalanced(&page), Vec::<String>::new());
    for text in ["class=\"far\"", "class=\"low\"", "class=\"good\"", "class=\"failed\"", "h3: &lt;its&gt; process"] {
        assert!(page.contains(text), "{text}");
    }
    for outside in ["http://", "https://", "src=", "href=", "<script"] {
        assert!(!page.contains(outside), "{outside}");
    }
}
