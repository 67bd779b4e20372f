//! The nccl-tests table of a run, printed as nccl-tests 2.17.6 does (`src/util.cu`).

use super::speaker::{Communicator, pci_bus};
use crate::random::Random;
use std::io::{self, Write};

const PROGRAM: &str = "all_reduce_perf_mpi";
const MIN_BYTES: u64 = 8;
const MAX_BYTES: u64 = 8 << 30;
/// What one 400 Gbit/s NIC carries, in GB/s: nearly the line rate of 50.
const NIC_GBS: f64 = 46.0;
/// What NVLink and NVSwitch of one node carry, in GB/s.
const NVLINK_GBS: f64 = 365.0;

/// One half of a row.
struct Half {
    time_us: f64,
    algbw_gbs: f64,
    busbw_gbs: f64,
}

/// Writes what comes before the ranks' own lines: the settings and the devices.
pub(super) fn preamble(comm: &Communicator<'_>, out: &mut dyn Write) -> io::Result<()> {
    let label = comm.label(0);
    writeln!(out, "{label}# nccl-tests version 2.17.6 nccl-headers=22705 nccl-library=22705")?;
    writeln!(out, "{label}# Collective test starting: {PROGRAM}")?;
    writeln!(
        out,
        "{label}# nThread 1 nGpus 1 minBytes {MIN_BYTES} maxBytes {MAX_BYTES} step: 2(factor) warmup iters: 1 iters: 20 \
         agg iters: 1 validation: 1 graph: 0"
    )?;
    writeln!(out, "{label}#")?;
    writeln!(out, "{label}# Using devices")?;
    for rank in 0..comm.shape.ranks {
        let local = comm.local_of(rank);
        writeln!(
            out,
            "{label}#  Rank {rank:2} Group  0 Pid {:6} on {:>10} device {local:2} [0000:{:02x}:00] NVIDIA H100 80GB HBM3",
            comm.pid(rank),
            comm.host(rank),
            pci_bus(local)
        )?;
    }
    Ok(())
}

/// Writes the header and the rows; returns the mean of all busbw cells for the footer.
pub(super) fn rows(comm: &Communicator<'_>, random: &mut Random, out: &mut dyn Write) -> io::Result<f64> {
    let label = comm.label(0);
    writeln!(out, "{label}#")?;
    writeln!(
        out,
        "{label}# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}           out-of-place                       in-place          ",
        "", "", "", "", ""
    )?;
    let names = ["time", "algbw", "busbw", "#wrong"];
    let units = ["(us)", "(GB/s)", "(GB/s)", ""];
    header(&label, ["size", "count", "type", "redop", "root"], names, out)?;
    header(&label, ["(B)", "(elements)", "", "", ""], units, out)?;

    let (mut sum, mut count) = (0.0, 0.0);
    let mut bytes = MIN_BYTES;
    while bytes <= MAX_BYTES {
        write!(out, "{label}{bytes:>12}  {:>12}  {:>8}  {:>6}  {:>6}", bytes / 4, "float", "sum", -1)?;
        for _ in 0..2 {
            let half = measure(comm, bytes, random);
            write!(
                out,
                "  {}  {}  {}  {:>6}",
                fixed(half.time_us, 7),
                fixed(half.algbw_gbs, 6),
                fixed(half.busbw_gbs, 6),
                0
            )?;
            sum += half.busbw_gbs;
            count += 1.0;
        }
        writeln!(out)?;
        bytes *= 2;
    }
    Ok(sum / count)
}

fn header(label: &str, first: [&str; 5], half: [&str; 4], out: &mut dyn Write) -> io::Result<()> {
    let [size, count, datatype, redop, root] = first;
    write!(out, "{label}# {size:>10}  {count:>12}  {datatype:>8}  {redop:>6}  {root:>6}")?;
    for _ in 0..2 {
        let [time, algbw, busbw, wrong] = half;
        write!(out, "  {time:>7}  {algbw:>6}  {busbw:>6}  {wrong:>6}")?;
    }
    writeln!(out, " {:>20}", "")
}

pub(super) fn footer(comm: &Communicator<'_>, mean_busbw_gbs: f64, out: &mut dyn Write) -> io::Result<()> {
    let label = comm.label(0);
    writeln!(out, "{label}# Out of bounds values : 0 OK")?;
    writeln!(out, "{label}# Avg bus bandwidth    : {} ", general(mean_busbw_gbs))?;
    writeln!(out, "{label}#")?;
    writeln!(out, "{label}# Collective test concluded: {PROGRAM}")?;
    writeln!(out, "{label}")
}

/// A latency and a bandwidth, with a spread of 2 %.
fn measure(comm: &Communicator<'_>, bytes: u64, random: &mut Random) -> Half {
    let ranks = f64::from(comm.shape.ranks);
    let factor = 2.0 * (ranks - 1.0) / ranks;
    let limit_gbs =
        if comm.shape.nodes() > 1 { NVLINK_GBS.min(NIC_GBS * f64::from(comm.shape.gpus())) } else { NVLINK_GBS };
    let latency_us = 18.0 + 6.0 * ranks.log2();
    let spread = 0.98 + 0.04 * random.fraction();
    let time_us = (latency_us + bytes as f64 * factor / limit_gbs / 1e3) * spread;
    let algbw_gbs = bytes as f64 / time_us / 1e3;
    Half { time_us, algbw_gbs, busbw_gbs: algbw_gbs * factor }
}

/// `getFloatStr` of nccl-tests: as many decimals as fit the width.
fn fixed(value: f64, width: usize) -> String {
    let mut power = 0;
    let mut limit = 1.0;
    while value >= limit {
        limit *= 10.0;
        power += 1;
    }
    let decimals = if power < width - 2 {
        2
    } else if power < width - 1 {
        1
    } else {
        0
    };
    format!("{value:width$.decimals$}")
}

/// C's `%g` for values from 0.0001 to a million: six significant digits, no zeros at the end.
fn general(value: f64) -> String {
    let digits_before = if value >= 1.0 { value.log10().floor() as i32 + 1 } else { 1 };
    let decimals = (6 - digits_before).max(0) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_as_wide_as_nccl_tests_prints_them() {
        // Cells of published tables of 2.17.6 and 2.18.3.
        let cases = [(20.09, 7, "  20.09"), (1466.84, 7, "1466.84"), (33298.6, 7, "33298.6"), (116363.4, 7, " 116363")];
        for (value, width, text) in cases {
            assert_eq!(fixed(value, width), text);
        }
        assert_eq!(fixed(486.934, 6), "486.93");
        assert_eq!(fixed(0.0, 6), "  0.00");
    }

    #[test]
    fn the_average_has_six_digits() {
        assert_eq!(general(124.343_2), "124.343");
        assert_eq!(general(15.0418), "15.0418");
        assert_eq!(general(0.5), "0.5");
        assert_eq!(general(100.0), "100");
    }
}
