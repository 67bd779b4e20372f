//! What goes on behind a place: loops that count, and servers that answer.

use super::Refuters;
use super::servers::ANSWERS;
use crate::progress::counts_on;
use busbw_model::Place;

impl Refuters {
    /// Whether a loop of the program counts on behind a place, or begins there, and nothing fails behind it.
    pub fn counts_after(&self, place: Place) -> bool {
        /// Other ranks print a step or two before they notice what happened to one.
        const STEPS: usize = 3;
        self.counts_by(place, STEPS)
    }

    /// Whether a loop begins behind a place in front of which nothing came up.
    pub(super) fn begins_behind(&self, place: Place) -> bool {
        let came_up = || self.launches.up.iter().any(|up| place.is_after(up.first));
        self.begun.get(&place.input).is_some_and(|first| first.is_after(place)) && !came_up()
    }

    /// Whether it does so for longer than ranks do whose communicator is lost.
    pub(super) fn counts_long_after(&self, place: Place) -> bool {
        const STEPS: usize = 6;
        self.counts_by(place, STEPS)
    }

    fn counts_by(&self, place: Place, steps: usize) -> bool {
        !self.fails_after(place) && (counts_on(&self.steps, place, steps) || self.begins_behind(place))
    }

    /// Whether a server goes on to make tokens behind a place of its input, and nothing fails there.
    pub(super) fn serves_after(&self, place: Place) -> bool {
        let made = self.progress.iter().filter(|line| line.serves && line.place.is_after(place));
        !self.fails_after(place) && made.count() >= ANSWERS
    }

    /// Whether a server answers several requests behind a place, and nothing fails there.
    pub fn answers_after(&self, place: Place) -> bool {
        !self.fails_after(place) && self.servers.answer_after(place)
    }

    /// Whether a server comes up behind a place, and answers, or makes its first tokens there.
    pub(super) fn serves_anew_after(&self, place: Place) -> bool {
        let is_first = || !self.progress.iter().any(|line| line.serves && place.is_after(line.place));
        let comes_up = || self.servers.started_after(place).any(|start| self.answers_after(start));
        comes_up() || is_first() && self.serves_after(place)
    }
}
