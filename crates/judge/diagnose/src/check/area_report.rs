//! The lines of one node and area, as they are written.

use crate::known_faults::table::Fault;
use crate::{Book, words};
use busbw_model::{Area, CheckItem, Code, Outcome};

/// Where an area's checks write what they find.
pub(super) struct AreaReport<'a> {
    area: Area,
    host: &'a str,
    book: &'a Book,
    device: Option<String>,
    pub items: Vec<CheckItem>,
}

impl<'a> AreaReport<'a> {
    pub fn new(area: Area, host: &'a str, book: &'a Book) -> Self {
        AreaReport { area, host, book, device: None, items: Vec::new() }
    }

    /// The faults that versions may have.
    pub fn known_faults(&self) -> &'a [Fault] {
        self.book.faults()
    }

    /// Says which device the next line is about. A line has to follow.
    pub fn about(&mut self, device: impl Into<String>) -> &mut Self {
        self.device = Some(device.into());
        self
    }

    pub fn ok(&mut self, item: &'static str, detail: impl Into<String>) {
        let item = self.line(item, detail.into());
        self.items.push(item);
    }

    pub fn warn(
        &mut self,
        item: &'static str,
        detail: impl Into<String>,
        code: Option<Code>,
        remedy: impl Into<String>,
    ) {
        let (line, remedy) = (self.line(item, detail.into()), Some(remedy.into()));
        self.items.push(CheckItem { outcome: Outcome::Warn, remedy, code, ..line });
    }

    pub fn fail(
        &mut self,
        item: &'static str,
        detail: impl Into<String>,
        code: Option<Code>,
        remedy: impl Into<String>,
    ) {
        let (line, remedy) = (self.line(item, detail.into()), Some(remedy.into()));
        self.items.push(CheckItem { outcome: Outcome::Fail, remedy, code, ..line });
    }

    pub fn skip(&mut self, item: &'static str, why: impl Into<String>) {
        let line = self.line(item, String::new());
        self.items.push(CheckItem { outcome: Outcome::Skip, why: Some(why.into()), ..line });
    }

    fn line(&mut self, item: &'static str, detail: String) -> CheckItem {
        CheckItem::ok(self.area, item, self.host, self.device.take(), detail)
    }
}

/// `a, b, c and 5 more`; `none`.
pub(super) fn listed<T: AsRef<str>>(things: &[T]) -> String {
    if things.is_empty() { "none".to_owned() } else { words::listed(things.iter().map(AsRef::as_ref), 4) }
}
