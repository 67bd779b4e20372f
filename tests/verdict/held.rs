//! A property while it is tried on many inputs: all that breaks it is shown together, at the end.

use super::answer::Answer;
use super::inputs::Input;

/// What a property was tried on, and what broke it.
pub struct Held {
    property: &'static str,
    tried: usize,
    broken: Vec<String>,
}

impl Held {
    /// Nothing tried yet.
    pub fn new(property: &'static str) -> Self {
        Held { property, tried: 0, broken: Vec::new() }
    }

    /// Tries a property of answers on inputs, each as it is.
    pub fn of_each(property: &'static str, inputs: Vec<Input>, holds: impl Fn(&Answer) -> bool) {
        let mut held = Held::new(property);
        for input in inputs {
            let answer = Answer::to(&input);
            held.check(holds(&answer), || format!("{}: {answer}", input.name));
        }
        held.end();
    }

    /// Notes one trial whose answers are told apart from `why`.
    pub fn check(&mut self, holds: bool, why: impl FnOnce() -> String) {
        self.tried += 1;
        if !holds {
            self.broken.push(why());
        }
    }

    /// Holds the answer to a changed input against the answer to the input itself.
    pub fn compare(
        &mut self,
        before: (&Input, &Answer),
        change: &str,
        after: &Answer,
        holds: impl Fn(&Answer, &Answer) -> bool,
    ) {
        let (input, answer) = before;
        self.check(holds(answer, after), || format!("{}\n    as it is: {answer}\n    {change}: {after}", input.name));
    }

    /// Ends the test: it fails if anything broke the property, or if nothing was tried.
    pub fn end(self) {
        let Held { property, tried, broken } = self;
        assert!(tried > 0, "{property}: nothing was tried");
        assert!(broken.is_empty(), "{property}: broken by {} of {tried}\n  {}\n", broken.len(), broken.join("\n  "));
    }
}
