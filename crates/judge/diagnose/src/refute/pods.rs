//! Pods of Kubernetes by their names: which are of the job, which stand beside it.

use crate::lines::{Line, is_event, row_of_pods};
use crate::words::KNOWN;
use busbw_model::{Run, TorchStatement};
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

/// What stands in front of the first `-` of the name in a label: `train` of `[pod/train-worker-0/pytorch] …`.
fn stem(line: &str) -> Option<&str> {
    let pod = line.split_once("[pod/")?.1.split('/').next()?;
    pod.split(['-', '_', '.']).next()
}

/// Whether an event of Kubernetes names a pod that is none of a job's.
pub(super) fn is_of_another(event: &str) -> bool {
    let pods = || event.split_whitespace().filter_map(|word| word.strip_prefix("pod/"));
    is_event(event.trim()) && pods().any(|pod| KNOWN.is_beside(pod))
}

/// Whether a row of `kubectl get pods` says nothing of the job: a later row of the pod has another status, or several others begin alike, as pods of one job
/// do, and this one does not.
pub(crate) fn is_row_of_another(lines: &[Line], row: &Line) -> bool {
    let Some((pod, status)) = row_of_pods(&row.text) else { return false };
    let stem = |pod: &str| pod.split(['-', '_', '.']).next().map(str::to_string);
    let rows = || lines.iter().filter_map(|line| Some((line.source.place, row_of_pods(&line.text)?)));
    let is_later =
        rows().any(|(place, (other, now))| place.is_after(row.source.place) && other == pod && now != status);
    let others: HashSet<&str> = rows().map(|(_, (other, _))| other).filter(|other| *other != pod).collect();
    let stems: HashSet<_> = others.iter().map(|other| stem(other)).collect();
    is_later || others.len() > 1 && stems.len() == 1 && !stems.contains(&stem(pod))
}
