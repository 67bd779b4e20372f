//! `busbw doctor`: checks and measures this machine, or several hosts, then explains what it measured with all that the check found.

mod cluster;
mod here;
mod parts;

use crate::cli::Doctor;
use crate::output::Refusal;
use crate::{explain, output, rules};
use busbw_launch::JobRank;
use busbw_launch::relay::Relay;
use busbw_model::{Diagnosis, Run};
use busbw_report::json;
use parts::Parts;
use std::path::Path;
use std::process::ExitCode;

/// Runs the subcommand: here, on the hosts that are named, or on those of the job that this process is a rank of.
pub fn run(flags: &Doctor) -> Result<ExitCode, Refusal> {
    let book = rules::book(flags.rules.files())?;
    let look = |name: &str| std::env::var(name).ok();
    let job_rank = JobRank::detect(&look)?;
    match (flags.named(), job_rank.size) {
        (Some(list), 1) => cluster::run(flags, &book, Parts::on(&list)?),
        (Some(_), _) => Err(format!("the {} ranks of this job have hosts: leave --hosts away", job_rank.size).into()),
        (None, 1) => Ok(here::run(flags, &book)?),
        (None, _) => {
            let relay = Relay::join(&job_rank, &look, "doctor".into())?;
            if job_rank.rank > 0 {
                return Ok(ExitCode::from(u8::try_from(relay.obey()?).unwrap_or(1)));
            }
            cluster::run(flags, &book, Parts::of(relay))
        }
    }
}

/// Where the report is, as JSON, unless the flags say where JSON goes.
const REPORT: &str = "busbw-report.json";

/// Gives the answer, without the tables where they have been printed while they grew, and keeps the whole as a report.
fn answer(flags: &Doctor, mut run: Run, diagnosis: &Diagnosis) -> Result<(), String> {
    let (is_json, file) = (flags.output.is_json(), flags.output.file());
    let printed = if flags.shows() && file.is_none() { std::mem::take(&mut run.tables) } else { Vec::new() };
    let answered = explain::answer(&flags.output, &flags.screen.style(file), &run, diagnosis, None, false);
    // Also where nobody can read the answer: the terminal may be closed.
    run.tables.extend(printed);
    if !is_json {
        let report = flags.output.json_file().unwrap_or(Path::new(REPORT));
        output::write(Some(report), |out| json::write_explain(&run, diagnosis, out))?;
        answered?;
        if let Some(file) = file {
            explain::tell(diagnosis, file);
        }
        output::say(format_args!("the report is also in {}", report.display()));
        return Ok(());
    }
    answered
}
