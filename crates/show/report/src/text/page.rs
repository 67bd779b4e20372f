//! The page that text is put on: the one place that writes escape sequences, and that makes log text harmless.

use super::Style;
use crate::remedy::split_code;
use crate::style::{clean, clean_line, clip, prose, wrap};

/// The colours.
pub(super) mod paint {
    use anstyle::{AnsiColor, Style};

    pub const PLAIN: Style = Style::new();
    pub const BOLD: Style = Style::new().bold();
    pub const DIM: Style = Style::new().dimmed();
    pub const ERROR: Style = AnsiColor::Red.on_default().bold();
    pub const WARNING: Style = AnsiColor::Yellow.on_default().bold();
    pub const NOTE: Style = AnsiColor::Cyan.on_default().bold();
    pub const GOOD: Style = AnsiColor::Green.on_default().bold();
    /// Line numbers and rules beside evidence, as rustc has them.
    pub const GUTTER: Style = AnsiColor::Blue.on_default().bold();
    /// Text to paste.
    pub const CODE: Style = AnsiColor::Cyan.on_default();
    pub const BAR: Style = AnsiColor::Blue.on_default();
}

/// Prose is not wider than this, however wide the terminal: longer lines are hard to read.
const MAX_PROSE: usize = 100;

/// A page in the making.
pub(super) struct Page {
    out: String,
    color: bool,
    width: usize,
    brief: bool,
}

impl Page {
    pub fn new(style: Style) -> Self {
        Page { out: String::new(), color: style.color, width: style.width.clamp(60, 200), brief: style.brief }
    }

    /// The page; what leads it stands at its end once more, where a screen of so many rows has scrolled it away.
    pub fn finish_with(mut self, rows: Option<usize>, lead: impl FnOnce(&mut Page)) -> String {
        if rows.is_some_and(|rows| self.out.lines().count() >= rows) {
            self.end_line();
            lead(&mut self);
        }
        self.out
    }

    /// Where there is more than a screen has room for.
    pub fn more_by(&mut self, how: &str) {
        self.styled_line(paint::DIM, &format!("More  {how}"));
    }

    /// Whether it should fit a screen.
    pub fn is_brief(&self) -> bool {
        self.brief
    }

    pub fn width(&self) -> usize {
        self.width
    }

    /// Columns of prose that begins after `indent` columns.
    pub fn prose_width(&self, indent: usize) -> usize {
        self.width.min(MAX_PROSE).saturating_sub(indent)
    }

    pub fn finish(self) -> String {
        self.out
    }

    /// Text as it is, made harmless.
    pub fn text(&mut self, text: &str) {
        self.out.push_str(&clean(text));
    }

    pub fn styled(&mut self, style: anstyle::Style, text: &str) {
        let styled = self.color && style != paint::PLAIN && !text.is_empty();
        if styled {
            self.out.push_str(&style.render().to_string());
        }
        self.text(text);
        if styled {
            self.out.push_str(&style.render_reset().to_string());
        }
    }

    /// The rest of a line.
    pub fn styled_line(&mut self, style: anstyle::Style, text: &str) {
        self.styled(style, text);
        self.end_line();
    }

    pub fn end_line(&mut self) {
        while self.out.ends_with(' ') {
            self.out.pop();
        }
        self.out.push('\n');
    }

    /// A line that says what follows, after an empty line.
    pub fn heading(&mut self, text: &str) {
        self.end_line();
        self.styled_line(paint::BOLD, text);
    }

    pub fn clipped(&mut self, indent: usize, text: &str) {
        self.text(&" ".repeat(indent));
        let text = clean_line(text);
        self.text(&clip(&text, self.width - indent));
        self.end_line();
    }

    /// Wrapped text: paragraphs and lists, `backquoted` parts in the colour of code.
    pub fn indented(&mut self, indent: usize, text: &str) {
        for line in prose(&clean(text), self.prose_width(indent)) {
            self.text(&" ".repeat(indent));
            self.with_code(&line);
            self.end_line();
        }
    }

    /// Wrapped text that continues a line which has `indent - 2` columns so far; all its lines begin at `indent`.
    pub fn hanging(&mut self, indent: usize, style: anstyle::Style, text: &str) {
        let text = clean_line(text);
        for (number, line) in wrap(&text, self.width - indent).iter().enumerate() {
            self.text(&" ".repeat(if number == 0 { 2 } else { indent }));
            self.styled_line(style, line);
        }
    }

    /// What a page says first: what stands between semicolons on a line of its own, wrapped, and indented from the second line on.
    pub fn lead(&mut self, text: &str) {
        let text = clean_line(text);
        let lines = text.split_inclusive("; ").flat_map(|part| wrap(part.trim_end(), self.width - 2));
        for (number, line) in lines.collect::<Vec<_>>().into_iter().enumerate() {
            self.text(if number == 0 { "" } else { "  " });
            self.styled_line(paint::BOLD, &line);
        }
    }

    /// `… and 3 more`, when a list of `total` items shows `shown`.
    pub fn more(&mut self, total: usize, shown: usize) {
        if let Some(text) = super::more(total, shown) {
            self.text("  ");
            self.styled_line(paint::DIM, &text);
        }
    }

    /// A line whose `backquoted` parts are in the colour of code.
    pub fn with_code(&mut self, line: &str) {
        let mut rest = line;
        while let Some((before, code, after)) = split_code(rest) {
            self.text(before);
            self.styled(paint::CODE, &rest[before.len()..before.len() + code.len() + 2]);
            rest = after;
        }
        self.text(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_written_only_when_asked_for() {
        let shown = |color| {
            let mut page = Page::new(Style { color, ..Style::default() });
            page.with_code("run `true\x1b[2J` now");
            page.finish()
        };
        assert_eq!(shown(false), "run `true` now");
        assert_eq!(shown(true), "run \x1b[36m`true`\x1b[0m now");
    }
}
