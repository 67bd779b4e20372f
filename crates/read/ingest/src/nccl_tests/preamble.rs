//! The lines around the rows: version, settings, device list, header, average.

use super::header::Layout;
use busbw_model::{BenchDevice, BenchSettings, Bytes, Datatype, HostMemory, Skew};

/// What a line that is no row says about a table.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Note {
    /// `# nccl-tests version 2.18.3 nccl-headers=22907 nccl-library=22907` (2.17.4 and later).
    Version {
        nccl_tests: String,
        nccl: Option<String>,
    },
    /// `# Collective test starting: all_reduce_perf` (2.16.7 and later); the name without `_perf`.
    Starting(String),
    /// `# nThread 1 nGpus 1 minBytes 8 …`; without `#` in 1.0.0.
    Settings(BenchSettings),
    /// `# Reducing maxBytes to 12703629312 due to memory limitation`.
    ReducedMax(Bytes),
    /// `# Host memory: 2 cores copy 14.2 GB/s, load 0.31`, of busbw.
    Memory(HostMemory),
    /// `# Skew      1048576    float: 0.89 of the bound; even 312.11 us, …`, of busbw.
    Skew {
        size: Bytes,
        datatype: Option<Datatype>,
        skew: Box<Skew>,
    },
    /// `# Using devices`.
    UsingDevices,
    /// `#  Rank  0 Group  0 Pid  27414 on host device  0 [0x27] NVIDIA A100-SXM4-80GB`.
    Device(BenchDevice),
    /// The line `out-of-place … in-place` above the header.
    Banner,
    Header(Layout),
    /// `# Out of bounds values : 0 OK`.
    OutOfBounds {
        count: u64,
        ok: bool,
    },
    /// `# Avg bus bandwidth    : 95.3009`, GB/s; `None` when it is no finite number. FAILED behind it: below `NCCL_TESTS_MIN_BW`.
    Average {
        value: Option<f64>,
        failed: bool,
    },
    /// `# Collective test concluded: all_reduce_perf`.
    Concluded(String),
    /// A line of nccl-tests that says nothing the model keeps.
    Remark,
}

/// Reads a line; `None` when it is no such line.
pub(super) fn read(text: &str) -> Option<Note> {
    let body = text.trim_start_matches('#').trim();
    if let Some(rest) = body.strip_prefix("Out of bounds values") {
        return out_of_bounds(rest);
    }
    if let Some(rest) = body.strip_prefix("Avg bus bandwidth") {
        let mut words = rest.trim_start().strip_prefix(':')?.split_ascii_whitespace();
        let value: f64 = words.next()?.parse().ok()?;
        return Some(Note::Average {
            value: value.is_finite().then_some(value),
            failed: words.next() == Some("FAILED"),
        });
    }
    if body.starts_with("size ") {
        return Layout::parse(body).map(Note::Header);
    }
    if !text.starts_with('#') && !body.starts_with("nThread ") {
        return None;
    }
    read_comment(body)
}

/// Reads what follows `#`.
fn read_comment(body: &str) -> Option<Note> {
    let mut words = body.split_ascii_whitespace();
    Some(match words.next() {
        None => Note::Remark,
        Some("nThread") => Note::Settings(settings(body)),
        Some("Rank") => Note::Device(device(body)?),
        Some("Using") if body == "Using devices" => Note::UsingDevices,
        Some("out-of-place") if body.contains("in-place") => Note::Banner,
        Some("(B)") if body.contains("(GB/s)") => Note::Remark,
        Some("nccl-tests") => {
            let mut nccl = body.split_ascii_whitespace().filter_map(|word| word.strip_prefix("nccl-library="));
            let version = body.strip_prefix("nccl-tests version ")?.split_ascii_whitespace().next()?;
            Note::Version {
                nccl_tests: version.to_string(),
                nccl: nccl.next().and_then(|code| nccl_version(code.parse().ok()?)),
            }
        }
        Some("Collective") => match body.split_once(':')? {
            ("Collective test starting", name) => Note::Starting(program(name)),
            ("Collective test concluded", name) => Note::Concluded(program(name)),
            _ => return None,
        },
        Some("Reducing") => {
            let bytes = body.strip_prefix("Reducing maxBytes to ")?.split_ascii_whitespace().next()?;
            Note::ReducedMax(Bytes(bytes.parse().ok()?))
        }
        Some("Host") => Note::Memory(body.strip_prefix("Host memory: ")?.parse().ok()?),
        Some("Skew" | "Skew:") => skew(body).unwrap_or(Note::Remark),
        Some("Blocking" | "Parallel") if body.contains(" Enabled:") => Note::Remark,
        Some("Per-Iteration") | Some("error:") => Note::Remark,
        Some("GPU") if body.starts_with("GPU memory usage") => Note::Remark,
        Some("Writing") if body.starts_with("Writing JSON output") => Note::Remark,
        Some(_) => return None,
    })
}

/// Reads `Skew 1048576 float: 0.89 of the bound; even 312.11 us, …`; `None` for the lines around it.
fn skew(body: &str) -> Option<Note> {
    let (row, said) = body.strip_prefix("Skew")?.split_once(':')?;
    let mut words = row.split_ascii_whitespace();
    let size = Bytes(words.next()?.parse().ok()?);
    let datatype = words.next().and_then(Datatype::from_name);
    let (_, skew) = said.split_once("; ")?;
    Some(Note::Skew { size, datatype, skew: Box::new(skew.parse().ok()?) })
}

/// The name of a program of nccl-tests without `_perf` and what follows it (`all_reduce_perf_mpi`).
pub(crate) fn program(name: &str) -> String {
    let name = name.trim();
    name.split_once("_perf").map_or(name, |(program, _)| program).to_string()
}

/// The version that an NCCL version code means: 22907 is 2.29.7, 2708 is 2.7.8 (`NCCL_VERSION` in `nccl.h`, which
/// multiplies by 10,000 from 2.9 on).
pub(crate) fn nccl_version(code: u64) -> Option<String> {
    let unit = if code < 10_000 { 1_000 } else { 10_000 };
    (code >= 1_000).then(|| format!("{}.{}.{}", code / unit, code % unit / 100, code % 100))
}

fn out_of_bounds(rest: &str) -> Option<Note> {
    let mut words = rest.trim_start().strip_prefix(':')?.split_ascii_whitespace();
    let count = words.next()?.parse().ok()?;
    let ok = words.next().map_or(count == 0, |verdict| verdict.starts_with("OK"));
    Some(Note::OutOfBounds { count, ok })
}

/// Reads `nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
/// validation: 1 graph: 0 unalign: 0`; `agg` and `graph` from 2.13, `unalign` from 2.18.2.
fn settings(body: &str) -> BenchSettings {
    fn number<T: std::str::FromStr>(word: &str) -> Option<T> {
        word.parse().ok()
    }
    let mut settings = BenchSettings::default();
    let words: Vec<&str> = body.split_ascii_whitespace().collect();
    for (index, pair) in words.windows(2).enumerate() {
        let before = index.checked_sub(1).map_or("", |at| words[at]);
        match (before, pair[0], pair[1]) {
            (_, "nThread", value) => settings.threads = number(value),
            (_, "nGpus", value) => settings.gpus_per_thread = number(value),
            (_, "minBytes", value) => settings.min_bytes = number(value).map(Bytes),
            (_, "maxBytes", value) => settings.max_bytes = number(value).map(Bytes),
            (_, "step:", value) => match value.split_once('(') {
                Some((step, "factor)")) => settings.step_factor = number(step),
                Some((step, "bytes)")) => settings.step_bytes = number(step).map(Bytes),
                _ => {}
            },
            ("warmup", "iters:", value) => settings.warmup_iters = number(value),
            ("agg", "iters:", _) => {}
            (_, "iters:", value) => settings.iters = number(value),
            (_, "validation:", value) => settings.validation = number::<u32>(value).map(|checks| checks > 0),
            (_, "graph:", value) => settings.graph = number(value),
            _ => {}
        }
    }
    settings
}

/// Reads `Rank  0 Group  0 Pid 466205 on host1 device  0 [0000:03:00] NVIDIA H20`. `Group` came with 2.13.4.
fn device(body: &str) -> Option<BenchDevice> {
    let (head, name) = body.split_once(']')?;
    let (head, bus_id) = head.rsplit_once('[')?;
    let mut device =
        BenchDevice { bus_id: bus_id.trim().to_string(), name: name.trim().to_string(), ..Default::default() };
    let mut words = head.split_ascii_whitespace();
    let (mut has_rank, mut has_device) = (false, false);
    while let (Some(key), Some(value)) = (words.next(), words.next()) {
        match key {
            "Rank" => (device.rank, has_rank) = (value.parse().ok()?, true),
            "Group" => device.group = Some(value.parse().ok()?),
            "Pid" => device.pid = value.parse().ok()?,
            "on" => device.host = value.to_string(),
            "device" => (device.device, has_device) = (value.parse().ok()?, true),
            _ => return None,
        }
    }
    (has_rank && has_device && !device.host.is_empty()).then_some(device)
}
