//! A document of nested lists and dictionaries, as JSON and pickles hold them: values in one list, children by index.
//!
//! A pickle may share values, and a hostile one may share them so that writing it out never ends. Indices keep shared
//! values shared, and nothing here walks a document deeper than its caller asks. Who writes shared values out says how many.

use rustc_hash::FxHashMap;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

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
    /// The document that a JSON text is: no deeper than serde_json reads it, 128 levels.
    pub fn from_json(text: &str) -> serde_json::Result<Self> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let mut growing = Growing::default();
        growing.tree.root = growing.deserialize(&mut reader)?;
        reader.end()?;
        Ok(growing.tree)
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

/// A document of which a part is read, and the names of its members so far: a dump has the same ones in each of its entries.
#[derive(Default)]
struct Growing {
    tree: Tree,
    names: FxHashMap<String, Id>,
}

impl Growing {
    fn name(&mut self, name: String) -> Id {
        let tree = &mut self.tree;
        *self.names.entry(name).or_insert_with_key(|name| tree.push(Node::Text(name.as_str().into())))
    }
}

impl<'de> DeserializeSeed<'de> for &mut Growing {
    type Value = Id;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Id, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &mut Growing {
    type Value = Id;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_unit<E>(self) -> Result<Id, E> {
        Ok(self.tree.push(Node::None))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Id, E> {
        Ok(self.tree.push(Node::Bool(value)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Id, E> {
        Ok(self.tree.push(Node::Int(number)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Id, E> {
        Ok(self.tree.push(i64::try_from(number).map_or(Node::Float(number as f64), Node::Int)))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Id, E> {
        Ok(self.tree.push(Node::Float(number)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Id, E> {
        Ok(self.tree.push(Node::Text(text.into())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Id, A::Error> {
        let mut list = Vec::new();
        while let Some(id) = items.next_element_seed(&mut *self)? {
            list.push(id);
        }
        Ok(self.tree.push(Node::List(list)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Id, A::Error> {
        let mut dict = Vec::new();
        while let Some(name) = members.next_key()? {
            let name = self.name(name);
            dict.push((name, members.next_value_seed(&mut *self)?));
        }
        Ok(self.tree.push(Node::Dict(dict)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_one_value_that_ends() {
        let text = r#"{"a": [null, true, -7, 18446744073709551615, 0.5, "\u00e9"], "a": {"b": " 12 "}}"#;
        let tree = Tree::from_json(text).unwrap();
        let last = tree.get(tree.root, "a").unwrap();
        assert_eq!(tree.number_of(last, "b"), Some(12), "of two members with a name the last one counts");
        let first = tree.members(tree.root)[0].1;
        let items: Vec<&Node> = tree.list(first).iter().map(|id| tree.node(*id)).collect();
        let (whole, text) = (Node::Float(18446744073709551615.0), Node::Text("é".into()));
        assert_eq!(items, [&Node::None, &Node::Bool(true), &Node::Int(-7), &whole, &Node::Float(0.5), &text]);
        for text in ["", "{", "{}{}", "[1,]", &"[".repeat(100_000)] {
            assert!(Tree::from_json(text).is_err());
        }
    }
}
