//! The answer of `busbw accelerate`.

use busbw_model::answer::Answer;
use busbw_predict::gradients::Acceleration;
use schemars::JsonSchema;
use serde::Serialize;
use std::io;

/// Writes the JSON of the answer, with a closing line feed. No number is rounded; one that is not finite becomes `null`.
pub fn write_accelerate(answer: &Acceleration, out: &mut dyn io::Write) -> io::Result<()> {
    super::write(&Accelerate { answer }, out)
}

/// What `busbw accelerate --json` prints. Sizes are bytes; times are milliseconds (_ms); bandwidths are GB/s, 10^9 bytes per second
/// (_gbs). No number is rounded. Readers must bear fields that are not described here: they may be added without a new schema
/// name.
#[derive(Serialize, JsonSchema)]
pub(super) struct Accelerate<'a> {
    #[serde(flatten)]
    answer: &'a Acceleration,
}

impl Answer for Accelerate<'_> {
    const SCHEMA: &'static str = "busbw.accelerate/1";
}
