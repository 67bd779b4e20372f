//! A log in a literal of a language: what a program printed of another's output as Python's or JSON's text, `b'step 1\nstep 2\n'`,
//! `CompletedProcess(args=…, stdout="step 1\nstep 2\n")`.
//!
//! Programs print other texts so too, such as what a model is to learn. So a literal is a log only where it is the whole line or bytes, where its name
//! says so, or where lines stand in it that only ranks print.

use crate::cursor::finder;

/// A shorter line holds no log.
const SHORTEST: usize = 160;
/// So many lines make one.
const FEWEST_LINES: usize = 3;
/// What a literal is called that holds what a program printed.
const NAMES: [&str; 5] = ["stdout", "stderr", "output", "log", "logs"];
/// What stands in lines of ranks.
const OF_RANKS: [&str; 3] = ["] NCCL INFO ", "# nThread ", "# Using devices"];

/// Whether a line may hold one: so do all lines of its wording, or none.
pub(crate) fn may_be_quoted(line: &[u8]) -> bool {
    finder!(b"\\n").find(line).is_some()
}

/// The lines of a line: what stands around the literals first, then theirs. `None` where no literal is a log.
pub(crate) fn unquoted(line: &[u8]) -> Option<Vec<String>> {
    if line.len() < SHORTEST || !may_be_quoted(line) {
        return None;
    }
    let text = String::from_utf8_lossy(line);
    let (mut around, mut lines) = (String::new(), Vec::new());
    let mut rest = text.trim();
    let whole = rest.len();
    while let Some(at) = rest.find(['"', '\'']) {
        let (before, literal) = rest.split_at(at);
        around.push_str(before);
        let length = if begins_literal(&around) { length_of(literal) } else { None };
        let Some(length) = length else {
            around.push_str(&literal[..1]);
            rest = &literal[1..];
            continue;
        };
        let (literal, behind) = literal.split_at(length);
        let inside = decoded(&literal[1..length - 1]);
        let is_all = length + 3 > whole;
        if inside.lines().count() >= FEWEST_LINES && (is_all || is_log(&around, &inside)) {
            lines.extend(inside.split(['\n', '\r']).filter(|line| !line.is_empty()).map(str::to_string));
            around.push('…');
        } else {
            around.push_str(literal);
        }
        rest = behind;
    }
    around.push_str(rest);
    (!lines.is_empty()).then(|| std::iter::once(around).chain(lines).collect())
}

/// Whether a literal begins behind a text: no letter stands before it but the mark of bytes.
fn begins_literal(before: &str) -> bool {
    let before = before.strip_suffix('b').unwrap_or(before);
    before.is_empty() || before.ends_with([' ', '=', '(', '[', '{', ',', ':'])
}

/// Whether a literal behind a text is the output of a program.
fn is_log(before: &str, inside: &str) -> bool {
    let name = before.trim_end_matches([' ', '=', ':', '"', '\'']);
    let is_named = name.len() < before.len() && NAMES.iter().any(|known| name.to_ascii_lowercase().ends_with(known));
    let is_bytes =
        before.strip_suffix('b').is_some_and(|before| !before.ends_with(|c: char| c.is_ascii_alphanumeric()));
    is_named || is_bytes || OF_RANKS.iter().any(|words| inside.contains(words))
}

/// How long a literal is, its quotes included.
fn length_of(literal: &str) -> Option<usize> {
    let quote = literal.bytes().next()?;
    let mut escaped = false;
    let end = literal.bytes().skip(1).position(|byte| {
        let ends = byte == quote && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    Some(end? + 2)
}

/// A literal's text without its escapes.
fn decoded(literal: &str) -> String {
    let mut text = String::with_capacity(literal.len());
    let mut chars = literal.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            text.push(c);
            continue;
        }
        let hex = |chars: &mut std::str::Chars, digits: usize| {
            let code: String = chars.by_ref().take(digits).collect();
            u32::from_str_radix(&code, 16).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER)
        };
        match chars.next() {
            Some('n') => text.push('\n'),
            Some('r') => text.push('\r'),
            Some('t') => text.push('\t'),
            Some('x') => text.push(hex(&mut chars, 2)),
            Some('u') => text.push(hex(&mut chars, 4)),
            Some(other) => text.push(other),
            None => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn logs_in_literals_are_read() {
        let log = format!(
            "{}Traceback (most recent call last):\\n  File \\'a.py\\'\\nValueError: x\\n",
            "step\\n".repeat(40)
        );
        let of_rank = log.replacen("step", "n1:7:7 [0] NCCL INFO step", 1);
        let last = Some("ValueError: x".to_string());
        for (line, expected) in [
            (format!("b'{log}'"), last.clone()),
            (format!("'{log}'"), last.clone()),
            (format!("result: b'{log}'"), last.clone()),
            (format!("CompletedProcess(args=['a', 'b'], returncode=1, stdout=b'{log}', stderr=b'')"), last.clone()),
            (format!("{{'job': 'x', 'output': '{log}', 'rc': 1}}"), last.clone()),
            (format!("pod log: '{of_rank}'"), last),
            // A text of which nothing shows that a program printed it.
            (format!("{{'prompt': '{log}', 'rc': 1}}"), None),
            (format!("don't {log} 'x'"), None),
            ("b'a\\nb\\nc\\n'".to_string(), None),
        ] {
            assert_eq!(unquoted(line.as_bytes()).and_then(|lines| lines.last().cloned()), expected, "{line}");
        }
        let process = format!("CompletedProcess(args=['a'], returncode=1, stdout=b'{log}')");
        let first = unquoted(process.as_bytes()).and_then(|lines| lines.first().cloned());
        assert_eq!(first.as_deref(), Some("CompletedProcess(args=['a'], returncode=1, stdout=b…)"));
    }

    proptest! {
        #[test]
        fn any_text_is_taken_apart_without_panic(text in "[ab'\"\\\\nxué =]{0,60}") {
            let _ = unquoted(text.repeat(9).as_bytes());
        }
    }
}
