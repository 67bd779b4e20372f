//! The terminal text: its look at several widths, and that logs cannot steer the terminal.

use crate::common;

use busbw_model::{Diagnosis, EnvOrigin, EnvSetting, Evidence, Nic, Run, SourceLine, Verdict};
use busbw_report::text::{self, Style};
use common::*;
use proptest::prelude::*;

fn plain(width: usize) -> Style {
    Style { color: false, width, ..Style::default() }
}

/// The text with escape characters made visible.
fn visible(text: &str) -> String {
    text.replace('\x1b', "␛")
}

#[test]
fn the_first_field_report_at_80_columns() {
    insta::assert_snapshot!(text::explain(&field_run(), &field_diagnosis(), &plain(80)));
}

#[test]
fn what_is_expected_stands_beside_what_was_measured() {
    let shown = text::explain(&field_run(), &expecting(), &plain(80));
    let at = |start: &str| shown.lines().map(str::trim).find(|line| line.starts_with(start)).map(str::to_string);
    let head = at("size  out-of-place").unwrap();
    assert_eq!(head.split_whitespace().take(4).collect::<Vec<_>>(), ["size", "out-of-place", "in-place", "expected"]);
    let row = at("512 B").unwrap();
    assert_eq!(row.split_whitespace().skip(2).collect::<Vec<_>>(), ["0.02", "0.02", "180.00"]);
    let row = at("256 MiB").unwrap();
    assert!(row.contains(" 180.00  █") && row.ends_with(" peak"), "{row}");
}

#[test]
fn what_many_nodes_have_in_common_is_shown_a_few_times_and_counted() {
    let shown = text::explain(&Run::default(), &fleet(), &plain(100));
    assert_eq!(shown.matches("warning[straggler.node] node").count(), 5, "{shown}");
    assert!(shown.contains("… and 7 more warning[straggler.node] like these"), "{shown}");
    assert!(shown.contains("    node0000  20.0  42% of the median, 3 measurements: the node"), "{shown}");
    assert!(shown.contains("… and 2 more\n"), "{shown}");
}

#[test]
fn a_whole_log_at_120_columns() {
    insta::assert_snapshot!(text::explain(&full_run(), &field_diagnosis(), &plain(120)));
}

/// What failed stands at the end of a warning, behind a time, a host and a place.
#[test]
fn a_long_warning_is_shown_to_its_end() {
    let (run, mut diagnosis) = failed();
    let warning = "[2026-05-22 10:26:17] node1:13740:13740 [7] misc/shmutils.cc:132 NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-AbCdEf (size 4096), error: No such file or directory (2)";
    let source = SourceLine { text: warning.into(), ..diagnosis.findings[0].evidence[0].source.clone() };
    diagnosis.findings[0].evidence = vec![Evidence::new(source)];
    let shown = text::explain(&run, &diagnosis, &plain(80));
    assert!(shown.contains("such file or directory (2)"), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
}

#[test]
fn a_failed_run_in_colour() {
    let (run, diagnosis) = failed();
    insta::assert_snapshot!(visible(&text::explain(
        &run,
        &diagnosis,
        &Style { color: true, width: 100, ..Style::default() }
    )));
}

#[test]
fn many_nodes_and_many_tables_are_summed_up() {
    let mut run = large_run(128, 8, 4);
    run.tables = sweep(56).tables;
    insta::assert_snapshot!(text::explain(&run, &diagnosis(Verdict::Healthy, "all is well"), &plain(100)));
}

#[test]
fn sixteen_thousand_ranks_fit_on_a_page() {
    let shown = text::explain(&large_run(2048, 8, 16), &field_diagnosis(), &plain(100));
    assert!(shown.lines().count() < 80, "{shown}");
}

#[test]
fn wrong_elements_are_marked_in_the_chart() {
    let mut run = field_run();
    run.tables[0].rows[20].in_place.as_mut().unwrap().check = busbw_model::Check::Wrong(3);
    let shown = text::explain(&run, &field_diagnosis(), &plain(80));
    assert!(shown.lines().any(|line| line.contains("512 MiB") && line.ends_with(" 3 wrong")), "{shown}");
}

#[test]
fn colour_changes_nothing_but_colour() {
    let colored =
        text::explain(&full_run(), &field_diagnosis(), &Style { color: true, width: 100, ..Style::default() });
    let mut stripped = String::new();
    for (index, part) in colored.split('\x1b').enumerate() {
        stripped.push_str(if index == 0 { part } else { part.split_once('m').unwrap().1 });
    }
    // Spaces at the end of a line are dropped only where no colour ends there.
    let stripped: Vec<&str> = stripped.lines().map(str::trim_end).collect();
    let uncolored = text::explain(&full_run(), &field_diagnosis(), &plain(100));
    assert_eq!(stripped, uncolored.lines().collect::<Vec<_>>());
}

#[test]
fn no_line_is_wider_than_the_page_but_for_commands() {
    let command = "`ethtool -S eth0 | grep -E 'ecn|cnp|pause'`".trim_matches('`');
    for width in [60, 80, 100, 120, 200] {
        for line in text::explain(&full_run(), &field_diagnosis(), &plain(width)).lines() {
            assert!(unicode_width::UnicodeWidthStr::width(line) <= width || line.contains(command), "{width}: {line}");
        }
    }
}

#[test]
fn a_width_out_of_range_is_brought_into_it() {
    let shown = |width| text::explain(&full_run(), &field_diagnosis(), &plain(width));
    assert_eq!(shown(0), shown(60));
    assert_eq!(shown(usize::MAX), shown(200));
}

/// Puts a text wherever a log's text may come to stand.
fn poisoned(poison: &str) -> (Run, Diagnosis) {
    let (mut run, mut diagnosis) = (full_run(), field_diagnosis());
    let add = |text: &mut String| text.push_str(poison);
    run.inputs.iter_mut().for_each(|input| add(&mut input.path));
    run.communicators.iter_mut().for_each(|comm| add(&mut comm.id));
    for node in &mut run.nodes {
        add(&mut node.host);
        node.gpus.iter_mut().filter_map(|gpu| gpu.name.as_mut()).for_each(add);
        node.nics.push(Nic { name: poison.into(), link: Some(poison.into()), index: Some(0), ..Nic::default() });
    }
    run.nccl.versions.iter_mut().for_each(|version| add(&mut version.version));
    let source = SourceLine::default();
    for origin in [EnvOrigin::NcclLog, EnvOrigin::CommandLine] {
        let (name, value) = (poison.to_string(), poison.to_string());
        run.nccl.env.push(EnvSetting { name, value, origin, source: source.clone(), until: None, hosts: vec![] });
    }
    add(&mut diagnosis.summary);
    for finding in &mut diagnosis.findings {
        add(&mut finding.title);
        add(&mut finding.explanation);
        finding.remedy.iter_mut().for_each(add);
        finding.expected_gain.iter_mut().for_each(|gain| add(&mut gain.basis));
        for line in &mut finding.evidence {
            line.source.text = format!("{}{poison}", line.source.text).into();
            line.note.iter_mut().for_each(add);
        }
    }
    diagnosis.expected.iter_mut().for_each(|expected| add(&mut expected.bottleneck));
    (run, diagnosis)
}

#[test]
fn escape_codes_of_a_log_never_reach_the_terminal() {
    for poison in ["\x1b[31mred", "\x1b]0;title\x07", "\u{9b}2J", "\x1b", "bell\x07", "\u{202e}txt"] {
        let (run, diagnosis) = poisoned(poison);
        let shown = text::explain(&run, &diagnosis, &plain(80));
        assert!(!shown.contains(['\x1b', '\u{9b}', '\x07', '\u{202e}']), "{poison:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn without_colour_there_is_no_control_character_whatever_the_log_holds(
        poison in ".*|[\\x00-\\x7f\\u{80}-\\u{9f}`]*",
        width in 0usize..220,
    ) {
        let (run, diagnosis) = poisoned(&poison);
        let shown = text::explain(&run, &diagnosis, &plain(width));
        prop_assert!(!shown.chars().any(|c| c.is_control() && c != '\n'));
    }
}
