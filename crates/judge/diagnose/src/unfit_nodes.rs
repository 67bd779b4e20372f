//! Nodes of the run that the list of a cluster shows as unfit: a list has no time, so whether that came of the run is a question.

use crate::case::Case;
use busbw_model::{BenchTable, HostList, Judged, Statement, Subject};

/// A question about the first such node.
pub(crate) fn judge(case: &Case) -> Option<Judged> {
    let run = case.run;
    let of_tables = run.tables.iter().flat_map(BenchTable::hosts);
    let hosts: Vec<&str> = run.nodes.iter().map(|node| node.host.as_str()).chain(of_tables).collect();
    let told = |one: &Statement| {
        let row = Row::of(one.text()).filter(Row::is_unfit)?;
        let nodes = HostList::parse(row.nodes).ok()?;
        let host = hosts.iter().find(|host| nodes.names(host))?;
        let ask = if row.of_kubernetes { "kubectl describe node" } else { "scontrol show node" };
        let how = format!("its state is `{}`: `{}`", row.state, one.text().trim());
        let question = format!(
            "{host}, on which the run was, is not fit for work: {how}. Did it fail during the run? See why: `{ask} {host}`"
        );
        Some((host.to_string(), how, question))
    };
    let (host, how, question) = if hosts.is_empty() { None } else { run.statements.iter().find_map(told) }?;
    Some(Judged::open(Subject::Host, host, how, question))
}

/// The nodes of a row of `sinfo -R`.
pub(crate) fn nodes_of_reason(text: &str) -> Option<HostList> {
    HostList::parse(Row::of(text).filter(|row| row.state == HAS_REASON)?.nodes).ok()
}

/// The state of a node in a list of reasons.
const HAS_REASON: &str = "down or drained for a reason";

/// A row of a list of nodes.
struct Row<'a> {
    /// One, or several as Slurm lists them: `node[01-03,07]`.
    nodes: &'a str,
    state: &'a str,
    of_kubernetes: bool,
}

impl<'a> Row<'a> {
    /// `kubectl get nodes`: NAME STATUS ROLES AGE VERSION; `sinfo`: PARTITION AVAIL TIMELIMIT NODES STATE NODELIST, with `-N` NODELIST NODES PARTITION STATE,
    /// with `-R` REASON USER TIMESTAMP NODELIST; `scontrol -o show node`.
    fn of(text: &'a str) -> Option<Self> {
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
            [.., _, date, nodes] if words.len() > 3 && is_date(date) => row(nodes, HAS_REASON),
            [first, ..] => row(first.strip_prefix("NodeName=")?, value("State=")?),
            [] => None,
        }
    }

    /// Whether no work is given to it, or it does not answer (a star behind the state; Slurm's `sinfo.c`, Kubernetes' `printers.go`).
    fn is_unfit(&self) -> bool {
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
