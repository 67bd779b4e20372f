//! GPUs of a host that copy more slowly than the others, as nvbandwidth measured them: what they should reach needs no knowledge of the machine.

use super::found;
use crate::case::Case;
use crate::curve::median;
use crate::peers;
use crate::words::listed;
use busbw_model::{Blame, CopyTable, Evidence, Finding, Judged, Judgement, PeerGroup, SlowPeer, Subject};
use std::fmt::Display;

/// More than any PCIe slot carries in one direction (6.0 x16 has 128 GB/s before its headers), so NVLink joins the GPUs.
const ABOVE_PCIE: f64 = 128.0;
/// Direct copies that reach less than so much of what goes through the host's memory take a detour.
const DETOUR: f64 = 0.8;
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

/// Whether GPUs copy directly to each other more slowly than through the host's memory, both as p2pBandwidthLatencyTest measured them.
pub fn detours(case: &Case) -> Vec<Finding> {
    let usual = |table: &CopyTable| median(table.copies.iter().map(|copy| copy.gb_s).collect());
    let mut compared = case.run.copies.iter().filter_map(|table| {
        let (kind, _) = table.what.split_once("P2P=Enabled")?;
        let through_host = format!("{kind}P2P=Disabled");
        let other = case.run.copies.iter().find(|other| other.what.starts_with(&through_host))?;
        Some((table, usual(table)?, usual(other)?))
    });
    let slow = compared.find(|(_, direct, through_host)| *direct < DETOUR * through_host);
    let finding = slow.map(|(table, direct, through_host)| {
        let (direct, through_host) = (format!("{direct:.1} GB/s"), format!("{through_host:.1} GB/s"));
        let words: [(&str, &dyn Display); 2] = [("direct", &direct), ("through_host", &through_host)];
        found("copies.detour", &words, vec![Evidence::new(table.copies[0].source.clone())])
    });
    finding.into_iter().collect()
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
