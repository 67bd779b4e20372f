//! The screen as a picture: what is in a terminal's cells, as SVG.

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use std::fmt::Write as _;

const CELL: (f64, f64) = (8.0, 17.0);
const MARGIN: f64 = 12.0;
const BACKGROUND: &str = "#1b1f27";
const TEXT: &str = "#d8dee9";

/// Draws a buffer. Runs of cells that look alike become one text each.
pub fn svg(buffer: &Buffer) -> String {
    let area = buffer.area;
    let width = f64::from(area.width) * CELL.0 + 2.0 * MARGIN;
    let height = f64::from(area.height) * CELL.1 + 2.0 * MARGIN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"ui-monospace, \
         'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"13\">\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n"
    );
    for y in 0..area.height {
        let mut x = 0;
        while x < area.width {
            let first = &buffer[(x, y)];
            let alike = (x..area.width).take_while(|&at| looks(&buffer[(at, y)]) == looks(first));
            let end = alike.last().map_or(x + 1, |last| last + 1);
            let text: String = (x..end).map(|at| buffer[(at, y)].symbol()).collect();
            run(&mut out, (x, y), &text, first);
            x = end;
        }
    }
    out.push_str("</svg>\n");
    out
}

fn looks(cell: &Cell) -> (Color, Color, Modifier) {
    (cell.fg, cell.bg, cell.modifier)
}

fn run(out: &mut String, at: (u16, u16), text: &str, cell: &Cell) {
    let (left, top) = (MARGIN + f64::from(at.0) * CELL.0, MARGIN + f64::from(at.1) * CELL.1);
    let width = text.chars().count() as f64 * CELL.0;
    let reversed = cell.modifier.contains(Modifier::REVERSED);
    let fill = if reversed { BACKGROUND } else { color(cell.fg) };
    if reversed {
        let back = color(cell.fg);
        let _ =
            writeln!(out, "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{}\" fill=\"{back}\"/>", CELL.1);
    }
    if text.trim().is_empty() {
        return;
    }
    let weight = if cell.modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    let dim = if cell.modifier.contains(Modifier::DIM) && !reversed { " opacity=\"0.6\"" } else { "" };
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(
        out,
        "<text x=\"{left}\" y=\"{}\" textLength=\"{width}\" xml:space=\"preserve\" fill=\"{fill}\"{weight}{dim}>{escaped}</text>",
        top + 13.0
    );
}

fn color(color: Color) -> &'static str {
    match color {
        Color::Red => "#e06c75",
        Color::Green => "#98c379",
        Color::Yellow => "#e5c07b",
        Color::Magenta => "#c678dd",
        Color::Cyan => "#56b6c2",
        _ => TEXT,
    }
}
