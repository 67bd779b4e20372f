//! Phrases that text and page share: how a node, a communicator, a table is put into words.

pub(crate) mod comparison;
pub(crate) mod tuning;

use crate::style::clean_line;
pub(crate) use busbw_model::counted;
use busbw_model::{
    Alternative, BenchTable, Blame, Code, Communicator, Crossing, Diagnosis, EnvOrigin, EnvSetting, Expected, Finding,
    Gain, GdrUse, Input, Judgement, Node, PeerGroup, Place, Reached, Run, Severity, Verdict,
};
use std::collections::{BTreeMap, BTreeSet};

/// Decimals that give a figure as many digits that count; none where its whole part has them.
pub(crate) fn decimals(value: f64, digits: i32) -> usize {
    if value == 0.0 {
        return 0;
    }
    (digits - 1 - value.abs().log10().floor().clamp(-9.0, 9.0) as i32).max(0) as usize
}

/// What was found in an input: `nccl-tests + nccl-log`.
pub(crate) fn kinds(input: &Input) -> String {
    let kinds: Vec<&str> = input.kinds.iter().map(|kind| kind.name()).collect();
    if kinds.is_empty() { "nothing recognised".into() } else { kinds.join(" + ") }
}

/// The GPUs of a node: `8 × NVIDIA H20`.
pub(crate) fn gpus(node: &Node) -> String {
    let mut names: Vec<(&str, usize)> = Vec::new();
    for gpu in &node.gpus {
        let name = gpu.name.as_deref().unwrap_or("GPU");
        match names.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => names.push((name, 1)),
        }
    }
    let parts: Vec<String> = names.iter().map(|(name, count)| format!("{count} × {}", clean_line(name))).collect();
    parts.join(", ")
}

/// The NICs of a node by kind of link: `mlx5_0, mlx5_2 (RoCE), eth0 (Socket)`.
pub(crate) fn nics(node: &Node) -> String {
    let mut links: Vec<(&str, Vec<&str>)> = Vec::new();
    for nic in &node.nics {
        let link = nic.link.as_deref().unwrap_or("");
        match links.iter_mut().find(|(known, _)| *known == link) {
            Some((_, names)) => names.push(&nic.name),
            None => links.push((link, vec![&nic.name])),
        }
    }
    let part = |(link, names): &(&str, Vec<&str>)| match *link {
        "" => names.join(", "),
        link => format!("{} ({link})", names.join(", ")),
    };
    clean_line(&links.iter().map(part).collect::<Vec<_>>().join(", ")).into_owned()
}

/// The host of a rank; `node 3` when the node has no name, `?` when it is not known.
pub(crate) fn host_of(run: &Run, comm: &Communicator, rank: u32) -> String {
    comm.node_of(rank).map_or_else(|| "?".into(), |node| host(run, node))
}

pub(crate) fn host(run: &Run, node: u32) -> String {
    match run.nodes.get(node as usize) {
        Some(node) if !node.host.is_empty() => clean_line(&node.host).into_owned(),
        _ => format!("node {node}"),
    }
}

/// `run.log:21`, or the path alone when the whole input is meant.
pub(crate) fn location(run: &Run, place: Place) -> String {
    match place.line {
        0 => run.path(place).to_string(),
        line => format!("{}:{line}", run.path(place)),
    }
}

/// What a communicator is: `16 ranks on 2 nodes`, `16 channels`, `NET/IB and P2P`, `GPUDirect RDMA`.
pub(crate) fn communicator(comm: &Communicator) -> Vec<String> {
    let mut facts = Vec::new();
    let nodes = comm.nnodes.map(|nodes| counted(nodes as usize, "node"));
    match (comm.nranks, nodes) {
        (Some(ranks), Some(nodes)) => facts.push(format!("{} on {nodes}", counted(ranks as usize, "rank"))),
        (Some(ranks), None) => facts.push(counted(ranks as usize, "rank")),
        (None, Some(nodes)) => facts.push(nodes),
        (None, None) => {}
    }
    if let Some(channels) = comm.coll_channels {
        facts.push(counted(channels as usize, "channel"));
    }
    if let Some(channels) = comm.nvls_channels.filter(|channels| *channels > 0) {
        facts.push(counted(channels as usize, "NVLS channel"));
    }
    let transports = comm.transport_names();
    if !transports.is_empty() {
        facts.push(clean_line(&transports.join(" + ")).into_owned());
    }
    facts.extend(comm.gdr().map(|gdr| self::gdr(gdr).to_string()));
    facts
}

/// Whether the network uses GPUDirect RDMA, in words.
pub(crate) fn gdr(gdr: GdrUse) -> &'static str {
    match gdr {
        GdrUse::All => "GPUDirect RDMA",
        GdrUse::None => "no GPUDirect RDMA",
        GdrUse::Mixed => "GPUDirect RDMA on some connections only",
    }
}

/// Rings that differ, each with the channels that have it.
pub(crate) fn distinct_rings(comm: &Communicator) -> Vec<(Vec<u16>, &[u32])> {
    let mut rings: Vec<(Vec<u16>, &[u32])> = Vec::new();
    for (id, channel) in &comm.channels {
        let Some(ring) = &channel.ring else { continue };
        match rings.iter_mut().find(|(_, ranks)| *ranks == ring.ranks) {
            Some((channels, _)) => channels.push(*id),
            None => rings.push((vec![*id], &ring.ranks)),
        }
    }
    rings
}

/// The ranks of a ring; `▶` where it goes to another node.
pub(crate) fn ring(comm: &Communicator, ranks: &[u32]) -> String {
    let crosses = |from: u32, to: u32| match (comm.node_of(from), comm.node_of(to)) {
        (Some(from), Some(to)) => from != to,
        _ => false,
    };
    let mut text = String::new();
    for (index, rank) in ranks.iter().enumerate() {
        text.push_str(&rank.to_string());
        let next = ranks[(index + 1) % ranks.len()];
        text.push_str(if crosses(*rank, next) { " ▶ " } else { " " });
    }
    text.trim_end().to_string()
}

/// How many rank pairs and channels go from node to node, by sending and receiving node.
pub(crate) fn node_crossings(comm: &Communicator, crossings: &[Crossing]) -> BTreeMap<(u32, u32), (usize, usize)> {
    let mut sums: BTreeMap<(u32, u32), (usize, usize)> = BTreeMap::new();
    for crossing in crossings {
        let (Some(from), Some(to)) = (comm.node_of(crossing.from), comm.node_of(crossing.to)) else { continue };
        let (pairs, channels) = sums.entry((from, to)).or_default();
        *pairs += 1;
        *channels += crossing.channels.len();
    }
    sums
}

/// Channel ids, runs of three and more abbreviated: `0 4 8 12`, `0–15`.
pub(crate) fn channel_ids(channels: &[u16]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for run in channels.chunk_by(|a, b| a.checked_add(1) == Some(*b)) {
        match run {
            [first, .., last] if run.len() > 2 => parts.push(format!("{first}–{last}")),
            _ => parts.extend(run.iter().map(u16::to_string)),
        }
    }
    parts.join(" ")
}

/// Names of the NICs over which rank pairs are connected, by sender and receiver. Only pairs in `wanted` are looked up.
pub(crate) fn pair_nics(
    run: &Run,
    comm: &Communicator,
    wanted: &BTreeSet<(u32, u32)>,
) -> BTreeMap<(u32, u32), BTreeSet<String>> {
    let mut found: BTreeMap<(u32, u32), BTreeSet<String>> = BTreeMap::new();
    for edge in comm.edges.iter().filter(|edge| wanted.contains(&(edge.from, edge.to))) {
        let Some(index) = comm.transports.get(usize::from(edge.transport)).and_then(|t| t.nic) else { continue };
        let node = match edge.end {
            busbw_model::EdgeEnd::Send => comm.node_of(edge.from),
            busbw_model::EdgeEnd::Receive => continue, // names the receiver's NIC
        };
        let nics =
            node.and_then(|node| run.nodes.get(node as usize)).map(|node| node.nics.as_slice()).unwrap_or_default();
        let name = nics.iter().find(|nic| nic.index == Some(index)).map(|nic| clean_line(&nic.name).into_owned());
        found.entry((edge.from, edge.to)).or_default().insert(name.unwrap_or_else(|| format!("NIC {index}")));
    }
    found
}

/// A table's title: `all_reduce, 16 ranks, float sum`.
pub(crate) fn table_title(table: &BenchTable) -> String {
    let mut parts = vec![table.collective.map_or("unknown collective", |c| c.name()).to_string()];
    parts.extend(table.nranks.map(|ranks| counted(ranks as usize, "rank")));
    if let Some(row) = table.rows.first() {
        let kind = [row.datatype.map(|d| d.name()), row.redop.map(|r| r.name())];
        let kind: Vec<&str> = kind.into_iter().flatten().collect();
        if !kind.is_empty() {
            parts.push(kind.join(" "));
        }
    }
    parts.join(", ")
}

/// Average and peak of a table, as far as it has them: `average 22.43 GB/s`, `peak 48.23 GB/s at 256 MiB`.
pub(crate) fn table_figures(table: &BenchTable) -> Vec<String> {
    let average = table.avg_busbw().map(|busbw| format!("average {busbw}"));
    let peak = table.peak().map(|(row, busbw)| format!("peak {busbw} at {}", row.size));
    average.into_iter().chain(peak).collect()
}

/// What the programs call themselves: `NCCL 2.27.7+cuda12.4`, `nccl-tests 2.17.4`; each once.
pub(crate) fn versions(run: &Run) -> Vec<String> {
    let library = run.nccl.versions.iter().map(|v| format!("{} {}", v.library.name().to_uppercase(), v.version));
    let settings = || run.tables.iter().map(|table| &table.settings);
    let linked = settings().filter_map(|s| s.nccl_version.as_ref()).map(|version| format!("NCCL {version}"));
    let tests = settings().filter_map(|s| s.nccl_tests_version.as_ref()).map(|version| format!("nccl-tests {version}"));
    let mut found: Vec<String> = Vec::new();
    for version in library.chain(linked).chain(tests) {
        let version = clean_line(&version).into_owned();
        // The table prints 2.27.7 where the log prints 2.27.7+cuda12.4.
        let with_cuda = format!("{version}+");
        if !found.iter().any(|known| *known == version || known.starts_with(&with_cuda)) {
            found.push(version);
        }
    }
    found
}

/// The first setting of every variable from one origin, in order of appearance.
pub(crate) fn settings(run: &Run, origin: EnvOrigin) -> impl Iterator<Item = &EnvSetting> {
    let mut seen = BTreeSet::new();
    run.nccl.env.iter().filter(move |setting| setting.origin == origin && seen.insert(setting.name.as_str()))
}

/// `NAME=value` of these settings.
pub(crate) fn assignments(run: &Run, origin: EnvOrigin) -> Vec<String> {
    let assignment = |setting: &EnvSetting| clean_line(&format!("{}={}", setting.name, setting.value)).into_owned();
    settings(run, origin).map(assignment).collect()
}

/// `33.94 GB/s → 46.00 to 48.50 GB/s (basis)`.
pub(crate) fn gain(gain: &Gain) -> String {
    let basis = if gain.basis.is_empty() { String::new() } else { format!(" ({})", gain.basis) };
    format!("{}{basis}", gain_figures(gain))
}

/// `33.94 GB/s → 46.00 to 48.50 GB/s`.
pub(crate) fn gain_figures(gain: &Gain) -> String {
    let (low, high) = gain.to_busbw;
    let to = if low == high { low.to_string() } else { format!("{:.2} to {high}", low.0) };
    format!("{} → {to}", gain.from_busbw)
}

/// `48.50 GB/s at 16 GiB, limited by the NIC: why`.
pub(crate) fn expected(expected: &Expected) -> String {
    let size = expected.at.map(|size| format!(" at {size}")).unwrap_or_default();
    format!("{}{size}, limited by {}: {}", expected.busbw, expected.bottleneck, expected.why)
}

/// The page of a finding's code; `busbw explain --code` prints the same.
pub(crate) fn code_page(code: Code) -> String {
    format!("{}/blob/main/docs/findings/{code}.md", env!("CARGO_PKG_REPOSITORY"))
}

/// How sure a rule is, in percent.
pub(crate) fn confidence(confidence: f64) -> String {
    format!("confidence {:.0}%", confidence * 100.0)
}

/// Another cause of what a finding shows: `A process was killed (peer.died, 25%): see \`dmesg\``.
pub(crate) fn alternative(other: &Alternative) -> String {
    format!("{} ({}, {:.0}%). {}.", other.cause, other.code, other.share * 100.0, other.tell)
}

/// Whether a finding is shown in short: an info beside errors and warnings.
pub(crate) fn in_short(diagnosis: &Diagnosis, severity: Severity) -> bool {
    severity == Severity::Info && diagnosis.has_problems()
}

/// How peers compare: what was measured, and how it spreads.
pub(crate) fn peers(group: &PeerGroup) -> String {
    let figure = |value| group.figure(value);
    format!(
        "{}: {} measured, of {}; median {} {}, median deviation {}, from {} to {}; {} are not slow",
        group.what,
        group.measured,
        counted(group.nodes, "node"),
        figure(group.median),
        group.unit,
        figure(group.deviation),
        figure(group.least),
        figure(group.most),
        group.usual,
    )
}

/// What is to blame for a slow one.
pub(crate) fn blame(blame: Blame) -> &'static str {
    match blame {
        Blame::Node => "the node",
        Blame::Between => "what lies between: both are fast with others",
        Blame::Open => "one of them, or what lies between",
    }
}

/// Findings of one code and severity that are shown at most; a fleet has hundreds alike.
const MOST_ALIKE: usize = 5;

/// The findings to show, and how many like them are not, by severity and code.
pub(crate) fn without_alike(findings: &[Finding]) -> (Vec<&Finding>, Vec<(Severity, Code, usize)>) {
    let mut counts: BTreeMap<(std::cmp::Reverse<Severity>, Code), usize> = BTreeMap::new();
    let mut first_of_its_kind = |finding: &&Finding| {
        let count = counts.entry((std::cmp::Reverse(finding.severity), finding.code)).or_default();
        *count += 1;
        *count <= MOST_ALIKE
    };
    let shown = findings.iter().filter(|finding| first_of_its_kind(finding)).collect();
    let left = counts.into_iter().filter(|(_, count)| *count > MOST_ALIKE);
    (shown, left.map(|((severity, code), count)| (severity.0, code, count - MOST_ALIKE)).collect())
}

/// The first sentence of an explanation.
pub(crate) fn first_sentence(text: &str) -> &str {
    let text = text.trim();
    let paragraph = text.split("\n\n").next().unwrap_or(text);
    let end = [". ", ".\n"].iter().filter_map(|stop| paragraph.find(stop)).min();
    end.map_or(paragraph, |end| &paragraph[..=end])
}

/// The speed that the verdict speaks of: one that is too low, else the first.
pub(crate) fn judged_speed(diagnosis: &Diagnosis) -> Option<Reached> {
    let judged = diagnosis.judged.iter().filter(|judged| judged.speed.is_some());
    let failed = judged.clone().find(|judged| judged.outcome == Judgement::Failed);
    // What has failed otherwise is not told by a good speed.
    let any = judged.clone().next().filter(|_| diagnosis.verdict != Verdict::Failed);
    failed.or(any)?.speed
}

/// The sentences of an explanation, one after the other.
pub(crate) fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text.trim();
    std::iter::from_fn(move || {
        let sentence = first_sentence(rest);
        rest = rest[sentence.len()..].trim_start();
        (!sentence.is_empty()).then_some(sentence)
    })
}

/// Who keeps the others waiting, in a line; none where the summary says it already.
pub(crate) fn culprit(diagnosis: &Diagnosis) -> Option<String> {
    let said = diagnosis.culprit.as_ref()?.to_string();
    (said != diagnosis.summary).then_some(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_that_follow_each_other_are_abbreviated() {
        let cases: [(&[u16], &str); 5] = [
            (&[], ""),
            (&[3], "3"),
            (&[0, 1], "0 1"),
            (&[0, 4, 8, 12], "0 4 8 12"),
            (&[0, 1, 2, 3, 7, 65534, 65535], "0–3 7 65534 65535"),
        ];
        for (channels, text) in cases {
            assert_eq!(channel_ids(channels), text);
        }
    }

    #[test]
    fn a_sentence_ends_at_a_full_stop_before_white_space() {
        assert_eq!(first_sentence("NCCL 2.18 does it. More."), "NCCL 2.18 does it.");
        assert_eq!(first_sentence("no full stop\n\nsecond"), "no full stop");
    }
}
