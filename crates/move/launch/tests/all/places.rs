//! Who a process is, from environments that real launchers left (tests/environments, recorded on one machine; those of srun
//! on two nodes), and from some that are broken.

use busbw_launch::{Discovery, JobRank};
use std::collections::HashMap;

/// A recorded environment, changed by `changes`: `NAME=value` sets, `NAME` unsets.
fn environment(file: &str, changes: &[&str]) -> HashMap<String, String> {
    let path = format!("{}/tests/environments/{file}.env", env!("CARGO_MANIFEST_DIR"));
    let text = if file.is_empty() { String::new() } else { std::fs::read_to_string(path).unwrap() };
    let mut variables = HashMap::new();
    for line in text.lines().chain(changes.iter().copied()) {
        match line.split_once('=') {
            Some((name, value)) => variables.insert(name.to_owned(), value.to_owned()),
            None => variables.remove(line),
        };
    }
    variables
}

fn detect(file: &str, changes: &[&str]) -> busbw_launch::Result<JobRank> {
    let variables = environment(file, changes);
    JobRank::detect(&|name| variables.get(name).cloned())
}

/// `launcher rank/size local_rank/local_size discovery`.
fn shown(job_rank: &JobRank) -> String {
    let discovery = match &job_rank.discovery {
        Discovery::Alone => "alone".into(),
        Discovery::Fixed { address, token, listener } => format!("at {address} with {token} {listener:?}"),
        Discovery::Pmix { namespace } => format!("pmix {namespace}"),
        Discovery::Pmi1 { fd } => format!("pmi1 {fd}"),
        Discovery::Pmi2 { fd, job } => format!("pmi2 {fd} {job}"),
        Discovery::TcpStore { host, port, .. } => format!("tcpstore {host}:{port}"),
        Discovery::Derived { host, .. } => format!("derived {host}"),
    };
    let token = job_rank.token.filter(|_| !discovery.starts_with("at ")).map(|token| format!(" with {token}"));
    let local_size = job_rank.local_size.map_or("?".into(), |size| size.to_string());
    format!(
        "{:?} {}/{} {}/{local_size} {discovery}{}",
        job_rank.launcher,
        job_rank.rank,
        job_rank.size,
        job_rank.local_rank,
        token.unwrap_or_default()
    )
}

const TOKEN: &str = "BUSBW_TOKEN=000102030405060708090a0b0c0d0e0f";
const SHOWN: &str = "000102030405060708090a0b0c0d0e0f";

#[test]
fn recorded_environments() {
    for (file, expected) in [
        ("", "Alone 0/1 0/1 alone"),
        ("openmpi-4.1", "OpenMpi 1/2 1/2 pmix 912982017"),
        ("mpich-4.0", "Mpich 1/2 1/2 pmi1 8"),
        ("torchrun", "Torchrun 1/2 1/2 derived localhost"),
        ("srun-none", "Srun 3/4 1/2 derived node1"),
        ("srun-pmi2", "Srun 3/4 1/2 pmi2 13 9.0"),
        ("srun-pmix", "Srun 1/2 1/2 pmix slurm.pmix.2.0"),
        ("mpich-in-slurm", "Mpich 3/4 1/2 pmi1 6"),
        ("salloc-shell", "Alone 0/1 0/1 alone"),
        ("sbatch-script", "Alone 0/1 0/1 alone"),
    ] {
        assert_eq!(shown(&detect(file, &[]).unwrap()), expected, "{file}");
    }
}

#[test]
fn changed_environments() {
    let at = ["BUSBW_RENDEZVOUS=10.0.0.1:4711", TOKEN];
    let with = |more: &[&'static str]| [&at[..], more].concat();
    for (file, changes, expected) in [
        ("", with(&["BUSBW_RANK=2", "BUSBW_SIZE=4"]), format!("Busbw 2/4 0/? at 10.0.0.1:4711 with {SHOWN} None")),
        (
            "",
            with(&["BUSBW_RANK=0", "BUSBW_SIZE=4", "BUSBW_LOCAL_RANK=0", "BUSBW_LOCAL_SIZE=4", "BUSBW_LISTENER=7"]),
            format!("Busbw 0/4 0/4 at 10.0.0.1:4711 with {SHOWN} Some(7)"),
        ),
        ("", vec!["BUSBW_RANK=0", "BUSBW_SIZE=1"], "Busbw 0/1 0/1 alone".into()),
        // By hand beside another launcher's rank and size: also where its own way is cut off.
        ("openmpi-4.1", with(&[]), format!("OpenMpi 1/2 1/2 at 10.0.0.1:4711 with {SHOWN} None")),
        ("openmpi-4.1", with(&["PMIX_NAMESPACE"]), format!("OpenMpi 1/2 1/2 at 10.0.0.1:4711 with {SHOWN} None")),
        ("mpich-4.0", with(&["PMI_FD"]), format!("Mpich 1/2 1/2 at 10.0.0.1:4711 with {SHOWN} None")),
        ("srun-none", with(&[]), format!("Srun 3/4 1/2 at 10.0.0.1:4711 with {SHOWN} None")),
        // Our own spawn inside a job of one.
        (
            "srun-none",
            with(&["BUSBW_RANK=1", "BUSBW_SIZE=2"]),
            format!("Busbw 1/2 0/? at 10.0.0.1:4711 with {SHOWN} None"),
        ),
        // torchrun started by srun or mpirun.
        (
            "srun-none",
            vec!["RANK=5", "WORLD_SIZE=8", "MASTER_ADDR=a", "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=x"],
            "Torchrun 5/8 0/? derived a".into(),
        ),
        // Variables that a script sets from mpirun's own, for PyTorch.
        (
            "openmpi-4.1",
            vec!["RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=29500"],
            "OpenMpi 1/2 1/2 pmix 912982017".into(),
        ),
        // torchrun's agent keeps a store where it says so.
        ("torchrun", vec!["TORCHELASTIC_USE_AGENT_STORE=True"], "Torchrun 1/2 1/2 tcpstore localhost:33981".into()),
        ("torchrun", vec!["TORCHELASTIC_USE_AGENT_STORE=False"], "Torchrun 1/2 1/2 derived localhost".into()),
        // The token alone: the address is found as without it.
        ("torchrun", vec![TOKEN], format!("Torchrun 1/2 1/2 derived localhost with {SHOWN}")),
        ("srun-pmix", vec![TOKEN], format!("Srun 1/2 1/2 pmix slurm.pmix.2.0 with {SHOWN}")),
        ("", vec![TOKEN], format!("Alone 0/1 0/1 alone with {SHOWN}")),
        ("", vec!["RANK=3"], "Alone 0/1 0/1 alone".into()),
        ("", vec!["SLURM_PROCID=0", "SLURM_NTASKS=8"], "Alone 0/1 0/1 alone".into()),
        (
            "openmpi-4.1",
            vec!["OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1", "PMIX_RANK"],
            "OpenMpi 0/1 1/1 alone".into(),
        ),
        // The shell of an allocation that Slurm runs as a step of its own.
        (
            "sbatch-script",
            vec!["SLURM_STEP_ID=4294967290", "SLURM_STEP_NUM_TASKS=1", "SLURM_STEP_NODELIST=node1"],
            "Srun 0/1 0/1 alone".into(),
        ),
        ("srun-none", vec!["SLURM_STEP_NODELIST=gpu-[007-010,3],x"], "Srun 3/4 1/2 derived gpu-007".into()),
    ] {
        assert_eq!(shown(&detect(file, &changes).unwrap()), expected, "{file} {changes:?}");
    }
}

#[test]
fn broken_environments_name_variable_and_value() {
    let cases: &[(&str, &[&str], &[&str])] = &[
        ("", &["BUSBW_RANK=x", "BUSBW_SIZE=2"], &["BUSBW_RANK=\"x\" is no number"]),
        ("", &["BUSBW_RANK=-1", "BUSBW_SIZE=2"], &["BUSBW_RANK=\"-1\" is no number"]),
        ("", &["BUSBW_RANK=1"], &["BUSBW_RANK=\"1\" is set without BUSBW_SIZE"]),
        ("", &["BUSBW_SIZE=2"], &["BUSBW_SIZE=\"2\" is set without BUSBW_RANK"]),
        ("", &["BUSBW_RANK=1", "BUSBW_SIZE=2"], &["BUSBW_RANK=\"1\" is set without BUSBW_RENDEZVOUS and BUSBW_TOKEN"]),
        (
            "",
            &["BUSBW_RANK=2", "BUSBW_SIZE=2", "BUSBW_RENDEZVOUS=a:1", TOKEN],
            &["BUSBW_RANK=\"2\" is no rank of a job of 2"],
        ),
        ("", &["BUSBW_RENDEZVOUS=a:1", TOKEN], &["BUSBW_RENDEZVOUS=\"a:1\"", "no launcher says which rank"]),
        ("openmpi-4.1", &["BUSBW_RENDEZVOUS=a:1"], &["BUSBW_RENDEZVOUS=\"a:1\" is set without BUSBW_TOKEN"]),
        ("torchrun", &["BUSBW_TOKEN=0011"], &["BUSBW_TOKEN=\"…\" cannot be used", "32 hexadecimal digits"]),
        ("openmpi-4.1", &["BUSBW_RENDEZVOUS=a", TOKEN], &["BUSBW_RENDEZVOUS=\"a\" is no ADDRESS:PORT"]),
        ("openmpi-4.1", &["BUSBW_RENDEZVOUS=a:70000", TOKEN], &["BUSBW_RENDEZVOUS=\"a:70000\" is no ADDRESS:PORT"]),
        ("openmpi-4.1", &["BUSBW_RENDEZVOUS=:1", TOKEN], &["BUSBW_RENDEZVOUS=\":1\" is no ADDRESS:PORT"]),
        ("openmpi-4.1", &["BUSBW_RENDEZVOUS=a:1", "BUSBW_TOKEN=ab"], &["BUSBW_TOKEN", "32 hexadecimal digits"]),
        ("openmpi-4.1", &["OMPI_COMM_WORLD_SIZE"], &["OMPI_COMM_WORLD_RANK=\"1\" is set without OMPI_COMM_WORLD_SIZE"]),
        ("openmpi-4.1", &["OMPI_COMM_WORLD_RANK"], &["OMPI_COMM_WORLD_SIZE=\"2\" is set without"]),
        ("openmpi-4.1", &["OMPI_COMM_WORLD_RANK=7"], &["OMPI_COMM_WORLD_RANK=\"7\" is no rank of a job of 2"]),
        (
            "openmpi-4.1",
            &["PMIX_NAMESPACE"],
            &["OMPI_COMM_WORLD_RANK=\"1\"", "without PMIX_NAMESPACE", "BUSBW_RENDEZVOUS"],
        ),
        ("", &["PMIX_NAMESPACE=n", "PMIX_RANK=0"], &["PMIX_NAMESPACE=\"n\"", "how many ranks", "BUSBW_SIZE"]),
        ("mpich-4.0", &["PMI_FD"], &["PMI_RANK=\"1\"", "without PMI_FD", "BUSBW_RENDEZVOUS"]),
        ("mpich-4.0", &["PMI_FD=six"], &["PMI_FD=\"six\" is no number"]),
        ("mpich-4.0", &["PMI_SIZE"], &["PMI_RANK=\"1\" is set without PMI_SIZE"]),
        ("mpich-4.0", &["PMI_RANK"], &["PMI_SIZE=\"2\" is set without PMI_RANK"]),
        ("torchrun", &["WORLD_SIZE"], &["TORCHELASTIC_RUN_ID", "is set without all of RANK, WORLD_SIZE"]),
        ("torchrun", &["RANK=2"], &["RANK=\"2\" is no rank of a job of 2"]),
        ("torchrun", &["WORLD_SIZE=0", "RANK=0"], &["RANK=\"0\" is no rank of a job of 0"]),
        ("torchrun", &["MASTER_PORT=http"], &["MASTER_PORT=\"http\" is no port"]),
        ("srun-none", &["SLURM_STEP_NODELIST=node[1-"], &["SLURM_STEP_NODELIST=\"node[1-\"", "without a closing one"]),
        ("srun-none", &["SLURM_PROCID=4"], &["SLURM_PROCID=\"4\" is no rank of a job of 4"]),
        // A stale environment for PyTorch must not make each of mpirun's processes a job of its own.
        (
            "openmpi-4.1",
            &["RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=a", "MASTER_PORT=29500"],
            &["RANK=\"0\" of 1 contradicts OMPI_COMM_WORLD_RANK 1 of 2"],
        ),
    ];
    for (file, changes, says) in cases {
        let error = detect(file, changes).expect_err(&format!("{file} {changes:?}")).to_string();
        assert!(says.iter().all(|text| error.contains(text)), "{file} {changes:?}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn ranks_of_a_job_derive_the_same_and_those_of_another_do_not() {
    let words = |file: &str, changes: &[&str]| match detect(file, changes).unwrap().discovery {
        Discovery::Derived { words, .. } | Discovery::TcpStore { words, .. } => words.name(),
        other => panic!("{other:?}"),
    };
    let other_rank =
        ["SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_NODEID=0", "SLURM_GTIDS=0,1", "SLURM_SRUN_COMM_PORT=1"];
    assert_eq!(words("srun-none", &[]), words("srun-none", &other_rank));
    assert_ne!(words("srun-none", &[]), words("srun-none", &["SLURM_STEP_ID=1"]));
    assert_eq!(words("torchrun", &[]), words("torchrun", &["RANK=0", "LOCAL_RANK=0"]));
    assert_ne!(words("torchrun", &[]), words("torchrun", &["TORCHELASTIC_RESTART_COUNT=1"]));
}
