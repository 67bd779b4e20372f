//! What `iperf3` prints when a test over TCP is over (`src/iperf_locale.c`, 3.0 to 3.19), and its JSON (`-J`):
//! `[SUM]   0.00-10.00  sec  10.9 GBytes  9.37 Gbits/sec  812             sender`: segments sent again stand behind the rate. UDP loses what it
//! is told to send beyond the rate of the link or the receiver, so its losses say nothing.

use busbw_model::{PerfRow, PerfTest, Place, SourceLine};
use serde_json::Value;

/// The least that a TCP segment carries where Ethernet's frames are not made smaller: with larger ones, what was sent again is a larger share.
const SEGMENT: f64 = 1448.0;

/// False only when the text cannot be such a line.
pub(crate) fn may_belong(text: &[u8]) -> bool {
    text.starts_with(b"[") && text.ends_with(b" sender")
}

/// A stream, or all of them.
pub(crate) fn read(text: &str) -> Option<PerfTest> {
    let (stream, rest) = text.strip_prefix('[')?.split_once(']')?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let [interval, "sec", amount, unit, rate, rate_unit, again, "sender"] = words.as_slice() else { return None };
    let (bytes, gbit_s) = (bytes(amount, unit)?, gbit_s(rate, rate_unit)?);
    interval.split_once('-')?.1.parse::<f64>().ok().filter(|seconds| *seconds > 0.0)?;
    let lost = share(again.parse::<u64>().ok()? as f64, bytes);
    let stream = stream.trim();
    let name = if stream == "SUM" { "iperf3".to_owned() } else { format!("iperf3's stream {stream}") };
    Some(test(name, gbit_s, lost))
}

/// How much of what was sent was sent again.
fn share(segments: f64, bytes: f64) -> f64 {
    if bytes > 0.0 { (segments * SEGMENT / bytes).min(1.0) } else { 0.0 }
}

fn test(name: String, average_gbit_s: f64, lost: f64) -> PerfTest {
    let row = PerfRow::Bandwidth { size: None, peak_gbit_s: 0.0, average_gbit_s, message_rate_mpps: None };
    PerfTest { test: Some(name), lost: Some(lost), rows: vec![row], ..PerfTest::default() }
}

/// `10.9 GBytes`, in powers of 1024.
fn bytes(amount: &str, unit: &str) -> Option<f64> {
    number(amount, unit.strip_suffix("Bytes")?, 1024.0)
}

/// `9.37 Gbits/sec`, in powers of 1000; with `-f G`, `1.09 GBytes/sec` in powers of 1024.
fn gbit_s(rate: &str, unit: &str) -> Option<f64> {
    let unit = unit.strip_suffix("/sec")?;
    let bits = unit.strip_suffix("bits").and_then(|prefix| number(rate, prefix, 1000.0));
    bits.or_else(|| Some(8.0 * bytes(rate, unit)?)).map(|bits| bits / 1e9)
}

fn number(text: &str, prefix: &str, step: f64) -> Option<f64> {
    let power = ["", "K", "M", "G", "T"].iter().position(|known| *known == prefix)?;
    let number: f64 = text.parse().ok()?;
    (number.is_finite() && number >= 0.0).then(|| number * step.powi(power as i32))
}

/// Reads a JSON report; none where the text is something else, or the test did not end.
pub(crate) fn read_json(text: &str, input: u32) -> Option<PerfTest> {
    let begins = text.trim_start().strip_prefix('{')?.trim_start().starts_with("\"start\"");
    let report: Value = begins.then(|| serde_json::from_str(text).ok())??;
    let version = report.pointer("/start/version")?.as_str().filter(|version| version.starts_with("iperf"))?;
    let figure = |path: &str| report.pointer(path).and_then(Value::as_f64);
    let lost = share(figure("/end/sum_sent/retransmits")?, figure("/end/sum_sent/bytes")?);
    let rate = figure("/end/sum_received/bits_per_second")?;
    let source = SourceLine::new(Place { input, line: 0 }, version);
    Some(PerfTest { source, ..test("iperf3".to_owned(), rate / 1e9, lost) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<(String, f64, f64)> {
        let test = read(text)?;
        let PerfRow::Bandwidth { average_gbit_s, .. } = test.rows[0] else { return None };
        Some((test.test?, average_gbit_s, test.lost?))
    }

    #[test]
    fn what_was_sent_again() {
        let sum = "[SUM]   0.00-10.00  sec  1.35 GBytes  1.16 Gbits/sec  20000             sender";
        let (name, rate, lost) = of(sum).unwrap();
        assert_eq!((name.as_str(), rate), ("iperf3", 1.16));
        assert!((lost - 0.01998).abs() < 1e-4, "{lost}");
        let one = "[  5]   0.00-10.04  sec  1.25 GBytes   134 MBytes/sec    0             sender";
        let (name, rate, lost) = of(one).unwrap();
        assert_eq!((name.as_str(), lost), ("iperf3's stream 5", 0.0));
        assert!((rate - 1.124).abs() < 1e-3, "{rate}");
    }

    #[test]
    fn other_lines_are_none() {
        for text in [
            "[  5]   0.00-10.04  sec  10.9 GBytes  9.35 Gbits/sec                  receiver",
            "[  5]   0.00-10.00  sec  1.25 GBytes  1.07 Gbits/sec  0.000 ms  0/906000 (0%)  sender",
            "[  5]   0.00-1.00   sec  1.09 GBytes  9.38 Gbits/sec    0   1.55 MBytes",
            "[rank 3] waits for the sender",
            "[  5]   0.00-0.00   sec  0.00 Bytes  0.00 bits/sec  0             sender",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn a_report_in_json() {
        let report = r#"{ "start": {"version": "iperf 3.12"}, "end": {"sum_sent": {"bytes": 1448000, "retransmits": 30},
            "sum_received": {"bits_per_second": 9.3e9}}}"#;
        let test = read_json(report, 0).unwrap();
        assert_eq!((test.test.as_deref(), test.lost), (Some("iperf3"), Some(0.03)));
        assert!(read_json(r#"{"start": {"version": "iperf 3.12"}, "error": "unable to connect"}"#, 0).is_none());
        assert!(read_json(r#"{"start": 1}"#, 0).is_none());
    }
}
