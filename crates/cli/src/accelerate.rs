//! `busbw accelerate`: which way of averaging gradients pays on a network. The Python package answers.

use crate::output::Refusal;
use clap::Args;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

/// Estimate which gradient all-reduce is fastest on your network
///
/// Compares four all-reduces (plain, two-level, top-k, two-level with top-k) by the bytes that each sends between hosts
/// and within them, and prints the network speed below which each is faster. To train with one:
/// busbw.torch.accelerate(ddp) or `import busbw.horovod as hvd` (docs/ddp.md, docs/horovod.md). Needs the Python package
/// (`pip install .`) and PyTorch.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Accelerate {
    /// Hosts, gradients, speeds: the flags of python -m busbw.advisor
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "FLAGS")]
    flags: Vec<OsString>,
}

const EXAMPLES: &str = "Examples:
  busbw accelerate --hosts 2 --ranks-per-host 8 --gradients 528M --network-gbit 25
  busbw accelerate --hosts 16 --ranks-per-host 8 --gradients 26G --network-gbit 3200 --host-gbs 450
  python -m busbw.advisor --help              every flag
  python -m busbw.synthetic --model vgg16 --batch-size 128 --sweep    measure it instead

Exit status:
  0  compared
  2  bad usage
  77 not applicable: the Python package is not installed";

/// Whether the package and PyTorch are there. PyTorch takes seconds to import, which the advisor does anyway.
const PROBE: &str = "import busbw, importlib.util
if importlib.util.find_spec('torch') is None:
    raise ModuleNotFoundError(\"No module named 'torch'\")";

/// Becomes the package's advisor.
pub fn run(accelerate: &Accelerate) -> Result<ExitCode, Refusal> {
    let python = python();
    let mut probe = Command::new(&python);
    let found = probe.args(["-c", PROBE]).stdin(Stdio::null()).stderr(Stdio::piped()).output();
    let failure = match &found {
        Ok(output) if output.status.success() => {
            let error = Command::new(&python).args(["-m", "busbw.advisor"]).args(&accelerate.flags).exec();
            error.to_string()
        }
        Ok(output) => String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or("it does not start").to_owned(),
        Err(error) => error.to_string(),
    };
    Err(Refusal::missing(format!(
        "accelerate is in the Python package, which {} does not have ({failure}); \
         install it and PyTorch there: pip install '.[torch]' in busbw's folder",
        python.display()
    )))
}

/// The interpreter that this command was installed beside, else the first on the path.
fn python() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name("python3"));
    beside.filter(|python| python.exists()).unwrap_or_else(|| "python3".into())
}
