//! Whose output it is: the rank in a stream's label, or in the name of a file.

use crate::text::{leading, part_digits};
use rustc_hash::FxHashMap;

/// Numbers of streams, by label.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    labelled: FxHashMap<Box<str>, u32>,
    /// That of lines without a label. They are many, and the C library takes long to compare empty texts: it reads where nothing is.
    unlabelled: Option<u32>,
}

impl Streams {
    pub fn known(&self, label: &str) -> Option<u32> {
        if label.is_empty() { self.unlabelled } else { self.labelled.get(label).copied() }
    }

    /// The number of a stream; an error with the next number for a new one.
    pub fn number(&mut self, label: &str) -> Result<u32, u32> {
        if let Some(known) = self.known(label) {
            return Ok(known);
        }
        let next = self.labelled.len() as u32 + u32::from(self.unlabelled.is_some());
        match label {
            "" => self.unlabelled = Some(next),
            _ => drop(self.labelled.insert(label.into(), next)),
        }
        Err(next)
    }
}

/// The rank that a label or a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// By its number in the job.
    Job(u32),
    /// By its number on its host: torchrun's labels and folders have that.
    Host(u32),
}

impl Whose {
    pub fn in_job(self) -> Option<u32> {
        if let Whose::Job(rank) = self { Some(rank) } else { None }
    }

    pub fn on_host(self) -> Option<u32> {
        if let Whose::Host(rank) = self { Some(rank) } else { None }
    }
}

/// The rank in a stream's label: `rank3`, torchrun's `default3`, `1,3`, `head, rank=0, pid=1`.
pub(crate) fn of_stream(stream: &str) -> Option<Whose> {
    let number = |text: &str| -> Option<u32> {
        let (digits, rest) = part_digits(text);
        rest.is_empty().then(|| digits.parse().ok())?
    };
    let of_torch = stream.strip_prefix("rank").and_then(number).map(Whose::Job);
    let of_torchrun = || stream.strip_prefix("default").and_then(number).map(Whose::Host);
    let of_mpirun = || stream.split_once(',').and_then(|(job, rank)| number(job).and(number(rank))).map(Whose::Job);
    let named = || stream.split_once("rank=").and_then(|(_, rest)| leading(rest)).map(Whose::Job);
    of_torch.or_else(of_torchrun).or_else(of_mpirun).or_else(named)
}

/// The rank in the name of a file that holds one rank's output: `rank3.log`, `pyspy_rank_3.txt`, and torchrun's `attempt_0/3/stderr.log`.
pub(crate) fn of_path(path: &str) -> Option<Whose> {
    let (folder, name) = path.rsplit_once(['/', '\\']).unwrap_or(("", path));
    if name.starts_with("stderr") || name.starts_with("stdout") {
        return folder.rsplit(['/', '\\']).next()?.parse().ok().map(Whose::Host);
    }
    let behind = name.to_ascii_lowercase().rsplit_once("rank").map(|(_, behind)| behind.to_string())?;
    leading(behind.trim_start_matches(['_', '-', '.', '='])).map(Whose::Job)
}

/// What inputs of one host have in common: `logs/h2` of torchrun's own output `logs/h2.log` and of `logs/h2/none_x/attempt_0/1/stderr.log`.
pub(crate) fn host_key(path: &str) -> &str {
    let (folder, name) = path.rsplit_once(['/', '\\']).unwrap_or(("", path));
    match folder.find("/attempt_") {
        Some(attempt) => {
            let run = &folder[..attempt];
            run.rfind(['/', '\\']).map_or(run, |slash| &run[..slash])
        }
        None => {
            let stem = name.split_once('.').map_or(name, |(stem, _)| stem);
            &path[..path.len() - name.len() + stem.len()]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_names_tell_ranks() {
        let labels = [
            ("rank3", Some(Whose::Job(3))),
            ("default12", Some(Whose::Host(12))),
            ("1,3", Some(Whose::Job(3))),
            ("head, rank=0, pid=1", Some(Whose::Job(0))),
        ];
        for (label, expected) in labels.into_iter().chain([("", None), ("n1", None), ("default", None), ("3", None)]) {
            assert_eq!(of_stream(label), expected, "{label}");
        }
        let paths = [
            ("logs/rank3.log", Some(Whose::Job(3))),
            ("pyspy_rank_12.txt", Some(Whose::Job(12))),
            ("job/attempt_0/3/stderr.log", Some(Whose::Host(3))),
            ("ranks.log", None),
            ("train.log", None),
            ("-", None),
        ];
        for (path, expected) in paths {
            assert_eq!(of_path(path), expected, "{path}");
        }
    }

    #[test]
    fn inputs_of_a_host_belong_together() {
        for (path, key) in [
            ("logs/h2.log", "logs/h2"),
            ("logs/h2/none_x/attempt_0/1/stderr.log", "logs/h2"),
            ("job/attempt_0/3/stderr.log", "job"),
            ("train.log", "train"),
        ] {
            assert_eq!(host_key(path), key, "{path}");
        }
    }
}
