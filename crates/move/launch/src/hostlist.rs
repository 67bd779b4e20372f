//! Slurm's host lists: `node[1-3,07],other[1-2]-ib` names node1, node2, node3, node07, other1-ib and other2-ib.

/// So many hosts at most: more come from a slip of the keyboard.
const MOST: usize = 1 << 20;

/// The hosts that a list names, in order. A number keeps the zeros that its range's first number has.
///
/// # Errors
/// Says what is wrong, to be read after the list.
pub fn expand(list: &str) -> Result<Vec<String>, String> {
    let mut hosts = Vec::new();
    for item in split_outside_brackets(list)? {
        let expanded = expand_item(item, MOST - hosts.len())?;
        hosts.extend(expanded);
    }
    Ok(hosts)
}

/// Cuts at the commas that are not within brackets.
fn split_outside_brackets(list: &str) -> Result<Vec<&str>, String> {
    let (mut items, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, byte) in list.bytes().enumerate() {
        match (byte, inside) {
            (b'[', false) => inside = true,
            (b']', true) => inside = false,
            (b'[', true) | (b']', false) => return Err(format!("has a bracket too many at column {}", at + 1)),
            (b',', false) => {
                items.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err("has an opening bracket without a closing one".into());
    }
    items.push(&list[start..]);
    match items.iter().position(|item| item.is_empty()) {
        Some(empty) => Err(format!("has no name at place {}", empty + 1)),
        None => Ok(items),
    }
}

/// Expands the first bracket of an item, and the rest of the item after each of its numbers.
fn expand_item(item: &str, most: usize) -> Result<Vec<String>, String> {
    let Some((prefix, rest)) = item.split_once('[') else { return Ok(vec![item.to_owned()]) };
    let Some((ranges, suffix)) = rest.split_once(']') else { return Err(format!("has a broken bracket in {item:?}")) };
    let suffixes = expand_item(suffix, most)?;
    let mut hosts = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = if digits { text.parse::<u64>().ok() } else { None };
            number.ok_or_else(|| format!("has {range:?} where a number or a range of numbers belongs"))
        };
        let (from, to) = (number(first)?, number(last)?);
        if to < from {
            return Err(format!("has the range {range:?}, which ends before it begins"));
        }
        let count = (to - from).saturating_add(1).saturating_mul(suffixes.len() as u64);
        if count > (most - hosts.len().min(most)) as u64 {
            return Err(format!("names more than {MOST} hosts"));
        }
        for number in from..=to {
            let width = first.len();
            hosts.extend(suffixes.iter().map(|suffix| format!("{prefix}{number:0width$}{suffix}")));
        }
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists() {
        for (list, hosts) in [
            ("node1", "node1"),
            ("node[1-3,7],other", "node1 node2 node3 node7 other"),
            ("n[08-11]", "n08 n09 n10 n11"),
            ("n[001,3]-ib", "n001-ib n3-ib"),
            ("rack[1-2]node[1-2]", "rack1node1 rack1node2 rack2node1 rack2node2"),
            ("a,b,a", "a b a"),
            ("gpu-a100-[0-1].cluster", "gpu-a100-0.cluster gpu-a100-1.cluster"),
        ] {
            assert_eq!(expand(list).unwrap().join(" "), hosts, "{list}");
        }
    }

    #[test]
    fn lists_that_are_none() {
        for (list, says) in [
            ("", "no name at place 1"),
            ("a,,b", "no name at place 2"),
            ("a[1", "without a closing one"),
            ("a]1", "a bracket too many at column 2"),
            ("a[[1]]", "a bracket too many at column 3"),
            ("a[]", "where a number"),
            ("a[1-]", "where a number"),
            ("a[x]", "where a number"),
            ("a[3-1]", "ends before it begins"),
            ("a[0-99999999999999999999]", "where a number"),
            ("a[0-18446744073709551615]", "more than"),
            ("a[0-9999]b[0-9999]", "more than"),
        ] {
            let error = expand(list).unwrap_err();
            assert!(error.contains(says), "{list}: {error}");
        }
    }

    /// Writes hosts with one prefix and width as Slurm does.
    fn compress(prefix: &str, width: usize, runs: &[(u64, u64)]) -> String {
        let item = |&(from, count): &(u64, u64)| match count {
            1 => format!("{from:0width$}"),
            _ => format!("{from:0width$}-{:0width$}", from + count - 1),
        };
        format!("{prefix}[{}]", runs.iter().map(item).collect::<Vec<_>>().join(","))
    }

    proptest! {
        #[test]
        fn expanding_undoes_compressing(width in 1usize..5, runs in prop::collection::vec((0u64..2000, 1u64..20), 1..6)) {
            let list = compress("node", width, &runs);
            let hosts: Vec<String> =
                runs.iter().flat_map(|&(from, count)| from..from + count).map(|n| format!("node{n:0width$}")).collect();
            // A range that grows beyond its width keeps the width of its first number.
            prop_assert_eq!(expand(&list).unwrap(), hosts);
        }

        #[test]
        fn nothing_panics(list in "[a-c0-9\\[\\],-]{0,24}") {
            let _ = expand(&list);
        }
    }
}
