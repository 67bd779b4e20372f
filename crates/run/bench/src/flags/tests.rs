//! Command lines as people write them for nccl-tests.

use super::*;
use busbw_model::Collective;

fn parse(line: &str) -> std::result::Result<Flags, clap::Error> {
    Flags::parse("all_reduce_perf", std::iter::once("all_reduce_perf").chain(line.split_ascii_whitespace()))
}

fn seconds(flags: &Flags) -> [f64; 2] {
    [flags.timeout, flags.stall_timeout].map(|time| time.as_secs_f64())
}

#[test]
fn defaults_are_those_of_the_readme() {
    let flags = Flags::default();
    let numbers = [flags.nthreads, flags.ngpus, flags.stepfactor, flags.iters, flags.warmup_iters, flags.agg_iters];
    assert_eq!(numbers, [1, 1, 1, 20, 1, 1]);
    assert_eq!([flags.min_bytes(), flags.maxbytes.0, flags.stepbytes.0], [32 << 20, 32 << 20, 1 << 20]);
    assert_eq!((flags.run_cycles, flags.check, flags.average, flags.blocking), (1, 1, 1, 0));
    assert_eq!(
        (flags.op, flags.datatype, flags.root),
        (OneOrAll::One(RedOp::Sum), OneOrAll::One(Datatype::Float), Root::One(0))
    );
    assert_eq!((seconds(&flags), flags.backend, flags.repeat), ([0.0, 60.0], None, 1));
    flags.check().unwrap();
}

#[test]
fn every_way_of_getopt_is_read() {
    for line in [
        "-b 8 -e 128M -f 2 -n 5",
        "-b8 -e128M -f2 -n5",
        "--minbytes=8 --maxbytes=128M --stepfactor=2 --iters=5",
        "--minbytes 8 --maxbytes 128M --stepfactor 2 --iters 5",
        "--minb 8 --maxb 128M --stepf 2 --it 5",
        "-n 7 -b 1G -f2 -b 8 -e 0.125G -n 5",
        "-b 8 -e 134217728 -f 0x2 -n 5",
        "-b 8e0 -e 128m -f 2 -n 5 -y 1",
    ] {
        let flags = parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(
            (flags.min_bytes(), flags.maxbytes.0, flags.stepfactor, flags.iters),
            (8, 128 << 20, 2, 5),
            "{line}"
        );
    }
}

#[test]
fn every_flag_is_read() {
    let line = "-t2 -g3 -b8 -e1K -i64 -f1 -o max -d half -r 3 -n4 -w2 -m3 -N2 -a3 -I1 -K1 -p1 -c2 -z3 -C1 -S1 -J o.json -T9 \
                -M1 -u1 -y1 -G0 -R0 -D0 --backend cpu --hosts a:2,b:2 --dry-run --algo ring --repeat 5 --nics \
                --threads 4 --sockets 2 --checksum --stall-timeout 7 --load W1";
    let flags = parse(line).unwrap();
    flags.check().unwrap();
    assert_eq!((flags.nthreads, flags.ngpus, flags.stepbytes.0), (2, 3, 64));
    assert_eq!(
        (flags.op, flags.datatype, flags.root),
        (OneOrAll::One(RedOp::Max), OneOrAll::One(Datatype::Half), Root::One(3))
    );
    assert_eq!((flags.warmup_iters, flags.agg_iters, flags.run_cycles, flags.average), (2, 3, 2, 3));
    assert_eq!((flags.per_iter_timing, flags.per_iter_skip, flags.parallel_init, flags.check), (1, 1, 1, 2));
    assert_eq!((flags.blocking, flags.report_cputime, flags.report_timestamps, flags.memory), (3, 1, 1, 1));
    assert_eq!((seconds(&flags), flags.unalign, flags.repeat), ([9.0, 7.0], 1, 5));
    assert_eq!(seconds(&parse("-T 0x10 --stall-timeout 500ms").unwrap()), [16.0, 0.5]);
    assert_eq!((flags.threads, flags.sockets, flags.nics, flags.dry_run), (Some(4), Some(2), true, true));
    assert_eq!((flags.algo.as_deref(), flags.hosts.as_deref()), (Some("ring"), Some("a:2,b:2")));
    assert!(flags.checksum && !parse("--ch 0").unwrap().checksum);
    assert_eq!([parse("--ch 0").unwrap().check, parse("--check 3").unwrap().check], [0, 3]);
    assert_eq!((parse("--np 4").unwrap().np, flags.load.as_deref()), (Some(4), Some("W1")));
    for line in ["-J o.json", "--output_file o.json", "--json o.json", "--json=o.json"] {
        let flags = parse(line).unwrap();
        assert_eq!((flags.json_file(), flags.prints_json()), (Some("o.json".as_ref()), false), "{line}");
    }
    for (line, is_json) in [
        ("--json", true),
        ("--json -b 8", true),
        ("--json=-", true),
        ("--format json", true),
        ("--output a.JSON", true),
        ("--output a.json --format text", false),
        ("--output a.txt", false),
    ] {
        let flags = parse(line).unwrap();
        assert_eq!((flags.json_file(), flags.prints_json()), (None, is_json), "{line}");
    }
    assert_eq!((parse("-r -1").unwrap().root, parse("-r all").unwrap().root), (Root::All, Root::All));
    assert_eq!((parse("-d all").unwrap().datatype, parse("-o all").unwrap().op), (OneOrAll::All, OneOrAll::All));
}

#[test]
fn a_bad_value_is_named_with_what_is_allowed() {
    for (line, flag, allowed) in [
        ("-b fast", "minbytes", "a size such as"),
        ("--minbytes=-8", "minbytes", "a size such as"),
        ("-n 0", "iters", "1 or more"),
        ("-n many", "iters", "1 or more"),
        ("-a 4", "average", "from 0 to 3"),
        ("-I 2", "per_iter_timing", "0 or 1"),
        ("-z 4", "blocking", "from 0 to 3"),
        ("-o mean", "op", "sum, prod"),
        ("-d floaty", "datatype", "bfloat16"),
        ("-r -2", "root", "a rank, or all"),
        ("--backend mips", "backend", "cpu"),
        ("--np 2 --hosts a", "--np <N>", "cannot be used with"),
    ] {
        let error = parse(line).unwrap_err().to_string();
        assert!(error.contains(flag) && error.contains(allowed), "{line}: {error}");
    }
}

#[test]
fn contradictions_are_named() {
    for (line, says) in [
        ("-b 64M", "-b,--minbytes 67108864: must not be above -e,--maxbytes, which is 33554432"),
        ("-b 0 -e 8 -f 2", "does not grow by a factor"),
        ("-b 1 -e 8 -i 0", "-i,--stepbytes 0"),
        ("-K 1", "-K,--per_iter_skip 1: needs -I 1"),
        ("-I 1 -n 4 -K 4", "at most 3 of 4 iterations"),
        ("-t 60000 -g 60000", "-t,--nthreads 60000: with -g,--ngpus 60000 these are 3600000000 ranks in a process"),
        ("--dry-run", "--dry-run: shows how ranks are started on other hosts"),
        ("-J out.txt", "-J,--output_file out.txt: the name must end in .json"),
        ("-G 1", "-G,--cudagraph 1: is for GPUs and needs --backend nccl"),
        ("-R 2", "needs --backend nccl"),
        ("-D 1", "needs --backend nccl"),
        ("-x 1", "needs --backend nccl"),
        ("--share-gpus", "--share-gpus: is for GPUs and needs --backend nccl"),
        ("--nccl-library /x", "--nccl-library /x: is for GPUs and needs --backend nccl"),
        ("-D 1 --backend nccl", "busbw calls NCCL from the host only"),
        ("-G 1 -z 1 --backend nccl", "-z,--blocking 1: does not go with graphs (-G)"),
        ("-G 1 -I 1 --backend nccl", "-I,--per_iter_timing 1: does not go with graphs (-G)"),
    ] {
        let error = parse(line).unwrap().check().unwrap_err().to_string();
        assert!(error.contains(says), "{line}: {error}");
    }
    // What the host has is found out later.
    parse("-G 1 -R 2 --backend auto").unwrap().check().unwrap();
    parse("-G 1 -R 2 -x 1 --share-gpus --nccl-library /x --backend nccl").unwrap().check().unwrap();
}

#[test]
fn what_is_done_otherwise_is_told() {
    for (line, smallest, says) in [
        ("", 32 << 20, &[][..]),
        ("-b 8 -V 128", 8, &[]),
        ("-e 64M", 32 << 20, &[]),
        ("-e 1M", 1 << 20, &["minBytes is 1048576, as -e: it is below -b's default of 32M"]),
        ("-V 0", 32 << 20, &["device_cta_count (-V) is 16, its default: 0 is not between 1 and 128"]),
        (
            "-V 200 --backend nccl",
            32 << 20,
            &["device_cta_count (-V) is 16, its default: 200 is not between 1 and 128"],
        ),
    ] {
        let flags = parse(line).unwrap();
        flags.check().unwrap();
        assert_eq!(
            (flags.min_bytes(), flags.adjustments()),
            (smallest, says.iter().map(|&line| line.into()).collect())
        );
    }
}

#[test]
fn sizes_grow_by_factor_or_step() {
    let sizes = |line: &str| {
        let flags = parse(line).unwrap();
        flags.sizes(flags.min_bytes(), flags.maxbytes.0).collect::<Vec<_>>()
    };
    assert_eq!(sizes("-b 8 -e 70 -f 2"), [8, 16, 32, 64]);
    assert_eq!(sizes("-b 0 -e 10 -i 4"), [0, 4, 8]);
    assert_eq!(sizes("-b 5 -e 5"), [5]);
    assert_eq!(sizes("-b 0 -e 0 -f 2"), [0]);
}

#[test]
fn programs_are_known_by_name() {
    for (argv0, collective) in [
        ("all_reduce_perf", Some(Collective::AllReduce)),
        ("./build/alltoallv_perf", Some(Collective::AllToAllV)),
        ("/usr/bin/hypercube_perf_mpi", Some(Collective::HyperCube)),
        ("all_reduce", None),
        ("busbw", None),
    ] {
        assert_eq!(program(argv0), collective, "{argv0}");
    }
}
