//! What a job's collectives cost, as text.

use super::Style;
use super::page::Page;
use crate::profile::{Table, about, answer, tables};
use crate::style::{left, right};
use busbw_model::Profile;

/// Rows of a table that a text shows.
const MOST_ROWS: usize = 20;

/// The text of a profile, ready to print.
pub fn profile(profile: &Profile, style: &Style) -> String {
    let mut page = Page::new(*style);
    page.lead(&answer(profile));
    about(profile).iter().for_each(|line| page.indented(0, line));
    tables(profile).for_each(|table| print(&mut page, &table));
    if !profile.notes.is_empty() {
        page.heading("Not known");
        profile.notes.iter().for_each(|note| page.indented(2, note));
    }
    page.finish()
}

fn print(page: &mut Page, table: &Table) {
    page.heading(table.title);
    let head: Vec<String> = table.head.iter().map(|&name| name.to_owned()).collect();
    let all = || std::iter::once(&head).chain(table.rows.iter().take(MOST_ROWS));
    let width = |at: usize| all().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    for row in all() {
        let cell = |(at, text): (usize, &String)| {
            if at < table.names { left(text, widths[at]) } else { right(text, widths[at]) }
        };
        let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
        page.clipped(2, cells.join("  ").trim_end());
    }
    page.more(table.rows.len(), MOST_ROWS);
}
