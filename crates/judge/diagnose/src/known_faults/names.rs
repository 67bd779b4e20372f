//! What names in a text show of a job: functions, flags, kernels, networks, variables and GPUs.

use super::situation::Situation;
use super::table::Condition;
use crate::words::KNOWN;
use busbw_predict::cluster::product;
use std::collections::BTreeSet;

/// Words of a name such as `RTX PRO 6000`.
const SERIES: usize = 3;

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
        let words: Vec<&str> =
            text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
        let models = words.iter().filter(|word| is_model(word)).filter_map(|word| product(word));
        let series = words.windows(SERIES).filter(|name| name[0] == "RTX").filter_map(|name| product(&name.join(" ")));
        // A thread that names several GPUs compares them.
        let products: BTreeSet<&str> = models.chain(series).map(|(name, _)| name).collect();
        if products.len() == 1 && !self.knows(Condition::Gpu) {
            products.into_iter().for_each(|name| self.tell_gpu(name));
        }
    }
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
