//! The parts of a remedy: sentences, and commands that stand on their own, ready to paste.

#[derive(Debug, PartialEq)]
pub(crate) enum Part {
    /// Text to read; a single word in it may stand in backquotes.
    Sentence(String),
    /// A command to paste, without its backquotes.
    Command(String),
}

/// Splits a remedy at its commands. Punctuation that followed a command is dropped: its line ends there anyway.
pub(crate) fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut sentence = String::new();
    let mut rest = text;
    while let Some((before, code, after)) = split_code(rest) {
        sentence.push_str(before);
        rest = after;
        if code.trim().contains(' ') {
            push_sentence(&mut parts, &mut sentence);
            parts.push(Part::Command(code.trim().to_string()));
            rest = rest.trim_start_matches(['.', ',', ';', ':']);
        } else {
            sentence.push_str(&format!("`{code}`"));
        }
    }
    sentence.push_str(rest);
    push_sentence(&mut parts, &mut sentence);
    parts
}

fn push_sentence(parts: &mut Vec<Part>, sentence: &mut String) {
    let text = std::mem::take(sentence).trim().to_string();
    if !text.is_empty() {
        parts.push(Part::Sentence(text));
    }
}

/// What stands before, in and after the first pair of backquotes.
pub(crate) fn split_code(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('`')?;
    let (code, after) = rest.split_once('`')?;
    Some((before, code, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_stand_alone_and_words_stay_in_the_sentence() {
        let sentence = |text: &str| Part::Sentence(text.into());
        let command = |text: &str| Part::Command(text.into());
        let cases = [
            (
                "Run `ulimit -l unlimited`, then retry.",
                vec![sentence("Run"), command("ulimit -l unlimited"), sentence("then retry.")],
            ),
            ("Set `NCCL_DEBUG=INFO` and `NCCL_ALGO`.", vec![sentence("Set `NCCL_DEBUG=INFO` and `NCCL_ALGO`.")]),
            ("`a b`", vec![command("a b")]),
            ("a stray ` stays", vec![sentence("a stray ` stays")]),
            ("", vec![]),
        ];
        for (text, expected) in cases {
            assert_eq!(parts(text), expected, "{text}");
        }
    }
}
