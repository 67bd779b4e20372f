//! Variables that communication libraries read, from the environment and from NCCL's own files.

use crate::Root;
use std::collections::BTreeMap;

const PREFIXES: [&str; 5] = ["NCCL_", "UCX_", "OMPI_MCA_", "FI_", "IBV_"];
const NAMES: [&str; 4] = ["CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS"];

/// What mpirun tells its own ranks in the same form: nobody chose it (seen with Open MPI 4.1).
const OF_MPIRUN: [&str; 7] = [
    "OMPI_MCA_ess",
    "OMPI_MCA_orte_",
    "OMPI_MCA_pmix",
    "OMPI_MCA_initial_wdir",
    "OMPI_MCA_mpi_oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe",
    "OMPI_MCA_shmem_RUNTIME_QUERY_hint",
];

pub(super) fn collect(root: &Root) -> BTreeMap<String, String> {
    let mut found: BTreeMap<String, String> = process(root).into_iter().filter(|(name, _)| wanted(name)).collect();
    // NCCL sets what its files say unless the environment has it (`initEnv` in src/misc/param.cc).
    for (name, value) in root.value("/etc/nccl.conf").iter().flat_map(|text| file(text)) {
        found.entry(name).or_insert(value);
    }
    found
}

fn wanted(name: &str) -> bool {
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    (begins(&PREFIXES) && !begins(&OF_MPIRUN)) || NAMES.contains(&name)
}

pub(super) fn process(root: &Root) -> Vec<(String, String)> {
    if root.is_live() {
        let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        return std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
    }
    let bytes = root.value("/proc/self/environ").unwrap_or_default();
    bytes.split('\0').filter_map(pair).collect()
}

/// Lines `NAME=VALUE`; what begins with `#` is none.
fn file(text: &str) -> Vec<(String, String)> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.starts_with('#'))
        .filter_map(pair)
        .filter(|(name, _)| wanted(name))
        .collect()
}

fn pair(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    Some((name.trim().to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_chose_is_kept_and_what_mpirun_tells_its_ranks_is_not() {
        for (name, kept) in [
            ("NCCL_ALGO", true),
            ("OMPI_MCA_btl", true),
            ("OMPI_MCA_btl_tcp_if_include", true),
            ("OMPI_MCA_ess_base_jobid", false),
            ("OMPI_MCA_orte_hnp_uri", false),
            ("OMPI_MCA_pmix", false),
            ("CUDA_VISIBLE_DEVICES", true),
            ("HOME", false),
        ] {
            assert_eq!(wanted(name), kept, "{name}");
        }
    }
}
