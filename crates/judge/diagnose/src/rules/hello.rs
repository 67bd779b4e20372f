//! Hosts that were asked for their facts and did not answer, or not together: named, whatever the others measured.

use super::found;
use crate::case::Case;
use crate::check::{APART, check};
use crate::words::listed;
use busbw_model::node::Hello;
use busbw_model::{Evidence, Finding, Judged, Judgement, Place, SourceLine, Subject, counted};

/// Hosts that a finding names at most.
const MOST_NAMED: usize = 5;

/// A finding for all hosts that are silent, and one for those that answer only one by one.
pub fn rule(case: &Case) -> Vec<Finding> {
    case.run.hellos.iter().flat_map(|(place, hello)| [silent(*place, hello), apart(*place, hello)]).flatten().collect()
}

fn silent(place: Place, hello: &Hello) -> Option<Finding> {
    let first = hello.silent.first()?;
    let hosts = listed(hello.silent.iter().map(|one| &one.host), MOST_NAMED);
    let remedy = check(&[], hello).items.into_iter().find_map(|item| item.remedy)?;
    let line = |one: &busbw_model::node::Silent| SourceLine::new(place, &format!("{}: {}", one.host, one.why));
    let evidence = hello.silent.iter().take(MOST_NAMED).map(|one| Evidence::new(line(one))).collect();
    let asked = counted(hello.asked, "host");
    Some(found(
        "hello.silent",
        &[("hosts", &hosts), ("why", &first.why), ("asked", &asked), ("remedy", &remedy)],
        evidence,
    ))
}

fn apart(place: Place, hello: &Hello) -> Option<Finding> {
    let why = hello.apart.as_ref()?;
    let evidence = vec![Evidence::new(SourceLine::new(place, why))];
    let asked = counted(hello.asked, "host");
    Some(found("hello.apart", &[("why", why), ("asked", &asked), ("remedy", &APART)], evidence))
}

/// Each host that is silent.
pub(crate) fn judge(case: &Case) -> Vec<Judged> {
    let silent = case.run.hellos.iter().flat_map(|(_, hello)| &hello.silent);
    let how = |why| format!("did not answer: {why}");
    silent.map(|one| Judged::new(Subject::Host, &one.host, how(&one.why), Judgement::Failed)).collect()
}
