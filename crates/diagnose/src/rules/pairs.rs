//! Pairs of nodes that were measured one by one: a slow node, or a slow route.

use super::Draft;
use crate::case::Case;
use busbw_model::{Code, Evidence, Finding, Severity, Told, ToldFact};

/// A pair is slow below this share of the best, and fast above the other.
const SLOW: f64 = 0.75;
const FAST: f64 = 0.85;

struct Pair<'a> {
    nodes: (&'a str, &'a str),
    busbw: f64,
    told: &'a Told,
}

impl Pair<'_> {
    fn has(&self, node: &str) -> bool {
        self.nodes.0 == node || self.nodes.1 == node
    }
}

/// Compares the pairs that the input lists.
pub fn rule(case: &Case) -> Vec<Finding> {
    let pairs: Vec<Pair> = case
        .run
        .told
        .iter()
        .filter_map(|told| match &told.fact {
            ToldFact::Pair { nodes: (a, b), busbw } => Some(Pair { nodes: (a, b), busbw: busbw.0, told }),
            _ => None,
        })
        .collect();
    let best = pairs.iter().map(|p| p.busbw).fold(0.0, f64::max);
    let slow: Vec<&Pair> = pairs.iter().filter(|p| p.busbw < SLOW * best).collect();
    let Some(slowest) = slow.iter().min_by(|a, b| a.busbw.total_cmp(&b.busbw)) else { return Vec::new() };
    let fast_elsewhere = |node: &str| pairs.iter().any(|p| p.has(node) && p.busbw >= FAST * best);
    let slow_with = |node: &str| slow.iter().filter(|p| p.has(node)).count();
    let (a, b) = slowest.nodes;
    let always_slow = [a, b].into_iter().find(|node| !fast_elsewhere(node) && slow_with(node) >= 2);
    match always_slow {
        Some(node) => vec![slow_node(node, &slow, 0.85)],
        None if fast_elsewhere(a) && fast_elsewhere(b) => vec![slow_route(slowest, best, 0.9)],
        None => {
            let suspect = if fast_elsewhere(a) { b } else { a };
            vec![slow_route(slowest, best, 0.65), slow_node(suspect, &slow, 0.5)]
        }
    }
}

fn slow_route(pair: &Pair, best: f64, confidence: f64) -> Finding {
    let (a, b) = pair.nodes;
    let draft = Draft {
        code: Code::FabricCongestion,
        severity: Severity::Warning,
        confidence,
        title: format!("{a} and {b} are slow with each other ({} GB/s), other pairs reach {best} GB/s", pair.busbw),
        explanation: "A node that is fast with other partners is sound. Two such nodes that are slow only with each other meet on a route \
                      whose links their flows share: the fabric hashes or routes them onto the same one."
            .into(),
    };
    draft.finding(
        vec![Evidence::noted(pair.told.source.clone(), "the slow pair")],
        &[
            "Compare the routes of a slow and a fast pair, and the counters of the ports on the way; on InfiniBand: `ibtracert LID LID`",
            "Turn on adaptive routing, or spread connections over more flows: `export NCCL_IB_ADAPTIVE_ROUTING=1 NCCL_IB_QPS_PER_CONNECTION=4`",
            "Measure more pairs: if one of the nodes turns out slow with every partner, it is that node",
        ],
    )
}

fn slow_node(node: &str, slow: &[&Pair], confidence: f64) -> Finding {
    let draft = Draft {
        code: Code::StragglerNode,
        severity: Severity::Warning,
        confidence,
        title: format!("{node} is slow with the partners that it was measured with"),
        explanation: format!(
            "Every pair of the input that holds {node} is slow. A node that is slow with every partner has a fault of its own: a NIC or a \
             PCIe link below its rate, clocks, access control on its bridges, or a process that takes its cores."
        ),
    };
    let evidence = slow.iter().filter(|p| p.has(node)).take(4).map(|p| Evidence::new(p.told.source.clone())).collect();
    draft.finding(
        evidence,
        &[
            "Compare the node with a good one: `ibstat; sudo lspci -vv | grep -E 'LnkSta:|ACSCtl'; nvidia-smi -q -d CLOCK,PERFORMANCE`",
            "Dump what NCCL sees on both and compare: `export NCCL_TOPO_DUMP_FILE=system.xml`",
        ],
    )
}

#[cfg(test)]
mod tests {
    use busbw_model::Code::{self, FabricCongestion, StragglerNode};

    #[test]
    fn bisection_tells_a_node_from_a_route() {
        let cases: [(&str, Option<Code>); 4] = [
            ("n1,n2 49\nn3,n4 88\nn2,n5 49\nn1,n3 87", Some(StragglerNode)),
            ("n1,n2 49\nn1,n3 88\nn2,n4 87", Some(FabricCongestion)),
            ("n1,n2 25\nn1,n3 39", Some(FabricCongestion)),
            ("n1,n2 88\nn1,n3 87\nn2,n3 89", None),
        ];
        for (text, code) in cases {
            let run = busbw_ingest::read_bytes(&[("pairs.txt", text.as_bytes())]).expect("text");
            let first = crate::diagnose(&run).findings.first().map(|f| f.code);
            assert_eq!(first, code, "{text}");
        }
    }
}
