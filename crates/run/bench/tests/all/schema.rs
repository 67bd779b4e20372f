//! The JSON of `-J` follows its schema, and says what the table says.

use crate::sweeps::table;
use crate::threads::{Fault, Job};
use busbw_bench::number::cell;
use busbw_ingest::read_bytes;
use busbw_model::{Check, Collective};
use serde_json::{Value, json};
use std::path::Path;

/// The schema of the types, which is that of `docs/schema`: `BUSBW_BLESS=1` writes it there.
fn schema() -> Value {
    let schema = busbw_bench::json::schema().to_value();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/schema/nccl-tests-3.schema.json");
    if std::env::var_os("BUSBW_BLESS").is_some() {
        std::fs::write(&path, format!("{schema:#}\n")).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), format!("{schema:#}\n"), "write it anew with BUSBW_BLESS=1");
    schema
}

/// What is wrong with a file.
fn check(value: &Value) -> Vec<String> {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn every_kind_of_run_follows_the_schema() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("out.json");
    for (collective, flags) in [
        (Collective::AllReduce, "-b 8 -e 1K -f 4 -o all"),
        (Collective::AllReduce, "-b 1K -e 2K -i 512 -I 1 -K 1"),
        (Collective::AllReduce, "-b 1K -e 1K -I 1 -g 2"),
        (Collective::AllReduce, "-b 0 -e 0 -c 0"),
        (Collective::AllToAll, "-b 1K -e 1K -C 1 -z 1 -p 1"),
        (Collective::HyperCube, "-b 1K -e 1K --nics"),
        (Collective::AllToAllV, "-b 1K -e 4K -f 2 --load W4"),
        (Collective::Broadcast, "-b 1K -e 2K -f 2 --repeat 3 --nics -r all"),
    ] {
        let _ = std::fs::remove_file(&out);
        let printed = Job::new(collective, 2, &format!("-n 3 {flags} -J {}", out.display()))
            .env("NCCL_DEBUG", "INFO")
            .env("HOME", "/root")
            .env("SLURM_JWT", "secret")
            .run();
        assert!(printed.outcome().ok, "{}", printed.text);
        let value = read(&out);
        assert_eq!(check(&value), [""; 0], "{flags}");
        assert_eq!(value["env"], json!(["NCCL_DEBUG=INFO"]));
        assert_eq!(value.get("repetitions").is_some(), flags.contains("--repeat"));
    }
}

#[test]
fn the_check_of_the_schema_finds_faults() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("out.json");
    let printed = Job::new(Collective::AllReduce, 2, &format!("-b 1K -e 1K -n 2 -J {}", out.display())).run();
    assert!(printed.outcome().ok);
    let good = read(&out);
    assert_eq!(check(&good), [""; 0]);
    for (pointer, bad) in [
        ("/version", json!(2)),
        ("/results/0/root", json!(-1)),
        ("/results/0/out_of_place/time", json!("slow")),
        ("/results/0/out_of_place/nwrong", json!(-1)),
        ("/results/0/redop", json!("mean")),
        ("/results/0/in_place", json!({"alg_bw": 1, "bus_bw": 1, "nwrong": null})),
        ("/config/parallel_init", json!(false)),
        ("/config/devices/0", json!({"rank": 0})),
        ("/env", json!(["HOME=/root"])),
        ("/end_time", json!("today")),
        ("/average_bus_bandwidth/okay", json!(true)),
    ] {
        let mut value = good.clone();
        *value.pointer_mut(pointer).unwrap() = bad;
        assert!(!check(&value).is_empty(), "{pointer}");
    }
}

/// Table and JSON hold the same numbers: those of the JSON, shortened to the cell, are those of the table.
#[test]
fn the_table_says_what_the_json_says() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("out.json");
    let flags = format!("-b 8 -e 64K -f 8 -n 5 -I 1 -J {}", out.display());
    let printed = Job::new(Collective::AllGather, 3, &flags).run();
    let text = table(&printed);
    let json = std::fs::read(&out).unwrap();
    let run = read_bytes(&[("out.json", &json)]).unwrap();
    let json = &run.tables[0];
    assert_eq!((json.collective, json.nranks), (text.collective, text.nranks));
    assert_eq!((json.rows.len(), json.devices.len()), (text.rows.len(), text.devices.len()));
    let shown = |value: f64, width| cell(value, width).trim().parse::<f64>().unwrap();
    for (a, b) in text.rows.iter().zip(&json.rows) {
        assert_eq!((a.size, a.count, a.datatype, a.redop, a.root), (b.size, b.count, b.datatype, b.redop, b.root));
        for (a, b) in a.halves().zip(b.halves()) {
            assert_eq!(a.time.0, shown(b.time.0, 7));
            assert_eq!((a.algbw.0, a.busbw.0), (shown(b.algbw.0, 6), shown(b.busbw.0, 6)));
            assert_eq!((a.check, b.check), (Check::Wrong(0), Check::Wrong(0)));
            let (a, b) = (a.iterations.unwrap(), b.iterations.unwrap());
            let shown = [b.min.0, b.max.0, b.p99.0, b.cv_pct].map(|value| shown(value, 7));
            assert_eq!([a.min.0, a.max.0, a.p99.0, a.cv_pct], shown);
        }
    }
    let average = json.mean_busbw().unwrap().0;
    assert_eq!(text.printed_avg_busbw.unwrap().0, busbw_bench::number::general(average).parse::<f64>().unwrap());
}

/// What ranks move stands in the JSON alone.
#[test]
fn a_load_reads_alike_from_table_and_json() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("out.json");
    let printed = Job::new(Collective::AllToAllV, 4, &format!("-b 4K -e 4K -n 2 --load W4 -J {}", out.display())).run();
    let json = std::fs::read(&out).unwrap();
    let run = read_bytes(&[("out.json", &json)]).unwrap();
    let (text, json) = (table(&printed).rows[0].skew.clone().unwrap(), run.tables[0].rows[0].skew.clone().unwrap());
    let moved: Vec<(u64, u64)> = json.ranks.iter().map(|rank| (rank.sent_bytes, rank.received_bytes)).collect();
    assert_eq!(moved, [(768, 3840), (2304, 3328), (3840, 2816), (5376, 2304)]);
    assert_eq!((&text.load, text.rank.rank, text.rank.direction), (&json.load, json.rank.rank, json.rank.direction));
    assert!((text.bound.0 - json.bound.0).abs() < 0.01 && text.ranks.is_empty(), "{text:?} {json:?}");
}

#[test]
fn an_existing_file_is_kept() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("out.json");
    std::fs::write(&out, "mine").unwrap();
    for name in ["out.json.0", "out.json.1"] {
        let printed = Job::new(Collective::AllReduce, 1, &format!("-b 1K -e 1K -n 1 -J {}", out.display())).run();
        assert!(
            printed.text.starts_with(&format!("# Writing JSON output to {}\n", scratch.path().join(name).display()))
        );
        assert_eq!(check(&read(&scratch.path().join(name))), [""; 0]);
    }
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "mine");
}

#[test]
fn a_run_that_fails_leaves_its_rows_and_the_reason() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("out.json");
    let job = Job::new(Collective::AllReduce, 2, &format!("-b 1K -e 4K -f 2 -n 1 -w 0 -J {}", out.display()));
    let printed = job.fault(Fault::Fail { rank: 0, operation: 9 }).run();
    assert!(printed.outcomes.iter().all(Result::is_err));
    let value = read(&out);
    assert_eq!(check(&value), [""; 0]);
    assert_eq!(value["errors"], json!(["rank 1 on hostb has died"]));
    assert_eq!(value["results"].as_array().unwrap().len(), 1);
    assert!(value.get("average_bus_bandwidth").is_none());
    let run = read_bytes(&[("bench.log", printed.text.as_bytes())]).unwrap();
    assert_eq!((run.tables[0].rows.len(), run.tables[0].finished), (1, false));
}
