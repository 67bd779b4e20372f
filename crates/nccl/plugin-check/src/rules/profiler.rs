//! NCCL's rules for profilers. NCCL does not look at what their functions give (`src/plugin/profiler.cc`), so an error is a note; it
//! stumbles over a crash, and over a call that waits.

use super::{Nccl, Rule, Run, Source, kept, noted, wrong};
use crate::api::{Answer, Event, Profiled, Profiler, What, last_line, progress};
use crate::case::{Case, CaseResult, Stop};
use crate::surroundings::Surroundings::{Folder, MissingFolder};
use crate::wire::Wrong;
use busbw_model::RuleOutcome;
use busbw_nccl_abi::profiler::states;
use std::path::Path;
use std::time::Instant;

type Profilers = Case<Profiler>;

const STEPS: i32 = 4;
/// How often a sender says that it waits for room: each time it tries.
const WAITS: usize = 100;
const THREADS: usize = 4;
const PLANS_OF_THREAD: usize = 200;
/// More events than anybody keeps room for, while nobody reads.
const FLOOD: u64 = 3_000_000;
const BYTES: u64 = 1 << 19;
/// How often the library is closed and loaded again.
const LOADS: usize = 3;

const CRASH: Nccl = Nccl::Relies("a crash of the plugin ends the job, and a call that waits stops NCCL's progress");
const ASKS_NOTHING: &str = "it asks for no events";
const IGNORED: &str = "NCCL does not look at what events give; an error of init turns profiling off";

/// In the order in which they are tried.
pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "profiler-events",
        asks: "it takes all that it asked for of a job: calls, graphs, operations, steps, kernels",
        nccl: CRASH,
        source: Source { newest: "src/plugin/profiler.cc:500", oldest: None },
        run: Run::Profiler(Folder, events),
    },
    Rule {
        name: "profiler-mask",
        asks: "init asks for the same events each time",
        nccl: Nccl::Relies(
            "the mask is one for the process, and the last communicator's init sets it: events of others stop",
        ),
        source: Source { newest: "src/plugin/profiler.cc:250", oldest: None },
        run: Run::Profiler(Folder, same_mask),
    },
    Rule {
        name: "profiler-contexts",
        asks: "ending a communicator does not affect the events of others",
        nccl: CRASH,
        source: Source { newest: "src/plugin/profiler.cc:266", oldest: None },
        run: Run::Profiler(Folder, contexts),
    },
    Rule {
        name: "profiler-threads",
        asks: "events come from several threads at once: the application's, and NCCL's own",
        nccl: CRASH,
        source: Source { newest: "src/plugin/profiler.cc:582", oldest: None },
        run: Run::Profiler(Folder, threads),
    },
    Rule {
        name: "profiler-foreign",
        asks: "the parent of a proxy's operation may be an event of another process (PXN)",
        nccl: CRASH,
        source: Source { newest: "src/plugin/profiler.cc:574", oldest: None },
        run: Run::Profiler(Folder, foreign_parent),
    },
    Rule {
        name: "profiler-full",
        asks: "more events than it has room for, which nobody reads, do not stop it",
        nccl: CRASH,
        source: Source { newest: "src/plugin/profiler.cc:611", oldest: None },
        run: Run::Profiler(Folder, flood),
    },
    Rule {
        name: "profiler-no-place",
        asks: "where there is no place for events, there is no error",
        nccl: CRASH,
        source: Source { newest: "src/plugin/profiler.cc:252", oldest: None },
        run: Run::Profiler(MissingFolder, without_place),
    },
    Rule {
        name: "profiler-agent",
        asks: "what reads the events may go away under way",
        nccl: CRASH,
        source: Source { newest: "src/plugin/profiler.cc:611", oldest: None },
        run: Run::Profiler(Folder, agent_dies),
    },
    Rule {
        name: "profiler-fork",
        asks: "a child of a fork that ends does not disturb its parent",
        nccl: CRASH,
        source: Source { newest: "src/misc/ibvsymbols.cc:132", oldest: None },
        run: Run::Profiler(Folder, forks),
    },
    Rule {
        name: "profiler-again",
        asks: "it can be closed after the last communicator, and loaded again for the next",
        nccl: Nccl::Relies("NCCL closes the library with a process's last communicator, and loads it with the next"),
        source: Source { newest: "src/plugin/profiler.cc:119", oldest: None },
        run: Run::Profiler(Folder, loaded_again),
    },
    Rule {
        name: "profiler-end",
        asks: "a context that is ended twice does no harm, nor do events after the end",
        nccl: Nccl::Never("NCCL ends a context once, after the last of its events"),
        source: Source { newest: "src/plugin/profiler.cc:266", oldest: None },
        run: Run::Profiler(Folder, ended_twice),
    },
];

/// Events of a communicator, as NCCL tells them; what the profiler gave is kept, and not looked at.
struct Play<'a> {
    profiler: &'a Profiler,
    communicator: Profiled,
    calls: u64,
    refused: Option<Wrong>,
}

impl<'a> Play<'a> {
    fn begin(profiler: &'a Profiler, rank: i32) -> Answer<Self> {
        Ok(Play { profiler, communicator: profiler.init(rank)?, calls: 0, refused: None })
    }

    /// Counts a call that was made, and keeps what it refused.
    fn heed<T>(&mut self, answer: Answer<T>) -> Option<T> {
        self.calls += 1;
        match answer {
            Ok(given) => Some(given),
            Err(wrong) => {
                self.refused.get_or_insert(wrong);
                None
            }
        }
    }

    fn start(&mut self, parent: Event, what: What) -> Event {
        match self.profiler.start(self.communicator, parent, what) {
            Ok(None) => Event::NONE,
            started => self.heed(started).flatten().unwrap_or(Event::NONE),
        }
    }

    fn stop(&mut self, event: Event) {
        if event.is_some() {
            let stopped = self.profiler.stop(event);
            self.heed(stopped);
        }
    }

    fn record(&mut self, event: Event, state: i32, value: u64) {
        self.record_at(event, state, value, 0);
    }

    fn record_at(&mut self, event: Event, state: i32, value: u64, steps: i32) {
        if self.profiler.has_state(event, state) {
            let recorded = self.profiler.record(event, state, value, steps);
            self.heed(recorded);
        }
    }

    fn finalize(mut self) -> Option<Wrong> {
        let ended = self.profiler.finalize(self.communicator);
        self.heed(ended);
        self.refused
    }

    /// The application's call, whose handle a graph's replays have as their parent.
    fn call(&mut self, captured: bool) -> Event {
        let group = self.start(Event::NONE, What::GroupCall);
        self.record(group, states::GROUP_START_STOP, 0);
        let call = self.start(group, What::CollectiveCall { captured });
        self.stop(call);
        self.record(group, states::GROUP_END_START, 0);
        let launch = self.start(group, What::KernelLaunch);
        self.stop(launch);
        self.stop(group);
        call
    }

    /// What runs when a plan does (`hostStreamPlanTask`, `src/enqueue.cc`): an operation, its kernel on one channel, and what a proxy
    /// sends and receives for it. The operation's own end is that of queueing it.
    fn plan(&mut self, call: Event) {
        let group = self.start(Event::NONE, What::Group);
        let operation = self.start(call, What::Collective { group });
        self.stop(operation);
        self.stop(group);
        let kernel = self.start(operation, What::Kernel { timer: 1000 });
        self.proxy(operation, std::process::id(), true);
        self.proxy(operation, std::process::id(), false);
        self.record(kernel, states::KERNEL_STOP, 2000);
        self.stop(kernel);
    }

    fn proxy(&mut self, parent: Event, process: u32, sends: bool) {
        let operation = self.start(parent, What::ProxyOperation { process, sends, steps: STEPS });
        self.record(operation, states::PROXY_IN_PROGRESS, 0);
        for number in 0..STEPS {
            // NCCL 2.23 to 2.26 tell each step of the operation too: posted, waiting, sent, done (`src/transport/net.cc:1143` in 2.26.2).
            for state in if sends { progress::SEND } else { progress::RECEIVE } {
                self.record_at(operation, state, BYTES * u64::from(number.unsigned_abs()), number + 1);
            }
            self.step(operation, number, sends);
        }
        self.stop(operation);
    }

    /// As `sendProxyProgress` and `recvProxyProgress` do (`src/transport/net.cc`).
    fn step(&mut self, parent: Event, number: i32, sends: bool) {
        let step = self.start(parent, What::ProxyStep { number });
        if sends {
            self.record(step, states::SEND_GPU_WAIT, BYTES);
            (0..WAITS).for_each(|_| self.record(step, states::SEND_PEER_WAIT, BYTES));
            self.record(step, states::SEND_WAIT, BYTES);
        } else {
            self.record(step, states::RECV_WAIT, BYTES);
            self.record(step, states::RECV_FLUSH_WAIT, BYTES);
            self.record(step, states::RECV_GPU_WAIT, BYTES);
        }
        self.stop(step);
    }

    /// All kinds of events: an operation, a graph that is replayed, a send, the copy engines, the proxy's own.
    fn job(&mut self) {
        let control = self.start(Event::NONE, What::ProxyControl);
        self.record(control, states::CONTROL_ACTIVE, 0);
        let call = self.call(false);
        self.plan(call);
        let captured = self.call(true);
        (0..3).for_each(|_| self.plan(captured));
        let group = self.start(Event::NONE, What::Group);
        let call = self.start(Event::NONE, What::P2pCall);
        let send = self.start(call, What::P2p { group });
        let copied = self.start(call, What::CopyEngine);
        [send, copied, group, call, control].into_iter().for_each(|event| self.stop(event));
    }
}

/// Plays something; notes what was refused.
fn played(profiler: &Profiler, act: impl FnOnce(&mut Play<'_>) -> CaseResult<()>) -> CaseResult<RuleOutcome> {
    let refused = match Play::begin(profiler, 1) {
        Err(wrong) => Some(wrong),
        Ok(mut play) => {
            act(&mut play)?;
            play.finalize()
        }
    };
    Ok(refused.map_or_else(|| kept(""), |wrong| noted(wrong.to_string(), IGNORED)))
}

/// Tells what was seen where the rule is kept.
fn seeing(outcome: RuleOutcome, seen: String) -> RuleOutcome {
    if matches!(outcome, RuleOutcome::Kept(_)) { kept(seen) } else { outcome }
}

fn events(case: &mut Profilers) -> CaseResult<RuleOutcome> {
    let mut seen = ASKS_NOTHING.to_owned();
    let outcome = played(&case.plugin, |play| {
        let began = Instant::now();
        play.job();
        let (mask, calls) = (play.profiler.mask(), play.calls);
        let each = began.elapsed().as_secs_f64() * 1e9 / calls.max(1) as f64;
        if mask != 0 {
            seen = format!("it asks for {mask:#x}; {calls} calls, {each:.0} ns each");
        }
        Ok(())
    })?;
    Ok(seeing(outcome, seen))
}

fn same_mask(case: &mut Profilers) -> CaseResult<RuleOutcome> {
    played(&case.plugin, |play| {
        let first = play.profiler.mask();
        for rank in [0, 1, 2] {
            let other = play.profiler.init(rank)?;
            let now = play.profiler.mask();
            if now != first {
                return wrong(format!("init asks for {first:#x}, and then for {now:#x}"));
            }
            play.profiler.finalize(other)?;
        }
        Ok(())
    })
}

fn contexts(case: &mut Profilers) -> CaseResult<RuleOutcome> {
    played(&case.plugin, |play| {
        let call = play.call(false);
        let mut other = Play::begin(play.profiler, 2)?;
        other.job();
        play.refused = play.refused.take().or(other.finalize());
        play.plan(call);
        Ok(())
    })
}

/// A communicator comes after the last of a process has ended: NCCL has closed the library between them.
fn loaded_again(case: &mut Profilers) -> CaseResult<RuleOutcome> {
    let job = |play: &mut Play<'_>| {
        play.job();
        Ok(())
    };
    let mut outcome = played(&case.plugin, job)?;
    for _ in 0..LOADS {
        case.plugin.load_again(&case.setup.path).map_err(Wrong::from)?;
        let again = played(&case.plugin, job)?;
        if let (RuleOutcome::Kept(_), RuleOutcome::Noted(_)) = (&outcome, &again) {
            outcome = again;
        }
    }
    Ok(outcome)
}

/// Each thread has a communicator of its own, and plans of the first one's, as NCCL's proxy has.
fn threads(case: &mut Profilers) -> CaseResult<RuleOutcome> {
    played(&case.plugin, |play| {
        let call = play.call(false);
        let (profiler, first) = (play.profiler, play.communicator);
        let act = move || -> Answer<Option<Wrong>> {
            let mut shared = Play { profiler, communicator: first, calls: 0, refused: None };
            let mut own = Play::begin(profiler, 2)?;
            for _ in 0..PLANS_OF_THREAD {
                shared.plan(call);
                let call = own.call(false);
                own.plan(call);
            }
            Ok(own.finalize().or(shared.refused))
        };
        let refused = std::thread::scope(|scope| {
            let running: Vec<_> = (0..THREADS).map(|_| scope.spawn(act)).collect();
            let ended: Vec<_> = running.into_iter().map(|thread| thread.join()).collect();
            ended.into_iter().try_fold(None, |refused: Option<Wrong>, ended| match ended {
                Ok(answer) => Ok(refused.or(answer?)),
                Err(_) => Err(Stop::RankGone),
            })
        })?;
        play.refused = play.refused.take().or(refused);
        Ok(())
    })
}

fn foreign_parent(case: &mut Profilers) -> CaseResult<RuleOutcome> {
    played(&case.plugin, |play| {
        for sends in [true, false] {
            // Processes of that number may well be there; it is not this one.
            play.proxy(Event::OF_ANOTHER_PROCESS, std::process::id() + 1, sends);
        }
        Ok(())
    })
}

fn flood(case: &mut Profilers) -> CaseResult<RuleOutcome> {
    let mut seen = ASKS_NOTHING.to_owned();
    let outcome = played(&case.plugin, |play| {
        let began = Instant::now();
        // Where nothing is asked for, plans make no calls.
        for _ in 0..FLOOD {
            play.plan(Event::NONE);
            if play.calls > FLOOD {
                break;
            }
        }
        if play.calls > 0 {
            let each = began.elapsed().as_secs_f64() * 1e9 / play.calls as f64;
            seen = format!("{each:.0} ns per call");
        }
        Ok(())
    })?;
    Ok(seeing(outcome, format!("{seen}. {}", last_line().unwrap_or_default())))
}

fn without_place(case: &mut Profilers) -> CaseResult<RuleOutcome> {
    let outcome = played(&case.plugin, |play| {
        play.job();
        Ok(())
    })?;
    Ok(seeing(outcome, last_line().unwrap_or_default()))
}

/// The folder goes, with all that is in it, and the folder that the plugin was given too.
fn agent_dies(case: &mut Profilers) -> CaseResult<RuleOutcome> {
    played(&case.plugin, |play| {
        play.job();
        if let Some(folder) = std::env::var_os("BUSBW_PROFILE") {
            // The plugin may have taken it away itself.
            let _ = std::fs::remove_dir_all(Path::new(&folder));
        }
        play.job();
        Ok(())
    })
}

fn forks(case: &mut Profilers) -> CaseResult<RuleOutcome> {
    let mut ended = None;
    let outcome = played(&case.plugin, |play| {
        let call = play.call(false);
        let (profiler, communicator) = (play.profiler, play.communicator);
        ended = case.in_child(|| {
            let mut play = Play { profiler, communicator, calls: 0, refused: None };
            play.plan(call);
            play.refused.is_none()
        })?;
        play.plan(call);
        Ok(())
    })?;
    let why = "a child of a fork cannot use CUDA, and so makes no call of NCCL's";
    Ok(ended.map_or(outcome, |how| noted(how, why)))
}

fn ended_twice(case: &mut Profilers) -> CaseResult<RuleOutcome> {
    played(&case.plugin, |play| {
        let other = Play::begin(play.profiler, 2)?;
        let again = other.communicator;
        other.finalize();
        play.profiler.finalize(again)?;
        let mut late = Play { profiler: play.profiler, communicator: again, calls: 0, refused: None };
        late.plan(Event::NONE);
        Ok(())
    })
}
