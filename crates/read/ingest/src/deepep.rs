//! What DeepEP's tests print of each exchange of experts (`tests/test_internode.py` and `tests/test_low_latency.py`, 1.0 to 1.2, and what
//! others made of them): `[tuning] Best dispatch (FP8): SMs 24, …, 43.24 GB/s (RDMA), 141.14 GB/s (NVL)`,
//! `[rank 3] Dispatch + combine bandwidth: 42.10 GB/s, avg_t=523.1 us, min_t=498.2 us, max_t=560.0 us`.

use busbw_model::{Micros, PerfRow};

/// Behind the rank, which a launcher's label may have been taken for.
const CALLS: &str = "Dispatch + combine bandwidth: ";
const BEST: &str = "[tuning] Best ";

/// False only when the text cannot be such a line.
pub(crate) fn may_belong(text: &[u8]) -> bool {
    text.starts_with(BEST.as_bytes()) || text.starts_with(b"[rank ") || text.starts_with(CALLS.as_bytes())
}

/// The name of the test, and its figures.
pub(crate) fn read(text: &str) -> Option<(String, PerfRow)> {
    match text.strip_prefix(BEST) {
        Some(best) => of_best(best),
        None => of_calls(text),
    }
}

/// Only what goes over RDMA: within a host, its figure is 0 or missing.
fn of_best(best: &str) -> Option<(String, PerfRow)> {
    let (what, rest) = best.split_once(": ")?;
    let (before, _) = rest.split_once(" GB/s (RDMA")?;
    let gb_s: f64 = before.rsplit(' ').next()?.parse().ok().filter(|gb_s: &f64| gb_s.is_finite() && *gb_s > 0.0)?;
    let average_gbit_s = gb_s * 8.0;
    let row = PerfRow::Bandwidth { size: None, peak_gbit_s: 0.0, average_gbit_s, message_rate_mpps: None };
    Some((format!("DeepEP {what}"), row))
}

fn of_calls(text: &str) -> Option<(String, PerfRow)> {
    let unlabelled = text.strip_prefix("[rank ").map_or(Some(text), |rest| Some(rest.split_once("] ")?.1))?;
    let rest = unlabelled.strip_prefix(CALLS)?;
    let time = |key: &str| rest.split_once(key)?.1.split(' ').next()?.parse().ok().map(Micros);
    let (average, min, max) = (Some(time("avg_t=")?), Some(time("min_t=")?), time("max_t="));
    let row = PerfRow::Latency { size: None, min, max, typical: None, average, p99: None, p999: None };
    Some(("DeepEP dispatch and combine".to_owned(), row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_crosses_the_nic_and_what_calls_take() {
        let best = "[tuning] Best dispatch (FP8): SMs 24, NVL chunk 20, RDMA chunk 32: 36 + 1241 us, 43.5 GB/s (RDMA), 141.14 GB/s (NVL)";
        let (name, row) = read(best).unwrap();
        assert_eq!(name, "DeepEP dispatch (FP8)");
        assert!(matches!(row, PerfRow::Bandwidth { size: None, average_gbit_s: 348.0, .. }), "{row:?}");
        for text in ["", "[rank 7] "] {
            let calls = format!(
                "{text}Dispatch + combine bandwidth: 99.09 GB/s, avg_t=222.52 us, min_t=217.31 us, max_t=228.74 us"
            );
            let (_, row) = read(&calls).unwrap();
            assert!(
                matches!(row, PerfRow::Latency { average: Some(Micros(222.52)), min: Some(Micros(217.31)), .. }),
                "{row:?}"
            );
        }
        for text in [
            "[tuning] Best dispatch (FP8): SMs 24, NVL chunk 16, 153.3 GB/s (NVL), t: 453.49 us",
            "[tuning] Best dispatch (BF16): SMs 24, NVL chunk 4, RDMA chunk 0, transmit: 9 us, notify: 0.00 us, BW: 0.00 GB/s (RDMA), 8.1 GB/s (NVL)",
            "[rank 3] Dispatch + combine bandwidth: nothing",
            "told: Dispatch + combine bandwidth: 9 GB/s, avg_t=2 us, min_t=2 us",
        ] {
            assert!(read(text).is_none(), "{text}");
        }
    }
}
