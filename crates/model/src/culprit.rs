//! Who keeps the other ranks of a job waiting, and why.

use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;

named! {
    /// What kind of trouble a rank has for which the others wait. Each has its own remedy.
    pub enum CulpritClass {
        /// Its program ended with an exception or a crash of its own.
        Exception = "exception",
        /// It was killed from outside: by the kernel for its memory, by a person, by a scheduler.
        Killed = "killed",
        /// It is stopped (state T): by a signal, a debugger, a frozen control group.
        Stopped = "stopped",
        /// It called something else than the others: it skipped a collective, changed the order, the size, the type or the group, or groups wait
        /// for each other.
        Divergence = "divergence",
        /// It waits for data: in its data loader.
        Data = "data",
        /// It computes or writes on the CPU: an evaluation, a checkpoint. Where no stack is given, it may load data as well.
        Busy = "busy",
        /// Its GPU or the GPU's driver failed.
        Gpu = "gpu",
        /// Data does not get through between hosts.
        Network = "network",
    }
    /// The word in JSON.
    as_str
}

/// The ranks for which the others wait.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Culprit {
    /// The ranks, ascending.
    pub ranks: Vec<u32>,
    /// Their host, where it is known and one.
    pub host: Option<String>,
    /// What kind of trouble they have; null where the input does not show it.
    pub class: Option<CulpritClass>,
    /// What they were doing instead: where their stack is, or how their output ends.
    pub doing: Option<String>,
    /// Who waits for them, and in what.
    pub waiting: Option<Waiting>,
    /// How much longer they take, where the job goes on; null where they hold it up.
    pub slower: Option<Slower>,
}

/// How much longer a rank takes for its own part of a step than the others, while the job goes on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Slower {
    /// By so much of a step, in percent.
    pub percent: f64,
    /// The interval in which the true value lies in 95% of cases, in percent.
    pub from_percent: f64,
    /// Its other end.
    pub to_percent: f64,
    /// How long a step takes, in milliseconds.
    pub step_ms: f64,
    /// Over how many steps this was measured.
    pub steps: u32,
    /// When the first of them began, in microseconds since 1970 by the clock of the rank's host; null where the recorder does not reach back to
    /// where it began.
    pub since_us: Option<u64>,
}

/// Ranks that wait in a collective.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Waiting {
    /// The process group, by the name that the program gave it: `default_pg`; empty where it is not told.
    pub group: String,
    /// The collective and its number in the group, where that is told: `all-reduce 17`.
    pub collective: String,
    /// The ranks that wait, ascending.
    pub ranks: Vec<u32>,
}

/// What a finding says of who is at fault: the answer's [`Culprit`] is made of the first finding's.
#[derive(Debug, Clone, PartialEq)]
pub struct Suspects {
    /// The ranks, ascending.
    pub ranks: Vec<u32>,
    /// What kind of trouble they have, where it is known.
    pub class: Option<CulpritClass>,
    /// How much longer they take, where the job goes on.
    pub slower: Option<Slower>,
}

impl Suspects {
    /// Ranks that hold the job up.
    pub fn of(ranks: Vec<u32>, class: Option<CulpritClass>) -> Self {
        Suspects { ranks, class, slower: None }
    }
}

impl Culprit {
    /// What they do instead, as a clause behind `Rank 2`; `many`: for several ranks.
    fn said(&self, many: bool) -> String {
        if let Some(slower) = &self.slower {
            return slower.said(many);
        }
        let (is, was, has) = if many { ("are", "were", "have") } else { ("is", "was", "has") };
        let doing = self.doing.as_deref().map_or(String::new(), |doing| format!(" ({doing})"));
        match self.class {
            Some(CulpritClass::Exception) => match &self.doing {
                Some(doing) => format!("ended with {doing}"),
                None => "ended with an exception".into(),
            },
            Some(CulpritClass::Killed) => format!("{was} killed{doing}"),
            Some(CulpritClass::Stopped) => format!("{is} stopped{doing}"),
            Some(CulpritClass::Divergence) => format!("went another way{doing}"),
            Some(CulpritClass::Data) => format!("{is} in {} data loader{doing}", if many { "their" } else { "its" }),
            Some(CulpritClass::Busy) => format!("{is} busy on the CPU{doing}"),
            Some(CulpritClass::Gpu) => format!("{has} a GPU that fails{doing}"),
            Some(CulpritClass::Network) => format!("{is} cut off, or reached too slowly{doing}"),
            None => format!("{is} missing{doing}"),
        }
    }
}

impl Slower {
    /// As a clause behind `Rank 2`.
    fn said(&self, many: bool) -> String {
        let Slower { percent, from_percent, to_percent, step_ms, steps, .. } = self;
        let takes = if many { "take" } else { "takes" };
        format!(
            "{takes} {percent}% longer per step than the others ({from_percent} to {to_percent}%, {steps} steps of {step_ms} ms)"
        )
    }
}

impl fmt::Display for Culprit {
    /// `Rank 2 on h2 is in its data loader (loader.py:41); ranks 0, 1, 3 wait in all-reduce 17 of default_pg`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.host.as_deref().map_or(String::new(), |host| format!(" on {host}"));
        match self.ranks.as_slice() {
            [] => write!(f, "Data does not get through between the ranks")?,
            ranks => write!(f, "{}{host} {}", named("Rank", ranks), self.said(ranks.len() > 1))?,
        }
        let Some(waiting) = self.waiting.as_ref().filter(|waiting| !waiting.ranks.is_empty()) else { return Ok(()) };
        let verb = if waiting.ranks.len() > 1 { "wait" } else { "waits" };
        write!(f, "; {} {verb}", named("rank", &waiting.ranks))?;
        match (waiting.collective.as_str(), waiting.group.as_str()) {
            ("", _) => Ok(()),
            (collective, "") => write!(f, " in {collective}"),
            (collective, group) => write!(f, " in {collective} of {group}"),
        }
    }
}

/// `Rank 0`, `ranks 1, 2 and 30 more`.
fn named(word: &str, ranks: &[u32]) -> String {
    const MOST: usize = 8;
    let shown: Vec<String> = ranks.iter().take(MOST).map(u32::to_string).collect();
    let more = ranks.len().saturating_sub(MOST);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{word}{} {}{more}", if ranks.len() > 1 { "s" } else { "" }, shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_culprit_is_one_line() {
        let waiting = Waiting { group: "default_pg".into(), collective: "all-reduce 17".into(), ranks: vec![0, 1, 3] };
        let culprit = Culprit {
            ranks: vec![2],
            host: Some("h2".into()),
            class: Some(CulpritClass::Data),
            doing: Some("loader.py:41".into()),
            waiting: Some(waiting),
            slower: None,
        };
        let line =
            "Rank 2 on h2 is in its data loader (loader.py:41); ranks 0, 1, 3 wait in all-reduce 17 of default_pg";
        assert_eq!(culprit.to_string(), line);
        let lost = Culprit { ranks: vec![0, 1], host: None, class: None, doing: None, waiting: None, slower: None };
        assert_eq!(lost.to_string(), "Ranks 0, 1 are missing");
    }
}
