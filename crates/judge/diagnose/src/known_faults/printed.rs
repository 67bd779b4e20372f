//! Lines of a run in which thousands of texts are looked for.

use crate::data::Template;
use std::collections::{BTreeSet, HashSet};
use std::ops::Bound;

#[derive(Debug, Clone, Default)]
pub(super) struct Printed {
    lines: Vec<String>,
    /// Runs of letters and digits in them: a text cuts no word at its beginning.
    words: BTreeSet<String>,
}

impl Printed {
    /// Whether a line has a text that nothing behind it switches off: programs print all of their options as they start.
    pub(super) fn has(&self, text: &Template) -> bool {
        let is_on = |line: &String| match text.pieces() {
            [name] => line
                .match_indices(name.as_str())
                .any(|(at, _)| !is_denied(&line[..at]) && !is_off(&line[at + name.len()..])),
            _ => true,
        };
        self.may_have(text) && self.lines.iter().any(|line| text.is_in(line) && is_on(line))
    }

    pub(super) fn may_have(&self, text: &Template) -> bool {
        let first = text.pieces().first().and_then(|piece| words(piece).next()).filter(|_| !text.begins_open());
        let begins = |first: &str| {
            let mut from = self.words.range::<str, _>((Bound::Included(first), Bound::Unbounded));
            from.next().is_some_and(|word| word.starts_with(first))
        };
        first.is_none_or(begins)
    }
}

impl Extend<String> for Printed {
    fn extend<T: IntoIterator<Item = String>>(&mut self, lines: T) {
        let before = self.lines.len();
        self.lines.extend(lines);
        // Most words come again, and a look into a set by hash is quicker.
        let new: HashSet<&str> = self.lines[before..].iter().flat_map(|line| words(line)).collect();
        self.words.extend(new.into_iter().map(str::to_owned));
    }
}

/// Whether what stands in front of an option's name switches it off: `--enforce-disable-x`, `--no-x`.
fn is_denied(before: &str) -> bool {
    ["disable-", "disable_", "-no-", "_no_", "without-"].iter().any(|word| before.ends_with(word))
}

/// Whether an option has the value that switches it off, by what stands behind its name: `=False,`, `": null`, `=0 `.
fn is_off(behind: &str) -> bool {
    const VALUES: [&str; 9] = ["false", "none", "null", "off", "no", "disabled", "0", "''", "[]"];
    /// What fills a line up, and the longest value.
    const FARTHEST: usize = 160;
    let behind = &behind[..behind.floor_char_boundary(FARTHEST)];
    let value = behind.trim_start_matches(['"', '\'']).trim_start();
    // Megatron-LM fills up with dots: `use_tutel ............ False`.
    let Some(value) = value.strip_prefix(['=', ':']).or_else(|| value.strip_prefix("..")) else { return false };
    let value = value.trim_start_matches('.');
    let value = value.trim_start().trim_start_matches('"').to_ascii_lowercase();
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '.');
    VALUES.iter().any(|off| value.strip_prefix(off).is_some_and(ends))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_is_switched_off_is_not_there() {
        let text = Template::try_from(String::from("enable_eplb")).expect("a text");
        for (line, on) in [
            ("server_args=ServerArgs(tp_size=8, enable_eplb=True, device='cuda')", true),
            ("server_args=ServerArgs(tp_size=8, enable_eplb=False, device='cuda')", false),
            ("\"enable_eplb\": null,", false),
            ("enable_eplb=0.5", true),
            ("enable_eplb: \"False\"", false),
            ("enable_eplb = off", false),
            ("enable_eplb: nothing", true),
            ("  enable_eplb ........................... False", false),
            ("--enable_eplb", true),
            ("--no-enable_eplb", false),
            ("--enforce-disable-enable_eplb", false),
            ("enable_eplb=False enable_eplb=True", true),
        ] {
            let mut printed = Printed::default();
            printed.extend([line.to_owned()]);
            assert_eq!(printed.has(&text), on, "{line}");
        }
    }
}
