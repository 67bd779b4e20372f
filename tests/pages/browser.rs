//! The page of `busbw explain` in a real browser: pick a channel and see its ring, point at a size and see its value, with
//! mouse and keys, dark, light and printed. Pictures are kept in target/screenshots, for a person to compare.

use crate::chromium::{Chromium, Page, album};
use crate::skip::{needed, root_folder};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Inputs, and what to try in their page.
struct Case {
    /// A file under tests/data, or a folder whose files are all read.
    input: &'static str,
    /// A channel whose ring a line of the log gives.
    channel: Option<u16>,
    /// A size of the only table: as shown, and in bytes as the table has it.
    size: Option<(&'static str, &'static str)>,
}

const fn case(input: &'static str, channel: Option<u16>, size: Option<(&'static str, &'static str)>) -> Case {
    Case { input, channel, size }
}

const CASES: [Case; 12] = [
    case("runs/h20-2x8-roce-cross-switch/run.log", Some(2), Some(("256 MiB", "268435456"))),
    case("runs/h20-2x8-ib/run.log", None, Some(("1 GiB", "1073741824"))),
    case("runs/h20-2x8-tcp/run.log", None, Some(("1 MiB", "1048576"))),
    case("cases/013-veth-chosen-with-ens5/input", Some(0), None),
    case("cases/023-p2p-level-loc-a100/input", None, None),
    case("cases/027-acs-error4-vendor81-h100/input", None, None),
    case("cases/053-p2p-hang-pix-pxb-vtd/input", None, None),
    case("cases/054-two-tcp-nics-one-used/input", None, None),
    case("cases/086-nic-sys-distance-r7525/input", None, None),
    case("cases/095-v100-two-edr-41gbs-two-nodes/input", None, None),
    case("logs/044-nebius-soperator-2193-16rank.log", Some(5), None),
    case("logs/061-snellius-2223-2node.log", Some(1), Some(("8 GiB", "8589934592"))),
];

/// A page may be mailed and attached: it stays below this.
const MOST_BYTES: usize = 1_000_000;

#[test]
fn pages_of_real_runs_and_cases_work_in_a_browser() {
    let chromium = needed!(Chromium::start());
    for case in &CASES {
        println!("{}", case.input);
        let inputs = case.files();
        let (html, json) = (explain("html", &inputs), explain("json", &inputs));
        assert!(html.len() < MOST_BYTES, "{} bytes", html.len());
        let file = album().join(case.input.replace('/', "-")).with_extension("html");
        fs::write(&file, &html).expect("the page can be kept");
        let page = chromium.open(&file);
        whole(&page, &serde_json::from_str(&json).expect("JSON"));
        let log: String = inputs.iter().map(|input| fs::read_to_string(input).expect("text")).collect();
        if let Some(channel) = case.channel {
            rings(&page, channel, &log);
        }
        if let Some((shown, bytes)) = case.size {
            values(&page, shown, &busbw_of(&log, bytes));
        }
        media(&page);
        page.keep(&file.with_extension("png"));
    }
}

#[test]
fn curves_of_several_tables_stand_on_one_axis() {
    let chromium = needed!(Chromium::start());
    let runs = ["runs/h20-2x8-ib/run.log", "runs/h20-2x8-tcp/run.log"].map(|run| data().join(run));
    let file = album().join("two-runs.html");
    fs::write(&file, explain("html", &runs)).expect("the page can be kept");
    let page = chromium.open(&file);
    let lines = |table: u32| {
        page.value(&format!(
            "[...document.querySelectorAll('.curves svg g.table-{table}:not(.dashed)')].filter(line => \
            getComputedStyle(line).display != 'none').length"
        ))
    };
    assert_eq!((lines(1), lines(2)), (1.into(), 1.into()));
    page.click("label:has(#table-2)");
    assert_eq!((lines(1), lines(2)), (1.into(), 0.into()));
    let strip = ".curves .at[aria-label^='1 GiB,']";
    page.point_at(&format!("{strip} .strip"));
    let tip = page.text(&format!("document.querySelector(\"{strip}\").textContent"));
    for run in &runs {
        let busbw = busbw_of(&fs::read_to_string(run).expect("text"), "1073741824");
        assert!(busbw.iter().any(|value| tip.contains(value.as_str())), "{tip}: {busbw:?}");
    }
    page.keep(&file.with_extension("png"));
}

impl Case {
    fn files(&self) -> Vec<PathBuf> {
        let path = data().join(self.input);
        if path.is_file() {
            return vec![path];
        }
        let entries = fs::read_dir(&path).expect("the case's inputs");
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a file").path()).collect();
        files.sort();
        files
    }
}

/// Verdict, findings and evidence are what the JSON says; nothing is fetched; nothing is wider than the page.
fn whole(page: &Page, json: &Value) {
    let badge = match json["verdict"].as_str() {
        Some("no-errors") => "NO ERRORS".to_string(),
        Some("inconclusive") => "UNDECIDED".to_string(),
        verdict => verdict.unwrap_or_default().to_uppercase(),
    };
    assert_eq!(page.text("document.querySelector('.verdict').textContent"), badge);
    let title = json["summary"].as_str().unwrap_or_default().replace('`', "");
    assert_eq!(page.text("document.querySelector('h1').textContent"), title);
    let codes =
        page.value("[...document.querySelectorAll('.finding > .label code')].map(code => code.textContent).join()");
    let expected: Vec<&str> =
        json["findings"].as_array().expect("findings").iter().filter_map(|finding| finding["code"].as_str()).collect();
    assert_eq!(codes, expected.join(","));
    for line in json["findings"][0]["evidence"].as_array().into_iter().flatten() {
        let number = line["line"].as_u64().expect("a line");
        let shown = page.value(&format!(
            "[...document.querySelectorAll('.finding figure b > span')].some(span => span.textContent == '{number}') || \
             [...document.querySelectorAll('.finding figure pre > span')].some(span => span.textContent == '{number}')"
        ));
        assert!(number == 0 || shown == true, "line {number}");
    }
    assert_eq!(page.value("performance.getEntriesByType('resource').length"), 0);
    assert_eq!(page.value("document.scripts.length"), 0);
    assert_eq!(page.value("document.documentElement.scrollWidth <= innerWidth"), true);
}

/// Picking a channel lights its ring and nothing else; the arrow keys go to the next.
fn rings(page: &Page, channel: u16, log: &str) {
    page.click(&format!("label[for=channel-{channel}]"));
    assert_eq!(lit(page), ring_of(log, channel), "channel {channel}");
    let hosts = hosts_of(log);
    if !hosts.is_empty() {
        let crossing = |(from, to): &&(usize, usize)| hosts[*from] != hosts[*to];
        let expected = ring_of(log, channel).iter().filter(crossing).count();
        assert_eq!(page.value(&format!("{LIT}.filter(hop => hop.classList.contains('cross')).length")), expected);
    }
    assert_eq!(page.text("document.activeElement.id"), format!("channel-{channel}"));
    if page.value("document.querySelectorAll('input[name=channel]').length") == 1 {
        return;
    }
    page.press("ArrowLeft");
    let before = page.text("document.querySelector('input[name=channel]:checked').id");
    assert_ne!(before, format!("channel-{channel}"));
    if let Some(before) = before.strip_prefix("channel-") {
        assert_eq!(lit(page), ring_of(log, before.parse().expect("a channel")));
    }
    page.press("ArrowRight");
    assert_eq!(lit(page), ring_of(log, channel));
}

/// The hops that can be seen.
const LIT: &str = "[...document.querySelectorAll('.topology .hop')].filter(hop => hop.getClientRects().length)";

fn lit(page: &Page) -> Vec<(usize, usize)> {
    let hops = page.text(&format!("{LIT}.map(hop => hop.dataset.from + ' ' + hop.dataset.to).join()"));
    let number = |text: &str| text.parse().expect("a rank");
    hops.split(',').filter_map(|hop| hop.split_once(' ')).map(|(from, to)| (number(from), number(to))).collect()
}

/// Pointing at a size shows its values, and so does the keyboard; before, they are hidden.
fn values(page: &Page, size: &str, busbw: &[String; 2]) {
    let strip = format!(".at[aria-label^='{size},']");
    let visible = || page.text(&format!("getComputedStyle(document.querySelector(\"{strip} .tip\")).visibility"));
    assert_eq!(visible(), "hidden");
    page.point_at(&format!("{strip} .strip"));
    assert_eq!(visible(), "visible");
    let tip = page.text(&format!("document.querySelector(\"{strip} .tip\").textContent"));
    for value in busbw {
        assert!(tip.contains(&format!("{value} GB/s")), "{tip}: {value}");
    }
    page.point_at("h1");
    assert_eq!(visible(), "hidden");
    page.press("Tab");
    page.value(&format!("document.querySelector(\"{strip}\").focus()"));
    assert_eq!(visible(), "visible");
}

/// Dark and light differ and can be read; on paper nothing stays folded.
fn media(page: &Page) {
    let brightness = |part: &str| {
        let numbers = format!("getComputedStyle(document.body).{part}.match(/\\d+/g).slice(0, 3).map(Number)");
        page.value(&format!("{numbers}.reduce((a, b) => a + b, 0)")).as_f64().expect("a colour")
    };
    page.as_seen("screen", "dark");
    assert!(brightness("color") > brightness("backgroundColor") + 300.0);
    page.as_seen("print", "light");
    assert!(brightness("color") + 300.0 < brightness("backgroundColor"));
    let folded = "[...document.querySelectorAll('details > :not(summary)')].some(part => !part.checkVisibility())";
    assert_eq!(page.value(folded), false);
    page.as_seen("screen", "light");
}

/// The pairs of a ring, as the log's own line gives it.
fn ring_of(log: &str, channel: u16) -> Vec<(usize, usize)> {
    let start = format!("Channel {channel:02}/");
    let ranks = log.lines().find_map(|line| {
        let (_, ranks) = line.split_once(&start)?.1.split_once(" :")?;
        ranks.split_whitespace().map(|rank| rank.parse().ok()).collect::<Option<Vec<usize>>>()
    });
    let ranks = ranks.expect("a line of the ring");
    let next = ranks.iter().cycle().skip(1);
    ranks.iter().copied().zip(next.copied()).collect()
}

/// The host of each rank, from nccl-tests' list of devices.
fn hosts_of(log: &str) -> Vec<&str> {
    let devices = log.lines().filter(|line| line.starts_with("#  Rank"));
    devices.filter_map(|line| line.split(" on ").nth(1)?.split_whitespace().next()).collect()
}

/// busbw out of place and in place of a size, as the table prints them.
fn busbw_of(log: &str, bytes: &str) -> [String; 2] {
    let row = log.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = row.into_iter().find(|cells| cells.len() >= 13 && cells[0] == bytes).expect("a row of the size");
    [row[7].to_string(), row[11].to_string()]
}

fn data() -> PathBuf {
    root_folder().join("tests/data")
}

/// The busbw of the same build.
pub fn busbw() -> PathBuf {
    let test = std::env::current_exe().expect("the test knows its file");
    let busbw = test.ancestors().nth(2).expect("Cargo puts tests below programs").join("busbw");
    assert!(busbw.is_file(), "{} is not built: make test-all builds it first", busbw.display());
    busbw
}

fn explain(format: &str, inputs: &[impl AsRef<Path>]) -> String {
    let mut command = Command::new(busbw());
    command.args(["explain", "--format", format]).args(inputs.iter().map(AsRef::as_ref));
    let output = command.output().expect("busbw runs");
    assert!(matches!(output.status.code(), Some(0 | 1 | 3)), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}
