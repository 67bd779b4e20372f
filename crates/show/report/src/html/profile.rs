//! The page of what a job's collectives cost: where each rank's time went and which operations took it, as bars, then the tables.

use super::markup::{escape, list, picture, section, table};
use super::{Page, tiles};
use crate::profile::{about, answer, named, percent, tables, time};
use busbw_model::{Bytes, Profile, ProfiledOperation, ProfiledRank};

/// Bars of a picture at most; the tables have all.
const MOST_BARS: usize = 32;
const WIDTH: f64 = 1000.0;
const ROW: f64 = 26.0;
/// Where bars begin, and how long the longest is.
const LEFT: f64 = 190.0;
const BAR: f64 = 640.0;

/// A bar: its name, its parts as class, length and title, and what stands behind it.
struct Bar {
    name: String,
    parts: Vec<(&'static str, f64, String)>,
    behind: String,
}

/// The page of a profile. All text is escaped.
pub fn profile(profile: &Profile) -> Page {
    let legend = "<p class=\"muted\"><span class=\"swatch at-work\"></span> in collectives, \
                  <span class=\"swatch in-wait\"></span> waiting in them for ranks that came later, \
                  <span class=\"swatch by-itself\"></span> by itself</p>\n";
    let body = [
        figures(profile),
        format!("<p><code>{}</code></p>\n", escape(&profile.job)),
        about(profile).iter().map(|line| format!("<p class=\"muted\">{}</p>\n", escape(line))).collect(),
        drawn("Where each rank's time went", profile.ranks.iter().map(rank), legend),
        drawn("Operations by their time, all ranks together", operations(profile), ""),
        tables(profile).map(|one| section(one.title, &table(one.head, one.rows.into_iter()))).collect(),
        match list(profile.notes.iter().map(String::as_str)) {
            notes if notes.is_empty() => notes,
            notes => section("Not known", &notes),
        },
    ]
    .concat();
    let badge = if profile.lost > 0 { "events lost" } else { "profile" };
    Page { class: "simulated", badge, title: answer(profile), command: "profile", body }
}

fn figures(profile: &Profile) -> String {
    let busy: f64 = profile.ranks.iter().map(|rank| rank.busy_us).sum();
    let span: f64 = profile.ranks.iter().map(|rank| rank.span_us).sum();
    let waited: f64 = profile.ranks.iter().filter_map(|rank| rank.waited_us).sum();
    let mut all = vec![(time(profile.wall_us), "from the job's begin to its end".to_owned())];
    if span > 0.0 {
        all.push((percent(busy / span), "of the time in collectives".into()));
        all.push((percent(waited / span), "of the time waiting for ranks that came later".into()));
    }
    if let Some(first) = profile.stragglers.first() {
        all.push((format!("rank {}", first.rank), format!("holds others up: {}", first.class.text())));
    }
    tiles(&all)
}

/// From the first operation to the last: in operations, waiting in them, by itself.
fn rank(rank: &ProfiledRank) -> Bar {
    let waited = rank.waited_us.unwrap_or(0.0).min(rank.busy_us);
    let parts = [
        ("at-work", rank.busy_us - waited, "in collectives"),
        ("in-wait", waited, "waiting for others"),
        ("by-itself", (rank.span_us - rank.busy_us).max(0.0), "by itself"),
    ];
    let part = |(class, us, what): (&'static str, f64, &str)| (class, us, format!("{what}: {}", time(us)));
    let behind = format!("{} in collectives", percent(rank.share()));
    Bar { name: format!("rank {}", named(rank.rank)), parts: parts.map(part).into(), behind }
}

/// How long operations of a sort took beside what is expected of them, where that is known.
fn operations(profile: &Profile) -> impl Iterator<Item = Bar> {
    profile.operations.iter().map(|operation: &ProfiledOperation| {
        let expected = operation.expected_us.map(|us| (us * operation.count as f64).min(operation.total_us));
        let beyond = operation.total_us - expected.unwrap_or(0.0);
        let mut parts = vec![("at-work", expected.unwrap_or(beyond), time(operation.total_us))];
        parts.extend(expected.map(|_| ("in-wait", beyond, format!("{} more than expected", time(beyond)))));
        let behind = format!("{} × {}", operation.count, time(operation.median_us));
        Bar { name: format!("{} {}", operation.collective, Bytes(operation.bytes)), parts, behind }
    })
}

fn drawn(heading: &str, bars: impl Iterator<Item = Bar>, legend: &str) -> String {
    let bars: Vec<Bar> = bars.take(MOST_BARS).collect();
    let length = |bar: &Bar| bar.parts.iter().map(|(_, us, _)| us).sum::<f64>();
    let longest = bars.iter().map(length).fold(0.0, f64::max);
    if longest <= 0.0 {
        return String::new();
    }
    let rows: String =
        bars.iter().enumerate().map(|(row, bar)| drawing(bar, row as f64 * ROW, BAR / longest)).collect();
    let height = bars.len() as f64 * ROW;
    let svg = format!(
        "<svg class=\"bars\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n{rows}</svg>\n",
        escape(heading)
    );
    section(heading, &(picture(&svg) + legend))
}

/// One row; `scale`: how long a microsecond is.
fn drawing(bar: &Bar, y: f64, scale: f64) -> String {
    let mut x = LEFT;
    let part = |(class, us, title): &(&str, f64, String)| {
        let (from, width) = (x, us * scale);
        x += width;
        format!(
            "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{}\"><title>{}</title></rect>",
            y + 4.0,
            ROW - 8.0,
            escape(title)
        )
    };
    let parts: String = bar.parts.iter().map(part).collect();
    format!(
        "<text class=\"tick end\" x=\"{}\" y=\"{:.1}\">{}</text>{parts}<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\n",
        LEFT - 10.0,
        y + 18.0,
        escape(&bar.name),
        x + 8.0,
        y + 18.0,
        escape(&bar.behind)
    )
}
