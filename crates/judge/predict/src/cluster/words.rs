//! Text that people wrote, as words: `A100-SXM4-80GB (p4de.24xlarge)` is `a100 sxm4 80gb p4de 24xlarge`.

/// The words of a text, in lower case and in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Words(Vec<String>);

/// What stands before a word that denies it: `no NVLink`, `without P2P`.
const DENIED_BEFORE: [&str; 5] = ["no", "not", "without", "lacks", "non"];
/// What stands behind a word that denies it: `P2P not available`, `NVLS off`.
const DENIED_BEHIND: [&str; 8] =
    ["unavailable", "disabled", "off", "unsupported", "absent", "missing", "none", "inactive"];
/// What `not` denies when it stands behind a word.
const THERE: [&str; 9] =
    ["available", "supported", "enabled", "possible", "used", "working", "present", "active", "allowed"];

impl Words {
    /// Splits a text at everything that is neither letter nor digit, and words that are written as one (`RTX4090`,
    /// `8xH100`, `H100x8`, `GB200NVL72`, `V100SXM2`).
    pub(super) fn of(text: &str) -> Self {
        let lower = text.to_lowercase();
        let words = lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        Words(words.flat_map(split_glued).map(spelt_out).collect())
    }

    pub(super) fn has(&self, word: &str) -> bool {
        self.0.iter().any(|w| w == word)
    }

    /// Whether a word begins so.
    pub(super) fn has_prefix(&self, prefix: &str) -> bool {
        self.0.iter().any(|w| w.starts_with(prefix))
    }

    /// Whether all words of another text are there, in any order.
    pub(super) fn has_those_of(&self, other: &Words) -> bool {
        other.0.iter().all(|word| self.has(word))
    }

    /// Whether all words of the phrase are there, in any order.
    pub(super) fn has_all(&self, phrase: &str) -> bool {
        phrase.split(' ').all(|word| self.has(word))
    }

    /// Whether the words of the phrase stand behind each other.
    pub(super) fn has_phrase(&self, phrase: &str) -> bool {
        let phrase: Vec<&str> = phrase.split(' ').collect();
        self.0.windows(phrase.len()).any(|window| window.iter().zip(&phrase).all(|(word, part)| word == part))
    }

    /// Whether a word that begins so is affirmed (`Some(true)`), denied (`Some(false)`) or not there.
    pub(super) fn affirms(&self, prefix: &str) -> Option<bool> {
        let at = self.0.iter().position(|w| w.starts_with(prefix))?;
        Some(!self.denied_before(at) && !self.denied_behind(at + 1))
    }

    /// `no P2P`, and `no NVLink or P2P`.
    fn denied_before(&self, at: usize) -> bool {
        let word = |back: usize| at.checked_sub(back).and_then(|at| self.0.get(at)).map_or("", String::as_str);
        let joined = ["or", "nor"].contains(&word(1)) && DENIED_BEFORE.contains(&word(3));
        joined || DENIED_BEFORE.contains(&word(1))
    }

    /// `P2P not available`, `P2P access is disabled`, `P2P: no`; but not `P2P, not PCIe` and `P2P, no NVLink`.
    fn denied_behind(&self, from: usize) -> bool {
        const FILLERS: [&str; 6] = ["is", "are", "was", "access", "support", "currently"];
        let mut words = self.0.iter().skip(from).map(String::as_str).skip_while(|word| FILLERS.contains(word));
        match (words.next(), words.next()) {
            (Some("not"), next) => next.is_none_or(|next| THERE.contains(&next)),
            (Some("no" | "0"), next) => next.is_none(),
            (Some(word), _) => DENIED_BEHIND.contains(&word),
            (None, _) => false,
        }
    }

    /// The number that follows directly on a word: `pcie4` and `pcie 4` give 4 for `pcie`, `gen4` and `gen 4` for `gen`.
    pub(super) fn number_after(&self, word: &str) -> Option<u32> {
        self.0.iter().enumerate().find_map(|(at, found)| match found.strip_prefix(word)? {
            "" => self.number_at(at + 1),
            digits => digits.parse().ok(),
        })
    }

    /// A number, `gen4` or `v4` at a position.
    fn number_at(&self, at: usize) -> Option<u32> {
        let word = self.0.get(at)?;
        let digits = word.strip_prefix("gen").or_else(|| word.strip_prefix('v')).unwrap_or(word);
        if digits.is_empty() {
            return self.0.get(at + 1)?.parse().ok();
        }
        digits.parse().ok()
    }

    /// The numbers of words `<prefix>N`: 18 for `NV18`.
    pub(super) fn numbers_of<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = u32> + 'a {
        self.0.iter().filter_map(move |word| word.strip_prefix(prefix)?.parse().ok())
    }
}

/// `48xl` is short for `48xlarge`.
fn spelt_out(word: &str) -> String {
    match word.strip_suffix("xl") {
        Some(size) if !size.is_empty() && size.bytes().all(|b| b.is_ascii_digit()) => format!("{word}arge"),
        _ => word.to_string(),
    }
}

/// Cuts a word where two were written as one.
fn split_glued(word: &str) -> Vec<&str> {
    if let Some(model) = word.strip_prefix("rtx").or_else(|| word.strip_prefix("gtx"))
        && !model.is_empty()
    {
        return vec![&word[..3], model];
    }
    let inner = ["sxm", "pcie", "nvl"].iter().filter_map(|part| word.find(part)).filter(|at| *at > 0);
    if let Some(at) = inner.min().filter(|at| word[..*at].ends_with(|c: char| c.is_ascii_digit())) {
        return split_glued(&word[..at]).into_iter().chain(split_glued(&word[at..])).collect();
    }
    if let Some((count, rest)) = word.split_once('x') {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if is_number(count) && rest.starts_with(|c: char| c.is_ascii_alphabetic()) && !["l", "large"].contains(&rest) {
            return vec![rest];
        }
        if !count.is_empty() && !is_number(count) && is_number(rest) {
            return vec![count, &word[count.len()..]];
        }
    }
    vec![word]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fall_into_words() {
        for (text, words) in crate::cases::<(String, String)>("words") {
            let words: Vec<String> = words.split(' ').map(str::to_string).collect();
            assert_eq!(Words::of(&text), Words(words), "{text}");
        }
    }

    #[test]
    fn denials_are_seen() {
        for (text, word, affirmed) in crate::cases::<(String, String, String)>("denials") {
            let found = Words::of(&text).affirms(&word);
            assert_eq!(found.map_or("absent", |yes| if yes { "affirmed" } else { "denied" }), affirmed, "{text}");
        }
    }

    #[test]
    fn numbers_follow_their_word() {
        for (text, word, number) in crate::cases::<(String, String, u32)>("numbers") {
            assert_eq!(Words::of(&text).number_after(&word).unwrap_or(0), number, "{text}");
        }
    }
}
