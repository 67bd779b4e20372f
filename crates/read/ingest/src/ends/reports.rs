//! Reports on a whole job: mails of batch systems, accounts of a job, what ran a program and holds all that it printed. They stand in front of the
//! job's output or behind it.

use super::codes::{by_failure, by_signal, by_status, shell_signal};
use super::jobs::by_state;
use crate::cursor::finder;
use crate::text::{is_number, leading, part_digits, parted};
use busbw_model::{EndTeller, Ended, RankEnd};

/// What a line of one shows, without indent: how the job ended, and its number where the line has it.
pub(super) fn read(line: &str) -> Option<RankEnd> {
    type Form = fn(&str) -> Option<(Ended, &str)>;
    const FORMS: [Form; 5] = [lsf, slurm_mail, slurm_account, grid, subprocess];
    let line = line.trim_end();
    let (how, job) = FORMS.iter().find_map(|form| form(line))?;
    let command = Some(job).filter(|job| !job.is_empty()).map(str::to_string);
    Some(RankEnd { told_by: EndTeller::Report, command, ..RankEnd::of(how) })
}

/// LSF: `Successfully completed.`, `Exited with exit code 1.`, `Exited with signal termination: Killed, and core dumped.`, `TERM_MEMLIMIT: job killed after reaching LSF memory usage
/// limit.`
fn lsf(line: &str) -> Option<(Ended, &str)> {
    if let Some((reason, _)) = line.strip_prefix("TERM_").and_then(|rest| rest.split_once(": job killed ")) {
        let by = if reason == "RUNLIMIT" { "LSF: time limit" } else { "LSF" };
        let how =
            if reason == "MEMLIMIT" { Ended::Killed("Out Of Memory".into()) } else { Ended::Interrupted(by.into()) };
        return Some((how, ""));
    }
    if line == "Successfully completed." {
        return Some((Ended::Success, ""));
    }
    if let Some(code) = line.strip_prefix("Exited with exit code ") {
        let is_whole = matches!(part_digits(code).1, "" | ".");
        return by_failure(code).filter(|_| is_whole).map(|how| (how, ""));
    }
    let said = line.strip_prefix("Exited with signal termination: ")?;
    let name = said.split([',', '.']).next()?;
    let number = leading(name).or_else(|| shell_signal(name).map(|(_, number, _)| number));
    Some((number.map_or(Ended::Exit(None), |number| by_signal(number, &format!("signal {number}"))), ""))
}

/// Slurm's mail: `Slurm Job_id=4471 Name=bench Failed, Run time 00:03:21, FAILED, ExitCode 1` (`src/slurmctld/agent.c`, `mail_job_info`).
fn slurm_mail(line: &str) -> Option<(Ended, &str)> {
    let line = line.strip_prefix("Subject: ").unwrap_or(line);
    let (head, rest) = parted(line, finder!(b"Job_id="))?;
    head.get(..5).filter(|name| name.eq_ignore_ascii_case("slurm"))?;
    let (_, code) = rest.split_once(", ExitCode ").unwrap_or(("", ""));
    let how = rest.split(", ").find_map(|state| by_state(state, code, ""))?;
    Some((how, part_digits(rest).0))
}

/// Slurm's seff: `State: FAILED (exit code 1)`.
fn slurm_account(line: &str) -> Option<(Ended, &str)> {
    let (state, code) = line.strip_prefix("State: ")?.split_once(" (exit code ")?;
    Some((by_state(state, code, "")?, ""))
}

/// PBS's `Exit_status = 137` (`qstat -xf`) and `Exit_status=137` (its mail), Grid Engine's `exit_status  137   (Killed)` (`qacct -j`).
fn grid(line: &str) -> Option<(Ended, &str)> {
    let code = line.strip_prefix("Exit_status").or_else(|| line.strip_prefix("exit_status "))?;
    let code = code.trim_start_matches([' ', '=']).split(' ').next()?;
    by_status(code).filter(|_| is_number(code)).map(|how| (how, ""))
}

/// Python of a program that it ran: `CompletedProcess(args=['torchrun', 'fit.py'], returncode=1, stdout=…`.
fn subprocess(line: &str) -> Option<(Ended, &str)> {
    let (_, result) = parted(line, finder!(b"CompletedProcess(args="))?;
    let (_, code) = result.split_once("returncode=")?;
    by_status(code).map(|how| (how, ""))
}
