//! The screen, on terminals of several sizes, and what its keys do.

use crate::common;

use crate::svg::svg;
use busbw_monitor::Tracker;
use busbw_monitor::screen::{Asked, Screen};
use common::{node, node_that_did, node_with_a_silent_gpu};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;

/// The screen after so many seconds of the node.
fn after(seconds: u64) -> Screen {
    let (mut tracker, mut screen) = (Tracker::default(), Screen::new("every 1s".into()));
    for t in 0..=seconds {
        let moment = tracker.feed(&node(t));
        screen.show(moment, tracker.alerts().cloned().collect());
    }
    screen
}

fn press(screen: &mut Screen, keys: &str) -> Asked {
    keys.chars().map(|key| screen.key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE))).last().unwrap()
}

fn buffer(screen: &Screen, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap().buffer.clone()
}

fn text(screen: &Screen, width: u16, height: u16) -> String {
    let buffer = buffer(screen, width, height);
    let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
}

#[test]
fn a_large_terminal_shows_everything() {
    insta::assert_snapshot!(text(&after(5), 150, 26));
}

#[test]
fn a_usual_terminal_stacks_the_panes() {
    insta::assert_snapshot!(text(&after(5), 80, 24));
}

#[test]
fn a_gpu_that_tells_nothing_keeps_its_place() {
    let (mut tracker, mut screen) = (Tracker::default(), Screen::new(String::new()));
    let moment = tracker.feed(&node_with_a_silent_gpu(1));
    screen.show(moment, Vec::new());
    assert!(text(&screen, 150, 26).contains("GPU ? 97%"));
}

#[test]
fn any_size_can_be_drawn() {
    let mut screen = after(5);
    for keys in ["", "h", "h"] {
        if !keys.is_empty() {
            press(&mut screen, keys);
        }
        for (width, height) in [(1, 1), (2, 3), (10, 4), (40, 10), (50, 13), (300, 80)] {
            text(&screen, width, height);
            text(&Screen::new(String::new()), width, height);
        }
    }
    let small = text(&screen, 50, 12);
    assert!(small.contains("mlx5_bond_0/1") && small.contains("rp_cnp_handled"), "{small}");
}

#[test]
fn nothing_to_show_is_said() {
    assert!(text(&Screen::new(String::new()), 80, 24).contains("no RDMA device and no network interface here"));
}

#[test]
fn keys_sort_freeze_and_open_counters() {
    let mut screen = after(5);
    let first =
        |screen: &Screen| text(screen, 80, 24).lines().nth(3).unwrap().split_whitespace().next().unwrap().to_owned();
    assert_eq!(first(&screen), "mlx5_4/1");
    press(&mut screen, "s");
    assert_eq!(first(&screen), "mlx5_bond_0/1");
    press(&mut screen, "s");
    assert_eq!(first(&screen), "mlx5_4/1", "by what was received");
    press(&mut screen, "f");
    let mut tracker = Tracker::default();
    tracker.feed(&node(6));
    screen.show(tracker.feed(&node(60)), vec![]);
    assert!(text(&screen, 80, 24).contains("16:36:09 UTC  frozen"));
    press(&mut screen, "f");
    assert!(text(&screen, 80, 24).contains("16:37:04 UTC"));
    screen.key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE));
    let counters = text(&screen, 100, 24);
    assert!(counters.contains("counters of mlx5_4/1") && counters.contains("symbol errors on a lane"), "{counters}");
    assert!(press(&mut screen, "h") == Asked::Nothing && text(&screen, 80, 24).contains("freeze the screen"));
    assert_eq!(screen.key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE)), Asked::Nothing);
    assert_eq!(
        (press(&mut screen, ">"), press(&mut screen, "<"), press(&mut screen, "q")),
        (Asked::Slower, Asked::Faster, Asked::Quit)
    );
    assert_eq!(screen.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Asked::Quit);
}

/// Hosts with the same devices, one of which tells nothing any more: its rows stay and say so, its alerts name it.
#[test]
fn hosts_that_tell_nothing_keep_their_rows() {
    let mut screen = Screen::of(["h1", "h2", "h3"].into_iter());
    for at in 0..2 {
        let mut tracker = Tracker::default();
        for t in 0..5 {
            let moment = tracker.feed(&node(t));
            screen.show_host(at, moment, tracker.alerts().cloned().collect());
        }
    }
    screen.silent(1, Some("no answer for 7 s".into()));
    screen.silent(2, Some("ssh: connect to host h3 port 22: No route to host".into()));
    insta::assert_snapshot!(text(&screen, 100, 30));
    press(&mut screen, "s");
    let sorted = text(&screen, 100, 30);
    let places: Vec<usize> = ["h1           mlx5_bond_0/1", "h2           mlx5_bond_0/1", "h1           mlx5_4/1"]
        .iter()
        .map(|row| sorted.find(row).unwrap_or_else(|| panic!("{row}: {sorted}")))
        .collect();
    assert!(places.is_sorted(), "{sorted}");
}

#[test]
fn means_are_over_the_last_intervals() {
    let mut screen = after(3);
    let (mut tracker, mut jump) = (Tracker::default(), node(4));
    tracker.feed(&node(3));
    jump.ports[1].counters.values[6] += 2_500_000_000;
    screen.show(tracker.feed(&jump), vec![]);
    assert!(!text(&screen, 80, 24).contains("mean of"));
    press(&mut screen, "m");
    assert!(text(&screen, 150, 24).contains("mean of 10, by name"));
}

/// `INSTA_UPDATE=always cargo test -p busbw-monitor --test all screen` draws docs/monitor.svg anew.
#[test]
fn the_picture_of_the_docs_is_this_screen() {
    // All-reduce in steps: the bond's rate rises, falls and rests.
    let work = [0, 1, 1, 2, 2, 2, 1, 0];
    let (mut tracker, mut screen, mut done) = (Tracker::default(), Screen::new("every 1s".into()), 0);
    for second in 0..=44 {
        done += work[second as usize % work.len()];
        let moment = tracker.feed(&node_that_did(second, done));
        screen.show(moment, tracker.alerts().cloned().collect());
    }
    let drawn = svg(&buffer(&screen, 128, 24));
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/monitor.svg");
    if std::env::var("INSTA_UPDATE").as_deref() == Ok("always") {
        std::fs::write(file, &drawn).unwrap();
    }
    let kept = std::fs::read_to_string(file).unwrap();
    assert!(kept == drawn, "docs/monitor.svg is another screen; see above how to draw it");
    assert!(roxmltree::Document::parse(&kept).is_ok());
}
