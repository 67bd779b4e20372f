//! A job of known cost.

use super::*;
use busbw_events::{Function, Record, What};
use busbw_model::StragglerClass;
use std::io::Write;
use std::sync::{Arc, Mutex};

const RANKS: u32 = 4;
const STEPS: u64 = 100;
/// A step, an operation in it, and how much later rank 2 begins, in nanoseconds.
const STEP: u64 = 10_000_000;
const TIME: u64 = 2_000_000;
const LATE: u64 = 1_000_000;
const COMMUNICATOR: u64 = 1;

/// What was written, for the test to read.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Every rank has an all-reduce of 1 MiB per step; rank 2 begins later, and all end together. Step 50 takes four times as long.
fn feed(ledger: &mut Ledger, report: &mut Report) {
    for rank in 0..RANKS {
        let ring = ledger.add();
        report.add_process(&Arc::from("h1"), 100 + rank, 1_000_000_000);
        let what = What::Communicator { hash: 7, ranks: RANKS, nodes: 1, rank, source: Source::Engine };
        ledger.feed(ring, 100 + rank, &Record { time_ns: 0, id: COMMUNICATOR, parent: 0, sequence: None, what });
    }
    for step in 0..STEPS {
        for rank in 0..RANKS {
            let begin = STEP * step + if rank == 2 { LATE } else { 0 };
            let end = STEP * step + if step == 50 { 4 * TIME } else { TIME };
            let id = (step + 1) << 4 | 3;
            let what = What::Operation {
                communicator: COMMUNICATOR as u32,
                function: Function::Collective(Collective::AllReduce),
                datatype: Some(Datatype::Float),
                algorithm: 0,
                protocol: 255,
                channels: 0,
                count: 1 << 18,
            };
            for (time_ns, what) in [(begin, what), (end, What::Stop)] {
                ledger.feed(rank as usize, 100 + rank, &Record { time_ns, id, parent: 0, sequence: None, what });
            }
        }
    }
}

#[test]
fn what_each_rank_did_last_is_told_as_pytorch_does() {
    let mut report = Report::recording();
    let mut ledger = Ledger::default();
    feed(&mut ledger, &mut report);
    // Rank 3 has begun one more, and waits in it.
    let what = What::Operation {
        communicator: COMMUNICATOR as u32,
        function: Function::Collective(Collective::AllGather),
        datatype: Some(Datatype::Half),
        algorithm: 0,
        protocol: 255,
        channels: 0,
        count: 8,
    };
    ledger.feed(3, 103, &Record { time_ns: STEP * STEPS, id: (STEPS + 1) << 4 | 3, parent: 0, sequence: None, what });
    report.take(&mut ledger).unwrap();
    let entries = |which| {
        let recordings = report.recordings(&ledger, which);
        let of = |one: &Recording| (one.rank, one.dump["entries"].as_array().unwrap().len() as u64);
        recordings.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(entries(Recorded::Over), [0, 1, 2, 3].map(|rank| (rank, STEPS)));
    assert_eq!(entries(Recorded::Begun), [(0, STEPS), (1, STEPS), (2, STEPS), (3, STEPS + 1)]);
    let dump = &report.recordings(&ledger, Recorded::Begun)[3].dump;
    let group = serde_json::json!({"name": "0000000000000007", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"});
    assert_eq!(dump["pg_config"]["1"], group);
    assert_eq!(dump["pg_status"]["1"]["last_enqueued_collective"], STEPS + 1);
    assert_eq!(dump["pg_status"]["1"]["last_completed_collective"], STEPS);
    let last = dump["entries"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["state"], &last["profiling_name"]), (&"started".into(), &"busbw:all_gather".into()));
    assert_eq!(
        (&last["input_sizes"], &last["input_dtypes"]),
        (&serde_json::json!([[32]]), &serde_json::json!(["half"]))
    );
    assert_eq!(last["time_created_ns"], STEP * STEPS + 1_000_000_000);
}

#[test]
fn what_a_job_costs_is_told_by_rank_size_and_culprit() {
    let written = Written::default();
    let mut report = Report::new(Some(Trace::new(Box::new(written.clone())).unwrap()));
    let mut ledger = Ledger::default();
    feed(&mut ledger, &mut report);
    report.take(&mut ledger).unwrap();
    let profile = report.finish(&mut ledger, 0, 0).unwrap();

    let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.011;
    let [operation] = &profile.operations[..] else { panic!("{:?}", profile.operations) };
    assert_eq!((operation.collective, operation.bytes, operation.count), (Collective::AllReduce, 1 << 20, 400));
    assert_eq!((operation.algorithm.as_deref(), operation.share), (Some("ring"), 1.0));
    assert!(near(operation.median_us, 2_000.0) && operation.most_us == 8_000.0, "{operation:?}");
    // 1 MiB in 2 ms, by 2 × 3/4.
    assert!(near(operation.busbw_gbs.unwrap(), 0.524 * 1.5), "{operation:?}");

    assert_eq!(profile.ranks.iter().map(|rank| rank.rank).collect::<Vec<_>>(), [0, 1, 2, 3].map(Some));
    let waited: Vec<f64> = profile.ranks.iter().map(|rank| rank.waited_us.unwrap()).collect();
    assert_eq!(waited, [100_000.0, 100_000.0, 0.0, 100_000.0]);
    let first = &profile.ranks[0];
    assert_eq!((first.busy_us, first.added_us, first.span_us), (206_000.0, 206_000.0, 992_000.0));

    let [straggler] = &profile.stragglers[..] else { panic!("{:?}", profile.stragglers) };
    assert_eq!((straggler.rank, straggler.class, straggler.of), (2, StragglerClass::Late, STEPS));
    // In the long step, a millisecond is no large part.
    assert_eq!((straggler.operations, straggler.cost_us), (99, 3.0 * 99.0 * 1_000.0));
    assert_eq!(profile.worst.len(), 4);
    assert!(profile.worst.iter().all(|worst| near(worst.begin_us, 500_000.0)), "{:?}", profile.worst);

    let trace: Vec<serde_json::Value> = serde_json::from_slice(&written.0.lock().unwrap()).unwrap();
    let slices: Vec<_> = trace.iter().filter(|event| event["ph"] == "X").collect();
    assert_eq!(slices.len() as u64, u64::from(RANKS) * STEPS);
    let of_rank_1 = slices.iter().find(|slice| slice["pid"] == 101).unwrap();
    assert_eq!((&of_rank_1["ts"], &of_rank_1["dur"]), (&1_000_000.0.into(), &2_000.0.into()));
}

#[test]
fn of_a_job_without_events_is_said_that_there_are_none() {
    let profile = Report::default().finish(&mut Ledger::default(), 0, 0).unwrap();
    assert!(profile.operations.is_empty() && profile.notes.len() == 1, "{:?}", profile.notes);
}

/// Numbers that look like chance, and are the same each time.
fn chance(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    *seed >> 24 ^ *seed << 40
}

/// A process may write what it likes into its ring.
#[test]
fn events_that_make_no_sense_do_no_harm() {
    let mut seed = 4711;
    for _ in 0..20 {
        let (mut ledger, mut report) = (Ledger::default(), Report::new(None));
        for pid in 0..3 {
            ledger.add();
            report.add_process(&Arc::from("h1"), pid, u64::MAX - 5);
        }
        for _ in 0..5_000 {
            let mut draw = |below: u64| chance(&mut seed) % below;
            // Few numbers, so that they meet; and times and sizes of any kind.
            let wild = [0, 1, 1 << 20, u64::MAX][draw(4) as usize];
            let (id, parent, ring) = (draw(6) << 4 | draw(8), draw(6) << 4 | draw(8), draw(3) as usize);
            let (small, state) = (draw(5) as u32, draw(4));
            let states = [busbw_events::State::SendGpu, busbw_events::State::SendPeer, busbw_events::State::KernelEnd];
            let what = match draw(9) {
                0 => What::Communicator { hash: wild, ranks: small, nodes: small, rank: small, source: Source::Nccl },
                1 => What::Call { captured: small > 2 },
                2 => What::Operation {
                    communicator: id as u32,
                    function: Function::Collective(Collective::ALL[small as usize]),
                    datatype: Some(Datatype::Double),
                    algorithm: small as u8,
                    protocol: small as u8,
                    channels: 1,
                    count: wild,
                },
                3 => What::ProxyOperation {
                    process: small,
                    channel: 0,
                    peer: small,
                    steps: 1,
                    chunk: 1,
                    sends: small > 2,
                },
                4 => What::ProxyStep { step: small },
                5 => What::Kernel { channel: 0, timer_ns: wild },
                6 => What::Message { plugin: wild, bytes: wild },
                7 => What::State { state: states[state as usize % 3], value: wild },
                _ => What::Stop,
            };
            let time_ns = if state == 0 { wild } else { draw(1 << 40) };
            ledger.feed(ring, ring as u32, &Record { time_ns, id, parent, sequence: None, what });
            if small == 0 {
                ledger.settle(Some(time_ns));
                report.take(&mut ledger).unwrap();
            }
        }
        let profile = report.finish(&mut ledger, 0, 0).unwrap();
        assert!(!profile.operations.is_empty() && serde_json::to_string(&profile).is_ok());
    }
}
