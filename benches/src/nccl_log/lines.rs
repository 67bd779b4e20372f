//! Lines under construction: numbers and text are appended to bytes without allocation.

/// What NCCL's log buffer holds of one line, without its line feed (`char buffer[1024]` in `src/debug.cc`, 2.27.5).
const NCCL_LINE_LIMIT: usize = 1023;

/// The lines that one rank prints in one phase.
#[derive(Debug, Default)]
pub(super) struct Lines {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Where NCCL's own text of the open line begins: after the launcher's label.
    message_start: usize,
    cut: bool,
}

impl Lines {
    /// No lines yet. With `cut`, lines are cut where NCCL's buffer ends.
    pub fn new(cut: bool) -> Self {
        Lines { cut, ..Lines::default() }
    }

    /// Forgets all lines and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// How many lines are finished.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The finished lines `from..to`, with their line feeds.
    pub fn range(&self, from: usize, to: usize) -> &[u8] {
        let end_of = |line: usize| if line == 0 { 0 } else { self.ends[line - 1] };
        &self.bytes[end_of(from)..end_of(to)]
    }

    /// Opens a line with the launcher's label and NCCL's prefix.
    pub fn begin(&mut self, label: &[u8], prefix: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(label);
        self.message_start = self.bytes.len();
        self.bytes.extend_from_slice(prefix);
        self
    }

    /// Closes the open line.
    pub fn end(&mut self) {
        if self.cut {
            self.bytes.truncate(self.message_start + NCCL_LINE_LIMIT);
        }
        self.bytes.push(b'\n');
        self.ends.push(self.bytes.len());
    }

    /// Appends text.
    pub fn text(&mut self, text: &str) -> &mut Self {
        self.bytes.extend_from_slice(text.as_bytes());
        self
    }

    /// Appends a number (`%d`).
    pub fn number(&mut self, value: u64) -> &mut Self {
        // 20 digits hold any 64-bit number.
        let mut digits = [0u8; 20];
        let mut first = digits.len();
        let mut rest = value;
        loop {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.bytes.extend_from_slice(&digits[first..]);
        self
    }

    /// Appends a number with at least two digits (`%02d`), as NCCL prints channels.
    pub fn two_digits(&mut self, value: u64) -> &mut Self {
        if value < 10 {
            self.bytes.push(b'0');
        }
        self.number(value)
    }

    /// Appends a rank, or -1 for none.
    pub fn rank_or_none(&mut self, rank: Option<u32>) -> &mut Self {
        match rank {
            Some(rank) => self.number(u64::from(rank)),
            None => self.text("-1"),
        }
    }

    /// Appends anything else; slower than the methods above.
    pub fn format(&mut self, arguments: std::fmt::Arguments<'_>) -> &mut Self {
        match arguments.as_str() {
            Some(text) => self.text(text),
            None => self.text(&arguments.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_as_c_prints_them() {
        for (value, plain, padded) in [(0, "0", "00"), (7, "7", "07"), (31, "31", "31"), (16384, "16384", "16384")] {
            let mut lines = Lines::new(false);
            lines.begin(b"", b"").number(value).text("|").two_digits(value).end();
            assert_eq!(lines.range(0, 1), format!("{plain}|{padded}\n").as_bytes());
        }
        let mut lines = Lines::new(false);
        lines.begin(b"", b"").number(u64::MAX).end();
        assert_eq!(lines.range(0, 1), format!("{}\n", u64::MAX).as_bytes());
    }

    #[test]
    fn a_cut_line_ends_where_nccls_buffer_does() {
        let mut lines = Lines::new(true);
        lines.begin(b"label: ", b"prefix ").text(&"x".repeat(2000)).end();
        assert_eq!(lines.range(0, 1).len(), "label: ".len() + 1024);
    }

    #[test]
    fn a_range_is_whole_lines() {
        let mut lines = Lines::new(false);
        for text in ["a", "bb", "ccc"] {
            lines.begin(b"", b"").text(text).end();
        }
        assert_eq!((lines.len(), lines.range(0, 0), lines.range(1, 3)), (3, &b""[..], &b"bb\nccc\n"[..]));
    }
}
