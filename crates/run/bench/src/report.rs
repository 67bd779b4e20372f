//! What rank 0 shows of a run: the table and, with `-J`, the same as JSON, or JSON alone.

use crate::backend::{Device, Library};
use crate::context::Context;
use crate::flags::Flags;
use crate::json::Json;
use crate::repetition::{Repetitions, nic_lines};
use crate::row::Row;
use crate::skew::skew_lines;
use crate::table::{Footer, Table};
use crate::{Error, Result};
use std::io::{self, Write};
use std::time::SystemTime;

/// The table and the JSON of a run.
pub(crate) struct Report<'a> {
    flags: &'a Flags,
    table: Table<'a>,
    json: Option<Json<'a>>,
    libraries: Vec<Library>,
    /// What the lines below the table are made of, where they were asked for.
    rows: Vec<Row>,
}

impl<'a> Report<'a> {
    /// Creates the JSON, if there is to be one.
    pub fn new(flags: &'a Flags, context: &Context, libraries: Vec<Library>, out: &'a mut dyn Write) -> Result<Self> {
        let (table, json): (Box<dyn Write + 'a>, _) = if flags.prints_json() {
            (Box::new(io::sink()), Some(Json::begin(Box::new(out), None, context, &libraries)?))
        } else {
            let json = flags.json_file().map(|path| Json::create(path, context, &libraries));
            (Box::new(out), json.transpose()?)
        };
        Ok(Report { flags, table: Table::new(table, flags), json, libraries, rows: Vec::new() })
    }

    /// What stands above the device list, and the list.
    pub fn begin(&mut self, program: &str, backend: &str, devices: &[Device]) -> Result<()> {
        if let Some(path) = self.json.as_ref().and_then(Json::path) {
            self.table.lines(&format!("# Writing JSON output to {}", path.display()))?;
        }
        self.table.preamble(self.flags, program, backend, &self.libraries)?;
        self.table.devices(devices)?;
        self.json.as_mut().map_or(Ok(()), |json| json.config(self.flags, devices))
    }

    /// The head of the table; `reduced` is where the sweep ends when that is earlier than asked for.
    pub fn header(&mut self, reduced: Option<u64>) -> Result<()> {
        if let Some(bytes) = reduced {
            self.table.reduced(bytes)?;
        }
        self.table.header()
    }

    pub fn lines(&mut self, lines: &[String]) -> Result<()> {
        lines.iter().try_for_each(|line| self.table.lines(line))
    }

    pub fn row(&mut self, row: Row) -> Result<()> {
        self.table.row(&row, SystemTime::now())?;
        if let Some(json) = &mut self.json {
            json.row(&row, self.flags)?;
        }
        if self.flags.repeat > 1 || self.flags.nics || row.skew.is_some() {
            self.rows.push(row);
        }
        Ok(())
    }

    pub fn end(&mut self, footer: &Footer<'_>) -> Result<()> {
        let repetitions = (self.flags.repeat > 1).then(|| Repetitions::of(self.flags.repeat, &self.rows));
        if self.flags.nics {
            self.lines(&nic_lines(&self.rows, self.flags.operations()))?;
        }
        if let Some(repetitions) = &repetitions {
            self.lines(&repetitions.lines())?;
        }
        self.lines(&skew_lines(&self.rows))?;
        self.table.footer(footer)?;
        self.json.as_mut().map_or(Ok(()), |json| json.finish(footer, repetitions.as_ref()))
    }

    /// The end of a run that failed. What cannot be written is left: the first error matters.
    pub fn fail(&mut self, error: &Error) {
        if let Some(json) = &mut self.json {
            let _ = json.fail(&error.to_string());
        }
    }
}
