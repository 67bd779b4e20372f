//! The variables that NCCL reads: meaning, default, versions (`variables.toml`), and the nearest name of one that it does not.

use serde::Deserialize;
use std::sync::LazyLock;

static VARIABLES: LazyLock<Vec<Variable>> = LazyLock::new(|| {
    #[derive(Deserialize)]
    struct File {
        variable: Vec<Variable>,
    }
    toml::from_str::<File>(include_str!("variables.toml")).map(|file| file.variable).unwrap_or_default()
});

/// Beginnings and names of variables that others than NCCL read: plugins, PyTorch, builds, nccl-tests.
const OF_OTHERS: [&str; 26] = [
    "NCCL_OFI_",
    "NCCL_FASTRAK_",
    "NCCL_GPUDIRECTTCPX_",
    "NCCL_TUNER_CONFIG",
    "NCCL_IBEXT_",
    "NCCL_SHARP_",
    "NCCL_UCX_",
    "NCCL_TESTS_",
    "NCCL_ASYNC_ERROR_HANDLING",
    "NCCL_BLOCKING_WAIT",
    "NCCL_DESYNC_DEBUG",
    "NCCL_ENABLE_MONITORING",
    "NCCL_HOME",
    "NCCL_ROOT",
    "NCCL_INCLUDE_DIR",
    "NCCL_LIB",
    "NCCL_VERSION",
    "NCCL_DIR",
    "NCCL_PATH",
    "NCCL_INSPECTOR_",
    "NCCL_SHIMNET_",
    "NCCL_PROFILE_",
    "NCCL_CCLO",
    "NCCL_ENV_CONFIG",
    "NCCL_GIB_",
    "NCCL_MSCCL",
];

/// A variable of NCCL's.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Variable {
    /// `NCCL_IB_HCA`.
    pub name: String,
    /// The first version that reads it: `2.4`, or an older one.
    pub since: String,
    /// The last version that reads it; none where the newest does.
    pub until: Option<String>,
    /// Its default, where NCCL has a number for it; `automatic` where NCCL decides.
    pub default: Option<String>,
    /// What it does, in a few words; none where NCCL's documentation does not tell.
    pub meaning: Option<String>,
}

/// The variable of a name.
///
/// ```
/// let timeout = busbw_diagnose::variable("NCCL_IB_TIMEOUT").expect("a known variable");
/// assert_eq!((timeout.since.as_str(), timeout.default.as_deref()), ("2.4", Some("20")));
/// assert!(busbw_diagnose::variable("NCCL_IB_TIMEOUTS").is_none());
/// ```
pub fn variable(name: &str) -> Option<&'static Variable> {
    VARIABLES.iter().find(|variable| variable.name == name)
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
    if variable(name).is_some() || !name.starts_with("NCCL_") || OF_OTHERS.iter().any(|other| name.starts_with(other)) {
        return None;
    }
    let distances = VARIABLES.iter().map(|variable| (strsim::levenshtein(&variable.name, name), variable));
    let (letters, nearest) = distances.min_by_key(|(letters, _)| *letters)?;
    (letters <= 3).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_read_and_sorted() {
        assert!(VARIABLES.len() > 240);
        assert!(VARIABLES.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(VARIABLES.iter().filter(|v| v.meaning.is_some()).count() > 110);
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
