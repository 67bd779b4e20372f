//! The counters that busbw knows: what each counts, what it gives, and when it should not move. Data: `rules/counters.toml`.

use busbw_model::counters::Counters;
pub use busbw_model::counters::{Cause, Counter, Family, Quantity};
use std::collections::BTreeMap;
use std::sync::LazyLock;

static KNOWN: LazyLock<Known> = LazyLock::new(|| {
    let data: Counters =
        toml::from_str(include_str!("../../../../rules/counters.toml")).expect("counters.toml is tested");
    Known { counters: data.counter, causes: data.cause.into_iter().map(|cause| (cause.name.clone(), cause)).collect() }
});

#[derive(Debug)]
pub struct Known {
    counters: Vec<Counter>,
    causes: BTreeMap<String, Cause>,
}

impl Known {
    pub fn get() -> &'static Known {
        &KNOWN
    }

    /// The counters, those that count first before others that give the same.
    pub fn counters(&self) -> &[Counter] {
        &self.counters
    }

    /// Where in the list a counter stands.
    pub fn find(&self, family: Family, name: &str) -> Option<usize> {
        self.counters.iter().position(|counter| counter.family == family && fits(&counter.name, name))
    }

    /// What is known of each name, and where those stand that give a quantity: the first of the list, and all that are parts.
    pub fn gives<'a>(
        &self,
        family: Family,
        names: impl Iterator<Item = &'a str>,
    ) -> (Vec<Option<&Counter>>, BTreeMap<Quantity, Vec<usize>>) {
        let places: Vec<Option<usize>> = names.map(|name| self.find(family, name)).collect();
        let mut by_rank: Vec<(usize, usize)> =
            places.iter().enumerate().filter_map(|(index, place)| Some(((*place)?, index))).collect();
        by_rank.sort_unstable();
        let mut gives: BTreeMap<Quantity, Vec<usize>> = BTreeMap::new();
        for (rank, index) in by_rank {
            let counter = &self.counters[rank];
            if let Some(quantity) = counter.is {
                let parts = gives.entry(quantity).or_default();
                if parts.is_empty() || counter.adds {
                    parts.push(index);
                }
            }
        }
        (places.into_iter().map(|place| place.map(|place| &self.counters[place])).collect(), gives)
    }

    /// Why a counter moves that should not.
    pub fn cause(&self, counter: &Counter) -> Option<&Cause> {
        self.causes.get(counter.cause.as_ref()?)
    }

    pub fn cause_named(&self, name: &str) -> Option<&Cause> {
        self.causes.get(name)
    }
}

/// Whether a name is of a pattern in which `#` is a digit.
fn fits(pattern: &str, name: &str) -> bool {
    pattern.len() == name.len()
        && pattern.bytes().zip(name.bytes()).all(|(p, n)| p == n || p == b'#' && n.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_is_whole() {
        let known = Known::get();
        for (at, counter) in known.counters.iter().enumerate() {
            assert_eq!(known.find(counter.family, &counter.name.replace('#', "3")), Some(at), "{} twice", counter.name);
            assert!(counter.cause.is_none() || known.cause(counter).is_some(), "{}: no such cause", counter.name);
            assert!(counter.factor >= 1 && !counter.meaning.is_empty());
        }
        for name in known.causes.keys() {
            assert!(
                name == "down" || known.counters.iter().any(|counter| counter.cause.as_ref() == Some(name)),
                "{name}"
            );
        }
    }

    #[test]
    fn a_digit_stands_for_a_priority() {
        for (name, fits_it) in [("rx_prio3_pause", true), ("rx_prio_pause", false), ("rx_prio31_pause", false)] {
            assert_eq!(fits("rx_prio#_pause", name), fits_it, "{name}");
        }
    }
}
