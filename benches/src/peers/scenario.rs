//! What is compared: places, collectives, sizes, contestants, and the goals that busbw has set itself.

use super::program::Program;
use crate::lab::Lab;
use crate::program::Outcome;
use busbw_model::Collective;
use serde::Serialize;
use std::path::Path;

/// The scenarios, by the names that the command line takes.
pub const SCENARIOS: [&str; 9] = [
    "shm-2",
    "shm-4",
    "shm-2-busy-1",
    "shm-2-busy-2",
    "shm-4-busy-1",
    "shm-4-busy-2",
    "net-2",
    "net-2-rate",
    "net-2-flow",
];

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SIZES: [u64; 12] =
    [8, 64, 512, 4 * KIB, 32 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB];
/// Sizes beside busy loops, where a turn takes long.
const BUSY_SIZES: [u64; 5] = [8, 4 * KIB, 64 * KIB, MIB, 16 * MIB];
/// What `--rate` of the lab is given, and what it is in GB/s.
const RATE: (&str, f64) = ("4gbit", 0.5);
/// What `--flow-rate` of the lab is given, in MB/s.
const FLOW_RATE: &str = "250";

/// Where ranks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunsOn {
    /// All of them on this machine.
    Machine,
    /// One on each host of a lab without limits.
    Hosts,
    /// One on each host of a lab whose NICs have a line rate.
    HostsWithRate,
    /// One on each host of a lab that limits every TCP flow.
    HostsWithFlowRate,
}

/// A program, at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contestant {
    /// Its name in tables.
    pub name: &'static str,
    pub program: Program,
    pub place: RunsOn,
}

/// What busbw is to reach at one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// The best peer's time over busbw's is at least this.
    TimesBestPeer(f64),
    /// busbw of at least this many GB/s (95% of the line rate).
    Rate(f64),
    /// At least this share of its own speed without the limit on flows.
    OfOwnSpeed(f64),
}

/// One table: a collective at a place, over some sizes.
#[derive(Debug, Clone)]
pub struct Case {
    /// The scenario that it belongs to.
    pub scenario: &'static str,
    pub collective: Collective,
    pub ranks: u32,
    /// Loops that compute on every core meanwhile.
    pub busy: usize,
    /// Sizes in bytes, as nccl-tests counts them.
    pub sizes: Vec<u64>,
    /// Who takes part. The first is busbw, unless only peers do.
    pub contestants: Vec<Contestant>,
}

impl Case {
    /// `shm-2 all_reduce`.
    pub fn name(&self) -> String {
        format!("{} {}", self.scenario, self.collective)
    }

    /// What busbw is to reach at `size`; none where nothing was promised.
    pub fn goal(&self, size: u64) -> Option<Goal> {
        let times = Goal::TimesBestPeer;
        match (self.scenario, self.collective) {
            ("shm-2", Collective::AllReduce) => Some(times(if size >= 64 * KIB { 2.0 } else { 1.0 })),
            ("shm-4", Collective::AllReduce) => (size >= 64 * KIB).then_some(times(1.5)),
            ("net-2", Collective::AllReduce) => Some(times(if size >= MIB { 1.3 } else { 1.0 })),
            ("net-2-rate", _) => Some(Goal::Rate(0.95 * RATE.1)),
            ("net-2-flow", _) => Some(Goal::OfOwnSpeed(0.9)),
            _ if self.busy > 0 => Some(times(1.0)),
            _ => (size >= 64 * KIB).then_some(times(1.0)),
        }
    }

    /// Brings up the labs where contestants run, in the order of the case's places.
    pub fn labs(&self, root: &Path) -> Outcome<Vec<(RunsOn, Lab)>> {
        let mut places: Vec<RunsOn> = Vec::new();
        for contestant in &self.contestants {
            if contestant.place != RunsOn::Machine && !places.contains(&contestant.place) {
                places.push(contestant.place);
            }
        }
        let lab = |(number, place): (usize, RunsOn)| Ok((place, Lab::up(root, number, self.ranks, place.options())?));
        places.into_iter().enumerate().map(lab).collect()
    }
}

impl RunsOn {
    fn options(self) -> &'static [&'static str] {
        match self {
            RunsOn::Machine | RunsOn::Hosts => &[],
            RunsOn::HostsWithRate => &["--rate", RATE.0],
            RunsOn::HostsWithFlowRate => &["--flow-rate", FLOW_RATE],
        }
    }
}

/// The cases of a scenario for these programs. busbw comes first, whatever their order.
pub fn cases(scenario: &str, programs: &[Program]) -> Vec<Case> {
    let large = |from: u64| SIZES.iter().copied().filter(|&size| size >= from).collect::<Vec<_>>();
    let case = |scenario, collective, ranks, place, sizes| Case {
        scenario,
        collective,
        ranks,
        busy: 0,
        sizes,
        contestants: contestants(programs, place),
    };
    let others = [Collective::AllGather, Collective::ReduceScatter, Collective::Broadcast, Collective::AllToAll];
    let everything = |scenario, ranks, place| {
        let first = case(scenario, Collective::AllReduce, ranks, place, SIZES.to_vec());
        let rest = others.map(|collective| case(scenario, collective, ranks, place, large(64 * KIB)));
        std::iter::once(first).chain(rest).collect()
    };
    let beside = |scenario, ranks, busy| {
        let quiet = case(scenario, Collective::AllReduce, ranks, RunsOn::Machine, BUSY_SIZES.to_vec());
        vec![Case { busy, ..quiet }]
    };
    match scenario {
        "shm-2-busy-1" => beside("shm-2-busy-1", 2, 1),
        "shm-2-busy-2" => beside("shm-2-busy-2", 2, 2),
        "shm-4-busy-1" => beside("shm-4-busy-1", 4, 1),
        "shm-4-busy-2" => beside("shm-4-busy-2", 4, 2),
        "shm-2" => everything("shm-2", 2, RunsOn::Machine),
        "shm-4" => everything("shm-4", 4, RunsOn::Machine),
        "net-2" => everything("net-2", 2, RunsOn::Hosts),
        "net-2-rate" => {
            vec![case("net-2-rate", Collective::AllReduce, 2, RunsOn::HostsWithRate, large(16 * MIB))]
        }
        "net-2-flow" => {
            let mut case = case("net-2-flow", Collective::AllReduce, 2, RunsOn::HostsWithFlowRate, large(16 * MIB));
            if programs.contains(&Program::Busbw) {
                let unlimited =
                    Contestant { name: "busbw without limit", program: Program::Busbw, place: RunsOn::Hosts };
                case.contestants.insert(1, unlimited);
            }
            vec![case]
        }
        _ => Vec::new(),
    }
}

fn contestants(programs: &[Program], place: RunsOn) -> Vec<Contestant> {
    let all = [Program::Busbw, Program::OpenMpi, Program::Mpich, Program::Gloo];
    let chosen = all.into_iter().filter(|program| programs.contains(program));
    chosen.map(|program| Contestant { name: program.name(), program, place }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Program; 4] = [Program::Gloo, Program::OpenMpi, Program::Mpich, Program::Busbw];

    #[test]
    fn every_scenario_has_cases_and_busbw_first() {
        for scenario in SCENARIOS {
            let cases = cases(scenario, &ALL);
            assert!(!cases.is_empty(), "{scenario}");
            for case in cases {
                assert_eq!(case.contestants[0].name, "busbw", "{}", case.name());
                assert!(case.sizes.iter().all(|size| size % (4 * u64::from(case.ranks)) == 0 || *size == 8));
            }
        }
        assert!(cases("nowhere", &ALL).is_empty());
    }

    #[test]
    fn goals_are_those_that_were_promised() {
        let goal = |scenario: &str, index: usize, size| cases(scenario, &ALL)[index].goal(size);
        let table = [
            (goal("shm-2", 0, 8), Some(Goal::TimesBestPeer(1.0))),
            (goal("shm-2", 0, 64 * KIB), Some(Goal::TimesBestPeer(2.0))),
            (goal("shm-4", 0, 32 * KIB), None),
            (goal("shm-4", 0, 64 * KIB), Some(Goal::TimesBestPeer(1.5))),
            (goal("shm-4", 3, 64 * KIB), Some(Goal::TimesBestPeer(1.0))),
            (goal("shm-4-busy-2", 0, 8), Some(Goal::TimesBestPeer(1.0))),
            (goal("net-2", 0, 256 * KIB), Some(Goal::TimesBestPeer(1.0))),
            (goal("net-2", 0, MIB), Some(Goal::TimesBestPeer(1.3))),
            (goal("net-2-rate", 0, 16 * MIB), Some(Goal::Rate(0.475))),
            (goal("net-2-flow", 0, 16 * MIB), Some(Goal::OfOwnSpeed(0.9))),
        ];
        for (found, promised) in table {
            assert_eq!(found, promised);
        }
    }
}
