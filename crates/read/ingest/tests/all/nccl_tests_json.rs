//! The JSON of nccl-tests. The inputs are written as `src/util.cu` of 2.17.3 (version 1) and 2.19.6 (version 3) write
//! them; no recorded sample is at hand.

use busbw_ingest::nccl_tests_json::{looks_like, read};
use busbw_model::{Check, Collective, Place};
use proptest::prelude::*;

fn data(name: &str) -> String {
    let path = format!("{}/tests/data/nccl_tests/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn version_1_with_misspelt_keys_and_a_device_per_process() {
    let text = data("version-1.json");
    assert!(looks_like(&text));
    let table = read(&text, 3).expect("valid");
    assert_eq!(table.place, Place { input: 3, line: 0 });
    assert_eq!((table.collective, table.nranks), (Some(Collective::AllToAll), Some(8)));
    assert_eq!((table.devices.len(), &*table.devices[1].host, table.devices[1].rank), (2, "n1", 4));
    assert_eq!(table.rows.len(), 3);
    assert_eq!((table.rows[2].root, table.rows[2].redop), (None, None));
    let checks: Vec<_> = table.rows[2].halves().map(|m| m.check).collect();
    assert_eq!(checks, [Check::Wrong(0), Check::NotDone]);
    let (printed, mean) = (table.printed_avg_busbw.expect("printed"), table.mean_busbw().expect("computed"));
    assert!((printed.0 - mean.0).abs() < 1e-5, "{printed} {mean}");
    assert_eq!(table.out_of_bounds.as_ref().map(|o| (o.count, o.ok)), Some((0, true)));
    let settings = &table.settings;
    assert_eq!((settings.program.as_deref(), settings.nccl_version.as_deref()), (Some("alltoall"), Some("2.28.3")));
    assert_eq!((settings.gpus_per_thread, settings.step_factor, settings.step_bytes), (Some(4), Some(1024), None));
    assert!(table.finished);
    assert!(!format!("{table:?}").contains("SECRET"));
}

#[test]
fn version_3_with_cpu_time_iterations_and_nan() {
    let table = read(&data("version-3.json"), 0).expect("valid");
    assert_eq!((table.collective, table.nranks), (Some(Collective::AllReduce), Some(2)));
    let first = &table.rows[0];
    assert!(first.in_place.is_none());
    let measure = first.out_of_place.as_ref().expect("out of place");
    assert_eq!((measure.time.0, measure.busbw.0, measure.check), (10.0, 104.8576, Check::Wrong(12)));
    let statistics = measure.iterations.expect("statistics");
    assert_eq!((statistics.min.0, statistics.max.0, statistics.p99.0, statistics.cv_pct), (9.5, 12.25, 12.2, 5.0));
    assert_eq!(table.out_of_bounds.as_ref().map(|o| (o.count, o.ok)), Some((1, false)));
    assert_eq!(table.settings.program.as_deref(), Some("all_reduce"));
    assert_eq!(table.total_wrong(), 12);
}

#[test]
fn infinity_is_mended_and_the_half_left_out() {
    let text = data("version-3.json").replace("\"alg_bw\":209.715200", "\"alg_bw\":inf");
    let table = read(&text, 0).expect("mended");
    assert!(table.rows[1].in_place.is_none() && table.rows[1].out_of_place.is_some());
}

#[test]
fn an_interrupted_file_is_refused_with_advice() {
    let text = data("version-1.json");
    let error = read(&text[..text.len() / 2], 0).expect_err("cut");
    assert!(error.contains("did not finish"), "{error}");
    assert!(read("[1, 2]", 0).expect_err("a list").contains("'results'"));
}

#[test]
fn other_json_is_not_taken() {
    for text in ["", "{}", "[]", "{\"results\":[]}", "plain text about \"bus_bw\" and \"warmup_iters\""] {
        assert!(!looks_like(text), "{text}");
    }
}

#[test]
fn missing_fields_are_left_out() {
    for text in ["{}", "{\"results\":[{}],\"config\":{}}", "{\"results\":[{\"size\":8}],\"config\":{\"devices\":[{}]}}"]
    {
        let table = read(text, 0).expect("an object");
        assert!(table.rows.iter().all(|row| row.halves().next().is_none()), "{text}");
        assert_eq!((table.collective, table.nranks, table.finished), (None, None, false), "{text}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(start in 0..3000usize, length in 0..40usize, insert in "\\PC{0,8}") {
        let text = data("version-1.json");
        let at = |index: usize| text.floor_char_boundary(index.min(text.len()));
        let changed = format!("{}{insert}{}", &text[..at(start)], &text[at(start + length)..]);
        looks_like(&changed);
        let _ = read(&changed, 0);
    }
}
