//! The values under the pointer, without a script: a strip per size, which shows its box while the pointer is over it.

use super::curve::{BOTTOM, Curve, HEIGHT, LEFT, LETTER, RIGHT, Scale, TOP, WIDTH};
use super::markup::escape;
use busbw_model::{Bytes, GBps};
use std::collections::BTreeMap;

/// With more sizes, a strip would be narrower than anybody can point at.
const MAX_STRIPS: usize = 200;
const LINE_HEIGHT: f64 = 18.0;
const PADDING: f64 = 10.0;

/// A strip per size of the curve, from halfway to the size before to halfway to the next.
pub(super) fn strips(scale: &Scale, curve: &Curve<'_>) -> String {
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
