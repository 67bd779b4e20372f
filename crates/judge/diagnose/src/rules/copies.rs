//! GPUs of a host that copy more slowly than the others, as nvbandwidth measured them: what they should reach needs no knowledge of the machine.

use super::found;
use crate::case::Case;
use crate::peers;
use crate::words::listed;
use busbw_model::{Blame, CopyTable, Evidence, Finding, Judged, Judgement, PeerGroup, SlowPeer, Subject};
use std::fmt::Display;

/// More than any PCIe slot carries in one direction (6.0 x16 has 128 GB/s before its headers), so NVLink joins the GPUs.
const ABOVE_PCIE: f64 = 128.0;
/// Of the pairs, one in so many may be slow: more of them are how the machine is wired.
const WIRED: usize = 4;

/// The slow GPUs and pairs of each table, each once: the tables of a run measure the same links in several ways.
pub fn rule(case: &Case) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for (table, group) in compared(case) {
        if let Some(finding) = slow(table, &group).filter(|new| findings.iter().all(|old| old.code != new.code)) {
            findings.push(finding);
        }
    }
    findings
}

/// Whether the copies of each kind are alike; whether their speed is right is asked, where the input is about nothing else.
pub fn judge(case: &Case) -> Vec<Judged> {
    let alone = case.run.tables.is_empty() && case.run.communicators.is_empty();
    let judged = compared(case).map(|(table, group)| judged(table, &group));
    judged.filter(|one| alone || one.outcome != Judgement::Undecided).collect()
}

fn compared<'c>(case: &'c Case) -> impl Iterator<Item = (&'c CopyTable, PeerGroup)> {
    case.run.copies.iter().filter_map(|table| Some((table, peers::of_copies(table)?)))
}

/// Who is slow: a GPU with all others, or few pairs.
fn blamed(group: &PeerGroup) -> Vec<&SlowPeer> {
    let gpus: Vec<&SlowPeer> = group.blamed(Blame::Node).collect();
    let few = WIRED * (group.measured - group.usual) <= group.measured;
    if gpus.is_empty() && few { group.slow.iter().collect() } else { gpus }
}

fn slow(table: &CopyTable, group: &PeerGroup) -> Option<Finding> {
    let slow = blamed(group);
    let of_nvlink = table.is_between_gpus() && group.median > ABOVE_PCIE;
    let id = if of_nvlink { "copies.links" } else { "copies.pcie" };
    let named = slow.iter().map(|peer| format!("{} ({:.1} GB/s)", peer.hosts.join(" with "), peer.value));
    let who = listed(named, 4);
    let words: [(&str, &dyn Display); 3] =
        [("who", &who), ("what", &table.what), ("median", &format!("{:.1} GB/s", group.median))];
    let evidence = slow.iter().take(4).map(|peer| Evidence::new(peer.source.clone())).collect();
    (!slow.is_empty()).then(|| found(id, &words, evidence))
}

fn judged(table: &CopyTable, group: &PeerGroup) -> Judged {
    let slow = blamed(group).len();
    let how = format!("{:.1} GB/s in the median, {:.1} to {:.1}", group.median, group.least, group.most);
    let question = format!(
        "{} reaches {how}. Is that what the links carry? Add `nvidia-smi topo -m` and `nvidia-smi -q`, or a table of nccl-tests",
        table.what
    );
    if slow > 0 {
        return Judged::new(Subject::Host, &table.what, how, Judgement::Failed);
    }
    Judged::open(Subject::Host, &table.what, how, question)
}
