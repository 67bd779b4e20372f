//! The results of many nodes as Slurm gathers them.

use crate::support::command::BUSBW;
use crate::support::lab::SlurmLab;
use crate::support::process::run;
use crate::support::skip::{needed, root_folder};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// For three rounds of jobs on a machine that has better to do.
const PATIENCE: Duration = Duration::from_secs(480);

/// examples/slurm on a cluster of four nodes: three rounds, six pairs, each once, and the answer at the end.
#[test]
fn slurm_measures_every_pair_once_and_explains() {
    let lab = needed!(SlurmLab::up(4));
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(root_folder().join("examples/slurm/doctor-pairs"));
    let programs = Path::new(BUSBW).parent().expect("a folder").to_path_buf();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(programs).chain(std::env::split_paths(&path)));
    command.env("PATH", path.expect("a path of folders"));
    command.env("BENCH", "busbw bench all_reduce -b 64K -e 256K -f 2 -n 2 -w 1").env("RANKS", "1");
    command.args(["-p", "gpu", "-r", "3", "-w"]).arg(folder.path());
    let ended = run(lab.with(command), PATIENCE);
    assert_eq!(ended.status.code(), Some(0), "{}{}", ended.stdout, ended.stderr);
    let results = fs::read_dir(folder.path().join("results")).expect("results").flatten();
    let mut pairs: Vec<Vec<String>> = results
        .filter_map(|file| Some(file.file_name().to_str()?.strip_prefix("pair-")?.strip_suffix(".json")?.to_owned()))
        .map(|pair| pair.split('-').map(str::to_owned).collect())
        .collect();
    pairs.iter_mut().for_each(|pair| pair.sort());
    pairs.sort();
    let node = |number: usize| format!("node{number}");
    let wanted = (1..=4).flat_map(|a| (a + 1..=4).map(move |b| vec![node(a), node(b)]));
    assert_eq!(pairs, wanted.collect::<Vec<_>>(), "{}{}", ended.stdout, ended.stderr);
    let words = ended.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("6 measured, of 4 nodes"), "{}", ended.stdout);
    assert!(folder.path().join("report.html").is_file());
}
