//! `bench-peers`: times `busbw bench` beside Open MPI, MPICH and Gloo, and says which goals are met.

use busbw_benches::peers::{Kit, Measured, Program, Report, SCENARIOS, cases, markdown, measure, summary};
use busbw_benches::program::{self, FileError, Outcome};
use busbw_benches::results::{place, record};
use busbw_model::Collective;
use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Time busbw's collectives beside those of Open MPI, MPICH and Gloo, in turn.
///
/// Run it from the repository's root, after scripts/setup-peers, on a machine that does nothing else. The scenarios
/// net-2, net-2-rate and net-2-flow need root.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// What to measure; may be given several times [default: everything].
    #[arg(long, value_name = "NAME", value_parser = SCENARIOS)]
    scenario: Vec<String>,
    /// Only this collective; may be given several times.
    #[arg(long, value_name = "NAME", value_parser = collective)]
    collective: Vec<Collective>,
    /// Measured rounds of everybody.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    repetitions: u16,
    /// The busbw to measure.
    #[arg(long, value_name = "PATH", default_value = "target/release/busbw")]
    busbw: PathBuf,
    /// Measure the peers only.
    #[arg(long)]
    only_peers: bool,
    /// Leave out this peer; may be given several times.
    #[arg(long, value_name = "PEER", value_parser = ["openmpi", "mpich", "gloo"])]
    without: Vec<String>,
    /// The Python that has PyTorch.
    #[arg(long, value_name = "PATH", default_value = "target/torch/bin/python")]
    python: PathBuf,
    /// Where scripts/setup-peers has put the peers' programs.
    #[arg(long, value_name = "FOLDER", default_value = "target/peers")]
    peers: PathBuf,
    /// The result file; the tables go beside it, as .md [default: benches/results/peers-DATE.json].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn collective(name: &str) -> Result<Collective, String> {
    Collective::from_name(name).ok_or_else(|| format!("{name} is no collective"))
}

fn main() -> ExitCode {
    program::exit(env!("CARGO_BIN_NAME"), run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Outcome<()> {
    let scratch = tempfile::tempdir()?;
    let kit = Kit {
        root: whole(Path::new("."))?,
        busbw: whole(&arguments.busbw)?,
        built: whole(&arguments.peers)?,
        python: whole(&arguments.python)?,
        scratch: scratch.path().to_path_buf(),
    };
    let programs = programs(arguments);
    for program in &programs {
        program.check(&kit)?;
    }
    let chosen = |name: &&str| arguments.scenario.is_empty() || arguments.scenario.iter().any(|wanted| wanted == name);
    let wanted = |collective| arguments.collective.is_empty() || arguments.collective.contains(&collective);
    let repetitions = usize::from(arguments.repetitions);
    let mut measured: Vec<Measured> = Vec::new();
    for case in SCENARIOS.into_iter().filter(chosen).flat_map(|scenario| cases(scenario, &programs)) {
        if wanted(case.collective) {
            measured.push(measure(case, &kit, repetitions, |step| eprintln!("{step}"))?);
        }
    }
    let report = Report::new(&measured, &kit, &programs, repetitions);
    print!("{}\n{}", markdown(&report), summary(&report));
    let path = place(arguments.out.as_deref(), "peers", &report.origin);
    println!("written to {}", record(path, &report, Some(markdown(&report)))?);
    Ok(())
}

fn programs(arguments: &Arguments) -> Vec<Program> {
    let peers = [("openmpi", Program::OpenMpi), ("mpich", Program::Mpich), ("gloo", Program::Gloo)];
    let peers = peers.into_iter().filter(|(name, _)| !arguments.without.iter().any(|without| without == name));
    let busbw = (!arguments.only_peers).then_some(Program::Busbw);
    busbw.into_iter().chain(peers.map(|(_, program)| program)).collect()
}

/// Hosts of the lab and ranks of a job run elsewhere than here. A Python's path must stay that of its environment.
fn whole(path: &Path) -> Result<PathBuf, FileError> {
    std::path::absolute(path).map_err(FileError::at(path))
}
