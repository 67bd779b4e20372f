//! The pages of `docs/known-faults` are what the tables say. `BUSBW_BLESS=1 cargo test -p busbw-report known_faults` writes them.

use busbw_model::Consequence;
use std::path::Path;

#[test]
fn the_pages_are_those_of_the_tables() {
    let faults = busbw_diagnose::known_faults::listed();
    for consequence in Consequence::ALL {
        let text = busbw_report::text::known_faults(consequence, &faults);
        let name = format!("{}.md", consequence.name().replace(' ', "-"));
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/known-faults").join(&name);
        if std::env::var_os("BUSBW_BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), text, "write {name} anew with BUSBW_BLESS=1");
    }
}
