//! Differences of runs other than speed: network, environment, versions, how the test was made.

use super::measured::Measured;
use busbw_model::{BenchTable, Carrier, Difference, DifferenceKind, Run};
use std::collections::BTreeSet;

/// All differences, the most telling first.
pub fn between(measured: &[Measured]) -> Vec<Difference> {
    let networks = differing(DifferenceKind::Network, "network", measured, |run| {
        run.network().map(|network: Carrier| network.name().to_string())
    });
    let names: BTreeSet<&str> =
        measured.iter().flat_map(|run| &run.subject.run.nccl.env).map(|setting| setting.name.as_str()).collect();
    let variables = names.into_iter().filter_map(|name| {
        differing(DifferenceKind::Variable, name, measured, |run| {
            run.subject.run.nccl.env_value(name).map(|setting| setting.value.clone())
        })
    });
    let setup = SETUP.iter().filter_map(|(name, kind, value)| {
        // A value that one run does not state is not a difference.
        let difference = differing(*kind, name, measured, |run| value(run.table(), &run.subject.run))?;
        (difference.values.iter().flatten().count() > 1).then_some(difference)
    });
    networks.into_iter().chain(variables).chain(setup).collect()
}

type Read = fn(&BenchTable, &Run) -> Option<String>;

/// What is known of how a test was made.
const SETUP: [(&str, DifferenceKind, Read); 10] = [
    ("NCCL", DifferenceKind::Version, |table, run| {
        let logged = run.nccl.versions.first().map(|line| line.version.clone());
        logged.or_else(|| table.settings.nccl_version.clone())
    }),
    ("nccl-tests", DifferenceKind::Version, |table, _| table.settings.nccl_tests_version.clone()),
    ("collective", DifferenceKind::Setup, |table, _| table.collective.map(|collective| collective.name().to_string())),
    ("ranks", DifferenceKind::Setup, |table, _| table.nranks.map(|ranks| ranks.to_string())),
    ("hosts", DifferenceKind::Setup, |table, _| some_list(&table.hosts())),
    ("GPU", DifferenceKind::Setup, |table, _| {
        let names: BTreeSet<&str> = table.devices.iter().map(|device| device.name.as_str()).collect();
        some_list(&names.into_iter().collect::<Vec<_>>())
    }),
    ("datatype", DifferenceKind::Setup, |table, _| {
        table.rows.first().and_then(|row| row.datatype).map(|datatype| datatype.name().to_string())
    }),
    ("reduction", DifferenceKind::Setup, |table, _| {
        table.rows.first().and_then(|row| row.redop).map(|redop| redop.name().to_string())
    }),
    ("iterations", DifferenceKind::Setup, |table, _| table.settings.iters.map(|iterations| iterations.to_string())),
    ("CUDA graph launches", DifferenceKind::Setup, |table, _| table.settings.graph.map(|graph| graph.to_string())),
];

fn some_list(names: &[&str]) -> Option<String> {
    (!names.is_empty()).then(|| names.join(", "))
}

fn differing(
    kind: DifferenceKind,
    name: &str,
    measured: &[Measured],
    value: impl Fn(&Measured) -> Option<String>,
) -> Option<Difference> {
    let values: Vec<Option<String>> = measured.iter().map(value).collect();
    let differs = values.iter().any(|value| *value != values[0]);
    differs.then(|| Difference { kind, name: name.to_string(), values })
}
