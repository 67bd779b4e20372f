//! The best setting in forms that programs take: environment, `nccl.conf`, command lines, NCCL's example tuner plugin.

use crate::runner::{Launcher, Workload};
use crate::space::Setting;
use busbw_model::text::clean_line;
use busbw_model::{Bytes, Collective};

/// A file for `source` or `env -S`: a line `export NAME=VALUE` each; where nothing is to be set, why.
pub fn environment(setting: &Setting, why: &str) -> String {
    let line = |(name, value): &(String, String)| format!("export {name}={}\n", quoted(value));
    header("settings found by busbw tune; source this file", setting, why) + &lines(setting, line)
}

/// The file `/etc/nccl.conf` or `~/.nccl.conf`, which holds variables of NCCL's only (NCCL's documentation, "Environment
/// variables").
pub fn nccl_conf(setting: &Setting, why: &str) -> String {
    let line = |(name, value): &(String, String)| {
        if name.starts_with("NCCL_") {
            format!("{name}={value}\n")
        } else {
            format!("# not of NCCL's: {name}={value}\n")
        }
    };
    header("settings found by busbw tune; for /etc/nccl.conf or ~/.nccl.conf", setting, why) + &lines(setting, line)
}

/// Command lines that run the workload under the setting: with mpirun and as a Slurm job, or as it is where it starts ranks by
/// itself.
pub fn command_lines(workload: &Workload, setting: &Setting) -> String {
    let words: Vec<String> = workload.words_for(setting).iter().map(|word| quoted(word)).collect();
    let here = words.join(" ");
    let assign = |flag: &str| -> String {
        setting.assignments.iter().map(|(name, value)| format!("{flag}{name}={} ", quoted(value))).collect()
    };
    // A list of variables in --export cannot hold values with commas, as those of NCCL_IB_HCA are.
    let job = format!("{}sbatch --export=ALL --wrap={}\n", assign(""), quoted(&here));
    match workload.launcher() {
        Some(Launcher::Mpirun) => format!("{here}\n{job}"),
        Some(Launcher::Srun) => format!("{}{here}\n{job}", assign("")),
        None => format!("mpirun {}{here}\n{job}", assign("-x ")),
    }
}

/// For which operations a line of the tuner plugin's file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    pub collective: Collective,
    pub from: Bytes,
    pub to: Bytes,
    /// Nodes, where known.
    pub nodes: Option<u32>,
    /// Ranks, where known.
    pub ranks: Option<u32>,
}

/// The configuration of NCCL's example tuner plugin (NCCL, `plugins/tuner/example`): collective, sizes, algorithm, protocol,
/// channels, nodes, ranks, and -1 for any pipelining and registration. `None` where the setting chooses no algorithm or protocol,
/// or the collective is none that the plugin knows.
pub fn tuner_csv(setting: &Setting, scope: Scope) -> Option<String> {
    let collective = match scope.collective {
        Collective::AllReduce => "allreduce",
        Collective::AllGather => "allgather",
        Collective::ReduceScatter => "reducescatter",
        Collective::Broadcast => "broadcast",
        Collective::Reduce => "reduce",
        _ => return None,
    };
    let algorithm = match setting.value("NCCL_ALGO")?.to_ascii_lowercase().as_str() {
        "collnetdirect" => "collnet_direct".to_string(),
        "collnetchain" => "collnet_chain".to_string(),
        "nvlstree" => "nvls_tree".to_string(),
        other => other.to_string(),
    };
    let protocol = setting.value("NCCL_PROTO")?.to_ascii_lowercase();
    let any = |count: Option<u32>| count.map_or("-1".to_string(), |count| count.to_string());
    let fields = [
        collective,
        &scope.from.0.to_string(),
        &scope.to.0.to_string(),
        &algorithm,
        &protocol,
        setting.channels().unwrap_or("-1"),
    ];
    let line = format!("{},{},{},-1,-1\n", fields.join(","), any(scope.nodes), any(scope.ranks));
    Some(
        "# collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff\n".to_string()
            + &line,
    )
}

fn header(text: &str, setting: &Setting, why: &str) -> String {
    let none = if setting.is_default() { format!("# nothing to set: {}\n", clean_line(why)) } else { String::new() };
    format!("# {text}\n{none}")
}

fn lines(setting: &Setting, line: impl Fn(&(String, String)) -> String) -> String {
    setting.assignments.iter().map(line).collect()
}

/// A word as a shell takes it.
pub fn quoted(word: &str) -> String {
    // Words with a NUL, which no command line can hold, are shown without it.
    let word = word.replace('\0', "");
    shlex::try_quote(&word).map_or_else(|_| word.clone(), |quoted| quoted.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn setting(assignments: &[(&str, &str)]) -> Setting {
        Setting { assignments: assignments.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect() }
    }

    #[test]
    fn files_hold_the_setting() {
        let found = setting(&[("NCCL_SOCKET_NTHREADS", "8"), ("FLAGS", "a b")]);
        assert!(environment(&found, "").ends_with("export NCCL_SOCKET_NTHREADS=8\nexport FLAGS='a b'\n"));
        assert!(nccl_conf(&found, "").ends_with("NCCL_SOCKET_NTHREADS=8\n# not of NCCL's: FLAGS=a b\n"));
        let none = environment(&Setting::default(), "no setting is significantly better than the default");
        assert_eq!(none.lines().nth(1), Some("# nothing to set: no setting is significantly better than the default"));
        assert!(none.lines().all(|line| line.starts_with('#')), "{none}");
    }

    #[test]
    fn command_lines_start_ranks_once() {
        let found = setting(&[("NCCL_ALGO", "Ring")]);
        let lines = |command: &str| {
            let words = shlex::split(command).unwrap();
            command_lines(&Workload { words, limit: Duration::ZERO }, &found)
        };
        let first = |command: &str| lines(command).lines().next().unwrap().to_string();
        assert_eq!(first("train -v"), "mpirun -x NCCL_ALGO=Ring train -v");
        assert_eq!(first("mpirun -np 2 train"), "mpirun -x 'NCCL_ALGO=Ring' -np 2 train");
        assert_eq!(first("lab mpirun train"), "lab mpirun -x 'NCCL_ALGO=Ring' train");
        assert_eq!(first("srun -N 2 train"), "NCCL_ALGO=Ring srun -N 2 train");
        assert!(lines("train").ends_with("NCCL_ALGO=Ring sbatch --export=ALL --wrap=train\n"));
    }

    #[test]
    fn the_plugins_line_is_that_of_its_readme() {
        let scope = Scope {
            collective: Collective::AllReduce,
            from: Bytes(65537),
            to: Bytes(1048576),
            nodes: Some(4),
            ranks: Some(32),
        };
        let found = setting(&[("NCCL_ALGO", "Ring"), ("NCCL_PROTO", "Simple"), ("NCCL_MAX_NCHANNELS", "4")]);
        let csv = tuner_csv(&found, scope).unwrap();
        assert_eq!(csv.lines().last(), Some("allreduce,65537,1048576,ring,simple,4,4,32,-1,-1"));
        assert_eq!(tuner_csv(&setting(&[("NCCL_ALGO", "Ring")]), scope), None);
    }
}
