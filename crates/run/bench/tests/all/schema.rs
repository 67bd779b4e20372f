//! The JSON of `-J` follows its schema, and says what the table says.

use crate::sweeps::table;
use crate::threads::{Fault, Job};
use busbw_bench::number::cell;
use busbw_ingest::read_bytes;
use busbw_model::{Check, Collective};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// What is wrong with a value, by the keywords that the schema uses; any other keyword is an error.
fn faults(schema: &Value, value: &Value, root: &Value, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut fault = |text: String| found.push(format!("{at}: {text}"));
    for (keyword, rule) in schema.as_object().unwrap() {
        match keyword.as_str() {
            "$schema" | "$id" | "title" | "description" | "$defs" => {}
            "$ref" => {
                let target = root.pointer(rule.as_str().unwrap().trim_start_matches('#')).unwrap();
                faults(target, value, root, at).into_iter().for_each(&mut fault);
            }
            "const" if rule != value => fault(format!("{value} is not {rule}")),
            "enum" if !rule.as_array().unwrap().contains(value) => fault(format!("{value} is none of {rule}")),
            "const" | "enum" => {}
            "type" => {
                let types = rule.as_array().cloned().unwrap_or_else(|| vec![rule.clone()]);
                let is = |name: &Value| match name.as_str().unwrap() {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "number" => value.is_number(),
                    "integer" => value.is_i64() || value.is_u64(),
                    "null" => value.is_null(),
                    other => panic!("type {other}"),
                };
                if !types.iter().any(is) {
                    fault(format!("{value} is no {rule}"));
                }
            }
            "minimum" => {
                if value.as_f64().is_some_and(|number| number < rule.as_f64().unwrap()) {
                    fault(format!("{value} is below {rule}"));
                }
            }
            "pattern" => {
                if value.as_str().is_some_and(|text| !matches(rule.as_str().unwrap(), text)) {
                    fault(format!("{value} does not match {rule}"));
                }
            }
            "required" => {
                for key in rule.as_array().unwrap() {
                    if value.is_object() && value.get(key.as_str().unwrap()).is_none() {
                        fault(format!("{key} is missing"));
                    }
                }
            }
            "properties" => {
                for (key, rule) in rule.as_object().unwrap() {
                    if let Some(member) = value.get(key) {
                        faults(rule, member, root, &format!("{at}.{key}")).into_iter().for_each(&mut fault);
                    }
                }
            }
            "additionalProperties" => {
                assert_eq!(rule, &json!(false));
                for key in value.as_object().into_iter().flat_map(|members| members.keys()) {
                    if schema["properties"].get(key).is_none() {
                        fault(format!("{key} is not described"));
                    }
                }
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    faults(rule, item, root, &format!("{at}[{index}]")).into_iter().for_each(&mut fault);
                }
            }
            "anyOf" => {
                if rule.as_array().unwrap().iter().all(|one| !faults(one, value, root, at).is_empty()) {
                    fault(format!("{value} is none of {rule}"));
                }
            }
            other => panic!("this test does not know the keyword {other}"),
        }
    }
    found
}

/// The few patterns of the schema.
fn matches(pattern: &str, text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match pattern {
        "^(nan|-?inf)$" => ["nan", "inf", "-inf"].contains(&text),
        "^(NCCL_|BUSBW_|OMPI_|SLURM_|PMI)" => {
            ["NCCL_", "BUSBW_", "OMPI_", "SLURM_", "PMI"].iter().any(|prefix| text.starts_with(prefix))
        }
        "^ *-?[0-9]+$" => digits(text.trim_start_matches(' ').trim_start_matches('-')),
        "^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}$" => {
            let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
            shape == "0000-00-00 00:00:00"
        }
        other => panic!("this test does not know the pattern {other}"),
    }
}

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

fn check(value: &Value) -> Vec<String> {
    let schema = schema();
    faults(&schema, value, &schema, "file")
}

/// A folder that goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("busbw-bench-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Scratch(folder)
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_str(&std::fs::read_to_string(self.0.join(name)).unwrap()).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn every_kind_of_run_follows_the_schema() {
    let scratch = Scratch::new("schema");
    let out = scratch.0.join("out.json");
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
        let value = scratch.json("out.json");
        assert_eq!(check(&value), [""; 0], "{flags}");
        assert_eq!(value["env"], json!(["NCCL_DEBUG=INFO"]));
        assert_eq!(value.get("repetitions").is_some(), flags.contains("--repeat"));
    }
}

#[test]
fn the_check_of_the_schema_finds_faults() {
    let scratch = Scratch::new("faults");
    let out = scratch.0.join("out.json");
    let printed = Job::new(Collective::AllReduce, 2, &format!("-b 1K -e 1K -n 2 -J {}", out.display())).run();
    assert!(printed.outcome().ok);
    let good = scratch.json("out.json");
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
    let scratch = Scratch::new("same");
    let out = scratch.0.join("out.json");
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
    let scratch = Scratch::new("load");
    let out = scratch.0.join("out.json");
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
    let scratch = Scratch::new("kept");
    let out = scratch.0.join("out.json");
    std::fs::write(&out, "mine").unwrap();
    for name in ["out.json.0", "out.json.1"] {
        let printed = Job::new(Collective::AllReduce, 1, &format!("-b 1K -e 1K -n 1 -J {}", out.display())).run();
        assert!(printed.text.starts_with(&format!("# Writing JSON output to {}\n", scratch.0.join(name).display())));
        assert_eq!(check(&scratch.json(name)), [""; 0]);
    }
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "mine");
}

#[test]
fn a_run_that_fails_leaves_its_rows_and_the_reason() {
    let scratch = Scratch::new("failed");
    let out = scratch.0.join("out.json");
    let job = Job::new(Collective::AllReduce, 2, &format!("-b 1K -e 4K -f 2 -n 1 -w 0 -J {}", out.display()));
    let printed = job.fault(Fault::Fail { rank: 0, operation: 9 }).run();
    assert!(printed.outcomes.iter().all(Result::is_err));
    let value = scratch.json("out.json");
    assert_eq!(check(&value), [""; 0]);
    assert_eq!(value["errors"], json!(["rank 1 on hostb has died"]));
    assert_eq!(value["results"].as_array().unwrap().len(), 1);
    assert!(value.get("average_bus_bandwidth").is_none());
    let run = read_bytes(&[("bench.log", printed.text.as_bytes())]).unwrap();
    assert_eq!((run.tables[0].rows.len(), run.tables[0].finished), (1, false));
}
