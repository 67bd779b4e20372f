//! Every collective, datatype, reduction and mode, checked and read back.

use crate::threads::{Fault, Job, Printed};
use busbw_ingest::read_bytes;
use busbw_model::{BenchTable, Check, Collective};

pub fn table(printed: &Printed) -> BenchTable {
    let run = read_bytes(&[("bench.log", printed.text.as_bytes())]).unwrap();
    assert!(run.problems.is_empty(), "{:?}", run.problems);
    assert_eq!(run.tables.len(), 1, "{}", printed.text);
    run.tables.into_iter().next().unwrap()
}

#[test]
fn every_collective_is_right_and_read_back() {
    for collective in Collective::ALL {
        for nranks in [1, 2, 3, 4] {
            if collective == Collective::HyperCube && nranks == 3 {
                continue;
            }
            let printed = Job::new(collective, nranks, "-b 8 -e 16K -f 4 -n 2 -r all").run();
            let outcome = printed.outcome();
            assert!(outcome.ok && outcome.wrong == 0, "{}", printed.text);
            let table = table(&printed);
            assert_eq!(table.collective, Some(collective));
            assert_eq!(table.nranks, Some(nranks as u32));
            let roots = match collective {
                Collective::Broadcast | Collective::Reduce | Collective::Gather | Collective::Scatter => nranks,
                _ => 1,
            };
            assert_eq!(table.rows.len(), 6 * roots, "{}", printed.text);
        }
    }
}

#[test]
fn every_datatype_and_reduction_is_right() {
    for collective in [Collective::AllReduce, Collective::ReduceScatter, Collective::Reduce] {
        for nranks in [2, 3] {
            let printed = Job::new(collective, nranks, "-b 1K -e 64K -f 8 -n 1 -w 0 -o all -d all").run();
            assert!(printed.outcome().ok, "{}", printed.text);
            // Three sizes, five reductions, twelve datatypes; mulsum is left out.
            assert_eq!(table(&printed).rows.len(), 3 * 5 * 12, "{}", printed.text);
        }
    }
}

#[test]
fn collectives_that_mean_nothing_in_place_are_not_checked_there() {
    for collective in [Collective::AllToAll, Collective::AllToAllV, Collective::SendRecv] {
        let table = table(&Job::new(collective, 2, "-b 1K -e 1K -n 1").run());
        let checks: Vec<Check> = table.rows[0].halves().map(|half| half.check).collect();
        assert_eq!(checks, [Check::Wrong(0), Check::NotDone], "{collective}");
    }
    let table = table(&Job::new(Collective::AllReduce, 2, "-b 1K -e 1K -n 1 -c 0").run());
    assert!(table.rows[0].halves().all(|half| half.check == Check::NotDone));
}

#[test]
fn one_corrupt_element_is_one_wrong_element_and_fails_the_run() {
    for (collective, datatype, count) in [
        (Collective::AllReduce, "float", 1024),
        (Collective::AllReduce, "int8", 4096),
        (Collective::AllGather, "double", 256),
        (Collective::Broadcast, "half", 2048),
        (Collective::AllToAll, "bfloat16", 1024),
    ] {
        let flags = format!("-b 2K -e 8K -f 2 -n 1 -d {datatype}");
        let printed = Job::new(collective, 2, &flags).fault(Fault::Corrupt { rank: 1, count }).run();
        let outcome = printed.outcome();
        let halves = if collective == Collective::AllToAll { 1 } else { 2 };
        assert_eq!((outcome.ok, outcome.wrong, outcome.failed_checks), (false, halves, halves), "{}", printed.text);
        let table = table(&printed);
        assert_eq!(table.total_wrong(), halves);
        assert_eq!(table.out_of_bounds.map(|found| (found.count, found.ok)), Some((halves, false)));
    }
}

#[test]
fn every_mode_of_timing_runs() {
    for flags in [
        "-z 1",
        "-z 2",
        "-z 3",
        "-z 3 -m 3",
        "-z 1 -m 2",
        "-m 4",
        "-a 0",
        "-a 2",
        "-a 3",
        "-C 1",
        "-u 3",
        "-w 3",
        "-N 2",
        "-c 3",
        "-S 1",
        "-I 1",
        "-I 1 -K 2",
        "-I 1 -z 3",
        "-I 1 -m 2 -S 1",
        "-M 1",
        "-p 1 -y 1",
        "-i 1K",
    ] {
        let flags = format!("-b 1K -e 3K -f 2 -n 4 {flags}");
        let printed = Job::new(Collective::AllReduce, 2, &flags).run();
        assert!(printed.outcome().ok, "{flags}:\n{}", printed.text);
        let table = table(&printed);
        let cycles = if flags.contains("-N 2") { 2 } else { 1 };
        assert_eq!(table.rows.len(), 2 * cycles, "{flags}:\n{}", printed.text);
        for half in table.rows.iter().flat_map(|row| row.halves()) {
            assert_eq!(half.iterations.is_some(), flags.contains("-I 1"), "{flags}");
        }
        let settings = &table.settings;
        assert_eq!((settings.iters, settings.min_bytes.map(|b| b.0)), (Some(4), Some(1024)));
    }
}

#[test]
fn groups_test_side_by_side() {
    let printed = Job::new(Collective::AllReduce, 4, "-b 1K -e 1K -n 1").env("NCCL_TESTS_SPLIT", "MOD 2").run();
    assert!(printed.outcome().ok);
    let table = table(&printed);
    assert_eq!(table.devices.iter().map(|device| device.group).collect::<Vec<_>>(), [0, 1, 0, 1].map(Some));
    let half = table.rows[0].out_of_place.as_ref().unwrap();
    assert!((half.busbw.0 - half.algbw.0).abs() < 0.011, "two ranks have the factor 1");
}

#[test]
fn the_least_bandwidth_decides() {
    let run = |least| Job::new(Collective::AllReduce, 2, "-b 1K -e 1K -n 1").env("NCCL_TESTS_MIN_BW", least).run();
    let (low, high) = (run("0.0000001"), run("1000000"));
    assert!(low.outcome().ok && low.text.contains(" OK\n#\n# Collective test concluded"), "{}", low.text);
    assert!(!high.outcome().ok && high.text.contains(" FAILED\n#\n# Collective test concluded"), "{}", high.text);
}

#[test]
fn all_to_all_v_follows_its_variables() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "0 160\n80 0\n").unwrap();
    let printed = Job::new(Collective::AllToAllV, 2, "-b 1K -e 1K -n 1")
        .env("NCCL_TESTS_ALLTOALLV_MATRIX_FILE", file.path().to_str().unwrap())
        .env("NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY", "1")
        .run();
    assert!(printed.outcome().ok, "{}", printed.text);
    assert!(printed.text.contains("mode=matrix nranks=2 matrix_dim=2"), "{}", printed.text);
    assert!(printed.text.contains("#   rank=0 send_bytes=160 recv_bytes=80 "), "{}", printed.text);
    let table = table(&printed);
    assert_eq!((table.rows[0].size.0, table.rows[0].count), (160, Some(0)));
}

#[test]
fn a_load_is_checked_and_held_against_an_even_exchange() {
    for datatype in ["float", "int8", "double"] {
        let printed =
            Job::new(Collective::AllToAllV, 4, &format!("-b 4K -e 16K -f 2 -n 2 --load W1 -d {datatype}")).run();
        let outcome = printed.outcome();
        assert!(outcome.ok && outcome.wrong == 0, "{}", printed.text);
        assert!(printed.text.contains("# Skew rank 0: sends 3072 bytes, receives 39936 bytes"), "{}", printed.text);
        let table = table(&printed);
        // A size is what a rank sends in the mean, whatever the busiest receives.
        assert_eq!(table.rows.iter().map(|row| row.size.0).collect::<Vec<_>>(), [4 << 10, 8 << 10, 16 << 10]);
        for row in &table.rows {
            let skew = row.skew.as_ref().unwrap();
            assert_eq!((skew.load.as_str(), skew.rank.rank, skew.rank.times_even), ("W1", 0, 3.25));
            assert_eq!((skew.rank.host.as_str(), &skew.host), ("hosta", &None));
            assert!((skew.bound.0 / skew.even.0 / 3.25 - 1.0).abs() < 0.01, "{skew:?}");
        }
    }
}

#[test]
fn a_wrong_element_of_a_load_fails_the_run() {
    let job = Job::new(Collective::AllToAllV, 2, "-b 2K -e 2K -n 1 --load W5");
    let printed = job.fault(Fault::Corrupt { rank: 1, count: 256 }).run();
    // The even exchange is checked as well.
    assert_eq!((printed.outcome().ok, printed.outcome().failed_checks), (false, 2), "{}", printed.text);
}

fn errors(printed: &Printed) -> Vec<String> {
    printed.outcomes.iter().map(|outcome| outcome.as_ref().unwrap_err().to_string()).collect()
}

#[test]
fn what_is_no_load_is_refused_by_every_rank() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "1 2 3\n").unwrap();
    for (load, says) in [
        (file.path().to_str().unwrap(), "3 figures are no load of 2 ranks; give one for what each rank receives"),
        ("W8", "no shape (W0 to W7) and no file that can be read"),
    ] {
        let printed = Job::new(Collective::AllToAllV, 2, &format!("-b 1K -e 1K -n 1 --load {load}")).run();
        assert!(errors(&printed).iter().all(|error| error.contains(says)), "{:?}", errors(&printed));
    }
}

/// The busiest rank of this load needs 3.25 times the size.
#[test]
fn a_sweep_of_a_load_ends_where_memory_does() {
    let mut job = Job::new(Collective::AllToAllV, 4, "-b 1K -e 4M -f 2 -n 1 --load W1");
    job.available = 1 << 20;
    let table = table(&job.run());
    // As below, 320 KiB are left; 98 KiB of them for each size.
    assert_eq!(table.rows.last().map(|row| row.size.0), Some(64 << 10));
}

#[test]
fn a_sweep_ends_where_memory_does() {
    let mut job = Job::new(Collective::AllReduce, 2, "-b 1K -e 4M -f 2 -n 1");
    job.available = 1 << 20;
    let table = table(&job.run());
    // A sixteenth is left to others, and a third of the rest is 320 KiB.
    assert_eq!(table.rows.last().map(|row| row.size.0), Some(256 << 10));
    assert_eq!(table.settings.max_bytes.map(|bytes| bytes.0), Some(327_680));
}

/// Buffers are as large as memory allows; a matrix that needs more must not reach beyond them.
#[test]
fn a_matrix_that_memory_does_not_hold_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "0 1048576\n1048576 0\n").unwrap();
    let mut job = Job::new(Collective::AllToAllV, 2, "-b 2M -e 2M -n 1")
        .env("NCCL_TESTS_ALLTOALLV_MATRIX_FILE", file.path().to_str().unwrap());
    job.available = 1 << 20;
    let printed = job.run();
    let says = "moves 1048576 bytes, and its memory allows buffers of 327680";
    assert!(errors(&printed).iter().all(|error| error.contains(says)), "{:?}", errors(&printed));
}

#[test]
fn what_cannot_run_is_refused_by_every_rank() {
    for (collective, nranks, flags, says) in [
        (Collective::HyperCube, 3, "-b 1K -e 1K", "power of two, not 3"),
        (Collective::Broadcast, 2, "-r 2", "-r,--root 2: ranks are 0 to 1"),
        (Collective::AllReduce, 2, "-o mulsum", "the backend threads does not run it"),
        (Collective::AllReduce, 2, "-b 1M -e 1K", "-b,--minbytes"),
        (Collective::AllReduce, 1, "-J /no/such/folder/a.json -b 1K -e 1K", "/no/such/folder/a.json"),
    ] {
        let printed = Job::new(collective, nranks, flags).run();
        let errors = errors(&printed);
        assert!(errors.iter().all(|error| error.contains(says) && !error.contains('\n')), "{errors:?}");
        assert_eq!(printed.text, "");
    }
}

#[test]
fn a_rank_that_cannot_go_on_is_named() {
    let job = Job::new(Collective::AllReduce, 3, "-b 1K -e 1K -n 1");
    let printed = job.run_with(|rank, flags| {
        if rank == 2 {
            flags.per_iter_skip = 1;
        }
    });
    let errors = errors(&printed);
    assert!(errors[2].contains("-K,--per_iter_skip"), "{}", errors[2]);
    assert!(errors[..2].iter().all(|error| error.starts_with("rank 2 cannot run this")), "{errors:?}");
}

#[test]
fn ranks_that_were_started_differently_are_named() {
    let job = Job::new(Collective::AllReduce, 3, "-b 1K -e 1K -n 1");
    let printed = job.run_with(|rank, flags| flags.iters += u32::from(rank == 1));
    let errors = errors(&printed);
    assert!(
        errors[0].starts_with("rank 1 on hosta runs 'all_reduce -t 1") && errors[0].contains("-n 2"),
        "{}",
        errors[0]
    );
    assert!(errors[1..].iter().all(|error| error.starts_with("rank 1 and rank 0 run different")), "{errors:?}");
}
