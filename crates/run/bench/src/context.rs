//! How the benchmark was called: what it shows of that, and what it takes from the environment.

use crate::{Error, Result};
use busbw_model::Collective;
use std::time::SystemTime;

/// How the benchmark was called.
#[derive(Debug, Clone)]
pub struct Context {
    /// The program's name as nccl-tests has it, above and below the table: `all_reduce_perf`.
    pub program: String,
    /// The command line, as a program of nccl-tests would have got it: its name, then flags only. Goes into the JSON.
    pub argv: Vec<String>,
    /// The environment, as `NAME` and value. Of it, the JSON holds what [`Context::recorded_env`] lets through.
    pub env: Vec<(String, String)>,
    pub start: SystemTime,
}

/// Prefixes of variables that show how a run was set up.
const RECORDED: [&str; 5] = ["NCCL_", "BUSBW_", "OMPI_", "SLURM_", "PMI"];
/// Words in names of variables that hold what others must not read.
const SECRET: [&str; 8] = ["TOKEN", "SECRET", "PASS", "KEY", "JWT", "COOKIE", "CREDENTIAL", "AUTH"];

impl Context {
    /// Of this process, for a collective. A subcommand in front of the flags (`busbw bench all_reduce -b 8`) is left
    /// out of the command line.
    pub fn of_process(collective: Collective) -> Self {
        let argv = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned());
        let env = std::env::vars_os();
        let env = env.map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()));
        Context::new(collective, argv.collect(), env.collect(), SystemTime::now())
    }

    /// From a command line as this process got it.
    pub fn new(collective: Collective, argv: Vec<String>, env: Vec<(String, String)>, start: SystemTime) -> Self {
        if let Some((path, _)) = crate::flags::called_program(&argv) {
            let program = path.rsplit('/').next().unwrap_or(path).to_string();
            return Context { program, argv, env, start };
        }
        let program = format!("{collective}_perf");
        let mut flags = argv.into_iter().skip(1).peekable();
        let is_subcommand = |word: &String| word == "bench" || *word == program || word == collective.name();
        while flags.next_if(is_subcommand).is_some() {}
        Context { argv: std::iter::once(program.clone()).chain(flags).collect(), program, env, start }
    }

    pub fn variable(&self, name: &str) -> Option<&str> {
        self.env.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The variables that the JSON holds, as `NAME=value`: only those that begin with `NCCL_`, `BUSBW_`, `OMPI_`,
    /// `SLURM_` or `PMI` (also `PMIX_`), and of those none whose name speaks of a token, a secret, a password, a key,
    /// a cookie, a credential or authentication: the job's token and Slurm's `SLURM_JWT` are not written. nccl-tests
    /// writes all.
    pub fn recorded_env(&self) -> Vec<String> {
        let is_recorded = |name: &str| RECORDED.iter().any(|prefix| name.starts_with(prefix));
        let is_secret = |name: &str| SECRET.iter().any(|word| name.to_ascii_uppercase().contains(word));
        let shown = self.env.iter().filter(|(name, _)| is_recorded(name) && !is_secret(name));
        shown.map(|(name, value)| format!("{name}={value}")).collect()
    }

    /// `NCCL_TESTS_MIN_BW`: the average busbw in GB/s that the run must reach, within 10%.
    pub fn least_busbw(&self) -> Result<Option<f64>> {
        let Some(text) = self.variable("NCCL_TESTS_MIN_BW") else { return Ok(None) };
        let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
        let wrong =
            || Error::Setting(format!("NCCL_TESTS_MIN_BW={text}: a bandwidth in GB/s such as 45.5 is expected"));
        number.map(Some).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(argv: &str, env: &[(&str, &str)]) -> Context {
        let env = env.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let argv = argv.split(' ').map(str::to_string).collect();
        Context::new(Collective::AllReduce, argv, env, SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn the_command_line_is_as_nccl_tests_would_have_got_it() {
        for (argv, program, shown) in [
            ("build/all_reduce_perf_mpi -b 8", "all_reduce_perf_mpi", "build/all_reduce_perf_mpi -b 8"),
            ("busbw bench all_reduce -b 8", "all_reduce_perf", "all_reduce_perf -b 8"),
            ("/bin/busbw bench all_reduce_perf", "all_reduce_perf", "all_reduce_perf"),
            // A rank that a link has started, whose file is a copy.
            ("/bin/all_gather_perf bench all_reduce -b 8", "all_reduce_perf", "all_reduce_perf -b 8"),
        ] {
            let context = context(argv, &[]);
            assert_eq!((context.program.as_str(), context.argv.join(" ")), (program, shown.to_string()));
        }
    }

    #[test]
    fn secrets_stay_out() {
        let names = [
            "NCCL_DEBUG",
            "HOME",
            "SLURM_JWT",
            "BUSBW_TOKEN",
            "PMIX_RANK",
            "OMPI_MCA_x",
            "NCCL_API_key",
            "AWS_SECRET",
            "SLURM_NODELIST",
        ];
        let pairs: Vec<_> = names.iter().map(|name| (*name, "v")).collect();
        let shown = context("busbw", &pairs).recorded_env();
        assert_eq!(shown, ["NCCL_DEBUG=v", "PMIX_RANK=v", "OMPI_MCA_x=v", "SLURM_NODELIST=v"]);
    }

    #[test]
    fn the_least_bandwidth_is_a_number() {
        assert_eq!(context("busbw", &[]).least_busbw().unwrap(), None);
        assert_eq!(context("busbw", &[("NCCL_TESTS_MIN_BW", " 3.5 ")]).least_busbw().unwrap(), Some(3.5));
        assert!(context("busbw", &[("NCCL_TESTS_MIN_BW", "fast")]).least_busbw().is_err());
    }
}
