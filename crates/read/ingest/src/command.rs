//! Variables in printed launch commands: `-x NCCL_ALGO=ring`, `export NCCL_IB_HCA=mlx5`, `NCCL_DEBUG=INFO ./all_reduce_perf`.

/// The variables of NCCL that a line of shell sets, in order. Quotes around values are removed.
pub(crate) fn variables(line: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find("NCCL_") {
        let starts_word = rest[..at]
            .chars()
            .next_back()
            .is_none_or(|c| !c.is_ascii_alphanumeric() && c != '_' && c != '$' && c != '{');
        // PyTorch's and NCCL's own advice: `unhandled cuda error (run with NCCL_DEBUG=INFO for details)`.
        let is_advice = rest[..at].ends_with("(run with ");
        let name_end = at + rest[at..].bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        let (name, after) = (&rest[at..name_end], &rest[name_end..]);
        rest = after;
        if let Some(value) = after.strip_prefix('=').filter(|_| starts_word && !is_advice && name.len() > 5) {
            let (value, behind) = shell_word(value);
            if !value.is_empty() && !value.contains(['$', '<', '{']) {
                found.push((name.to_string(), value));
            }
            rest = behind;
        }
    }
    found
}

/// Takes one shell word: up to white space, `;` or `"`, or the inside of quotes; backslashes before punctuation are removed,
/// and what ends a sentence or a clause when the command stands in prose (`with NCCL_IB_DISABLE=1: 3 GB/s`).
fn shell_word(text: &str) -> (String, &str) {
    if let Some(quote) = text.chars().next().filter(|c| matches!(c, '"' | '\'')) {
        let inner = &text[1..];
        let end = inner.find(quote).unwrap_or(inner.len());
        return (inner[..end].to_string(), inner.get(end + 1..).unwrap_or(""));
    }
    let end =
        text.find(|c: char| c.is_whitespace() || matches!(c, ';' | '"' | '\'' | '`' | '|' | ')')).unwrap_or(text.len());
    let word = text[..end].trim_end_matches([':', ',', '.']);
    (word.replace('\\', ""), &text[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_launch_commands_are_found() {
        for (line, expected) in crate::text::cases::<(String, Vec<(String, String)>)>("variables") {
            assert_eq!(variables(&line), expected, "{line}");
        }
    }
}
