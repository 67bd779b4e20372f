//! What a job's collectives cost, in words and tables: text and page have the same.

use busbw_model::{Bytes, Profile, ProfiledOperation, ProfiledRank, StepTimes, Straggler, counted};

/// Rows under a head.
pub(crate) struct Table {
    pub title: &'static str,
    pub head: &'static [&'static str],
    /// So many columns at the left are names; the others are figures.
    pub names: usize,
    pub rows: Vec<Vec<String>>,
}

/// All tables that have rows, the most important first.
pub(crate) fn tables(profile: &Profile) -> impl Iterator<Item = Table> {
    let all = [ranks, operations, stragglers, worst, steps].map(|of| of(profile));
    all.into_iter().filter(|table| !table.rows.is_empty())
}

/// The answer in a sentence.
pub(crate) fn answer(profile: &Profile) -> String {
    let shares = || profile.ranks.iter().map(ProfiledRank::share);
    let (least, most) = (shares().fold(1.0, f64::min), shares().fold(0.0, f64::max));
    match profile.operations.first() {
        None => "No collective was seen.".to_owned(),
        Some(first) => format!(
            "Collectives run {} of the time between the first and the last; {} {} of {} take the most, {} of that.",
            range(least, most),
            first.count,
            first.collective,
            Bytes(first.bytes),
            percent(first.share)
        ),
    }
}

/// What it is about, and what is missing in it.
pub(crate) fn about(profile: &Profile) -> Vec<String> {
    let count: u64 = profile.operations.iter().map(|operation| operation.count).sum();
    let ranks = counted(profile.ranks.len(), "rank");
    let lost = if profile.lost == 0 { "none lost".to_owned() } else { format!("{} LOST", profile.lost) };
    let (events, wall) = (profile.events, time(profile.wall_us));
    let mut about =
        vec![format!("{ranks} on {}, {count} operations in {wall}; {events} events, {lost}.", profile.host)];
    if profile.lost > 0 {
        about.push("What was lost is missing in every figure below.".into());
    }
    let replayed: u64 = profile.operations.iter().map(|operation| operation.replayed).sum();
    if replayed > 0 {
        about.push(format!("{replayed} of the operations were replays of CUDA graphs."));
    }
    about
}

fn range(least: f64, most: f64) -> String {
    let (low, high) = (percent(least), percent(most));
    if low == high { low } else { format!("{low} to {high}") }
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

pub(crate) fn time(us: f64) -> String {
    match us {
        us if us < 1e3 => format!("{us:.1} us"),
        us if us < 1e6 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

pub(crate) fn named(rank: Option<u32>) -> String {
    rank.map_or_else(|| "?".into(), |rank| rank.to_string())
}

fn ranks(profile: &Profile) -> Table {
    let several = profile.ranks.iter().any(|rank| rank.host != profile.ranks[0].host);
    let row = |rank: &ProfiledRank| {
        let names = [named(rank.rank), rank.host.clone(), rank.process.to_string()];
        let figures = [
            time(rank.span_us),
            time(rank.busy_us),
            percent(rank.share()),
            percent(rank.overlap()),
            rank.waited_us.map_or_else(|| "-".into(), time),
        ];
        let shown = names.into_iter().enumerate().filter(|(at, _)| several || *at != 1).map(|(_, name)| name);
        shown.chain(figures).collect()
    };
    const HEAD: &[&str] =
        &["rank", "host", "process", "first to last", "in collectives", "share", "overlapped", "waited for others"];
    const OF_ONE: &[&str] =
        &["rank", "process", "first to last", "in collectives", "share", "overlapped", "waited for others"];
    let (head, names) = if several { (HEAD, 3) } else { (OF_ONE, 2) };
    Table { title: "Ranks", head, names, rows: profile.ranks.iter().map(row).collect() }
}

fn operations(profile: &Profile) -> Table {
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
    let rows = profile.operations.iter().map(row).collect();
    let head = &["collective", "size", "way", "count", "all time", "share", "median", "p99", "busbw GB/s", "expected"];
    Table { title: "Operations, all ranks together", head, names: 3, rows }
}

fn stragglers(profile: &Profile) -> Table {
    let row = |straggler: &Straggler| {
        let peer = straggler.peer.map_or_else(String::new, |peer| format!(" (rank {peer})"));
        vec![
            format!("rank {}", straggler.rank),
            format!("{}{peer}", straggler.class.text()),
            format!("in {} of {}", straggler.operations, straggler.of),
            time(straggler.cost_us),
        ]
    };
    let rows = profile.stragglers.iter().map(row).collect();
    Table { title: "Who holds others up", head: &["who", "how", "operations", "others lost"], names: 2, rows }
}

fn worst(profile: &Profile) -> Table {
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
    let rows = profile.worst.iter().map(row).collect();
    Table { title: "The worst", head: &["collective", "size", "whose", "after", "time", "x median"], names: 3, rows }
}

fn steps(profile: &Profile) -> Table {
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
    let rows = profile.ranks.iter().filter_map(row).collect();
    let head = &["rank", "steps", "send: GPU", "room", "network", "receive: network", "GPU", "sent"];
    Table { title: "What a step over the network waited for, on average", head, names: 1, rows }
}
