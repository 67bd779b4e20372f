//! Reads pickles without running anything: the values of protocols 0 to 5, and no class, call or state.
//!
//! PyTorch's flight recorder writes protocol 2 with a dozen opcodes (`torch/csrc/jit/serialization/pickler.cpp`); people
//! write such a dump again with Python, hence the other protocols. Own code, because readers of the registry write
//! shared values out and recurse without bound, which a hostile file turns into all memory or the end of the stack.

use super::tree::{Id, Node, Tree};
use std::collections::HashMap;

/// Whether bytes begin like a pickle of a dictionary: protocol 2 or later, perhaps a frame, then the dictionary.
pub(crate) fn looks_like(start: &[u8]) -> bool {
    match start {
        [0x80, 2..=5, b'}' | b'(', ..] => true,
        [0x80, 4..=5, 0x95, rest @ ..] => matches!(rest.get(8), Some(b'}' | b'(')),
        _ => false,
    }
}

/// Why a pickle cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum PickleError {
    #[error("the pickle ends early at byte {0}; the rank may have died while it wrote: use the dumps of the others")]
    CutOff(usize),
    #[error("byte {at}: opcode {opcode:#04x} is no value; busbw reads data only and runs nothing")]
    NotData { at: usize, opcode: u8 },
    #[error("byte {0}: the pickle takes a value that is not there")]
    Damaged(usize),
    #[error("the pickle holds more than {MOST_VALUES} values; no dump of the flight recorder does")]
    TooLarge,
}

/// A dump of 100,000 operations has some 10 million. A value takes many times the byte that it may be written with.
const MOST_VALUES: usize = 1 << 25;

pub(super) fn read(bytes: &[u8]) -> Result<Tree, PickleError> {
    let mut machine =
        Machine { bytes, at: 0, tree: Tree::default(), stack: Vec::new(), marks: Vec::new(), memo: HashMap::new() };
    while machine.step()? {}
    let root = machine.pop()?;
    machine.tree.root = root;
    Ok(machine.tree)
}

/// The machine that pickles are programs of: a stack of values, marks in it, and a memo of values to use again.
struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    tree: Tree,
    stack: Vec<Id>,
    marks: Vec<usize>,
    memo: HashMap<u64, Id>,
}

impl<'a> Machine<'a> {
    /// One opcode; false at the end. Opcodes and their names are those of CPython's Lib/pickle.py.
    fn step(&mut self) -> Result<bool, PickleError> {
        if self.tree.nodes.len() > MOST_VALUES {
            return Err(PickleError::TooLarge);
        }
        let opcode = self.byte()?;
        match opcode {
            b'.' => return Ok(false),                             // STOP
            0x80 => drop(self.take(1)?),                          // PROTO
            0x95 => drop(self.take(8)?),                          // FRAME
            b'(' => self.marks.push(self.stack.len()),            // MARK
            b'0' => drop(self.pop()?),                            // POP
            b'2' => self.stack.push(self.top()?),                 // DUP
            b'N' => self.push(Node::None),                        // NONE
            0x88 | 0x89 => self.push(Node::Bool(opcode == 0x88)), // NEWTRUE, NEWFALSE
            b']' | b')' => self.push(Node::List(Vec::new())),     // EMPTY_LIST, EMPTY_TUPLE
            0x8f | b'}' => self.empty(opcode),                    // EMPTY_SET, EMPTY_DICT
            _ => return self.number(opcode).map(|()| true),
        }
        Ok(true)
    }

    fn empty(&mut self, opcode: u8) {
        self.push(if opcode == b'}' { Node::Dict(Vec::new()) } else { Node::List(Vec::new()) });
    }

    fn number(&mut self, opcode: u8) -> Result<(), PickleError> {
        let node = match opcode {
            b'J' => Node::Int(i64::from(i32::from_le_bytes(self.array()?))), // BININT
            b'K' => Node::Int(i64::from(self.byte()?)),                      // BININT1
            b'M' => Node::Int(i64::from(u16::from_le_bytes(self.array()?))), // BININT2
            0x8a => {
                let length = usize::from(self.byte()?); // LONG1
                integer(self.take(length)?)
            }
            b'G' => Node::Float(f64::from_be_bytes(self.array()?)), // BINFLOAT
            b'I' | b'L' | b'F' => decimal(self.line()?),            // INT, LONG, FLOAT
            _ => return self.text(opcode),
        };
        self.push(node);
        Ok(())
    }

    fn text(&mut self, opcode: u8) -> Result<(), PickleError> {
        let length = match opcode {
            b'X' | b'T' | b'B' => u64::from(u32::from_le_bytes(self.array()?)), // BINUNICODE, BINSTRING, BINBYTES
            0x8c | b'U' | b'C' => u64::from(self.byte()?), // SHORT_BINUNICODE, SHORT_BINSTRING, SHORT_BINBYTES
            0x8d | 0x8e => u64::from_le_bytes(self.array()?), // BINUNICODE8, BINBYTES8
            b'V' | b'S' => {
                let line = self.line()?; // UNICODE, STRING
                let text = String::from_utf8_lossy(line);
                let bare = text.trim_matches(['\'', '"']).into();
                self.push(Node::Text(bare));
                return Ok(());
            }
            _ => return self.collection(opcode),
        };
        let bytes = self.take(usize::try_from(length).unwrap_or(usize::MAX))?;
        let text = String::from_utf8_lossy(bytes).into();
        self.push(Node::Text(text));
        Ok(())
    }

    fn collection(&mut self, opcode: u8) -> Result<(), PickleError> {
        match opcode {
            b'l' | b't' | 0x91 => {
                let items = self.since_mark()?; // LIST, TUPLE, FROZENSET
                self.push(Node::List(items));
            }
            0x85..=0x87 => {
                let from =
                    self.stack.len().checked_sub(usize::from(opcode - 0x84)).ok_or(PickleError::Damaged(self.at))?;
                let items = self.stack.split_off(from); // TUPLE1, TUPLE2, TUPLE3
                self.push(Node::List(items));
            }
            b'd' => {
                let items = self.since_mark()?; // DICT
                self.push(Node::Dict(pairs(&items)));
            }
            b'a' => {
                let item = self.pop()?; // APPEND
                self.extend(&[item])?;
            }
            b'e' | 0x90 => {
                let items = self.since_mark()?; // APPENDS, ADDITEMS
                self.extend(&items)?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?); // SETITEM
                self.extend(&[key, value])?;
            }
            b'u' => {
                let items = self.since_mark()?; // SETITEMS
                self.extend(&items)?;
            }
            _ => return self.memory(opcode),
        }
        Ok(())
    }

    fn memory(&mut self, opcode: u8) -> Result<(), PickleError> {
        match opcode {
            b'q' | b'r' | b'p' | 0x94 => {
                let key = self.memo_key(opcode)?; // BINPUT, LONG_BINPUT, PUT, MEMOIZE
                let top = self.top()?;
                self.memo.insert(key, top);
            }
            b'h' | b'j' | b'g' => {
                let key = self.memo_key(opcode)?; // BINGET, LONG_BINGET, GET
                let id = *self.memo.get(&key).ok_or(PickleError::Damaged(self.at))?;
                self.stack.push(id);
            }
            _ => return self.program(opcode),
        }
        Ok(())
    }

    /// Opcodes that name a class or call it. PyTorch's pickler wraps typed lists in a call with the list as its only
    /// argument (`build_intlist`); such a call is read as its argument, any other as nothing.
    fn program(&mut self, opcode: u8) -> Result<(), PickleError> {
        match opcode {
            b'c' => {
                self.line()?; // GLOBAL: module, then name
                self.line()?;
                self.push(Node::None);
            }
            b'R' => {
                let arguments = self.pop()?; // REDUCE
                self.pop()?;
                let only = match self.tree.list(arguments) {
                    [only] => Some(*only),
                    _ => None,
                };
                match only {
                    Some(only) => self.stack.push(only),
                    None => self.push(Node::None),
                }
            }
            _ => return Err(PickleError::NotData { at: self.at - 1, opcode }),
        }
        Ok(())
    }

    fn memo_key(&mut self, opcode: u8) -> Result<u64, PickleError> {
        Ok(match opcode {
            b'q' | b'h' => u64::from(self.byte()?),
            b'r' | b'j' => u64::from(u32::from_le_bytes(self.array()?)),
            0x94 => self.memo.len() as u64,
            _ => {
                let at = self.at;
                let line = std::str::from_utf8(self.line()?).ok();
                line.and_then(|line| line.parse().ok()).ok_or(PickleError::Damaged(at))?
            }
        })
    }

    /// Adds items to the list or dictionary on top of the stack.
    fn extend(&mut self, items: &[Id]) -> Result<(), PickleError> {
        let top = self.top()?;
        match self.tree.nodes.get_mut(top) {
            Some(Node::List(list)) => list.extend_from_slice(items),
            Some(Node::Dict(members)) => members.extend(pairs(items)),
            Some(Node::None) => {} // what a call would have made
            _ => return Err(PickleError::Damaged(self.at)),
        }
        Ok(())
    }

    fn since_mark(&mut self) -> Result<Vec<Id>, PickleError> {
        let mark = self.marks.pop().filter(|mark| *mark <= self.stack.len());
        Ok(self.stack.split_off(mark.ok_or(PickleError::Damaged(self.at))?))
    }

    fn push(&mut self, node: Node) {
        let id = self.tree.push(node);
        self.stack.push(id);
    }

    fn pop(&mut self) -> Result<Id, PickleError> {
        self.stack.pop().ok_or(PickleError::Damaged(self.at))
    }

    fn top(&self) -> Result<Id, PickleError> {
        self.stack.last().copied().ok_or(PickleError::Damaged(self.at))
    }

    fn byte(&mut self) -> Result<u8, PickleError> {
        Ok(self.take(1)?[0])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PickleError> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| PickleError::CutOff(self.at))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], PickleError> {
        let end = self.at.checked_add(length).ok_or(PickleError::CutOff(self.bytes.len()))?;
        let taken = self.bytes.get(self.at..end).ok_or(PickleError::CutOff(self.bytes.len()))?;
        self.at = end;
        Ok(taken)
    }

    /// The bytes up to the next line end, which is taken too.
    fn line(&mut self) -> Result<&'a [u8], PickleError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = memchr::memchr(b'\n', rest).ok_or(PickleError::CutOff(self.bytes.len()))?;
        self.at += length + 1;
        Ok(&rest[..length])
    }
}

fn pairs(items: &[Id]) -> Vec<(Id, Id)> {
    items.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
}

/// A little-endian integer of any length; one that does not fit becomes nothing.
fn integer(bytes: &[u8]) -> Node {
    if bytes.len() > 8 {
        return Node::None;
    }
    let filler = if bytes.last().is_some_and(|last| *last >= 0x80) { 0xff } else { 0 };
    let mut whole = [filler; 8];
    whole[..bytes.len()].copy_from_slice(bytes);
    Node::Int(i64::from_le_bytes(whole))
}

/// Protocol 0: `I01` is True, `L12L` a long, `F1.5` a float.
fn decimal(line: &[u8]) -> Node {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end_matches('L');
    match text {
        "00" => Node::Bool(false),
        "01" => Node::Bool(true),
        _ => text.parse().map(Node::Int).or_else(|_| text.parse().map(Node::Float)).unwrap_or(Node::None),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_of_all_protocols_are_read() {
        // pickle.dumps({"a": [1, -2, 300, 70000, 2**40], "b": (True, None, 1.5), "c": "x"}, protocol=N) of CPython 3.12
        let dumps: [&[u8]; 3] = [
            b"(dp0\nVa\np1\n(lp2\nI1\naI-2\naI300\naI70000\naL1099511627776L\nasVb\np3\n(I01\nNF1.5\ntp4\nsVc\np5\nVx\np6\ns.",
            b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\xfe\xff\xff\xffM,\x01Jp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01eX\x01\x00\x00\x00bq\x03\x88NG?\xf8\x00\x00\x00\x00\x00\x00\x87q\x04X\x01\x00\x00\x00cq\x05X\x01\x00\x00\x00xq\x06u.",
            b"\x80\x04\x95=\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01J\xfe\xff\xff\xffM,\x01Jp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01e\x8c\x01b\x94\x88NG?\xf8\x00\x00\x00\x00\x00\x00\x87\x94\x8c\x01c\x94\x8c\x01x\x94u.",
        ];
        for dump in dumps {
            let tree = read(dump).unwrap();
            let numbers: Vec<_> = tree.list_of(tree.root, "a").iter().map(|id| tree.int(*id)).collect();
            assert_eq!(numbers, [1, -2, 300, 70000, 1 << 40].map(Some));
            let mixed: Vec<_> = tree.list_of(tree.root, "b").iter().map(|id| tree.node(*id).clone()).collect();
            assert_eq!(mixed, [Node::Bool(true), Node::None, Node::Float(1.5)]);
            assert_eq!(tree.text_of(tree.root, "c"), Some("x"));
        }
    }

    #[test]
    fn nothing_is_run_and_nothing_is_written_out() {
        // os.system("true"), as pickle.dumps would call it: read as its argument.
        let call = b"\x80\x02}(X\x01\x00\x00\x00acposix\nsystem\nX\x04\x00\x00\x00true\x85Ru.";
        let tree = read(call).unwrap();
        assert_eq!(tree.text_of(tree.root, "a"), Some("true"));
        assert!(matches!(read(b"\x80\x02cos\nx\n)\x81."), Err(PickleError::NotData { opcode: 0x81, .. })));
        // A list of two of a list of two of … 60 deep: 2^60 values when written out.
        let mut bomb = b"\x80\x02]q\x00".to_vec();
        for depth in 1..60u8 {
            bomb.extend([b']', b'q', depth, b'(', b'h', depth - 1, b'h', depth - 1, b'e']);
        }
        bomb.push(b'.');
        assert_eq!(read(&bomb).unwrap().nodes.len(), 60);
    }

    #[test]
    fn a_cut_pickle_says_so() {
        assert_eq!(read(b"\x80\x02}q\x00(X\x09\x00\x00\x00ent").err(), Some(PickleError::CutOff(14)));
        assert_eq!(read(b"\x80\x02u.").err(), Some(PickleError::Damaged(3)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }

        #[test]
        fn any_opcodes_are_read_or_refused(opcodes in proptest::collection::vec(proptest::sample::select(b"]}()eusatl012NhqKR.\x00\x01".to_vec()), 0..80)) {
            let _ = read(&opcodes);
        }
    }
}
