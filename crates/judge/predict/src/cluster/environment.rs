//! Variables as people list them: `NCCL_ALGO=Ring (stated in the text); plugin sets NCCL_PROTO=simple`.

use super::words::Words;
use busbw_model::PathType;
use std::collections::BTreeMap;

/// Reads every `NAME=value` of a text; the first value of a name counts.
pub(super) fn read(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut rest = text;
    while let Some(equals) = rest.find('=') {
        let name = name_before(&rest[..equals]);
        let (value, after) = value_behind(&rest[equals + 1..]);
        if let Some(name) = name.filter(|_| !value.is_empty()) {
            found.entry(name.to_string()).or_insert(value);
        }
        rest = after;
    }
    if says_collnet_is_on(text) {
        found.entry("NCCL_COLLNET_ENABLE".to_string()).or_insert("1".to_string());
    }
    found
}

/// The variable name that a text ends with.
fn name_before(text: &str) -> Option<&str> {
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let name = &text[text.trim_end_matches(is_part).len()..];
    let starts_word = !text[..text.len() - name.len()].ends_with(|c: char| c.is_ascii_alphanumeric());
    (name.len() > 1 && starts_word && name.starts_with(|c: char| c.is_ascii_uppercase())).then_some(name)
}

/// The value that a text begins with, and what follows it.
fn value_behind(text: &str) -> (String, &str) {
    for quote in ['"', '\''] {
        if let Some((value, after)) = text.strip_prefix(quote).and_then(|quoted| quoted.split_once(quote)) {
            return (value.to_string(), after);
        }
    }
    let end = text.find(|c: char| c.is_whitespace() || c == ';').unwrap_or(text.len());
    let (value, after) = text.split_at(end);
    let unbalanced = value.matches(')').count() > value.matches('(').count();
    let value = value.trim_end_matches([',', '.']).trim_end_matches(if unbalanced { ')' } else { ',' });
    (value.to_string(), after)
}

/// `SHARP/CollNet on`: said in words.
fn says_collnet_is_on(text: &str) -> bool {
    let words = Words::of(text);
    let on = ["on", "enabled", "active"].iter().any(|word| words.has(word));
    on && ["sharp", "collnet"].iter().any(|word| words.affirms(word) == Some(true))
}

/// The farthest path that a level allows: `NCCL_P2P_LEVEL`, `NCCL_NET_GDR_LEVEL`. Names, or the numbers of NCCL 2.4 and
/// before (`levelsOldToNew` in `src/graph/paths.cc` of NCCL 2.30).
pub(crate) fn level(value: &str) -> Option<PathType> {
    Some(match value.trim().to_ascii_uppercase().as_str() {
        "LOC" | "0" => PathType::Same,
        "NVL" => PathType::NvLink(1),
        "PIX" | "1" => PathType::Pix,
        "PXB" | "2" => PathType::Pxb,
        // PXN and P2C lie between PXB and PHB; what they add is a way around.
        "PXN" | "P2C" => PathType::Pxb,
        "PHB" | "3" => PathType::Phb,
        "NODE" => PathType::Node,
        "SYS" | "4" | "5" => PathType::Sys,
        other => return other.parse::<u32>().ok().map(|_| PathType::Sys),
    })
}

/// Whether a variable switches something on: `1`, and what NCCL's integer reader takes for non-zero.
pub(super) fn is_set(environment: &BTreeMap<String, String>, name: &str) -> Option<bool> {
    environment.get(name)?.trim().parse::<i64>().ok().map(|value| value != 0)
}

/// NCCL's version as `(2, 27)`: from `2.27.7+cuda12.4`, `v2.18.5`, or a code such as 22707.
pub(super) fn nccl_version(text: &str) -> Option<(u32, u32)> {
    let numbers = |word: &str| -> Option<(u32, u32)> {
        let mut parts = word.trim_start_matches(|c: char| !c.is_ascii_digit()).split(|c: char| !c.is_ascii_digit());
        let (major, minor) = (parts.next()?.parse().ok()?, parts.next().and_then(|part| part.parse().ok()));
        match (major, minor) {
            (1..=3, Some(minor)) => Some((major, minor)),
            // NCCL_VERSION in src/nccl.h.in: 2.9 and later have five digits, those before four.
            (10_000..=39_999, _) => Some((major / 10_000, major % 10_000 / 100)),
            (2_000..=2_899, _) => Some((2, major % 1_000 / 100)),
            _ => None,
        }
    };
    text.split(|c: char| c.is_whitespace() || "(),;".contains(c)).find_map(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_found_among_words() {
        for (text, expected) in crate::cases::<(String, Vec<(String, String)>)>("variables") {
            assert_eq!(read(&text).into_iter().collect::<Vec<_>>(), expected, "{text}");
        }
    }

    #[test]
    fn versions_are_read() {
        for (text, version) in crate::cases::<(String, Vec<u32>)>("versions") {
            let found = nccl_version(&text).map_or(Vec::new(), |(major, minor)| vec![major, minor]);
            assert_eq!(found, version, "{text}");
        }
    }
}
