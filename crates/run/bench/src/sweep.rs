//! The whole run: who takes part, the order of sweeps and sizes, the verdict (`run` and `TimeTest` of nccl-tests'
//! `src/common.cu`).

use crate::backend::{Backend, Combine};
use crate::context::Context;
use crate::flags::Flags;
use crate::gather::{agree, check_alike, gather_devices};
use crate::plan::{self, Test};
use crate::report::Report;
use crate::row::Row;
use crate::table::{Footer, MemoryUse};
use crate::time_limit::TimeLimit;
use crate::timing::{Bench, Buffers};
use crate::traffic::Traffic;
use crate::verify::Data;
use crate::{Result, limit, skew};
use busbw_model::{Collective, Micros};
use std::collections::BTreeSet;
use std::io::Write;

/// How a run ended; the same on every rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    pub wrong: u64,
    /// Checks that found wrong elements, counted on every rank: `Out of bounds values`.
    pub failed_checks: u64,
    /// The mean of busbw over all halves of all rows, in GB/s.
    pub average_busbw: f64,
    /// Whether nothing was wrong and the average is within 10% of `NCCL_TESTS_MIN_BW` or above, if that is set: the
    /// exit status is 0.
    pub ok: bool,
}

/// Runs the benchmark of a collective. Every rank calls it, with the same flags; rank 0 writes to `out`, each line at
/// once.
///
/// # Errors
/// Flags or settings that cannot be followed, ranks that were started differently, a rank or its backend that fails,
/// output that cannot be written. Then the JSON of `-J` holds the rows so far and the error.
pub fn run(
    flags: &Flags,
    collective: Collective,
    backend: &mut dyn Backend,
    out: &mut dyn Write,
    context: &Context,
) -> Result<Outcome> {
    let is_first = backend.describe().rank == 0;
    let checked = Setup::new(flags, collective, backend, context);
    let setup = agree(backend, checked)?;
    check_alike(backend, &setup.signature)?;
    let report = if is_first { Report::new(flags, context, backend.libraries(), out).map(Some) } else { Ok(None) };
    let mut report = agree(backend, report)?;
    let outcome = Sweep::new(flags, collective, backend, &setup).and_then(|mut sweep| {
        sweep.begin(&mut report, context)?;
        sweep.all(&mut report)?;
        sweep.end(&mut report, context)
    });
    if let (Err(error), Some(report)) = (&outcome, &mut report) {
        report.fail(error);
    }
    outcome
}

/// What follows from flags and environment before anything runs.
struct Setup {
    traffic: Traffic,
    tests: Vec<Test>,
    least_busbw: Option<f64>,
    min_bytes: u64,
    max_bytes: u64,
    /// What all ranks must have in common.
    signature: String,
}

impl Setup {
    fn new(flags: &Flags, collective: Collective, backend: &mut dyn Backend, context: &Context) -> Result<Self> {
        flags.check()?;
        let traffic = match (&flags.load, collective) {
            (Some(load), _) => Traffic::from_load(load, backend.nranks(), &context.env)?,
            (None, Collective::AllToAllV) => Traffic::from_env(&context.env)?,
            (None, _) => Traffic::default(),
        };
        let (min, max) = (flags.min_bytes(), flags.maxbytes.0);
        traffic.check_sizes(min, max, backend.nranks())?;
        Ok(Setup {
            tests: plan::tests(collective, flags, backend)?,
            least_busbw: context.least_busbw()?,
            min_bytes: min,
            max_bytes: max,
            signature: format!("{collective} {}{}", flags.signature(), traffic.signature()),
            traffic,
        })
    }
}

/// A run on one rank.
struct Sweep<'a> {
    flags: &'a Flags,
    collective: Collective,
    backend: &'a mut dyn Backend,
    setup: &'a Setup,
    min_bytes: u64,
    max_bytes: u64,
    /// Bytes used at the start, with buffers, and the most seen later.
    used: [u64; 3],
    /// The host of each rank, on rank 0.
    hosts: Vec<String>,
    limit: TimeLimit,
    repetition: u64,
    failed_checks: u64,
    wrong: u64,
    busbw_sum: f64,
    halves: u32,
}

impl<'a> Sweep<'a> {
    fn new(flags: &'a Flags, collective: Collective, backend: &'a mut dyn Backend, setup: &'a Setup) -> Result<Self> {
        let mut available = [backend.available_bytes() as f64];
        backend.all_reduce_f64(&mut available, Combine::Min)?;
        // No page is split between two sizes: 4 KiB of precision are enough.
        let fits = limit::largest_size(available[0] as u64, flags.check > 0);
        // The busiest rank of a load needs as much more than the size.
        let unit = 1 << 20;
        let fits = fits as f64 * unit as f64 / setup.traffic.buffer_bytes(unit, backend.nranks())? as f64;
        let fits = fits as u64 / 4096 * 4096;
        let max_bytes = setup.max_bytes.min(fits);
        setup.traffic.check_memory(max_bytes, backend.nranks())?;
        Ok(Sweep {
            flags,
            collective,
            setup,
            min_bytes: setup.min_bytes.min(max_bytes),
            max_bytes,
            used: [backend.used_bytes(); 3],
            hosts: Vec::new(),
            limit: TimeLimit::new(flags.timeout, backend.cancellation()),
            backend,
            repetition: 0,
            failed_checks: 0,
            wrong: 0,
            busbw_sum: 0.0,
            halves: 0,
        })
    }

    fn begin(&mut self, report: &mut Option<Report<'_>>, context: &Context) -> Result<()> {
        let memory = report.as_ref().and_then(|_| self.backend.memory());
        let devices = gather_devices(self.backend)?;
        let (Some(report), Some(devices)) = (report, devices) else { return Ok(()) };
        self.hosts = devices.iter().map(|device| device.host.clone()).collect();
        let names = devices.iter().map(|device| device.host.as_str()).collect::<BTreeSet<_>>().len();
        let hosts = self.backend.hosts().unwrap_or(names);
        let (ranks, details) = (devices.len(), self.backend.details());
        let separator = if details.is_empty() { "" } else { ", " };
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let backend = format!(
            "{}: {ranks} rank{} on {hosts} host{}{separator}{details}",
            self.backend.name(),
            plural(ranks),
            plural(hosts)
        ) + &memory.map_or(String::new(), |memory| format!("\n# Host memory: {memory}"));
        report.begin(&context.program, &backend, &devices)?;
        report.header((self.max_bytes < self.setup.max_bytes).then_some(self.max_bytes))
    }

    /// All sweeps, as often as `--repeat` says.
    fn all(&mut self, report: &mut Option<Report<'_>>) -> Result<()> {
        let buffers = self.buffers();
        let buffers = agree(self.backend, buffers)?;
        self.touch(&buffers)?;
        self.used[1] = self.backend.used_bytes();
        for _ in 0..self.flags.repeat {
            for test in &self.setup.tests {
                self.sizes(*test, &buffers, report)?;
            }
        }
        self.used[2] = self.backend.used_bytes();
        Ok(())
    }

    fn buffers(&mut self) -> Result<Buffers> {
        const LARGEST_ELEMENT: usize = 8;
        let max_bytes = self.setup.traffic.buffer_bytes(self.max_bytes, self.backend.nranks())? as usize;
        let bytes = max_bytes + LARGEST_ELEMENT * self.flags.unalign as usize;
        Ok(Buffers { send: self.backend.alloc(bytes)?, receive: self.backend.alloc(bytes)?, max_bytes })
    }

    /// Writes to every page once, so that no page is found while timing.
    fn touch(&mut self, buffers: &Buffers) -> Result<()> {
        for memory in [&buffers.send, &buffers.receive] {
            // SAFETY: the memory is there after the call, on which nothing else works yet.
            self.backend.zero(unsafe { memory.room() })?;
        }
        Ok(())
    }

    /// One sweep over sizes, warmed up at powers of two times the smallest.
    fn sizes(&mut self, test: Test, buffers: &Buffers, report: &mut Option<Report<'_>>) -> Result<()> {
        let mut data = Data::new(test.datatype, test.redop, self.backend.rank(), self.backend.nranks());
        data.load_on(self.backend)?;
        self.backend.barrier()?;
        let mut bench = Bench {
            backend: self.backend,
            flags: self.flags,
            traffic: &self.setup.traffic,
            buffers,
            limit: &self.limit,
            collective: self.collective,
            test,
            data: &mut data,
            repetition: &mut self.repetition,
            failed_checks: &mut self.failed_checks,
        };
        let mut size = self.min_bytes;
        while size <= self.max_bytes {
            bench.warm_up(size)?;
            size = (2 * size).max(1);
        }
        let mut cycle = 0;
        while self.flags.run_cycles == 0 || cycle < self.flags.run_cycles {
            for size in self.flags.sizes(self.min_bytes, self.max_bytes) {
                let shape = bench.shape(size)?;
                let even = bench.even(size)?;
                let out_of_place = bench.half(&shape, false)?;
                let in_place = bench.half(&shape, true)?;
                let halves = even.iter().chain([&out_of_place, &in_place]);
                self.wrong += halves.filter_map(|half| half.wrong).sum::<u64>();
                self.busbw_sum += out_of_place.busbw_gbs + in_place.busbw_gbs;
                self.halves += 2;
                let Some(report) = report else { continue };
                let element = test.datatype.size() as usize;
                if self.setup.traffic.summary && self.collective == Collective::AllToAllV {
                    let nranks = bench.backend.nranks();
                    let seconds = out_of_place.time_us / 1e6;
                    report.lines(&shape.summary_lines(&self.setup.traffic, element, nranks, seconds))?;
                }
                let skew = even.and_then(|even| {
                    skew::of(&shape, self.setup.traffic.load()?, &self.hosts, element, Micros(even.time_us))
                });
                report.row(Row { size: shape.bytes(), count: shape.count, test, out_of_place, in_place, skew })?;
            }
            cycle += 1;
        }
        Ok(())
    }

    /// The verdict, which rank 0 tells the others: bandwidths differ from rank to rank with `-a 0`.
    fn end(&mut self, report: &mut Option<Report<'_>>, context: &Context) -> Result<Outcome> {
        let mut failed = [self.failed_checks as f64];
        self.backend.all_reduce_f64(&mut failed, Combine::Sum)?;
        let failed_checks = failed[0] as u64;
        let [initialization, buffers, collective] = self.used;
        let mut memory =
            [initialization as f64, buffers as f64 - initialization as f64, collective as f64 - buffers as f64];
        self.backend.all_reduce_f64(&mut memory, Combine::Max)?;
        let mut told = [self.busbw_sum / f64::from(self.halves), self.wrong as f64];
        if self.backend.describe().rank > 0 {
            told = [0.0; 2];
        }
        self.backend.all_reduce_f64(&mut told, Combine::Sum)?;
        let [average_busbw, wrong] = told;
        let is_enough = self.setup.least_busbw.map(|least| average_busbw >= least * 0.9);
        if let Some(report) = report {
            let [initialization, buffers, collective] = memory.map(|bytes| bytes as i64);
            let is_gpu = self.flags.is_on_gpus();
            report.end(&Footer {
                program: &context.program,
                failed_checks,
                checks: self.flags.check,
                has_checksums: self.backend.has_checksums(),
                average_gbs: average_busbw,
                is_enough,
                memory: (self.flags.memory > 0).then_some(MemoryUse { is_gpu, initialization, buffers, collective }),
            })?;
        }
        let ok = failed_checks == 0 && is_enough.unwrap_or(true);
        Ok(Outcome { wrong: wrong as u64, failed_checks, average_busbw, ok })
    }
}
