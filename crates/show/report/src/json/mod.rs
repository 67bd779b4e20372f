//! JSON for programs: an answer of each command, `busbw.explain/1` and so on, and the facts of nodes that `busbw check` keeps.
//! The types that are written are the only declaration of an answer: `docs/schema` is made from them and from their doc comments
//! (`BUSBW_BLESS=1 cargo test -p busbw-report schemas`).

mod check;
mod compare;
mod evidence;
mod finding;
mod layout;
mod link;
mod net_plugin;
mod peers;
mod simulation;
mod tune;
mod view;

pub use check::{write_check, write_facts};
pub use compare::write_compare;
pub use link::write_link;
pub use net_plugin::write_net_plugins;
pub use simulation::write_simulate;
pub use tune::write_tune;

use busbw_model::answer::{Answer, Document, schema};
use busbw_model::{Diagnosis, Run};
use busbw_predict::Prediction;
use busbw_predict::gradients::Acceleration;
use schemars::Schema;
use serde::Serialize;
use std::io;

/// The name of the schema of `busbw explain`, the first field of the document.
pub const SCHEMA: &str = "busbw.explain/1";

/// Writes the JSON of a run and its diagnosis, with a closing line feed. It is written as it is made: a log of 16,384
/// ranks needs no more memory here than one of 16. No number is rounded; a number that is not finite becomes `null`.
pub fn write_explain(run: &Run, diagnosis: &Diagnosis, out: &mut dyn io::Write) -> io::Result<()> {
    write(&view::Explain::new(run, diagnosis), out)
}

/// The JSON Schema of every answer of this crate, as `docs/schema` keeps them.
pub fn schemas() -> [Schema; 12] {
    [
        schema::<Acceleration>(),
        schema::<busbw_model::Advised>(),
        schema::<check::Check>(),
        schema::<compare::Compare>(),
        schema::<view::Explain>(),
        schema::<link::Links>(),
        schema::<net_plugin::Plugins>(),
        schema::<Prediction>(),
        schema::<busbw_model::Profile>(),
        schema::<simulation::Simulate>(),
        schema::<tune::Tune>(),
        schema::<busbw_model::Watched>(),
    ]
}

/// Writes an answer that is written as it is, with a closing line feed. No number is rounded; one that is not finite becomes `null`.
pub fn write(answer: &impl Answer, out: &mut dyn io::Write) -> io::Result<()> {
    write_value(&Document::new(answer), out)
}

fn write_value(value: &impl Serialize, out: &mut dyn io::Write) -> io::Result<()> {
    let mut serializer = serde_json::Serializer::with_formatter(&mut *out, layout::Layout::default());
    value.serialize(&mut serializer)?;
    out.write_all(b"\n")
}

/// The JSON of a run and its diagnosis as a text. For a large run [`write_explain`] needs less memory.
///
/// ```
/// use busbw_model::{Diagnosis, Run, Verdict};
/// let diagnosis = Diagnosis { verdict: Verdict::Inconclusive, summary: "no input".into(), ..Diagnosis::default() };
/// let json = busbw_report::json::explain(&Run::default(), &diagnosis);
/// assert!(json.contains(r#""schema": "busbw.explain/1""#));
/// ```
pub fn explain(run: &Run, diagnosis: &Diagnosis) -> String {
    let mut out = Vec::new();
    write_explain(run, diagnosis, &mut out).expect("writing to memory does not fail and every key is a string");
    String::from_utf8(out).expect("serde_json writes UTF-8")
}
