//! NCCL's own prefix: `host:pid:tid [dev] NCCL INFO `, wherever in a line it stands.
//!
//! Ranks that share an output tear each other's lines, so a prefix may follow other text without a space, be cut
//! itself, or stand several times in a line. [`pieces`] takes a line apart at its prefixes.

use crate::cursor::{Cursor, finder};
use crate::launcher::peel;
use crate::nccl_log::{Level, without_repetition};
use memchr::{memchr2, memrchr};

/// A part of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// Text before the first prefix, or a line without any.
    Plain(&'a [u8]),
    Nccl(Message<'a>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub level: Level,
    /// `None` when the prefix was torn.
    pub speaker: Option<SpeakerRef<'a>>,
    /// `transport/net_ib.cc:839`, of WARN lines.
    pub site: Option<&'a [u8]>,
    pub text: &'a [u8],
}

/// `host:pid:tid [dev]`, borrowed from the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SpeakerRef<'a> {
    pub host: &'a [u8],
    pub pid: u64,
    pub tid: u64,
    pub device: Option<u32>,
    /// The host's name stood at the start of a line or after a space or a launcher's label: nothing ran into it.
    pub clean: bool,
}

/// A name, a label, a row or the rest of a prefix is not longer. What stands farther in front of a marker is not looked at: a line
/// may be of any length and hold any number of markers.
const FAR: usize = 512;
/// No host's name is longer (RFC 1035).
const LONGEST_NAME: usize = 255;

/// What every message has in front of its level.
pub(crate) const MARKER: &[u8] = b"NCCL ";

/// What stands behind the prefix of most.
pub(crate) const INFO: &[u8] = b"NCCL INFO ";

/// What stands in messages of NCCL before 2.3.
const EARLY_INFO: &[u8] = b"] INFO ";
const EARLY_WARN: &[u8] = b" WARN ";
/// What is left of a marker that is cut.
const CUT: &[u8] = b"L INFO ";

/// Where a message begins behind `NCCL INFO `, `NCCL WARN ` …; `None` when the word after NCCL is no level.
fn level_at(rest: &[u8]) -> Option<(Level, usize)> {
    const LEVELS: [(&[u8], Level); 7] = [
        (b"INFO ", Level::Info),
        (b"WARN ", Level::Warn),
        (b"TRACE ", Level::Other),
        (b"CALL ", Level::Other),
        (b"ABORT ", Level::Other),
        (b"VERSION ", Level::Other),
        (b"ERROR ", Level::Warn),
    ];
    LEVELS.iter().find(|(word, _)| rest.starts_with(word)).map(|(word, level)| (*level, word.len()))
}

/// The quick way for most lines of any log: who speaks, and the message, where a whole prefix of INFO stands behind a launcher's label.
pub(crate) fn behind_label(line: &[u8]) -> Option<(SpeakerRef<'_>, &[u8])> {
    let info = finder!(b"] NCCL INFO ").find(&line[..line.len().min(FAR)])?;
    let space = memrchr(b' ', &line[..info])?;
    let word = line[..space].iter().rposition(|b| !is_host_byte(*b) && *b != b':')? + 1;
    let colons = line[word..].iter().take_while(|b| **b == b':').count();
    let (label, rest) = line.split_at(word + colons);
    whole(rest).filter(|_| is_label(label))
}

/// Whether text in front of a message is nothing but a launcher's label, or a name and a colon.
fn is_label(before: &[u8]) -> bool {
    let body = behind_labels(before).trim_ascii();
    body.is_empty() || body.strip_suffix(b":").is_some_and(|name| name.iter().all(|b| is_host_byte(*b)))
}

/// The same where it stands at the start of the line.
pub(crate) fn whole(line: &[u8]) -> Option<(SpeakerRef<'_>, &[u8])> {
    let mut at = Cursor::new(line);
    let host = at.take_while(is_host_byte);
    at.expect(b":")?;
    let pid = at.number()?;
    at.expect(b":")?;
    let tid = at.number()?;
    at.expect(b" [")?;
    let device = Some(at.small()?);
    at.expect(b"] NCCL INFO ")?;
    let is_name = host.first().is_some_and(u8::is_ascii_alphanumeric) && host.len() <= LONGEST_NAME;
    is_name.then_some((SpeakerRef { host, pid, tid, device, clean: true }, at.rest()))
}

/// The place in the source and the text of a warning, from what stands behind `host:pid:tid [dev] `: [`head`] goes from the marker to the
/// device over that place alone.
pub(crate) fn warned(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let (site, rest) = rest.split_at(memchr2(b' ', b'\t', rest)?);
    let text = rest.strip_prefix(b" NCCL WARN ")?;
    let (file, number) = site.split_at(memrchr(b':', site)?);
    // Digits and a colon in front of the number may be a process and its thread.
    let of_file = file.last().is_some_and(|last| !last.is_ascii_digit()) && file[0] != b'(';
    (of_file && number.len() > 1 && number[1..].iter().all(u8::is_ascii_digit)).then_some((site, text))
}

/// Whether NCCL's name stands in a line with a level behind it.
pub(crate) fn has_level(line: &[u8]) -> bool {
    let mut rest = line;
    while let Some(at) = finder!(MARKER).find(rest) {
        rest = &rest[at + MARKER.len()..];
        if level_at(rest).is_some() {
            return true;
        }
    }
    false
}

/// Whether a prefix may stand in a line, for the words in it: it may in all lines of a wording, or in none.
pub(crate) fn has_marker(line: &[u8]) -> bool {
    let others = [finder!(EARLY_INFO), finder!(EARLY_WARN), finder!(CUT)];
    has_level(line) || others.iter().any(|word| word.find(line).is_some())
}

/// Takes a line apart. Without any prefix the line is one [`Piece::Plain`].
pub(crate) fn pieces<'a>(line: &'a [u8], found: &mut impl FnMut(Piece<'a>)) {
    let mut plain_from = 0;
    let mut open: Option<(Head<'a>, usize)> = None;
    for marker in finder!(MARKER).find_iter(line) {
        let Some((level, level_len)) = level_at(&line[marker + 5..]) else { continue };
        let from = open.as_ref().map_or(plain_from, |(_, start)| *start);
        let head = head(line, from, marker, level);
        // A message that only mentions "NCCL INFO" has no speaker in front and is left whole, as is one that quotes a warning.
        let quoted = line[..marker].last().is_some_and(|before| b"\"'`".contains(before));
        if head.speaker.is_none()
            && (quoted || open.is_some() || (level != Level::Warn && !stands_alone(&line[from..marker])))
        {
            continue;
        }
        match open.take() {
            Some((previous, start)) => found(previous.with_text(&line[start..head.start])),
            None if head.start > plain_from => found(Piece::Plain(&line[plain_from..head.start])),
            None => {}
        }
        plain_from = head.start;
        open = Some((head, marker + 5 + level_len));
    }
    match open {
        Some((head, start)) => found(head.with_text(&line[start..])),
        None => match early(line).or_else(|| cut_marker(line)) {
            Some((head, text)) => {
                if head.start > 0 {
                    found(Piece::Plain(&line[..head.start]));
                }
                found(head.with_text(&line[text..]));
            }
            None => found(Piece::Plain(line)),
        },
    }
}

/// NCCL before 2.3 does not name itself (`debug.h`): `host:pid:tid [0] INFO …`, `host:pid:tid [0] init.cu:674 WARN …`. The head, and
/// where the message begins. A whole prefix shows that it is NCCL's, and INFO has no place in the source.
fn early(line: &[u8]) -> Option<(Head<'_>, usize)> {
    let near = &line[..line.len().min(FAR)];
    let info = finder!(EARLY_INFO).find(near).map(|at| (at + b"] ".len(), Level::Info));
    let warn = || finder!(EARLY_WARN).find(near).map(|at| (at + b" ".len(), Level::Warn));
    let (marker, level) = info.or_else(warn)?;
    let head = head(line, 0, marker, level);
    let whole = head.speaker.is_some_and(|speaker| speaker.device.is_some());
    let of_level = head.site.is_some() == (level == Level::Warn);
    (whole && of_level).then_some((head, marker + b"INFO ".len()))
}

/// A line that begins inside the marker, because another rank's line end fell into it: ` 0: CL INFO Channel 09 : 0 1 …`.
/// The head, which begins with what is left of the marker, and where the text behind it begins.
fn cut_marker(line: &[u8]) -> Option<(Head<'_>, usize)> {
    let at = finder!(CUT).find(line).filter(|at| *at <= 40)?;
    let left = line[..at].iter().rev().zip(b"CC").take_while(|(a, b)| a == b).count();
    let before = line[..at - left].last();
    let head = Head { start: at - left, level: Level::Info, speaker: None, site: None };
    matches!(before, None | Some(b' ' | b':')).then_some((head, at + CUT.len()))
}

/// What stands in front of a marker.
struct Head<'a> {
    start: usize,
    level: Level,
    speaker: Option<SpeakerRef<'a>>,
    site: Option<&'a [u8]>,
}

impl<'a> Head<'a> {
    fn with_text(self, text: &'a [u8]) -> Piece<'a> {
        Piece::Nccl(Message {
            level: self.level,
            speaker: self.speaker,
            site: self.site,
            text: without_repetition(text),
        })
    }
}

/// Reads backwards from a marker: `host:pid:tid [dev] ` and, for WARN, `file.cc:N ` with an optional `(function) `.
fn head(line: &[u8], from: usize, marker: usize, level: Level) -> Head<'_> {
    let mut end = trim_spaces(line, from, marker);
    let mut site = None;
    for _ in 0..3 {
        let (word, start) = last_word(line, from, end);
        if let Some(device) = device(word) {
            let before = trim_spaces(line, from, start);
            if let Some((speaker, host_start)) = speaker(line, from, before, Some(device)) {
                return Head { start: host_start, level, speaker: Some(speaker), site };
            }
            let start = if stands_alone(&line[from..marker]) { from } else { start };
            return Head { start, level, speaker: None, site };
        }
        if let Some((speaker, host_start)) = speaker(line, from, end, None) {
            return Head { start: host_start, level, speaker: Some(speaker), site };
        }
        if !word.is_empty() && word.iter().all(u8::is_ascii_digit) {
            // `(function), 120`: the place in builds with a macro of their own.
            let before = trim_spaces(line, from, start);
            let (function, start) = last_word(line, from, before);
            if !function.ends_with(b",") {
                break;
            }
            end = trim_spaces(line, from, start);
            continue;
        }
        if !looks_like_site(word) {
            break;
        }
        if word.first() != Some(&b'(') {
            site = Some(word);
        }
        end = trim_spaces(line, from, start);
    }
    // A torn prefix: whatever part of it is left belongs to the marker, not to the text before.
    let start = if site.is_some() || looks_cut(&line[from..marker]) { from } else { marker };
    Head { start, level, speaker: None, site }
}

/// The rest of a prefix whose beginning was lost: `859 [2] `, `3] `, `103:3134364 [0] `.
fn looks_cut(before: &[u8]) -> bool {
    if before.len() > FAR {
        return false;
    }
    let before = before.trim_ascii();
    before.len() <= 40
        && (before.is_empty() || before.ends_with(b"]") || before.ends_with(b":"))
        && before.iter().all(|b| b.is_ascii_digit() || matches!(b, b':' | b'[' | b']' | b' '))
}

/// Whether what stands in front of a marker is the rest of a prefix, whole or cut.
fn stands_alone(before: &[u8]) -> bool {
    looks_cut(before) || before.len() <= FAR && is_redacted(before)
}

/// A prefix from which somebody took process and thread before showing it, perhaps with NCCL's time stamp and a place in the
/// source around it: `node [0] `, `[2026-08-23 09:56:58] node [1] src/p2p.cc:256 `.
fn is_redacted(before: &[u8]) -> bool {
    let words = behind_labels(before).split(u8::is_ascii_whitespace);
    let words: Vec<&[u8]> = words.filter(|word| !word.is_empty() && !looks_like_site(word)).collect();
    let name = |word: &[u8]| word.iter().all(|b| is_host_byte(*b)) && word.iter().any(u8::is_ascii_alphabetic);
    match words.as_slice() {
        [host, of] => name(host) && device(of).is_some(),
        _ => false,
    }
}

/// What stands behind launchers' labels and time stamps.
fn behind_labels(before: &[u8]) -> &[u8] {
    std::str::from_utf8(before).map_or(before, |text| peel(text).text.as_bytes())
}

fn trim_spaces(line: &[u8], from: usize, mut end: usize) -> usize {
    while end > from && line[end - 1] == b' ' {
        end -= 1;
    }
    end
}

fn last_word(line: &[u8], from: usize, end: usize) -> (&[u8], usize) {
    let start = line[from..end].iter().rposition(|b| *b == b' ' || *b == b'\t').map_or(from, |at| from + at + 1);
    (&line[start..end], start)
}

/// `[3]`.
fn device(word: &[u8]) -> Option<u32> {
    let digits = word.strip_prefix(b"[")?.strip_suffix(b"]")?;
    (!digits.is_empty() && digits.len() <= 9 && digits.iter().all(u8::is_ascii_digit)).then(|| number(digits) as u32)
}

/// `include/socket.h:406`, `register_mr_buffers:647`, `(function)`: a place in the source, not a speaker.
fn looks_like_site(word: &[u8]) -> bool {
    if word.first() == Some(&b'(') {
        return word.last() == Some(&b')');
    }
    let Some(colon) = word.iter().rposition(|b| *b == b':') else { return false };
    colon > 0 && colon + 1 < word.len() && word[colon + 1..].iter().all(u8::is_ascii_digit)
}

/// Reads `host:pid:tid` that ends at `end`. The host is the longest run of host name characters before it.
fn speaker(line: &[u8], from: usize, end: usize, device: Option<u32>) -> Option<(SpeakerRef<'_>, usize)> {
    let (tid, tid_start) = digits_before(line, from, end)?;
    let colon = tid_start.checked_sub(1).filter(|at| *at > from && line[*at] == b':')?;
    let (pid, pid_start) = digits_before(line, from, colon)?;
    let colon = pid_start.checked_sub(1).filter(|at| *at > from && line[*at] == b':')?;
    let word_start = match hidden_name(&line[from..colon]) {
        Some(at) => from + at,
        None => line[from..colon].iter().rposition(|b| !is_host_byte(*b)).map_or(from, |at| from + at + 1),
    };
    let glued = glued_cell(&line[from..word_start], &line[word_start..colon]);
    let host_start = word_start + glued;
    let host_start = host_start + colour_code(&line[from..host_start], &line[host_start..colon]);
    let host = &line[host_start..colon];
    if host.is_empty() || host.len() > LONGEST_NAME || matches!(host[0], b'-' | b'.') {
        return None;
    }
    let before = line[from..host_start].last();
    let clean =
        matches!(before, None | Some(b' ' | b'\t' | b':' | b'|' | b'm' | b'"' | b')' | b'>' | b'\'')) && glued == 0;
    Some((SpeakerRef { host, pid, tid, device, clean }, host_start))
}

/// Start of a name that somebody put in place of the host's before showing the log: `[pod-name]`, `<cluster_name>`. Labels of
/// launchers (`[rank3]:`, `[1,0]<stdout>:`) are none.
fn hidden_name(before: &[u8]) -> Option<usize> {
    let open = match before.last()? {
        b']' => b'[',
        b'>' => b'<',
        _ => return None,
    };
    let near = before.len().saturating_sub(FAR);
    let start = near + before[near..].iter().rposition(|b| *b == open)?;
    let name = &before[start + 1..before.len() - 1];
    let is_name = name.len() > 2
        && name[0].is_ascii_alphabetic()
        && name.iter().all(|b| is_host_byte(*b) || *b == b' ')
        && ![&b"stdout"[..], b"stderr", b"rank", b"default"].iter().any(|label| name.starts_with(label));
    is_name.then_some(start)
}

/// Length of what is left of a colour code whose ESC was lost on the way: of `0mnode-1` after `[` that is 2.
fn colour_code(before: &[u8], word: &[u8]) -> usize {
    let digits = word.iter().take_while(|b| b.is_ascii_digit()).count();
    let follows = matches!(before.last(), Some(b'[' | b';'));
    if follows && digits > 0 && word.get(digits) == Some(&b'm') && word.len() > digits + 1 { digits + 1 } else { 0 }
}

/// Length of a table cell that ran into a host's name: of `-1gcn151` after `2097152 524288 float sum` that is 2. Nothing is
/// cut off where no table row comes before.
fn glued_cell(before: &[u8], word: &[u8]) -> usize {
    const WORDS: [&[u8]; 16] = [
        b"sum",
        b"prod",
        b"max",
        b"min",
        b"avg",
        b"mulsum",
        b"none",
        b"bfloat16",
        b"float",
        b"double",
        b"half",
        b"uint8",
        b"int8",
        b"int32",
        b"int64",
        b"N/A",
    ];
    if before.len() > FAR {
        return 0;
    }
    let row = behind_labels(before).trim_ascii();
    let is_row = row.first().is_some_and(u8::is_ascii_digit)
        && row.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b' ' | b'.' | b'-' | b'+' | b'/'));
    if !is_row {
        return 0;
    }
    if let Some(name) = WORDS.iter().find(|name| word.len() > name.len() && word.starts_with(name)) {
        return name.len();
    }
    // All digits are an address, not a cell.
    let number = word.iter().position(|b| !(b.is_ascii_digit() || matches!(b, b'.' | b'-'))).unwrap_or(0);
    number.min(cell_width(before, word))
}

/// How wide the last cell is, where nccl-tests' columns tell: the root of a collective without one is -1, and two blanks and a cell
/// of 5 characters (of 6 since 2.17) hold the number of wrong elements. A host's name may begin with digits (`38dcf168f605`).
fn cell_width(before: &[u8], word: &[u8]) -> usize {
    let blanks = before.iter().rev().take_while(|b| **b == b' ').count();
    match (word.first(), blanks) {
        (Some(b'-'), _) => 2,
        (_, 3..=7) => (7 - blanks).max(1),
        _ => usize::MAX,
    }
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')
}

fn digits_before(line: &[u8], from: usize, end: usize) -> Option<(u64, usize)> {
    let mut start = end;
    while start > from && end - start < 12 && line[start - 1].is_ascii_digit() {
        start -= 1;
    }
    (start < end).then(|| (number(&line[start..end]), start))
}

/// At most 19 digits, which the callers see to.
fn number(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn taken_apart(line: &str) -> Vec<String> {
        let mut found = Vec::new();
        pieces(line.as_bytes(), &mut |piece| found.push(piece));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        found
            .iter()
            .map(|piece| match piece {
                Piece::Plain(plain) => format!("plain {:?}", text(plain)),
                Piece::Nccl(m) => {
                    let who = m.speaker.map_or("?".into(), |s| {
                        let device = s.device.map_or(String::new(), |d| format!(" [{d}]"));
                        format!("{}{}:{}:{}{device}", if s.clean { "" } else { "~" }, text(s.host), s.pid, s.tid)
                    });
                    let site = m.site.map_or(String::new(), |s| format!(" at {}", text(s)));
                    format!("{:?} {who}{site} {:?}", m.level, text(m.text))
                }
            })
            .collect()
    }

    /// The pieces of each line of a file stand below it.
    #[test]
    fn lines_of_the_wild_are_taken_apart() {
        let mut cases =
            include_str!("../tests/data/prefixes.txt").lines().filter(|line| !line.starts_with('#')).peekable();
        while let Some(line) = cases.next() {
            let pieces = std::iter::from_fn(|| cases.next_if(|line| line.starts_with('\t')));
            assert_eq!(taken_apart(line), pieces.map(str::trim_start).collect::<Vec<_>>(), "{line}");
            let mut found = Vec::new();
            super::pieces(line.as_bytes(), &mut |piece| found.push(piece));
            let is_plain = found == [Piece::Plain(line.as_bytes())];
            assert!(has_marker(line.as_bytes()) || is_plain, "no word of the markers stands in {line}");
            if let Some((speaker, message)) = whole(line.as_bytes()).or_else(|| behind_label(line.as_bytes())) {
                let same = |piece: &Piece| matches!(piece, Piece::Nccl(m) if m.speaker == Some(speaker) && message.starts_with(m.text));
                assert!(found.iter().any(same), "the quick way reads {line} in another way");
            }
        }
    }

    proptest! {
        #[test]
        fn pieces_cover_any_line_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut found = Vec::new();
            pieces(&bytes, &mut |piece| found.push(piece));
            prop_assert!(!found.is_empty());
            prop_assert!(has_marker(&bytes) || found == [Piece::Plain(&bytes)]);
        }

        #[test]
        fn torn_prefixes_never_panic(cut in 0usize..70, tail in "[ -~]{0,40}") {
            let line = format!("{}{tail} NCCL INFO host:1:2 [0] NCCL WARN x", &"[1,3]<stdout>:worker-0.cluster:123456:123457 [3] NCCL INFO Channel 00"[..cut.min(66)]);
            let mut found = Vec::new();
            pieces(line.as_bytes(), &mut |piece| found.push(piece));
            prop_assert!(!found.is_empty());
        }
    }
}
