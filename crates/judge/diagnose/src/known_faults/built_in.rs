//! The known faults that are compiled in.

use super::table::{Fault, component_of};
use crate::data::{Template, from_build};
use flate2::read::GzDecoder;
use std::collections::HashMap;
use std::io::read_to_string;
use std::sync::LazyLock;

/// All of `rules/known-faults`, as JSON, packed.
const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/known-faults.json.gz"));

/// Those that print a text: few, and a diagnosis needs no others.
static PRINTED: LazyLock<Vec<Fault>> =
    LazyLock::new(|| read(include_bytes!(concat!(env!("OUT_DIR"), "/printed-faults.json"))));

static BUILT_IN: LazyLock<Vec<Fault>> = LazyLock::new(|| {
    let json = read_to_string(GzDecoder::new(PACKED))
        .unwrap_or_else(|error| unreachable!("the build script packed it: {error}"));
    let mut faults = read(json.as_bytes());
    set_general_words_apart(&mut faults);
    faults
});

fn read(json: &[u8]) -> Vec<Fault> {
    let of_component = |fault: Fault| Some(Fault { component: component_of(&fault.id)?, ..fault });
    from_build::<Vec<Fault>>(json).into_iter().filter_map(of_component).collect()
}

/// Flags such as `disaggregation-mode decode` stand in entries whose condition is narrower than them; where an entry has no other words, its condition is as wide.
fn set_general_words_apart(faults: &mut [Fault]) {
    const MANY: u32 = 4;
    let mut named: HashMap<String, u32> = HashMap::new();
    for text in faults.iter().flat_map(|fault| &fault.shown) {
        *named.entry(text.clone().into()).or_default() += 1;
    }
    let is_general = |text: &Template| named.get(&String::from(text.clone())).is_some_and(|count| *count >= MANY);
    for fault in faults.iter_mut().filter(|fault| !fault.shown.iter().all(is_general)) {
        fault.about = fault.shown.extract_if(.., |text| is_general(text)).collect();
    }
}

/// The faults that are compiled in; those of a person's own file stand in its [`Book`](crate::Book).
pub fn all() -> &'static [Fault] {
    &BUILT_IN
}

pub(crate) fn printed() -> &'static [Fault] {
    &PRINTED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_of_many_entries_meets_the_condition_of_none_with_other_words() {
        let shown = |texts: [&str; 2]| {
            let text = texts.map(|text| format!("{text:?}")).join(",");
            let fault = format!(
                "[[fault]]\nid='sglang-x'\ntitle='x'\nlast='1.0'\nsure='reported'\nwhen={{only='x'}}\nshown=[{text}]\nconsequence='hang'\nsource=['https://x']\ndate='2026-01-01'\n"
            );
            super::super::table::faults([("x.toml", fault.as_str())]).unwrap().remove(0)
        };
        let mut faults = vec![shown(["--flag", "--mode"]), shown(["--flag", "--mode"]), shown(["--flag", "--mode"])];
        faults.extend([shown(["--flag", "own_name"]), shown(["--mode", "--flag"])]);
        set_general_words_apart(&mut faults);
        let told = |fault: &Fault| fault.shown.iter().cloned().map(String::from).collect::<Vec<_>>();
        assert_eq!(told(&faults[3]), ["own_name"]);
        assert_eq!(told(&faults[4]), ["--mode", "--flag"]);
    }
}
