//! A picture of predicted against measured times, as SVG.

use super::measurement::Status;
use super::report::Compared;
use std::fmt::Write;

/// Edge of the square that points lie in, and the room for labels around it, in pixels.
const EDGE: f64 = 460.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 20.0;
/// Powers of ten of a microsecond on both axes.
const DECADES: (i32, i32) = (0, 6);

/// Every row of the tables with one status: measured time across, predicted time up, on logarithmic axes. On the diagonal
/// both agree; the band is 20% to either side.
pub fn scatter(compared: &[Compared], status: Status, title: &str) -> String {
    let (width, height) = (LEFT + EDGE + 20.0, TOP + EDGE + 50.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>{title}</title>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for decade in DECADES.0..=DECADES.1 {
        let at = place(10f64.powi(decade));
        let label = ["1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s"][(decade - DECADES.0) as usize];
        let (x, y) = (LEFT + at, TOP + EDGE - at);
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {TOP}V{:.1}M{LEFT} {y:.1}H{:.1}\" stroke=\"#dddddd\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            TOP + EDGE,
            LEFT + EDGE,
            TOP + EDGE + 18.0,
            LEFT - 6.0,
            y + 4.0
        );
    }
    band(&mut svg);
    for one in compared.iter().filter(|c| c.status == status) {
        for ((size, measured), row) in one.measured.iter().zip(&one.predicted.rows) {
            let (x, y) = (LEFT + place(measured.0), TOP + EDGE - place(row.time.0));
            let _ = writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"#1f6feb\" fill-opacity=\"0.6\"><title>{}, {size}: measured \
                 {:.1} us, predicted {:.1} us</title></circle>",
                one.name, measured.0, row.time.0
            );
        }
    }
    let (middle, bottom) = (LEFT + EDGE / 2.0, TOP + EDGE + 40.0);
    let _ = writeln!(svg, "<text x=\"{middle}\" y=\"{bottom}\" text-anchor=\"middle\">measured</text>");
    let _ = writeln!(
        svg,
        "<text transform=\"translate(14 {}) rotate(-90)\" text-anchor=\"middle\">predicted</text>\n</svg>",
        TOP + EDGE / 2.0
    );
    svg
}

/// The diagonal and 20% to either side.
fn band(svg: &mut String) {
    let shift = place(1.2) - place(1.0);
    let (left, right, top, bottom) = (LEFT, LEFT + EDGE, TOP, TOP + EDGE);
    let _ = writeln!(
        svg,
        "<path d=\"M{left} {bottom}L{left} {:.1}L{:.1} {top}L{right} {top}L{right} {:.1}L{:.1} {bottom}Z\" fill=\"#1f6feb\" \
         fill-opacity=\"0.1\"/><path d=\"M{left} {bottom}L{right} {top}\" stroke=\"#555555\"/>",
        bottom - shift,
        right - shift,
        top + shift,
        left + shift
    );
}

fn place(time: f64) -> f64 {
    let (low, high) = (f64::from(DECADES.0), f64::from(DECADES.1));
    ((time.max(1e-3).log10() - low) / (high - low)).clamp(0.0, 1.0) * EDGE
}

/// Width of the picture of bands.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
/// Powers of two of the size, across.
const SIZES: (f64, f64) = (3.0, 34.0);
/// Measured over predicted time, up.
const RATIOS: (f64, f64) = (0.33, 3.0);

/// Every row of the tables marked good: size across, measured over predicted time up, both on logarithmic axes. A dot's
/// stroke is the band of its row; dots outside theirs are red.
pub fn bands(compared: &[Compared], title: &str) -> String {
    let (width, height) = (LEFT + WIDTH + 20.0, TOP + HEIGHT + 50.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>{title}</title>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    axes(&mut svg);
    let rows = compared
        .iter()
        .filter(|one| one.status == Status::Good)
        .flat_map(|one| one.measured.iter().zip(&one.predicted.rows).map(move |(measured, row)| (one, measured, row)));
    let (mut strokes, mut dots) = (String::new(), String::new());
    for (one, (size, measured), row) in rows {
        // The slowest of the band has the least busbw.
        let (fastest, slowest) = (row.busbw.0 / row.band.1.0, row.busbw.0 / row.band.0.0);
        let ratio = measured.0 / row.time.0;
        let (x, y) = (across(size.0), up(ratio));
        let inside = (fastest..=slowest).contains(&ratio);
        let _ = writeln!(
            strokes,
            "<path d=\"M{x:.1} {:.1}V{:.1}\" stroke=\"#1f6feb\" stroke-opacity=\"0.02\" stroke-width=\"6\"/>",
            up(slowest),
            up(fastest)
        );
        let _ = writeln!(
            dots,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{}\" fill-opacity=\"0.7\"><title>{}, {size}: {ratio:.2} of the \
             predicted time, {fastest:.2} to {slowest:.2} expected</title></circle>",
            if inside { "#1f6feb" } else { "#c93c37" },
            one.name
        );
    }
    svg.push_str(&strokes);
    svg.push_str(&dots);
    svg.push_str("</svg>\n");
    svg
}

fn axes(svg: &mut String) {
    for (size, label) in
        [(3, "8 B"), (10, "1 KiB"), (15, "32 KiB"), (20, "1 MiB"), (25, "32 MiB"), (30, "1 GiB"), (34, "16 GiB")]
    {
        let x = across(1 << size);
        let bottom = TOP + HEIGHT;
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {TOP}V{bottom:.1}\" stroke=\"#dddddd\"/><text x=\"{x:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">{label}</text>",
            bottom + 18.0
        );
    }
    for ratio in [0.5, 0.75, 1.0, 1.5, 2.0] {
        let (y, stroke) = (up(ratio), if ratio == 1.0 { "#555555" } else { "#dddddd" });
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {y:.1}H{:.1}\" stroke=\"{stroke}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{ratio}</text>",
            LEFT + WIDTH,
            LEFT - 6.0,
            y + 4.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">size</text>\n<text transform=\"translate(14 {}) rotate(-90)\" \
         text-anchor=\"middle\">measured over predicted time</text>",
        LEFT + WIDTH / 2.0,
        TOP + HEIGHT + 40.0,
        TOP + HEIGHT / 2.0
    );
}

fn across(size: u64) -> f64 {
    LEFT + WIDTH * ((size.max(1) as f64).log2() - SIZES.0) / (SIZES.1 - SIZES.0)
}

fn up(ratio: f64) -> f64 {
    let (low, high) = (RATIOS.0.ln(), RATIOS.1.ln());
    TOP + HEIGHT * (1.0 - (ratio.ln().clamp(low, high) - low) / (high - low))
}
