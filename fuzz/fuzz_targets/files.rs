//! Any text as the files that users write for commands: a space of `tune`, a tuning table, thresholds of `monitor`, signatures of
//! `explain --rules`.

#![no_main]

use busbw_diagnose::{Book, check_rules};
use busbw_model::{Bytes, Collective, TunedOperation, TuningTable};
use busbw_monitor::Thresholds;
use busbw_tune::space;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let settings = space::parse("fuzz", text).and_then(|space| space.settings());
    let table = TuningTable::parse(text);
    table.iter().for_each(follow);
    let refusals = [
        table.err().map(|error| error.to_string()),
        settings.err().map(|error| error.to_string()),
        Thresholds::parse(text).err().map(|error| error.to_string()),
        Book::with("fuzz.toml", text).err(),
        check_rules("rules/signatures/fuzz.toml", text).err(),
    ];
    for refused in refusals.into_iter().flatten() {
        assert!(!refused.is_empty(), "a refusal says why");
    }
});

/// What is chosen is of this operation and proven.
fn follow(table: &TuningTable) {
    let (collective, ranks, nodes, operations, registered) = (Collective::AllReduce, 16, 2, 1, false);
    for size in [Bytes(0), Bytes(1 << 16), Bytes(u64::MAX)] {
        let operation = TunedOperation { collective, size, ranks, nodes, operations, registered };
        let Some((number, choice)) = table.choose(&operation) else { continue };
        assert!(choice.is_proven() && choice.is_of(ranks, nodes) && (choice.from..=choice.to).contains(&size));
        assert!(table.choices[..number].iter().all(|before| before != choice), "the first counts");
    }
}
