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
