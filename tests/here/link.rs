//! `busbw link` between lab hosts and in the RDMA guest: what it measures, and whom it names.

use crate::support::command::BUSBW;
use crate::support::process::{LIMIT, run};
use serde_json::Value;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A measurement has the machine to itself, as far as these tests go: an emulated guest beside it takes a core.
pub fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

#[test]
fn two_local_ranks_try_it_out() {
    let _turn = alone();
    let ended = run(
        Command::new(BUSBW).args([
            "link",
            "--np",
            "2",
            "--tcp",
            "--json",
            "--seconds",
            "0.05",
            "--size",
            "4K,1M",
            "--both-ways",
        ]),
        LIMIT,
    );
    let answer = ended.json();
    assert_eq!(answer["schema"], "busbw.link/1");
    let links = answer["links"].as_array().unwrap();
    assert_eq!(
        links.iter().map(|link| (link["from"].as_u64().unwrap(), link["to"].as_u64().unwrap())).collect::<Vec<_>>(),
        [(0, 1), (1, 0)]
    );
    for link in links {
        let counts = ["flows", "sizes"].map(|table| link[table].as_array().unwrap().len());
        assert_eq!(counts, [5, 2]);
        for figure in ["gbit_s", "gbit_s_both_ways", "latency_median_us", "latency_p99_us"] {
            assert!(link[figure].as_f64().is_some_and(|figure| figure > 0.0), "{figure}: {link}");
        }
    }
}
