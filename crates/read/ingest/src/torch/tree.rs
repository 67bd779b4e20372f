//! A document of nested lists and dictionaries, as JSON and pickles hold them: values in one list, children by index.
//!
//! A pickle may share values, and a hostile one may share them so that writing it out never ends. Indices keep shared
//! values shared, and nothing here walks a document deeper than its caller asks. Who writes shared values out says how many.

use serde_json::Value;

/// Index of a value.
pub(super) type Id = usize;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    /// None, null, or something that only a program could make sense of.
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Box<str>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
}

/// A dictionary that is asked for its members by name has fewer.
const MOST_KEYS: usize = 1024;

/// A document.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub nodes: Vec<Node>,
    pub root: Id,
}

impl Tree {
    /// The document that a JSON value is.
    pub fn from_json(value: &Value) -> Self {
        let mut tree = Tree::default();
        tree.root = tree.insert(value);
        tree
    }

    /// serde_json nests 128 deep at most, and so does this.
    fn insert(&mut self, value: &Value) -> Id {
        let node = match value {
            Value::Null => Node::None,
            Value::Bool(value) => Node::Bool(*value),
            Value::Number(number) => match number.as_i64() {
                Some(number) => Node::Int(number),
                None => Node::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => Node::Text(text.as_str().into()),
            Value::Array(values) => Node::List(values.iter().map(|value| self.insert(value)).collect()),
            Value::Object(members) => Node::Dict(
                members
                    .iter()
                    .map(|(key, value)| (self.push(Node::Text(key.as_str().into())), self.insert(value)))
                    .collect(),
            ),
        };
        self.push(node)
    }

    pub fn push(&mut self, node: Node) -> Id {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    pub fn node(&self, id: Id) -> &Node {
        self.nodes.get(id).unwrap_or(&Node::None)
    }

    /// The value of a key; the last one where a key stands twice, as in Python.
    pub fn get(&self, id: Id, key: &str) -> Option<Id> {
        let is_key = |id: Id| matches!(self.node(id), Node::Text(text) if &**text == key);
        self.members(id).iter().rev().take(MOST_KEYS).find(|(name, _)| is_key(*name)).map(|(_, value)| *value)
    }

    pub fn list(&self, id: Id) -> &[Id] {
        match self.node(id) {
            Node::List(items) => items,
            _ => &[],
        }
    }

    pub fn members(&self, id: Id) -> &[(Id, Id)] {
        match self.node(id) {
            Node::Dict(members) => members,
            _ => &[],
        }
    }

    pub fn text(&self, id: Id) -> Option<&str> {
        match self.node(id) {
            Node::Text(text) => Some(text),
            _ => None,
        }
    }

    /// An integer, or a text that holds one: the recorder's JSON quotes the numbers of `pg_status`.
    pub fn int(&self, id: Id) -> Option<i64> {
        match self.node(id) {
            Node::Int(number) => Some(*number),
            Node::Text(text) => text.trim().parse().ok(),
            _ => None,
        }
    }

    pub fn text_of(&self, id: Id, key: &str) -> Option<&str> {
        self.text(self.get(id, key)?)
    }

    /// A member that is an integer of 0 or more.
    pub fn number_of(&self, id: Id, key: &str) -> Option<u64> {
        u64::try_from(self.int(self.get(id, key)?)?).ok()
    }

    /// Whether a member is true.
    pub fn flag_of(&self, id: Id, key: &str) -> bool {
        self.get(id, key).is_some_and(|id| matches!(self.node(id), Node::Bool(true)))
    }

    /// The items of a member that is a list.
    pub fn list_of(&self, id: Id, key: &str) -> &[Id] {
        self.get(id, key).map_or(&[], |id| self.list(id))
    }
}
