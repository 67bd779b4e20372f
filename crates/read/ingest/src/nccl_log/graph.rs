//! Rings and trees: `Channel 00/16 : 0 7 5 …`, `Ring 00 : 6 -> 7 -> 0`, `Trees [0] 1/-1/-1->0->-1`.

use crate::cursor::Cursor;
use busbw_model::{ChannelSet, Tree, TreeLinks};

/// A ring in its order: `Channel 00/16 :    0   7   5`, printed by rank 0. NCCL 2.4 prints no `/16`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RingLine {
    pub channel: u16,
    /// Number of channels, where printed.
    pub of: Option<u16>,
    pub ranks: Vec<u32>,
}

/// Reads a ring line; a line torn inside the list of ranks keeps the ranks before the tear.
pub(crate) fn ring(message: &[u8]) -> Option<RingLine> {
    let mut at = Cursor::new(message);
    at.expect(b"Channel ")?;
    let channel = at.small()?;
    let of = if at.eat(b"/") { Some(at.small()?) } else { None };
    at.expect(b" :")?;
    if of.is_some_and(|of| of <= channel) || ChannelSet::of(channel).is_empty() {
        return None; // `Channel 02/0 : 7` is the beginning of a torn edge
    }
    let mut ranks = Vec::new();
    loop {
        at.spaces();
        let mut ahead = at;
        let Some(rank) = ahead.small() else { break };
        if !matches!(ahead.rest().first(), None | Some(b' ' | b'\t' | b'\r' | b'\n')) {
            break; // `12host:` or `3[1] -> 4[2]`: the number does not end here
        }
        ranks.push(rank);
        at = ahead;
    }
    (!ranks.is_empty()).then_some(RingLine { channel, of, ranks })
}

/// A rank's place in a ring: `Ring 00 : 6 -> 7 -> 0` (subsystem GRAPH, every rank).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingLink {
    pub channel: u16,
    pub rank: u32,
    pub next: u32,
}

pub(crate) fn ring_link(message: &[u8]) -> Option<RingLink> {
    let mut at = Cursor::new(message);
    at.expect(b"Ring ")?;
    let channel = at.small()?;
    at.expect(b" : ")?;
    at.small::<u32>()?;
    at.expect(b" -> ")?;
    let rank = at.small()?;
    at.expect(b" -> ")?;
    let next = at.small()?;
    at.at_end().then_some(RingLink { channel, rank, next })
}

/// Adds a rank's place in trees to those behind `from`. Of a channel that is reported twice the first stays.
pub(crate) fn add_tree(trees: &mut Vec<Tree>, from: usize, mut tree: Tree) {
    trees[from..].iter().for_each(|known| tree.channels.remove(known.channels));
    match trees[from..].iter_mut().find(|known| (known.rank, known.links) == (tree.rank, tree.links)) {
        Some(known) => known.channels.add(tree.channels),
        None if tree.channels.is_empty() => {}
        None => trees.push(tree),
    }
}

/// Reads `Trees [0] 1/-1/-1->0->-1 [1] …`. NCCL 2.4 prints `up->me->down/-1/-1`; 2.5 to 2.7 print the channel's two trees
/// joined by `|`, of which the first is kept (the second is its mirror). A line that is torn keeps what was whole.
pub(crate) fn trees(message: &[u8]) -> Option<Vec<Tree>> {
    let mut at = Cursor::new(message);
    at.expect(b"Trees")?;
    let mut found = Vec::new();
    let mut last: (&[u8], Option<(u32, TreeLinks)>) = (b"", None);
    loop {
        at.spaces();
        let Some(channel) = at.bracketed().and_then(|c| Cursor::new(c).small()) else { break };
        at.spaces();
        // Most channels have the links of the one before.
        match at.rest().strip_prefix(last.0) {
            Some(rest @ ([] | [b' ', ..])) if !last.0.is_empty() => at = Cursor::new(rest),
            _ => {
                let word = at.word();
                last = (word, tree_entry(&mut Cursor::new(word)));
            }
        }
        let Some((rank, links)) = last.1 else { break };
        add_tree(&mut found, 0, Tree { rank, links, channels: ChannelSet::of(channel) });
    }
    (!found.is_empty()).then_some(found)
}

/// `1/-1/-1->0->-1` (children first) or `-1->0->1/-1/-1` (parent first, NCCL 2.4).
fn tree_entry(at: &mut Cursor) -> Option<(u32, TreeLinks)> {
    let first = children(at)?;
    at.expect(b"->")?;
    let rank = at.small()?;
    at.expect(b"->")?;
    let last = children(at)?;
    let (down, up) = if first.1 > 1 || last.1 == 1 { (first.0, last.0[0]) } else { (last.0, first.0[0]) };
    Some((rank, TreeLinks::new(up, down)))
}

/// Up to three ranks joined by `/`, and how many were printed.
fn children(at: &mut Cursor) -> Option<([Option<u32>; 3], usize)> {
    let mut ranks = [None; 3];
    let mut count = 0;
    loop {
        ranks[count] = at.rank_or_none()?;
        count += 1;
        if count == 3 || !at.eat(b"/") {
            return Some((ranks, count));
        }
    }
}

/// Reads `Tree 0 : 5 -> 6 -> 7/-1/-1` (subsystem GRAPH: parent -> me -> children).
pub(crate) fn tree(message: &[u8]) -> Option<Tree> {
    let mut at = Cursor::new(message);
    at.expect(b"Tree ")?;
    let channel = at.small()?;
    at.expect(b" : ")?;
    let up = at.rank_or_none()?;
    at.expect(b" -> ")?;
    let rank = at.small()?;
    at.expect(b" -> ")?;
    let (down, _) = children(&mut at)?;
    Some(Tree { rank, links: TreeLinks::new(up, down), channels: ChannelSet::of(channel) })
}
