//! Servers of models: where they come up, and what they answer.

use busbw_model::{Place, Run};

/// So many requests a server answers that goes on.
pub(super) const ANSWERS: usize = 3;

/// Where servers came up, and where they tell of a request that they answered.
#[derive(Debug, Default)]
pub(super) struct Servers {
    started: Vec<Place>,
    answers: Vec<Place>,
}

impl Servers {
    pub fn of(run: &Run) -> Self {
        let said = |is: fn(&str) -> bool| {
            let lines = run.statements.iter().filter(move |one| is(one.text()));
            lines.map(|one| one.source.place).collect()
        };
        Servers { started: said(is_start), answers: said(is_answer) }
    }

    /// Whether several requests are answered behind a place. A server that streams says so before it has made a token: of a hang it tells nothing.
    pub fn answer_after(&self, place: Place) -> bool {
        self.answers.iter().filter(|line| line.is_after(place)).count() >= ANSWERS
    }

    /// Where servers came up behind a place.
    pub fn started_after(&self, place: Place) -> impl Iterator<Item = Place> {
        self.started.iter().copied().filter(move |start| start.is_after(place))
    }
}

/// uvicorn's `INFO:     10.0.0.2:41234 - "POST /v1/completions HTTP/1.1" 200 OK`: what asks whether it lives does so by GET.
fn is_answer(line: &str) -> bool {
    line.contains(" - \"POST /") && line.trim_end().ends_with(" HTTP/1.1\" 200 OK")
}

/// uvicorn's `INFO:     Started server process [4242]`.
fn is_start(line: &str) -> bool {
    line.contains("Started server process [")
}
