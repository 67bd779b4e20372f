//! What a job's collectives cost, as text.

use super::Style;
use super::page::Page;
use crate::style::{left, right};
use busbw_model::{Bytes, Profile, ProfiledOperation, ProfiledRank, StepTimes, Straggler, counted};

/// Rows of a table that a text shows.
const MOST_ROWS: usize = 20;

/// The text of a profile, ready to print.
pub fn profile(profile: &Profile, style: &Style) -> String {
    let mut page = Page::new(*style);
    verdict(&mut page, profile);
    ranks(&mut page, profile);
    operations(&mut page, profile);
    stragglers(&mut page, profile);
    worst(&mut page, profile);
    steps(&mut page, profile);
    if !profile.notes.is_empty() {
        page.heading("Not known");
        profile.notes.iter().for_each(|note| page.indented(2, note));
    }
    page.finish()
}

fn verdict(page: &mut Page, profile: &Profile) {
    let shares = || profile.ranks.iter().map(ProfiledRank::share);
    let (least, most) = (shares().fold(1.0, f64::min), shares().fold(0.0, f64::max));
    let count: u64 = profile.operations.iter().map(|operation| operation.count).sum();
    let said = match profile.operations.first() {
        None => "No collective was seen.".to_owned(),
        Some(first) => format!(
            "Collectives run {} of the time between the first and the last; {} {} of {} take the most, {} of that.",
            range(least, most),
            first.count,
            first.collective,
            Bytes(first.bytes),
            percent(first.share)
        ),
    };
    page.lead(&said);
    let ranks = counted(profile.ranks.len(), "rank");
    let lost = if profile.lost == 0 { "none lost".to_owned() } else { format!("{} LOST", profile.lost) };
    let (events, wall) = (profile.events, time(profile.wall_us));
    page.indented(0, &format!("{ranks} on {}, {count} operations in {wall}; {events} events, {lost}.", profile.host));
    if profile.lost > 0 {
        page.indented(0, "What was lost is missing in every figure below.");
    }
}

fn range(least: f64, most: f64) -> String {
    let (low, high) = (percent(least), percent(most));
    if low == high { low } else { format!("{low} to {high}") }
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

fn time(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.1} us"),
        us if us < 1e6 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

/// Puts rows under a head; the first `lefts` columns begin at the left.
fn table(page: &mut Page, title: &str, head: &[&str], lefts: usize, rows: &[Vec<String>]) {
    if rows.is_empty() {
        return;
    }
    page.heading(title);
    let head: Vec<String> = head.iter().map(|&name| name.to_owned()).collect();
    let all = || std::iter::once(&head).chain(rows.iter().take(MOST_ROWS));
    let width = |at: usize| all().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    for row in all() {
        let cell = |(at, text): (usize, &String)| {
            if at < lefts { left(text, widths[at]) } else { right(text, widths[at]) }
        };
        let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
        page.clipped(2, cells.join("  ").trim_end());
    }
    page.more(rows.len(), MOST_ROWS);
}

fn named(rank: Option<u32>) -> String {
    rank.map_or_else(|| "?".into(), |rank| rank.to_string())
}

fn ranks(page: &mut Page, profile: &Profile) {
    let row = |rank: &ProfiledRank| {
        vec![
            named(rank.rank),
            rank.process.to_string(),
            time(rank.span_us),
            time(rank.busy_us),
            percent(rank.share()),
            percent(rank.overlap()),
            rank.waited_us.map_or_else(|| "-".into(), time),
        ]
    };
    let rows: Vec<_> = profile.ranks.iter().map(row).collect();
    let head = ["rank", "process", "first to last", "in collectives", "share", "overlapped", "waited for others"];
    table(page, "Ranks", &head, 2, &rows);
}

fn operations(page: &mut Page, profile: &Profile) {
    let row = |operation: &ProfiledOperation| {
        let way = [operation.algorithm.as_deref(), operation.protocol.as_deref()];
        let way: Vec<&str> = way.into_iter().flatten().collect();
        let busbw = operation.busbw_gbs.map_or_else(|| "-".into(), |busbw| format!("{busbw:.2}"));
        let expected = operation.expected_us.map_or_else(|| "-".into(), time);
        vec![
            operation.collective.to_string(),
            Bytes(operation.bytes).to_string(),
            if way.is_empty() { "-".into() } else { way.join(" ") },
            operation.count.to_string(),
            time(operation.total_us),
            percent(operation.share),
            time(operation.median_us),
            time(operation.p99_us),
            busbw,
            expected,
        ]
    };
    let rows: Vec<_> = profile.operations.iter().map(row).collect();
    let head = ["collective", "size", "way", "count", "all time", "share", "median", "p99", "busbw GB/s", "expected"];
    table(page, "Operations, all ranks together", &head, 3, &rows);
    let replayed: u64 = profile.operations.iter().map(|operation| operation.replayed).sum();
    if replayed > 0 {
        page.indented(2, &format!("{replayed} of these were replays of CUDA graphs."));
    }
}

fn stragglers(page: &mut Page, profile: &Profile) {
    let row = |straggler: &Straggler| {
        let peer = straggler.peer.map_or_else(String::new, |peer| format!(" (rank {peer})"));
        vec![
            format!("rank {}", straggler.rank),
            format!("{}{peer}", straggler.class.text()),
            format!("in {} of {}", straggler.operations, straggler.of),
            time(straggler.cost_us),
        ]
    };
    let rows: Vec<_> = profile.stragglers.iter().map(row).collect();
    table(page, "Who holds others up", &["who", "how", "operations", "others lost"], 2, &rows);
}

fn worst(page: &mut Page, profile: &Profile) {
    let row = |operation: &busbw_model::WorstOperation| {
        vec![
            operation.collective.to_string(),
            Bytes(operation.bytes).to_string(),
            format!("rank {}", named(operation.rank)),
            time(operation.begin_us),
            time(operation.time_us),
            format!("{:.1}", operation.times_median),
        ]
    };
    let rows: Vec<_> = profile.worst.iter().map(row).collect();
    table(page, "The worst", &["collective", "size", "whose", "after", "time", "x median"], 3, &rows);
}

fn steps(page: &mut Page, profile: &Profile) {
    let row = |rank: &ProfiledRank| {
        let StepTimes {
            steps,
            send_gpu_us,
            send_peer_us,
            send_network_us,
            receive_network_us,
            receive_gpu_us,
            sent_bytes,
        } = rank.steps;
        let each = |us: f64| time(us / (steps as f64 / 2.0));
        let waits = [send_gpu_us, send_peer_us, send_network_us, receive_network_us, receive_gpu_us].map(each);
        (steps > 0).then(|| {
            let sent = if sent_bytes > 0 { Bytes(sent_bytes).to_string() } else { "-".into() };
            [vec![named(rank.rank), steps.to_string()], waits.to_vec(), vec![sent]].concat()
        })
    };
    let rows: Vec<_> = profile.ranks.iter().filter_map(row).collect();
    let head = ["rank", "steps", "send: GPU", "room", "network", "receive: network", "GPU", "sent"];
    table(page, "What a step over the network waited for, on average", &head, 1, &rows);
}
