//! The page: whole, self-contained, and with nothing of a log as markup.

use crate::common;

use busbw_model::Diagnosis;
use busbw_model::{Code, Evidence, Profile, ProfiledRank, Run, Severity, SourceLine, Verdict};
use busbw_report::html::{self, Context};
use common::*;

fn page(run: &Run, diagnosis: &Diagnosis) -> String {
    html::explain(run, diagnosis, &Context::default()).to_string()
}

#[test]
fn the_page_is_self_contained() {
    let html = page(&full_run(), &field_diagnosis());
    assert!(html.contains(&format!("{PAGES}fabric.congestion.md\"")));
    let html = html.replace(PAGES, "");
    for outside in ["http://", "https://", "src=", "href=", "@import", "<script", "url(/", "<link"] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(html.starts_with("<!doctype html>") && html.ends_with("</html>\n"));
}

#[test]
fn every_element_is_closed() {
    let runs =
        [Run::default(), field_run(), full_run(), large_run(4, 4, 4), large_run(128, 8, 4), sweep(56), failed().0];
    for run in runs {
        let html = page(&run, &field_diagnosis());
        assert_eq!(unbalanced(&html), Vec::<String>::new());
    }
}

#[test]
fn the_page_of_a_profile_shows_where_time_went_and_nothing_of_the_job_as_markup() {
    let rank =
        ProfiledRank { rank: Some(3), span_us: 100.0, busy_us: 40.0, waited_us: Some(10.0), ..ProfiledRank::default() };
    let profile = Profile {
        job: "<script>\x1b[31m".into(),
        host: "<b>".into(),
        ranks: vec![rank, ProfiledRank::default()],
        notes: vec!["a & b".into()],
        ..Profile::default()
    };
    let page = html::profile(&profile).to_string();
    assert_eq!(unbalanced(&page), Vec::<String>::new());
    assert!(!page.contains("<script") && !page.contains('\x1b') && !page.contains("<b>") && !page.contains("NaN"));
    // 640 pixels are 100 us.
    for (class, x, width) in [("at-work", 190.0, 192.0), ("in-wait", 382.0, 64.0), ("by-itself", 446.0, 384.0)] {
        let bar = format!("class=\"{class}\" x=\"{x:.1}\" y=\"4.0\" width=\"{width:.1}\"");
        assert!(page.contains(&bar), "{bar}");
    }
    assert!(!html::profile(&Profile::default()).to_string().contains("<svg"));
}

#[test]
fn markup_in_a_log_stays_text() {
    let poison = "</pre><script>alert('1')</script>&\x1b[31m\"";
    let mut run = full_run();
    run.inputs[0].path = poison.into();
    run.nodes[0].host = poison.into();
    run.nodes[1].gpus[0].name = Some(poison.into());
    run.nodes[1].gpus[1].bus_id = Some(poison.into());
    run.nodes[1].nics[0].name = poison.into();
    run.communicators[0].id = poison.into();
    run.nccl.env[0].value = poison.into();
    run.nccl.versions[0].version = poison.into();
    let mut diagnosis = field_diagnosis();
    diagnosis.summary = poison.into();
    let source = SourceLine::new(Default::default(), poison);
    let mut finding = finding(Code::GpuError, Severity::Error, poison, poison);
    finding.evidence = vec![Evidence { source, note: Some(poison.into()) }];
    finding.remedy = vec![format!("{poison} `{poison}`")];
    diagnosis.findings.push(finding);
    let html = page(&run, &diagnosis);
    assert!(!html.contains("<script") && !html.contains('\x1b') && !html.contains("</pre>&lt;"));
    assert_eq!(unbalanced(&html), Vec::<String>::new());
    insta::assert_snapshot!(html.lines().find(|line| line.contains("<title>")).unwrap(), @"<title>DEGRADED: &lt;/pre&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot;</title>");
}

#[test]
fn the_curve_marks_the_peak_and_what_to_expect() {
    let html = page(&field_run(), &field_diagnosis());
    for text in ["peak 48.23 GB/s at 256 MiB", "expected 48.50 GB/s", "busbw, GB/s", "message size", "16 GiB"] {
        assert!(html.contains(text), "{text}");
    }
}

#[test]
fn what_is_expected_size_by_size_is_a_line_of_its_own() {
    let html = page(&field_run(), &expecting());
    for text in ["<g class=\"expected\">", "<g class=\"limit\">", "limited by</th>", "4 NICs &amp; a switch", "180.00"]
    {
        assert!(html.contains(text), "{text}");
    }
    // The level of one size is not drawn beside the line of all sizes.
    assert!(!html.contains("<line class=\"expected\""));
    assert_eq!(unbalanced(&html), Vec::<String>::new());
}

#[test]
fn small_clusters_are_drawn_and_large_ones_tabulated() {
    let healthy = diagnosis(Verdict::Healthy, "fine");
    let arrows = |run: &Run| page(run, &healthy).matches("class=\"arrow ").count();
    assert_eq!(arrows(&field_run()), 8);
    assert_eq!(arrows(&large_run(4, 16, 1)), 4);
    assert_eq!(arrows(&large_run(64, 8, 1)), 64);
    assert_eq!(arrows(&large_run(65, 4, 1)), 0);
    assert_eq!(arrows(&large_run(4, 129, 1)), 0);
    assert!(page(&large_run(128, 8, 4), &healthy).contains("node0127"));
}
