//! What names in a text show of a job: functions, flags, kernels, networks, variables and GPUs.

use super::situation::Situation;
use super::table::Condition;
use crate::words::KNOWN;
use busbw_model::Component;
use busbw_predict::cluster::product;
use std::collections::BTreeSet;

/// Words beside a number that say, it is one of each host, and how far they may stand.
const HOSTS: [&str; 7] = ["node", "host", "server", "machine", "instance", "per", "each"];
const BESIDE: usize = 4;
/// Words of a name such as `RTX PRO 6000`.
const SERIES: usize = 3;

/// The component that a misspelt name means, where one is near: a letter away, a long name two.
///
/// ```
/// use busbw_diagnose::known_faults::nearest;
/// assert_eq!(nearest("ncll").map(|near| near.name()), Some("nccl"));
/// assert!(nearest("numpy").is_none());
/// ```
pub fn nearest(name: &str) -> Option<Component> {
    const LONG: usize = 8;
    let distances = Component::ALL.into_iter().map(|known| (strsim::levenshtein(known.name(), name), known));
    let (letters, nearest) = distances.min_by_key(|(letters, _)| *letters)?;
    (letters <= if name.len() < LONG { 1 } else { 2 }).then_some(nearest)
}

impl Situation {
    /// What names in a text of people's show, where no log of NCCL's tells better what was in use.
    pub fn names(&mut self, text: &str) {
        for (name, value, names) in &KNOWN.tells {
            let condition = Condition::TOLD.into_iter().find(|condition| condition.name() == name);
            let told = condition.filter(|_| names.iter().any(|name| stands(text, name)));
            told.into_iter().for_each(|condition| self.tell(condition, value.as_str()));
        }
        let words = text.split(|c: char| c.is_whitespace() || "`\"'(),;|".contains(c));
        words.filter(|word| sets_variable(word)).for_each(|word| self.tell_variable(word));
        let counts = counts_of_ranks(text);
        if counts.len() == 1 && !self.knows(Condition::Gpus) {
            counts.into_iter().for_each(|ranks| self.tell(Condition::Gpus, ranks.to_string()));
        }
        let words: Vec<&str> =
            text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
        let models = words.iter().filter(|word| is_model(word)).map(|word| word.to_string());
        let series = words.windows(SERIES).filter(|name| name[0] == "RTX").map(|name| name.join(" "));
        // A thread that names several GPUs compares them.
        let gpus: Vec<(&str, String)> =
            models.chain(series).filter_map(|name| Some((product(&name)?.0, name))).collect();
        if gpus.windows(2).all(|two| two[0].0 == two[1].0) && !self.knows(Condition::Gpu) {
            gpus.iter().for_each(|(_, name)| self.tell_gpu(name));
        }
    }
}

/// The numbers of ranks in a text: `2 GPUs`, `8x H100`, `world_size=16`; not those beside a word for hosts, which each may have as
/// many.
fn counts_of_ranks(text: &str) -> BTreeSet<u32> {
    let apart = |c: char| c.is_whitespace() || "`*|()[],;:=".contains(c);
    let words: Vec<&str> = text.split(apart).filter(|word| !word.is_empty()).collect();
    let count = |at: usize| {
        let number = |far: usize| words.get(at + far)?.parse::<u32>().ok();
        let of_world = match words[at].to_ascii_lowercase().as_str() {
            "world_size" | "nranks" => number(1),
            "world" if words.get(at + 1) == Some(&"size") => number(2),
            _ => None,
        };
        of_world.or_else(|| counted(&words, at))
    };
    (0..words.len()).filter_map(count).collect()
}

/// The number at a place, if it counts the GPUs of a job.
fn counted(words: &[&str], at: usize) -> Option<u32> {
    let number = words[at].trim_end_matches(['x', '×']);
    let count = number.parse().ok().filter(|count| *count > 1)?;
    let behind = *words.get(at + 1)?;
    let is_multiple = number.len() < words[at].len() && (behind == "NVIDIA" || is_model(behind));
    let around = &words[at.saturating_sub(BESIDE)..words.len().min(at + 1 + BESIDE)];
    let of_hosts = around.iter().any(|word| HOSTS.contains(&word.to_ascii_lowercase().trim_end_matches('s')));
    (!of_hosts && (is_multiple || ["gpus", "ranks"].contains(&behind.to_ascii_lowercase().as_str()))).then_some(count)
}

/// Whether a name stands in a text as a word, and nothing behind it switches it off.
fn stands(text: &str, name: &str) -> bool {
    let is_short = name.chars().all(|c| c.is_ascii_uppercase());
    text.match_indices(name).any(|(at, _)| {
        let (before, behind) = (&text[..at], &text[at + name.len()..]);
        let starts = !before.ends_with(|c: char| c.is_ascii_alphanumeric());
        // `EFA` is not in `EFAULT`, `cudaGraph` is in `cudaGraphLaunch`.
        let ends = !is_short || !behind.starts_with(|c: char| c.is_ascii_alphanumeric());
        starts && ends && !["_ENABLE=0", "_DISABLE=1"].iter().any(|off| behind.starts_with(off))
    })
}

/// Whether a word sets a variable of the environment: `VLLM_USE_NCCL_SYMM_MEM=1`.
fn sets_variable(word: &str) -> bool {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.contains('_')
            && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
    };
    word.split_once('=').is_some_and(|(name, value)| is_name(name) && !value.is_empty())
}

/// Whether a word has the form of a GPU's model: `H100`, `MI300X`, `GB10`.
fn is_model(word: &str) -> bool {
    let is_of = |of: fn(&char) -> bool| word.chars().any(|c| of(&c));
    word.len() >= 3
        && word.starts_with(|c: char| c.is_ascii_uppercase())
        && is_of(char::is_ascii_digit)
        && !is_of(char::is_ascii_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_counted_where_a_number_is_that_of_the_job() {
        let cases: [(&str, &[u32]); 9] = [
            ("a deadlock in AllGather on B200 platform with 2 GPUs when memory is registered", &[2]),
            ("2x NVIDIA RTX PRO 6000 Blackwell", &[2]),
            ("8× H100, driver 580", &[8]),
            ("world_size=16 rank=3", &[16]),
            ("ncclAllReduce with world size = 1", &[1]),
            ("comm 0x1 rank 0 nranks 8 cudaDev 0", &[8]),
            ("8 GPUs per node", &[]),
            ("4 nodes with 8 GPUs", &[]),
            ("2x H100 servers, 1 GPU hangs", &[]),
        ];
        for (text, ranks) in cases {
            assert_eq!(counts_of_ranks(text).into_iter().collect::<Vec<_>>(), ranks, "{text}");
        }
    }
}
