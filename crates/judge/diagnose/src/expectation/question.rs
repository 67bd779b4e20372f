//! The question whose answer decides, where what is known allows a sound run and a slow one.

use super::judge::{Fit, Hypothesis};
use super::{NEAR, Prospect, setting};
use crate::UserFacts;
use crate::case::Test;
use crate::curve::{BANDWIDTH_FROM, Curve};
use busbw_model::{BenchRow, BenchTable, Contradiction, Judged, Measure, Subject, counted};
use busbw_predict::Cluster;
use busbw_predict::cluster::{GpuLinks, NetTransport};

/// What the user has told of the machines: nobody is asked for it again.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Told {
    cluster: bool,
    gpu: bool,
    gpus_per_node: bool,
    /// Both their number and their rate.
    nics: bool,
}

impl Told {
    pub fn of(given: &UserFacts) -> Self {
        Told {
            cluster: given.cluster.is_some(),
            gpu: given.gpu.is_some(),
            gpus_per_node: given.gpus_per_node.is_some(),
            nics: given.nics.is_some_and(|nics| nics.count.is_some()),
        }
    }

    fn ask_machines(self, has_network: bool) -> &'static str {
        match (self.gpu, self.nics || !has_network) {
            _ if self.cluster => "Which machines are these? Correct what --cluster describes",
            (true, true) => "Which machines are these? Describe them with --cluster",
            (true, false) => "Which machines are these? Tell with --nics 8x400G, or --cluster",
            (false, _) if self.nics => "Which machines are these? Tell with --gpus 8xH100, or --cluster",
            (false, _) => "Which machines are these? Tell with --gpus 8xH100 --nics 8x400G, or --cluster",
        }
    }

    fn ask_hosts(self) -> &'static str {
        if self.gpus_per_node {
            return "On how many hosts did it run? Describe them with --cluster, or give the output with its list of devices";
        }
        "On how many hosts did it run? Tell with --gpus 8xH100, or add the output of `nvidia-smi -L` of one"
    }

    fn ask_nics(self) -> &'static str {
        if self.cluster || self.nics {
            return "Are these the NICs that carried it? Add the output of `ibstat`, or describe all of it with --cluster";
        }
        "How many NICs does a host have, and how fast are they? Tell with --nics 8x400G, or add the output of `ibstat`"
    }
}

/// `73.00 GB/s is 98% of what one NIC of 400 Gbit/s per host gives, 15% of eight. How many have the hosts?`
pub(super) fn of(prospect: &Prospect) -> String {
    let (plateau, told) = (prospect.test.curve.plateau, prospect.told);
    let fits = prospect.chosen();
    if let Some(late) = &prospect.late
        && let Some(other) = late.as_with.and_then(|at| prospect.hypotheses.get(at))
    {
        let (one, two, ask) = difference(&prospect.hypotheses[0].cluster, &other.cluster, told);
        return format!("{}: {} of {one}, as {two} may take. {ask}", prospect.what(), late.words());
    }
    if let Some(trough) = prospect.trough.as_ref().filter(|_| !prospect.test.is_one_run()) {
        return format!(
            "{}: {}. Each size was run by itself: was the machine disturbed then? Measure them in one run: `-b 8 -e {} -f 2 -n 20`",
            prospect.what(),
            trough.words(),
            prospect.test.curve.largest.0
        );
    }
    let said = format!("{}: {plateau}", prospect.what());
    if let Some(fall) = &prospect.test.curve.fall {
        return format!(
            "{} falls from {} at {} to {} at {}. No healthy machine does this: is something hot, \
             or shared? Measure again with `-n 100`, and give the output with its list of devices and NCCL_DEBUG=INFO",
            prospect.what(),
            prospect.test.curve.peak,
            prospect.test.curve.peak_row.size,
            fall.last,
            fall.last_row.size
        );
    }
    match (fits.fit, other(prospect)) {
        (Fit::Above, _) => format!(
            "{said} is more than {} can carry ({}). {}",
            setting::words(&fits.cluster),
            fits.largest.busbw,
            told.ask_machines(fits.cluster.domains() > 1)
        ),
        (_, Some(other)) => {
            let (one, two, ask) = difference(&fits.cluster, &other.cluster, told);
            format!("{said} is {} of what {one} should give, {} of {two}. {ask}", share(fits), share(other))
        }
        (Fit::Below, _) if fits.cluster.domains() > 1 => format!(
            "{said} is {} of what {} give with {}, more than fewer NICs carry. {}",
            share(fits),
            setting::words(&fits.cluster),
            nics(&fits.cluster),
            told.ask_nics()
        ),
        // Where rings are slow as well, which it was decides nothing.
        _ if let Some(rings) = fits.of_rings.filter(|rings| *rings >= NEAR) => format!(
            "{said} is {:.0}% of the speed of rings, {} of trees. Which \
             did NCCL use? Run once more with NCCL_ALGO=Ring, and give that output",
            100.0 * rings,
            share(fits)
        ),
        _ => format!(
            "{said} is {} of the {} expected: this is between healthy and slow. How fast \
             are the links alone? Measure: `ib_write_bw` for each pair of NICs, `nvbandwidth` inside a node",
            share(fits),
            fits.largest.busbw
        ),
    }
}

/// `With 8 NICs of 400 Gbit/s per host: 486.00 GB/s`, where the cluster at hand is one of two that may be.
pub(super) fn else_expected(prospect: &Prospect) -> Option<String> {
    let other = other(prospect)?;
    let (_, two, _) = difference(&prospect.chosen().cluster, &other.cluster, prospect.told);
    Some(format!("With {two}: {}", other.largest.busbw))
}

/// The cluster that it may have been as well, of which the measured speed would say something else.
fn other<'a>(prospect: &'a Prospect) -> Option<&'a Hypothesis> {
    let fits = prospect.chosen();
    let others = |fit: Fit| prospect.hypotheses.iter().find(|one| one.fit == fit);
    let other = match fits.fit {
        Fit::Within => others(Fit::Below).or_else(|| others(Fit::Between)),
        Fit::Between | Fit::Above => others(Fit::Below),
        Fit::Below => None,
    };
    other.filter(|other| share(fits) != share(other))
}

fn share(one: &Hypothesis) -> String {
    format!("{:.0}%", 100.0 * one.reached)
}

/// What distinguishes two clusters, as each has it, and what to ask.
fn difference(a: &Cluster, b: &Cluster, told: Told) -> (String, String, &'static str) {
    let both = |words: fn(&Cluster) -> String, ask| (words(a), words(b), ask);
    if a.gpu.name != b.gpu.name {
        const ASK: &str = "Which GPUs are they? Tell with --gpus 8xH100, or add the output of `nvidia-smi -L`";
        return both(setting::words, ASK);
    }
    if a.nodes != b.nodes {
        return both(setting::words, told.ask_hosts());
    }
    if a.links != b.links {
        return both(
            links,
            "How do the GPUs reach each other? Add the output of `nvidia-smi topo -m` and `nvidia-smi topo -p2p r`",
        );
    }
    if a.cpu.sockets != b.cpu.sockets && a.domains() == 1 {
        return both(sockets, "Are all its GPUs on one socket? Add the output of `nvidia-smi topo -m`");
    }
    match (&a.nics, &b.nics) {
        (Some(one), Some(two))
            if (one.count, one.rate) == (two.count, two.rate) && one.gpu_direct != two.gpu_direct =>
        {
            both(nics, GPU_DIRECT)
        }
        (Some(one), Some(two)) if (one.count, one.rate) == (two.count, two.rate) => both(nics, NETWORK),
        _ => both(nics, told.ask_nics()),
    }
}

const GPU_DIRECT: &str = "Is GPUDirect RDMA meant to be off? See on each host: `lsmod | grep peermem; nvidia-smi topo -m`, and where \
    NCCL_NET_GDR_LEVEL is set; run once with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH and give that log";

const NETWORK: &str =
    "Which network do they use? Run once with NCCL_DEBUG=INFO and give that log too, or describe it with --cluster";

fn links(cluster: &Cluster) -> String {
    match cluster.links {
        GpuLinks::Pcie { peer_to_peer: false, .. } => "copies through host memory".into(),
        GpuLinks::Pcie { .. } => "direct copies over PCIe".into(),
        GpuLinks::NvSwitch { per_gpu, .. } => format!("NVSwitches with {:.0} GB/s of each GPU", per_gpu.0),
        _ => format!("NVLinks with {:.0} GB/s of each GPU", cluster.links.per_gpu().0),
    }
}

fn sockets(cluster: &Cluster) -> String {
    format!("a host with {}", counted(cluster.cpu.sockets, "socket"))
}

/// `8 NICs of 400 Gbit/s per host`.
fn nics(cluster: &Cluster) -> String {
    let Some(nics) = &cluster.nics else { return setting::words(cluster) };
    let over = match nics.transport {
        NetTransport::InfiniBand | NetTransport::Roce => String::new(),
        other => format!(" over {}", other.name()),
    };
    let copies = !nics.gpu_direct && nics.transport != NetTransport::Tcp;
    let kind = if copies { over + " without GPUDirect RDMA" } else { over };
    format!("{} of {:.0} Gbit/s per host{kind}", counted(nics.count, "NIC"), nics.rate.gbit_per_s())
}

/// A table whose figures hardware cannot have given: no numbers, none but zeros, more than anything carries, or so many that contradict
/// each other that no size of bandwidth is left.
pub(super) fn doubted(table: &BenchTable) -> Option<Judged> {
    let strange = table.rows.iter().filter(|row| row.doubted).count();
    let nothing = |half: &Measure| half.busbw.0 <= 0.0;
    let zero = |row: &&BenchRow| row.size >= BANDWIDTH_FROM && row.halves().any(nothing);
    let zeros = table.rows.iter().filter(zero).count();
    let rows = table.rows.len();
    let alone = table.nranks == Some(1);
    let how = match (strange, zeros) {
        (1.., _) => {
            format!("{strange} of {rows} rows hold implausible figures: nan, inf, or more than any hardware carries")
        }
        (0, 1..) if !alone => format!("0 GB/s at {BANDWIDTH_FROM} and more is no measurement"),
        (0, 0) if let Some(against) = without_bandwidth(table) => {
            format!("{against} of {rows} rows contradict themselves, and none of the others shows bandwidth")
        }
        _ => return None,
    };
    Some(was_edited(&how))
}

/// A table of which one figure cannot be right beside the others, each of which could be: what passes is not praised.
pub(super) fn inconsistent(table: &BenchTable) -> Option<Judged> {
    let times = || table.rows.iter().zip(table.contradictions()).filter_map(|(row, against)| Some((row, against?)));
    let time = times().find(|(_, against)| matches!(against, Contradiction::Time { .. }));
    let average = table.average_beside();
    let how = match (time, average) {
        (Some((row, against)), _) => format!("{} is too fast beside the others: {against}", row.size),
        (None, Some((printed, follows))) => {
            format!("The average is printed as {printed}, and the rows make it {follows}")
        }
        (None, None) => return None,
    };
    Some(was_edited(&how))
}

fn was_edited(how: &str) -> Judged {
    let question =
        format!("{how}. Was the output cut or edited? Run the test again, with `-n 20 -w 5`, and give all of it");
    open(how, question)
}

/// How many rows contradict themselves, where they are all that are large enough.
fn without_bandwidth(table: &BenchTable) -> Option<usize> {
    let against = table.contradictions().iter().flatten().count();
    let is_large = table.rows.iter().any(|row| row.size >= BANDWIDTH_FROM);
    let is_left = || Curve::of(table).is_some_and(|curve| curve.shows_bandwidth());
    (against > 0 && is_large && !is_left()).then_some(against)
}

/// A table of which not even the collective or the ranks are known.
pub(super) fn unknown_test(test: &Test, described: Option<&Cluster>) -> Judged {
    let plateau = test.curve.plateau;
    let question = match (test.table.collective, test.table.nranks, test.gpu) {
        (Some(_), Some(ranks), _) if described.is_some() => format!(
            "The table has {ranks} ranks, the described cluster {}: which of its hosts took part?",
            described.map_or(0, Cluster::ranks)
        ),
        (Some(_), Some(_), Some(gpu)) => format!(
            "The table reaches {plateau}, but busbw does not know {gpu}: which \
             links and NICs do the hosts have? Describe them with --cluster"
        ),
        (None, Some(ranks), _) => format!(
            "The table reaches {plateau}, but does not say which collective of {ranks} ranks \
             it shows: give the whole output, from its first line on, with all devices"
        ),
        _ => format!(
            "The table reaches {plateau}, but does not say how many ranks \
             took part: give the whole output, from its first line on"
        ),
    };
    open(&format!("{plateau} at {}", test.curve.largest), question)
}

fn open(how: &str, question: String) -> Judged {
    Judged::open(Subject::Speed, "the table", how, question)
}
