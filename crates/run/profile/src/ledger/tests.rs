//! Events as NCCL tells them, and what is made of them.

use super::*;

/// Numbers of things, as `busbw_events` gives them: the kind is in the low bits.
const COMMUNICATOR: u64 = 1;
const CALL: u64 = 2;
const OPERATION: u64 = 3;
const PROXY: u64 = 4;
const STEP: u64 = 5;
const KERNEL: u64 = 6;
const MESSAGE: u64 = 7;

fn number(count: u64, kind: u64) -> u64 {
    count << 4 | kind
}

/// Writes a process's events.
struct Told<'a> {
    ledger: &'a mut Ledger,
    ring: usize,
    pid: u32,
}

impl Told<'_> {
    fn at(&mut self, time_ns: u64, id: u64, parent: u64, what: What) {
        self.ledger.feed(self.ring, self.pid, &Record { time_ns, id, parent, sequence: None, what });
    }

    fn communicator(&mut self, source: Source) {
        let what = What::Communicator { hash: 7, ranks: 4, nodes: 2, rank: 1, source };
        self.at(0, number(0, COMMUNICATOR), 0, what);
    }

    fn operation(&mut self, time_ns: u64, count: u64, parent: u64) -> u64 {
        let function = Function::Collective(Collective::AllGather);
        let what = What::Operation {
            communicator: number(0, COMMUNICATOR) as u32,
            function,
            datatype: Some(Datatype::Float),
            algorithm: 1,
            protocol: 2,
            channels: 2,
            count: 256,
        };
        let id = number(count, OPERATION);
        self.at(time_ns, id, parent, what);
        id
    }

    fn proxy(&mut self, time_ns: u64, count: u64, parent: (u32, u64), sends: bool) -> u64 {
        let (process, parent) = parent;
        let what = What::ProxyOperation { process, channel: 0, peer: 2, steps: 1, chunk: 1024, sends };
        let id = number(count, PROXY);
        self.at(time_ns, id, parent, what);
        id
    }

    fn state(&mut self, time_ns: u64, id: u64, state: State) {
        self.at(time_ns, id, 0, What::State { state, value: 0 });
    }

    fn stop(&mut self, time_ns: u64, id: u64) {
        self.at(time_ns, id, 0, What::Stop);
    }
}

fn begin(ledger: &mut Ledger, pid: u32) -> Told<'_> {
    let ring = ledger.add();
    let mut told = Told { ledger, ring, pid };
    told.communicator(Source::Nccl);
    told
}

const LATER: u64 = 60_000_000_000;

#[test]
fn an_operation_of_nccl_ends_with_its_parts_and_not_when_it_is_queued() {
    let mut ledger = Ledger::default();
    let mut told = begin(&mut ledger, 10);
    let operation = told.operation(100, 1, 0);
    told.stop(110, operation);
    let proxy = told.proxy(150, 2, (10, operation), true);
    let step = number(3, STEP);
    told.at(160, step, proxy, What::ProxyStep { step: 0 });
    told.state(160, step, State::SendGpu);
    told.state(1_160, step, State::SendPeer);
    told.state(3_160, step, State::SendNetwork);
    told.at(3_170, number(4, MESSAGE), step, What::Message { plugin: 1, bytes: 1024 });
    told.stop(7_100, number(4, MESSAGE));
    told.stop(7_160, step);
    told.stop(7_200, proxy);
    ledger.settle(Some(7_300));
    assert!(ledger.take().is_empty(), "another part may begin");
    ledger.settle(Some(7_200 + QUIET_NS));
    let [over] = ledger.take()[..] else { panic!("one operation is over") };
    // Its GPU was there when it had filled the first buffer. All-gather counts elements per rank.
    assert_eq!((over.begin_ns, over.end_ns, over.bytes, over.peer), (1_160, Some(7_200), 4096, Some(2)));
    let times = Steps { count: 1, send_gpu: 1_000, send_peer: 2_000, send_network: 4_000, ..Steps::default() };
    let steps = Steps { sent_bytes: 1024, ..times };
    assert_eq!(over.steps, steps);
    assert_eq!((ledger.open(), ledger.orphans()), (0, 0));
}

#[test]
fn the_gpus_clock_goes_before_the_proxys() {
    let mut ledger = Ledger::default();
    let mut told = begin(&mut ledger, 10);
    let operation = told.operation(100, 1, 0);
    told.stop(110, operation);
    for (channel, first, last) in [(0, 5_000, 9_000), (1, 4_000, 8_000)] {
        let kernel = number(2 + u64::from(channel), KERNEL);
        told.at(20_000, kernel, operation, What::Kernel { channel, timer_ns: first });
        told.at(90_000, kernel, 0, What::State { state: State::KernelEnd, value: last });
        told.stop(90_000, kernel);
    }
    ledger.settle(None);
    let [over] = ledger.take()[..] else { panic!("one operation is over") };
    assert_eq!((over.begin_ns, over.time_ns()), (20_000, Some(5_000)));
}

#[test]
fn an_operation_of_the_engine_is_over_when_it_stops() {
    let mut ledger = Ledger::default();
    let ring = ledger.add();
    let mut told = Told { ledger: &mut ledger, ring, pid: 10 };
    told.communicator(Source::Engine);
    let operation = told.operation(100, 1, 0);
    told.stop(350, operation);
    assert_eq!(ledger.take()[0].time_ns(), Some(250));
}

#[test]
fn replays_of_a_graph_are_told_apart() {
    let mut ledger = Ledger::default();
    let mut told = begin(&mut ledger, 10);
    let (called, captured) = (number(1, CALL), number(2, CALL));
    told.at(10, called, 0, What::Call { captured: false });
    told.at(20, captured, 0, What::Call { captured: true });
    for (count, parent) in [(3, called), (4, captured), (5, captured), (6, captured)] {
        let operation = told.operation(count * 1_000, count, parent);
        told.stop(count * 1_000 + 1, operation);
        let proxy = told.proxy(count * 1_000 + 2, 10 + count, (10, operation), false);
        told.stop(count * 1_000 + 500, proxy);
    }
    ledger.settle(None);
    let mut over = ledger.take();
    over.sort_by_key(|operation| operation.begin_ns);
    let replayed: Vec<bool> = over.iter().map(|operation| operation.replayed).collect();
    assert_eq!(replayed, [false, true, true, true]);
}

/// A neighbour's proxy sends for this GPU (PXN): its events are in the neighbour's ring, which may be read first.
#[test]
fn parts_of_another_process_are_counted_to_the_operation_that_they_belong_to() {
    for neighbour_first in [false, true] {
        let mut ledger = Ledger::default();
        let own = begin(&mut ledger, 10).ring;
        let neighbour = begin(&mut ledger, 11).ring;
        let operation = number(1, OPERATION);
        let queue = |ledger: &mut Ledger| {
            let mut told = Told { ledger, ring: own, pid: 10 };
            told.operation(100, 1, 0);
            told.stop(110, operation);
        };
        let send = |ledger: &mut Ledger| {
            let mut told = Told { ledger, ring: neighbour, pid: 11 };
            // The neighbour has an operation of the same number.
            told.operation(90, 1, 0);
            told.stop(95, operation);
            let proxy = told.proxy(200, 2, (10, operation), true);
            told.stop(900, proxy);
            let stranger = told.proxy(200, 3, (4711, operation), true);
            told.stop(900, stranger);
        };
        let parts: [&dyn Fn(&mut Ledger); 2] = if neighbour_first { [&send, &queue] } else { [&queue, &send] };
        parts.iter().for_each(|part| part(&mut ledger));
        ledger.settle(Some(LATER));
        let over = ledger.take();
        let ends =
            |ring: usize| over.iter().filter(|over| over.ring == ring).map(|over| over.end_ns).collect::<Vec<_>>();
        assert_eq!((ends(own), ends(neighbour)), (vec![Some(900)], vec![None]), "{neighbour_first}");
        assert_eq!(ledger.orphans(), 1, "{neighbour_first}");
    }
}

#[test]
fn an_operation_without_parts_is_given_up_and_has_no_end() {
    let mut ledger = Ledger::default();
    let mut told = begin(&mut ledger, 10);
    let operation = told.operation(100, 1, 0);
    told.stop(110, operation);
    ledger.settle(Some(110 + PATIENCE_NS - 1));
    assert_eq!((ledger.take().len(), ledger.open()), (0, 1));
    ledger.settle(Some(110 + PATIENCE_NS));
    assert_eq!(ledger.take()[0].time_ns(), None);
}

/// Events that were lost leave others without their beginning or end.
#[test]
fn what_is_missing_does_no_harm() {
    let mut ledger = Ledger::default();
    let ring = ledger.add();
    let mut told = Told { ledger: &mut ledger, ring, pid: 10 };
    // No communicator, no operation, no parts.
    let operation = told.operation(100, 1, 0);
    told.stop(110, operation);
    told.state(120, number(9, STEP), State::SendNetwork);
    told.stop(130, number(9, STEP));
    told.at(140, number(10, KERNEL), operation, What::Kernel { channel: 0, timer_ns: 1 });
    told.at(150, number(11, STEP), number(12, PROXY), What::ProxyStep { step: 1 });
    told.stop(160, 0);
    ledger.settle(None);
    assert_eq!((ledger.take().len(), ledger.open(), ledger.orphans()), (0, 0, 1));
}
