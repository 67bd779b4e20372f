//! Ends of a cable in an explicit fabric: a switch by name, `node0.nic1`, or several NICs at once with `*`.

use crate::cluster::CableEnd;

/// What an end names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End<'a> {
    Switch(&'a str),
    /// Node and NIC; `None` stands for all.
    Nics(Option<usize>, Option<usize>),
}

impl<'a> End<'a> {
    /// Reads `leaf 0`, `node0.nic1`, `node*.nic1`.
    pub(super) fn read(text: &'a str) -> Self {
        let part = |text: &str, word: &str| -> Option<Option<usize>> {
            let number = text.strip_prefix(word)?;
            if number == "*" { Some(None) } else { number.parse().ok().map(Some) }
        };
        let nics = text.split_once('.').and_then(|(node, nic)| Some(End::Nics(part(node, "node")?, part(nic, "nic")?)));
        nics.unwrap_or(End::Switch(text))
    }

    /// Whether it stands for several NICs.
    pub(super) fn is_many(self) -> bool {
        matches!(self, End::Nics(None, _) | End::Nics(_, None))
    }
}

/// The NICs that an end stands for.
pub(super) fn nics(
    node: Option<usize>,
    nic: Option<usize>,
    nodes: usize,
    nics: usize,
) -> impl Iterator<Item = CableEnd> {
    let all = |one: Option<usize>, count: usize| one.map_or(0..count, |one| one..one + 1);
    all(node, nodes).flat_map(move |node| all(nic, nics).map(move |nic| CableEnd::Nic { node, nic }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_switches_or_nics() {
        for (text, end) in [
            ("leaf 0", End::Switch("leaf 0")),
            ("node0.nic1", End::Nics(Some(0), Some(1))),
            ("node*.nic1", End::Nics(None, Some(1))),
            ("node7.nic*", End::Nics(Some(7), None)),
            ("node0", End::Switch("node0")),
            ("node-1.nic0", End::Switch("node-1.nic0")),
        ] {
            assert_eq!(End::read(text), end, "{text}");
        }
    }
}
