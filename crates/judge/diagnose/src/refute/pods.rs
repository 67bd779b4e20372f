//! Pods of Kubernetes by their names: which are of the job, which stand beside it.

use crate::lines::{Line, is_any_event, is_event};
use crate::words::KNOWN;
use busbw_model::{Place, Run, TorchStatement, pod_row};
use std::collections::HashSet;

/// What the names of the pods begin with whose ranks NCCL speaks of, where labels name pods (`kubectl logs --prefix`).
#[derive(Debug, Default)]
pub(super) struct Pods(HashSet<String>);

impl Pods {
    pub fn of(run: &Run) -> Self {
        let lines = run.nccl.networks.iter().map(|line| &line.source).chain(run.nccl.env.iter().map(|set| &set.source));
        Pods(lines.filter_map(|line| stem(&line.text)).map(str::to_string).collect())
    }

    /// Whether a statement is of a pod that has another name than all of these: pods of one job begin alike.
    pub fn are_others(&self, statement: &TorchStatement) -> bool {
        !self.0.is_empty() && stem(&statement.source.text).is_some_and(|stem| !self.0.contains(stem))
    }
}

/// The stem of the name in a label: `train` of `[pod/train-worker-0/pytorch] …`.
fn stem(line: &str) -> Option<&str> {
    stem_of(line.split_once("[pod/")?.1.split('/').next()?)
}

/// What stands in front of the first `-` of a pod's name.
fn stem_of(pod: &str) -> Option<&str> {
    pod.split(['-', '_', '.']).next()
}

/// Whether an event of Kubernetes names a pod that is none of a job's.
pub(super) fn is_of_another(event: &str) -> bool {
    let pods = || event.split_whitespace().filter_map(|word| word.strip_prefix("pod/"));
    is_event(event.trim()) && pods().any(|pod| KNOWN.is_beside(pod))
}

/// Whether what an event tells of a pod is over by what another one tells of the same: by its name where both tell it, or because they stand in one table of
/// `kubectl describe pod`, whose rows follow each other, the latest last.
pub(crate) fn is_over(lines: &[Line], told: &Line, by: &Line) -> bool {
    /// The heads of a table have as many lines.
    const HEAD: u64 = 3;
    if let (Some(pod), Some(others)) = (pod_of(&told.text), pod_of(&by.text)) {
        return pod == others || replaces(lines, others, pod, told.source.place);
    }
    let (first, last) = (told.source.place, by.source.place);
    let is_event = |line: &&Line| is_any_event(line.text.trim());
    let within = |line: &&Line| line.source.place >= first && line.source.place <= last;
    let rows: Vec<_> = lines.iter().filter(within).filter(is_event).map(|line| line.source.place).collect();
    last.is_after(first) && rows.windows(2).all(|pair| pair[1].line - pair[0].line <= HEAD)
}

/// Whether what keeps so many pods of one kind made a pod for another one, behind an event of that: `SuccessfulCreate replicaset/llama-5c9 Created pod:
/// llama-5c9-fghij` (Kubernetes pkg/controller/controller_utils.go), whose names differ in what stands behind the last `-`.
fn replaces(lines: &[Line], new: &str, old: &str, place: Place) -> bool {
    let owner = |pod: &str| pod.rsplit_once('-').map(|(owner, _)| owner.to_string());
    // Pods of a job stand beside each other, and those of a replica set take each other's place.
    let is_set = |line: &Line| ["replicaset/", "replicaset-controller"].iter().any(|kind| line.text.contains(kind));
    let is_made =
        |line: &Line| line.text.split_once("Created pod: ").is_some_and(|(_, pod)| pod.trim() == new) && is_set(line);
    new != old
        && owner(new) == owner(old)
        && lines.iter().any(|line| !place.is_after(line.source.place) && line.source.place != place && is_made(line))
}

/// The pod of an event: `pod/train-0`, or whom the scheduler placed, `Successfully assigned ml/train-0 to gpu-4`.
fn pod_of(event: &str) -> Option<&str> {
    let named =
        event.split_whitespace().find_map(|word| word.strip_prefix("pod/").or_else(|| word.strip_prefix("Pod/")));
    let placed = || event.split_once("Successfully assigned ")?.1.split_once(" to ")?.0.rsplit('/').next();
    named.or_else(placed)
}

/// Whether a row of `kubectl get pods` says nothing of the job: a later row of the pod has another status, or several others begin alike, as pods of one job
/// do, and this one does not.
pub(crate) fn is_row_of_another(lines: &[Line], row: &Line) -> bool {
    let Some((pod, status, _)) = pod_row(&row.text) else { return false };
    let rows = || lines.iter().filter_map(|line| Some((line.source.place, pod_row(&line.text)?)));
    let is_later =
        rows().any(|(place, (other, now, _))| place.is_after(row.source.place) && other == pod && now != status);
    let others: HashSet<&str> = rows().map(|(_, (other, ..))| other).filter(|other| *other != pod).collect();
    let stems: HashSet<_> = others.iter().map(|other| stem_of(other)).collect();
    is_later || others.len() > 1 && stems.len() == 1 && !stems.contains(&stem_of(pod))
}
