//! Known faults as a screen and as a page of text.

use busbw_diagnose::known_faults::situation::Situation;
use busbw_diagnose::known_faults::{advise, all};
use busbw_model::Component;
use busbw_report::text::{self, Style};

fn screen(style: &Style) -> String {
    let mut known = Situation::default();
    known.uses(Component::Nccl, "2.28.9".parse().unwrap());
    known.tell_arch("aarch64");
    known.tell_gpu("GB200");
    known.tell_nodes(128);
    text::advise(&advise(&known, all()), style)
}

#[test]
fn a_screen_has_the_worst_the_version_to_take_and_no_more() {
    let text = screen(&Style { width: 80, rows: Some(24), brief: true, ..Style::default() });
    assert!(text.starts_with("AT RISK  "), "{text}");
    assert!(text.lines().count() < 24 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
    for says in ["nccl-aarch64-proxy-pool-hang", "Version to take", "instead of 2.28.9"] {
        assert!(text.contains(says), "{says}: {text}");
    }
}

#[test]
fn the_whole_names_sources_and_what_has_to_be_told() {
    let text = screen(&Style::default());
    for says in ["https://", "Cannot know", "feature: ", "Can hit you"] {
        assert!(text.contains(says), "{says}: {text}");
    }
}
