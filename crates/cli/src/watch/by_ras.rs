//! `busbw watch --ras`: what NCCL's RAS tells of a job, from any host that reaches it.

use super::{Watch, folder, host_name, judge, shown_in};
use crate::output::Refusal;
use busbw_monitor::Stop;
use busbw_watch::session::say;
use busbw_watch::{Progress, Standstill, ras};
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// RAS asks all processes of the job each time.
const LEAST: Duration = Duration::from_secs(5);

pub fn run(flags: &Watch, address: &str) -> Result<ExitCode, Refusal> {
    if flags.sampling.prometheus.is_some() {
        return Err("--prometheus serves what is seen of processes; add --attach".to_owned().into());
    }
    let address = ras::address(address);
    let folder = folder(flags, &host_name())?;
    let mut out = shown_in(flags)?;
    let mut stop = Stop::on_signals().map_err(|error| error.to_string())?;
    let (mut standstill, mut before, mut told) = (Standstill::new(flags.stall), None, false);
    let mut last: Option<Instant> = None;
    loop {
        let asked = match (ras::ask(&address), last) {
            (Ok(text), _) => text,
            // A job that ended while it was looked at.
            (Err(error), Some(_)) => {
                say(&format!("{error}: the job has ended, or this process of it"));
                return Ok(ExitCode::from(u8::from(told)));
            }
            (Err(error), None) => return Err(error.to_string().into()),
        };
        let Some(report) = ras::read(&asked) else {
            return Err(format!("{address} answers like RAS, but its status is none that busbw reads").into());
        };
        let now = ras::progress(&report);
        let progress = if now.is_none() || now != before { Progress::Moved } else { Progress::Still };
        let passed = last.map_or(Duration::ZERO, |last| last.elapsed());
        last = Some(Instant::now());
        standstill.feed(progress, passed, busbw_probe::counters::now_us());
        before = now;
        let line = if flags.output.is_json() { asked.clone() } else { ras::summary(&report) };
        if !flags.quiet.quiet && writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
            break;
        }
        if standstill.is_over() != told {
            told = standstill.is_over();
            folder.write("ras.txt", asked.as_bytes()).map_err(|error| error.to_string())?;
            match told.then(|| judge(folder.path())) {
                Some(Ok(answer)) => {
                    let line = answer.line.unwrap_or_else(|| "no collective is launched any more".into());
                    say(&format!("{line}. Page: {}", answer.page));
                }
                Some(Err(error)) => say(&error),
                None => say("collectives are launched again: that was no hang"),
            }
        }
        if flags.sampling.once || stop.wait(flags.sampling.interval.max(LEAST)) {
            break;
        }
    }
    Ok(ExitCode::from(u8::from(told)))
}
