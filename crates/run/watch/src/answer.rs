//! Whom a session asks: who judges what it kept, and who tells what ranks recorded.

use std::path::Path;

/// What is answered about a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// One line that names who is at fault; none where nothing is wrong.
    pub line: Option<String>,
    pub page: String,
    /// Ranks that are late for each step of a job that goes on, where the line names such.
    pub late: Vec<u32>,
}

/// Answers about a folder, and writes the page beside the facts.
pub type Judge<'a> = &'a mut dyn FnMut(&Path) -> Result<Answer, String>;

/// Tells the last collectives of each rank, as a dump of a flight recorder; if asked, with those that have begun and are not over.
pub type Recorder<'a> = &'a (dyn Fn(bool) -> Vec<(u32, Vec<u8>)> + Sync);
