//! A tuning table from the tables that a sweep's trials printed: size by size, the algorithm that is better than the default.

use crate::race::Rules;
use crate::runner::LOG;
use crate::space::Setting;
use crate::statistics::{Sample, difference};
use crate::store::Store;
use crate::sweep::Trial;
use busbw_ingest::read_bytes;
use busbw_model::{Algorithm, BenchTable, Bytes, Collective, Protocol, TunedChoice, TuningTable};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// What was measured: a collective on ranks of nodes.
type Test = (Collective, u32, Option<u32>);
/// Times of a test by size and setting.
type Times = BTreeMap<Test, BTreeMap<Bytes, BTreeMap<usize, Vec<f64>>>>;

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
    // Each size is a contest of all settings: the more there are, the surer each must be.
    let confidence = 1.0 - (1.0 - rules.confidence) / settings.len() as f64;
    let choices = times.iter().flat_map(|(test, by_size)| {
        let won: Vec<(Bytes, Option<Won>)> =
            by_size.iter().map(|(size, times)| (*size, winner(times, settings, default, confidence))).collect();
        ranges(*test, &won, settings)
    });
    Some(TuningTable { choices: choices.collect() })
}

fn times(trials: &[Trial], store: &Store) -> Times {
    let mut times = Times::new();
    for trial in trials.iter().filter(|trial| trial.key.round > 0 && trial.outcome.value().is_some()) {
        let Ok(log) = fs::read(store.trial_folder(trial.key).join(LOG)) else { continue };
        let Ok(run) = read_bytes(&[("the output", log.as_slice())]) else { continue };
        for table in &run.tables {
            let Some(test) = test(table) else { continue };
            for row in &table.rows {
                let half = row.halves().map(|half| half.time.0).filter(|time| *time > 0.0).reduce(f64::min);
                let of_size = times.entry(test).or_default().entry(row.size).or_default();
                of_size.entry(trial.key.setting).or_default().extend(half);
            }
        }
    }
    times
}

fn test(table: &BenchTable) -> Option<Test> {
    let hosts: BTreeSet<&str> = table.devices.iter().map(|device| device.host.as_str()).collect();
    let nodes = u32::try_from(hosts.len()).ok().filter(|nodes| *nodes > 0);
    Some((table.collective?, table.nranks?, nodes))
}

/// The setting that is better than the default, and the interval of what it gains, in percent of the default's time.
#[derive(Debug, Clone, Copy)]
struct Won {
    setting: usize,
    gain: [f64; 2],
}

/// The fastest setting, if it chooses an algorithm and is faster than the default for sure.
fn winner(times: &BTreeMap<usize, Vec<f64>>, settings: &[Setting], default: usize, confidence: f64) -> Option<Won> {
    let of_default = Sample::of(times.get(&default)?)?;
    let samples = times.iter().filter_map(|(setting, times)| Some((*setting, Sample::of(times)?)));
    let (setting, fastest) = samples.min_by(|(_, a), (_, b)| a.mean.total_cmp(&b.mean))?;
    algorithm(&settings[setting])?;
    let gain = difference(&of_default, &fastest, confidence)?.map(|saved| saved / of_default.mean * 100.0);
    (gain[0] > 0.0).then_some(Won { setting, gain })
}

/// Neighbouring sizes of one winner as one choice. Between two measured sizes of different winners, the geometric mean parts them;
/// below the least and above the greatest measured size nothing is said.
fn ranges((collective, ranks, nodes): Test, won: &[(Bytes, Option<Won>)], settings: &[Setting]) -> Vec<TunedChoice> {
    let setting_at = |index: usize| won.get(index).and_then(|(_, won)| won.map(|won| won.setting));
    let middle = |below: usize| ((won[below].0.0 as f64) * (won[below + 1].0.0 as f64)).sqrt() as u64;
    let mut choices = Vec::new();
    let mut start = 0;
    while start < won.len() {
        let end =
            (start..won.len()).take_while(|&index| setting_at(index) == setting_at(start)).last().unwrap_or(start);
        if let Some(setting) = setting_at(start) {
            let gains: Vec<[f64; 2]> = won[start..=end].iter().filter_map(|(_, won)| won.map(|won| won.gain)).collect();
            let least = gains.iter().map(|[least, _]| *least).fold(f64::INFINITY, f64::min);
            let most = gains.iter().map(|[_, most]| *most).fold(f64::NEG_INFINITY, f64::max);
            let (from, to) = (won[start].0, won[end].0);
            choices.push(TunedChoice {
                collective,
                from: if start == 0 { from } else { Bytes(middle(start - 1) + 1) },
                to: if end + 1 == won.len() { to } else { Bytes(middle(end)) },
                ranks: Some(ranks),
                nodes,
                operations: None,
                registered: None,
                algorithm: algorithm(&settings[setting]).unwrap_or_default().to_owned(),
                protocol: settings[setting].value("NCCL_PROTO").and_then(Protocol::from_name),
                channels: settings[setting].channels().and_then(|count| count.parse().ok()),
                chunk: None,
                gain_percent: Some([least, most]),
            });
        }
        start = end + 1;
    }
    choices
}

/// The one algorithm of a setting: NCCL's, by its own name, or the CPU engine's. For NCCL a table needs the protocol as well.
fn algorithm(setting: &Setting) -> Option<&str> {
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

    fn times(by_setting: [[f64; 3]; 3]) -> BTreeMap<usize, Vec<f64>> {
        by_setting.into_iter().map(Vec::from).enumerate().collect()
    }

    #[test]
    fn only_what_is_faster_for_sure_is_chosen() {
        let settings = [setting(None), setting(Some("ring")), setting(Some("tree"))];
        let won = |by_setting| winner(&times(by_setting), &settings, 0, 0.98).map(|won| won.setting);
        let default = [100.0, 101.0, 99.0];
        assert_eq!(won([default, [80.0, 81.0, 80.5], [90.0, 90.0, 91.0]]), Some(1));
        assert_eq!(won([default, [99.0, 100.0, 98.0], [120.0, 120.0, 120.0]]), None);
        assert_eq!(won([default, [60.0, 140.0, 70.0], [120.0, 120.0, 120.0]]), None);
        assert_eq!(won([default, [150.0, 150.0, 151.0], [140.0, 141.0, 140.0]]), None);
    }

    #[test]
    fn neighbours_of_one_winner_are_one_choice_and_the_middle_parts_them() {
        let settings = [setting(None), setting(Some("ring")), setting(Some("tree"))];
        let of = |setting: usize, least: f64| Some(Won { setting, gain: [least, least + 1.0] });
        let won = [(1024, of(2, 5.0)), (4096, of(2, 3.0)), (16384, of(1, 9.0)), (65536, None), (262_144, of(1, 2.0))];
        let won = won.map(|(size, won)| (Bytes(size), won));
        let table = TuningTable { choices: ranges((Collective::AllReduce, 4, Some(2)), &won, &settings) };
        let at = |size: u64| {
            let operation = TunedOperation {
                collective: Collective::AllReduce,
                size: Bytes(size),
                ranks: 4,
                nodes: 2,
                operations: 1,
                registered: false,
            };
            table.choose(&operation).map(|(_, choice)| choice.algorithm.as_str())
        };
        let sizes = [512, 1024, 8192, 8193, 16384, 32768, 32769, 65536, 131_073, 262_144, 262_145];
        let expected = ["", "tree", "tree", "ring", "ring", "ring", "", "", "ring", "ring", ""];
        assert_eq!(sizes.map(|size| at(size).unwrap_or_default()), expected);
        assert_eq!(table.choices[0].gain_percent, Some([3.0, 6.0]));
    }
}
