//! Uneven exchanges (`busbw bench alltoallv --load`): whether their skew explains how long they take, and who is busiest.

use super::found;
use crate::case::{Case, Test};
use busbw_model::{BenchRow, Evidence, Finding, GBps, Gain, Micros, Skew, median};
use std::fmt::Display;

/// Repeated runs of a load on idle cores differ by less: a longer time has another cause.
const SLOWER: f64 = 1.33;
/// Up to here a load is even, and a time that of an even exchange.
pub(crate) const EVEN: f64 = 1.05;
/// As many of the largest sizes are looked at.
const LARGEST: usize = 3;

/// What a table of an uneven exchange shows.
pub struct Skewed<'a> {
    /// The largest size.
    pub row: &'a BenchRow,
    pub skew: &'a Skew,
    /// The time that it took.
    pub time: Micros,
    /// Measured times as multiples of the bound: the median of the largest sizes.
    pub share: f64,
}

impl<'a> Skewed<'a> {
    /// Of a table whose rows are held against even exchanges, with sizes that show bandwidth; `None` for others.
    pub fn of(test: &Test<'a>) -> Option<Self> {
        let skewed = |row: &'a BenchRow| Some((row, row.skew.as_ref()?, row.out_of_place.as_ref()?.time));
        let mut rows: Vec<_> = test.table.rows.iter().filter_map(skewed).collect();
        rows.sort_by_key(|(row, ..)| std::cmp::Reverse(row.size));
        let shares = rows.iter().take(LARGEST).map(|(_, skew, time)| skew.share(*time));
        let (row, skew, time) = *rows.first().filter(|_| test.curve.shows_bandwidth())?;
        Some(Skewed { row, skew, time, share: median(shares)? })
    }

    pub fn is_slower(&self) -> bool {
        self.share > SLOWER
    }

    /// `load W1`.
    pub fn load(&self) -> String {
        format!("load {}", self.skew.load)
    }

    /// The busiest rank and, where there are several, host.
    pub fn busiest(&self) -> String {
        let host = self.skew.host.as_ref().map_or(String::new(), |host| format!(", {host}"));
        format!("{}{host}", self.skew.rank)
    }

    /// Whether the load is not even, and costs time.
    fn is_lost(&self) -> bool {
        self.skew.bound.0.min(self.time.0) > EVEN * self.skew.even.0
    }

    fn finding(&self) -> Finding {
        let Skewed { row, skew, .. } = self;
        let share = format!("{:.1}", self.share);
        let times = format!("{:.1}", self.time.0 / skew.even.0);
        let (load, busiest) = (self.load(), self.busiest());
        let words: [(&str, &dyn Display); 8] = [
            ("load", &load),
            ("busiest", &busiest),
            ("size", &row.size),
            ("time", &self.time),
            ("even", &skew.even),
            ("bound", &skew.bound),
            ("share", &share),
            ("times", &times),
        ];
        let note = format!("{:.2} of the bound", skew.share(self.time));
        let evidence = vec![Evidence::noted(row.source.clone(), note)];
        let cause = if self.is_slower() { "skew.slower" } else { "skew.explains" };
        Finding { expected_gain: self.gain(), ..found(cause, &words, evidence) }
    }

    /// From what was measured to what an even exchange reached.
    fn gain(&self) -> Option<Gain> {
        let busbw = self.row.out_of_place.as_ref()?.busbw;
        let even = GBps(busbw.0 * self.time.0 / self.skew.even.0);
        let basis = format!("the even exchange of {} in the same run", self.row.size);
        (even.0 > busbw.0).then_some(Gain { from_busbw: busbw, to_busbw: (even, even), basis })
    }
}

pub fn rule(case: &Case) -> Vec<Finding> {
    let skewed = case.tests.iter().filter_map(Skewed::of);
    skewed.filter(|skewed| skewed.is_slower() || skewed.is_lost()).map(|skewed| skewed.finding()).collect()
}

#[cfg(test)]
mod tests {
    use crate::{UserFacts, diagnose_with};
    use busbw_model::{Bytes, Code, Collective, Diagnosis, Load, Severity, Verdict};
    use busbw_predict::{Cluster, cluster, predict, predict_load};
    use std::fmt::Write;

    /// A table of `busbw bench alltoallv --load` on two hosts of 8 GPUs: each size with its time in µs, and the lines below it.
    fn table(rows: &[(u64, f64)], skew: &str) -> String {
        let mut text = "# Collective test starting: alltoallv_perf\n".to_owned();
        for rank in 0..16 {
            let (node, device) = (rank / 8, rank % 8);
            let _ = writeln!(
                text,
                "#  Rank {rank:2} Group  0 Pid {rank} on node{node} device {device} [{device:#04x}] NVIDIA H100"
            );
        }
        text += "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n";
        for (size, time) in rows {
            let algbw = *size as f64 / time / 1e3;
            let half = format!("{time:.2} {algbw:.2} {:.2}", algbw * 15.0 / 16.0);
            let _ = writeln!(text, "{size} {} float none -1 {half} 0 {half} N/A", size / 64);
        }
        for (size, _) in rows {
            let _ = writeln!(text, "# Skew {size} float: 1.00 of the bound; {skew}");
        }
        text + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 10\n"
    }

    fn diagnosis(text: &str, given: &UserFacts) -> Diagnosis {
        diagnose_with(&busbw_ingest::read_bytes(&[("w1.log", text.as_bytes())]).unwrap(), given)
    }

    const SKEW: &str = "even 10000.00 us, bound 32500.00 us; rank 0 on node0 receives 3.25 times an even share; host node0 \
                        receives 1.75 times an even share; load W1";

    #[test]
    fn a_time_at_the_bound_is_that_of_the_skew() {
        let found = diagnosis(&table(&[(512 << 20, 31000.0)], SKEW), &UserFacts::default());
        let finding = &found.findings[0];
        assert_eq!((finding.code, finding.severity), (Code::LoadUneven, Severity::Info), "{found:?}");
        assert!(
            finding.title.starts_with("load W1: rank 0 on node0 receives 3.25 times an even share, host node0"),
            "{finding:?}"
        );
        assert!(
            finding.explanation.contains("took 31.0 ms; an even exchange of as many bytes took 10.0 ms"),
            "{finding:?}"
        );
        let gain = finding.expected_gain.as_ref().unwrap();
        assert!((gain.to_busbw.0.0 / gain.from_busbw.0 - 3.1).abs() < 0.01, "{gain:?}");
        // Nothing is known of the machines: the even exchange may be slow.
        assert_eq!(found.verdict, Verdict::Inconclusive);
        assert!(found.summary.contains("describe the machines with --cluster"), "{}", found.summary);
    }

    #[test]
    fn a_longer_time_has_another_cause() {
        let found = diagnosis(&table(&[(512 << 20, 65000.0)], SKEW), &UserFacts::default());
        let finding = &found.findings[0];
        assert_eq!((found.verdict, finding.code), (Verdict::Degraded, Code::LoadUneven), "{found:?}");
        assert!(finding.title.contains("takes 2.0 times as long as its skew explains"), "{finding:?}");
        // A single size that was disturbed is no reason.
        let rows = [(128 << 20, 31000.0), (256 << 20, 31000.0), (512 << 20, 65000.0)];
        let once = diagnosis(&table(&rows, SKEW), &UserFacts::default());
        assert!(once.findings.iter().all(|one| one.severity == Severity::Info), "{once:?}");
    }

    #[test]
    fn small_sizes_and_even_loads_say_nothing() {
        let even = SKEW.replace("bound 32500.00", "bound 10000.00").replace("3.25", "1.00").replace("1.75", "1.00");
        for text in [table(&[(1 << 20, 31000.0)], SKEW), table(&[(512 << 20, 10000.0)], &even)] {
            let found = diagnosis(&text, &UserFacts::default());
            assert!(found.findings.iter().all(|one| one.code != Code::LoadUneven), "{found:?}");
        }
    }

    /// With a description the even exchange is judged: the skew is no excuse for a slow one.
    #[test]
    fn a_described_cluster_judges_the_even_exchange() {
        let (cluster, size) = (two_hosts(), Bytes(512 << 20));
        let should = predict(&cluster, Collective::AllToAll, &[size]).rows[0].time.0;
        for (times, verdict) in [(1.0, Verdict::Healthy), (2.0, Verdict::Inconclusive)] {
            let even = should * times;
            let skew = SKEW
                .replace("even 10000.00", &format!("even {even:.2}"))
                .replace("32500.00", &format!("{:.2}", 3.25 * even));
            let given = UserFacts { cluster: Some(&cluster), ..UserFacts::default() };
            let found = diagnosis(&table(&[(size.0, 3.2 * even)], &skew), &given);
            assert_eq!(found.verdict, verdict, "{found:?}");
            let title = &found.findings[0].title;
            assert!(
                title.ends_with("; busiest NIC: NIC 0 of node 0, which receives 3.25 times an even share"),
                "{title}"
            );
        }
    }

    /// nccl-tests' alltoallv has no even exchange, and counts sizes by the busiest rank's buffer.
    #[test]
    fn a_load_that_is_told_is_held_against_its_prediction() {
        let (cluster, size) = (two_hosts(), Bytes(512 << 20));
        let load = Load::read("tokens.txt", &format!("{}{}", "13 ".repeat(4), "1 ".repeat(12)), 16).unwrap();
        let mean = Bytes((size.0 as f64 / 3.25) as u64);
        let should = predict_load(&cluster, &load, &[mean]).rows[0].time.0;
        let hot =
            "rank 0, which receives 3.25 times an even share; NIC 0 of node 0, which receives 3.25 times an even share";
        for (times, verdict, says) in [
            (1.0, Verdict::Healthy, "load tokens.txt: the busiest decide: "),
            (2.0, Verdict::Degraded, "load tokens.txt: the exchange takes 2.0 times as long as predicted for it; "),
        ] {
            let text = table(&[(size.0, times * should)], "");
            let given = UserFacts { cluster: Some(&cluster), load: Some(&load), ..UserFacts::default() };
            let found = diagnosis(&text, &given);
            let finding = found.findings.iter().find(|one| one.code == Code::LoadUneven).unwrap();
            assert_eq!(found.verdict, verdict, "{found:?}");
            assert!(finding.title.starts_with(says) && finding.title.contains(hot), "{finding:?}");
        }
    }

    fn two_hosts() -> Cluster {
        let text = "nodes = 2\ngpus_per_node = 8\ngpu = \"H100\"\nintra = \"NVSwitch\"\nnics_per_node = 8\nnic_gbps = 400\ntransport = \"ib\"\n";
        cluster::parse(text).unwrap()
    }
}
