//! Line ends, indents, times and tags in front of every line change nothing.

use super::answer::Answer;
use super::changes::DRESSES;
use super::held::Held;
use super::inputs;

#[test]
fn a_dressed_log_has_the_same_answer() {
    let mut held = Held::new("a dressed log has the same answer");
    for input in inputs::all() {
        let answer = Answer::to(&input);
        for (change, dress) in DRESSES {
            held.compare((&input, &answer), change, &Answer::to(&input.changed(dress)), Answer::agrees_with);
        }
    }
    held.end();
}
