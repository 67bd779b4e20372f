//! The file of `-J`: nccl-tests' JSON, file version 3 (`src/util.cu` of nccl-tests 2.19.6). `docs/schema` is made from the types
//! that are written (`BUSBW_BLESS=1 cargo test -p busbw-bench schema`).
//!
//! As there, booleans are the strings "true" and "false", the root is padded, what is no number is "nan" (and "inf",
//! which nccl-tests writes bare), and of a process with several ranks only the first is listed. Other than there, the
//! environment holds no more than [`Context::recorded_env`] lets through, numbers are not rounded to six decimals,
//! and a run that fails says why in `errors`.

use crate::backend::{Device, Library};
use crate::clock;
use crate::context::Context;
use crate::flags::Flags;
use crate::repetition::Repetitions;
use crate::row::{Half, NicTraffic, PerIteration, Row};
use crate::statistics::Iterations;
use crate::table::{Footer, nccl_version};
use crate::{Error, Result};
use busbw_model::{Datatype, Skew, answer};
use schemars::{JsonSchema, Schema};
use serde::{Serialize, Serializer};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// nccl-tests' version of the file.
const FILE_VERSION: u32 = 3;

/// The JSON Schema of the file, as `docs/schema` keeps it.
pub fn schema() -> Schema {
    answer::generated::<Whole>("nccl-tests JSON, file version 3", "nccl-tests-3")
}

/// What `busbw bench -J FILE` writes: the JSON of nccl-tests 2.19.6 (file version 3, src/util.cu), and what busbw adds to it
/// (config.backend, libraries, out_of_place_nics, in_place_nics, skew, repetitions). Booleans are the strings "true" and "false"; a
/// number that is none is "nan", "inf" or "-inf". A run that failed has no out_of_bounds and no average_bus_bandwidth, possibly
/// no config and results, and says in errors why. Of the environment only variables that begin with NCCL_, BUSBW_, OMPI_, SLURM_
/// or PMI are written, and none whose name speaks of a token, secret, password, key, JWT, cookie, credential or authentication.
#[derive(JsonSchema)]
#[schemars(extend("additionalProperties" = false))]
#[allow(dead_code)] // `Json` writes it member by member, while the run goes on.
struct Whole<'a> {
    /// Version of the file.
    #[schemars(extend("const" = FILE_VERSION))]
    version: u32,
    /// When the run began, in the host's time zone.
    #[schemars(extend("pattern" = TIME))]
    start_time: &'a str,
    /// The command line, the program's name first.
    args: &'a [String],
    /// NAME=value.
    #[schemars(inner(regex(pattern = "^(NCCL_|BUSBW_|OMPI_|SLURM_|PMI)")))]
    env: &'a [String],
    /// NCCL's version code, 22907 for 2.29.7; 0 without NCCL.
    #[schemars(range(min = 0))]
    nccl_version: i32,
    /// The libraries of a run on GPUs, found at run time. nccl-tests has no such member.
    #[schemars(skip_serializing_if = "Option::is_none")]
    libraries: Option<&'a [Library]>,
    /// How it was measured.
    #[schemars(skip_serializing_if = "Option::is_none")]
    config: Option<Config<'a>>,
    /// A result per row of the table, in its order.
    #[schemars(skip_serializing_if = "Option::is_none")]
    results: Option<Vec<Entry<'a>>>,
    /// The check of data.
    #[schemars(skip_serializing_if = "Option::is_none")]
    out_of_bounds: Option<OutOfBounds>,
    /// The mean of bus_bw over all halves.
    #[schemars(skip_serializing_if = "Option::is_none")]
    average_bus_bandwidth: Option<Average>,
    /// The spread over whole repetitions (--repeat).
    #[schemars(skip_serializing_if = "Option::is_none")]
    repetitions: Option<&'a Repetitions>,
    /// What ended the run early.
    errors: &'a [&'a str],
    /// When the run ended, in the host's time zone.
    #[schemars(extend("pattern" = TIME))]
    end_time: &'a str,
}

/// How a moment is written.
const TIME: &str = "^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}$";
/// How a truth is written.
const TRUTHS: [&str; 2] = ["true", "false"];

/// A file that grows with the run, and is whole JSON also when the run fails or this value is dropped.
pub struct Json<'a> {
    /// None of standard output.
    path: Option<PathBuf>,
    out: Box<dyn Write + 'a>,
    stage: Stage,
    results: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begun,
    Results,
    Closed,
}

impl<'a> Json<'a> {
    /// Creates the file; where one is there already, `PATH.0`, `PATH.1` and so on.
    pub fn create(path: &Path, context: &Context, libraries: &[Library]) -> Result<Self> {
        let mut tried = path.to_path_buf();
        let mut number = 0;
        let file = loop {
            match File::create_new(&tried) {
                Ok(file) => break file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let mut name = path.as_os_str().to_owned();
                    name.push(format!(".{number}"));
                    tried = name.into();
                    number += 1;
                }
                Err(source) => return Err(Error::Json { path: tried, source }),
            }
        };
        Json::begin(Box::new(BufWriter::new(file)), Some(tried), context, libraries)
    }

    /// Begins, on a file or on standard output.
    pub fn begin(
        out: Box<dyn Write + 'a>,
        path: Option<PathBuf>,
        context: &Context,
        libraries: &[Library],
    ) -> Result<Self> {
        let mut json = Json { path, out, stage: Stage::Begun, results: 0 };
        json.write(b"{")?;
        json.key("version", &FILE_VERSION)?;
        json.member("start_time", &clock::stamp(context.start))?;
        json.member("args", &context.argv)?;
        json.member("env", &context.recorded_env())?;
        json.member("nccl_version", &nccl_version(libraries))?;
        if !libraries.is_empty() {
            json.member("libraries", &libraries)?;
        }
        Ok(json)
    }

    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The settings and the devices; what follows are results.
    pub fn config(&mut self, flags: &Flags, devices: &[Device]) -> Result<()> {
        self.member("config", &Config::new(flags, devices))?;
        self.write(b",\"results\":[")?;
        self.stage = Stage::Results;
        self.flush()
    }

    pub fn row(&mut self, row: &Row, flags: &Flags) -> Result<()> {
        if self.results > 0 {
            self.write(b",")?;
        }
        self.results += 1;
        self.value(&Entry::new(row, flags))?;
        self.flush()
    }

    pub fn finish(&mut self, footer: &Footer<'_>, repetitions: Option<&Repetitions>) -> Result<()> {
        self.write(b"]")?;
        let failed = footer.failed_checks;
        self.member("out_of_bounds", &OutOfBounds { count: failed, okay: truth(failed == 0) })?;
        let okay = footer.is_enough.map_or("unchecked", truth);
        self.member("average_bus_bandwidth", &Average { bandwidth: footer.average_gbs, okay })?;
        if let Some(repetitions) = repetitions {
            self.member("repetitions", repetitions)?;
        }
        self.end(&[])
    }

    pub fn fail(&mut self, message: &str) -> Result<()> {
        if self.stage == Stage::Results {
            self.write(b"]")?;
        }
        self.end(&[message])
    }

    fn end(&mut self, errors: &[&str]) -> Result<()> {
        self.stage = Stage::Closed;
        self.member("errors", &errors)?;
        self.member("end_time", &clock::stamp(SystemTime::now()))?;
        self.write(b"}\n")?;
        self.flush()
    }

    fn member(&mut self, key: &str, value: &impl Serialize) -> Result<()> {
        self.write(b",")?;
        self.key(key, value)
    }

    fn key(&mut self, key: &str, value: &impl Serialize) -> Result<()> {
        self.write(format!("\"{key}\":").as_bytes())?;
        self.value(value)
    }

    fn value(&mut self, value: &impl Serialize) -> Result<()> {
        serde_json::to_writer(&mut self.out, value).map_err(|error| self.failed(error.into()))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(|error| self.failed(error))
    }

    fn flush(&mut self) -> Result<()> {
        self.out.flush().map_err(|error| self.failed(error))
    }

    fn failed(&self, source: io::Error) -> Error {
        match &self.path {
            Some(path) => Error::Json { path: path.clone(), source },
            None => Error::Output(source),
        }
    }
}

impl Drop for Json<'_> {
    fn drop(&mut self) {
        if self.stage != Stage::Closed {
            // No one is left to report the error to.
            let _ = self.fail("the run was interrupted");
        }
    }
}

fn truth(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

/// A number; what is none, as a string.
pub(crate) fn number<S: Serializer>(value: &f64, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    match value {
        value if value.is_nan() => serializer.serialize_str("nan"),
        value if value.is_infinite() => serializer.serialize_str(if *value > 0.0 { "inf" } else { "-inf" }),
        value => serializer.serialize_f64(*value),
    }
}

/// The check of data.
#[derive(Serialize, JsonSchema)]
struct OutOfBounds {
    /// Checks that found wrong elements, counted on every rank.
    count: u64,
    /// Whether there are none.
    #[schemars(extend("enum" = TRUTHS))]
    okay: &'static str,
}

/// The mean of bus_bw over all halves.
#[derive(Serialize, JsonSchema)]
struct Average {
    /// GB/s.
    #[serde(serialize_with = "number")]
    #[schemars(with = "Number")]
    bandwidth: f64,
    /// Whether it is within 10% of NCCL_TESTS_MIN_BW.
    #[schemars(extend("enum" = ["true", "false", "unchecked"]))]
    okay: &'static str,
}

/// How it was measured.
#[derive(Serialize, JsonSchema)]
#[schemars(extend("additionalProperties" = false))]
struct Config<'a> {
    /// What carried the operations: cpu is busbw's own engine, on cores. nccl-tests has no such member.
    #[schemars(extend("enum" = ["cpu", "nccl"]))]
    backend: &'static str,
    /// Threads per process.
    nthreads: u32,
    /// Ranks per thread.
    ngpus: u32,
    minimum_bytes: u64,
    maximum_bytes: u64,
    /// Factor between sizes; this or step_bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    step_factor: Option<u32>,
    /// Bytes between sizes; this or step_factor.
    #[serde(skip_serializing_if = "Option::is_none")]
    step_bytes: Option<u64>,
    warmup_iters: u32,
    iterations: u32,
    aggregated_iterations: u32,
    /// Checks per size; 0 is none.
    validation: u32,
    graph: u32,
    #[schemars(extend("enum" = TRUTHS))]
    blocking_collectives: &'static str,
    #[schemars(extend("enum" = TRUTHS))]
    per_iter_timing: &'static str,
    per_iter_skip: u32,
    #[schemars(extend("enum" = TRUTHS))]
    parallel_init: &'static str,
    /// The first rank of each process.
    devices: Vec<DeviceEntry<'a>>,
}

/// A rank.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Device", extend("additionalProperties" = false))]
struct DeviceEntry<'a> {
    rank: usize,
    /// The group that tested together (NCCL_TESTS_SPLIT).
    group: u32,
    pid: u32,
    hostname: &'a str,
    device: usize,
    /// PCI bus id.
    device_hex: &'a str,
    /// Name of the device.
    device_info: &'a str,
}

impl<'a> Config<'a> {
    fn new(flags: &Flags, devices: &'a [Device]) -> Self {
        let by_factor = flags.stepfactor > 1;
        Config {
            backend: if flags.is_on_gpus() { "nccl" } else { "cpu" },
            nthreads: flags.nthreads,
            ngpus: flags.ngpus,
            minimum_bytes: flags.min_bytes(),
            maximum_bytes: flags.maxbytes.0,
            step_factor: by_factor.then_some(flags.stepfactor),
            step_bytes: (!by_factor).then_some(flags.stepbytes.0),
            warmup_iters: flags.warmup_iters,
            iterations: flags.iters,
            aggregated_iterations: flags.agg_iters,
            validation: flags.check,
            graph: flags.cudagraph,
            blocking_collectives: truth(flags.blocking > 0),
            per_iter_timing: truth(flags.per_iter_timing > 0),
            per_iter_skip: flags.per_iter_skip,
            parallel_init: truth(flags.parallel_init > 0),
            devices: devices.iter().step_by(flags.ranks_per_process()).map(DeviceEntry::new).collect(),
        }
    }
}

impl<'a> DeviceEntry<'a> {
    fn new(device: &'a Device) -> Self {
        DeviceEntry {
            rank: device.rank,
            group: device.group,
            pid: device.pid,
            hostname: &device.host,
            device: device.device,
            device_hex: &device.bus_id,
            device_info: &device.name,
        }
    }
}

/// A row of the table.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Result", extend("additionalProperties" = false))]
struct Entry<'a> {
    /// Bytes of the larger buffer.
    size: usize,
    /// Elements.
    count: usize,
    #[serde(rename = "type")]
    #[schemars(with = "Datatype")]
    datatype: &'static str,
    #[schemars(extend("enum" = ["sum", "prod", "max", "min", "avg", "mulsum", "none", ""]))]
    redop: &'static str,
    /// Padded to six characters; -1 where there is none.
    #[schemars(extend("pattern" = "^ *-?[0-9]+$"))]
    root: String,
    out_of_place: HalfEntry,
    #[serde(skip_serializing_if = "Option::is_none")]
    out_of_place_per_iter: Option<IterationsEntry<'a>>,
    in_place: HalfEntry,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_place_per_iter: Option<IterationsEntry<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    out_of_place_nics: &'a [NicTraffic],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    in_place_nics: &'a [NicTraffic],
    #[serde(skip_serializing_if = "Option::is_none")]
    skew: Option<&'a Skew>,
    actual_iterations: u32,
    experiment_name: &'static str,
}

impl<'a> Entry<'a> {
    fn new(row: &'a Row, flags: &Flags) -> Self {
        let has_cpu_time = flags.report_cputime > 0;
        let root = row.test.root.map_or(-1, |root| root as i64);
        Entry {
            size: row.size,
            count: row.count,
            datatype: row.test.datatype.name(),
            redop: row.test.redop_cell,
            root: format!("{root:6}"),
            out_of_place: HalfEntry::new(&row.out_of_place, has_cpu_time),
            out_of_place_per_iter: row.out_of_place.iterations.as_ref().map(IterationsEntry::new),
            in_place: HalfEntry::new(&row.in_place, has_cpu_time),
            in_place_per_iter: row.in_place.iterations.as_ref().map(IterationsEntry::new),
            out_of_place_nics: &row.out_of_place.nics,
            in_place_nics: &row.in_place.nics,
            skew: row.skew.as_ref(),
            actual_iterations: flags.iters,
            experiment_name: "",
        }
    }
}

/// A number, or the name of what is none.
#[derive(Serialize, JsonSchema)]
#[schemars(extend("type" = ["number", "string"], "pattern" = "^(nan|-?inf)$"))]
struct Number(#[serde(serialize_with = "number")] f64);

/// One half of a row.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Half", extend("additionalProperties" = false, "anyOf" = [{"required": ["time"]}, {"required": ["cpu_time"]}]))]
struct HalfEntry {
    /// Microseconds of one operation; this or cpu_time.
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<Number>,
    /// Microseconds of the call (-C 1); this or time.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_time: Option<Number>,
    /// GB/s.
    alg_bw: Number,
    /// GB/s.
    bus_bw: Number,
    /// Wrong elements of all ranks; null where nothing was checked.
    #[schemars(range(min = 0))]
    nwrong: Option<f64>,
}

impl HalfEntry {
    fn new(half: &Half, has_cpu_time: bool) -> Self {
        HalfEntry {
            time: (!has_cpu_time).then_some(Number(half.time_us)),
            cpu_time: has_cpu_time.then_some(Number(half.time_us)),
            alg_bw: Number(half.algbw_gbs),
            bus_bw: Number(half.busbw_gbs),
            nwrong: half.wrong.map(|wrong| wrong as f64),
        }
    }
}

/// The iterations of a half (-I 1), microseconds but for cv_pct.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Iterations", extend("additionalProperties" = false))]
struct IterationsEntry<'a> {
    /// Left out of the statistics (-K).
    skipped_iterations: usize,
    #[serde(flatten)]
    stats: Iterations,
    /// Every iteration, that of the slowest process.
    times_us: &'a [f64],
    /// The same per process, where there are several.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    per_process_max_times_us: &'a [Vec<f64>],
}

impl<'a> IterationsEntry<'a> {
    fn new(iterations: &'a PerIteration) -> Self {
        IterationsEntry {
            skipped_iterations: iterations.skipped,
            stats: iterations.stats,
            times_us: &iterations.times_us,
            per_process_max_times_us: &iterations.processes_us,
        }
    }
}
