//! The JSON of nccl-tests (`-J FILE`): file versions 1 (2.17.3), 2 (2.19.2) and 3 (2.19.6).

use crate::nccl_tests::{infer, preamble};
use busbw_model::{
    BenchDevice, BenchRow, BenchSettings, BenchTable, Bytes, Check, Datatype, GBps, IterationStats, Measure, Micros,
    OutOfBounds, Place, RedOp, Skew, SourceLine,
};
use memchr::memmem;
use serde_json::Value;
use std::str::FromStr;

/// Whether a text is such a file, by its first byte and the names of its keys. Cheap against reading it.
pub fn looks_like(text: &str) -> bool {
    let has = |key: &str| memmem::find(text.as_bytes(), key.as_bytes()).is_some();
    text.trim_start().starts_with('{') && has("\"warmup_iters\"") && (has("\"bus_bw\"") || has("\"average_bus_bandwid"))
}

/// Reads such a file. Missing fields are left out. Of `env`, which holds the whole environment, nothing is kept.
///
/// # Errors
/// The text is no JSON (a run that was killed before 2.19.2 leaves its file without an end) or no object; the message
/// says where and what to do.
pub fn read(text: &str, input: u32) -> Result<BenchTable, String> {
    let root = parse(text)?;
    if !root.is_object() {
        return Err("not the JSON of nccl-tests: an object with 'config' and 'results' is expected".to_string());
    }
    let place = Place { input, line: 0 };
    let config = &root["config"];
    let devices: Vec<BenchDevice> = array(&config["devices"]).iter().filter_map(device).collect();
    let average = first_of(&root, &["average_bus_bandwidth", "average_bus_bandwidith"]);
    let mut table = BenchTable {
        place,
        nranks: ranks(&devices, config),
        rows: array(&root["results"])
            .iter()
            .enumerate()
            .filter_map(|(index, result)| row(result, index, place))
            .collect(),
        printed_avg_busbw: float(first_of(average, &["bandwidth", "bandwidith"])).map(GBps),
        below_minimum: (okay(&average["okay"]) == Some(false))
            .then(|| SourceLine::new(place, &format!("average_bus_bandwidth: {average}"))),
        out_of_bounds: out_of_bounds(&root["out_of_bounds"], place),
        settings: settings(&root),
        finished: !average.is_null(),
        devices,
        ..Default::default()
    };
    infer::complete(&mut table, None, false);
    Ok(table)
}

/// nccl-tests prints infinity as a bare `inf`, which is no JSON.
fn parse(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).or_else(|error| {
        let mended = text.replace(":inf", ":\"inf\"").replace(":-inf", ":\"-inf\"");
        let cut = if error.is_eof() { "; the file ends early, so the run did not finish: run it again" } else { "" };
        serde_json::from_str(&mended).map_err(|_| format!("not the JSON of nccl-tests: {error}{cut}"))
    })
}

/// The list has one device per process, whatever number of GPUs the process drives (`parseRankInfo` reads only the
/// first line of each).
fn ranks(devices: &[BenchDevice], config: &Value) -> Option<u32> {
    let first = devices.first()?;
    let processes = u32::try_from(devices.iter().filter(|device| device.group == first.group).count()).ok()?;
    let per_process = |key: &str| unsigned(&config[key]).unwrap_or(1).max(1);
    processes.checked_mul(per_process("nthreads"))?.checked_mul(per_process("ngpus"))
}

fn device(value: &Value) -> Option<BenchDevice> {
    Some(BenchDevice {
        rank: unsigned(&value["rank"])?,
        group: unsigned(&value["group"]),
        pid: unsigned(&value["pid"]).unwrap_or_default(),
        host: string(&value["hostname"]).unwrap_or_default(),
        device: unsigned(&value["device"]).unwrap_or_default(),
        bus_id: string(&value["device_hex"]).unwrap_or_default(),
        name: string(&value["device_info"]).unwrap_or_default(),
        ..BenchDevice::default()
    })
}

fn settings(root: &Value) -> BenchSettings {
    let config = &root["config"];
    let program = root["args"][0].as_str().map(|path| preamble::program(path.rsplit('/').next().unwrap_or(path)));
    BenchSettings {
        program,
        nccl_tests_version: None,
        nccl_version: unsigned(&root["nccl_version"]).and_then(preamble::nccl_version),
        threads: unsigned(&config["nthreads"]),
        gpus_per_thread: unsigned(&config["ngpus"]),
        min_bytes: unsigned(&config["minimum_bytes"]).map(Bytes),
        max_bytes: unsigned(&config["maximum_bytes"]).map(Bytes),
        step_factor: unsigned(&config["step_factor"]),
        step_bytes: unsigned(&config["step_bytes"]).map(Bytes),
        warmup_iters: unsigned(&config["warmup_iters"]),
        iters: unsigned(&config["iterations"]),
        validation: unsigned(&config["validation"]).map(|checks: u32| checks > 0),
        graph: unsigned(&config["graph"]),
        cpu_time: root["results"][0]["out_of_place"].get("cpu_time").is_some(),
        memory: None,
    }
}

fn row(result: &Value, index: usize, place: Place) -> Option<BenchRow> {
    let word = |key: &str| result[key].as_str().map(str::trim);
    let size = unsigned(&result["size"])?;
    let half = |key: &str| measure(&result[key], &result[format!("{key}_per_iter")]);
    let text = format!(
        "results[{index}]: size {size}, out_of_place {}, in_place {}",
        result["out_of_place"], result["in_place"]
    );
    let (out_of_place, in_place) = (half("out_of_place"), half("in_place"));
    let possible = |half: &Option<Measure>| half.as_ref().is_none_or(Measure::is_possible);
    let doubted = !possible(&out_of_place) || !possible(&in_place);
    Some(BenchRow {
        size: Bytes(size),
        count: unsigned(&result["count"]),
        datatype: word("type").and_then(Datatype::from_name),
        redop: word("redop").and_then(RedOp::from_name),
        root: integer(&result["root"]).filter(|root| *root >= 0),
        out_of_place: out_of_place.filter(Measure::is_possible),
        in_place: in_place.filter(Measure::is_possible),
        skew: serde_json::from_value(result["skew"].clone()).ok().filter(Skew::is_possible),
        doubted,
        source: SourceLine::new(place, &text),
    })
}

/// One half; `None` where its time or a bandwidth is missing, `"nan"` or infinite.
fn measure(half: &Value, per_iteration: &Value) -> Option<Measure> {
    let statistics = || {
        Some(IterationStats {
            min: Micros(float(&per_iteration["min_us"])?),
            max: Micros(float(&per_iteration["max_us"])?),
            p99: Micros(float(&per_iteration["p99_us"])?),
            cv_pct: float(&per_iteration["cv_pct"])?,
        })
    };
    Some(Measure {
        time: Micros(float(first_of(half, &["time", "cpu_time"]))?),
        algbw: GBps(float(&half["alg_bw"])?),
        busbw: GBps(float(&half["bus_bw"])?),
        check: float(&half["nwrong"]).map_or(Check::NotDone, |wrong| Check::Wrong(wrong.round() as u64)),
        iterations: statistics(),
    })
}

/// Versions print a word for a truth; `unchecked` is none.
fn okay(value: &Value) -> Option<bool> {
    value.as_bool().or_else(|| value.as_str()?.parse().ok())
}

fn out_of_bounds(value: &Value, place: Place) -> Option<OutOfBounds> {
    let count = unsigned(&value["count"])?;
    let ok = okay(&value["okay"]).unwrap_or(count == 0);
    Some(OutOfBounds { count, ok, source: SourceLine::new(place, &format!("out_of_bounds: {value}")) })
}

/// The value of the first of `keys` that is there, else null.
fn first_of<'a>(value: &'a Value, keys: &[&str]) -> &'a Value {
    keys.iter().find_map(|key| value.get(*key)).unwrap_or(&Value::Null)
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn string(value: &Value) -> Option<String> {
    value.as_str().map(|text| text.trim().to_string())
}

/// A number, or a string that holds one: nccl-tests pads `root` and quotes NaN.
fn parsed<T: FromStr>(value: &Value) -> Option<T> {
    match value {
        Value::Number(number) => number.to_string().parse().ok(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn unsigned<T: TryFrom<u64>>(value: &Value) -> Option<T> {
    parsed::<u64>(value).and_then(|number| T::try_from(number).ok())
}

fn integer(value: &Value) -> Option<i64> {
    parsed(value)
}

fn float(value: &Value) -> Option<f64> {
    parsed(value).filter(|number: &f64| number.is_finite())
}
