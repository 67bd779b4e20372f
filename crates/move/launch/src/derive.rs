//! What follows from what every process of a job knows: its name, the ports of its rank 0, and a token that is no secret.

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

/// What all ranks of a job know and nobody needs to be told: a hash of the values of some variables. It keeps jobs apart, and says
/// on which ports rank 0 may listen. It is no secret: whoever can guess or read the variables has it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Words([u8; 32]);

impl Words {
    pub(crate) fn of(look: Lookup, names: &[&str]) -> Words {
        let mut hash = Sha256::new();
        for name in names {
            // A value's end must not be taken for the next one's beginning.
            hash.update(format!("{name}={:?};", look(name)));
        }
        Words(first_bytes(hash))
    }

    /// Names the job, in 32 hexadecimal digits.
    pub fn name(&self) -> String {
        Token::from_bytes(self.first("name", 0)).to_string()
    }

    /// The token of a job that has no way to share a random one.
    pub(crate) fn token(&self) -> Token {
        Token::from_bytes(self.first("token", 0))
    }

    /// The ports that rank 0 of the job may listen on, in the order of trying; all different.
    pub(crate) fn ports(&self) -> Vec<u16> {
        let mut ports: Vec<u16> = Vec::with_capacity(CANDIDATES);
        for round in 0u32.. {
            let number = u64::from_le_bytes(self.first("port", round));
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

    fn first<const N: usize>(&self, purpose: &str, round: u32) -> [u8; N] {
        first_bytes(Sha256::new().chain_update(self.0).chain_update(purpose).chain_update(round.to_le_bytes()))
    }
}

impl std::fmt::Debug for Words {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
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
            Words::of(&move |name| (name == "TORCHELASTIC_RESTART_COUNT").then(|| restart.to_owned()), TORCHRUN)
        };
        assert_eq!(job("0"), job("0"));
        assert_ne!(job("0").name(), job("1").name());
        assert!(!job("0").token().matches(job("1").token().as_bytes()));
        // What names the job in public says nothing of its token.
        assert_ne!(job("0").name(), job("0").token().to_string());
    }

    #[test]
    fn ports_are_sixteen_different_ones_that_linux_does_not_hand_out() {
        for byte in 0..=255 {
            let ports = Words([byte; 32]).ports();
            let different: std::collections::HashSet<_> = ports.iter().collect();
            assert_eq!((ports.len(), different.len()), (CANDIDATES, CANDIDATES));
            assert!(ports.iter().all(|port| PORTS.contains(port)));
        }
    }
}
