//! A token and ports for jobs whose launcher has no key-value store: they follow from what every process of the job knows.

use crate::Lookup;
use busbw_transport::Token;
use sha2::{Digest, Sha256};

/// What the processes of a torchrun job share, and those of another job do not.
pub(crate) const TORCHRUN: &[&str] =
    &["TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "WORLD_SIZE"];

/// What the tasks of a Slurm step share. Not SLURM_SRUN_COMM_PORT and SLURM_SRUN_COMM_HOST: srun listens on several ports
/// for steps of many nodes, and each task sees that of its node (Slurm's slurmstepd_job.c).
pub(crate) const SLURM: &[&str] = &[
    "SLURM_CLUSTER_NAME",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_JOB_UID",
    "SLURM_JOB_START_TIME",
    "SLURM_STEP_LAUNCHER_PORT",
    "SLURM_STEP_NODELIST",
    "SLURM_STEP_NUM_TASKS",
];

/// Below the ports that Linux hands out by itself (from 32768), above those that services like.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// How many ports rank 0 may choose from.
const CANDIDATES: usize = 16;

/// The job's token: a hash of the values of `names`.
///
/// It keeps jobs apart; it is no secret from those who can read the job's variables.
pub(crate) fn token(look: Lookup, names: &[&str]) -> Token {
    let mut hash = Sha256::new();
    for name in names {
        // A value's end must not be taken for the next one's beginning.
        hash.update(format!("{name}={:?};", look(name)));
    }
    Token::from_bytes(first_bytes(hash))
}

/// The ports that rank 0 of the job with this token may listen on, in the order of trying; all different.
pub(crate) fn ports(token: &Token) -> Vec<u16> {
    let mut ports: Vec<u16> = Vec::with_capacity(CANDIDATES);
    for round in 0u32.. {
        let mut hash = Sha256::new();
        hash.update(token.as_bytes());
        hash.update(b"port");
        hash.update(round.to_le_bytes());
        let number = u64::from_le_bytes(first_bytes(hash));
        let port = PORTS.start + (number % PORTS.len() as u64) as u16;
        if !ports.contains(&port) {
            ports.push(port);
        }
        if ports.len() == CANDIDATES {
            break;
        }
    }
    ports
}

/// A number that stands for `text`.
pub(crate) fn number(text: &str) -> u64 {
    let mut hash = Sha256::new();
    hash.update(text);
    u64::from_le_bytes(first_bytes(hash))
}

fn first_bytes<const N: usize>(hash: Sha256) -> [u8; N] {
    let bytes = hash.finalize();
    std::array::from_fn(|i| bytes[i])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_for_the_ranks_of_a_job_and_different_for_another() {
        let job = |restart: &'static str| {
            token(&move |name| (name == "TORCHELASTIC_RESTART_COUNT").then(|| restart.to_owned()), TORCHRUN)
        };
        assert!(job("0").matches(job("0").as_bytes()));
        assert!(!job("0").matches(job("1").as_bytes()));
    }

    #[test]
    fn ports_are_sixteen_different_ones_that_linux_does_not_hand_out() {
        for byte in 0..=255 {
            let ports = ports(&Token::from_bytes([byte; 16]));
            let different: std::collections::HashSet<_> = ports.iter().collect();
            assert_eq!((ports.len(), different.len()), (CANDIDATES, CANDIDATES));
            assert!(ports.iter().all(|port| PORTS.contains(port)));
        }
    }
}
