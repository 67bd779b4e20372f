//! Facts in sentences: "2 nodes x 8 H100", "4 x 200 Gb/s", "busbw about 96 GB/s", "node1,node2  25".
//!
//! People paste results without tables and describe their machines in words. Only what is unmistakable is read: a count
//! with its noun, a bandwidth with its unit.

use busbw_model::{Collective, Figure, GBps, Quantity, ToldFact};

/// GPUs by the part of their name that people write. Longer names before the names that they contain.
const GPUS: [&str; 34] = [
    "GB300", "GB200", "GH200", "B300", "B200", "B100", "H200", "H100", "H800", "H20", "A100", "A800", "A30", "A40",
    "A10G", "A10", "V100", "P100", "T4", "L40S", "L40", "L20", "L4", "A6000", "A5000", "5090", "4090", "3090", "2080",
    "1080", "MI300X", "MI250", "K80", "P40",
];
/// InfiniBand's generations and what a 4X port of them carries, Gbit/s.
const GENERATIONS: [(&str, f64); 8] = [
    ("xdr", 800.0),
    ("ndr200", 200.0),
    ("ndr", 400.0),
    ("hdr100", 100.0),
    ("hdr", 200.0),
    ("edr", 100.0),
    ("fdr", 56.0),
    ("qdr", 40.0),
];
/// Rates that ports are sold with, Gbit/s.
const RATES: [f64; 10] = [10.0, 25.0, 40.0, 50.0, 56.0, 100.0, 200.0, 400.0, 800.0, 1600.0];
const COUNTS: [(&str, u32); 12] = [
    ("one", 1),
    ("single", 1),
    ("a", 1),
    ("two", 2),
    ("both", 2),
    ("dual", 2),
    ("three", 3),
    ("four", 4),
    ("six", 6),
    ("eight", 8),
    ("sixteen", 16),
    ("ten", 10),
];
/// Larger numbers count no nodes, GPUs or ports.
const MOST_COUNTED: u32 = 100_000;
/// Words that may stand between a count and what is counted.
const FILLERS: [&str; 30] = [
    "with",
    "at",
    "x",
    "×",
    "*",
    "nvidia",
    "tesla",
    "geforce",
    "rtx",
    "mellanox",
    "infiniband",
    "ib",
    "roce",
    "ethernet",
    "efa",
    "nic",
    "nics",
    "hca",
    "hcas",
    "of",
    "port",
    "ports",
    "connectx-5",
    "connectx-6",
    "connectx-7",
    "connectx-8",
    "cx6",
    "cx7",
    "cx-7",
    "adapters",
];

/// The facts of a line.
pub(crate) fn read(line: &str) -> Vec<ToldFact> {
    if line.len() > 400 || line.contains(" Pid ") {
        return Vec::new();
    }
    let words = words(line);
    if let Some(pair) = pair(&words) {
        return vec![pair];
    }
    let mut facts: Vec<ToldFact> = nodes(&words).into_iter().collect();
    facts.extend(gpus(&words));
    facts.extend(nics(&words));
    facts.extend(figures(&words));
    facts
}

/// A word of a line: lower case, without the punctuation around it.
#[derive(Debug)]
struct Word<'a> {
    /// As written.
    raw: &'a str,
    text: String,
    /// A clause ends behind it.
    ends_clause: bool,
}

fn words(line: &str) -> Vec<Word<'_>> {
    let pieces = line.split(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | '[' | ']' | '"' | '\'' | '`'));
    let word = |raw: &'_ str| {
        let trimmed = raw.trim_matches(|c: char| matches!(c, ',' | ';' | '.' | ':' | '!' | '?' | '~' | '#' | '$'));
        (trimmed.to_lowercase(), raw.ends_with([',', ';', '.', ':', '!', '?']))
    };
    pieces
        .filter(|raw| !raw.is_empty())
        .map(|raw| {
            let (text, ends_clause) = word(raw);
            Word { raw, text, ends_clause }
        })
        .filter(|word| !word.text.is_empty())
        .collect()
}

/// A number and what is written behind it without a space: `8xh100` → 8, `xh100`.
fn leading_number(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    Some((number.trim_end_matches('.').parse().ok()?, rest))
}

fn whole_number(text: &str) -> Option<u32> {
    let spelled = COUNTS.iter().find(|(word, _)| *word == text).map(|(_, count)| *count);
    let digits = || leading_number(text).filter(|(n, rest)| n.fract() == 0.0 && matches!(*rest, "" | "x" | "×"));
    spelled.or_else(|| digits().map(|(n, _)| n as u32)).filter(|n| (1..MOST_COUNTED).contains(n))
}

/// The count in front of a word, fillers between them allowed.
fn count_before(words: &[Word]) -> Option<u32> {
    let mut before = words.iter().rev().skip_while(|word| FILLERS.contains(&word.text.as_str()));
    before.next().and_then(|word| whole_number(&word.text))
}

fn is_node_word(text: &str) -> bool {
    let singular = text.strip_suffix('s').unwrap_or(text);
    ["node", "server", "machine", "host", "vm"].contains(&singular)
}

fn nodes(words: &[Word]) -> Option<ToldFact> {
    words.iter().enumerate().find_map(|(index, word)| {
        if let Some((count, _)) = word.text.split_once('-').filter(|(_, noun)| is_node_word(noun)) {
            return whole_number(count).map(ToldFact::Nodes);
        }
        // "per node" and "a node" count no nodes.
        let count = words.get(index.checked_sub(1)?).filter(|_| is_node_word(&word.text))?;
        (count.text != "a" && count.text != "both").then(|| whole_number(&count.text).map(ToldFact::Nodes))?
    })
}

fn gpus(words: &[Word]) -> Option<ToldFact> {
    words.iter().enumerate().find_map(|(index, word)| {
        let text = word.text.to_uppercase();
        let (count, text) = match leading_number(&text) {
            Some((count, rest)) if rest.starts_with(['X', '*', '×']) => {
                // `0xa100` is an address.
                let count = Some(count as u32).filter(|count| (1..MOST_COUNTED).contains(count))?;
                (Some(count), rest.trim_start_matches(['X', '*', '×']).to_string())
            }
            _ => (None, text.clone()),
        };
        let name = GPUS.into_iter().find(|name| {
            let rest = text.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest == "S" || rest.starts_with(['-', '_', '/', ',', '+']))
        })?;
        let count = count.or_else(|| count_before(&words[..index]));
        // A bare "4090" may be any number; it names a GPU behind "RTX" or a count.
        let bare = name.bytes().all(|b| b.is_ascii_digit());
        let after_rtx = index > 0 && ["rtx", "geforce"].contains(&words[index - 1].text.as_str());
        (!bare || after_rtx || count.is_some_and(|c| c <= 16)).then(|| ToldFact::Gpus { count, name: name.into() })
    })
}

/// The rate of a port that a word tells: `200g`, `400gbps`, `100gbe`, or the number before `gb/s`, or `edr`.
fn port_rate(words: &[Word], index: usize) -> Option<f64> {
    let word = &words[index];
    let generation = GENERATIONS.iter().find(|(name, _)| word.text == *name).map(|(_, rate)| *rate);
    if generation.is_some() {
        return generation;
    }
    let raw = word.raw.trim_matches(|c: char| matches!(c, ',' | ';' | '.' | ':'));
    let raw =
        raw.rsplit_once(['x', '×']).map_or(raw, |(count, rate)| if whole_number(count).is_some() { rate } else { raw });
    let (rate, unit) = leading_number(raw)?;
    let unit = if unit.is_empty() { words.get(index + 1)?.raw.trim_end_matches([',', ';', '.']) } else { unit };
    // A capital B is bytes.
    let bits = ["G", "Gb", "Gb/s", "Gbps", "Gbit/s", "Gbit", "GbE", "GE", "Gbits", "Gbits/s"].contains(&unit);
    (bits && RATES.contains(&rate)).then_some(rate)
}

fn nics(words: &[Word]) -> Vec<ToldFact> {
    let mut found: Vec<ToldFact> = Vec::new();
    for index in 0..words.len() {
        let Some(gbit_s) = port_rate(words, index) else { continue };
        let joined = words[index].text.split_once(['x', '×']).and_then(|(count, _)| whole_number(count));
        let before = &words[..index];
        let before = match before.last() {
            Some(last) if GENERATIONS.iter().any(|(name, _)| last.text == *name) => &before[..index - 1],
            _ => before,
        };
        let Some(count) = joined.or_else(|| count_before(before)).filter(|count| *count <= 32) else { continue };
        let fact = ToldFact::Nics { count, gbit_s };
        if !found.contains(&fact) {
            found.push(fact);
        }
    }
    found
}

fn figures(words: &[Word]) -> Vec<ToldFact> {
    let collective = words.iter().find_map(|word| {
        let name = word.text.rsplit('/').next().unwrap_or_default();
        let is_name = name.contains("all") || name.contains("scatter") || name.contains("sendrecv");
        is_name.then(|| Collective::from_name(name)).flatten()
    });
    let value = |index: usize| {
        let (value, unit) = leading_number(&words[index].text)?;
        let unit = if unit.is_empty() { words.get(index + 1)?.text.as_str() } else { unit };
        ["gb/s", "gbps", "gib/s", "gb/sec"].contains(&unit).then_some(()).and_then(|()| {
            let written = if words[index].raw.contains(['G', 'g']) { words[index].raw } else { words[index + 1].raw };
            (written.contains("GB") || written.contains("GiB")).then_some(value)
        })
    };
    let figure = |index: usize| {
        let quantity = quantity(words, index)?;
        Some(ToldFact::Figure(Figure { quantity, value: GBps(value(index)?), collective }))
    };
    (0..words.len()).filter_map(figure).collect()
}

/// What the number at `index` is, by the words of its clause; nothing that was measured where it is only a limit ("why can
/// busbw exceed 50 GB/s?").
fn quantity(words: &[Word], index: usize) -> Option<Quantity> {
    let start =
        words[..index].iter().rposition(|word| word.ends_clause && !word.raw.ends_with(':')).map_or(0, |at| at + 1);
    let end = words[index..].iter().position(|word| word.ends_clause).map_or(words.len(), |at| index + at + 1);
    if words[start..index].iter().any(|word| word.text.starts_with("exceed")) {
        return None;
    }
    if words[start..index].iter().any(|word| ["avg", "average", "averages"].contains(&word.text.as_str())) {
        return Some(Quantity::Average);
    }
    let clause = words[start..index].iter().rev().chain(words[index..end].iter().take(4).skip(1));
    let of = |word: &Word| match word.text.as_str() {
        text if text.starts_with("expect") || text.starts_with("theor") || text == "should" || text == "target" => {
            Some(Quantity::Expected)
        }
        "bus" | "busbw" => Some(Quantity::Busbw),
        "algbw" | "algorithm" => Some(Quantity::Algbw),
        _ => None,
    };
    Some(clause.into_iter().find_map(of).unwrap_or(Quantity::Bandwidth))
}

/// Two hosts and what they reach: `node1,node2    25`, `gn01 gn02: 88.4 GB/s`.
fn pair(words: &[Word]) -> Option<ToldFact> {
    let is_host = |text: &str| {
        text.bytes().any(|b| b.is_ascii_digit())
            && text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    let split = |text: &str| -> Vec<String> {
        text.split([',', '+', '&', '/'])
            .flat_map(|part| part.split("<->"))
            .filter(|p| !p.is_empty())
            .map(str::to_string)
            .collect()
    };
    let mut parts: Vec<String> = words.iter().flat_map(|word| split(&word.text)).collect();
    parts.retain(|part| {
        !["and", "to", "with", "gb", "s", "gb/s", "busbw", "-", "=", "|", "<->", "vs"].contains(&part.as_str())
    });
    let [a, b, value] = parts.as_slice() else { return None };
    let value: f64 = value.parse().ok()?;
    (is_host(a) && is_host(b) && a != b && value > 0.0)
        .then(|| ToldFact::Pair { nodes: (a.clone(), b.clone()), busbw: GBps(value) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn figure(quantity: Quantity, value: f64, collective: Option<Collective>) -> ToldFact {
        ToldFact::Figure(Figure { quantity, value: GBps(value), collective })
    }

    fn gpus(count: impl Into<Option<u32>>, name: &str) -> ToldFact {
        ToldFact::Gpus { count: count.into(), name: name.into() }
    }

    #[test]
    fn sentences_tell_machines_and_speeds() {
        use Quantity::{Algbw, Bandwidth, Busbw, Expected};
        let all_reduce = Some(Collective::AllReduce);
        let cases: [(&str, Vec<ToldFact>); 18] = [
            ("4 servers with 8xA100, HDR", vec![ToldFact::Nodes(4), gpus(8, "A100")]),
            ("NICs: 8 x 400 Gb/s", vec![ToldFact::Nics { count: 8, gbit_s: 400.0 }]),
            ("two InfiniBand EDR (100 Gb/s) ports", vec![ToldFact::Nics { count: 2, gbit_s: 100.0 }]),
            ("each node has 8x200G NICs", vec![ToldFact::Nics { count: 8, gbit_s: 200.0 }]),
            (
                "all_reduce_perf, 2 nodes x 8 H100: busbw about 340 GB/s",
                vec![ToldFact::Nodes(2), gpus(8, "H100"), figure(Busbw, 340.0, all_reduce)],
            ),
            ("we get 12.5 GB/s, expected 24 GB/s", vec![figure(Bandwidth, 12.5, None), figure(Expected, 24.0, None)]),
            ("eight H100: algbw of 250 GB/s", vec![gpus(8, "H100"), figure(Algbw, 250.0, None)]),
            ("n12,n31   49.36", vec![ToldFact::Pair { nodes: ("n12".into(), "n31".into()), busbw: GBps(49.36) }]),
            ("Avg bus bandwidth is 190 GB/s", vec![figure(Quantity::Average, 190.0, None)]),
            ("GPU memory 80 GB, 8 GPUs per node", vec![]),
            ("2-node run on RTX 4090", vec![ToldFact::Nodes(2), gpus(None, "4090")]),
            ("iteration 4090 of 8000", vec![]),
            ("freed the buffer at 0xa100 of 0xB200", vec![]),
            ("4000000000xH100", vec![]),
            ("four ConnectX-6 IB with 200Gbps rate", vec![ToldFact::Nics { count: 4, gbit_s: 200.0 }]),
            ("8 GPUs with 200G NICs", vec![]),
            ("why can the busbw exceed 50GB/s?", vec![]),
            ("ib_write_bw reaches 24.51 Gb/s", vec![]),
        ];
        for (line, facts) in cases {
            assert_eq!(read(line), facts, "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_read_without_panic(line in "\\PC{0,120}") {
            let _ = read(&line);
        }
    }
}
