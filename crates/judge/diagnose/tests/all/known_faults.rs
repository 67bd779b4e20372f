//! Known faults held against machines, logs and what their tables must have.

#![allow(clippy::unwrap_used)]

use busbw_diagnose::known_faults::situation::Situation;
use busbw_diagnose::known_faults::table::Condition;
use busbw_diagnose::known_faults::{advise_run, all, likest, told};
use busbw_diagnose::{Book, Case, UserFacts, check_rules, diagnose, diagnose_with, known_faults};
use busbw_ingest::{ReadOptions, Source, read};
use busbw_model::{Advised, Component, Consequence, Exposure, Run};
use std::fs;
use std::path::{Path, PathBuf};

/// A machine as people describe it: versions, architecture, GPU, hosts.
fn machine(versions: &str, arch: &str, gpu: &str, hosts: usize) -> Situation {
    let mut known = Situation::default();
    for (name, version) in versions.split(' ').filter_map(|told| told.split_once('=')) {
        known.uses(Component::from_name(name).unwrap(), version.parse().unwrap());
    }
    known.tell_arch(arch);
    known.tell_gpu(gpu);
    known.tell_nodes(hosts);
    known
}

fn advise(known: &Situation) -> Advised {
    known_faults::advise(known, all())
}

fn ids(advised: &Advised, exposure: Exposure) -> Vec<&str> {
    advised.of(exposure).map(|fault| fault.id.as_str()).collect()
}

fn run_of(text: &str) -> Run {
    read(&[Source::Bytes("run.log".into(), text.as_bytes().to_vec())], &ReadOptions::default()).unwrap()
}

#[test]
fn the_tables_are_as_long_and_as_broad_as_promised() {
    let of = |consequence| all().iter().filter(|fault| fault.consequence == consequence).count();
    assert!(all().len() >= 150, "{}", all().len());
    assert!(of(Consequence::Hang) >= 25 && of(Consequence::WrongResults) >= 15 && of(Consequence::Slow) >= 20);
    let components = Component::ALL.iter().filter(|of| all().iter().any(|fault| fault.component == **of)).count();
    assert!(components >= 10, "{components}");
}

/// The fault that cost a team 512 GPUs for four days (github.com/marin-community/marin/issues/7344).
#[test]
fn versions_and_machine_alone_warn_of_the_hang_on_grace() {
    let advised = advise(&machine("nccl=2.28.9 driver=580.95.05", "aarch64", "GB200", 128));
    assert!(ids(&advised, Exposure::CanHitYou).contains(&"nccl-aarch64-proxy-pool-hang"), "{:?}", advised.faults);
    assert!(advised.is_grave());
    let take = &advised.take[0];
    assert!(take.ends.iter().any(|id| id == "nccl-aarch64-proxy-pool-hang") && take.leaves.is_empty(), "{take:?}");
    // Another architecture, and the release that has the fix.
    for (versions, arch, gpu) in [("nccl=2.28.9", "x86_64", "B200"), ("nccl=2.29.3", "aarch64", "GB200")] {
        let advised = advise(&machine(versions, arch, gpu, 128));
        assert!(advised.faults.iter().all(|fault| fault.id != "nccl-aarch64-proxy-pool-hang"), "{versions} {arch}");
    }
}

/// What is not known makes a fault neither possible nor impossible; what is told decides.
#[test]
fn a_condition_that_is_not_known_is_asked_for() {
    let undecided = all().iter().find(|fault| {
        let conditions: Vec<_> = fault.when.conditions.keys().copied().collect();
        conditions == [Condition::Feature] && fault.when.with.is_empty() && fault.component == Component::Nccl
    });
    let fault = undecided.unwrap();
    let version = fault.first.clone().unwrap_or_else(|| fault.last.clone().unwrap());
    let mut known = Situation::default();
    known.uses(Component::Nccl, version);
    let exposure = |known: &Situation| {
        advise(known).faults.into_iter().find(|found| found.id == fault.id).map(|found| (found.exposure, found.unknown))
    };
    let (before, asked) = exposure(&known).unwrap();
    assert_eq!((before, asked.len()), (Exposure::CannotKnow, 1));
    let feature = fault.when.conditions[&Condition::Feature].all()[0].clone();
    let with = |features: Vec<String>| {
        let mut known = known.clone();
        known.only_features(features);
        exposure(&known).map(|(exposure, _)| exposure)
    };
    assert_eq!((with(vec![feature]), with(Vec::new())), (Some(Exposure::CanHitYou), None));
}

/// The text of a fault, by the program that prints it, in a run that it ended, is "hit you" and leads the findings; other
/// versions, a run that ended well and a person who writes of it are not.
#[test]
fn a_fault_hit_where_its_text_stands_and_nothing_refutes_it() {
    const LINE: &str = "no algorithm/protocol available for function AllReduce with datatype ncclFloat8e4m3. NCCL_ALGO was set to Ring.";
    let log = |version: &str, line: &str| {
        format!(
            "node1:100:100 [0] NCCL INFO NCCL version {version}+cuda12.9\n\
             node1:100:200 [0] NCCL INFO comm 0x55 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0\n{line}\n"
        )
    };
    let fault = all().iter().find(|fault| fault.id == "nccl-fp8-all-reduce-no-algorithm").unwrap();
    let bad = fault.first.clone().or(fault.last.clone()).unwrap().to_string();
    let good = fault.fixed.all().iter().max().unwrap().to_string();
    let warned = format!("node1:100:200 [0] enqueue.cc:1898 NCCL WARN {LINE}");
    let cases =
        [(&bad, warned.as_str(), true), (&good, warned.as_str(), false), (&bad, LINE, false), (&bad, "", false)];
    for (version, line, hit) in cases {
        let run = run_of(&log(version, line));
        let case = Case::new(&run);
        let advised = advise_run(&case, &Situation::of_case(&case), &diagnose(&run).findings);
        assert_eq!(!ids(&advised, Exposure::HitYou).is_empty(), hit, "{version}: {line}");
        let leads = diagnose(&run).findings.first().is_some_and(|first| first.title.starts_with("A known fault"));
        assert_eq!(leads, hit, "{version}: {line}");
    }
}

fn logs(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.is_file() && path.extension().is_some_and(|ending| ending != "toml" && ending != "md"));
    found.sort();
    found
}

/// No known fault is said to have hit a run that it did not: none of the logs that are kept here has one.
#[test]
fn no_log_is_said_to_be_hit_that_was_not() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/data");
    let logs: Vec<PathBuf> = ["logs", "logs-2", "logs-nccl"].iter().flat_map(|name| logs(&data.join(name))).collect();
    assert!(logs.len() > 40, "{}", logs.len());
    for path in logs {
        let Ok(run) = read(&Source::all(&path).unwrap(), &ReadOptions::default()) else { continue };
        let case = Case::new(&run);
        let advised = advise_run(&case, &Situation::of_case(&case), &diagnose(&run).findings);
        assert_eq!(ids(&advised, Exposure::HitYou), [""; 0], "{}", path.display());
    }
}

/// What a user saw goes before what is worse, and what has more of its conditions met before what all machines share.
#[test]
fn what_fits_best_stands_first() {
    let first = |known: Situation, seen| {
        let mut advised = advise(&known);
        told(&mut advised, seen, &known, all());
        advised.faults[0].id.clone()
    };
    let marin = machine("nccl=2.28.9", "aarch64", "GB200", 128);
    assert_eq!(first(marin, Consequence::Hang), "nccl-aarch64-proxy-pool-hang");
    // One condition, the size, is not told.
    let workstation = machine("nccl=2.26.2 driver=580.173.02", "x86_64", "RTX PRO 6000", 1);
    assert_eq!(first(workstation, Consequence::Crash), "nccl-rtx-pro-6000-illegal-access");
}

/// A thread that a person looks up: names and their versions, flags, and the model of the GPUs stand in it, and nothing that a program printed.
#[test]
fn a_text_of_peoples_tells_what_to_look_up() {
    let text = "SGLang hangs with --enable-symm-mem and NCCL 2.29.7 on 4x B200: ncclCommWindowRegister never returns";
    let mut known = Situation::default();
    known.states(busbw_ingest::stated_versions(text), all());
    known.prints(text);
    known.names(text);
    let mut advised = advise(&known);
    told(&mut advised, Consequence::Hang, &known, all());
    assert_eq!(advised.faults[0].id, "nccl-window-register-deadlock");
    // Of a branch, any release may be meant; a variable that switches something off does not show it.
    let mut branch = Situation::default();
    branch.states(busbw_ingest::stated_versions("since NCCL 2.29 with NCCL_NVLS_ENABLE=0"), all());
    branch.names("since NCCL 2.29 with NCCL_NVLS_ENABLE=0");
    assert!(branch.of(Component::Nccl).is_some_and(|versions| versions.len() > 1));
    assert!(!branch.facts().iter().any(|fact| fact.what == "feature"));
}

/// What a text of people's tells.
fn situation_of(text: &str) -> Situation {
    let mut known = Situation::default();
    known.states(busbw_ingest::stated_versions(text), all());
    known.prints(text);
    known.names(text);
    known.writes(text);
    known
}

/// Of faults that are alike the one stands first of which names and conditions are met, in the version that few releases share.
#[test]
fn a_text_is_about_the_fault_whose_names_and_versions_it_tells() {
    let texts = [
        (
            "PyTorch 2.7.0 hangs now and then after init_process_group(backend=\"nccl\", device_id=torch.device(\"cuda\", rank))",
            "pytorch-device-id-hang",
        ),
        (
            "NCCL 2.18.5 on two nodes of H100: all_reduce is wrong above 64 MiB with NCCL_ALGO=NVLSTree, NCCL_PROTO=Simple",
            "nccl-nvls-tree-corruption",
        ),
        ("Two RTX PRO 6000 with NCCL 2.26.2: an illegal memory access", "nccl-rtx-pro-6000-illegal-access"),
        // A fault that a user saw in one release is not the likelier for that (github.com/NVIDIA/nccl/issues/2241).
        (
            "AllGather deadlocks on B200 with 2 GPUs, NCCL 2.29.7, when memory is registered with ncclCommWindowRegister; not with \
             NCCL_NVLS_ENABLE=0",
            "nccl-ce-two-ranks-hang",
        ),
        // Of two releases that are told, one has the fault.
        (
            "NCCL 2.30.4 hangs while weights are loaded on DGX Spark, NCCL 2.30.3 works",
            "nccl-dgx-spark-weight-load-hang",
        ),
        // The only release that is named is the one without the fault.
        ("Take PyTorch 2.7.0 for FSDP2: loading a state dict was broken before", "pytorch-fsdp2-state-dict-2-6"),
    ];
    for (text, id) in texts {
        let advised = advise_run(&Case::new(&Run::default()), &situation_of(text), &[]);
        let found: Vec<&str> = advised.faults.iter().take(3).map(|fault| fault.id.as_str()).collect();
        assert_eq!(found.first(), Some(&id), "{text}: {found:?}");
    }
}

/// What a run prints beside its usual lines counts like what a person writes of it, where something went wrong.
#[test]
fn a_log_with_trouble_names_what_is_alike() {
    let log = "# nThread 1 nGpus 2 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n\
               # Using devices\n\
               #  Rank  0 Group  0 Pid   7921 on   node1 device  0 [0x01] NVIDIA GeForce RTX 5090\n\
               #  Rank  1 Group  0 Pid   7921 on   node1 device  1 [0x11] NVIDIA GeForce RTX 5090\n\
               NCCL version 2.25.1+cuda12.8\n";
    let failed =
        "node1: Test NCCL failure common.cu:1013 'unhandled cuda error (run with NCCL_DEBUG=INFO for details)'\n";
    let alike = |text: &str| {
        let run = run_of(text);
        let case = Case::new(&run);
        let mut known = Situation::of_case(&case);
        known.writes(&format!("Kernels of RTX 50 ask for more shared memory than there is\n{text}"));
        let advised = advise_run(&case, &known, &diagnose(&run).findings);
        advised.faults.into_iter().next().filter(|fault| fault.fits).map(|fault| fault.id)
    };
    assert_eq!(alike(&(log.to_owned() + failed)).as_deref(), Some("nccl-blackwell-shared-memory"));
    assert_eq!(alike(log), None);
}

/// Text about NCCL in general, and lists of many faults, are about none: a long text shares words with most entries.
#[test]
fn prose_is_about_no_fault() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let pages = ["docs", "docs/known-faults"].iter().flat_map(|folder| fs::read_dir(root.join(folder)).unwrap());
    let pages = pages.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "md"));
    let others = ["README.md", "CHANGELOG.md", "rules/README.md"].map(|name| root.join(name));
    let pages: Vec<PathBuf> = pages.chain(others).collect();
    assert!(pages.len() > 40, "{}", pages.len());
    for page in pages {
        let named = likest(&situation_of(&fs::read_to_string(&page).unwrap()), all());
        assert!(named.is_none(), "{}: {named:?}", page.display());
    }
    let thread =
        "PyTorch 2.7.0 hangs after init_process_group with a device_id; TORCH_NCCL_USE_COMM_NONBLOCKING=0 helps";
    assert_eq!(likest(&situation_of(thread), all()).map(|fault| fault.id).as_deref(), Some("pytorch-device-id-hang"));
}

/// A text that states no version names what is likest to it, and asks for the version; a text about something else names nothing.
#[test]
fn a_text_without_a_version_names_what_is_likest_to_it() {
    let first = |text: &str| {
        let known = situation_of(text);
        let run = Run::default();
        advise_run(&Case::new(&run), &known, &[]).faults.into_iter().next().filter(|fault| fault.fits)
    };
    let cases = [
        (
            "SGLang with --enable-symm-mem: all TP schedulers deadlock silently in ncclCommWindowRegister when the pool of symmetric memory grows",
            "nccl-window-register-deadlock",
        ),
        (
            "DeepEP over NVSHMEM fails to start on B300 with RoCE: ibgda.cpp Unable to create ah, create DCT share err",
            "nvshmem-ibgda-address-handle",
        ),
    ];
    for (text, id) in cases {
        let fault = first(text).unwrap_or_else(|| panic!("nothing for {text}"));
        let asks = fault.unknown.iter().any(|asked| asked.starts_with("version: "));
        assert!(fault.id == id && fault.exposure == Exposure::CannotKnow && asks, "{text}: {fault:?}");
    }
    for text in [
        "Knead the dough, let it rest for an hour, and bake it at 230 degrees",
        "The train leaves at ten from platform four",
    ] {
        assert!(first(text).is_none(), "{text}: {:?}", first(text));
    }
}

/// What no machine tells, a machine does not decide: such a fault is neither possible nor a warning of `busbw check`.
#[test]
fn what_only_a_reader_knows_is_left_to_him() {
    let advised = advise(&machine("nccl=2.27.5", "x86_64", "H100", 2));
    let scanner = advised.faults.iter().find(|fault| fault.id == "nccl-proxy-foreign-tcp-hang").unwrap();
    assert_eq!(scanner.exposure, Exposure::CannotKnow);
    assert!(scanner.unknown[0].starts_with("only: "), "{:?}", scanner.unknown);
}

/// A version that `pip freeze` lists counts, and a text of `shown` in the input meets the condition in words beside it.
#[test]
fn what_a_run_shows_meets_a_condition_in_words() {
    let exposure = |installed: &str, variable: &str| {
        let run = run_of(&format!("nvidia-nvshmem-cu12=={installed}\nNVSHMEM_DISABLE_P2P={variable}\n"));
        let advised = advise(&Situation::of_case(&Case::new(&run)));
        advised.faults.into_iter().find(|fault| fault.id == "nvshmem-p2p-off-signal-hang").map(|fault| fault.exposure)
    };
    let shown = (exposure("3.3.9", "1"), exposure("3.3.9", "0"), exposure("3.2.5", "1"));
    assert_eq!(shown, (Some(Exposure::CanHitYou), Some(Exposure::CannotKnow), None));
}

/// Nodes with as many ranks each clear a fault that needs unequal numbers.
#[test]
fn ranks_are_counted_by_node() {
    let of = |nodes: &[u32]| {
        let version = "node1:10:10 [0] NCCL INFO NCCL version 2.31.2+cuda12.9\n".to_owned();
        let ranks = nodes.iter().enumerate().map(|(rank, node)| {
            format!(
                "node{node}:{pid}:{pid} [0] NCCL INFO NCCL_CUMEM_ENABLE set by environment to 0.\n\
                 node{node}:{pid}:{pid} [{rank}] NCCL INFO ncclCommInitRank comm 0x5{rank} rank {rank} nranks {all} cudaDev {rank} nvmlDev {rank} busId {rank}000 commId 0x77 - Init COMPLETE\n",
                pid = 10 + rank,
                all = nodes.len(),
            )
        });
        let run = run_of(&(version + &ranks.collect::<String>()));
        let case = Case::new(&run);
        let advised = advise(&Situation::of_case(&case));
        advised
            .faults
            .into_iter()
            .find(|fault| fault.id == "nccl-pat-uneven-nodes-deadlock")
            .map(|fault| fault.exposure)
    };
    assert_eq!((of(&[1, 1, 2]), of(&[1, 1, 2, 2])), (Some(Exposure::CanHitYou), None));
}

/// Links within a rack are told like networks, and leave open what carries traffic to other racks.
#[test]
fn a_link_is_told_without_denying_a_network() {
    let mut known = Situation::default();
    known.tell_fabrics(&["mnnvl"]);
    let has = |known: &Situation, fabric: &str| {
        let wanted = busbw_diagnose::known_faults::table::OneOrMore::One(fabric.to_owned());
        known.meets(Condition::Fabric, &wanted)
    };
    assert_eq!((has(&known, "mnnvl"), has(&known, "infiniband")), (Some(true), None));
    known.tell_fabrics(&["roce"]);
    assert_eq!((has(&known, "roce"), has(&known, "infiniband")), (Some(true), Some(false)));
}

const OWN: &str = r#"
[[cause]]
id = "a.b"
code = "gpu.error"
confidence = 0.9
title = "A title"
explanation = "An explanation."
remedy = ["`a command`"]
printed = [{ by = "kernel", text = "a text of {} words", source = "Linux" }]

[[fault]]
id = "nccl-own-hang"
title = "Ranks wait on our racks"
first = "2.30.3"
fixed = "2.30.7"
sure = "reported"
when = { gpu = "GB200" }
symptom = "hang.mismatch"
text = "our switch says {} is lost"
consequence = "hang"
source = ["https://wiki.example/racks"]
date = "2026-11-24"
"#;

/// A person's own entries stand beside those that are compiled in, in one file with signatures.
#[test]
fn entries_of_ones_own_count_like_those_compiled_in() {
    let book = Book::with("my.toml", OWN).unwrap();
    assert_eq!(book.faults().len(), all().len() + 1);
    let advised = known_faults::advise(&machine("nccl=2.30.4", "aarch64", "GB200", 4), book.faults());
    assert!(ids(&advised, Exposure::CanHitYou).contains(&"nccl-own-hang"));
    assert!(advised.take[0].ends.contains(&"nccl-own-hang".to_owned()), "{:?}", advised.take);

    let run = run_of(
        "node1:1:1 [0] NCCL INFO NCCL version 2.30.4+cuda12.9\nnode1:1:2 [0] NCCL INFO comm 0x55 rank 0 nRanks 8 nNodes 2 localRanks 4 localRank 0 MNNVL 0\n\
         node1:1:2 [0] net.cc:1 NCCL WARN our switch says port 3 is lost\n",
    );
    let titles = |given: UserFacts| -> Vec<String> {
        diagnose_with(&run, &given).findings.into_iter().map(|finding| finding.title).collect()
    };
    let own = titles(UserFacts { book: Some(&book), ..UserFacts::default() });
    assert!(own[0].contains("Ranks wait on our racks"), "{own:?}");
    assert!(!titles(UserFacts::default()).iter().any(|title| title.contains("our racks")));

    // Under the id of an entry that is compiled in, it takes its place.
    let known = &all()[0].id;
    let other = Book::with("my.toml", &OWN.replace("nccl-own-hang", known)).unwrap();
    assert_eq!(other.faults().len(), all().len());
    assert_eq!((&*other.faults()[0].id, &*other.faults()[0].title), (&**known, "Ranks wait on our racks"));
}

/// Each mistake is told with file, line and what to write.
#[test]
fn a_mistake_in_ones_own_file_is_told_with_its_place_and_a_remedy() {
    let cases = [
        (OWN.replace("nccl-own-hang", "own-hang"), "my.toml:11:1: own-hang: begin the id with a component", "nccl-"),
        (
            OWN.replace("fixed = \"2.30.7\"", "fixed = \"2.29.2\""),
            "my.toml:11:1: nccl-own-hang: first is later",
            "oldest version",
        ),
        (OWN.replace("sure", "certain"), "my.toml:16:1: unknown key `certain`", "rules/README.md"),
        (OWN.replace("https://wiki.example/racks", "a wiki"), "my.toml:11:1: nccl-own-hang: source", "https://"),
        (String::new(), "my.toml: nothing in it", "[[fault]]"),
    ];
    for (text, begins, remedy) in cases {
        let error = check_rules("my.toml", &text).unwrap_err();
        assert!(error.starts_with(begins) && error.contains(remedy), "{error}");
    }
    let elsewhere = check_rules("rules/known-faults/ucx.toml", &OWN[OWN.find("[[fault]]").unwrap()..]).unwrap_err();
    assert!(elsewhere.contains("nccl.toml"), "{elsewhere}");
}

/// Of releases before those that the tables cover nobody says that they have what a later one mends.
#[test]
fn an_old_release_is_not_said_to_have_what_a_later_one_mends() {
    let exposures = |version: &str| {
        let advised = advise(&machine(&format!("nccl={version}"), "x86_64", "A100", 2));
        let undated = |id: &str| all().iter().any(|fault| fault.id == id && fault.first.is_none());
        let faults = advised.faults.into_iter().filter(|fault| undated(&fault.id));
        faults.filter(|fault| fault.exposure == Exposure::CanHitYou).count()
    };
    assert_eq!(exposures("2.7.8"), 0);
    assert!(exposures("2.18.1") > 3);
}

/// A plugin that NCCL loads and does not take can do nothing to the run.
#[test]
fn a_plugin_that_carries_nothing_is_not_in_use() {
    let log = |net: &str| {
        let ranks = ["node1", "node2"].iter().enumerate().map(|(rank, host)| {
            format!(
                "{host}:10:10 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.16.2\n\
                 {host}:10:11 [0] NCCL INFO ncclCommInitRank comm 0x5 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x77 - Init START\n\
                 {host}:10:11 [0] NCCL INFO Channel 00/0 : {rank}[0] -> {other}[0] [send] via NET/{net}/0\n\
                 {host}:10:11 [0] NCCL INFO ncclCommInitRank comm 0x5 rank {rank} nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x77 - Init COMPLETE\n",
                other = 1 - rank,
            )
        });
        let run = run_of(
            &("node1:10:10 [0] NCCL INFO NCCL version 2.27.5+cuda12.9\n".to_owned() + &ranks.collect::<String>()),
        );
        Situation::of_case(&Case::new(&run)).of(Component::OfiPlugin).is_some()
    };
    assert_eq!((log("Libfabric"), log("IB")), (true, false));
}
