//! Two hosts with two ranks each that differ in a device or a variable.

use super::*;

/// The log of a host: its devices, its variables, and whether its ranks came up.
fn host(name: &str, devices: &str, settings: &[&str], up: bool) -> String {
    let says = |rank: usize, text: &str| format!("{name}:{rank}:{rank} [{rank}] NCCL INFO {text}\n");
    let first = if name == "gpu-a" { 0 } else { 2 };
    let of_rank = |rank: usize| {
        let mut log = says(rank, &format!("NET/IB : Using {devices}; OOB eth0:10.0.0.{first}<0>"));
        log += &settings.iter().map(|set| says(rank, &set.replace('=', " set by environment to "))).collect::<String>();
        let (number, id) = (first + rank, "commId 0x7");
        let state = if up { "COMPLETE" } else { "START" };
        log + &says(
            rank,
            &format!(
                "ncclCommInitRank comm 0x1{number} rank {number} nranks 4 cudaDev {rank} busId {rank}000 {id} - Init {state}"
            ),
        )
    };
    of_rank(0) + &of_rank(1)
}

fn told(log: &str) -> Vec<(Code, String)> {
    let run = busbw_ingest::read_bytes(&[("log", log.as_bytes())]).expect("text");
    crate::diagnose(&run)
        .findings
        .into_iter()
        .filter(|f| f.severity >= Severity::Warning)
        .map(|f| (f.code, f.title))
        .collect()
}

const BOTH: &str = "[0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]";
const ONE: &str = "[0]mlx5_0:1/IB [RO]";

#[test]
fn a_host_that_differs_is_named_with_device_or_variable() {
    let cases = [
        (ONE, vec![], vec![], Code::NicUnused, "gpu-b offers 1 RDMA devices, gpu-a offers 2: mlx5_1 is missing there"),
        (
            ONE,
            vec![],
            vec!["NCCL_IB_HCA=mlx5_0"],
            Code::EnvOverride,
            "gpu-b offers 1 RDMA devices, gpu-a offers 2: mlx5_1 is missing there (NCCL_IB_HCA=mlx5_0 is set on gpu-b only)",
        ),
        (BOTH, vec![], vec!["NCCL_ALGO=Ring"], Code::EnvOverride, "NCCL_ALGO=Ring is set on gpu-b, and not on gpu-a"),
        (
            BOTH,
            vec!["NCCL_PROTO=LL"],
            vec!["NCCL_PROTO=Simple"],
            Code::EnvOverride,
            "NCCL_PROTO is LL on gpu-a and Simple on gpu-b",
        ),
    ];
    for (devices, of_a, of_b, code, title) in cases {
        let log = host("gpu-a", BOTH, &of_a, true) + &host("gpu-b", devices, &of_b, true);
        assert!(told(&log).contains(&(code, title.to_string())), "{title}: {:?}", told(&log));
    }
}

#[test]
fn what_differs_without_harm_is_no_finding() {
    let b = |devices, settings: &[&str]| host("gpu-a", BOTH, &[], true) + &host("gpu-b", devices, settings, true);
    let cases = [
        ("other names", b("[0]mlx5_2:1/IB [1]mlx5_bond_0:1/IB [RO]", &[])),
        ("another order", b("[0]mlx5_1:1/IB [1]mlx5_0:1/IB [RO]", &[])),
        ("an index of the host's own", b(BOTH, &["NCCL_IB_GID_INDEX=5"])),
        ("an interface of the host's own", b(BOTH, &["NCCL_SOCKET_IFNAME=ens3"])),
        ("what ranks agree on", b(BOTH, &["NCCL_CROSS_NIC=1"])),
        ("a log that ends early", host("gpu-a", BOTH, &[], false) + &host("gpu-b", BOTH, &["NCCL_ALGO=Ring"], true)),
        ("more of them on one host", host("gpu-a", ONE, &[], true).replace("nranks 4", "nranks 3")),
    ];
    for (what, log) in cases {
        assert_eq!(told(&log), [], "{what}");
    }
}
