//! Scripts that run a program of nccl-tests once for each size: the tables of one row that they leave are one sweep.

use busbw_model::{BenchDevice, BenchSettings, BenchTable, EnvSetting, Run};

/// The tables of a run, those of one sweep together, the smallest size first.
pub(crate) fn of(run: &Run) -> Vec<Vec<&BenchTable>> {
    let mut sweeps: Vec<Vec<&BenchTable>> = Vec::new();
    for table in &run.tables {
        match sweeps.last_mut() {
            Some(sweep) if sweep.last().is_some_and(|last| goes_on(run, last, table)) => sweep.push(table),
            _ => sweeps.push(vec![table]),
        }
    }
    sweeps
}

/// Whether a table is of the next size: run on the same GPUs in the same way, after the one before had ended.
fn goes_on(run: &Run, last: &BenchTable, next: &BenchTable) -> bool {
    let size = |table: &BenchTable| table.rows.last().map(|row| row.size);
    let is_next = || last.finished && is_of_one_size(last) && is_of_one_size(next) && size(last) < size(next);
    let is_alike = || {
        (last.place.input, &last.label) == (next.place.input, &next.label)
            && (last.collective, last.nranks) == (next.collective, next.nranks)
            && without_sizes(&last.settings) == without_sizes(&next.settings)
            && last.devices.iter().map(without_process).eq(next.devices.iter().map(without_process))
            && variables(run, last).eq(variables(run, next))
    };
    is_next() && is_alike()
}

/// Whether it was run for one size, and shows that.
fn is_of_one_size(table: &BenchTable) -> bool {
    let BenchSettings { min_bytes, max_bytes, .. } = table.settings;
    table.rows.len() == 1 && min_bytes.is_some() && min_bytes == max_bytes
}

fn without_sizes(settings: &BenchSettings) -> BenchSettings {
    BenchSettings { min_bytes: None, max_bytes: None, memory: None, ..settings.clone() }
}

fn without_process(device: &BenchDevice) -> (u32, Option<u32>, &str, u32, &str, &str) {
    (device.rank, device.group, &device.host, device.device, &device.bus_id, &device.name)
}

/// What its run was told by variables.
fn variables<'a>(run: &'a Run, table: &BenchTable) -> impl Iterator<Item = (&'a str, &'a str)> {
    let place = table.place;
    let held = run.nccl.env.iter().filter(move |setting| run.nccl.holds(setting, place));
    held.map(|EnvSetting { name, value, .. }| (name.as_str(), value.as_str()))
}
