//! Conditions over variables: `NCCL_SOCKET_NTHREADS * NCCL_NSOCKS_PERTHREAD <= 64`, `NCCL_ALGO == 'Ring' || NCCL_PROTO != 'LL'`.
//!
//! From loosest to tightest: `||`, `&&`, `!`, comparisons, `+ -`, `* / %`, parentheses. A value that reads as a number is one.

use std::collections::BTreeSet;
use std::fmt;

/// A condition as it was written, and what it means.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    text: String,
    tree: Tree,
}

#[derive(Debug, Clone, PartialEq)]
enum Tree {
    Constant(Value),
    Variable(String),
    Not(Box<Tree>),
    Binary(Operator, Box<Tree>, Box<Tree>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Or,
    And,
    Equal,
    Unequal,
    AtMost,
    AtLeast,
    Less,
    Greater,
    Plus,
    Minus,
    Times,
    Over,
    Modulo,
}

/// Operators by how loosely they bind; the longer of two that begin alike comes first.
const LEVELS: [&[(&str, Operator)]; 5] = [
    &[("||", Operator::Or)],
    &[("&&", Operator::And)],
    &[
        ("==", Operator::Equal),
        ("!=", Operator::Unequal),
        ("<=", Operator::AtMost),
        (">=", Operator::AtLeast),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ],
    &[("+", Operator::Plus), ("-", Operator::Minus)],
    &[("*", Operator::Times), ("/", Operator::Over), ("%", Operator::Modulo)],
];
/// Parentheses and negations in each other at most: each takes a frame of the stack.
const DEEPEST: usize = 64;

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Number(f64),
    Text(String),
    Truth(bool),
}

impl Condition {
    /// Reads a condition.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::read(text).map_err(|reason| format!("'{}': {reason}", text.trim()))
    }

    fn read(text: &str) -> Result<Self, String> {
        let mut reader = Reader { rest: text, depth: 0 };
        let tree = reader.level(0)?;
        reader.skip_space();
        if !reader.rest.is_empty() {
            return Err(format!("an operator was expected before '{}'", reader.rest));
        }
        let condition = Condition { text: text.trim().to_string(), tree };
        match condition.tree {
            Tree::Binary(operator, ..) if !operator.is_arithmetic() => Ok(condition),
            Tree::Not(_) => Ok(condition),
            _ => Err("it has no comparison; use ==, !=, <, <=, > or >=".into()),
        }
    }

    /// The variables that it names.
    pub fn variables(&self) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        self.tree.collect(&mut found);
        found
    }

    /// Whether it holds for the values that `value` gives. `None` where it names a variable without one: what NCCL then
    /// chooses is not known.
    pub fn holds<'a>(&self, value: &dyn Fn(&str) -> Option<&'a str>) -> Option<bool> {
        match self.tree.evaluate(value)? {
            Value::Truth(truth) => Some(truth),
            Value::Number(_) | Value::Text(_) => Some(false),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Tree {
    fn collect<'a>(&'a self, found: &mut BTreeSet<&'a str>) {
        match self {
            Tree::Variable(name) => {
                found.insert(name);
            }
            Tree::Not(inner) => inner.collect(found),
            Tree::Binary(_, a, b) => {
                a.collect(found);
                b.collect(found);
            }
            Tree::Constant(_) => {}
        }
    }

    fn evaluate<'a>(&self, value: &dyn Fn(&str) -> Option<&'a str>) -> Option<Value> {
        Some(match self {
            Tree::Constant(value) => value.clone(),
            Tree::Variable(name) => Value::of(value(name)?),
            Tree::Not(inner) => Value::Truth(!inner.evaluate(value)?.is_true()),
            Tree::Binary(operator, a, b) => operator.apply(a.evaluate(value)?, b.evaluate(value)?),
        })
    }
}

impl Value {
    /// A text that reads as a number is one, whether it is a variable's value or stands in quotes.
    fn of(text: &str) -> Self {
        text.parse().map_or_else(|_| Value::Text(text.to_string()), Value::Number)
    }

    fn is_true(&self) -> bool {
        *self == Value::Truth(true)
    }
}

impl Operator {
    fn is_arithmetic(self) -> bool {
        matches!(self, Operator::Plus | Operator::Minus | Operator::Times | Operator::Over | Operator::Modulo)
    }

    fn apply(self, a: Value, b: Value) -> Value {
        match (self, &a, &b) {
            (Operator::Or, ..) => Value::Truth(a.is_true() || b.is_true()),
            (Operator::And, ..) => Value::Truth(a.is_true() && b.is_true()),
            (Operator::Equal, ..) => Value::Truth(a == b),
            (Operator::Unequal, ..) => Value::Truth(a != b),
            (_, Value::Number(a), Value::Number(b)) => self.of_numbers(*a, *b),
            // Texts have no order.
            _ => Value::Truth(false),
        }
    }

    fn of_numbers(self, a: f64, b: f64) -> Value {
        match self {
            Operator::AtMost => Value::Truth(a <= b),
            Operator::AtLeast => Value::Truth(a >= b),
            Operator::Less => Value::Truth(a < b),
            Operator::Greater => Value::Truth(a > b),
            Operator::Plus => Value::Number(a + b),
            Operator::Minus => Value::Number(a - b),
            Operator::Times => Value::Number(a * b),
            Operator::Over => Value::Number(a / b),
            Operator::Modulo => Value::Number(a % b),
            Operator::Or | Operator::And | Operator::Equal | Operator::Unequal => Value::Truth(false),
        }
    }
}

struct Reader<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, sign: &str) -> bool {
        self.skip_space();
        let taken = self.rest.strip_prefix(sign);
        self.rest = taken.unwrap_or(self.rest);
        taken.is_some()
    }

    /// Operands joined by the operators of a level, which bind from left to right.
    fn level(&mut self, level: usize) -> Result<Tree, String> {
        let Some(operators) = LEVELS.get(level) else { return self.operand() };
        let mut tree = self.level(level + 1)?;
        while let Some((_, operator)) = operators.iter().find(|(sign, _)| self.take(sign)) {
            tree = Tree::Binary(*operator, Box::new(tree), Box::new(self.level(level + 1)?));
        }
        Ok(tree)
    }

    fn operand(&mut self) -> Result<Tree, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("more than {DEEPEST} nested parentheses"));
        }
        let tree = self.shallow_operand();
        self.depth -= 1;
        tree
    }

    fn shallow_operand(&mut self) -> Result<Tree, String> {
        if self.take("!") {
            return Ok(Tree::Not(Box::new(self.level(2)?)));
        }
        if self.take("(") {
            let tree = self.level(0)?;
            return if self.take(")") { Ok(tree) } else { Err("a ) is missing".into()) };
        }
        if let Some(quote) = ["'", "\""].into_iter().find(|quote| self.take(quote)) {
            let (text, rest) = self.rest.split_once(quote).ok_or_else(|| format!("a {quote} is missing"))?;
            self.rest = rest;
            return Ok(Tree::Constant(Value::of(text)));
        }
        let word = self.word();
        match word.chars().next() {
            None if self.rest.is_empty() => Err("it ends where a variable or a number was expected".into()),
            None => Err(format!("a variable or a number was expected at '{}'", self.rest)),
            Some(first) if first.is_ascii_digit() => {
                let number = word.parse().map_err(|_| format!("'{word}' is no number"))?;
                Ok(Tree::Constant(Value::Number(number)))
            }
            Some(_) => Ok(Tree::Variable(word.to_string())),
        }
    }

    fn word(&mut self) -> &'a str {
        self.skip_space();
        let part_of_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
        let end = self.rest.find(|c: char| !part_of_word(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn holds(text: &str) -> Option<bool> {
        let value = |name: &str| match name {
            "T" => Some("8"),
            "S" => Some("4"),
            "ALGO" => Some("Ring"),
            _ => None,
        };
        Condition::parse(text).unwrap().holds(&value)
    }

    #[test]
    fn conditions_hold_or_do_not() {
        let cases = [
            ("T * S <= 64", Some(true)),
            ("T*S<32", Some(false)),
            ("T + S * 2 == 16", Some(true)),
            ("(T + S) * 2 == 24", Some(true)),
            ("T - 2 - 2 == 4", Some(true)),
            ("ALGO == 'Ring' && T > 4", Some(true)),
            ("ALGO != \"Ring\" || S == 4", Some(true)),
            ("!ALGO == 'Tree'", Some(true)),
            ("T == '8' && T > '-1'", Some(true)),
            ("ALGO < 3", Some(false)),
            ("OTHER < 3", None),
        ];
        for (text, truth) in cases {
            assert_eq!(holds(text), truth, "{text}");
        }
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for text in ["", "T *", "(T < 3", "T 3", "T", "T * 3", "'a", "1.2.3 < T", "T < 3 )"] {
            let error = Condition::parse(text).expect_err(text);
            assert!(error.starts_with(&format!("'{text}': ")), "{error}");
        }
        assert!(Condition::parse(&"(".repeat(1000)).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_a_condition_or_an_error(text in ".{0,40}") {
            let _ = Condition::parse(&text);
        }
    }
}
