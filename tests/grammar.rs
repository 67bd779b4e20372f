//! One grammar, as it is typed: how answers go out, hosts and collectives as flags and arguments, parts of names.

use crate::support::command::typed;
use serde_json::Value;
use std::fs;
use tempfile::tempdir;

const RUN: &str = "tests/data/runs/h20-2x8-tcp/run.log";
const IB: &str = "tests/data/runs/h20-2x8-ib/run.log";
const CLUSTER: &str = "examples/clusters/h20x8.toml";

/// Commands that answer at once, whatever the machine is.
fn commands() -> Vec<String> {
    vec![
        format!("explain {RUN}"),
        format!("compare {IB} {RUN}"),
        format!("predict {CLUSTER}"),
        format!("simulate {CLUSTER} --seeds 10"),
        "check".into(),
        "rules list".into(),
        "monitor --once -i 50ms".into(),
        "bench all_reduce -b 8 -e 8 -n 1 -w 0 -c 0".into(),
    ]
}

#[test]
fn json_is_printed_or_written_beside_the_answer() {
    let folder = tempdir().expect("a folder");
    for (at, command) in commands().into_iter().enumerate() {
        let printed = typed(&format!("{command} --json"));
        assert!(serde_json::from_str::<Value>(&printed.stdout).is_ok(), "{command}: {printed:?}");
        let file = folder.path().join(format!("{at}.json"));
        let beside = typed(&format!("{command} --json={}", file.display()));
        assert_eq!(beside.status.code(), printed.status.code(), "{command}: {beside:?}");
        assert!(serde_json::from_str::<Value>(&beside.stdout).is_err() && beside.stdout.len() > 100, "{command}");
        let written = fs::read(&file).unwrap_or_else(|error| panic!("{command}: {error}"));
        assert!(serde_json::from_slice::<Value>(&written).is_ok(), "{command}: {written:?}");
    }
}

/// What stands behind `--json` is an argument, but for a file of bench's; a file that would be written there is not taken for one.
#[test]
fn json_takes_no_argument_for_its_file() {
    typed("bench --json all_reduce -b 8 -e 8 -n 1 -w 0 -c 0").json();
    for line in [format!("explain --json no-such.json {RUN}"), "accelerate --json no-such.json".into()] {
        typed(&line).refused("to write JSON to it: --json=no-such.json");
    }
}

#[test]
fn the_ending_of_a_file_says_its_format() {
    let folder = tempdir().expect("a folder");
    for (file, begins) in
        [("a.json", "{"), ("a.html", "<!"), ("a.HTML", "<!"), ("a.txt", "DEGRADED"), ("a", "DEGRADED")]
    {
        let path = folder.path().join(file);
        typed(&format!("explain {RUN} -o {}", path.display()));
        let written = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(written.to_lowercase().starts_with(&begins.to_lowercase()), "{file}: {}", &written[..80]);
    }
    let path = folder.path().join("b.json");
    typed(&format!("explain {RUN} --format html -o {}", path.display()));
    assert!(fs::read_to_string(path).expect("a file").starts_with("<!"));
}

/// As `-o` of the other commands; bench's own is nccl-tests' operator.
#[test]
fn bench_writes_its_answer_to_a_file() {
    let folder = tempdir().expect("a folder");
    for (file, format, begins) in [
        ("a.txt", "", "# nccl-tests"),
        ("a.json", "", "{"),
        ("b.json", "--format text", "# nccl-tests"),
        ("c", "--format json", "{"),
    ] {
        let path = folder.path().join(file);
        let output = typed(&format!("bench all_reduce -b 8 -e 8 -n 1 -w 0 {format} --output {}", path.display()));
        assert!(output.status.success() && output.stdout.is_empty(), "{file}: {output:?}");
        let written = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(written.starts_with(begins) && written.ends_with('\n'), "{file}: {written}");
    }
    let nowhere = typed("bench all_reduce -b 8 -e 8 -n 1 -w 0 --output /no/such/folder/a");
    assert!(!nowhere.status.success() && nowhere.stderr.contains("/no/such/folder/a"), "{nowhere:?}");
}

/// Whoever takes --color and --width prints in colours and columns.
#[test]
fn no_look_is_without_effect() {
    for command in commands().iter().filter(|command| !command.starts_with(['b', 'm', 'r'])) {
        let [plain, coloured] = ["never", "always"].map(|when| typed(&format!("{command} --color {when}")).stdout);
        assert!(!plain.contains('\x1b') && coloured.contains('\x1b'), "{command} --color");
        let [narrow, wide] = ["60", "160"].map(|columns| typed(&format!("{command} --width {columns}")).stdout);
        assert_ne!(narrow, wide, "{command} --width");
    }
}

#[test]
fn a_collective_is_an_argument_or_a_flag() {
    for (argument, flag) in [
        ("predict alltoall CLUSTER --json", "predict CLUSTER --collective alltoall --json"),
        ("compare all_reduce IB RUN --json", "compare IB RUN --collective all_reduce --json"),
        ("tune all_gather sockets --dry-run -- true", "tune sockets --collective all_gather --dry-run -- true"),
    ] {
        let [argument, flag] =
            [argument, flag].map(|line| typed(&line.replace("CLUSTER", CLUSTER).replace("IB", IB).replace("RUN", RUN)));
        assert_eq!(argument.printed(), flag.printed());
    }
    for (line, says) in [
        ("bench all_confuse", "all_confuse: no collective; choose one of all_reduce"),
        ("predict all_reduce", "no cluster to predict for"),
        ("compare all_reduce RUN", "nothing to be compared with"),
    ] {
        typed(&line.replace("RUN", RUN)).refused(says);
    }
    let table = typed("bench --collective all_gather -b 8 -e 8 -n 1 -w 0");
    assert!(table.stdout.contains("all_gather_perf"), "{table:?}");
}

#[test]
fn a_part_of_a_code_lists_those_that_have_it() {
    for (part, lines) in
        [("gdr", "# gdr.disabled: "), ("gdr.disabled", "# gdr.disabled: "), ("limits.", "limits.memlock  ")]
    {
        let told = typed(&format!("explain --code {part}"));
        assert!(told.printed().starts_with(lines), "{part}: {told:?}");
    }
    assert_eq!(typed("explain --code limits.").stdout.lines().count(), 3);
    typed("explain --code nothing.like").refused("choose one of net.socket-fallback");
}

#[test]
fn an_error_names_its_cause() {
    for (line, says) in [
        ("monitor --devices nope --once", "--devices nope: no such RDMA device or network interface; here are "),
        ("monitor --devices lo,nope* --once", "--devices nope*: no such"),
        ("monitor --replay nope", "nope: no such file; check the path"),
        ("check nofile.json", "nofile.json: no such file; check the path"),
        ("rules check nope", "nope: no such file; check the path"),
        ("check h1 nofile.json", "nofile.json is a file and h1 is none"),
        ("check h1 --hosts h2", "cannot be used with"),
        ("link h1 --hosts h2", "cannot be used with"),
        ("bench all_reduce h1 --hosts h2", "cannot be used with"),
        ("check -T soon", "'soon' is not a time; write seconds, or a number with ms, s, min, h or d"),
        ("link a b --seconds 2h", "give a time from 10ms to 3600s"),
        ("tests/data/runs/h20-2x8-tcp/run.log", "to diagnose it: busbw explain tests/data/runs/h20-2x8-tcp/run.log"),
        ("predict --width wide c.toml", "give a number of columns, as 80"),
        ("predict examples/clusters/h20x8.toml -o nope/a.html", "nope/a.html: there is no such folder; choose a place"),
        ("monitor --quiet --json", "--quiet prints no samples and --json prints them"),
    ] {
        typed(line).refused(says);
    }
}
