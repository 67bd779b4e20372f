//! NCCL's rules for tuners.

use super::{Nccl, Rule, Run, Source, kept, noted, wrong};
use crate::api::{Costs, Tuned, Tuner, Way, last_line};
use crate::case::{Case, CaseResult, Stop};
use crate::surroundings::Surroundings::{AsTheyAre, DamagedTable, MissingTable, OthersTable, OwnTable};
use crate::wire::Wrong;
use busbw_model::{Algorithm, Bytes, Collective, Protocol, RuleOutcome, TunedOperation, counted};

type Tuners = Case<Tuner>;

/// Ranks and nodes of the communicators that are played; tables of tests are for the first. Tuners of clouds leave few nodes to NCCL
/// (aws-ofi-nccl: up to two), and treat one rank per node in a way of its own.
const SHAPES: [(usize, usize); 5] = [(16, 2), (8, 1), (1, 1), (128, 16), (16, 16)];
const SIZES: [u64; 5] = [1, 4 << 10, 1 << 20, 1 << 30, 8 << 30];
const COLLECTIVES: [Collective; 5] = [
    Collective::AllReduce,
    Collective::AllGather,
    Collective::ReduceScatter,
    Collective::Broadcast,
    Collective::Reduce,
];
/// What NCCL might take for the size of chunks.
const CHUNK: usize = 128 << 10;
const THREADS: usize = 4;
const OF_THREAD: usize = 200;
/// How often the library is closed and loaded again.
const LOADS: usize = 3;

const INIT: Source = Source { newest: "src/init.cc:1641", oldest: None };
const TABLE: Nccl = Nccl::Relies("an error of init is one of ncclCommInitRank: no communicator comes up");

/// In the order in which they are tried.
pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "tuner-choice",
        asks: "init and getCollInfo succeed, and choose only what NCCL can do",
        nccl: Nccl::Relies("an error goes to the application, and what NCCL cannot do ends the job"),
        source: Source { newest: "src/enqueue.cc:2147", oldest: None },
        run: Run::Tuner(AsTheyAre, choice),
    },
    Rule {
        name: "tuner-ranks",
        asks: "the same operation goes the same way on every rank",
        nccl: Nccl::Relies(
            "each rank asks its own tuner: ranks that go by different algorithms wait for each other without end",
        ),
        source: Source { newest: "src/enqueue.cc:2149", oldest: None },
        run: Run::Tuner(OwnTable, on_every_rank),
    },
    Rule {
        name: "tuner-contexts",
        asks: "each communicator has its own context, and ending one does not affect the others",
        nccl: Nccl::Relies("NCCL starts and ends a context with each communicator of a process"),
        source: Source { newest: "src/init.cc:2775", oldest: None },
        run: Run::Tuner(OwnTable, contexts),
    },
    Rule {
        name: "tuner-threads",
        asks: "communicators of several threads choose at the same time",
        nccl: Nccl::Relies("one tuner serves all communicators of a process, and NCCL's lock is for loading only"),
        source: Source { newest: "src/plugin/tuner.cc:47", oldest: None },
        run: Run::Tuner(OwnTable, threads),
    },
    Rule {
        name: "tuner-fork",
        asks: "a child of a fork that ends does not disturb its parent",
        nccl: Nccl::Relies("data loaders fork from processes that train, and NCCL prepares for it"),
        source: Source { newest: "src/misc/ibvsymbols.cc:132", oldest: None },
        run: Run::Tuner(OwnTable, forks),
    },
    Rule {
        name: "tuner-no-table",
        asks: "a table that is not there is no error",
        nccl: TABLE,
        source: INIT,
        run: Run::Tuner(MissingTable, without_table),
    },
    Rule {
        name: "tuner-damaged",
        asks: "a damaged table is no error",
        nccl: TABLE,
        source: INIT,
        run: Run::Tuner(DamagedTable, without_table),
    },
    Rule {
        name: "tuner-other",
        asks: "a table of another machine changes nothing",
        nccl: TABLE,
        source: INIT,
        run: Run::Tuner(OthersTable, without_table),
    },
    Rule {
        name: "tuner-again",
        asks: "it can be closed after the last communicator, and loaded again for the next",
        nccl: Nccl::Relies("NCCL closes the library with the communicator that loaded it, and may load it again"),
        source: Source { newest: "src/plugin/tuner.cc:110", oldest: None },
        run: Run::Tuner(OwnTable, loaded_again),
    },
    Rule {
        name: "tuner-end",
        asks: "a context that is ended twice, or was never there, does no harm",
        nccl: Nccl::Never("NCCL ends a context once"),
        source: Source { newest: "src/init.cc:2775", oldest: None },
        run: Run::Tuner(AsTheyAre, ended_twice),
    },
];

fn operations((ranks, nodes): (usize, usize)) -> Vec<TunedOperation> {
    let mut all = Vec::new();
    for collective in COLLECTIVES {
        for size in SIZES {
            for (operations, registered) in [(1, false), (1, true), (4, false)] {
                let (ranks, nodes) = (ranks as u32, nodes as u32);
                all.push(TunedOperation { collective, size: Bytes(size), ranks, nodes, operations, registered });
            }
        }
    }
    all
}

/// What NCCL goes by where nobody tunes.
fn untuned(operation: &TunedOperation) -> Way {
    // Rings are always possible.
    let (algorithm, protocol) = Costs::of(operation).cheapest().unwrap_or((1, 2));
    Way { algorithm, protocol, channels: 0, chunk: CHUNK }
}

/// Has the tuner choose, and NCCL follow: how the operation goes.
fn way(tuner: &Tuner, communicator: Tuned, operation: &TunedOperation) -> CaseResult<Way> {
    let before = Costs::of(operation);
    let mut costs = before.clone();
    let channels = tuner.choose(communicator, operation, &mut costs)?;
    let of = || format!("{} of {} on {} ranks", operation.collective, operation.size, operation.ranks);
    if !costs.guards_hold() {
        return wrong(format!("getCollInfo wrote beside the table of costs: {}", of()));
    }
    let Some((algorithm, protocol)) = costs.cheapest() else {
        return wrong(format!("getCollInfo left nothing to go by: {}", of()));
    };
    let mut way = Way { algorithm, protocol, channels, chunk: CHUNK };
    if !before.is_possible((algorithm, protocol)) {
        return wrong(format!("{} goes by {}, which NCCL said is not possible", of(), told(&way)));
    }
    if channels < 0 {
        return wrong(format!("{} is to have {channels} channels", of()));
    }
    tuner.chunk(communicator, operation, &mut way)?;
    if way.chunk == 0 { wrong(format!("{} is to go in chunks of 0 bytes", of())) } else { Ok(way) }
}

/// `Ring LL, 3 channels, chunks of 128 KiB`.
fn told(way: &Way) -> String {
    let name = |names: Option<String>| names.unwrap_or_else(|| "?".to_owned());
    let algorithm = name(Algorithm::ALL.get(way.algorithm).map(ToString::to_string));
    let protocol = name(Protocol::ALL.get(way.protocol).map(ToString::to_string));
    let channels =
        if way.channels == 0 { String::new() } else { format!(", {}", counted(way.channels as usize, "channel")) };
    let chunk = if way.chunk == CHUNK { String::new() } else { format!(", chunks of {}", Bytes(way.chunk as u64)) };
    format!("{algorithm} {protocol}{channels}{chunk}")
}

/// Starts a communicator, has it choose for every operation, and ends it.
fn ways(tuner: &Tuner, shape: (usize, usize)) -> CaseResult<Vec<(TunedOperation, Way)>> {
    let communicator = tuner.init(shape.0, shape.1)?;
    let chosen: CaseResult<Vec<_>> =
        operations(shape).into_iter().map(|operation| Ok((operation, way(tuner, communicator, &operation)?))).collect();
    tuner.finalize(communicator)?;
    chosen
}

fn choice(case: &mut Tuners) -> CaseResult<RuleOutcome> {
    let (mut all, mut tuned) = (0, 0);
    for shape in SHAPES {
        let chosen = ways(&case.plugin, shape)?;
        all += chosen.len();
        tuned += chosen.iter().filter(|(operation, way)| *way != untuned(operation)).count();
    }
    Ok(kept(format!("{tuned} of {all} choices are not NCCL's own")))
}

/// Both ends are given a table, which a tuner may follow or not.
fn on_every_rank(case: &mut Tuners) -> CaseResult<RuleOutcome> {
    let (mut lines, mut tuned) = (Vec::new(), 0);
    for shape in SHAPES {
        for (operation, way) in ways(&case.plugin, shape)? {
            tuned += usize::from(way != untuned(&operation));
            let TunedOperation { collective, size, ranks, .. } = operation;
            lines.push(format!("{collective} of {size} on {ranks} ranks: {}", told(&way)));
        }
    }
    let others = case.exchange(lines.join("\n").as_bytes())?;
    let others = String::from_utf8_lossy(&others);
    match lines.iter().zip(others.lines()).find(|(own, other)| own.as_str() != *other) {
        Some((own, other)) => wrong(format!("one rank says {own}; the other says {other}")),
        None if tuned == 0 => Ok(kept("a table of NCCL's example form is not followed, or there is none")),
        None => Ok(kept(format!("{tuned} of {} choices are not NCCL's own", lines.len()))),
    }
}

fn contexts(case: &mut Tuners) -> CaseResult<RuleOutcome> {
    let tuner = &case.plugin;
    let first = tuner.init(16, 2)?;
    let before = way(tuner, first, &operations((16, 2))[0])?;
    for _ in 0..OF_THREAD {
        let other = tuner.init(8, 1)?;
        way(tuner, other, &operations((8, 1))[0])?;
        tuner.finalize(other)?;
    }
    if way(tuner, first, &operations((16, 2))[0])? != before {
        return wrong("a communicator chooses differently after another has ended");
    }
    tuner.finalize(first)?;
    Ok(kept(""))
}

/// NCCL closes the library with the communicator that loaded it, and loads it for the next.
fn loaded_again(case: &mut Tuners) -> CaseResult<RuleOutcome> {
    let before = ways(&case.plugin, SHAPES[0])?;
    for _ in 0..LOADS {
        case.plugin.load_again(&case.setup.path).map_err(Wrong::from)?;
        if ways(&case.plugin, SHAPES[0])? != before {
            return wrong("a communicator chooses differently after the library was closed and loaded again");
        }
    }
    Ok(kept(""))
}

/// What a thread does: its communicators come and go, and choose the same.
fn in_thread(tuner: &Tuner) -> CaseResult<()> {
    let first = ways(tuner, SHAPES[0])?;
    for _ in 0..OF_THREAD / 50 {
        if ways(tuner, SHAPES[0])? != first {
            return wrong("threads choose differently");
        }
    }
    Ok(())
}

fn threads(case: &mut Tuners) -> CaseResult<RuleOutcome> {
    let tuner = &case.plugin;
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..THREADS).map(|_| scope.spawn(|| in_thread(tuner))).collect();
        running.into_iter().try_for_each(|thread| thread.join().unwrap_or(Err(Stop::RankGone)))
    })?;
    Ok(kept(""))
}

fn forks(case: &mut Tuners) -> CaseResult<RuleOutcome> {
    let tuner = &case.plugin;
    let communicator = tuner.init(16, 2)?;
    let operation = operations((16, 2))[0];
    let before = way(tuner, communicator, &operation)?;
    let child = case.in_child(|| way(tuner, communicator, &operation).is_ok_and(|way| way == before))?;
    if way(tuner, communicator, &operation)? != before {
        return wrong("a communicator chooses differently after a child of a fork has ended");
    }
    tuner.finalize(communicator)?;
    let why = "a child of a fork cannot use CUDA, and so makes no call of NCCL's";
    Ok(child.map_or_else(|| kept(""), |how| noted(how, why)))
}

/// No table is for the communicators that are played.
fn without_table(case: &mut Tuners) -> CaseResult<RuleOutcome> {
    for (operation, way) in ways(&case.plugin, SHAPES[0])? {
        let own = untuned(&operation);
        if way != own {
            let TunedOperation { collective, size, .. } = operation;
            let seen = format!("{collective} of {size} goes by {}, where NCCL goes by {}", told(&way), told(&own));
            return Ok(noted(seen, "NCCL goes by what the tuner says; without a tuner it might be faster"));
        }
    }
    Ok(kept(last_line().unwrap_or_default()))
}

fn ended_twice(case: &mut Tuners) -> CaseResult<RuleOutcome> {
    let tuner = &case.plugin;
    let communicator = tuner.init(16, 2)?;
    tuner.finalize(communicator)?;
    tuner.finalize(communicator)?;
    tuner.finalize(Tuned::NONE)?;
    way(tuner, communicator, &operations((16, 2))[0])?;
    way(tuner, Tuned::NONE, &operations((16, 2))[0])?;
    Ok(kept(""))
}
