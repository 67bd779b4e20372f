//! `busbw bench --backend nccl` over fakes of NCCL, the CUDA driver and NVRTC: the whole way from the flags to the table, the
//! kernels of checks included. What only a GPU can show is in docs/gpu.md.

use crate::here::bench_faults::{as_rank, free_address};
use crate::support::command::BUSBW;
use crate::support::fakes::{self, Fakes};
use crate::support::lab::mpirun_openmpi;
use crate::support::process::{Ended, LIMIT, run};
use crate::support::skip::{self, needed};
use crate::support::table::{ranks, rows};
use std::process::Command;

/// The exit status of what a machine cannot do.
const NOT_APPLICABLE: i32 = 77;
const QUICK: &str = "-n 2 -w 1";

/// `busbw bench` with these words over these fakes, on a machine with `gpus` GPUs.
fn bench(fakes: &Fakes, gpus: usize, words: &str) -> Command {
    let mut command = Command::new(BUSBW);
    command.arg("bench").args(words.split_whitespace()).args(["--backend", "nccl"]);
    fakes.use_in(&mut command, gpus);
    command
}

fn ended(fakes: &Fakes, gpus: usize, words: &str) -> Ended {
    run(bench(fakes, gpus, words), LIMIT)
}

/// The table of a run that ended well, with nothing wrong.
fn table(ended: &Ended) -> &str {
    assert!(ended.status.success(), "{}{}", ended.stdout, ended.stderr);
    let has_rows = ended.stdout.lines().any(|line| !line.is_empty() && !line.starts_with('#'));
    assert!(has_rows, "{}", ended.stdout);
    // In place, some collectives have nothing to check (N/A), and hypercube has no reduction: such rows are passed over.
    assert!(rows(&ended.stdout).iter().all(|row| row.out_of_place.wrong == 0.0), "{}", ended.stdout);
    assert!(ended.stdout.contains("Out of bounds values : 0 OK"), "{}", ended.stdout);
    &ended.stdout
}

/// The one line of a run that is refused before it starts.
fn refusal(ended: &Ended) -> &str {
    refused(ended, 2)
}

/// As [`refusal`], with another exit status.
fn refused(ended: &Ended, status: i32) -> &str {
    assert_eq!(ended.status.code(), Some(status), "{ended:?}");
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{}", ended.stderr);
    lines[0]
}

#[test]
fn ranks_are_threads_crews_or_processes() {
    let fakes = needed!(Fakes::newest());
    for (gpus, count, how) in
        [(1, 1, ""), (2, 2, "-t 2"), (2, 2, "-g 2"), (4, 4, "-t 2 -g 2 -p 1"), (2, 2, "--np 2"), (4, 4, "--np 2 -g 2")]
    {
        let ended = ended(&fakes, gpus, &format!("all_reduce -b 8 -e 8K -f 32 {QUICK} {how}"));
        let text = table(&ended);
        let lines = ranks(text, count).unwrap_or_else(|| panic!("{count} ranks: {text}"));
        assert_eq!(lines.iter().map(|line| line.rank).collect::<Vec<_>>(), (0..count).collect::<Vec<_>>());
        for gpu in 0..gpus {
            assert!(text.contains(&format!("device {gpu:2} [0000:{:02x}:00] Fake GPU", 0x1b + gpu)), "{text}");
        }
        let library = fakes.file("libnccl.so.2").display().to_string();
        assert!(text.contains(&format!("# nccl version 2.30.7 ({library})")), "{text}");
        assert!(text.contains("checked on the GPU"), "{text}");
    }
}

#[test]
fn every_collective_runs() {
    let fakes = needed!(Fakes::newest());
    for collective in
        "all_reduce all_gather reduce_scatter broadcast reduce alltoall alltoallv gather scatter sendrecv hypercube"
            .split(' ')
    {
        table(&ended(&fakes, 4, &format!("{collective} -t 2 -g 2 -b 64 -e 4K -f 64 -r all {QUICK}")));
    }
}

/// Before 2.28, all-to-all, gather and scatter are sends and receives.
#[test]
fn an_older_nccl_runs_the_same_collectives() {
    let fakes = needed!(Fakes::build("21806", &[]));
    for collective in ["alltoall", "gather", "scatter"] {
        let ended = ended(&fakes, 3, &format!("{collective} -g 3 -b 64 -e 4K -f 64 -r all {QUICK}"));
        assert!(table(&ended).contains("# nccl version 2.18.6"), "{}", ended.stdout);
    }
}

#[test]
fn every_datatype_is_reduced_by_every_operation() {
    let fakes = needed!(Fakes::newest());
    let ended = ended(&fakes, 3, &format!("all_reduce -t 3 -d all -o all -b 4K -e 4K {QUICK}"));
    assert_eq!(rows(table(&ended)).len(), 12 * 6);
}

#[test]
fn all_ways_of_running_give_right_results() {
    let fakes = needed!(Fakes::newest());
    for how in [
        "-G 2",
        "-z 1",
        "-z 2",
        "-z 3 -I 1",
        "-I 1",
        "-R 1",
        "-R 2",
        "-m 3",
        "-m 3 -g 2 -G 1",
        "-C 1",
        "-M 1",
        "-c 0",
        "-y 1",
        "-u 3",
        "-x 2",
        "--algo Ring --threads 2 --sockets 2",
        "-g 2 -z 1",
        "-g 2 -I 1",
    ] {
        let ranks = if how.contains("-g") { "" } else { "-t 2" };
        let ended = ended(&fakes, 2, &format!("all_reduce {ranks} -b 1K -e 2K -f 2 {QUICK} {how}"));
        assert!(ended.status.success(), "{how}: {}{}", ended.stdout, ended.stderr);
        assert!(ended.stdout.contains("Out of bounds values : 0 OK"), "{how}: {}", ended.stdout);
        assert_eq!(ended.stdout.contains("GPU memory usage"), how == "-M 1", "{}", ended.stdout);
    }
}

/// A graph that was captured and not launched would leave its result out.
#[test]
fn wrong_results_are_counted() {
    let fakes = needed!(Fakes::newest());
    for how in ["-t 2", "--np 2", "-g 2 -G 1"] {
        let ended =
            run(bench(&fakes, 2, &format!("all_reduce -b 4K -e 4K {QUICK} {how}")).env("FAKE_NCCL_FLIP", "1"), LIMIT);
        assert_eq!(ended.status.code(), Some(1), "{how}: {ended:?}");
        let rows = rows(&ended.stdout);
        assert!(rows.iter().all(|row| row.out_of_place.wrong == 1.0 && row.in_place.wrong == 1.0), "{}", ended.stdout);
        assert!(ended.stdout.contains("Out of bounds values : 2 FAILED"), "{}", ended.stdout);
    }
}

#[test]
fn without_nvrtc_the_host_checks() {
    let fakes = needed!(Fakes::newest());
    for (flip, wrong) in [("-1", 0.0), ("0", 1.0)] {
        let ended = run(
            bench(&fakes, 2, &format!("all_gather -t 2 -b 4K -e 4K {QUICK}"))
                .env("FAKE_NVRTC_FAILS", "1")
                .env("FAKE_NCCL_FLIP", flip),
            LIMIT,
        );
        assert!(ended.stdout.contains("checked on the host"), "{}", ended.stdout);
        assert!(ended.stdout.contains("busbw.cu(1): error: the fake compiler refuses"), "{}", ended.stdout);
        assert!(rows(&ended.stdout).iter().all(|row| row.out_of_place.wrong == wrong), "{}", ended.stdout);
    }
}

#[test]
fn what_a_version_lacks_is_refused_with_the_version_that_has_it() {
    let (oldest, too_old) = (needed!(Fakes::build("21806", &[])), needed!(Fakes::build("21706", &[])));
    for (fakes, flags, says) in [
        (&oldest, "-R 1", "-R 1 needs NCCL 2.19.0 or later, and "),
        (&oldest, "-R 2", "-R 2 needs NCCL 2.27.0 or later, and "),
        (&oldest, "-x 1", "-x needs NCCL 2.27.0 or later, and "),
        (&oldest, "-x 2", "-x 2 needs NCCL 2.28.0 or later, and "),
        (&oldest, "-t 2 --share-gpus", "needs NCCL 2.30.0 or later, and "),
        (&too_old, "", "--backend nccl needs NCCL 2.18.0 or later, and "),
    ] {
        for how in ["", "--np 2"] {
            let ended = ended(fakes, 1, &format!("all_reduce {flags} {how}"));
            let line = refusal(&ended);
            assert!(line.contains(says) && line.contains("libnccl.so.2 is 2.1"), "{line}");
        }
    }
    let ended = ended(&oldest, 1, "all_reduce -d f8e4m3");
    assert!(!ended.status.success());
    assert!(ended.stderr.contains("f8e4m3: needs NCCL 2.24.0 or later, this is 2.18.6"), "{}", ended.stderr);
}

/// RCCL and HIP have NCCL's and CUDA's functions under names of their own; no GPU of AMD's was at hand: these are fakes.
#[test]
fn amd_gpus_are_measured_with_rccl() {
    let fakes = needed!(Fakes::of_amd());
    for how in ["all_reduce -t 2 -G 1", "alltoall -g 2", "gather --np 2"] {
        let ended = ended(&fakes, 2, &format!("{how} -b 8 -e 8K -f 32 {QUICK}"));
        let text = table(&ended);
        for gpu in [0, 1] {
            assert!(text.contains(&format!("device {gpu:2} [0000:{:02x}:00] Fake GPU", 0x1b + gpu)), "{text}");
        }
        let library = fakes.file("librccl.so.1").display().to_string();
        assert!(text.contains(&format!("# rccl version 2.21.5 ({library})")), "{text}");
        assert!(text.contains("# hip version 6.2 ("), "{text}");
    }
    let without = ended(&fakes, 0, "all_reduce");
    let line = refused(&without, NOT_APPLICABLE);
    assert!(line.contains("the HIP driver finds no GPU: check rocm-smi and HIP_VISIBLE_DEVICES"), "{line}");
    assert!(!line.contains("nvidia"), "{line}");
}

#[test]
fn a_gpu_that_lacks_a_datatype_is_named() {
    let fakes = needed!(Fakes::newest());
    let ended = run(bench(&fakes, 1, "all_reduce -d f8e5m2").env("FAKE_CAPABILITY", "80"), LIMIT);
    assert!(
        ended.stderr.contains("f8e5m2: needs compute capability 9.0 or later, this GPU has 8.0"),
        "{}",
        ended.stderr
    );
}

#[test]
fn what_is_missing_is_said_once_with_the_remedy() {
    let fakes = needed!(Fakes::newest());
    let without_abort = needed!(Fakes::build(fakes::NEWEST, &["WITHOUT_ABORT"]));
    let text = |fakes: &Fakes, gpus, words: &str| refusal(&ended(fakes, gpus, words)).to_string();
    for how in ["", "--np 2"] {
        let without = ended(&fakes, 0, &format!("all_reduce {how}"));
        let line = refused(&without, NOT_APPLICABLE);
        assert!(line.contains("the CUDA driver finds no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES"), "{line}");
        let line = text(&without_abort, 2, &format!("all_reduce {how}"));
        assert!(line.contains("libnccl.so.2 has no function ncclCommAbort: "), "{line}");
        let line = text(&fakes, 2, &format!("all_reduce {how} --nccl-library /no/such/libnccl.so.2"));
        assert!(line.contains("/no/such/libnccl.so.2 cannot be opened: no libnccl.so.2 is there"), "{line}");
    }
    // A driver that is not one: what the linker says is kept on the line.
    let mut command = bench(&fakes, 1, "all_reduce");
    command.env("CUDA_DRIVER_LIBRARY", skip::root_folder().join("Cargo.toml"));
    let line = refusal(&run(command, LIMIT)).to_string();
    assert!(line.contains("Cargo.toml cannot be opened: ") && line.contains("without --backend nccl"), "{line}");
}

/// Under a launcher, a job without any GPU is not applicable; a host that lacks what the others have is at fault.
#[test]
fn hosts_without_gpus_are_not_applicable_unless_others_have_some() {
    let fakes = needed!(Fakes::newest());
    for (gpus, status) in [(["0", "0"], NOT_APPLICABLE), (["0", "1"], 1), (["1", "0"], 1)] {
        let mut command = needed!(mpirun_openmpi(1));
        fakes.use_in(&mut command, 0);
        command.arg("-x").arg(format!("FAKE_GPUS={}", gpus[0]));
        command.args([BUSBW, "bench", "all_reduce", "--backend", "nccl", "-b", "8", "-e", "8", ":", "-np", "1", "-x"]);
        command.arg(format!("FAKE_GPUS={}", gpus[1]));
        command.args([BUSBW, "bench", "all_reduce", "--backend", "nccl", "-b", "8", "-e", "8"]);
        let ended = run(command, LIMIT);
        assert_eq!(ended.status.code(), Some(status), "{gpus:?}: {ended:?}");
    }
}

/// Started by hand, as on two hosts of which only one has a GPU.
#[test]
fn hosts_that_choose_different_backends_are_named() {
    let (fakes, address) = (needed!(Fakes::newest()), free_address());
    let rank = |rank: usize| {
        let mut command = Command::new(BUSBW);
        command.args(["bench", "all_reduce", "--backend", "auto", "-b", "8", "-e", "8"]);
        fakes.use_in(&mut command, 1 - rank);
        command.env("BUSBW_HOST", format!("host{rank}"));
        as_rank(command, rank, &address)
    };
    let (first, second) = (rank(0), rank(1));
    let second = std::thread::spawn(move || run(second, LIMIT));
    for ended in [run(first, LIMIT), second.join().expect("it ends")] {
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
        let says = "hosts chose different backends: cpu on host1; nccl on host0. Give all the same, with --backend";
        assert!(ended.stderr.contains(says), "{ended:?}");
    }
}

#[test]
fn more_ranks_than_gpus_need_to_be_asked_for() {
    let fakes = needed!(Fakes::newest());
    let line = refusal(&ended(&fakes, 1, "all_reduce -t 2")).to_string();
    assert!(line.contains("-t x -g is 2, and this process sees 1 GPU") && line.contains("--share-gpus"), "{line}");
    let processes = ended(&fakes, 1, "all_reduce --np 2");
    assert!(!processes.status.success());
    let says = "have the same GPU, Fake GPU [0000:1b:00]: start fewer ranks, or give --share-gpus";
    assert!(processes.stderr.contains(says), "{}", processes.stderr);
    // Of the fake, as of NCCL, ranks of one host on one GPU are refused: these are hosts of their own, or allowed.
    for (gpus, how) in [(1, "--np 3"), (2, "--np 4"), (1, "-t 2"), (1, "-g 2"), (1, "--np 2 -t 2")] {
        let ended = ended(&fakes, gpus, &format!("all_reduce --share-gpus {how} -b 1K -e 1K {QUICK}"));
        assert!(table(&ended).contains("ranks share a GPU"), "{}", ended.stdout);
    }
}

/// Rank 1's operation hangs and NCCL tells of an error; the others wait inside NCCL for what never comes.
#[test]
fn an_asynchronous_error_ends_every_rank_with_its_line() {
    let fakes = needed!(Fakes::newest());
    for how in ["--np 3", "-t 3", "--np 2 -G 1"] {
        let ended = run(
            bench(&fakes, 3, &format!("all_reduce -b 1K -e 1K -n 4 {how}"))
                .env("FAKE_NCCL_FAIL_RANK", "1")
                .env("FAKE_NCCL_FAIL_AT", "3"),
            LIMIT,
        );
        assert_eq!(ended.status.code(), Some(1), "{how}: {ended:?}");
        let said: Vec<&str> = ended.stderr.lines().filter(|line| line.contains("busbw: ")).collect();
        let says = "an operation of NCCL: ncclRemoteError (6): the fake network has failed";
        assert!(!said.is_empty() && said.iter().all(|line| line.contains(says)), "{how}: {}", ended.stderr);
        assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    }
}

/// NCCL waits for a rank that it cannot reach for ever; the job does not.
#[test]
fn ranks_that_do_not_connect_end_in_time() {
    let fakes = needed!(Fakes::newest());
    for how in ["--np 2", "-t 2", "-g 2"] {
        let ended = run(
            bench(&fakes, 2, &format!("all_reduce -b 8 -e 8 --stall-timeout 5 {how}")).env("FAKE_NCCL_MUTE", "1"),
            LIMIT,
        );
        assert_eq!(ended.status.code(), Some(1), "{how}: {ended:?}");
        let said: Vec<&str> = ended.stderr.lines().filter(|line| line.contains("busbw: ")).collect();
        // A rank that is late on a busy machine may be blamed for standing still before it has its say.
        let says = ["NCCL has not connected its ranks after", "made no progress for"];
        let told = |line: &&str| says.iter().any(|words| line.contains(words));
        assert!(!said.is_empty() && said.iter().all(told), "{how}: {}", ended.stderr);
    }
}

#[test]
fn the_json_names_the_libraries() {
    let fakes = needed!(Fakes::newest());
    let file = fakes.file("libraries.json");
    let words = format!("all_reduce -b 8 -e 8 {QUICK} -J {}", file.display());
    table(&ended(&fakes, 1, &words));
    let text = std::fs::read_to_string(&file).expect("the JSON is there");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(json["nccl_version"], 23007);
    let library = &json["libraries"][0];
    assert_eq!((library["name"].as_str(), library["version"].as_str()), (Some("nccl"), Some("2.30.7")));
    assert_eq!(library["path"].as_str(), fakes.file("libnccl.so.2").to_str());
}

/// `scripts/gpu-check` over the fakes: as long as it takes, and however much of it there is time for.
fn gpu_check(fakes: &Fakes, gpus: usize, folder: &std::path::Path) -> Command {
    let mut command = Command::new(skip::root_folder().join("scripts/gpu-check"));
    command.args(["--busbw", BUSBW, "--largest", "64K", "--seconds", "60"]);
    // Any file stands for the plugin: the fake NCCL loads none.
    command.arg("--plugin").arg(fakes.file("libnvrtc.so.12"));
    command.arg("--out").arg(folder.join("logs")).arg("--results").arg(folder.join("results"));
    fakes.use_in(&mut command, gpus);
    command
}

fn recorded(folder: &std::path::Path) -> serde_json::Value {
    let mut files = std::fs::read_dir(folder.join("results")).expect("a folder of results").flatten();
    let file = files.next().expect("a result");
    assert!(file.file_name().to_string_lossy().starts_with("gpu-20"), "{file:?}");
    serde_json::from_str(&std::fs::read_to_string(file.path()).expect("a text")).expect("JSON")
}

#[test]
fn gpu_check_records_what_it_finds() {
    needed!(skip::programs(&["python3"]));
    let fakes = needed!(Fakes::newest());
    let folder = tempfile::tempdir().expect("a folder");
    let ended = run(gpu_check(&fakes, 1, folder.path()), LIMIT);
    assert_eq!(ended.status.code(), Some(0), "{}{}", ended.stdout, ended.stderr);
    let result = recorded(folder.path());
    assert_eq!(result["schema"], "busbw.gpu-check/1");
    assert_eq!(result["libraries"][0]["version"], "2.30.7");
    let runs = result["runs"].as_array().expect("runs");
    assert!(runs.iter().all(|run| run["status"] == 0), "{}", ended.stdout);
    let done = format!("{0} of {0} runs did what they should", runs.len());
    assert!(ended.stdout.contains(&done), "{}", ended.stdout);
}

#[test]
fn gpu_check_says_what_failed() {
    needed!(skip::programs(&["python3"]));
    let fakes = needed!(Fakes::newest());
    let folder = tempfile::tempdir().expect("a folder");
    let ended = run(gpu_check(&fakes, 1, folder.path()).env("FAKE_NCCL_FLIP", "0"), LIMIT);
    assert_eq!(ended.status.code(), Some(1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("failed: one rank: # Out of bounds values"), "{}", ended.stdout);
    let ended = run(gpu_check(&fakes, 0, folder.path()), LIMIT);
    assert_eq!(ended.status.code(), Some(2), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("the CUDA driver finds no GPU"), "{}", ended.stderr);
}
