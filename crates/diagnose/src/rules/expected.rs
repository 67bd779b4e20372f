//! Is this speed right? Figures that people tell, and tables, against what NICs and NVLink carry.

use super::Draft;
use crate::case::{Case, Test};
use crate::hardware::GpuKind;
use busbw_model::{
    Code, Collective, Evidence, Figure, Finding, PathType, Quantity, Severity, SourceLine, Told, ToldFact,
};

/// From this share of the yardstick on a figure is as expected.
const AS_EXPECTED: f64 = 0.8;
/// Below this share something is wrong.
const TOO_SLOW: f64 = 0.56;
/// Up to this share a ring explains it; above, trees or reductions in the switch do.
const ABOVE_WIRE: f64 = 1.15;

/// Figures in sentences.
pub fn told(case: &Case) -> Vec<Finding> {
    let measured = case.run.told.iter().filter_map(|told| match told {
        Told { fact: ToldFact::Figure(figure), source } if figure.quantity != Quantity::Expected => {
            Some((figure, source))
        }
        _ => None,
    });
    let rank = |figure: &Figure| match figure.quantity {
        Quantity::Busbw => 0,
        Quantity::Algbw => 1,
        Quantity::Average => 3,
        _ => 2,
    };
    let Some((figure, source)) = measured.min_by_key(|(figure, _)| rank(figure)) else { return Vec::new() };
    let collective = figure.collective.or_else(|| case.run.told.iter().find_map(named_collective));
    let factor = match (figure.quantity, case.hardware.ranks()) {
        (Quantity::Algbw, Some(ranks)) => collective.unwrap_or(Collective::AllReduce).busbw_factor(ranks),
        _ => 1.0,
    };
    if figure.quantity == Quantity::Average {
        return vec![as_expected_average(figure.value.0, source)];
    }
    let measured = Measured {
        busbw: figure.value.0 * factor,
        nodes: case.hardware.nodes,
        collective,
        source,
        from_algbw: (factor > 1.0).then_some(figure.value.0),
    };
    let found = measured.judge(case);
    let differ = differ(case, figure.quantity);
    found.filter(|finding| finding.code != Code::OkAsExpected || !differ).into_iter().collect()
}

/// Whether several figures of one kind are told that are worlds apart: to call one of them right says nothing of the others.
fn differ(case: &Case, quantity: Quantity) -> bool {
    let values = || {
        case.run.told.iter().filter_map(|told| match &told.fact {
            ToldFact::Figure(figure) if figure.quantity == quantity => Some(figure.value.0),
            _ => None,
        })
    };
    values().fold(0.0, f64::max) > 2.0 * values().fold(f64::MAX, f64::min)
}

fn named_collective(told: &Told) -> Option<Collective> {
    match &told.fact {
        ToldFact::Figure(figure) => figure.collective,
        _ => None,
    }
}

/// Tables whose NICs are told, and tables of one node whose GPUs are known.
pub fn tables(case: &Case) -> Vec<Finding> {
    let own = |test: &&Test| test.curve.shows_bandwidth();
    case.tests.iter().filter(own).find_map(|test| of_table(case, test)).into_iter().collect()
}

fn of_table(case: &Case, test: &Test) -> Option<Finding> {
    let source = &test.curve.peak_row.source;
    let collective = test.table.collective;
    let bare = test.table.devices.is_empty() && test.comm.is_none();
    if (bare || case.tests.len() == 1) && case.hardware.nics.is_some() && test.nodes != Some(1) {
        let nodes = test.nodes.or(case.hardware.nodes);
        return Measured { busbw: test.curve.plateau.0, nodes, collective, source, from_algbw: None }.across(case);
    }
    let kind = test.gpu.and_then(GpuKind::of)?;
    let whole =
        test.nodes == Some(1) && test.table.nranks.is_some_and(|n| n >= 4) && kind.nvlink && is_ring_like(collective);
    (whole && test.curve.plateau.0 >= AS_EXPECTED * kind.ring_gbs).then(|| {
        as_expected(
            test.curve.plateau.0,
            source,
            0.75,
            format!("{} reach some {:.0} GB/s over NVLink with rings", kind.name, kind.ring_gbs),
        )
    })
}

fn is_ring_like(collective: Option<Collective>) -> bool {
    use Collective::{AllGather, AllReduce, Broadcast, Reduce, ReduceScatter};
    matches!(collective, None | Some(AllReduce | AllGather | ReduceScatter | Broadcast | Reduce))
}

fn nics_carry(count: u32) -> String {
    if count == 1 { "one NIC carries".into() } else { format!("{count} NICs carry") }
}

/// A bandwidth to judge.
struct Measured<'a> {
    busbw: f64,
    nodes: Option<u32>,
    collective: Option<Collective>,
    source: &'a SourceLine,
    /// The algbw that busbw was computed from.
    from_algbw: Option<f64>,
}

impl Measured<'_> {
    fn judge(&self, case: &Case) -> Option<Finding> {
        let one_node = self.nodes == Some(1) || self.nodes.is_none() && case.hardware.nic_count().is_none();
        if one_node { self.within(case) } else { self.across(case) }
    }

    /// On one node NVLink is the yardstick.
    fn within(&self, case: &Case) -> Option<Finding> {
        let reach = case.hardware.within_node(self.collective)?;
        let kind = GpuKind::of(case.hardware.gpu.as_deref()?)?;
        let ring = kind.ring_gbs;
        if self.busbw < 0.5 * ring {
            return (kind.nvlink
                && case.hardware.gpus_per_node.is_some_and(|gpus| gpus >= 4)
                && is_ring_like(self.collective))
            .then(|| self.below_nvlink(ring));
        }
        let how = self.from_algbw.map_or(String::new(), |algbw| {
            format!(
                "algbw {algbw:.0} GB/s on {} ranks is a busbw of {:.0}: ",
                case.hardware.ranks().unwrap_or(0),
                self.busbw
            )
        });
        (self.busbw >= AS_EXPECTED * ring).then(|| {
            as_expected(
                self.busbw,
                self.source,
                0.85,
                match reach > 1.05 * ring {
                    true => format!(
                        "{how}{} reach {ring:.0} GB/s with rings and up to {reach:.0} with the switch's help",
                        kind.name
                    ),
                    false => format!("{how}{} reach {ring:.0} GB/s with rings", kind.name),
                },
            )
        })
    }

    fn below_nvlink(&self, ring: f64) -> Finding {
        let draft = Draft {
            code: Code::P2pDisabled,
            severity: Severity::Warning,
            confidence: 0.5,
            title: format!("{:.0} GB/s within a node, where rings over NVLink reach some {ring:.0}", self.busbw),
            explanation: "GPUs of this kind are joined by NVLink in usual machines and reach several times as much. Direct access is off \
                          (a variable, the driver, the container), NVLinks are down, or few channels are used."
                .into(),
        };
        draft.finding(
            vec![Evidence::noted(self.source.clone(), "what was measured")],
            &[
                "See transports and channels: `export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,P2P,SHM,NVLS,GRAPH,ENV`",
                "See the NVLinks and which pairs may talk: `nvidia-smi nvlink -s; nvidia-smi topo -p2p r`",
            ],
        )
    }

    /// Between nodes the NICs are.
    fn across(&self, case: &Case) -> Option<Finding> {
        if matches!(self.collective, Some(Collective::AllToAll | Collective::AllToAllV)) {
            return Some(as_expected(self.busbw, self.source, 0.72, "busbw of an all-to-all is no link's bandwidth: part of the data stays on the node, and the tests know nothing of the topology. Compare algbw × (share that leaves the node) with the NICs".into()));
        }
        let (nics, rate_known) = case.hardware.nics_gbs()?;
        let count = case.hardware.nic_count()?;
        let share = self.busbw / nics;
        if share > ABOVE_WIRE && self.nodes.is_none_or(|nodes| nodes <= 2) && rate_known {
            return Some(as_expected(
                self.busbw,
                self.source,
                0.85,
                format!(
                    "that is more than {} ({nics:.0} GB/s), as trees and NVLS may show on two nodes: each byte crosses once, and busbw counts it as a ring would. NCCL_ALGO=RING shows the network",
                    nics_carry(count)
                ),
            ));
        }
        if share > ABOVE_WIRE {
            return rate_known.then(|| {
                as_expected(
                    self.busbw,
                    self.source,
                    0.7,
                    format!("that is not below what {} ({nics:.0} GB/s)", nics_carry(count)),
                )
            });
        }
        if share >= AS_EXPECTED {
            return Some(as_expected(
                self.busbw,
                self.source,
                0.85,
                format!("{} {nics:.0} GB/s: 12 GB/s for every 100 Gbit/s", nics_carry(count)),
            ));
        }
        (share < TOO_SLOW).then(|| self.too_slow(case, nics, count, rate_known))
    }

    fn too_slow(&self, case: &Case, nics: f64, count: u32, rate_known: bool) -> Finding {
        let one = case.hardware.nic_gbs();
        let like_one = count > 1 && one.is_some_and(|one| (0.7..1.2).contains(&(self.busbw / one)));
        let (code, confidence, why) = match case.hardware.nearest_nic {
            _ if like_one => (Code::NicUnused, 0.7, "it is about what one of them carries, so the others may be idle"),
            None if (0.44..=0.56).contains(&(self.busbw / nics)) => (
                Code::NicRate,
                0.5,
                "it is about half, as when ports came up at half their rate, or half of the NICs carry nothing",
            ),
            nearest if case.has_gpu_direct() && !matches!(nearest, Some(PathType::Node | PathType::Sys)) => (
                Code::NicRate,
                0.4,
                "GPUDirect RDMA is in use, so look at what NICs and their slots give by themselves: rate of the ports, width of PCIe, and on \
                 AMD hosts the NIC's PCIe settings (relaxed ordering, MAX_ACC_OUT_READ)",
            ),
            Some(PathType::Pix | PathType::Pxb) => (
                Code::GdrDisabled,
                0.65,
                "GPUs and NICs share PCIe switches, where GPUDirect RDMA is needed to use the NICs: most likely it is off",
            ),
            Some(_) => (Code::NicFar, 0.65, "no GPU has a NIC below its own PCIe switch, so traffic passes the CPU"),
            None if self.busbw < 4.0 => (Code::NetSocketFallback, 0.5, "so little is what TCP sockets carry"),
            None => (
                Code::GdrDisabled,
                0.4,
                "without GPUDirect RDMA, and with NICs behind the CPU, about half or less is what remains",
            ),
        };
        let draft = Draft {
            code,
            severity: Severity::Warning,
            confidence,
            title: format!(
                "{:.1} GB/s, where {} {}{nics:.0}",
                self.busbw,
                nics_carry(count),
                if rate_known { "" } else { "at least " }
            ),
            explanation: format!(
                "A sound network gives 12 GB/s for every 100 Gbit/s of a node's NICs. This is about half of it or less; {why}."
            ),
        };
        draft.finding(
            vec![Evidence::noted(self.source.clone(), "what was measured")],
            &[
                "See which transport is used: `export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH` and look for `via NET/IB/…/GDRDMA`",
                "See whether GPUDirect RDMA is there: `lsmod | grep peermem; cat /sys/kernel/mm/memory_peers/nv_mem/version`",
                "Measure the NICs alone: `ib_write_bw -d mlx5_0` on one node, `ib_write_bw -d mlx5_0 OTHER_NODE` on the other",
            ],
        )
    }
}

/// An average alone tells nothing.
fn as_expected_average(value: f64, source: &SourceLine) -> Finding {
    let draft = Draft {
        code: Code::OkAsExpected,
        severity: Severity::Info,
        confidence: 0.6,
        title: format!("An average of {value} GB/s over all sizes says nothing about health"),
        explanation: "`Avg bus bandwidth` is the mean over all sizes, the small ones included, which are bound by latency. Judge the largest \
                      sizes, where busbw no longer grows."
            .into(),
    };
    draft.finding(
        vec![Evidence::noted(source.clone(), "the average")],
        &["Look at the last rows of the table, and measure large sizes: `-b 8 -e 8G -f 2`"],
    )
}

fn as_expected(busbw: f64, source: &SourceLine, confidence: f64, why: String) -> Finding {
    let draft = Draft {
        code: Code::OkAsExpected,
        severity: Severity::Info,
        confidence,
        title: format!("{busbw:.1} GB/s is as expected"),
        explanation: format!(
            "Judged on the largest sizes, {why}. The average over all sizes (`Avg bus bandwidth`) mixes in small sizes, which are bound by \
             latency, and says nothing about health; algbw is what the program sees, busbw what to compare with hardware."
        ),
    };
    draft.finding(vec![Evidence::noted(source.clone(), "the figure")], &[])
}

#[cfg(test)]
mod tests {
    use busbw_model::Code::{self, GdrDisabled, NicRate, NicUnused, OkAsExpected, P2pDisabled};

    /// Yardsticks of NVIDIA's answers, in sentences of our own.
    #[test]
    fn figures_are_judged_by_the_hardware_that_is_told() {
        let cases: [(&str, Option<Code>); 10] = [
            ("2 nodes x 8 A100 with 8 x 200 Gb/s NICs: busbw 188 GB/s", Some(OkAsExpected)),
            ("8 x A100: all_reduce_perf busbw 228 GB/s", Some(OkAsExpected)),
            ("8 x H100, algbw 272 GB/s for all_reduce_perf", Some(OkAsExpected)),
            ("2 nodes, 1 x 100 Gb/s NIC each: busbw 18 GB/s", Some(OkAsExpected)),
            ("4 nodes with 4 x 200 Gb/s NICs: busbw 23 GB/s", Some(NicUnused)),
            ("4 nodes with 2 x 200 Gb/s NICs: busbw 9 GB/s", Some(GdrDisabled)),
            ("4 nodes with 4 x 200 Gb/s NICs: busbw 60 GB/s", None),
            ("8 x H100: avg bus bandwidth is 190 GB/s, at 8G busbw is 478 GB/s", Some(OkAsExpected)),
            ("8 x H100: all_reduce_perf busbw 95 GB/s", Some(P2pDisabled)),
            ("4 nodes x 8 A100, 8 HDR NICs each, busbw is only 98 GB/s", Some(NicRate)),
        ];
        for (text, code) in cases {
            let run = busbw_ingest::read_bytes(&[("note.txt", text.as_bytes())]).expect("text");
            assert_eq!(crate::diagnose(&run).findings.first().map(|f| f.code), code, "{text}");
        }
    }
}
