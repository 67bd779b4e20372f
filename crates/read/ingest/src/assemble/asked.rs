//! What a shell answers who asks it for the status of the last command: `$ echo $?`, and `1` in the next line.

use crate::command::{self, Act, starts_run};
use crate::ends::by_failure;
use crate::text::is_number;
use busbw_model::{EndTeller, RankEnd, Run, SourceLine, Statement};

/// Adds an end for each answer that shows a failure.
pub(super) fn take(run: &mut Run) {
    let asked = |at: usize| {
        let [question, answer] = run.statements.get(at..at + 2)? else { return None };
        let above = at.checked_sub(1).map(|above| &run.statements[above]).filter(|above| is_next(above, question));
        // A command that printed nothing is the last one, and not the run.
        let is_of_another = above
            .and_then(|above| command::read(&above.source.text))
            .is_some_and(|line| line.acts.iter().any(|act| matches!(act, Act::Run(words) if !starts_run(words))));
        let (before, after) = around_status(&question.source.text).filter(|_| is_next(question, answer))?;
        let code = answer.source.text.trim().strip_prefix(before)?.strip_suffix(after)?;
        let how = by_failure(code).filter(|_| is_number(code) && !is_of_another)?;
        let text = format!("{} {}", question.source.text.trim(), answer.source.text.trim());
        let source = SourceLine::new(answer.source.place, &text);
        Some(RankEnd { told_by: EndTeller::Runner, source, ..RankEnd::of(how) })
    };
    let found: Vec<RankEnd> = (0..run.statements.len()).filter_map(asked).collect();
    if !found.is_empty() {
        run.ends.extend(found);
        run.ends.sort_by_key(|end| end.source.place);
    }
}

fn is_next(one: &Statement, other: &Statement) -> bool {
    let (one, other) = (one.source.place, other.source.place);
    one.input == other.input && one.line + 1 == other.line
}

/// What `echo` prints in front of the status and behind it, where a prompt with that command is the line.
fn around_status(line: &str) -> Option<(&str, &str)> {
    let (prompt, asked) = line.split_once("echo ")?;
    let text = asked.trim().trim_matches(['"', '\'']);
    text.split_once("$?").filter(|_| prompt.trim_end().ends_with(['$', '#', '%', '>', ';']))
}
