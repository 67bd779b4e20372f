//! The table of a check: ITEM, DETAIL, RESULT by area, remedies below what calls for one, a closing line.

use super::Style;
use super::page::{Page, paint};
use crate::style::{clean_line, left, widest, wrap};
use crate::words::counted;
use busbw_model::{Area, CheckItem, Checked, Code, OddOne, Outcome};

/// The longest word of a result, and the space before it.
const RESULT: usize = 6;
/// Hosts that are named in a row; of more, their number is reported.
const MOST_NAMED: usize = 4;
/// Rows of an item that are well and differ in what was found; of more, the first are shown (JSON has all).
const MOST_ALIKE: usize = 4;

/// The table of a check, ready to print.
///
/// ```
/// let text = busbw_report::text::check(&busbw_model::Checked::default(), &Default::default());
/// assert!(text.ends_with("OK  nothing to do: 0 checks\n"), "{text}");
/// ```
pub fn check(checked: &Checked, style: &Style) -> String {
    let mut page = Page::new(*style);
    let mut rows = rows(checked);
    if style.brief {
        rows.retain(|row| matches!(row.first.outcome, Outcome::Fail | Outcome::Warn));
    }
    let items = rows.iter().map(|row| row.item).chain(checked.odd_ones.iter().map(|odd| odd.item.as_str()));
    let width = widest(items).max("ITEM".len());
    header(&mut page, checked, width, rows.is_empty() && checked.odd_ones.is_empty());
    for area in rows.iter().map(|row| row.area).collect::<std::collections::BTreeSet<_>>() {
        page.heading(area.title());
        for row in rows.iter().filter(|row| row.area == area) {
            row.print(&mut page, width);
        }
    }
    if !checked.odd_ones.is_empty() {
        page.heading("Differences between hosts");
        for odd in &checked.odd_ones {
            difference(&mut page, odd, width);
        }
    }
    summary(&mut page, checked);
    if style.brief {
        page.more_by("-v for what is well and what was skipped");
    }
    page.finish()
}

/// A line of the table: an item of one host, or of several that say the same.
struct Row<'a> {
    area: Area,
    item: &'a str,
    detail: &'a str,
    /// The first item of those that it stands for.
    first: &'a CheckItem,
    hosts: Vec<&'a str>,
    /// The devices that it holds of, on each of the hosts.
    devices: Vec<&'a str>,
    /// How many hosts there are in all.
    of: usize,
}

/// The items in the order of areas and of what is checked. Devices that came out alike on a host are one row, and so are hosts
/// whose row is the same; of rows that are well and differ only in what was found, the first few are kept.
fn rows(checked: &Checked) -> Vec<Row<'_>> {
    let mut of_host: Vec<Row> = Vec::new();
    for item in &checked.items {
        let devices = item.device.iter().map(String::as_str);
        match of_host.iter_mut().find(|row| row.says(item) && row.hosts == [item.host.as_str()]) {
            Some(row) => row.devices.extend(devices),
            None => of_host.push(Row::new(item, checked.hosts.len())),
        }
    }
    let mut rows: Vec<Row> = Vec::new();
    for row in of_host {
        match rows.iter_mut().find(|other| other.is_same(&row)) {
            Some(other) => other.hosts.extend(row.hosts),
            None => rows.push(row),
        }
    }
    let mut order: Vec<(Area, &str)> = Vec::new();
    for row in &rows {
        if !order.contains(&(row.area, row.item)) {
            order.push((row.area, row.item));
        }
    }
    rows.sort_by_key(|row| order.iter().position(|of| *of == (row.area, row.item)));
    shortened(rows)
}

fn shortened(rows: Vec<Row<'_>>) -> Vec<Row<'_>> {
    let mut kept: Vec<Row> = Vec::new();
    for row in rows {
        let alike = |other: &&Row| (other.area, other.item, other.first.outcome) == (row.area, row.item, Outcome::Ok);
        if row.first.outcome != Outcome::Ok || kept.iter().filter(alike).count() < MOST_ALIKE {
            kept.push(row);
        }
    }
    kept
}

impl<'a> Row<'a> {
    fn new(item: &'a CheckItem, of: usize) -> Self {
        let CheckItem { area, item: name, host, device, detail, .. } = item;
        let devices = device.iter().map(String::as_str).collect();
        Row { area: *area, item: name, detail, first: item, hosts: vec![host], devices, of }
    }

    /// Whether the item says the same, maybe of another device; then the remedy for the first is an example for all.
    fn says(&self, item: &CheckItem) -> bool {
        (self.area, self.item, self.detail) == (item.area, &*item.item, &item.detail)
            && alike(self.first, item)
            && self.devices.is_empty() == item.device.is_none()
    }

    fn is_same(&self, other: &Row) -> bool {
        (self.area, self.item, self.detail, &self.devices) == (other.area, other.item, other.detail, &other.devices)
            && alike(self.first, other.first)
    }

    fn print(&self, page: &mut Page, width: usize) {
        let what = self.first.why.as_deref().unwrap_or(self.detail);
        let hosts = (self.hosts.len() < self.of).then(|| named(&self.hosts, "host"));
        let devices = (!self.devices.is_empty()).then(|| named(&self.devices, "device"));
        let about: String = [hosts, devices].into_iter().flatten().map(|names| format!("{names}: ")).collect();
        line(page, width, self.item, &format!("{about}{what}"), self.first.outcome.as_str());
        if let Some(text) = &self.first.remedy {
            remedy(page, width, text, self.first.code);
        }
    }
}

/// Whether outcomes differ in the words of the remedy at most.
fn alike(one: &CheckItem, other: &CheckItem) -> bool {
    (one.outcome, one.code, &one.why) == (other.outcome, other.code, &other.why)
}

/// `h1, h2`, or `17 hosts`.
fn named(names: &[&str], noun: &str) -> String {
    if names.len() <= MOST_NAMED { names.join(", ") } else { counted(names.len(), noun) }
}

fn header(page: &mut Page, checked: &Checked, width: usize, without_rows: bool) {
    let hosts: Vec<&str> = checked.hosts.iter().map(String::as_str).collect();
    page.styled_line(paint::BOLD, &format!("busbw check of {}", named(&hosts, "host")));
    if without_rows {
        return;
    }
    page.end_line();
    let room = detail_width(page, width);
    page.styled_line(paint::DIM, &format!("  {}  {}RESULT", left("ITEM", width), left("DETAIL", room + 2)));
}

fn detail_width(page: &Page, item: usize) -> usize {
    page.width().saturating_sub(2 + item + 2 + 2 + RESULT).max(20)
}

fn line(page: &mut Page, width: usize, item: &str, detail: &str, result: &str) {
    let room = detail_width(page, width);
    let detail = wrap(&clean_line(detail), room);
    let first = detail.first().map_or("", String::as_str);
    page.text(&format!("  {}  {}", left(item, width), left(first, room + 2)));
    page.styled_line(paint_of(result), result);
    for rest in detail.iter().skip(1) {
        page.text(&format!("{}{rest}", " ".repeat(width + 4)));
        page.end_line();
    }
}

fn paint_of(result: &str) -> anstyle::Style {
    match result {
        "ok" => paint::GOOD,
        "warn" => paint::WARNING,
        "fail" => paint::ERROR,
        _ => paint::DIM,
    }
}

/// What to do, and which page tells more.
fn remedy(page: &mut Page, width: usize, text: &str, code: Option<Code>) {
    let page_of = code.map_or(String::new(), |code| format!(" [{code}]"));
    let indent = width + 4;
    let room = page.width().saturating_sub(indent + 2).max(20);
    for (number, rest) in wrap(&clean_line(&format!("{text}{page_of}")), room).iter().enumerate() {
        page.text(&" ".repeat(indent));
        page.styled(paint::NOTE, if number == 0 { "→ " } else { "  " });
        page.with_code(rest);
        page.end_line();
    }
}

fn difference(page: &mut Page, odd: &OddOne, width: usize) {
    let mut values: Vec<(&str, Vec<&str>)> = Vec::new();
    for (host, value) in &odd.differ {
        match values.iter_mut().find(|(known, _)| known == value) {
            Some((_, hosts)) => hosts.push(host),
            None => values.push((value, vec![host])),
        }
    }
    let differ: Vec<String> =
        values.iter().map(|(value, hosts)| format!("{}: {value}", named(hosts, "host"))).collect();
    let most = odd.majority.as_ref().map_or(String::new(), |value| format!(", most hosts: {value}"));
    line(page, width, &odd.item, &format!("{}{most}", differ.join("; ")), if odd.fails { "fail" } else { "warn" });
    remedy(page, width, &odd.remedy, odd.code);
}

fn summary(page: &mut Page, checked: &Checked) {
    let [ok, warn, fail, skip] = checked.counts();
    page.end_line();
    let (style, word, text) = match (fail, warn) {
        (0, 0) => (paint::GOOD, "OK", format!("nothing to do: {}", counted(ok, "check"))),
        (0, _) => (paint::WARNING, "WARN", format!("{} to look at, {ok} ok", counted(warn, "warning"))),
        _ => {
            (paint::ERROR, "FAIL", format!("{} failed, {}, {ok} ok", counted(fail, "check"), counted(warn, "warning")))
        }
    };
    let skipped = if skip > 0 { format!(", {skip} skipped") } else { String::new() };
    page.styled(style, word);
    page.text(&format!("  {text}{skipped}"));
    page.end_line();
    if let Some(code) = first_code(checked) {
        page.styled_line(paint::DIM, &format!("      what a code means: busbw explain --code {code}"));
    }
}

fn first_code(checked: &Checked) -> Option<Code> {
    let of_items = checked.items.iter().find_map(|item| item.code);
    of_items.or_else(|| checked.odd_ones.iter().find_map(|odd| odd.code))
}
