//! Running one collective at one size: warm-up, timed iterations, the check (`startColl` and `BenchTime` of nccl-tests'
//! `src/common.cu`).

use crate::Result;
use crate::backend::{Backend, Combine, Memory, NicBytes};
use crate::flags::Flags;
use crate::gather::{gather_nics, gather_times};
use crate::plan::Test;
use crate::row::{Half, NicTraffic, PerIteration};
use crate::shape::Shape;
use crate::statistics::Iterations;
use crate::time_limit::TimeLimit;
use crate::traffic::Traffic;
use crate::verify::{Data, RankBuffers};
use busbw_collectives::{Operation, Room};
use busbw_model::{Collective, GBps, RedOp};
use std::time::Instant;

/// The buffers of a rank.
pub struct Buffers {
    pub send: Memory,
    /// What it gets, and in place also what it gives.
    pub receive: Memory,
    /// The largest size that they were made for.
    pub max_bytes: usize,
}

/// One rank's part in one sweep over sizes.
pub struct Bench<'a> {
    pub backend: &'a mut dyn Backend,
    pub flags: &'a Flags,
    pub traffic: &'a Traffic,
    pub buffers: &'a Buffers,
    pub limit: &'a TimeLimit,
    pub collective: Collective,
    /// Which datatype, reduction and root.
    pub test: Test,
    pub data: &'a mut Data,
    /// Counts checks: each has data of its own.
    pub repetition: &'a mut u64,
    /// Counts checks in which this rank found wrong elements.
    pub failed_checks: &'a mut u64,
}

/// What one rank's clock says of the timed iterations.
struct Timed {
    /// Seconds per operation.
    seconds: f64,
    /// Seconds per operation in which the call did not return.
    call_seconds: f64,
    /// Seconds per operation in each iteration, with `-I`.
    iterations: Vec<f64>,
}

/// The data that fills buffers while timing, apart from those of checks.
const TIMING_REPETITION: u64 = 99;

/// The moments between iterations, with `-I`: by the device's clock where there is one, else by the host's.
struct Marks {
    times: Vec<f64>,
    records: bool,
}

impl Marks {
    /// Sets one; `now` is the host's time.
    fn set(&mut self, backend: &mut dyn Backend, now: f64) -> Result<()> {
        if self.records && !backend.mark()? {
            self.times.push(now);
        }
        Ok(())
    }

    /// Sets the one behind the last iteration: on the host's clock, that is when all is done, `end`.
    fn set_last(&mut self, backend: &mut dyn Backend) -> Result<()> {
        if self.records {
            backend.mark()?;
        }
        Ok(())
    }

    /// Seconds of each. `end` is the last of the host's clock, where it is missing.
    fn finish(mut self, backend: &mut dyn Backend, end: Option<f64>) -> Result<Vec<f64>> {
        if !self.records {
            return Ok(Vec::new());
        }
        self.times.extend(end);
        let device = backend.marks()?;
        Ok(if device.is_empty() { self.times } else { device })
    }
}

impl Bench<'_> {
    /// The shape at `size` bytes.
    pub fn shape(&self, size: u64) -> Result<Shape> {
        Shape::new(self.collective, self.test.datatype, size as usize, self.backend.nranks(), self.traffic)
    }

    /// With `--load`, the time of an even exchange of that size; out of place.
    pub fn even(&mut self, size: u64) -> Result<Option<Half>> {
        if self.traffic.load().is_none() {
            return Ok(None);
        }
        let (datatype, nranks) = (self.test.datatype, self.backend.nranks());
        let shape = Shape::new(self.collective, datatype, size as usize, nranks, &Traffic::even())?;
        self.half(&shape, false).map(Some)
    }

    fn element(&self) -> usize {
        self.test.datatype.size() as usize
    }

    /// The buffers, from `-u` elements behind where they begin.
    fn origins(&self) -> (Room, Room) {
        let unaligned = self.flags.unalign as usize * self.element();
        // SAFETY: the buffers outlive this, and all that is started here: where that fails, the rank leaves its job.
        let (send, receive) = unsafe { (self.buffers.send.room(), self.buffers.receive.room()) };
        (send.skip(unaligned), receive.skip(unaligned))
    }

    /// Starts the operation. Each iteration works on other memory where there is some, so that nothing is in a cache.
    fn start(&mut self, shape: &Shape, in_place: bool, iteration: usize) -> Result<()> {
        let bytes = shape.buffer_bytes();
        let places = self.buffers.max_bytes.checked_div(bytes).unwrap_or(1).max(1);
        let shift = bytes * (iteration % places);
        let (send, receive) = self.origins();
        let (send, receive) = (send.skip(shift), receive.skip(shift));
        let rank = self.backend.rank();
        let operation = Operation {
            collective: self.collective,
            datatype: self.test.datatype,
            redop: self.test.redop.unwrap_or(RedOp::Sum),
            count: shape.count,
            root: self.test.root.unwrap_or(0),
            send: if in_place { receive.skip(shape.send_offset * rank).data() } else { send.data() },
            receive: if in_place { receive.skip(shape.receive_offset * rank) } else { receive },
            counts: &shape.counts,
        };
        // `shift` leaves room for a whole operation within the `max_bytes` of each buffer, to which the allocation added
        // those of `-u`.
        self.backend.run(&operation)?;
        if self.flags.blocking > 0 {
            self.backend.synchronize()?;
        }
        if self.flags.blocking == 1 {
            self.backend.barrier()?;
        }
        Ok(())
    }

    /// Waits for what was started, where starting did not wait already.
    fn complete(&mut self) -> Result<()> {
        if self.flags.blocking > 0 && self.flags.agg_iters <= 1 {
            return Ok(());
        }
        self.backend.synchronize()
    }

    pub fn warm_up(&mut self, size: u64) -> Result<()> {
        let shape = self.shape(size)?;
        self.limited("warm-up", &shape, false, |bench| {
            for iteration in 0..bench.flags.warmup_iters as usize {
                bench.start(&shape, false, iteration)?;
            }
            bench.complete()
        })
    }

    /// Does the operations of one test, which `-T` limits.
    fn limited<T>(
        &mut self,
        what: &str,
        shape: &Shape,
        in_place: bool,
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let place = if in_place { "in place" } else { "out of place" };
        self.limit.begin(|| format!("{what} of {} bytes, {place}", shape.bytes()));
        let done = work(self);
        self.limit.end();
        done
    }

    /// One half of a row. Every rank returns one; that of rank 0 is to be shown.
    pub fn half(&mut self, shape: &Shape, in_place: bool) -> Result<Half> {
        if self.flags.check > 0 {
            self.fill(shape, in_place, TIMING_REPETITION)?;
        }
        self.limited("first operation", shape, in_place, |bench| {
            bench.start(shape, in_place, 0)?;
            bench.complete()
        })?;
        let before = self.nics()?;
        self.backend.barrier()?;

        let timed = self.limited("iterations", shape, in_place, |bench| bench.timed(shape, in_place))?;
        let mut seconds = [timed.seconds];
        match self.flags.average {
            1 => self.backend.all_reduce_f64(&mut seconds, Combine::Avg)?,
            2 => self.backend.all_reduce_f64(&mut seconds, Combine::Min)?,
            3 => self.backend.all_reduce_f64(&mut seconds, Combine::Max)?,
            _ => {}
        }
        let [seconds] = seconds;
        self.backend.barrier()?;
        let nics = self.nic_traffic(&before)?;

        let algbw = GBps(shape.moved_bytes(self.collective) as f64 / 1e9 / seconds);
        let busbw = self.collective.busbw(algbw, self.backend.nranks() as u32);
        let wrong = self.check(shape, in_place)?;
        let shown = if self.flags.report_cputime > 0 { timed.call_seconds } else { seconds };
        let iterations = self.per_iteration(&timed)?;
        Ok(Half { time_us: shown * 1e6, algbw_gbs: algbw.0, busbw_gbs: busbw.0, wrong, iterations, nics })
    }

    fn timed(&mut self, shape: &Shape, in_place: bool) -> Result<Timed> {
        if self.flags.cudagraph > 0 {
            return self.timed_graph(shape, in_place);
        }
        let (iters, excludes_barrier) = (self.flags.iters as usize, self.flags.blocking == 3);
        let records = self.flags.per_iter_timing > 0;
        let mut marks = Marks { times: Vec::with_capacity(if records { 2 * iters + 1 } else { 0 }), records };
        let mut busy = 0.0;
        let clock = Instant::now();
        let now = || clock.elapsed().as_secs_f64();
        for iteration in 0..iters {
            let begin = if excludes_barrier || records { now() } else { 0.0 };
            self.iteration(shape, in_place, iteration, |backend| marks.set(backend, begin))?;
            if excludes_barrier {
                self.backend.synchronize()?;
                let end = now();
                busy += end - begin;
                marks.set(self.backend, end)?;
                self.backend.barrier()?;
            }
        }
        if !excludes_barrier {
            marks.set_last(self.backend)?;
        }
        let called = if excludes_barrier { busy } else { now() };
        self.complete()?;
        let end = now();
        let whole = if excludes_barrier { busy } else { end };
        if records {
            // Where each operation was waited for, marks behind the last are not.
            self.backend.synchronize()?;
        }
        let moments = marks.finish(self.backend, (!excludes_barrier).then_some(end))?;
        let iterations = self.iteration_times(&moments);
        let operations = self.flags.operations() as f64;
        Ok(Timed { seconds: whole / operations, call_seconds: called / operations, iterations })
    }

    /// The operations of one iteration. `begun` is called when it has begun.
    fn iteration(
        &mut self,
        shape: &Shape,
        in_place: bool,
        iteration: usize,
        begun: impl FnOnce(&mut dyn Backend) -> Result<()>,
    ) -> Result<()> {
        let aggregated = self.flags.agg_iters as usize;
        if aggregated > 1 {
            self.backend.group_start()?;
        }
        begun(self.backend)?;
        for operation in 0..aggregated {
            self.start(shape, in_place, iteration * aggregated + operation)?;
        }
        if aggregated > 1 {
            self.backend.group_end()?;
        }
        Ok(())
    }

    /// All iterations as a graph, launched as often as `-G` says.
    fn timed_graph(&mut self, shape: &Shape, in_place: bool) -> Result<Timed> {
        let (iters, launches) = (self.flags.iters as usize, self.flags.cudagraph);
        self.backend.begin_graph()?;
        for iteration in 0..iters {
            self.iteration(shape, in_place, iteration, |_| Ok(()))?;
        }
        self.backend.end_graph()?;
        self.backend.barrier()?;
        let clock = Instant::now();
        for _ in 0..launches {
            self.backend.launch_graph()?;
        }
        let called = clock.elapsed().as_secs_f64();
        self.complete()?;
        let operations = self.flags.operations() as f64;
        // The time of the call is not per launch, as in nccl-tests.
        let seconds = clock.elapsed().as_secs_f64() / operations / f64::from(launches);
        Ok(Timed { seconds, call_seconds: called / operations, iterations: Vec::new() })
    }

    /// Seconds per operation in each iteration.
    fn iteration_times(&self, marks: &[f64]) -> Vec<f64> {
        let per_operation = |pair: &[f64]| (pair[1] - pair[0]) / f64::from(self.flags.agg_iters);
        match self.flags.blocking == 3 {
            true => marks.chunks_exact(2).map(per_operation).collect(),
            false => marks.windows(2).map(per_operation).collect(),
        }
    }

    /// The buffers of this rank in the operation.
    fn rank_buffers<'s>(&self, shape: &'s Shape, in_place: bool) -> RankBuffers<'s> {
        RankBuffers {
            collective: self.collective,
            shape,
            element: self.element(),
            rank: self.backend.rank(),
            nranks: self.backend.nranks(),
            root: self.test.root.unwrap_or(0),
            in_place,
        }
    }

    /// Zeros what this rank gets, and puts there, or into the send buffer, what it gives.
    fn fill(&mut self, shape: &Shape, in_place: bool, repetition: u64) -> Result<()> {
        let buffers = self.rank_buffers(shape, in_place);
        let (send, receive) = self.origins();
        let to = if in_place { receive.skip(shape.send_offset * buffers.rank) } else { send };
        self.data.set_repetition(repetition);
        self.backend.zero(receive.take(shape.receive_bytes))?;
        self.data.write(self.backend, &buffers.gives(), to)
    }

    /// Runs the operation on data of its own as often as `-c` says, until wrong elements are found: their number over
    /// all ranks, `None` where nothing is checked.
    fn check(&mut self, shape: &Shape, in_place: bool) -> Result<Option<u64>> {
        *self.repetition += 1;
        let buffers = self.rank_buffers(shape, in_place);
        let expected = buffers.expects();
        let mut total = 0.0;
        for _ in 0..self.flags.check {
            self.fill(shape, in_place, *self.repetition)?;
            self.limited("checked operation", shape, in_place, |bench| {
                bench.start_checked(shape, in_place)?;
                bench.complete()
            })?;
            let Some(expected) = &expected else { continue };
            let from = self.origins().1.skip(if in_place { shape.receive_offset * buffers.rank } else { 0 });
            let wrong = self.data.count_wrong(self.backend, expected, from.data())?;
            *self.failed_checks += u64::from(wrong > 0);
            let mut sum = [wrong as f64];
            self.backend.all_reduce_f64(&mut sum, Combine::Sum)?;
            [total] = sum;
            if total > 0.0 {
                break;
            }
        }
        Ok((self.flags.check > 0 && expected.is_some()).then_some(total as u64))
    }

    /// The operation whose result is checked: through a graph where graphs are measured.
    fn start_checked(&mut self, shape: &Shape, in_place: bool) -> Result<()> {
        if self.flags.cudagraph == 0 {
            return self.start(shape, in_place, 0);
        }
        self.backend.begin_graph()?;
        self.start(shape, in_place, 0)?;
        self.backend.end_graph()?;
        self.backend.launch_graph()
    }

    fn per_iteration(&mut self, timed: &Timed) -> Result<Option<PerIteration>> {
        if self.flags.per_iter_timing == 0 {
            return Ok(None);
        }
        let own: Vec<f64> = timed.iterations.iter().map(|seconds| seconds * 1e6).collect();
        let Some(processes_us) = gather_times(self.backend, &own, self.flags.ranks_per_process())? else {
            return Ok(None);
        };
        let slowest = |iteration: usize| processes_us.iter().map(|times| times[iteration]).fold(0.0, f64::max);
        let times_us: Vec<f64> = (0..own.len()).map(slowest).collect();
        let skipped = self.flags.per_iter_skip as usize;
        let stats = Iterations::of(&times_us[skipped.min(times_us.len())..]);
        let processes_us = if processes_us.len() > 1 { processes_us } else { Vec::new() };
        Ok(stats.map(|stats| PerIteration { skipped, stats, times_us, processes_us }))
    }

    fn nics(&mut self) -> Result<Vec<NicBytes>> {
        if self.flags.nics { self.backend.nics() } else { Ok(Vec::new()) }
    }

    fn nic_traffic(&mut self, before: &[NicBytes]) -> Result<Vec<NicTraffic>> {
        if !self.flags.nics {
            return Ok(Vec::new());
        }
        let after = self.backend.nics()?;
        gather_nics(self.backend, before, &after)
    }
}
