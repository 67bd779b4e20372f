//! busbw over size as SVG: log2 of the size across; GB/s upwards, as logarithm where they span more than a picture shows.

use super::markup::{escape, picture};
use busbw_model::{Bytes, GBps};
use std::collections::BTreeMap;

pub(super) const WIDTH: f64 = 1000.0;
pub(super) const HEIGHT: f64 = 360.0;
pub(super) const LEFT: f64 = 52.0;
pub(super) const RIGHT: f64 = 28.0;
pub(super) const TOP: f64 = 44.0;
pub(super) const BOTTOM: f64 = 48.0;
/// A rough width of a character of the font.
pub(super) const LETTER: f64 = 7.2;
/// The same of bold letters.
const BOLD_LETTER: f64 = 8.2;
/// Labels that fit along the axes.
const MAX_X_LABELS: u32 = 14;
const Y_STEPS: f64 = 5.0;

/// A picture of busbw over size.
pub(super) struct Curve<'a> {
    /// What it shows, for those who cannot see it.
    pub label: String,
    /// The lines, the one on top last.
    pub lines: Vec<Line>,
    /// A level to expect at every size.
    pub level: Option<GBps>,
    /// The point to mark as the peak.
    pub peak: Option<(Bytes, GBps)>,
    /// What else to say about a size.
    pub notes: BTreeMap<Bytes, &'a str>,
    /// Whether the names of the lines stand above the picture.
    pub legend: bool,
}

/// A line of the picture.
pub(super) struct Line {
    /// What it shows: `out-of-place`, `expected`.
    pub name: String,
    pub class: String,
    pub points: Vec<(Bytes, GBps)>,
    pub dots: bool,
    /// What it may be as well: from and to.
    pub band: Vec<(Bytes, (GBps, GBps))>,
}

/// The class that colours the line of a run or a table by its number: `k0` and so on of page.css.
pub(super) fn color(index: usize) -> String {
    format!("k{}", index % 8)
}

impl Line {
    /// A line without dots whose name is its class too: `out-of-place`, `in-place`, `expected` or `limit`.
    pub fn named(name: &str, points: Vec<(Bytes, GBps)>) -> Self {
        Line { name: name.into(), class: name.into(), points, dots: false, band: Vec::new() }
    }

    pub fn dotted(self) -> Self {
        Line { dots: true, ..self }
    }

    pub fn within(self, band: Vec<(Bytes, (GBps, GBps))>) -> Self {
        Line { band, ..self }
    }
}

/// Where sizes and bandwidths lie in the picture.
pub(super) struct Scale {
    low: f64,
    high: f64,
    top: f64,
    /// The value at the bottom of a logarithmic axis; a linear one begins with 0.
    bottom: Option<f64>,
}

/// From this ratio of the largest to the smallest value on, half of a linear picture would lie on its bottom.
const WIDE: f64 = 20.0;
/// Decades of a logarithmic axis at most: what is smaller says nothing.
const DECADES: i32 = 5;

impl Scale {
    /// `None` without two finite points to draw.
    fn new(curve: &Curve<'_>) -> Option<Self> {
        let points = || curve.lines.iter().flat_map(|line| &line.points);
        let sizes = || points().filter(|(size, _)| size.0 > 0).map(|(size, _)| (size.0 as f64).log2());
        let low = sizes().reduce(f64::min)?;
        let high = sizes().reduce(f64::max)?;
        let values = points().map(|(_, busbw)| *busbw).chain(curve.level).map(|busbw| busbw.0);
        let values = values.filter(|value| value.is_finite() && *value > 0.0);
        let (least, top) = (values.clone().reduce(f64::min)?, values.reduce(f64::max)?);
        let bottom = (top / least > WIDE).then(|| 10f64.powf(least.log10().floor()).max(top / 10f64.powi(DECADES)));
        let room = if bottom.is_some() { 1.6 } else { 1.08 };
        (low < high).then_some(Scale { low, high, top: top * room, bottom })
    }

    pub fn x(&self, log2: f64) -> f64 {
        LEFT + (log2 - self.low) / (self.high - self.low) * (WIDTH - LEFT - RIGHT)
    }

    pub fn y(&self, busbw: f64) -> f64 {
        let share = match self.bottom {
            Some(bottom) => (busbw.max(bottom) / bottom).ln() / (self.top / bottom).ln(),
            None => busbw / self.top,
        };
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }

    /// Zero has no logarithm: tables show it where two decimals are not enough.
    fn is_hidden(&self, busbw: f64) -> bool {
        self.bottom.is_some() && busbw <= 0.0
    }

    fn at(&self, size: Bytes, busbw: GBps) -> Option<(f64, f64)> {
        (size.0 > 0 && busbw.0.is_finite() && !self.is_hidden(busbw.0))
            .then(|| (self.x((size.0 as f64).log2()), self.y(busbw.0)))
    }
}

/// The picture; nothing for less than two sizes.
pub(super) fn draw(curve: &Curve<'_>) -> String {
    let Some(scale) = Scale::new(curve) else { return String::new() };
    let parts = [
        grid(&scale),
        curve.level.map(|busbw| level(&scale, busbw)).unwrap_or_default(),
        curve.lines.iter().map(|drawn| line(&scale, drawn)).collect(),
        curve.peak.map(|(size, busbw)| peak(&scale, curve, size, busbw)).unwrap_or_default(),
        if curve.legend { legend(&curve.lines) } else { String::new() },
        strips(&scale, curve),
    ];
    picture(&format!(
        "<svg class=\"curve\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n",
        escape(&curve.label),
        parts.concat(),
    ))
}

fn grid(scale: &Scale) -> String {
    let mut out = String::new();
    let right = WIDTH - RIGHT;
    for value in marks(scale) {
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
         <text class=\"axis\" x=\"8\" y=\"18\">busbw, GB/s{}</text>\n",
        HEIGHT - 8.0,
        if scale.bottom.is_some() { " (log scale)" } else { "" }
    )
}

/// The values at which the axis is marked.
fn marks(scale: &Scale) -> Vec<f64> {
    match scale.bottom {
        Some(bottom) => {
            let decades = (bottom.log10().round() as i32..).map(|power| 10f64.powi(power));
            decades.take_while(|value| *value <= scale.top).collect()
        }
        None => {
            let step = round_step(scale.top / Y_STEPS);
            (0..=(scale.top / step).floor() as u32).map(|count| f64::from(count) * step).collect()
        }
    }
}

/// About the same step, but 1, 2 or 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let rounded = [(1.5, 1.0), (3.5, 2.0), (7.5, 5.0)].into_iter().find(|(below, _)| step < below * power);
    rounded.map_or(10.0, |(_, factor)| factor) * power
}

fn line(scale: &Scale, line: &Line) -> String {
    let points: Vec<(f64, f64)> = line.points.iter().filter_map(|(size, busbw)| scale.at(*size, *busbw)).collect();
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let dot = |(x, y): &(f64, f64)| format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>\n");
    let dots: String = points.iter().filter(|_| line.dots).map(dot).collect();
    format!(
        "<g class=\"{}\">\n{}<polyline points=\"{}\"/>\n{dots}</g>\n",
        line.class,
        band(scale, &line.band),
        path.join(" ")
    )
}

/// The area of a line's band: along its upper edge and back along the lower one.
fn band(scale: &Scale, band: &[(Bytes, (GBps, GBps))]) -> String {
    let upper = band.iter().filter_map(|(size, (_, high))| scale.at(*size, *high));
    let lower = band.iter().rev().filter_map(|(size, (low, _))| scale.at(*size, *low));
    let corners: Vec<String> = upper.chain(lower).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    if corners.is_empty() { String::new() } else { format!("<polygon points=\"{}\"/>\n", corners.join(" ")) }
}

/// The peak's ring and label, which stands above it, below it, or further off: where it covers no line.
fn peak(scale: &Scale, curve: &Curve<'_>, size: Bytes, busbw: GBps) -> String {
    let Some((x, y)) = scale.at(size, busbw) else { return String::new() };
    let label = format!("peak {busbw} at {size}");
    let width = label.len() as f64 * BOLD_LETTER;
    let sides = [("mid", x - width / 2.0), ("end", x - width), ("", x)].into_iter();
    let sides = sides.filter(|(_, left)| (WIDTH * 0.05..=WIDTH - width).contains(left));
    let heights = [y - 14.0, y + 26.0, y - 34.0, y + 46.0, y + 66.0].into_iter();
    let heights = heights.filter(|at| (TOP..HEIGHT - BOTTOM - 4.0).contains(at));
    let mut places = sides.flat_map(|(side, left)| heights.clone().map(move |at| (side, left, at)));
    let last = if x > WIDTH / 2.0 { "end" } else { "" };
    let free = places.find(|(_, left, at)| !is_crossed(scale, curve, *left..left + width, *at));
    let (side, at) = free.map_or((last, y - 14.0), |(side, _, at)| (side, at));
    format!(
        "<circle class=\"ring\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"7\"/>\n\
         <text class=\"peak {side}\" x=\"{x:.1}\" y=\"{at:.1}\">{label}</text>\n",
    )
}

/// Whether a line of the picture runs through a text that stands there.
fn is_crossed(scale: &Scale, curve: &Curve<'_>, across: std::ops::Range<f64>, baseline: f64) -> bool {
    /// From the top of a capital to the bottom of a comma.
    const UP: f64 = 14.0;
    const DOWN: f64 = 6.0;
    let touches = |y: f64| y > baseline - UP && y < baseline + DOWN;
    let level = curve.level.is_some_and(|busbw| touches(scale.y(busbw.0)));
    let crosses = |line: &Line| {
        let points: Vec<(f64, f64)> = line.points.iter().filter_map(|(size, busbw)| scale.at(*size, *busbw)).collect();
        points.windows(2).any(|pair| {
            let [(x0, y0), (x1, y1)] = [pair[0], pair[1]];
            let (from, to) = (x0.max(across.start), x1.min(across.end));
            let height = |x: f64| if x1 > x0 { y0 + (x - x0) / (x1 - x0) * (y1 - y0) } else { y0 };
            let (upper, lower) = (height(from).min(height(to)), height(from).max(height(to)));
            from < to && lower > baseline - UP && upper < baseline + DOWN
        })
    };
    level || curve.lines.iter().any(crosses)
}

fn level(scale: &Scale, busbw: GBps) -> String {
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

/// The names of the lines, from right to left above the picture.
fn legend(lines: &[Line]) -> String {
    let mut out = String::new();
    let mut x = WIDTH - RIGHT;
    for Line { name, class, .. } in lines.iter().filter(|line| !line.points.is_empty()) {
        x -= name.len() as f64 * LETTER + 16.0;
        out.push_str(&format!(
            "<g class=\"{class}\"><polyline points=\"{:.1},14 {:.1},14\"/></g>\
             <text class=\"axis\" x=\"{x:.1}\" y=\"18\">{}</text>\n",
            x - 26.0,
            x - 6.0,
            escape(name)
        ));
        x -= 40.0;
    }
    out
}

/// With more sizes, a strip would be narrower than anybody can point at.
const MAX_STRIPS: usize = 200;
const LINE_HEIGHT: f64 = 18.0;
const PADDING: f64 = 10.0;

/// The values under the pointer, without a script: a strip per size shows its box while the pointer is over it, from halfway to the size before to halfway to the next.
fn strips(scale: &Scale, curve: &Curve<'_>) -> String {
    let values = values(curve);
    if values.len() > MAX_STRIPS {
        return String::new();
    }
    let at: Vec<f64> = values.keys().map(|size| scale.x((size.0 as f64).log2())).collect();
    let strips = values.iter().enumerate().map(|(index, (size, lines))| {
        let x = at[index];
        let before = index.checked_sub(1).map_or(LEFT, |before| (at[before] + x) / 2.0);
        let after = at.get(index + 1).map_or(WIDTH - RIGHT, |next| (next + x) / 2.0);
        let mut texts = vec![size.to_string()];
        texts.extend(lines.iter().map(|(name, busbw)| format!("{name} {busbw}")));
        texts.extend(curve.notes.get(size).map(|note| note.to_string()));
        strip(x, before, after, &texts)
    });
    strips.collect()
}

/// What the lines say at each size, in the order of the legend.
fn values<'a>(curve: &'a Curve<'_>) -> BTreeMap<Bytes, Vec<(&'a str, GBps)>> {
    let mut values: BTreeMap<Bytes, Vec<(&'a str, GBps)>> = BTreeMap::new();
    for line in curve.lines.iter().rev() {
        for (size, busbw) in line.points.iter().filter(|(size, busbw)| size.0 > 0 && busbw.0.is_finite()) {
            values.entry(*size).or_default().push((&line.name, *busbw));
        }
    }
    values
}

fn strip(x: f64, before: f64, after: f64, texts: &[String]) -> String {
    let letters = texts.iter().map(|text| text.chars().count()).max().unwrap_or(0);
    let width = letters as f64 * LETTER + 2.0 * PADDING;
    let height = texts.len() as f64 * LINE_HEIGHT + PADDING;
    let left = if x < WIDTH / 2.0 { x + 12.0 } else { x - 12.0 - width };
    let left = left.clamp(0.0, (WIDTH - width).max(0.0));
    let lines = texts.iter().enumerate().map(|(index, text)| {
        let y = TOP + LINE_HEIGHT * (index as f64 + 1.0) - 1.0;
        format!("<text x=\"{:.1}\" y=\"{y:.1}\">{}</text>", left + PADDING, escape(text))
    });
    let (bottom, strip_height) = (HEIGHT - BOTTOM, HEIGHT - BOTTOM - TOP);
    format!(
        "<g class=\"at\" tabindex=\"0\" role=\"img\" aria-label=\"{}\"><rect class=\"strip\" x=\"{before:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{strip_height}\"/>\
         <g class=\"tip\"><line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
         <rect x=\"{left:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{height}\" rx=\"6\"/>{}</g></g>\n",
        escape(&texts.join(", ")),
        after - before,
        lines.collect::<String>()
    )
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
    fn one_size_makes_no_curve() {
        let line = Line::named("expected", vec![(Bytes(8), GBps(1.0))]).dotted();
        let lines = vec![line];
        let curve =
            Curve { label: String::new(), lines, level: None, peak: None, notes: BTreeMap::new(), legend: true };
        assert_eq!(draw(&curve), "");
    }
}
