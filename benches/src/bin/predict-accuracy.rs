//! `predict-accuracy`: predictions beside published measurements, and the constants fitted anew.

use busbw_benches::accuracy::{
    Start, Status, bands, calibrations, choices, compare, figures, fit, left_out, load, print_bands,
    print_calibrations, print_report, scatter,
};
use busbw_benches::program;
use busbw_benches::results::{place, record};
use busbw_predict::Constants;
use clap::Parser;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Hold predictions against published measurements.
///
/// Without flags: a line per table and the goals. Run it from the repository's root.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Tables: a .toml and a .csv each.
    #[arg(long, value_name = "DIR", default_value = "tests/data/tables")]
    tables: PathBuf,
    /// Constants to use instead of those that busbw is built with.
    #[arg(long, value_name = "FILE")]
    constants: Option<PathBuf>,
    /// Fit the measured constants anew and print them.
    #[arg(long)]
    fit: bool,
    /// Predict each good table with constants fitted without its publisher's tables.
    #[arg(long, conflicts_with = "fit")]
    left_out: bool,
    /// Rounds of a fit.
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// Write a plot of predicted against measured times of the good tables.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Hold the choice of algorithm and protocol against NCCL's own, instead: a folder with choices.csv, and per cluster a
    /// description and a log.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["fit", "left_out", "plot"])]
    choices: Option<PathBuf>,
    /// Hold predictions against single published figures, instead: a file of them.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fit", "left_out", "plot", "choices"])]
    figures: Option<PathBuf>,
    /// Calibrate with one table of a machine and predict its others, instead: a file of machines. The result is recorded.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fit", "left_out", "plot", "choices", "figures"])]
    calibrated: Option<PathBuf>,
    /// The result file of --calibrated [default: benches/results/predict-calibrated-DATE.json].
    #[arg(long, value_name = "FILE", requires = "calibrated")]
    out: Option<PathBuf>,
    /// Write a plot of measured over predicted times by size, with the bands that nine of ten should lie in.
    #[arg(long, value_name = "FILE", requires = "left_out")]
    plot_bands: Option<PathBuf>,
    /// Print every row.
    #[arg(long)]
    rows: bool,
}

fn main() -> ExitCode {
    program::exit(env!("CARGO_BIN_NAME"), run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<(), String> {
    if let Some(folder) = &arguments.choices {
        return print_choices(folder);
    }
    if let Some(file) = &arguments.figures {
        print!("{}", figures(file)?.1);
        return Ok(());
    }
    let measurements = load(&arguments.tables).map_err(|e| e.to_string())?;
    if let Some(file) = &arguments.calibrated {
        let found = calibrations(file, &measurements, arguments.rounds)?;
        print!("{}", print_calibrations(&found));
        let path = place(arguments.out.as_deref(), "predict-calibrated", found.origin());
        println!("written to {}", record(path, &found, None).map_err(|e| e.to_string())?);
        return Ok(());
    }
    let text = constants(arguments.constants.as_deref())?;
    let mut constants = Constants::parse(&text).map_err(|e| e.to_string())?;
    if arguments.fit {
        let (fitted, values) =
            fit(&text, &measurements, arguments.rounds, Start::Values).ok_or("the constants cannot be read")?;
        for (name, value) in values {
            println!("{name} = {value:.3}");
        }
        constants = fitted;
    }
    let compared = if arguments.left_out {
        left_out(&text, &measurements, arguments.rounds).ok_or("the constants cannot be read")?
    } else {
        compare(&constants, &measurements)
    };
    if arguments.rows {
        for one in &compared {
            println!("{}", one.name);
            for ((size, measured), row) in one.measured.iter().zip(&one.predicted.rows) {
                let off = 100.0 * (row.time.0 / measured.0 - 1.0);
                println!(
                    "  {:>9} {:>10.1} {:>10.1} {off:+5.0}%  {}/{}",
                    size.to_string(),
                    measured.0,
                    row.time.0,
                    row.algorithm,
                    row.protocol
                );
            }
        }
    }
    print!("{}", print_report(&compared));
    if arguments.left_out {
        print!("{}", print_bands(&compared));
    }
    if let Some(path) = &arguments.plot_bands {
        let picture = bands(&compared, "Measured over predicted times of unseen publishers, by size");
        std::fs::write(path, picture).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    if let Some(path) = &arguments.plot {
        let picture = scatter(&compared, Status::Good, "Predicted against measured times");
        std::fs::write(path, picture).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

fn constants(path: Option<&Path>) -> Result<String, String> {
    let Some(path) = path else { return Ok(Constants::text().to_owned()) };
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn print_choices(folder: &Path) -> Result<(), String> {
    let (sums, text) = choices(folder)?;
    print!("{text}");
    for (sum, from) in sums.iter().zip(["descriptions", "logs"]) {
        let share = |agreed: usize| 100.0 * agreed as f64 / sum.of.max(1) as f64;
        let (both, algorithm) = (share(sum.both), share(sum.algorithm));
        println!("from {from}: {both:.1}% of {} choices agree with NCCL's, {algorithm:.1}% in the algorithm", sum.of);
    }
    Ok(())
}
