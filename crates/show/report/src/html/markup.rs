//! Pieces of HTML. Whatever is put in comes out escaped.

use crate::remedy::split_code;
use crate::style::{clean, is_item, paragraphs};

/// Text as HTML: control characters of logs made harmless, signs of the markup escaped.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in clean(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// A section with a heading; `body` is HTML.
pub(super) fn section(heading: &str, body: &str) -> String {
    format!("<section>\n<h2>{}</h2>\n{body}</section>\n", escape(heading))
}

/// A section behind a fold; nothing without anything in it.
pub(super) fn folded(heading: &str, body: &str) -> String {
    if body.is_empty() {
        return String::new();
    }
    format!("<details class=\"part\">\n<summary>{}</summary>\n{body}</details>\n", escape(heading))
}

/// A picture, which on a narrow screen scrolls instead of shrinking until its text cannot be read.
pub(super) fn picture(svg: &str) -> String {
    format!("<div class=\"scroll picture\" tabindex=\"0\">\n{svg}</div>\n")
}

/// A table of texts; columns of numbers are set to the right.
pub(super) fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let rows: Vec<Vec<String>> = rows.collect();
    let class = |cells: &mut dyn Iterator<Item = &String>| {
        let mut cells = cells.filter(|cell| !cell.is_empty()).peekable();
        let numbers = cells.peek().is_some() && cells.all(|cell| cell.parse::<f64>().is_ok());
        if numbers { " class=\"number\"" } else { "" }
    };
    let head = head.iter().enumerate().map(|(column, cell)| {
        let class = class(&mut rows.iter().filter_map(|row| row.get(column)));
        format!("<th{class}>{}</th>", escape(cell))
    });
    let head: String = head.collect();
    let cell = |cell: &String| format!("<td{}>{}</td>", class(&mut std::iter::once(cell)), escape(cell));
    let row = |row: &Vec<String>| format!("<tr>{}</tr>\n", row.iter().map(cell).collect::<String>());
    let rows: String = rows.iter().map(row).collect();
    format!(
        "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n"
    )
}

/// A list of texts; nothing without any.
pub(super) fn list<'a>(items: impl Iterator<Item = &'a str>) -> String {
    let items: String = items.map(|item| format!("<li>{}</li>\n", with_code(item))).collect();
    if items.is_empty() { items } else { format!("<ul>\n{items}</ul>\n") }
}

/// `… and 3 more`, when a list of `total` items shows `shown`.
pub(super) fn more(total: usize, shown: usize) -> String {
    if total > shown { format!("<p class=\"muted\">… and {} more</p>\n", total - shown) } else { String::new() }
}

/// Prose as paragraphs and lists; text in backquotes as code.
pub(super) fn prose(text: &str) -> String {
    let mut out = String::new();
    for paragraph in paragraphs(&clean(text)) {
        for blocks in paragraph.chunk_by(|a, b| is_item(a) == is_item(b)) {
            if blocks.iter().any(|block| is_item(block)) {
                let item = |block: &String| format!("<li>{}</li>", with_code(block.trim_start_matches("- ")));
                out.push_str(&format!("<ul>{}</ul>\n", blocks.iter().map(item).collect::<String>()));
            } else {
                out.push_str(&format!("<p>{}</p>\n", with_code(&blocks.join(" "))));
            }
        }
    }
    out
}

/// One line; text in backquotes as code.
pub(super) fn with_code(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, code, after)) = split_code(rest) {
        out.push_str(&format!("{}<code>{}</code>", escape(before), escape(code)));
        rest = after;
    }
    out + &escape(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_a_log_is_text() {
        let cases = [
            ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
            ("a & \"b\" 'c'", "a &amp; &quot;b&quot; &#39;c&#39;"),
            ("\x1b[31mred\x07", "red␇"),
        ];
        for (text, html) in cases {
            assert_eq!(escape(text), html);
        }
    }

    #[test]
    fn prose_becomes_paragraphs_lists_and_code() {
        let html = prose("Run `a < b`:\n- one\n- two\n\nEnd.");
        assert_eq!(html, "<p>Run <code>a &lt; b</code>:</p>\n<ul><li>one</li><li>two</li></ul>\n<p>End.</p>\n");
    }
}
