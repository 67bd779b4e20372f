//! Text that others wrote, made harmless.

use std::borrow::Cow;
use std::iter::Peekable;
use std::str::Chars;

/// The text without what could steer a terminal: escape sequences and carriage returns are dropped, other control characters and
/// those that reorder text are shown as a sign. Line feeds and tabs stay.
pub fn clean(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_harmless) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => skip_escape(&mut chars),
            '\u{9b}' => skip_control_sequence(&mut chars),
            '\r' => {}
            '\x7f' => out.push('␡'),
            c if is_harmless(c) => out.push(c),
            c => out.push(sign(c)),
        }
    }
    Cow::Owned(out)
}

/// [`clean`], on one line.
pub fn clean_line(text: &str) -> Cow<'_, str> {
    match clean(text) {
        text if text.contains('\n') => Cow::Owned(text.replace('\n', " ")),
        text => text,
    }
}

/// What stands for a control character (Unicode's control pictures), or for one that has none.
fn sign(c: char) -> char {
    char::from_u32(0x2400 + u32::from(c)).filter(|_| c < ' ').unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Neither a control character nor one that reorders the text after it (Unicode's bidirectional controls).
fn is_harmless(c: char) -> bool {
    matches!(c, '\n' | '\t')
        || !c.is_control()
            && !matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Skips the rest of an escape sequence after ESC (ECMA-48, section 5.3 to 5.6).
fn skip_escape(chars: &mut Peekable<Chars<'_>>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            skip_control_sequence(chars);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            chars.next();
            skip_control_string(chars);
        }
        _ => {
            while chars.next_if(|c| matches!(c, ' '..='/')).is_some() {}
            chars.next_if(|c| matches!(c, '0'..='~'));
        }
    }
}

/// Skips parameters, intermediates and the final character of a control sequence (`31m`, `2J`).
fn skip_control_sequence(chars: &mut Peekable<Chars<'_>>) {
    while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
    chars.next_if(|c| matches!(c, '@'..='~'));
}

/// Skips a control string (a window title, a link) up to its end; one without an end hides nothing.
fn skip_control_string(chars: &mut Peekable<Chars<'_>>) {
    let mut ahead = chars.clone();
    while let Some(c) = ahead.next() {
        let ends = match c {
            '\x07' | '\u{9c}' => true,
            '\x1b' => ahead.next_if_eq(&'\\').is_some(),
            _ => false,
        };
        if ends {
            *chars = ahead;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_and_control_characters_lose_their_power() {
        let cases = [
            ("plain", "plain"),
            ("\x1b[31mred\x1b[0m", "red"),
            ("\x1b[38;5;196mred", "red"),
            ("\u{9b}2Jgone", "gone"),
            ("\x1b]0;title\x07text", "text"),
            ("\x1b]8;;http://x\x1b\\link", "link"),
            ("\x1b]0;no end, so nothing is hidden", "0;no end, so nothing is hidden"),
            ("\x1b(Bcharset", "charset"),
            ("\x1b", ""),
            ("bell\x07", "bell␇"),
            ("del\x7f", "del␡"),
            ("a\tb\nc", "a\tb\nc"),
            ("progress\rdone", "progressdone"),
            ("rtl\u{202e}gnp", "rtl�gnp"),
            ("alm\u{61c}gnp", "alm�gnp"),
            ("next\u{85}line", "next�line"),
        ];
        for (text, cleaned) in cases {
            assert_eq!(clean(text), cleaned, "{text:?}");
        }
        assert_eq!(clean_line("a forged\nbusbw: line"), "a forged busbw: line");
    }
}
