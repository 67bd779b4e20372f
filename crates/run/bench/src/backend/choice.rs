//! Which backend carries a run: a flag says so, a variable, or what this host has.

use crate::flags::BackendName;
use crate::{Error, Flags, Result};
use busbw_gpu::cuda::Cuda;
use clap::ValueEnum as _;
use std::sync::Arc;

/// What chooses where no flag does.
const VARIABLE: &str = "BUSBW_BACKEND";

type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Flags {
    /// Settles the backend as far as it is asked for: by the flag, else by the variable, else `default`.
    pub fn choose_backend(&mut self, default: BackendName, variable: Variable<'_>) -> Result<()> {
        if self.backend.is_none() {
            self.backend = Some(by_variable(variable)?.unwrap_or(default));
        }
        Ok(())
    }

    /// Turns `auto` into what this host has. Returns the driver that it opened, and a remark for the user if it chose cores: the
    /// table of cores looks like one of GPUs.
    pub fn settle_backend(&mut self, variable: Variable<'_>) -> (Option<Arc<Cuda>>, Option<String>) {
        if self.backend != Some(BackendName::Auto) {
            return (None, None);
        }
        let driver = Cuda::open(variable);
        let why = driver.as_ref().map_or_else(no_gpu, |cuda| cuda.devices().err().as_ref().and_then(no_gpu));
        self.backend = Some(if why.is_some() { BackendName::Cpu } else { BackendName::Nccl });
        let remark = why.map(|why| {
            format!(
                "this measures CPU cores, not GPUs: {why}. Set {VARIABLE}=cpu to measure cores without this line, or nccl to fail"
            )
        });
        (driver.ok(), remark)
    }
}

fn by_variable(variable: Variable<'_>) -> Result<Option<BackendName>> {
    let Some(text) = variable(VARIABLE).filter(|text| !text.is_empty()) else { return Ok(None) };
    let wrong = |_| Error::Setting(format!("{VARIABLE}={text}: choose auto, cpu or nccl"));
    BackendName::from_str(&text, true).map(Some).map_err(wrong)
}

/// Why there is no GPU to measure. Any other error is one of a GPU that is there: NCCL's backend then tells it, and measures
/// nothing.
fn no_gpu(error: &busbw_gpu::Error) -> Option<String> {
    match error {
        busbw_gpu::Error::Missing { name, .. } => Some(format!("{name} is not here")),
        busbw_gpu::Error::Static { reason, .. } => Some((*reason).to_owned()),
        busbw_gpu::Error::NoGpu(_) => Some("the CUDA driver finds no GPU".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_counts_before_the_variable_and_that_before_the_name() {
        let chosen = |flag, variable: Option<&str>| {
            let mut flags = Flags { backend: flag, ..Flags::default() };
            let looked = |name: &str| (name == VARIABLE).then(|| variable.map(str::to_owned)).flatten();
            flags.choose_backend(BackendName::Auto, &looked).map(|()| flags.backend)
        };
        for (flag, variable, wanted) in [
            (None, None, BackendName::Auto),
            (None, Some(""), BackendName::Auto),
            (None, Some("CPU"), BackendName::Cpu),
            (None, Some("auto"), BackendName::Auto),
            (Some(BackendName::Cpu), Some("nccl"), BackendName::Cpu),
        ] {
            assert_eq!(chosen(flag, variable).unwrap(), Some(wanted), "{flag:?} {variable:?}");
        }
        let error = chosen(None, Some("gpu")).unwrap_err();
        assert_eq!((error.to_string().as_str(), error.status()), ("BUSBW_BACKEND=gpu: choose auto, cpu or nccl", 2));
    }

    #[test]
    fn a_gpu_that_fails_is_a_gpu() {
        let fails = busbw_gpu::Error::Unusable { path: "x".into(), reason: "y".into(), remedy: "z" };
        assert_eq!(no_gpu(&fails), None);
        let none = busbw_gpu::Error::NoGpu("none".into());
        assert_eq!(no_gpu(&none).as_deref(), Some("the CUDA driver finds no GPU"));
    }
}
