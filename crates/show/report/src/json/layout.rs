//! The layout of the JSON: as serde_json's pretty one, but a list of numbers stays on one line. A ring is read across.

use serde_json::ser::Formatter;
use std::io::{self, Write};

/// The state of the layout while a document is written.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// For every open list or object: whether something in it began a line.
    open: Vec<bool>,
    /// A list item is about to come; only its kind says whether it begins a line.
    item_pending: bool,
}

impl Layout {
    fn begin<W: Write + ?Sized>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.settle(out)?;
        self.open.push(false);
        out.write_all(bracket)
    }

    fn end<W: Write + ?Sized>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        if self.open.pop() == Some(true) {
            self.new_line(out)?;
        }
        out.write_all(bracket)
    }

    /// Begins a line for the pending list item, which turned out to be no number.
    fn settle<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        if std::mem::take(&mut self.item_pending) {
            self.break_line(out)?;
        }
        Ok(())
    }

    fn break_line<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        if let Some(broken) = self.open.last_mut() {
            *broken = true;
        }
        self.new_line(out)
    }

    fn new_line<W: Write + ?Sized>(&self, out: &mut W) -> io::Result<()> {
        out.write_all(b"\n")?;
        self.open.iter().try_for_each(|_| out.write_all(b"  "))
    }
}

impl Formatter for Layout {
    fn begin_array<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.begin(out, b"[")
    }

    fn end_array<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.end(out, b"]")
    }

    fn begin_array_value<W: Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.item_pending = true;
        if first { Ok(()) } else { out.write_all(b",") }
    }

    fn end_array_value<W: Write + ?Sized>(&mut self, _: &mut W) -> io::Result<()> {
        self.item_pending = false;
        Ok(())
    }

    fn begin_object<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.begin(out, b"{")
    }

    fn end_object<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.end(out, b"}")
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if !first {
            out.write_all(b",")?;
        }
        self.break_line(out)
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }

    fn begin_string<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.settle(out)?;
        out.write_all(b"\"")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde::Serialize;
    use serde_json::{Value, json};

    fn laid_out(value: &Value) -> String {
        let mut out = Vec::new();
        value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, Layout::default())).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_stay_on_one_line_and_all_else_has_its_own() {
        let value = json!({"ring": [0, 7, 5], "names": ["a"], "none": [], "rows": [{"x": 1}, [2, 3], {}]});
        let text = laid_out(&value);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        insta::assert_snapshot!(text, @r#"
        {
          "names": [
            "a"
          ],
          "none": [],
          "ring": [0,7,5],
          "rows": [
            {
              "x": 1
            },
            [2,3],
            {}
          ]
        }
        "#);
    }
}
