//! A good table at a fraction of its speed is not praised; as it was measured, it is not blamed.

use super::answer::Answer;
use super::held::Held;
use super::inputs::{self, Input};
use super::nccl_tests;
use busbw_diagnose::BANDWIDTH_FROM;

/// Everything with a table that is good: published ones, and logs whose answer is praise.
fn good() -> Vec<Input> {
    let others = [inputs::logs(), inputs::reproductions(), inputs::runs()].into_iter().flatten();
    let praised = others.filter(|input| {
        let answer = Answer::to(input);
        answer.is_praise() && shows_bandwidth(&answer)
    });
    inputs::tables("good").into_iter().chain(praised).collect()
}

/// Whether a table has a bandwidth to judge: of sizes that are large enough, between more than one rank.
fn shows_bandwidth(answer: &Answer) -> bool {
    let rows = answer.run.tables.iter().flat_map(|table| &table.rows).filter(|row| row.size >= BANDWIDTH_FROM);
    rows.filter_map(|row| row.best_busbw()).any(|busbw| busbw.0 > 0.0)
}

/// The highest busbw of any table.
fn peak(answer: &Answer) -> f64 {
    answer.run.tables.iter().filter_map(|table| table.peak()).map(|(_, busbw)| busbw.0).fold(0.0, f64::max)
}

#[test]
fn a_good_table_at_a_fraction_of_its_speed_is_not_praised() {
    let mut held = Held::new("a good table at a fraction of its speed is not praised");
    for input in good() {
        let whole = Answer::to(&input);
        for factor in [0.5, 0.3, 0.15] {
            let scaled = Answer::to(&input.changed(|text| nccl_tests::scaled(text, factor)));
            // Rows that a log tore apart are not scaled.
            if peak(&scaled) < peak(&whole) {
                held.compare((&input, &whole), &format!("times {factor}"), &scaled, |_, scaled| !scaled.is_praise());
            }
        }
    }
    held.end();
}

#[test]
fn a_good_table_is_not_blamed() {
    Held::of_each("a good table is not blamed", inputs::tables("good"), |answer| !answer.is_alarm());
}

#[test]
fn a_slow_table_is_not_praised() {
    Held::of_each("a slow table is not praised", inputs::tables("degraded"), |answer| !answer.is_praise());
}
