//! Rows of lists of a cluster's nodes: which nodes, and in what state.

use busbw_model::HostList;

/// The nodes of a row of `sinfo -R`.
pub(crate) fn nodes_of_reason(text: &str) -> Option<HostList> {
    HostList::parse(Row::of(text).filter(|row| row.state == HAS_REASON)?.nodes).ok()
}

/// The state of a node in a list of reasons.
const HAS_REASON: &str = "down or drained for a reason";

/// A row of a list of nodes.
pub(crate) struct Row<'a> {
    /// One, or several as Slurm lists them: `node[01-03,07]`.
    pub nodes: &'a str,
    pub state: &'a str,
    pub of_kubernetes: bool,
}

impl<'a> Row<'a> {
    /// `kubectl get nodes`: NAME STATUS ROLES AGE VERSION; `sinfo`: PARTITION AVAIL TIMELIMIT NODES STATE NODELIST, with `-N` NODELIST NODES PARTITION STATE,
    /// to which `-l` adds CPUS S:C:T and more, with `-R` REASON USER TIMESTAMP NODELIST; `scontrol -o show node`.
    pub fn of(text: &'a str) -> Option<Self> {
        let words: Vec<&str> = text.split_whitespace().take(16).collect();
        let is_number = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
        let is_version =
            |word: &str| word.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let is_date = |word: &str| word.len() == 19 && word.as_bytes()[10] == b'T' && word.matches(':').count() == 2;
        let value = |key: &str| words.iter().find_map(|word| word.strip_prefix(key));
        let row = |nodes, state| Some(Row { nodes, state, of_kubernetes: false });
        match words[..] {
            [nodes, state, _, _, version, ..] if is_version(version) => Some(Row { nodes, state, of_kubernetes: true }),
            [_, "up" | "down" | "drain" | "inact", _, count, state, nodes] if is_number(count) => row(nodes, state),
            [nodes, "1", _, state] => row(nodes, state),
            [nodes, "1", _, state, cpus, sockets, ..] if is_number(cpus) && sockets.matches(':').count() == 2 => {
                row(nodes, state)
            }
            [.., _, date, nodes] if words.len() > 3 && is_date(date) => row(nodes, HAS_REASON),
            [first, ..] => row(first.strip_prefix("NodeName=")?, value("State=")?),
            [] => None,
        }
    }

    /// Whether no work is given to it, or it does not answer (a star behind the state; Slurm's `sinfo.c`, Kubernetes' `printers.go`).
    pub fn is_unfit(&self) -> bool {
        const STATES: [&str; 12] = [
            "down", "drain", "drained", "draining", "drng", "fail", "failing", "failg", "error", "unk", "unknown",
            HAS_REASON,
        ];
        if self.of_kubernetes {
            return self.state.starts_with("NotReady");
        }
        let parts = || self.state.split('+').map(|part| part.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()));
        let is_one = |state: &str| STATES.iter().any(|known| known.eq_ignore_ascii_case(state));
        let is_word = self.state.starts_with(|c: char| c.is_ascii_alphabetic());
        is_word && (self.state.contains('*') || parts().any(is_one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_tell_which_nodes_are_unfit() {
        for (line, expected) in [
            ("node01   NotReady                     <none>   112d   v1.31.2", Some("node01")),
            ("node01   NotReady,SchedulingDisabled  <none>   112d   v1.31.2", Some("node01")),
            ("node01   Ready                        <none>   112d   v1.31.2", None),
            ("gpu*         up 2-00:00:00      2  down* node[01-03]", Some("node[01-03]")),
            ("gpu*         up 2-00:00:00      2  drain node01", Some("node01")),
            ("gpu*         up 2-00:00:00      2  idle* node01", Some("node01")),
            ("gpu*         up 2-00:00:00      2  alloc node01", None),
            ("gpu*         up   infinite      2  idle~ node01", None),
            ("node01           1    gpu* down*", Some("node01")),
            ("node01  1  gpu*  drained 128  2:64:1 100000  0  1  (null) Kill task failed", Some("node01")),
            ("node01  1  gpu*    mixed 128  2:64:1 100000  0  1  (null) none", None),
            ("Node unexpectedly re slurm     2026-10-06T10:24:31 node01", Some("node01")),
            ("NodeName=node01 Arch=x86_64 CoresPerSocket=48 State=IDLE+DRAIN Reason=xid", Some("node01")),
            ("NodeName=node01 Arch=x86_64 CoresPerSocket=48 State=ALLOCATED", None),
            ("trainer-0  0/1  Error  0  5m", None),
            ("step 10 loss down", None),
        ] {
            let nodes = Row::of(line).filter(Row::is_unfit).map(|row| row.nodes);
            assert_eq!(nodes, expected, "{line}");
        }
    }
}
