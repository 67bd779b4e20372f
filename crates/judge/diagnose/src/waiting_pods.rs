//! Pods that wait long to start, in the rows of `kubectl get pods`: a job begins when all of its pods run.

use crate::case::Case;
use crate::elsewhere;
use crate::words::KNOWN;
use busbw_model::{Judged, Statement, Subject, pod_row};

/// An image of 20 GB takes minutes to pull, and a machine of a cloud minutes to come up.
const LONG_S: u64 = 15 * 60;

/// A question about the first such pod, where nothing else shows a run.
pub(crate) fn judge(case: &Case) -> Option<Judged> {
    let run = case.run;
    if elsewhere::hosts(run).next().is_some() || !run.ends.is_empty() || !run.tables.is_empty() {
        return None;
    }
    let rows = || run.statements.iter().filter_map(|one| Some((one, pod_row(one.text())?)));
    let told = |(one, (pod, status, age)): (&Statement, (&str, &str, &str))| {
        let waits = ["Pending", "ContainerCreating", "PodInitializing"].contains(&status) && !KNOWN.is_beside(pod);
        let waits_long = waits && seconds(age).is_some_and(|age| age >= LONG_S);
        // All rows are looked through for a later one: for pods that wait only.
        let is_last =
            || !rows().any(|(other, (name, ..))| name == pod && other.source.place.is_after(one.source.place));
        (waits_long && is_last()).then(|| {
            let how = format!("it is `{status}` for {age}");
            let question = format!(
                "The pod {pod} is `{status}` for {age}, and a job begins when all of its pods run. What does it wait for: GPUs, an image, a \
                 volume, its turn? The events tell: `kubectl describe pod {pod} | tail -n 20`"
            );
            Judged::open(Subject::Course, format!("the pod {pod}"), how, question)
        })
    };
    rows().find_map(told)
}

/// The seconds of `3h12m`, as kubectl writes a duration.
fn seconds(age: &str) -> Option<u64> {
    let mut sum = 0_u64;
    let mut rest = age;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let unit = match rest.as_bytes()[end] {
            b's' => 1,
            b'm' => 60,
            b'h' => 3600,
            b'd' => 86_400,
            b'y' => 365 * 86_400,
            _ => return None,
        };
        sum = sum.saturating_add(rest[..end].parse::<u64>().ok()?.saturating_mul(unit));
        rest = &rest[end + 1..];
    }
    (!age.is_empty()).then_some(sum)
}
