//! The variables `BUSBW_…`: the only list of them, and the nearest to one that busbw does not read.

/// What busbw reads or sets; docs/variables.md says what each does.
pub const KNOWN: [&str; 14] = [
    "BUSBW_BACKEND",
    "BUSBW_HOST",
    "BUSBW_LISTENER",
    "BUSBW_LOCAL_RANK",
    "BUSBW_LOCAL_SIZE",
    "BUSBW_MARK",
    "BUSBW_NET_CHECKSUM",
    "BUSBW_NET_TIMEOUT",
    "BUSBW_PROFILE",
    "BUSBW_RANK",
    "BUSBW_RENDEZVOUS",
    "BUSBW_SIZE",
    "BUSBW_TOKEN",
    "BUSBW_TUNING_TABLE",
];

/// How the variables of busbw's own tests begin.
pub const OF_TESTS: [&str; 6] =
    ["BUSBW_ACCURACY", "BUSBW_BLESS", "BUSBW_BOOK", "BUSBW_FACTS", "BUSBW_SKIP", "BUSBW_TEST_"];

/// A line for each variable that begins like ours and that busbw does not read: a misspelt one does nothing, and looks as
/// if it did.
pub fn unknown(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let is_unknown = |name: &String| {
        name.starts_with("BUSBW_")
            && !KNOWN.contains(&name.as_str())
            && !OF_TESTS.iter().any(|prefix| name.starts_with(prefix))
    };
    let mut lines: Vec<String> = names.into_iter().filter(is_unknown).map(|name| told(&name)).collect();
    lines.sort_unstable();
    lines
}

/// [`unknown`] of this process's environment.
pub fn unknown_here() -> Vec<String> {
    unknown(std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()))
}

fn told(name: &str) -> String {
    // As clap finds the nearest flag: Jaro's measure, from 0.7 on.
    let likeness = |known: &str| strsim::jaro(&known["BUSBW_".len()..], &name["BUSBW_".len()..]);
    let nearest = KNOWN.into_iter().max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    let remedy = match nearest.filter(|known| likeness(known) >= 0.7) {
        Some(nearest) => format!("Did you mean {nearest}?"),
        None => "It is ignored".to_owned(),
    };
    format!("there is no variable {}. {remedy}", name.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_variable_is_named_with_its_neighbour() {
        for (name, nearest) in [
            ("BUSBW_NET_CHEKSUM", Some("BUSBW_NET_CHECKSUM")),
            ("BUSBW_CHECKSUM", Some("BUSBW_NET_CHECKSUM")),
            ("BUSBW_TIMEOUT", Some("BUSBW_NET_TIMEOUT")),
            ("BUSBW_TOKENS", Some("BUSBW_TOKEN")),
            ("BUSBW_net_checksum", None),
            ("BUSBW_", None),
        ] {
            let remedy = nearest.map_or("It is ignored".to_owned(), |nearest| format!("Did you mean {nearest}?"));
            assert_eq!(unknown([name.to_owned()]), [format!("there is no variable {name}. {remedy}")]);
        }
    }

    #[test]
    fn known_variables_and_those_of_others_are_left_alone() {
        let others = ["PATH", "NCCL_DEBUG", "MY_BUSBW_X", "BUSBW_SKIPPED", "BUSBW_TEST_RUN"];
        assert!(unknown(KNOWN.into_iter().chain(others).map(str::to_owned)).is_empty());
        assert!(KNOWN.is_sorted());
        assert!(unknown(["BUSBW_\u{1b}[2J".to_owned()])[0].contains("BUSBW_\\u{1b}[2J"));
    }
}
