//! How long a run was silent before somebody stopped it: by the times that stand in its lines.

use crate::progress::{loop_of, step};
use crate::times;
use busbw_model::{RankEnd, Run, SourceLine};
use std::fmt::{self, Display};
use time::{Duration, PrimitiveDateTime};

/// Hardly ever does a hang begin so short before the end.
const SHORT: Duration = Duration::minutes(2);
/// As long as this no step of a loop is waited for that took as long at its beginning, or less.
const LEAST: Duration = Duration::seconds(10);
const STEPS: i32 = 3;

/// The time between the last line of any rank and a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Silence {
    time: Duration,
    /// The last line is a step of the program's loop, and the next one was not overdue.
    after_step: bool,
}

impl Silence {
    /// None where a line lacks its time, or ranks and batch system have clocks of different zones, so that ranks spoke behind the stop.
    pub fn before(stop: &RankEnd, run: &Run) -> Option<Silence> {
        let stopped = time_of_stop(&stop.source.text)?;
        let times = run.outputs.iter().filter_map(|output| Some((time_in(&output.last.text)?, &output.last)));
        let (last, line) = times.max_by_key(|(time, line)| (*time, line.place))?;
        let time = stopped - last;
        let is_step = run.steps.contains(&line.place) && step(&line.text).is_some();
        let after_step = is_step && time <= pace(run, &line.text).map_or(SHORT, |pace| LEAST.max(pace * STEPS));
        (!time.is_negative()).then_some(Silence { time, after_step })
    }

    /// Whether the program's loop went on until the stop.
    pub fn is_of_a_step(self) -> bool {
        self.after_step
    }
}

/// The last line of a run's output, where it counts a step of a training.
pub(crate) fn last_step(run: &Run) -> Option<&SourceLine> {
    let last = run.outputs.iter().map(|output| &output.last).max_by_key(|line| line.place)?;
    (run.steps.contains(&last.place) && step(&last.text).is_some()).then_some(last)
}

/// How long the loop of a line took from one line to the next at its beginning, which is kept.
fn pace(run: &Run, line: &str) -> Option<Duration> {
    let of_loop = loop_of(line);
    let alike = run.statements.iter().filter(|one| loop_of(&one.source.text) == of_loop);
    let times: Vec<_> = alike.filter_map(|one| time_in(&one.source.text)).collect();
    times.windows(2).map(|two| two[1] - two[0]).filter(|gap| !gap.is_negative()).max()
}

impl Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.time {
            short if short <= SHORT => write!(f, "{} s", short.whole_seconds()),
            minutes if minutes < Duration::hours(2) => write!(f, "{} min", minutes.whole_minutes()),
            hours => write!(f, "{} h", hours.whole_hours()),
        }
    }
}

/// `… CANCELLED AT 2026-11-02T03:11:10 …`: the clock of the batch system.
fn time_of_stop(line: &str) -> Option<PrimitiveDateTime> {
    let behind = line.match_indices("20").map(|(at, _)| &line[at..]);
    behind.filter_map(times::leading).map(|(time, _)| time).last()
}

/// The time of a line. None where a zone stands behind it, which is hardly that of the batch system.
fn time_in(line: &str) -> Option<PrimitiveDateTime> {
    times::of(line).filter(|dated| !dated.has_zone).map(|dated| dated.time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use busbw_model::{Ended, RankOutput, SourceLine};

    fn silence(last: &[&str], stop: &str) -> Option<String> {
        let said = |text: &str| SourceLine { text: text.into(), ..SourceLine::default() };
        let output = |text: &&str| RankOutput { rank: None, local: None, host: None, last: said(text) };
        let run = Run { outputs: last.iter().map(output).collect(), ..Run::default() };
        let stop = RankEnd { source: said(stop), ..RankEnd::of(Ended::Interrupted("Slurm: time limit".into())) };
        Silence::before(&stop, &run).map(|silence| silence.to_string())
    }

    #[test]
    fn the_last_rank_that_spoke_counts() {
        const STOP: &str =
            "slurmstepd: error: *** JOB 4711 ON n1 CANCELLED AT 2026-11-02T03:11:10 DUE TO TIME LIMIT ***";
        let early = "[2026-11-02 03:08:07,123] step 190";
        for (last, expected) in [
            (&[early, "[rank3]: 2026/11/02 03:11:00 INFO step 191"][..], Some("10 s")),
            (&[early, "step 191"][..], Some("3 min")),
            (&["2026-11-01T22:11:10.5 INFO step 7"][..], Some("5 h")),
            (&["2026-11-01T22:11:10.5Z INFO step 7"][..], None),
            (&["step 7, ends at 2026-11-02 03:09:08"][..], None),
            (&["2026-11-02T08:00:00 [2026-11-01 22:11:10,500] step 7"][..], Some("5 h")),
            (&["2026-11-02 04:11:00 step 7"][..], None),
            (&["step 191 of 2026-11"][..], None),
        ] {
            assert_eq!(silence(last, STOP).as_deref(), expected, "{last:?}");
        }
    }
}
