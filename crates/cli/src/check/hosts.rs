//! Starts busbw on other hosts and collects their answers. Hosts that do not answer are reported by name.

use super::{Found, file};
use crate::output::Refusal;
use busbw_launch::command::{Starter, this_program, variables};
use busbw_launch::hosts::Hosts;
use busbw_launch::launcher::telling_line;
use busbw_model::node::{Hello, Silent};
use busbw_model::{CheckItem, NodeFacts, Outcome};
use busbw_probe::{Ended, Program};
use std::sync::Mutex;
use std::time::Duration;

/// How much longer than its ranks wait for each other a job may take to start and to end.
const TO_START: Duration = Duration::from_secs(10);
/// Hosts that are asked one by one at the same time.
const AT_ONCE: usize = 16;

/// Asks all hosts in one job; if that comes to nothing, each by itself, to learn which one is at fault.
pub fn ask(list: &str, patience: Duration) -> Result<Found, Refusal> {
    let hosts: Hosts = list.parse()?;
    let starter = Starter::find(&|name| std::env::var(name).ok())?;
    let (asked, unknown) = (hosts.slots().len(), hosts.unknown());
    let names: Vec<&str> = hosts.slots().iter().map(|slots| slots.host.as_str()).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| !unknown.iter().any(|host| host == name)).collect();
    let (nodes, mut silent, apart) =
        if names.is_empty() { Default::default() } else { heard(&starter, &names, patience) };
    let unresolved = |host| Silent { host, why: "the name does not resolve here".into(), is_unknown: true };
    silent.extend(unknown.into_iter().map(unresolved));
    Ok(Found { nodes, hello: Hello { asked, silent, apart } })
}

/// What hosts told that have names; those that did not, and why not together where each answers alone.
fn heard(starter: &Starter, names: &[&str], patience: Duration) -> (Vec<NodeFacts>, Vec<Silent>, Option<String>) {
    let together = match job(starter, names, patience) {
        Ok(nodes) => return (nodes, Vec::new(), None),
        Err(why) => why,
    };
    let (nodes, silent) = one_by_one(starter, names, patience, &together);
    let apart = silent.is_empty().then_some(together);
    (nodes, silent, apart)
}

/// How long a host may take to answer when a job did not start.
const PATIENCE: Duration = Duration::from_secs(15);

/// Of hosts that did not answer, the message names which.
impl From<busbw_launch::Error> for Refusal {
    fn from(error: busbw_launch::Error) -> Self {
        let message = match &error {
            busbw_launch::Error::NotStarted(hosts) => at_fault(hosts),
            _ => None,
        };
        Refusal { status: error.status(), message: message.unwrap_or_else(|| error.to_string()) }
    }
}

/// Why ranks could not be started on these hosts, where a host shows it: in one sentence, with what to do.
pub fn at_fault(list: &str) -> Option<String> {
    let found = ask(list, PATIENCE).ok()?;
    let checked = busbw_diagnose::check::check(&found.nodes, &found.hello);
    let failed = checked.items.into_iter().filter(|item| item.item == "hello" && item.outcome == Outcome::Fail);
    let failed: Vec<CheckItem> = failed.collect();
    let hosts: Vec<&str> = failed.iter().map(|item| item.host.as_str()).collect();
    let first = failed.first()?;
    let remedy = first.remedy.as_deref().unwrap_or_default();
    Some(format!("no ranks were started; {} did not answer: {}. {remedy}", hosts.join(", "), first.detail))
}

fn one_by_one(starter: &Starter, names: &[&str], patience: Duration, together: &str) -> (Vec<NodeFacts>, Vec<Silent>) {
    let waiting = Mutex::new(names.iter().enumerate());
    let answers = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..names.len().min(AT_ONCE) {
            scope.spawn(|| {
                while let Some((at, name)) = next(&waiting) {
                    let answer =
                        if names.len() == 1 { Err(together.to_owned()) } else { job(starter, &[name], patience) };
                    if let Ok(mut answers) = answers.lock() {
                        answers.push((at, *name, answer));
                    }
                }
            });
        }
    });
    let mut answers = answers.into_inner().unwrap_or_default();
    answers.sort_by_key(|(at, ..)| *at);
    let (mut nodes, mut silent) = (Vec::new(), Vec::new());
    for (_, name, answer) in answers {
        match answer {
            Ok(mut told) => nodes.append(&mut told),
            Err(why) => silent.push(Silent { host: name.to_owned(), why, is_unknown: false }),
        }
    }
    (nodes, silent)
}

fn next<T>(waiting: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    waiting.lock().ok()?.next()
}

/// Runs busbw with one rank on each host; what they tell, or why they do not.
fn job(starter: &Starter, names: &[&str], patience: Duration) -> Result<Vec<NodeFacts>, String> {
    let hosts: Hosts = names.join(",").parse().map_err(|e: busbw_launch::Error| e.to_string())?;
    let program = this_program().map_err(|e| e.to_string())?;
    let seconds = patience.as_secs_f64().to_string();
    let command = [&program.display().to_string(), "check", "--facts-only", "--timeout", &seconds].map(str::to_owned);
    let words = starter.command_line(&hosts, &variables(), &command);
    let (launcher, arguments) = words.split_first().ok_or("there is no command to start")?;
    let ended = Program::new(launcher, arguments, patience + TO_START).run().map_err(|e| format!("{launcher}: {e}"))?;
    if ended.succeeded() {
        return facts(&ended.output);
    }
    Err(reason(&ended, patience))
}

/// The facts in what a launcher passed on, which may have words of its own before them.
fn facts(output: &[u8]) -> Result<Vec<NodeFacts>, String> {
    let text = String::from_utf8_lossy(output);
    let start = text.match_indices('{').map(|(at, _)| at).find(|at| *at == 0 || text.as_bytes()[at - 1] == b'\n');
    let facts = start.map(|start| file(text[start..].trim_end().as_bytes()).map(|file| file.nodes));
    facts
        .unwrap_or_else(|| Err(": no answer".into()))
        .map_err(|problem| format!("what it told cannot be read{problem}"))
}

/// Why a launcher's job came to nothing.
fn reason(ended: &Ended, patience: Duration) -> String {
    let text = String::from_utf8_lossy(&ended.errors);
    let told = telling_line(&text);
    match (ended.status, told) {
        (None, None) => format!("no answer within {patience:?}"),
        (None, Some(told)) => format!("no answer within {patience:?}: {told}"),
        (Some(_), Some(told)) => told.to_owned(),
        (Some(status), None) => format!("the launcher ended with {status} and said nothing"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_may_have_words_before_them() {
        let facts_of = |text: &str| facts(text.as_bytes()).map(|nodes| nodes.len());
        let file = r#"{"schema": "busbw.facts/1", "nodes": [{"host": "a"}]}"#;
        assert_eq!(facts_of(&format!("Warning: added {{a}}\n{file}\n")), Ok(1));
        assert_eq!(facts_of(file), Ok(1));
        for text in ["", "hello {", "{}\n", "{\"schema\": \"other/1\", \"nodes\": []}"] {
            assert!(facts_of(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_line_that_tells_most_is_kept() {
        for (errors, told) in [
            (
                "-----\nssh: connect to host b port 22: No route to host\n-----\nORTE was unable\n",
                "ssh: connect to host b port 22: No route to host",
            ),
            ("PMIx noise\nbusbw: rank 1 did not come\n", "rank 1 did not come"),
            ("", "no answer within 5s"),
        ] {
            let ended = Ended { status: None, output: Vec::new(), errors: errors.into() };
            assert!(reason(&ended, Duration::from_secs(5)).ends_with(told), "{errors}");
        }
    }
}
