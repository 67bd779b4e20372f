//! A tuning table from the tables that a sweep's trials printed: size by size, the algorithm that is better than the default.

use crate::race::Rules;
use crate::runner::LOG;
use crate::space::Setting;
use crate::statistics::{Sample, difference};
use crate::store::Store;
use crate::sweep::Trial;
use busbw_ingest::read_bytes;
use busbw_model::{Algorithm, BenchTable, Bytes, Collective, Protocol, TunedChoice, TuningTable, median};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// What was measured: a collective on ranks of nodes.
pub(crate) type Test = (Collective, u32, Option<u32>);
/// Times by size and setting.
pub(crate) type BySize = BTreeMap<Bytes, BTreeMap<usize, Vec<f64>>>;
type Times = BTreeMap<Test, BySize>;

/// The table of a sweep whose command is a benchmark; empty where nothing is better than the default. `None` where no setting
/// chooses an algorithm, or the trials printed no tables.
pub fn tuning_table(settings: &[Setting], trials: &[Trial], rules: &Rules, store: &Store) -> Option<TuningTable> {
    let default = settings.iter().position(Setting::is_default)?;
    if !settings.iter().any(|setting| algorithm(setting).is_some()) {
        return None;
    }
    let times = times(trials, store);
    if times.is_empty() {
        return None;
    }
    let choices = times.iter().flat_map(|(test, by_size)| {
        let timed = Timed { test: *test, by_size, settings, default, confidence: rules.confidence };
        timed.table().choices
    });
    Some(TuningTable { choices: choices.collect() })
}

/// Each trial counts once at each size: what it repeats is not independent, and one time that something held up says nothing.
fn times(trials: &[Trial], store: &Store) -> Times {
    let mut times = Times::new();
    for trial in trials.iter().filter(|trial| trial.key.round > 0 && trial.outcome.value().is_some()) {
        let Ok(log) = fs::read(store.trial_folder(trial.key).join(LOG)) else { continue };
        let Ok(run) = read_bytes(&[("the output", log.as_slice())]) else { continue };
        let mut of_trial: BTreeMap<(Test, Bytes), Vec<f64>> = BTreeMap::new();
        for table in &run.tables {
            let Some(test) = test(table) else { continue };
            for row in &table.rows {
                let half = row.halves().map(|half| half.time.0).filter(|time| *time > 0.0).reduce(f64::min);
                of_trial.entry((test, row.size)).or_default().extend(half);
            }
        }
        for ((test, size), measured) in of_trial {
            let of_size = times.entry(test).or_default().entry(size).or_default();
            of_size.entry(trial.key.setting).or_default().extend(median(measured.into_iter()));
        }
    }
    times
}

/// What a table measured, where it says so.
pub(crate) fn test(table: &BenchTable) -> Option<Test> {
    let hosts: BTreeSet<&str> = table.devices.iter().map(|device| device.host.as_str()).collect();
    let nodes = u32::try_from(hosts.len()).ok().filter(|nodes| *nodes > 0);
    Some((table.collective?, table.nranks?, nodes))
}

/// Times of the settings of a test, size by size.
pub(crate) struct Timed<'a> {
    pub test: Test,
    pub by_size: &'a BySize,
    pub settings: &'a [Setting],
    /// Which setting the others are held against.
    pub default: usize,
    pub confidence: f64,
}

/// The setting that is better than the default, and the interval of what it gains, in percent of the default's time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Won {
    setting: usize,
    gain: [f64; 2],
}

impl Timed<'_> {
    /// The sizes at which a setting is faster than the default for sure.
    pub fn table(&self) -> TuningTable {
        let won: Vec<Option<Won>> = self.by_size.values().map(|times| self.winner(times)).collect();
        let sizes: Vec<Bytes> = self.by_size.keys().copied().collect();
        let choices = sizes.iter().zip(&won).map(|(size, won)| (*size, won.map(|won| self.choice(won))));
        let setting_at = |index: usize| won[index].map_or(self.default, |won| won.setting);
        TuningTable::of_sizes(&choices.collect::<Vec<_>>(), |index| {
            let ends = [sizes[index], sizes[index + 1]];
            self.crossing(ends, [setting_at(index), setting_at(index + 1)])
                .unwrap_or_else(|| TuningTable::middle(ends[0], ends[1]))
        })
    }

    /// Of the settings that choose an algorithm and are faster than the default for sure, the fastest. One that may be faster still, and is
    /// not surely faster than the default, takes it no size.
    fn winner(&self, times: &BTreeMap<usize, Vec<f64>>) -> Option<Won> {
        // Each size is a contest of all settings: the more there are, the surer each must be.
        let confidence = 1.0 - (1.0 - self.confidence) / self.settings.len() as f64;
        let of_default = Sample::of(times.get(&self.default)?)?;
        let proven = |(setting, times): (&usize, &Vec<f64>)| {
            algorithm(&self.settings[*setting])?;
            let sample = Sample::of(times)?;
            let gain = difference(&of_default, &sample, confidence)?.map(|saved| saved / of_default.mean * 100.0);
            (gain[0] > 0.0).then_some((sample.mean, Won { setting: *setting, gain }))
        };
        times.iter().filter_map(proven).min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, won)| won)
    }

    /// Where the first of two settings stops being the faster one, between two sizes: the time of an algorithm grows in a line.
    /// `None` where the lines do not cross.
    fn crossing(&self, ends: [Bytes; 2], [first, second]: [usize; 2]) -> Option<Bytes> {
        let mean = |setting: usize, size: Bytes| Some(Sample::of(self.by_size.get(&size)?.get(&setting)?)?.mean);
        let behind = |size: Bytes| Some(mean(first, size)? - mean(second, size)?);
        let (below, above) = (behind(ends[0])?, behind(ends[1])?);
        let share = -below / (above - below);
        let crosses = below < 0.0 && above > 0.0;
        crosses.then(|| Bytes(ends[0].0 + (share * (ends[1].0 - ends[0].0 - 1) as f64) as u64))
    }

    fn choice(&self, won: Won) -> TunedChoice {
        let (collective, ranks, nodes) = self.test;
        let setting = &self.settings[won.setting];
        TunedChoice {
            collective,
            from: Bytes(0),
            to: Bytes(u64::MAX),
            ranks: Some(ranks),
            nodes,
            operations: None,
            registered: None,
            algorithm: algorithm(setting).unwrap_or_default().to_owned(),
            protocol: setting.value("NCCL_PROTO").and_then(Protocol::from_name),
            channels: setting.channels().and_then(|count| count.parse().ok()),
            chunk: None,
            gain_percent: Some(won.gain),
            predicted: false,
        }
    }
}

/// The one algorithm of a setting: NCCL's, by its own name, or the CPU engine's. For NCCL a table needs the protocol as well.
pub(crate) fn algorithm(setting: &Setting) -> Option<&str> {
    let name = setting.value("NCCL_ALGO").filter(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))?;
    match Algorithm::from_name(name) {
        Some(algorithm) if setting.value("NCCL_PROTO").is_some() => Some(algorithm.name()),
        _ => Some(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use busbw_model::TunedOperation;

    fn setting(algorithm: Option<&str>) -> Setting {
        let assignments = algorithm.map(|name| ("NCCL_ALGO".to_owned(), name.to_owned()));
        Setting { assignments: assignments.into_iter().collect() }
    }

    /// A contest of the default, a ring and a tree.
    fn decided(by_size: &[(u64, [[f64; 3]; 3])]) -> TuningTable {
        let settings = [setting(None), setting(Some("ring")), setting(Some("tree"))];
        let times = |by_setting: [[f64; 3]; 3]| by_setting.into_iter().map(Vec::from).enumerate().collect();
        let by_size = by_size.iter().map(|(size, by_setting)| (Bytes(*size), times(*by_setting))).collect();
        let test = (Collective::AllReduce, 4, Some(2));
        Timed { test, by_size: &by_size, settings: &settings, default: 0, confidence: 0.94 }.table()
    }

    fn at(table: &TuningTable, size: u64) -> &str {
        let (collective, size) = (Collective::AllReduce, Bytes(size));
        let operation = TunedOperation { collective, size, ranks: 4, nodes: 2, operations: 1, registered: false };
        table.choose(&operation).map_or("", |(_, choice)| choice.algorithm.as_str())
    }

    /// Three measurements about this time.
    fn about(time: f64) -> [f64; 3] {
        [0.995, 1.0, 1.005].map(|factor| factor * time)
    }

    #[test]
    fn only_what_is_faster_for_sure_is_chosen() {
        let won = |by_setting| at(&decided(&[(1024, by_setting)]), 1024).to_owned();
        let default = [100.0, 101.0, 99.0];
        assert_eq!(won([default, [80.0, 81.0, 80.5], [90.0, 90.0, 91.0]]), "ring");
        assert_eq!(won([default, [99.0, 100.0, 98.0], [120.0, 120.0, 120.0]]), "");
        assert_eq!(won([default, [60.0, 140.0, 70.0], [120.0, 120.0, 120.0]]), "");
        assert_eq!(won([default, [150.0, 150.0, 151.0], [140.0, 141.0, 140.0]]), "");
        // The tree is faster on average, and that may be chance.
        assert_eq!(won([default, [80.0, 81.0, 80.5], [60.0, 130.0, 40.0]]), "ring");
        assert_eq!(won([default, [80.0, 81.0, 80.5], [70.0, 71.0, 70.5]]), "tree");
    }

    #[test]
    fn neighbours_of_one_winner_are_one_choice_and_lines_that_cross_part_them() {
        let rows = [(1000, [100.0, 90.0, 50.0]), (4000, [100.0, 90.0, 60.0]), (16000, [200.0, 110.0, 120.0])];
        let rows = rows.map(|(size, times)| (size, times.map(about)));
        let table = decided(&rows);
        // From 4,000 to 16,000 bytes a ring gains 40 on a tree, of which it needs 30.
        let sizes = [999, 1000, 4000, 12999, 13001, 16000, 16001];
        assert_eq!(sizes.map(|size| at(&table, size)), ["", "tree", "tree", "tree", "ring", "ring", ""]);
        let [first, second] = [0, 1].map(|index: usize| table.choices[index].gain_percent.unwrap());
        assert!((35.0..40.0).contains(&first[0]) && (50.0..55.0).contains(&first[1]), "{first:?}");
        assert!((40.0..45.0).contains(&second[0]), "{second:?}");
    }

    #[test]
    fn a_choice_ends_where_the_default_is_as_fast_or_in_the_middle() {
        let [small, large] = [(1000, [100.0, 50.0, 200.0]), (16000, [100.0, 150.0, 200.0])];
        let all = [small, large].map(|(size, times)| (size, times.map(about)));
        let table = decided(&all);
        assert_eq!([8499, 8501].map(|size| at(&table, size)), ["ring", ""]);
        // Faster still, but not for sure.
        let unsure = [all[0], (16000, [about(100.0), [60.0, 140.0, 70.0], about(200.0)])];
        let table = decided(&unsure);
        assert_eq!([4000, 4001].map(|size| at(&table, size)), ["ring", ""]);
    }
}
