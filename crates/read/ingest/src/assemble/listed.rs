//! Whose the rows of lists are: commands, hosts and Slurm's lines name what is the run's, and then another pod, container or job is not.

use super::asked;
use crate::text::part_digits;
use busbw_model::{EndTeller, Ended, Place, RankEnd, Run};
use std::collections::{BTreeSet, HashMap};

/// What a command names that prints what a pod, a container or a job printed, or tells of a job: `kubectl logs trainer-0`, `docker run --name train …`,
/// `sacct -j 88123`.
pub(super) fn named_by(command: &str) -> Option<String> {
    const VALUED: [&str; 8] = ["-n", "--namespace", "-c", "--container", "--tail", "--since", "-u", "--user"];
    let words: Vec<&str> = command.split(' ').collect();
    let value_of = |options: &[&str]| {
        let at = words.iter().position(|word| options.contains(&word.split('=').next().unwrap_or_default()))?;
        words[at].split_once('=').map(|(_, value)| value).or_else(|| words.get(at + 1).copied())
    };
    let name = match *words.first()? {
        "sacct" | "squeue" => value_of(&["-j", "--jobs"]),
        "scontrol" if command.starts_with("scontrol show job ") => words.get(3).copied(),
        "kubectl" | "oc" | "docker" | "podman" | "nerdctl" => {
            let verb = words.iter().position(|word| ["logs", "exec", "attach", "run"].contains(word))?;
            let is_value = |at: usize| VALUED.contains(&words[at - 1]);
            let is_name = |at: &usize| !words[*at].starts_with('-') && !is_value(*at);
            match words[verb] {
                "run" => value_of(&["--name"]),
                _ => (verb + 1..words.len()).find(is_name).map(|at| words[at]),
            }
        }
        _ => None,
    };
    let name = name?.rsplit('/').next()?;
    (!name.is_empty()).then(|| name.to_string())
}

/// Whose the rows of lists and the reports on jobs are. Those of what is named so are of the run; those of others are left out, and rows above the
/// command that starts the run. `started`: where commands start runs.
pub(super) fn settle(run: &mut Run, mut named: BTreeSet<String>, started: &[Place]) {
    asked::take(run);
    let is_listed = |end: &RankEnd| matches!(end.told_by, EndTeller::List | EndTeller::Report);
    leave_out_earlier_launches(run, started);
    leave_out_earlier_starts(run);
    if !run.ends.iter().any(is_listed) {
        return;
    }
    const JOBS: [&str; 5] = ["SLURM_JOB_ID=", "SLURM_JOBID=", "StepId=", "*** JOB ", "*** STEP "];
    let texts = run.statements.iter().map(|one| &one.source).chain(run.ends.iter().map(|end| &end.source));
    let jobs = texts.flat_map(|line| JOBS.iter().filter_map(|key| Some(part_digits(line.text.split_once(key)?.1).0)));
    named.extend(jobs.filter(|job| !job.is_empty()).map(str::to_string));
    let (nodes, tables) = (&run.nodes, &run.tables);
    run.ends.retain_mut(|end| {
        let Some(row) = end.command.as_ref().filter(|_| is_listed(end)).cloned() else { return true };
        let place = end.source.place;
        let table =
            tables.iter().map(|table| table.place).filter(|table| table.input == place.input && *table > place).min();
        let is_between = |start: &Place| *start > place && table.is_some_and(|table| *start < table);
        if end.told_by == EndTeller::List && started.iter().any(is_between) {
            return false;
        }
        let is_of_run = named.iter().any(|name| is_of(&row, name)) || nodes.iter().any(|node| node.host == row);
        let is_report = end.told_by == EndTeller::Report || is_of_run && table.is_some();
        // A script that went well may have gone on behind a command that failed.
        if (is_of_run || is_report) && end.how != Ended::Success {
            let told_by = if is_report { EndTeller::Report } else { EndTeller::Job };
            (end.told_by, end.command) = (told_by, None);
        }
        let alike = |name: &&String| is_number(name) == is_number(&row) && !row.contains(' ');
        let mut alike = named.iter().filter(alike).peekable();
        let mut may_be_of_run = || alike.peek().is_none() || alike.any(|name| stem(name) == stem(&row));
        // What else ran may have gone well at any time.
        is_of_run || end.how != Ended::Success && may_be_of_run()
    });
}

/// Leaves out the rows of a job, and of its steps, that stand in a list before a row in which the same job ended well: Slurm lists each start of a job that
/// was requeued (`sacct --duplicates`), the last one last.
fn leave_out_earlier_starts(run: &mut Run) {
    let rows = run.ends.iter().filter(|end| end.told_by == EndTeller::List);
    let rows =
        rows.filter_map(|end| Some((end.source.place, end.command.as_deref().filter(|name| is_number(name))?, end)));
    let mut first: HashMap<&str, Place> = HashMap::new();
    let mut well: HashMap<(u32, &str), Place> = HashMap::new();
    for (place, name, end) in rows.clone() {
        first.entry(name).and_modify(|first| *first = place.min(*first)).or_insert(place);
        if end.how == Ended::Success {
            well.entry((place.input, name)).and_modify(|last| *last = place.max(*last)).or_insert(place);
        }
    }
    let is_earlier = |place: Place, name: &str| {
        let job = name.split('.').next().unwrap_or(name);
        first.get(job).is_some_and(|start| *start <= place)
            && well.get(&(place.input, job)).is_some_and(|again| again.is_after(place))
    };
    let earlier: BTreeSet<Place> =
        rows.filter(|(place, name, _)| is_earlier(*place, name)).map(|(place, ..)| place).collect();
    run.ends.retain(|end| !earlier.contains(&end.source.place));
    run.statements.retain(|one| !earlier.contains(&one.source.place));
}

/// Leaves out what launchers reported before a command that starts what the input shows next.
fn leave_out_earlier_launches(run: &mut Run, started: &[Place]) {
    let mut starts: Vec<Place> = started.to_vec();
    starts.sort_unstable();
    let comms = run.communicators.iter().map(|comm| comm.place);
    let mut shown: Vec<Place> = comms.chain(run.tables.iter().map(|table| table.place)).collect();
    shown.sort_unstable();
    let is_earlier = |report: Place| {
        let next = |places: &[Place]| {
            let next = places.get(places.partition_point(|place| *place <= report)).copied();
            next.filter(|next| next.is_after(report))
        };
        next(&starts).zip(next(&shown)).is_some_and(|(start, shown)| start < shown)
    };
    run.ends.retain(|end| end.told_by != EndTeller::Launcher || !is_earlier(end.source.place));
}

/// Whether a row is of what is named: a step of a job, `88123.0`, a pod of a job or a deployment, `train-x7k2p`.
fn is_of(row: &str, name: &str) -> bool {
    row.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', '_', '+']))
}

fn is_number(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_digit())
}

/// What pods of one job have in common.
fn stem(name: &str) -> &str {
    name.split(['-', '_', '.', '+']).next().unwrap_or(name)
}
