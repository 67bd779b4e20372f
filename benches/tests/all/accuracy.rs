//! Predictions stay as close to published measurements as docs/prediction.md says.

use busbw_benches::accuracy::{
    Class, Goal, Measurement, Status, calibrations, choices, compare, figures, load, summary,
};
use busbw_predict::Constants;
use std::path::Path;

fn measurements() -> Vec<Measurement> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/tables");
    load(&folder).expect("the tables in tests/data can be read")
}

#[test]
fn every_table_is_read() {
    let all = measurements();
    let count = |status| all.iter().filter(|m| m.status == status).count();
    assert_eq!(count(Status::Good) + count(Status::Degraded) + count(Status::Unknown), 43);
    assert_eq!(count(Status::Scaling), 15);
    assert!(all.iter().all(|m| !m.rows.is_empty()));
}

/// The goals that are reached stay reached; the last, of degraded tables, is missed by one of nine (065: settings, not
/// hardware, and no network of 400 GB/s carries 25% more than the 320 that it measured).
#[test]
fn the_goals_that_were_reached_are_still_reached() {
    let goals = summary(&compare(Constants::built_in(), &measurements()));
    let missed: Vec<&Goal> = goals.iter().filter(|goal| !goal.met).collect();
    assert!(missed.len() <= 1 && missed.iter().all(|goal| goal.goal == 0.9 && goal.found > 0.88), "{missed:#?}");
}

/// Logs of real NCCL 2.30.7 on described machines: every choice agrees today.
#[test]
fn choices_are_those_of_nccl() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/choices");
    let (sums, differences) = choices(&folder).unwrap();
    for sum in sums {
        assert!(sum.of == 536 && sum.both * 100 >= sum.of * 99, "{sum:?}\n{differences}");
    }
}

/// Figures that the fit has not seen: machines of this year, and exchanges of mixtures of experts.
#[test]
fn unseen_figures_are_as_near_as_the_documentation_says() {
    for (file, most) in [("figures.toml", 0.20), ("exchange.toml", 0.25)] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/figures").join(file);
        let (median, lines) = figures(&path).unwrap();
        assert!(median <= most, "{lines}");
    }
}

/// Ten machines with several tables, by constants at their priors where a machine's tables are in the fit: one table helps
/// where bandwidth decides, and between.
#[test]
fn a_table_of_a_machine_tells_of_its_other_collectives_and_scales() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/figures/machines.toml");
    let found = calibrations(&path, &measurements(), 0).unwrap();
    for (class, machines, most) in [(Class::Large, 10, 0.10), (Class::Middle, 4, 0.35)] {
        let one = found.classes.iter().find(|one| one.sizes == class.name()).unwrap();
        assert_eq!(one.machines, machines, "{found:#?}");
        assert!(one.after < one.before && one.after <= most, "{found:#?}");
    }
}
