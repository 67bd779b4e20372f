//! Nodes of the run that the list of a cluster shows as unfit: a list has no time, so whether that came of the run is a question.

use crate::case::Case;
use crate::elsewhere;
use crate::node_rows::Row;
use busbw_model::{HostList, Judged, Statement, Subject};

/// A question about the first such node.
pub(crate) fn judge(case: &Case) -> Option<Judged> {
    let run = case.run;
    let hosts: Vec<&str> = elsewhere::hosts(run).collect();
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
