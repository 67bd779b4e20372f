//! What launchers and collectors put in front of a line: `[1,3]<stdout>:`, ` 3: `, `[rank3]:`, time stamps, pod names.

mod heads;

use crate::cursor::finder;
use crate::ends::exception;
use crate::perftest::UCX_RESULT;
use crate::speaker::{self, is_last_of_slurm};
use crate::text::is_age;
use busbw_model::Speaker;
pub(crate) use heads::spoken;
use heads::{behind_stream, is_told};

/// A label and what is behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LabelledLine<'a> {
    /// The label that distinguishes streams: `1,3`, `3`, `rank3`, a host; empty without one.
    pub stream: &'a str,
    /// The text behind all labels and time stamps.
    pub text: &'a str,
}

/// Peels every label and time stamp off the start of a line that holds no NCCL prefix.
pub(crate) fn peel(line: &str) -> LabelledLine<'_> {
    peel_by(line, |text| label(text).or_else(|| heads::of(text)))
}

/// The same without what is only known by the text behind it.
pub(crate) fn peel_labels(line: &str) -> LabelledLine<'_> {
    peel_by(line, label)
}

fn peel_by<'l>(line: &'l str, label: impl Fn(&'l str) -> Option<(&'l str, &'l str)>) -> LabelledLine<'l> {
    let mut peeled = LabelledLine { stream: "", text: line };
    for _ in 0..6 {
        let Some((label, rest)) = label(peeled.text) else { break };
        if peeled.stream.is_empty() || label.starts_with("rank") && !peeled.stream.starts_with("rank") {
            peeled.stream = label;
        }
        peeled.text = rest;
    }
    peeled
}

/// The label or time stamp that a text begins with, and the rest. By the first byte, because this runs on every line of a program.
fn label(text: &str) -> Option<(&str, &str)> {
    let timed = || time(text).map(|rest| ("", rest));
    match behind_blanks(text).bytes().next()? {
        // What is behind its time does not show whose it is.
        b'[' if is_last_of_slurm(text) => None,
        b'[' => std_stream(text)
            .or_else(|| bracketed(text))
            .or_else(|| of_stream(text))
            .or_else(|| prepended(text))
            .or_else(timed)
            .or_else(|| heads::of_rank(text)),
        b'(' => of_stream(text).or_else(|| parenthesised(text)),
        b'{' => of_loki(text),
        b'0'..=b'9' => {
            of_stream(text).or_else(timed).or_else(|| numbered(text)).or_else(|| aged(text)).or_else(|| named(text))
        }
        _ => std_stream(text)
            .or_else(|| of_stream(text))
            .or_else(|| logged(text).filter(|(level, _)| *level == "ERROR").map(|(_, rest)| ("", rest)))
            .or_else(|| named(text)),
    }
}

/// A text without the blanks in front, of which most have none.
fn behind_blanks(text: &str) -> &str {
    if text.bytes().next().is_some_and(|first| first.is_ascii_graphic()) { text } else { text.trim_start() }
}

/// No longer label is one.
const LONGEST: usize = 64;

/// `[1,3]<stdout>:`, `[1,mpirank:0,algo-1]<stderr>:`, `[0]<stdout>:`, `Sat Apr 20 22:59:55 2019[1,3]<stdout>:` (`--timestamp-output`).
fn std_stream(text: &str) -> Option<(&str, &str)> {
    let text = behind_blanks(text);
    let behind_date = text.split_at_checked(CTIME.len()).filter(|(date, rest)| rest.starts_with('[') && is_ctime(date));
    let text = behind_date.map_or(text, |(_, rest)| rest).strip_prefix('[')?;
    let end = finder!(TAG).find(&text.as_bytes()[..text.len().min(LONGEST + TAG.len())])?;
    let (label, rest) = (&text[..end], &text[end + TAG.len()..]);
    let rest = rest.strip_prefix("out>:").or_else(|| rest.strip_prefix("err>:"))?;
    (!label.contains(['[', ' '])).then_some((label, rest))
}

/// A date as C's `ctime` writes it: `a` stands for a letter, `d` for a digit or a space.
const CTIME: &[u8] = b"aaa aaa dd dd:dd:dd dddd";

fn is_ctime(text: &str) -> bool {
    has_shape(text, CTIME)
}

fn has_shape(text: &str, shape: &[u8]) -> bool {
    let fits = |(shape, byte): (&u8, u8)| match shape {
        b'a' => byte.is_ascii_alphabetic(),
        b'd' => byte.is_ascii_digit() || byte == b' ',
        other => *other == byte,
    };
    text.len() == shape.len() && shape.iter().zip(text.bytes()).all(fits)
}

/// `opt-1_3b.0 [stderr] `, as milabench writes.
fn of_stream(text: &str) -> Option<(&str, &str)> {
    let end = text.bytes().take(LONGEST + 1).position(|byte| byte == b' ')?;
    let rest = text[end + 1..].strip_prefix("[std")?;
    let rest = rest.strip_prefix("out] ").or_else(|| rest.strip_prefix("err] "))?;
    (end > 0).then_some((&text[..end], rest))
}

/// `[rank3]:`, `[default3]:`, `[pod/name/container] `, `[3] `.
fn bracketed(text: &str) -> Option<(&str, &str)> {
    let (label, rest) = text.trim_start().strip_prefix('[')?.split_once(']')?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "/-_.,".contains(c);
    if label.is_empty() || label.len() > 128 || !label.chars().all(fits) {
        return None;
    }
    let number = label.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let is_rank = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    let is_pod = label.starts_with("pod/");
    match rest.strip_prefix(':') {
        // PyTorch's hook for exceptions puts a space behind it, which is no indent of the traceback's.
        Some(rest) if is_rank => Some((label, rest.strip_prefix(' ').unwrap_or(rest))),
        _ if is_pod => Some((label, rest.strip_prefix(' ')?)),
        _ => None,
    }
}

/// `[0] ` of MPICH's and Intel MPI's `-prepend-rank`, where a table or a comment follows.
fn prepended(text: &str) -> Option<(&str, &str)> {
    let (label, rest) = text.strip_prefix('[')?.split_once(']')?;
    let is_rank = (1..=6).contains(&label.len()) && label.bytes().all(|b| b.is_ascii_digit());
    let first = rest.trim_start().bytes().next()?;
    let known = first == b'#' || first.is_ascii_digit() && rest.ends_with(|c: char| c.is_ascii_digit() || c == 'A');
    let rest = rest.strip_prefix(' ')?;
    (is_rank && known).then_some((label, rest))
}

/// `(RayWorkerWrapper pid=2) `, `(head, rank=0, pid=1) `, `(raylet, ip=10.0.0.1) `, with what Ray's user calls a worker in it: `(Trainer(rank=3) pid=2) `.
fn parenthesised(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start().strip_prefix('(')?;
    let is_end = |at: &usize| {
        let label = &text[..*at];
        label.matches('(').count() == label.matches(')').count()
    };
    let end = text.match_indices(") ").map(|(at, _)| at).take_while(|at| *at <= 128).find(is_end)?;
    let (label, rest) = (&text[..end], &text[end + 2..]);
    (label.contains("pid=") || label.starts_with("raylet")).then_some((label, rest))
}

/// `2024-05-01T12:00:00.123456789Z `, `[2025-11-04 12:49:15] `, `2024-05-01 12:00:00,123 `, with `stdout F ` of CRI logs; `[12:49:15] ` of
/// build servers.
fn time(text: &str) -> Option<&str> {
    let trimmed = behind_blanks(text);
    let inner = trimmed.strip_prefix('[').unwrap_or(trimmed);
    if !matches!(inner.as_bytes(), [_, _, b':', ..] | [_, _, _, _, b'-' | b'/', ..]) {
        return None;
    }
    let fits = |shape: &[u8]| {
        let fits = |(shape, byte): (&u8, u8)| match shape {
            b'd' => byte.is_ascii_digit(),
            b'?' => matches!(byte, b'T' | b' '),
            other => *other == byte,
        };
        inner.len() >= shape.len() && shape.iter().zip(inner.bytes()).all(fits)
    };
    const DATE: &[u8] = b"dddd-dd-dd?dd:dd:dd";
    const SLASHES: &[u8] = b"dddd/dd/dd dd:dd:dd";
    const CLOCK: &[u8] = b"dd:dd:dd]";
    let length = [DATE, SLASHES, CLOCK].into_iter().find(|shape| fits(shape))?.len();
    let rest = inner[length..].trim_start_matches(|c: char| c.is_ascii_digit() || ".,:+-Z]".contains(c));
    let rest = behind_ranks(rest).or_else(|| behind_step(rest)).unwrap_or(rest);
    let rest = rest.strip_prefix(' ').unwrap_or(rest);
    let cri = ["stdout F ", "stderr F ", "stdout P ", "stderr P "].iter().find_map(|mark| rest.strip_prefix(mark));
    Some(cri.or_else(|| behind_stream(rest)).unwrap_or(rest))
}

/// What TeamCity's log of a build has behind the time, how bad the line is and of which step: `[12:49:15]W:\t [Step 1/1] `.
fn behind_step(rest: &str) -> Option<&str> {
    let rest = rest.strip_prefix([' ', 'W', 'E', 'F', 'i'])?;
    let rest = rest.strip_prefix(':').unwrap_or(rest).strip_prefix('\t')?;
    let (_, behind) = rest.strip_prefix(" [Step ")?.split_once(']')?;
    Some(behind)
}

/// What SGLang writes in the brackets of the time: `[2025-11-04 12:49:15 DP0 TP3] ` (`configure_logger` of `srt/utils.py`).
fn behind_ranks(rest: &str) -> Option<&str> {
    let (ranks, rest) = rest.strip_prefix(' ')?.split_once(']')?;
    let is_rank = |word: &str| {
        let digits = word.strip_prefix(|c: char| c.is_ascii_uppercase()).and_then(|word| word.strip_prefix('P'));
        digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
    };
    ranks.split(' ').all(is_rank).then_some(rest)
}

/// The level that vLLM's logger puts in front of each line of a message, and the line: `ERROR 11-04 12:49:15 [core.py:718] text`; up to 0.8.2
/// `ERROR 11-04 12:49:15 core.py:718] text`.
fn logged(text: &str) -> Option<(&str, &str)> {
    const TIME: usize = 14;
    const LEVELS: [&str; 5] = ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"];
    let (level, rest) = text.split_once(' ').filter(|(level, _)| LEVELS.contains(level))?;
    let (time, rest) = rest.split_at_checked(TIME)?;
    let (place, rest) = rest.strip_prefix(' ')?.split_once("] ")?;
    let fits = time.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b' ' | b':'));
    (fits && place.contains(".py:") && !place.contains(' ')).then_some((level, rest))
}

/// The level in front of a text of vLLM's logger or memfabric's, and the text: `error 33677 pid[2441] [SMEM store.cpp:495] text`; from memfabric 0.1 on
/// `ERROR [33677-2441][SMEM store.cpp:583 Function] text`.
pub(crate) fn behind_logger(text: &str) -> Option<(&str, &str)> {
    const PARTS: [&str; 4] = ["[AccLink ", "[SMEM ", "[HYBM ", "[ADAPTER "];
    let of_memfabric = || {
        let (level, rest) = text.split_once(' ')?;
        let (process, rest) = PARTS.iter().find_map(|part| rest.split_once(part))?;
        let (place, said) = rest.split_once("] ")?;
        let is_process = process.bytes().all(|b| b.is_ascii_digit() || b"[-] pid".contains(&b));
        (is_process && place.contains(':')).then_some((level, said))
    };
    logged(text).or_else(of_memfabric)
}

/// `3m12s       Warning   Evicted   pod/train-0   …` of `kubectl get events`, which puts the age of an event in front.
fn aged(text: &str) -> Option<(&str, &str)> {
    let (age, rest) = text.split_once(' ')?;
    let rest = rest.trim_start();
    (is_age(age) && ["Warning ", "Normal "].iter().any(|kind| rest.starts_with(kind))).then_some(("", rest))
}

/// `{pod="trainer-0", stream="stdout"} ` of Loki's logcli, behind the time: the labels in which lines differ. The stream parts what one process prints.
fn of_loki(text: &str) -> Option<(&str, &str)> {
    let (labels, rest) = text.strip_prefix('{')?.split_once("} ")?;
    let all = || labels.split(", ").filter(|label| !label.is_empty());
    let of_process = all().find(|label| !label.starts_with("stream="));
    all()
        .all(|label| label_value(label).is_some())
        .then(|| (of_process.and_then(label_value).unwrap_or_default(), rest))
}

/// The value of `name="value"`.
fn label_value(label: &str) -> Option<&str> {
    let (name, value) = label.split_once("=\"")?;
    let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    value.strip_suffix('"').filter(|_| is_name)
}

/// srun's ` 0: `, padded to the widest label.
fn numbered(text: &str) -> Option<(&str, &str)> {
    let trimmed = text.trim_start_matches(' ');
    let digits = trimmed.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 || digits > 6 || text.len() - trimmed.len() > 6 {
        return None;
    }
    let rest = trimmed[digits..].strip_prefix(':')?;
    (rest.is_empty() || rest.starts_with(' ')).then(|| (&trimmed[..digits], rest.strip_prefix(' ').unwrap_or(rest)))
}

/// `worker-0: ` (pdsh, DeepSpeed), where a table, a comment, a version or another program's form follows, and `worker-0  | ` (docker compose);
/// TorchX's `trainer/0 `, where another label follows.
fn named(text: &str) -> Option<(&str, &str)> {
    if text.starts_with(UCX_RESULT) {
        return None;
    }
    let end = text.bytes().position(|b| !(b.is_ascii_alphanumeric() || b"-._/".contains(&b)))?;
    let (label, rest) = text.split_at(end);
    let behind = rest.bytes().find(|byte| *byte != b' ')?;
    if !matches!((rest.as_bytes(), behind), ([b':', b' ', ..], _) | ([b' ', ..], b'[' | b'(') | (_, b'|')) {
        return None;
    }
    if let Some((_, replica)) = label.rsplit_once('/') {
        let rest = rest.strip_prefix(' ').filter(|rest| rest.starts_with(['[', '(']));
        return rest.filter(|_| replica.bytes().all(|b| b.is_ascii_digit())).map(|rest| (label, rest));
    }
    let digits = label.bytes().any(|b| b.is_ascii_digit());
    if let Some(rest) = rest.strip_prefix("  | ").filter(|_| digits) {
        return Some((label, rest));
    }
    let is_column = behind == b'|';
    let rest = rest.strip_prefix(": ").or_else(|| rest.trim_start_matches(' ').strip_prefix("| "))?;
    let first = rest.trim_start().bytes().next()?;
    let is_address = label.matches('.').count() == 3 && label.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let is_name = label.len() > 1 && (is_address || label.bytes().any(|b| b.is_ascii_alphabetic()));
    let known = first == b'#'
        || rest.starts_with(' ') && first.is_ascii_digit()
        || rest.starts_with("NCCL version")
        || rest.starts_with("RCCL version")
        || rest.starts_with("time=\"")
        || rest.starts_with("[rank")
        || logged(rest).is_some()
        || is_of_traceback(label, rest)
        || is_address
        || is_column && is_told(rest)
        || digits && (is_of_host_tool(rest) || speaker::of(rest) != Speaker::Program);
    (is_name && known).then_some((label, rest))
}

/// What tools of hosts print behind pdsh's and clush's label: members that a tab indents (`ibstat`, `ibv_devinfo`, `nvidia-smi nvlink`), the
/// heads of these, and the frame of `nvidia-smi`.
fn is_of_host_tool(text: &str) -> bool {
    const HEADS: [&str; 9] = ["\t", "CA '", "Infiniband device '", "hca_id:", "link ", "GPU ", "NVML: ", "+--", "|"];
    HEADS.iter().any(|head| text.starts_with(head))
}

/// `Traceback (most recent call last):`, a frame with its line of code, or the exception.
fn is_of_traceback(label: &str, text: &str) -> bool {
    let is_host = label == "localhost" || label.bytes().any(|b| b.is_ascii_digit());
    text.starts_with("Traceback (most recent call last):")
        || text.starts_with("  File \"")
        || is_host && exception(text).is_some()
}

/// What every tag of mpirun has behind its rank.
const TAG: &[u8] = b"]<std";

/// Whether mpirun's tag may stand in a line: it does in all lines of a wording, or in none.
pub(crate) fn may_have_tags(text: &[u8]) -> bool {
    finder!(TAG).find(text).is_some()
}

/// Removes launchers' tags from inside a line: they repeat them inside table rows. Without a tag of mpirun's, such a line begins with `[`.
pub(crate) fn without_inner_tags(text: &str) -> Option<String> {
    if let Some((label, rest)) = prepended(text) {
        let tag = format!("[{label}]");
        return rest.contains(&tag).then(|| format!("{tag} {}", rest.replace(&tag, "")));
    }
    if !may_have_tags(text.as_bytes()) {
        return None;
    }
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(end) = rest.find("]<std") {
        let Some(start) = rest[..end].rfind('[') else { break };
        let Some(behind) = rest[end..].find(">:") else { break };
        let before = &rest[..start];
        clean.push_str(if is_ctime(before) { "" } else { before });
        rest = &rest[end + behind + 2..];
    }
    clean.push_str(rest);
    Some(clean)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn labels_of_every_launcher_are_peeled() {
        for (line, stream, text) in crate::text::cases::<(String, String, String)>("labels") {
            assert_eq!(peel(&line), LabelledLine { stream: &stream, text: &text }, "{line}");
        }
    }

    #[test]
    fn tags_inside_a_row_are_removed() {
        let row = " 8 2 float sum -1[1,0]<stdout>: 85 0 0 0[1,0]<stdout>: 84 0 0 0";
        assert_eq!(without_inner_tags(row).as_deref(), Some(" 8 2 float sum -1 85 0 0 0 84 0 0 0"));
        let row = "[0]    8 2 float sum -1[0]    85 0 0 0[0]    84 0 0 0";
        assert_eq!(without_inner_tags(row).as_deref(), Some("[0]    8 2 float sum -1    85 0 0 0    84 0 0 0"));
        assert_eq!(without_inner_tags("8 2 float"), None);
    }

    proptest! {
        #[test]
        fn any_line_is_peeled_without_panic(line in "\\PC{0,80}") {
            let peeled = peel(&line);
            prop_assert!(line.ends_with(peeled.text));
            let _ = without_inner_tags(&line);
        }
    }
}
