//! What was found, in words.

use super::slow::{Matrix, Side, SlowEnd, SlowLink};
use busbw_model::{Code, Finding, Link, LinkFigures, LinkRun, LinkTransport, Severity, gbit, median};

/// Below this share of the NIC's rate, something holds all links back. Perftest reaches 0.92 and more of an InfiniBand or
/// RoCE port (docs/link.md); what TCP reaches is the CPU's matter as well.
const RDMA_SHARE: f64 = 0.85;
const TCP_SHARE: f64 = 0.5;
/// So many times one flow's bandwidth shows that it is the flow that is limited.
const MORE_WITH_FLOWS: f64 = 2.0;
/// As long as n flows carry this share of n times what one does, each is at its limit.
const IN_PROPORTION: f64 = 0.75;
/// TCP probes for bandwidth by losing a little; more than this costs.
const RESENT: f64 = 0.01;

fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).to_vec()
}

/// Pairs that could not be measured: a finding for each end that is lost, one for all others.
pub(super) fn unreachable(run: &LinkRun) -> Vec<Finding> {
    let lost = run.ends.iter().filter_map(|end| end.trouble.as_deref());
    let mut found: Vec<Finding> = lost
        .map(|trouble| Finding {
            remedy: texts(["Look at that host: is it up, is its cable in, what did its process say last?"]),
            ..Finding::new(
                Code::NetUnreachable,
                Severity::Error,
                0.95,
                trouble,
                "Its links have no figure; those of the others were measured.",
            )
        })
        .collect();
    let known = |end: usize| run.ends.get(end).is_some_and(|end| end.trouble.is_some());
    for link in run.links.iter().filter(|link| link.from < link.to && run.interrupted.is_none()) {
        let Err(reason) = &link.outcome else { continue };
        if !known(link.from) && !known(link.to) {
            let title = format!("{} and {}: {reason}", run.name(link.from), run.name(link.to));
            found.push(Finding::new(Code::NetUnreachable, Severity::Error, 0.9, title, "This pair has no figure."));
        }
    }
    found
}

/// An end with which nearly all links are slow.
pub(super) fn slow_end(run: &LinkRun, matrix: &Matrix, slow: &SlowEnd) -> Finding {
    let name = run.name(slow.end);
    let does = match slow.side {
        Side::Sends => "sends",
        Side::Receives => "receives",
        Side::Both => "sends and receives",
    };
    let (own, others) = (gbit(slow.gbit_s), gbit(slow.others_gbit_s));
    let title = format!("{name} is slow: it {does} {own} Gbit/s, where links of the others carry {others}");
    let rate = |end: usize| run.ends.get(end).and_then(|end| end.rate_gbit_s);
    let others_rate = median((0..run.ends.len()).filter(|end| *end != slow.end).filter_map(rate));
    let (code, why) = match (rate(slow.end), others_rate) {
        (Some(own), Some(others)) if own < 0.9 * others => {
            (Code::NicRate, format!(" Its NIC runs at {own} Gbit/s, those of the others at {others}."))
        }
        _ => (Code::StragglerNode, String::new()),
    };
    let all = matrix.median().map(|median| format!(" The median of all links is {} Gbit/s.", gbit(median)));
    let explanation = format!(
        "Nearly all links of {name} are slow, and the links between the others are not. So the cause is this host, \
         its cable or its switch port, not the path between two hosts. A collective over all hosts runs at this speed.{why}{}",
        all.unwrap_or_default()
    );
    let nic = run.ends.get(slow.end).map(|end| end.nic.clone()).unwrap_or_default();
    let look = match run.transport {
        LinkTransport::Tcp => format!(
            "On {name}, look at speed, duplex and what shapes the traffic: `ethtool {nic}; tc -s qdisc show dev {nic}`"
        ),
        LinkTransport::Rdma => {
            format!("On {name}, look at the port's rate and state: `ibstat {nic}; rdma link show {nic}/1`")
        }
    };
    let check = format!("Compare {name} with a host that is not slow: `busbw check`");
    Finding { remedy: vec![look, check], ..Finding::new(code, Severity::Error, 0.9, title, explanation) }
}

/// A link that is slow although its ends are not.
pub(super) fn slow_link(run: &LinkRun, slow: &SlowLink) -> Finding {
    let (from, to) = (run.name(slow.cell.from), run.name(slow.cell.to));
    let (arrow, back) = match slow.back_gbit_s {
        Some(back) => ("↔", format!(" ({} back)", gbit(back))),
        None => ("→", String::new()),
    };
    let (own, others) = (gbit(slow.cell.gbit_s), gbit(slow.others_gbit_s));
    let title = format!("the link {from} {arrow} {to} is slow: {own} Gbit/s{back}, where others carry {others}");
    let explanation = format!(
        "{from} and {to} are fast with other hosts, so the cause is on the path between them: \
         a link between switches, a hash that puts several flows on one link, or a cable with errors."
    );
    let remedy = texts([
        "Measure again: a hash may choose other links, a bad cable stays slow.",
        "Look at the error counters of the switch ports between the two hosts.",
    ]);
    Finding { remedy, ..Finding::new(Code::FabricCongestion, Severity::Error, 0.7, title, explanation) }
}

/// Whether something says what the links should reach: the user, the NICs' rate, or a third host to compare with.
pub(super) fn can_be_judged(run: &LinkRun) -> bool {
    run.expected_gbit_s.is_some() || run.ends.len() > 2 || run.ends.iter().all(|end| end.rate_gbit_s.is_some())
}

/// Links that carry less than the user expects, by the share that a healthy link of that rate carries.
pub(super) fn below_expected(run: &LinkRun) -> Option<Finding> {
    let expected = run.expected_gbit_s?;
    let measured = || run.links.iter().filter_map(|link| Some((link, link.outcome.as_ref().ok()?.gbit_s)));
    let below: Vec<(&Link, f64)> = measured().filter(|(_, gbit_s)| *gbit_s < RDMA_SHARE * expected).collect();
    let (worst, least) = below.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let (from, to) = (run.name(worst.from), run.name(worst.to));
    let (percent, least) = (100.0 * least / expected, gbit(least));
    let title = format!("{least} of {expected} Gbit/s expected ({percent:.0}%) from {from} to {to}");
    let explanation = format!(
        "{} of {} links stay below {:.0}% of the rate that you expect. Headers and acknowledgements take up to a tenth of a healthy \
         link; with an MTU of 1024 or 1500, some more.",
        below.len(),
        measured().count(),
        100.0 * RDMA_SHARE
    );
    Some(Finding {
        remedy: remedies(run.transport),
        ..Finding::new(Code::NicRate, Severity::Warning, 0.8, title, explanation)
    })
}

/// What to look at where links are slow.
fn remedies(transport: LinkTransport) -> Vec<String> {
    match transport {
        LinkTransport::Rdma => texts([
            "Look at PCIe width and speed, MTU and NUMA node of the NICs: `busbw check`",
            "Try more queue pairs and larger messages: `busbw link --rdma --flows 1,2,4,8 --size 8M …`",
        ]),
        LinkTransport::Tcp => texts([
            "Look at MTU (9000), offloads and queues of the NICs: `busbw check`",
            "Measure over RDMA, where the NICs can: `busbw link --rdma …`",
        ]),
    }
}

/// All links stay far below what their NICs are sold as. What the user expects comes before that.
pub(super) fn below_rate(run: &LinkRun) -> Option<Finding> {
    if run.expected_gbit_s.is_some() {
        return None;
    }
    let rate = |end: usize| run.ends.get(end).and_then(|end| end.rate_gbit_s);
    let share = |link: &Link| {
        let rate = rate(link.from)?.min(rate(link.to)?);
        Some((link.outcome.as_ref().ok()?.gbit_s / rate, rate))
    };
    let shares: Vec<(f64, f64)> = run.links.iter().filter_map(share).collect();
    let typical = median(shares.iter().map(|(share, _)| *share))?;
    let rate = median(shares.iter().map(|(_, rate)| *rate))?;
    let least = if run.transport == LinkTransport::Rdma { RDMA_SHARE } else { TCP_SHARE };
    if typical >= least {
        return None;
    }
    let percent = typical * 100.0;
    let title = format!("links reach {percent:.0}% of the NICs' {rate} Gbit/s");
    let explanation = match run.transport {
        LinkTransport::Rdma => "On a healthy port, perftest's write reaches at least 90% of the rate.",
        LinkTransport::Tcp => {
            "Over TCP the CPU is often the limit: check whether a core is always busy. RDMA does not need the CPU."
        }
    };
    Some(Finding {
        remedy: remedies(run.transport),
        ..Finding::new(Code::NicRate, Severity::Warning, 0.7, title, explanation)
    })
}

/// Counters that move when a packet is missing; the others in [`crate::losses`] also do when an answer comes late.
const MISSING: [&str; 5] =
    ["out_of_sequence", "packet_seq_err", "implied_nak_seq_err", "out_of_seq_request", "rcvd_seq_err"];

/// What was lost on the way, by what counters of the RDMA devices or of TCP say, of the link with most.
pub(super) fn losses(run: &LinkRun) -> Option<Finding> {
    let missing = |(name, _): &&(String, u64)| MISSING.contains(&name.as_str());
    let lost = |figures: &LinkFigures| figures.losses.iter().filter(missing).map(|(_, by)| *by as f64).sum();
    let late = |figures: &LinkFigures| figures.losses.iter().map(|(_, by)| *by as f64).sum();
    if let Some((link, figures)) = worst(run, &lost) {
        return Some(packets_lost(run, link, figures));
    }
    if let Some((link, figures)) = worst(run, &late) {
        let title = format!("answers came late between {}: {}", between(run, link), counters(figures));
        let explanation = "These counters increase when an answer takes too long and the request is retransmitted. No packet was reported \
                           missing. The cause is a busy or slow host, or a path that loses the last packets of messages.";
        return Some(Finding::new(Code::IbTransportError, Severity::Info, 0.5, title, explanation));
    }
    let (link, figures) = worst(run, &|figures| figures.resent_share.unwrap_or(0.0))?;
    let share = figures.resent_share.filter(|share| *share >= RESENT)?;
    let (from, to) = (run.name(link.from), run.name(link.to));
    let title = format!("TCP retransmitted {:.1}% of segments from {from} to {to}", share * 100.0);
    let explanation = "Something on the path drops segments: a full queue, a limit per \
                       flow or a bad cable. All connections of the host are counted.";
    Some(Finding::new(Code::SocketTuning, Severity::Info, 0.6, title, explanation))
}

/// The link of which something weighs most, if anywhere.
fn worst<'a>(run: &'a LinkRun, weight: &dyn Fn(&LinkFigures) -> f64) -> Option<(&'a Link, &'a LinkFigures)> {
    let measured = run.links.iter().filter_map(|link| Some((link, link.outcome.as_ref().ok()?)));
    let weighed = measured.filter(|(_, figures)| weight(figures) > 0.0);
    weighed.max_by(|a, b| weight(a.1).total_cmp(&weight(b.1)))
}

fn between(run: &LinkRun, link: &Link) -> String {
    format!("{} and {}", run.name(link.from), run.name(link.to))
}

fn counters(figures: &LinkFigures) -> String {
    figures.losses.iter().map(|(name, by)| format!("{name} +{by}")).collect::<Vec<_>>().join(", ")
}

fn packets_lost(run: &LinkRun, link: &Link, figures: &LinkFigures) -> Finding {
    let title = format!("packets were lost between {}: {}", between(run, link), counters(figures));
    let explanation = "These counters of the RDMA devices increase only when packets are lost or out of \
                       order. RoCE retransmits everything from the lost packet on, so a small loss is expensive.";
    let remedy = texts([
        "Look for discards and errors at the NICs and the switch ports between the two hosts.",
        "Set up priority flow control or ECN for RoCE's traffic class, the same on NICs and switches.",
    ]);
    Finding { remedy, ..Finding::new(Code::RoceConfig, Severity::Warning, 0.85, title, explanation) }
}

/// A link whose flows are limited.
struct LimitedFlows {
    from: usize,
    to: usize,
    one_gbit_s: f64,
    /// How many flows carry most, and how much.
    best: (u32, f64),
}

impl LimitedFlows {
    fn of(link: &Link) -> Option<Self> {
        let flows = &link.outcome.as_ref().ok()?.flows;
        let one_gbit_s = flows.iter().find(|(flows, _)| *flows == 1)?.1;
        let in_proportion =
            flows.iter().any(|(count, gbit_s)| *count > 1 && *gbit_s >= IN_PROPORTION * f64::from(*count) * one_gbit_s);
        let best = flows.iter().copied().reduce(|best, next| if next.1 > best.1 { next } else { best })?;
        let limited = in_proportion && best.1 >= MORE_WITH_FLOWS * one_gbit_s;
        limited.then_some(LimitedFlows { from: link.from, to: link.to, one_gbit_s, best })
    }
}

/// Several flows carry several times what one does.
pub(super) fn flow_limit(run: &LinkRun) -> Option<Finding> {
    let measured = run.links.iter().filter(|link| link.outcome.is_ok()).count();
    let all: Vec<LimitedFlows> = run.links.iter().filter_map(LimitedFlows::of).collect();
    // One link's figures may have been unlucky.
    if all.len() * 2 < measured {
        return None;
    }
    let LimitedFlows { from, to, one_gbit_s, best: (flows, best) } = all.first()?;
    let (from, to) = (run.name(*from), run.name(*to));
    let flow = if run.transport == LinkTransport::Tcp { "flow" } else { "queue pair" };
    let typical = gbit(median(all.iter().map(|limited| limited.one_gbit_s))?);
    let title = format!(
        "a limit per {flow} of about {typical} Gbit/s: one {flow} carries {}, {flows} carry {} ({from} → {to})",
        gbit(*one_gbit_s),
        gbit(*best)
    );
    let (explanation, remedy) = match run.transport {
        LinkTransport::Tcp => {
            let threads = *flows.min(&4);
            (
                "Bandwidth grows with the number of flows: the network limits each flow, as clouds do, or one core cannot \
                 move more. NCCL's socket transport opens one socket per connection unless it is told otherwise or knows \
                 the cloud.",
                vec![format!(
                    "Let NCCL use more sockets: `export NCCL_SOCKET_NTHREADS={threads} NCCL_NSOCKS_PERTHREAD={}`",
                    flows.div_ceil(threads)
                )],
            )
        }
        LinkTransport::Rdma => (
            "Bandwidth grows with the number of queue pairs: a switch hashes each onto one of several links, or a limit of \
             the NIC holds per queue pair.",
            vec![format!("Let NCCL use more queue pairs: `export NCCL_IB_QPS_PER_CONNECTION={flows}`")],
        ),
    };
    Some(Finding { remedy, ..Finding::new(Code::SocketTuning, Severity::Info, 0.8, title, explanation) })
}

pub(super) fn as_expected(run: &LinkRun) -> Option<Finding> {
    let rates = || run.links.iter().filter_map(|link| Some(link.outcome.as_ref().ok()?.gbit_s));
    let (least, most) = (rates().reduce(f64::min)?, rates().reduce(f64::max)?);
    let count = rates().count();
    let end = match run.expected_gbit_s {
        Some(expected) => format!("at least {:.0}% of the {expected} expected", 100.0 * least / expected),
        None if can_be_judged(run) => "none stands out".into(),
        None => "the NICs' rate is not known, so their speed is not judged".into(),
    };
    let title = match (gbit(least), gbit(most)) {
        (least, most) if least == most => format!("{count} links carry {most} Gbit/s each; {end}"),
        (least, most) => format!("{count} links carry {least} to {most} Gbit/s; {end}"),
    };
    Some(Finding::new(Code::OkAsExpected, Severity::Info, 0.8, title, ""))
}
