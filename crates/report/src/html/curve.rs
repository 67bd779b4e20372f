//! The busbw curve of a table as SVG: log2 of the size across, GB/s upwards from zero.

use super::markup::escape;
use crate::words;
use busbw_model::{BenchRow, BenchTable, Bytes, GBps, Measure};

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 48.0;
/// Labels that fit along the axes.
const MAX_X_LABELS: u32 = 14;
const Y_STEPS: f64 = 5.0;

/// Takes one half of a row.
type Half = fn(&BenchRow) -> Option<&Measure>;

/// Where sizes and bandwidths lie in the picture.
struct Scale {
    low: f64,
    high: f64,
    top: f64,
}

impl Scale {
    /// `None` without two finite points to draw.
    fn new(table: &BenchTable, expected: Option<GBps>) -> Option<Self> {
        let sizes = || table.rows.iter().filter(|row| row.size.0 > 0).map(|row| (row.size.0 as f64).log2());
        let low = sizes().reduce(f64::min)?;
        let high = sizes().reduce(f64::max)?;
        let values = table.rows.iter().filter_map(BenchRow::best_busbw).chain(expected).map(|busbw| busbw.0);
        let top = values.filter(|value| value.is_finite()).reduce(f64::max)?;
        (low < high && top > 0.0).then_some(Scale { low, high, top: top * 1.08 })
    }

    fn x(&self, log2: f64) -> f64 {
        LEFT + (log2 - self.low) / (self.high - self.low) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, busbw: f64) -> f64 {
        HEIGHT - BOTTOM - busbw / self.top * (HEIGHT - TOP - BOTTOM)
    }

    fn at(&self, size: Bytes, busbw: GBps) -> Option<(f64, f64)> {
        (size.0 > 0 && busbw.0.is_finite()).then(|| (self.x((size.0 as f64).log2()), self.y(busbw.0)))
    }
}

/// The curve with both halves, the peak and, where it is said, what to expect; nothing for less than two sizes.
pub(super) fn curve(table: &BenchTable, expected: Option<GBps>) -> String {
    let Some(scale) = Scale::new(table, expected) else { return String::new() };
    let halves: [(&str, Half); 2] =
        [("in-place", |row| row.in_place.as_ref()), ("out-of-place", |row| row.out_of_place.as_ref())];
    let lines: String = halves.iter().map(|(class, half)| line(&scale, table, class, *half)).collect();
    let parts = [grid(&scale), expected.map(|busbw| expectation(&scale, busbw)).unwrap_or_default(), lines];
    let label = format!("busbw by size: {}, {}", words::table_title(table), words::table_figures(table).join(", "));
    format!(
        "<svg class=\"curve\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n{}{}{}</svg>\n",
        escape(&label),
        parts.concat(),
        peak(&scale, table),
        legend(table)
    )
}

fn grid(scale: &Scale) -> String {
    let mut out = String::new();
    let step = round_step(scale.top / Y_STEPS);
    let right = WIDTH - RIGHT;
    for count in 0..=(scale.top / step).floor() as u32 {
        let value = f64::from(count) * step;
        let y = scale.y(value);
        out.push_str(&format!("<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\n"));
        out.push_str(&format!("<text class=\"tick end\" x=\"{}\" y=\"{:.1}\">{value}</text>\n", LEFT - 8.0, y + 4.0));
    }
    let (first, last) = (scale.low.ceil() as u32, scale.high.floor() as u32);
    let every = ((last.saturating_sub(first)) / MAX_X_LABELS + 1).max(1);
    for power in (first..=last).filter(|power| (last - power) % every == 0) {
        let x = scale.x(f64::from(power));
        let (top, bottom) = (HEIGHT - BOTTOM, HEIGHT - BOTTOM + 5.0);
        out.push_str(&format!("<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>\n"));
        let size = Bytes(1u64.checked_shl(power).unwrap_or(u64::MAX));
        out.push_str(&format!("<text class=\"tick mid\" x=\"{x:.1}\" y=\"{:.1}\">{size}</text>\n", bottom + 15.0));
    }
    out + &format!(
        "<text class=\"axis end\" x=\"{right}\" y=\"{}\">message size (log scale)</text>\n\
         <text class=\"axis\" x=\"8\" y=\"18\">busbw, GB/s</text>\n",
        HEIGHT - 8.0
    )
}

/// About the same step, but 1, 2 or 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let rounded = [(1.5, 1.0), (3.5, 2.0), (7.5, 5.0)].into_iter().find(|(below, _)| step < below * power);
    rounded.map_or(10.0, |(_, factor)| factor) * power
}

fn line(scale: &Scale, table: &BenchTable, class: &str, half: Half) -> String {
    let points: Vec<(f64, f64, String)> = table
        .rows
        .iter()
        .filter_map(|row| {
            let measure = half(row)?;
            let (x, y) = scale.at(row.size, measure.busbw)?;
            Some((x, y, format!("{class}: {} at {}, {}", measure.busbw, row.size, measure.time)))
        })
        .collect();
    let path: Vec<String> = points.iter().map(|(x, y, _)| format!("{x:.1},{y:.1}")).collect();
    let dot = |(x, y, title): &(f64, f64, String)| {
        format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"><title>{title}</title></circle>\n")
    };
    let dots: String = points.iter().map(dot).collect();
    format!("<g class=\"{class}\">\n<polyline points=\"{}\"/>\n{dots}</g>\n", path.join(" "))
}

fn peak(scale: &Scale, table: &BenchTable) -> String {
    let Some((row, busbw)) = table.peak() else { return String::new() };
    let Some((x, y)) = scale.at(row.size, busbw) else { return String::new() };
    let side = if x > WIDTH * 0.8 {
        "end"
    } else if x < WIDTH * 0.2 {
        ""
    } else {
        "mid"
    };
    format!(
        "<circle class=\"ring\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"7\"/>\n\
         <text class=\"peak {side}\" x=\"{x:.1}\" y=\"{:.1}\">peak {busbw} at {}</text>\n",
        y - 14.0,
        row.size
    )
}

fn expectation(scale: &Scale, busbw: GBps) -> String {
    let y = scale.y(busbw.0);
    if !y.is_finite() {
        return String::new();
    }
    format!(
        "<line class=\"expected\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\n\
         <text class=\"expected\" x=\"{}\" y=\"{:.1}\">expected {busbw}</text>\n",
        WIDTH - RIGHT,
        LEFT + 8.0,
        y - 6.0
    )
}

fn legend(table: &BenchTable) -> String {
    let mut out = String::new();
    let mut x = WIDTH - RIGHT;
    let entries = [
        ("in-place", table.rows.iter().any(|row| row.in_place.is_some()), 76.0),
        ("out-of-place", table.rows.iter().any(|row| row.out_of_place.is_some()), 104.0),
    ];
    for (class, _, width) in entries.into_iter().filter(|(_, shown, _)| *shown) {
        x -= width;
        out.push_str(&format!(
            "<g class=\"{class}\"><polyline points=\"{:.1},14 {:.1},14\"/></g>\
             <text class=\"axis\" x=\"{x:.1}\" y=\"18\">{class}</text>\n",
            x - 26.0,
            x - 6.0
        ));
        x -= 40.0;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_the_axis_are_round() {
        let cases = [(9.6, 10.0), (0.8, 1.0), (17.0, 20.0), (42.0, 50.0), (0.031, 0.02), (10.4, 10.0)];
        for (step, rounded) in cases {
            assert!((round_step(step) - rounded).abs() < 1e-9, "{step}: {}", round_step(step));
        }
    }

    #[test]
    fn a_table_of_one_size_has_no_curve() {
        assert_eq!(curve(&BenchTable::default(), None), "");
    }
}
