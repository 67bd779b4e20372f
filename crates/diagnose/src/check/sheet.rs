//! The lines of one node and area, as they are written.

use crate::words;
use busbw_model::{Area, CheckItem, Code, Outcome};

/// Where an area's checks write what they find.
pub(super) struct Sheet<'a> {
    area: Area,
    host: &'a str,
    device: Option<String>,
    pub items: Vec<CheckItem>,
}

impl<'a> Sheet<'a> {
    pub fn new(area: Area, host: &'a str) -> Self {
        Sheet { area, host, device: None, items: Vec::new() }
    }

    /// Says which device the next line is about. A line has to follow.
    pub fn about(&mut self, device: impl Into<String>) -> &mut Self {
        self.device = Some(device.into());
        self
    }

    pub fn ok(&mut self, item: &'static str, detail: impl Into<String>) {
        self.write(item, detail.into(), Outcome::Ok);
    }

    pub fn warn(
        &mut self,
        item: &'static str,
        detail: impl Into<String>,
        code: Option<Code>,
        remedy: impl Into<String>,
    ) {
        self.write(item, detail.into(), Outcome::Warn { remedy: remedy.into(), code });
    }

    pub fn fail(
        &mut self,
        item: &'static str,
        detail: impl Into<String>,
        code: Option<Code>,
        remedy: impl Into<String>,
    ) {
        self.write(item, detail.into(), Outcome::Fail { remedy: remedy.into(), code });
    }

    pub fn skip(&mut self, item: &'static str, why: impl Into<String>) {
        self.write(item, String::new(), Outcome::Skip { why: why.into() });
    }

    fn write(&mut self, item: &'static str, detail: String, outcome: Outcome) {
        let device = self.device.take();
        self.items.push(CheckItem {
            area: self.area,
            item: item.into(),
            host: self.host.to_owned(),
            device,
            detail,
            outcome,
        });
    }
}

/// `a, b, c and 5 more`; `none`.
pub(super) fn listed<T: AsRef<str>>(things: &[T]) -> String {
    if things.is_empty() { "none".to_owned() } else { words::listed(things.iter().map(AsRef::as_ref), 4) }
}
