//! How long a run was silent before somebody stopped it: by the times that stand in its lines.

use busbw_model::{RankEnd, Run};
use std::fmt::{self, Display};
use time::macros::format_description;
use time::{Duration, PrimitiveDateTime};

/// Hardly ever does a hang begin so short before the end.
const SHORT: Duration = Duration::minutes(2);

/// The time between the last line of any rank and a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Silence {
    time: Duration,
    /// The last line shows that a loop of the program went on.
    after_step: bool,
}

impl Silence {
    /// None where a line lacks its time, or ranks and batch system have clocks of different zones, so that ranks spoke behind the stop.
    pub fn before(stop: &RankEnd, run: &Run) -> Option<Silence> {
        let stopped = time_in(&stop.source.text)?;
        let times = run.outputs.iter().filter_map(|output| Some((time_in(&output.last.text)?, output.last.place)));
        let (last, place) = times.max()?;
        let time = stopped - last;
        (!time.is_negative()).then_some(Silence { time, after_step: run.steps.contains(&place) })
    }

    /// Whether the program's loop went on until the stop.
    pub fn is_of_a_step(self) -> bool {
        self.after_step && self.time <= SHORT
    }
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

/// The first date with a time in the beginning of a line: `[2026-11-02 03:08:07,123] iteration 190/ 1000`, `… CANCELLED AT 2026-11-02T03:11:10 …`.
fn time_in(line: &str) -> Option<PrimitiveDateTime> {
    const FARTHEST: usize = 128;
    const FORM: &[time::format_description::BorrowedFormatItem] =
        format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
    const LENGTH: usize = "2026-11-02 03:08:07".len();
    let line = line[..line.floor_char_boundary(FARTHEST)].replace('/', "-").replace('T', " ");
    let starts = line.match_indices("20").map(|(at, _)| at);
    starts.filter_map(|at| line.get(at..at + LENGTH)).find_map(|text| PrimitiveDateTime::parse(text, FORM).ok())
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
            (&["2026-11-01T22:11:10.5Z INFO step 7"][..], Some("5 h")),
            (&["2026-11-02 04:11:00 step 7"][..], None),
            (&["step 191 of 2026-11"][..], None),
        ] {
            assert_eq!(silence(last, STOP).as_deref(), expected, "{last:?}");
        }
    }
}
