//! The table of `dcgmi diag` (DCGM 2 to 4, `dcgmi/Diag.cpp`): a row for each test, `| GPU Memory | Fail - GPU: 3 |`, below it what DCGM says of it,
//! `| Warning | text |`, in as many rows as it needs; since DCGM 4 a row for each GPU, `|  | GPU3: Fail |`.

use super::Context;
use super::page::Page;
use busbw_model::Outcome;
use busbw_model::node::GpuTest;

pub(super) const DCGMI: &str = "dcgmi diag";
/// What the rows tell.
const ITEM: &str = "DCGM's diagnostic";
/// The longest message that is kept, and how much of it a row has, which cuts words.
const LONGEST: usize = 400;
const A_ROW: usize = 45;

pub(super) fn read(context: &mut Context, text: &str, page: &mut Page) -> Option<()> {
    let (name, value) = row(text)?;
    if (name, value) == ("Diagnostic", "Result") {
        context.begin(DCGMI, "");
        return Some(());
    }
    // A paste may lack the head of the table.
    let is_of_gpus = outcome(value).is_some() && value.contains(" - ");
    if context.command != DCGMI && is_of_gpus && !name.is_empty() {
        context.begin(DCGMI, "");
    }
    (context.command == DCGMI).then_some(())?;
    let of_test = outcome(value).filter(|_| !name.is_empty());
    if let Some(outcome) = of_test {
        let mut test = GpuTest { name: name.into(), outcome, on: Vec::new(), said: String::new() };
        take(&mut test, outcome, on(value));
        page.tell(context, DCGMI, "", ITEM).gpu.diagnostic.push(test);
        return Some(());
    }
    let test = page.tell(context, DCGMI, "", ITEM).gpu.diagnostic.last_mut()?;
    let (who, how) = value.split_once(": ").unwrap_or((value, ""));
    match (name, outcome(value), outcome(how)) {
        // `Pass - GPUs: 0, 1` below those that failed; `GPU3: Fail`.
        ("", Some(found), _) => take(test, found, on(value)),
        ("", None, Some(found)) => take(test, found, vec![who.into()]),
        _ if name.starts_with("Info") => {}
        _ if name.is_empty() || name.starts_with("Warning") => say(test, value),
        _ => {}
    }
    Some(())
}

/// The cells of a row.
fn row(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.trim().strip_prefix("| ")?.strip_suffix('|')?.split_once(" | ")?;
    (!value.contains('|')).then_some((name.trim(), value.trim()))
}

/// `Pass`, `Pass - All`, `Fail - GPU: 3`.
fn outcome(value: &str) -> Option<Outcome> {
    let (word, rest) = value.split_once(" - ").unwrap_or((value, ""));
    let is_of = rest.is_empty() || rest == "All" || rest.starts_with("GPU");
    let known = [("Pass", Outcome::Ok), ("Warn", Outcome::Warn), ("Fail", Outcome::Fail), ("Skip", Outcome::Skip)];
    known.into_iter().find(|(name, _)| *name == word && is_of).map(|(_, outcome)| outcome)
}

/// The GPUs of `Fail - GPUs: 2, 3`.
fn on(value: &str) -> Vec<String> {
    let listed = value.split_once(" - GPU").and_then(|(_, gpus)| gpus.split_once(": "));
    listed.map_or(Vec::new(), |(_, gpus)| gpus.split(", ").map(|gpu| format!("GPU{}", gpu.trim())).collect())
}

/// Takes what a row below tells of some GPUs: the worst stands for the test.
fn take(test: &mut GpuTest, found: Outcome, on: Vec<String>) {
    let rank = |outcome| match outcome {
        Outcome::Skip => 0,
        Outcome::Ok => 1,
        Outcome::Warn => 2,
        Outcome::Fail => 3,
    };
    if rank(found) > rank(test.outcome) {
        test.outcome = found;
    }
    if matches!(found, Outcome::Warn | Outcome::Fail) {
        test.on.extend(on.into_iter().filter(|gpu| !test.on.contains(gpu)).collect::<Vec<_>>());
    }
}

fn say(test: &mut GpuTest, text: &str) {
    if test.said.len() + text.len() < LONGEST {
        let cuts_word = test.said.is_empty() || test.said.len().is_multiple_of(A_ROW);
        test.said.push_str(if cuts_word { "" } else { " " });
        test.said.push_str(text);
    }
}
