//! The variables that NCCL reads: meaning, default, versions (`rules/variables.toml`), and the nearest name of one that it does not.

use crate::data::{self, Variable, Variables};
use std::sync::LazyLock;

static KNOWN: LazyLock<Variables> =
    LazyLock::new(|| data::built_in("variables.toml", include_str!("../../../../rules/variables.toml")));

/// The variable of a name.
///
/// ```
/// let timeout = busbw_diagnose::variable("NCCL_IB_TIMEOUT").expect("a known variable");
/// assert_eq!((timeout.since.as_str(), timeout.default.as_deref()), ("2.4", Some("20")));
/// assert!(busbw_diagnose::variable("NCCL_IB_TIMEOUTS").is_none());
/// ```
pub fn variable(name: &str) -> Option<&'static Variable> {
    KNOWN.variable.iter().find(|variable| variable.name == name)
}

/// The known variable whose name is nearest to one that NCCL does not read; none where none is near, or where another
/// program reads it.
///
/// ```
/// let nearest = busbw_diagnose::nearest_variable("NCCL_SOCKET_IFNAMES").expect("a near name");
/// assert_eq!(nearest.name, "NCCL_SOCKET_IFNAME");
/// assert!(busbw_diagnose::nearest_variable("NCCL_ASYNC_ERROR_HANDLING").is_none());
/// ```
pub fn nearest_variable(name: &str) -> Option<&'static Variable> {
    if variable(name).is_some()
        || !name.starts_with("NCCL_")
        || KNOWN.others.iter().any(|other| name.starts_with(other))
    {
        return None;
    }
    let distances = KNOWN.variable.iter().map(|variable| (strsim::levenshtein(&variable.name, name), variable));
    let (letters, nearest) = distances.min_by_key(|(letters, _)| *letters)?;
    (letters <= 3).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_read_and_sorted() {
        assert!(KNOWN.variable.len() > 240);
        assert!(KNOWN.variable.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(KNOWN.variable.iter().filter(|v| v.meaning.is_some()).count() > 110);
    }

    #[test]
    fn misspelt_names_find_their_neighbour() {
        let cases = [
            ("NCCL_IB_HCAS", Some("NCCL_IB_HCA")),
            ("NCCL_NSOCKS_PER_THREAD", Some("NCCL_NSOCKS_PERTHREAD")),
            ("NCCL_IB_DISABLE", None),
            ("NCCL_FASTRAK_IFNAME", None),
            ("NCCL_MAKE_IT_FAST", None),
        ];
        for (name, nearest) in cases {
            assert_eq!(nearest_variable(name).map(|v| v.name.as_str()), nearest, "{name}");
        }
    }
}
