//! People redact hosts and processes before they post a log: what failed stays failed.

use super::answer::Answer;
use super::changes::REDACTIONS;
use super::held::Held;
use super::inputs;
use busbw_model::Verdict;

#[test]
fn what_failed_is_not_praised_once_redacted() {
    let mut held = Held::new("what failed is not praised once redacted");
    for input in inputs::all() {
        let answer = Answer::to(&input);
        for (change, redact) in REDACTIONS {
            let redacted = Answer::to(&input.changed(redact));
            let holds = |before: &Answer, after: &Answer| before.verdict() != Verdict::Failed || !after.is_praise();
            held.compare((&input, &answer), change, &redacted, holds);
        }
    }
    held.end();
}
