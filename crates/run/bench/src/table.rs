//! The text of nccl-tests 2.19.6: what stands above the table, its rows, and what stands below
//! (`src/util.cu`: `writeDeviceReport`, `writeResultHeader`, `writeBenchmarkLineBody`, `writeResultFooter`).

use crate::backend::{Device, Library};
use crate::clock;
use crate::flags::Flags;
use crate::number::{cell, general};
use crate::row::{Half, Row};
use crate::{Error, Result};
use std::fmt::Write as _;
use std::io::Write;
use std::time::SystemTime;

/// The version of nccl-tests whose text this is.
pub const NCCL_TESTS_VERSION: &str = "2.19.6";

/// Writes lines, and shows each at once.
pub struct Table<'a> {
    out: Box<dyn Write + 'a>,
    has_cpu_time: bool,
    has_timestamps: bool,
    has_iterations: bool,
}

/// NCCL's version as it tells it, 22707; 0 where there is none.
pub(crate) fn nccl_version(libraries: &[Library]) -> i32 {
    libraries.iter().map(|library| library.code).max().unwrap_or(0)
}

/// What the footer says.
#[derive(Debug, Clone, Copy)]
pub struct Footer<'a> {
    pub program: &'a str,
    /// Checks that found wrong elements, counted on every rank.
    pub failed_checks: u64,
    /// Operations of a half of a row whose results were checked (`-c`).
    pub checks: u32,
    /// Whether bytes between hosts were checked, in all operations.
    pub has_checksums: bool,
    /// The mean of busbw over all halves, in GB/s.
    pub average_gbs: f64,
    /// Whether that is enough, where a least was asked for.
    pub is_enough: Option<bool>,
    /// Memory used, with `-M`.
    pub memory: Option<MemoryUse>,
}

/// Bytes that a run came to use, the most of any rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    pub is_gpu: bool,
    pub initialization: i64,
    pub buffers: i64,
    pub collective: i64,
}

impl<'a> Table<'a> {
    /// A table on `out` with the columns that the flags ask for.
    pub fn new(out: Box<dyn Write + 'a>, flags: &Flags) -> Self {
        Table {
            out,
            has_cpu_time: flags.report_cputime > 0,
            has_timestamps: flags.report_timestamps > 0,
            has_iterations: flags.per_iter_timing > 0,
        }
    }

    pub fn lines(&mut self, text: &str) -> Result<()> {
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.write_all(b"\n"));
        written.and_then(|()| self.out.flush()).map_err(Error::Output)
    }

    /// What stands above the device list. `backend` is its name and what it says of itself; its further
    /// lines begin with `#`.
    pub fn preamble(&mut self, flags: &Flags, program: &str, backend: &str, libraries: &[Library]) -> Result<()> {
        let code = nccl_version(libraries);
        self.lines(&format!("# nccl-tests version {NCCL_TESTS_VERSION} nccl-headers=0 nccl-library={code}"))?;
        self.lines(&format!("# busbw {} backend {backend}", env!("CARGO_PKG_VERSION")))?;
        for Library { name, version, path, .. } in libraries {
            self.lines(&format!("# {name} version {version} ({path})"))?;
        }
        self.lines(&format!("# Collective test starting: {program}"))?;
        let (step, unit) = match flags.stepfactor {
            factor if factor > 1 => (u64::from(factor), "factor"),
            _ => (flags.stepbytes.0, "bytes"),
        };
        self.lines(&format!(
            "# nThread {} nGpus {} minBytes {} maxBytes {} step: {step}({unit}) warmup iters: {} iters: {} agg iters: {} \
             validation: {} graph: {} unalign: {}",
            flags.nthreads,
            flags.ngpus,
            flags.min_bytes(),
            flags.maxbytes.0,
            flags.warmup_iters,
            flags.iters,
            flags.agg_iters,
            flags.check,
            flags.cudagraph,
            flags.unalign
        ))?;
        self.modes(flags)?;
        self.lines("#\n# Using devices")
    }

    /// Lines of flags that change what is measured.
    fn modes(&mut self, flags: &Flags) -> Result<()> {
        match flags.blocking {
            1 => self.lines("# Blocking Enabled: wait and barrier after each inner iteration (-m) ")?,
            2 => self.lines("# Blocking Enabled: wait after each inner iteration (-m), no barrier ")?,
            3 => self.lines(
                "# Blocking Enabled: wait and barrier after each outer iteration (-n); time excludes barrier ",
            )?,
            _ => {}
        }
        if flags.per_iter_timing > 0 {
            let source = if flags.is_on_gpus() { "CUDA event" } else { "host clock" };
            let skipped = match flags.per_iter_skip {
                0 => String::new(),
                skipped => format!("; summary skips first {skipped} iterations"),
            };
            self.lines(&format!("# Per-Iteration Report: {source} timing; i_* uses max over process rows{skipped} "))?;
        }
        if flags.parallel_init > 0 {
            self.lines("# Parallel Init Enabled: threads call into NcclInitRank concurrently ")?;
        }
        Ok(())
    }

    pub fn devices(&mut self, devices: &[Device]) -> Result<()> {
        devices.iter().try_for_each(|device| {
            let Device { rank, group, pid, host, device: index, bus_id, name } = device;
            self.lines(&format!(
                "#  Rank {rank:2} Group {group:2} Pid {pid:6} on {host:>10} device {index:2} [{bus_id}] {name}"
            ))
        })
    }

    /// That the sweep ends at `bytes`.
    pub fn reduced(&mut self, bytes: u64) -> Result<()> {
        self.lines(&format!("#\n# Reducing maxBytes to {bytes} due to memory limitation"))
    }

    /// The names of the columns, and their units.
    pub fn header(&mut self) -> Result<()> {
        let time = if self.has_cpu_time { "cputime" } else { "time" };
        let (stamp, stamp_unit, width) =
            if self.has_timestamps { ("timestamp", clock::FORMAT, 19) } else { ("", "", 0) };
        let per_iteration = if self.has_iterations { &["i_min", "i_max", "i_p99", "i_cv%"][..] } else { &[] };
        let per_iteration_units = if self.has_iterations { &["(us)", "(us)", "(us)", "(%)"][..] } else { &[] };
        let half = |cells: [&str; 4], more: &[&str]| {
            let [a, b, c, d] = cells;
            let more: String = more.iter().fold(String::new(), |text, cell| text + &format!("  {cell:>7}"));
            format!("  {a:>7}  {b:>6}  {c:>6}  {d:>6}{more}")
        };
        let line = |lead: [&str; 5], half: String, last: &str| {
            let [a, b, c, d, e] = lead;
            format!("# {a:>10}  {b:>12}  {c:>8}  {d:>6}  {e:>6}{half}{half} {last:>width$}")
        };
        let banner = if self.has_iterations {
            "              out-of-place (+ per-iteration)                                in-place (+ per-iteration)"
        } else {
            "           out-of-place                       in-place          "
        };
        self.lines("#")?;
        self.lines(&format!("# {:10}  {:12}  {:8}  {:6}  {:6}{banner}", "", "", "", "", ""))?;
        let names = half([time, "algbw", "busbw", "#wrong"], per_iteration);
        self.lines(&line(["size", "count", "type", "redop", "root"], names, stamp))?;
        let units = half(["(us)", "(GB/s)", "(GB/s)", ""], per_iteration_units);
        self.lines(&line(["(B)", "(elements)", "", "", ""], units, stamp_unit))
    }

    /// A row, stamped with `now` where time stamps were asked for.
    pub fn row(&mut self, row: &Row, now: SystemTime) -> Result<()> {
        let root = row.test.root.map_or("-1".to_string(), |root| root.to_string());
        let mut line = format!(
            "{:12}  {:12}  {:>8}  {:>6}  {root:>6}",
            row.size,
            row.count,
            row.test.datatype.name(),
            row.test.redop_cell
        );
        for (_, half) in row.halves() {
            half_cells(&mut line, half);
        }
        if self.has_timestamps {
            let _ = write!(line, "{:>21}", clock::stamp(now)); // writing to a String cannot fail
        }
        self.lines(&line)
    }

    pub fn footer(&mut self, footer: &Footer<'_>) -> Result<()> {
        let verdict = if footer.failed_checks > 0 { "FAILED" } else { "OK" };
        self.lines(&format!("# {:20} : {} {verdict}", "Out of bounds values", footer.failed_checks))?;
        let verdict = footer.is_enough.map_or("", |enough| if enough { "OK" } else { "FAILED" });
        self.lines(&format!("# {:20} : {} {verdict}", "Avg bus bandwidth", general(footer.average_gbs)))?;
        self.lines(&format!("#\n# Collective test concluded: {}", footer.program))?;
        self.lines(&format!("# {:20} : {}", "Results checked", checked(footer)))?;
        if let Some(memory) = footer.memory {
            self.memory(memory)?;
        }
        self.lines("#\n")
    }

    fn memory(&mut self, memory: MemoryUse) -> Result<()> {
        let MemoryUse { is_gpu, initialization, buffers, collective } = memory;
        let name = if is_gpu { "GPU memory usage" } else { "Host memory usage" };
        let total = initialization + buffers + collective;
        let [initialization, buffers, collective, total] =
            [initialization, buffers, collective, total].map(memory_cell);
        self.lines(&format!(
            "# {name:20} : Initialization {initialization} | User-Allocated {buffers} | Collective {collective} | Total  {total}"
        ))
    }
}

/// What `Out of bounds values` speaks of: nccl-tests' check runs operations of its own after the timed ones
/// (`src/common.cu`, `BenchTime`), so that it says nothing of these.
fn checked(footer: &Footer<'_>) -> String {
    let results = match footer.checks {
        0 => "none (-c 0)".to_owned(),
        1 => "1 operation per size and placement, not the timed ones (-c)".to_owned(),
        checks => format!("{checks} operations per size and placement, not the timed ones (-c)"),
    };
    let bytes = if footer.has_checksums { "; bytes between hosts: all (checksums)" } else { "" };
    format!("{results}{bytes}")
}

fn half_cells(line: &mut String, half: &Half) {
    let Half { time_us, algbw_gbs, busbw_gbs, wrong, iterations, .. } = half;
    // One character narrower than the column, as in nccl-tests.
    let wrong = wrong.map_or("    N/A".to_string(), |wrong| format!("  {:>6}", general(wrong as f64)));
    // Writing to a String cannot fail.
    let _ = write!(line, "  {}  {}  {}{wrong}", cell(*time_us, 7), cell(*algbw_gbs, 6), cell(*busbw_gbs, 6));
    if let Some(iterations) = iterations {
        let stats = &iterations.stats;
        for value in [stats.min_us, stats.max_us, stats.p99_us, stats.cv_pct] {
            let _ = write!(line, "  {}", cell(value, 7));
        }
    }
}

/// Three significant digits and a binary unit (`getMemString`).
fn memory_cell(bytes: i64) -> String {
    let amount = bytes as f64;
    let units = [(30, " GB"), (20, " MB"), (10, " KB"), (0, " B")];
    let (shift, unit) = units.into_iter().find(|(shift, _)| amount.abs() >= f64::from(1 << shift)).unwrap_or((0, " B"));
    let amount = amount / f64::from(1 << shift);
    let decimals = match amount.abs() {
        size if size < 10.0 => 2,
        size if size < 100.0 => 1,
        _ => 0,
    };
    format!("{amount:.decimals$}{unit}")
}
