//! What is seen, on a terminal: a row per rank, those to look at first in colour, and what was told below.

use crate::text::{Blocks, HEAD, Row, summary};
use crate::tracker::Tracker;
use busbw_model::Watched;
use busbw_monitor::screen::terminal::{Taken, is_closed, keys};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row as TableRow, Table};
use std::io;
use std::sync::mpsc::{Receiver, TryRecvError};

/// What the screen shows.
#[derive(Debug, Default)]
pub struct Shown {
    title: String,
    rows: Vec<Row>,
    /// The first row that is seen.
    from: usize,
    /// What each source tells, and why others do not.
    sources: Vec<String>,
    /// What was told last.
    pub told: Vec<String>,
}

impl Shown {
    /// Takes a sample.
    pub fn feed(&mut self, blocks: &mut Blocks, facts: &Watched, tracker: &Tracker) {
        self.show(blocks, facts, summary(facts, tracker.moved_us(), tracker.limit()));
    }

    fn show(&mut self, blocks: &mut Blocks, facts: &Watched, title: String) {
        self.title = title;
        self.rows = blocks.rows(facts);
        self.sources = facts.sources.iter().map(|source| format!("{}: {}", source.name, source.detail)).collect();
        self.sources.extend(facts.without_carrier.iter().map(|nic| format!("{nic} has no carrier")));
    }

    pub fn draw(&self, frame: &mut Frame) {
        let below = (self.sources.len() + self.told.len()) as u16;
        let parts = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(2),
            Constraint::Length(below.min(frame.area().height / 2)),
            Constraint::Length(1),
        ]);
        let [title, table, notes, foot] = parts.areas(frame.area());
        frame.render_widget(Line::from(vec!["busbw watch".bold(), format!("  {}", self.title).into()]), title);
        let width = |at: usize| {
            let cells = self.rows.iter().map(|row| row.cells[at].chars().count()).chain([HEAD[at].len()]);
            Constraint::Length(cells.max().unwrap_or(0) as u16)
        };
        let rows = self.rows.iter().skip(self.from).map(|row| {
            let style = if row.odd { Style::new().fg(Color::Red) } else { Style::new() };
            TableRow::new(row.cells.clone()).style(style)
        });
        let head = TableRow::new(HEAD).style(Style::new().dim());
        frame.render_widget(Table::new(rows, (0..HEAD.len()).map(width)).header(head).column_spacing(2), table);
        let told = self.told.iter().map(|line| Line::from(line.as_str()).fg(Color::Red));
        let lines: Vec<Line> = told.chain(self.sources.iter().map(|line| Line::from(line.as_str()).dim())).collect();
        frame.render_widget(Paragraph::new(lines), notes);
        frame.render_widget(Paragraph::new("q quit  up/down scroll").dim(), foot);
    }

    /// Takes a key; whether it asks for an end.
    pub fn key(&mut self, key: KeyEvent) -> bool {
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return true,
            // A terminal that gives keys one by one gives this one too.
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Down => self.from = (self.from + 1).min(self.rows.len().saturating_sub(1)),
            KeyCode::Up => self.from = self.from.saturating_sub(1),
            _ => {}
        }
        false
    }
}

/// The screen on a terminal.
pub struct Screen {
    terminal: Option<Taken>,
    keys: Receiver<KeyEvent>,
    blocks: Blocks,
    pub shown: Shown,
}

impl Screen {
    /// Takes the terminal.
    pub fn take() -> io::Result<Self> {
        Ok(Screen { terminal: Some(Taken::take()?), keys: keys()?, blocks: Blocks::default(), shown: Shown::default() })
    }

    /// Takes a sample, and shows it.
    pub fn feed(&mut self, facts: &Watched, tracker: &Tracker) -> io::Result<()> {
        self.shown.feed(&mut self.blocks, facts, tracker);
        self.draw()
    }

    fn draw(&mut self) -> io::Result<()> {
        let shown = &self.shown;
        self.terminal.as_mut().map_or(Ok(()), |terminal| terminal.draw(|frame| shown.draw(frame)))
    }

    /// Takes the keys that were pressed; whether somebody wants an end, or the terminal is closed.
    pub fn wants_end(&mut self) -> bool {
        if is_closed() {
            self.terminal.take().into_iter().for_each(Taken::leave);
            return true;
        }
        loop {
            match self.keys.try_recv() {
                Ok(key) if self.shown.key(key) => return true,
                Ok(_) => {
                    if self.draw().is_err() {
                        return true;
                    }
                }
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => {
                    self.terminal.take().into_iter().for_each(Taken::leave);
                    return true;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg::svg;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::time::Duration;

    /// `INSTA_UPDATE=always cargo test -p busbw-watch screen` draws docs/watch.svg anew. `busbw watch --attach --json` recorded the samples: a real
    /// job of four ranks, before and after rank 2 was stopped.
    #[test]
    fn the_picture_of_the_docs_is_this_screen() {
        let recorded = include_str!("../../../../tests/data/watch/stopped.jsonl");
        let (mut shown, mut blocks) = (Shown::default(), Blocks::default());
        for line in recorded.lines() {
            let facts: Watched = serde_json::from_str(line).expect("a sample");
            let moved = facts.ranks.iter().filter_map(|rank| rank.moved_us).max();
            shown.show(&mut blocks, &facts, summary(&facts, moved, Duration::from_secs(5)));
        }
        shown.told =
            vec!["Rank 2 on vm is stopped since 09:01:58: a signal holds it (SIGSTOP); ranks 0, 1, 3 wait".into()];
        let mut terminal = Terminal::new(TestBackend::new(110, 12)).expect("a buffer");
        terminal.draw(|frame| shown.draw(frame)).expect("it is drawn");
        let drawn = svg(terminal.backend().buffer());
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/watch.svg");
        if std::env::var("INSTA_UPDATE").as_deref() == Ok("always") {
            std::fs::write(file, &drawn).expect("room");
        }
        let kept = std::fs::read_to_string(file).expect("the picture");
        assert!(kept == drawn, "docs/watch.svg is another screen; see above how to draw it");
        assert!(drawn.contains("stopped"), "the rank that is stopped is there");
    }
}
