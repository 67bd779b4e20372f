//! Processes of one job that load different versions of NCCL.

use super::Draft;
use crate::case::Case;
use crate::words::listed;
use busbw_model::{Code, Communicator, Evidence, Finding, Library, Place, Severity, VersionLine};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Hosts and ranks that a title names at most, for each version.
const MOST_NAMED: usize = 4;

const REMEDY: &[&str] = &[
    "See which NCCL each host loads, in the job's own environment: `mpirun --map-by ppr:1:node bash -c 'hostname; ldconfig -p | grep libnccl; echo $LD_LIBRARY_PATH'`",
    "In Python: `python -c 'import torch; print(torch.cuda.nccl.version())'` on every node",
    "Use one container image, or one environment, on all nodes",
];

/// Ranks of one communicator with different versions; without a communicator, hosts that spoke at the same time.
pub fn rule(case: &Case) -> Vec<Finding> {
    let mixed = case.run.communicators.iter().find_map(|comm| in_communicator(case, comm));
    mixed.or_else(|| at_once(case)).or_else(|| nameless(case)).into_iter().collect()
}

/// The release without what it was built for: `2.27.7` of `2.27.7+cuda12.4`.
fn release(line: &VersionLine) -> (&str, Library) {
    (line.version.split('+').next().unwrap_or_default(), line.library)
}

/// Who loads each release, and a line that says it.
type Loaders<'a, T> = BTreeMap<&'a str, (&'a VersionLine, BTreeSet<T>)>;

/// The only release among some lines. A process that loads two, its own and that of a library, tells nothing.
fn only<'a>(lines: impl Iterator<Item = &'a VersionLine> + Clone) -> Option<&'a VersionLine> {
    let first = lines.clone().next()?;
    lines.into_iter().all(|line| release(line) == release(first)).then_some(first)
}

fn in_communicator(case: &Case, comm: &Communicator) -> Option<Finding> {
    let mut hosts: Loaders<&str> = BTreeMap::new();
    let mut ranks: Loaders<u32> = BTreeMap::new();
    for (number, rank) in &comm.ranks {
        let Some((host, pid)) = rank.node.and_then(|node| case.run.nodes.get(node as usize)).zip(rank.pid) else {
            continue;
        };
        let loads = |line: &&VersionLine| line.processes.iter().any(|(name, id)| *name == host.host && *id == pid);
        let Some(line) = only(case.run.nccl.versions.iter().filter(loads)) else { continue };
        hosts.entry(release(line).0).or_insert((line, BTreeSet::new())).1.insert(&host.host);
        ranks.entry(release(line).0).or_insert((line, BTreeSet::new())).1.insert(*number);
    }
    let failed = case.ends.failed() || !comm.came_up() && case.run.nccl.warn_lines > 0;
    let of_hosts = hosts.values().map(|(_, hosts)| hosts.len()).sum::<usize>()
        == hosts.values().flat_map(|(_, hosts)| hosts).collect::<BTreeSet<_>>().len();
    match of_hosts {
        true => mixed(&hosts, "", failed, 0.93),
        false => mixed(&ranks, "rank ", failed, 0.93),
    }
}

/// Hosts of one input without any communicator, each with one release, whose lines lie between each other's, as those of runs
/// one after the other do not; or whose messages do not fit each other.
fn at_once(case: &Case) -> Option<Finding> {
    if !case.run.communicators.is_empty() {
        return None;
    }
    let of_host = |host: &str| {
        let loads = |line: &&VersionLine| line.processes.iter().any(|(name, _)| name == host);
        only(case.run.nccl.versions.iter().filter(loads))
    };
    let (spans, misread) = (spans(case), misread(case));
    let meets = |(input, host): &(u32, &str)| {
        let Some((line, (from, to))) = of_host(host).zip(spans.get(&(*input, *host))) else { return false };
        spans.iter().any(|((other_input, other), (first, last))| {
            let differs = of_host(other).is_some_and(|theirs| release(theirs) != release(line));
            other_input == input && differs && (misread || first < to && from < last)
        })
    };
    let mut hosts: Loaders<&str> = BTreeMap::new();
    for (_, host) in spans.keys().filter(|key| meets(key)) {
        let Some(line) = of_host(host) else { continue };
        hosts.entry(release(line).0).or_insert((line, BTreeSet::new())).1.insert(host);
    }
    let failed = case.ends.failed() || case.run.nccl.warn_lines > 0;
    mixed(&hosts, "", failed, 0.8)
}

/// Versions on lines without a name, more than one, in an input whose only communicator began on several hosts and never came up.
fn nameless(case: &Case) -> Option<Finding> {
    let [comm] = case.run.communicators.as_slice() else { return None };
    let here = |line: &&VersionLine| line.processes.is_empty() && line.source.place.input == comm.place.input;
    let mut loaded: Loaders<&str> = BTreeMap::new();
    let who: BTreeSet<&str> = comm.hosts(case.run).into_iter().collect();
    for line in case.run.nccl.versions.iter().filter(here) {
        loaded.entry(release(line).0).or_insert((line, BTreeSet::new()));
    }
    let apart = who.len() > 1 && !comm.came_up();
    let hosts = listed(who.iter(), MOST_NAMED);
    mixed(&loaded, &format!("one of {hosts}"), apart, 0.85).filter(|_| apart)
}

/// Whether a rank read another's message as what it is not: one of another length, an address that is none.
fn misread(case: &Case) -> bool {
    const SIGNS: [&str; 3] = ["Message truncated", "message truncated", "is neither AF_INET"];
    case.lines.iter().any(|line| SIGNS.iter().any(|sign| line.text.contains(sign)))
}

/// From where to where each host speaks in each input, as far as its statements were kept.
fn spans<'a>(case: &Case<'a>) -> HashMap<(u32, &'a str), (u64, u64)> {
    let log = &case.run.nccl;
    let networks = log.networks.iter().filter_map(|line| Some((line.host.as_deref()?, line.source.place)));
    let warnings = log.warnings.iter().filter_map(|line| Some((&*line.who.as_ref()?.host, line.source.place)));
    let steps = log.error_steps.iter().filter_map(|line| Some((&*line.who.as_ref()?.host, line.source.place)));
    let notes = case.run.statements.iter().filter_map(|line| Some((line.host.as_deref()?, line.source.place)));
    let mut spans: HashMap<(u32, &str), (u64, u64)> = HashMap::new();
    let spoken: Vec<(&str, Place)> = networks.chain(warnings).chain(steps).chain(notes).collect();
    for (host, place) in spoken {
        let (first, last) = spans.entry((place.input, host)).or_insert((place.line, place.line));
        (*first, *last) = ((*first).min(place.line), (*last).max(place.line));
    }
    spans
}

fn mixed<T: std::fmt::Display>(loaders: &Loaders<T>, noun: &str, failed: bool, confidence: f64) -> Option<Finding> {
    if loaders.len() < 2 {
        return None;
    }
    let said = |(release, (_, who)): (&&str, &(&VersionLine, BTreeSet<T>))| {
        format!("{release} on {noun}{}", listed(who.iter(), MOST_NAMED))
    };
    let said: Vec<String> = loaders.iter().map(said).collect();
    let draft = Draft {
        code: Code::VersionMismatch,
        severity: if failed { Severity::Error } else { Severity::Warning },
        confidence,
        title: format!("Ranks of one job load different versions of NCCL: {}", said.join(", ")),
        explanation: "All ranks of a communicator must load the same NCCL: what they tell each other as they meet, and how they move data \
                      later, changes from version to version. Mixed versions end in truncated messages, time-outs, hangs or wrong data; \
                      where a run goes well, nothing promises that the next one does."
            .into(),
    };
    let evidence = loaders.values().map(|(line, _)| Evidence::noted(line.source.clone(), release(line).0)).collect();
    Some(draft.finding(evidence, REMEDY))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(texts: &[String]) -> Option<(Severity, String)> {
        let names: Vec<String> = (0..texts.len()).map(|index| format!("log-{index}")).collect();
        let texts: Vec<(&str, &[u8])> =
            names.iter().map(String::as_str).zip(texts.iter().map(|t| t.as_bytes())).collect();
        let run = busbw_ingest::read_bytes(&texts).expect("text");
        let found = crate::diagnose(&run).findings.into_iter().find(|finding| finding.code == Code::VersionMismatch);
        found.map(|finding| (finding.severity, finding.title))
    }

    fn version(host: &str, pid: u32, version: &str) -> String {
        format!("{host}:{pid}:{pid} [0] NCCL INFO NCCL version {version}\n")
    }

    fn joins(host: &str, pid: u32, rank: u32, id: &str, end: &str) -> String {
        format!(
            "{host}:{pid}:{pid} [0] NCCL INFO ncclCommInitRank comm 0x5{rank} rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId {id} - Init {end}\n"
        )
    }

    fn up(host: &str, pid: u32, rank: u32, id: &str) -> String {
        joins(host, pid, rank, id, "START") + &joins(host, pid, rank, id, "COMPLETE")
    }

    const TRUNCATED: &str =
        "gpu-b:7:7 [0] bootstrap.cc:77 NCCL WARN Message truncated : received 172 bytes instead of 64\n";
    const OLD: &str = "2.20.3+cuda12.3";
    const NEW: &str = "2.25.1+cuda12.8";

    #[test]
    fn ranks_that_load_different_versions_are_named() {
        let (a, b) = (joins("gpu-a", 5, 0, "0x7", "START"), joins("gpu-b", 7, 1, "0x7", "START"));
        let one = version("gpu-a", 5, OLD) + &a + &version("gpu-b", 7, NEW) + &b;
        let well = version("gpu-a", 5, OLD)
            + &up("gpu-a", 5, 0, "0x7")
            + &version("gpu-b", 7, NEW)
            + &up("gpu-b", 7, 1, "0x7");
        let same_host =
            version("gpu-a", 5, OLD) + &a + &version("gpu-a", 6, NEW) + &joins("gpu-a", 6, 1, "0x7", "START");
        let bootstrap =
            |host: &str, pid: u32| format!("{host}:{pid}:{pid} [0] NCCL INFO Bootstrap : Using eth0:10.0.0.{pid}<0>\n");
        let met = bootstrap("gpu-a", 5)
            + &version("gpu-a", 5, OLD)
            + &bootstrap("gpu-b", 7)
            + &version("gpu-b", 7, NEW)
            + "gpu-a:5:5 [0] bootstrap.cc:90 NCCL WARN Bootstrap Root : mismatch in rank count\n"
            + TRUNCATED;
        // The version on a line without a name, behind the driver's of the process that prints both.
        let driver = |host: &str, pid: u32| format!("{host}:{pid}:{pid} [0] NCCL INFO cudaDriverVersion 12040\n");
        let nameless = bootstrap("gpu-a", 5)
            + &driver("gpu-a", 5)
            + &format!("NCCL version {OLD}\n")
            + &bootstrap("gpu-b", 7)
            + &driver("gpu-b", 7)
            + &format!("NCCL version {NEW}\n")
            + "gpu-b:7:9 [0] misc/socket.cc:729 NCCL WARN ncclSocketInit: connecting to address with family 0 is neither AF_INET(2) nor AF_INET6(10)\n";
        // Neither line names a process, and nothing else is said of the driver.
        let strangers = format!("NCCL version {OLD}\n{a}NCCL version {NEW}\n{b}");
        let cases = [
            (vec![strangers], Severity::Error, "2.20.3 on one of gpu-a, gpu-b, 2.25.1 on one of gpu-a, gpu-b"),
            (vec![one.clone() + TRUNCATED], Severity::Error, "2.20.3 on gpu-a, 2.25.1 on gpu-b"),
            (vec![well], Severity::Warning, "2.20.3 on gpu-a, 2.25.1 on gpu-b"),
            // A file per host, with the version on a line of its own.
            (
                vec![format!("NCCL version {OLD}\n{a}"), format!("NCCL version {NEW}\n{b}{TRUNCATED}")],
                Severity::Error,
                "2.20.3 on gpu-a, 2.25.1 on gpu-b",
            ),
            (vec![same_host], Severity::Warning, "2.20.3 on rank 0, 2.25.1 on rank 1"),
            (vec![met], Severity::Error, "2.20.3 on gpu-a, 2.25.1 on gpu-b"),
            (vec![nameless], Severity::Error, "2.20.3 on gpu-a, 2.25.1 on gpu-b"),
        ];
        for (texts, severity, who) in cases {
            let (told, title) = told(&texts).unwrap_or_else(|| panic!("{texts:?}"));
            assert_eq!((told, title.ends_with(who)), (severity, true), "{texts:?}: {title}");
        }
    }

    #[test]
    fn runs_by_themselves_and_other_libraries_are_no_mixture() {
        let run = |pids: [u32; 2], loads: &str, id: &str| {
            version("gpu-a", pids[0], loads)
                + &up("gpu-a", pids[0], 0, id)
                + &version("gpu-b", pids[1], loads)
                + &up("gpu-b", pids[1], 1, id)
        };
        let cases = [
            vec![run([5, 7], OLD, "0x7")],
            // One after the other, in one file and in two; the second with its first rank on the other host.
            vec![run([5, 7], OLD, "0x7") + &run([15, 17], NEW, "0x8")],
            vec![run([5, 7], OLD, "0x7"), run([15, 17], NEW, "0x8")],
            vec![
                version("gpu-a", 5, OLD)
                    + &up("gpu-a", 5, 0, "0x7")
                    + &up("gpu-b", 7, 1, "0x7")
                    + &version("gpu-b", 17, NEW)
                    + &up("gpu-b", 17, 0, "0x8")
                    + &up("gpu-a", 15, 1, "0x8"),
            ],
            // Two hosts, each by itself, one after the other.
            vec![
                version("gpu-a", 5, OLD)
                    + "gpu-a:5:5 [0] init.cc:1 NCCL WARN Cuda failure 'out of memory'\n"
                    + &version("gpu-b", 7, NEW)
                    + &TRUNCATED.replace("Message truncated", "Socket closed"),
            ],
            // One release, built for two versions of CUDA.
            vec![
                version("gpu-a", 5, "2.20.3+cuda12.3")
                    + &up("gpu-a", 5, 0, "0x7")
                    + &version("gpu-b", 7, "2.20.3+cuda12.2")
                    + &up("gpu-b", 7, 1, "0x7"),
            ],
            // Every process loads two: its own and that of a library that it uses.
            vec![run([5, 7], OLD, "0x7") + &version("gpu-a", 5, NEW) + &version("gpu-b", 7, NEW)],
        ];
        for texts in cases {
            assert_eq!(told(&texts), None, "{texts:?}");
        }
    }
}
