//! What tables say without a log: wrong data, and sizes that are too small to judge.

use crate::case::Case;
use busbw_model::{BenchRow, BenchTable, Check, Code, Evidence, Finding, Severity};
use busbw_predict::cluster::joined_by_nvlink;

/// nccl-tests counted wrong elements.
pub fn wrong_data(case: &Case) -> Vec<Finding> {
    let wrong = |table: &&BenchTable| table.total_wrong() > 0 || table.out_of_bounds.as_ref().is_some_and(|o| !o.ok);
    let Some(table) = case.run.tables.iter().find(wrong) else { return Vec::new() };
    let rows: Vec<&BenchRow> = table.rows.iter().filter(|row| is_wrong(row)).collect();
    let mut evidence: Vec<Evidence> =
        rows.iter().take(3).map(|row| Evidence::noted(row.source.clone(), "wrong elements")).collect();
    evidence.extend(table.out_of_bounds.iter().filter(|o| !o.ok).map(|o| Evidence::new(o.source.clone())));
    let (doubt, remedy) = cause(case, table, &rows);
    vec![Finding {
        code: Code::DataCorruption,
        severity: Severity::Error,
        confidence: 0.95,
        title: match rows.len() {
            0 => "nccl-tests found wrong results".to_string(), // old tables show a largest error for each size, no count
            wrong => format!("nccl-tests found wrong results in {wrong} of {} sizes", table.rows.len()),
        },
        explanation: format!(
            "After each size nccl-tests compares what arrived with what should have (#wrong). Wrong elements mean that data was \
             damaged on the way, or never arrived. {doubt}"
        ),
        evidence,
        remedy: remedy.iter().map(ToString::to_string).collect(),
        expected_gain: None,
    }]
}

/// What damages data so, and what to do.
fn cause(case: &Case, table: &BenchTable, rows: &[&BenchRow]) -> (&'static str, &'static [&'static str]) {
    let all = !rows.is_empty() && rows.len() == table.rows.len() && rows.iter().all(|row| is_all_wrong(row));
    let forced = case.run.nccl.env_value("NCCL_PROTO").is_some_and(|proto| proto.value.contains("LL128"));
    let one_host = table.hosts().len() == 1;
    let nvlink = table.devices.iter().any(|device| joined_by_nvlink(&device.name)) || case.has_nvlink();
    match (forced, all, one_host && !nvlink) {
        (true, ..) => (
            "NCCL_PROTO forces LL128, which needs links that keep 128-byte stores whole; NCCL itself chooses it only where they do.",
            &[
                "Let NCCL choose: `unset NCCL_PROTO`, and run the test again: its last lines must say `Out of bounds values : 0 OK`",
            ],
        ),
        (_, true, true) => (
            "Every element of every size is wrong at normal speed, on GPUs that exchange over PCIe: so it is where an IOMMU or PCIe \
             access control (ACS) stands between them and copies from GPU to GPU end nowhere.",
            &[
                "See whether the copies are the cause: run once with `NCCL_P2P_DISABLE=1`; right results then prove it",
                "Set the IOMMU to pass through, or off, in the kernel's command line, and restart: `iommu=pt`, or `intel_iommu=off`, `amd_iommu=off`",
                "Turn ACS off on the PCIe bridges above the GPUs: `lspci -vvv | grep -i acsctl` shows `SrcValid+` where it is on",
            ],
        ),
        (_, true, _) => (
            "Every element of every size is wrong at normal speed: peer copies or RDMA writes that an IOMMU or PCIe access control (ACS) \
             sends elsewhere do that, a transport plugin that does not wait for its data, or a build of nccl-tests whose check does \
             not fit the NCCL that it runs with.",
            &[
                "Run on one host, then with `NCCL_NET_GDR_LEVEL=LOC`, then with `NCCL_P2P_DISABLE=1`: the first that is right names the path",
                "See whether IOMMU and ACS are off: `grep -o 'iommu[^ ]*' /proc/cmdline; lspci -vvv | grep -i acsctl`",
                "Build nccl-tests again, with the NCCL that the job loads: `make clean; make MPI=1`",
            ],
        ),
        _ => (
            "A part is wrong: a faulty GPU, NVLink or NIC, LL128 forced onto links that do not keep 128-byte stores whole, or a broken \
             transport plugin.",
            &[
                "Run without forced protocols and algorithms: `unset NCCL_PROTO NCCL_ALGO`; try the newest NCCL",
                "Halve the set of GPUs until one pair remains that fails; then look at its kernel log: `dmesg | grep -iE 'xid|nvlink|mlx5'`",
            ],
        ),
    }
}

fn is_wrong(row: &BenchRow) -> bool {
    row.halves().any(|m| matches!(m.check, Check::Wrong(count) if count > 0))
}

fn is_all_wrong(row: &BenchRow) -> bool {
    let all = |count: u64| row.count.is_some_and(|elements| count as f64 > 0.99 * elements as f64);
    row.halves().filter_map(|m| m.check.wrong()).filter(|count| *count > 0).all(all)
}

/// Tables that stop before bandwidth begins.
pub fn too_small(case: &Case) -> Vec<Finding> {
    let small = case.tests.iter().filter(|test| !test.curve.shows_bandwidth()).max_by_key(|test| test.curve.largest);
    let Some(test) = small.filter(|_| case.tests.iter().all(|t| !t.curve.shows_bandwidth())) else { return Vec::new() };
    vec![Finding {
        code: Code::OkAsExpected,
        severity: Severity::Info,
        confidence: 0.3,
        title: format!("Sizes up to {} say nothing about bandwidth", test.curve.largest),
        explanation: "So small, a collective's time is latency: launching kernels and passing the message from rank to rank. busbw \
                      grows with the size until the links are full, from some 16 MiB on and often only at 256 MiB and more."
            .into(),
        evidence: vec![Evidence::noted(test.curve.peak_row.source.clone(), "the largest busbw")],
        remedy: vec!["Measure larger sizes: `-b 8 -e 8G -f 2`".into()],
        expected_gain: None,
    }]
}
