//! What somebody tried: "NCCL_P2P_DISABLE=1 works but is slow". Such a setting is an experiment whose outcome tells the
//! cause; it is not how the run was started.

use busbw_model::{EnvOrigin, EnvSetting, Run};

/// A setting that a sentence speaks of, and whether it helped.
pub struct Trial<'a> {
    /// The setting.
    pub setting: &'a EnvSetting,
    /// Whether the sentence says that it cures the trouble.
    pub helps: bool,
}

const HELPS: [&str; 35] = [
    "work",
    "works",
    "worked",
    "working",
    "succeed",
    "succeeds",
    "succeeded",
    "success",
    "successful",
    "successfully",
    "fix",
    "fixes",
    "fixed",
    "solve",
    "solves",
    "solved",
    "resolve",
    "resolves",
    "resolved",
    "help",
    "helps",
    "helped",
    "unless",
    "disappears",
    "disappear",
    "cures",
    "cured",
    "passes",
    "improves",
    "improved",
    "faster",
    "gone",
    "away",
    "fine",
    "workaround",
];
const FAILS: [&str; 10] = ["not", "still", "same", "fails", "failed", "hangs", "no", "neither", "didn't", "doesn't"];
/// Words of commands: what follows is how a run was started.
const COMMANDS: [&str; 9] = ["mpirun", "mpiexec", "srun", "torchrun", "docker", "export", "-x", "python", "--env"];

impl<'a> Trial<'a> {
    /// Every trial of a run.
    pub fn all(run: &'a Run) -> Vec<Self> {
        let settings = run.nccl.env.iter().filter(|setting| setting.origin == EnvOrigin::CommandLine);
        settings.filter_map(Trial::read).collect()
    }

    fn read(setting: &'a EnvSetting) -> Option<Self> {
        let text = &*setting.source.text;
        let clauses = text.split([';', '.']).filter(|clause| clause.contains(&setting.name));
        let clause = clauses.max_by_key(|clause| clause.len())?;
        let words: Vec<String> = clause
            .split(|c: char| c.is_whitespace() || matches!(c, ',' | '(' | ')' | ':' | '!' | '`' | '"'))
            .map(str::to_lowercase)
            .collect();
        let any = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
        if any(&COMMANDS) || text.trim_start().starts_with(['$', '#']) {
            return None;
        }
        let (helps, fails) = (any(&HELPS), any(&FAILS));
        (helps || fails).then_some(Trial { setting, helps: helps && !fails })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_trials_and_commands_are_not() {
        let cases = [
            ("with NCCL_P2P_DISABLE=1 the hang is gone", Some(true)),
            ("runs with NCCL_NET_GDR_LEVEL=0 succeed", Some(true)),
            ("NCCL_IB_DISABLE=1: same error", Some(false)),
            ("it is slow unless NCCL_NET_GDR_LEVEL=SYS is set", Some(true)),
            ("Workaround: NCCL_P2P_DISABLE=1", Some(true)),
            ("mpirun -x NCCL_IB_DISABLE=1 /work/all_reduce_perf", None),
            ("export NCCL_P2P_DISABLE=1", None),
            ("NCCL_IB_HCA=mlx5_0:1,mlx5_1:1 NCCL_IB_GID_INDEX=3", None),
        ];
        for (line, helps) in cases {
            let run = busbw_ingest::read_bytes(&[("note.txt", line.as_bytes())]).expect("text");
            let trials = Trial::all(&run);
            assert_eq!(trials.first().map(|trial| trial.helps), helps, "{line}");
        }
    }
}
