//! The answer of `busbw predict`.

use busbw_model::answer::Answer;
use busbw_predict::Prediction;
use schemars::JsonSchema;
use serde::Serialize;
use std::io;

/// Writes the JSON of a prediction, with a closing line feed. No number is rounded; one that is not finite becomes `null`.
pub fn write_predict(prediction: &Prediction, out: &mut dyn io::Write) -> io::Result<()> {
    super::write(&Predict { prediction }, out)
}

/// What `busbw predict --format json` prints. Sizes are bytes; times are microseconds (_us); bandwidths are GB/s, 10^9 bytes per
/// second (_gbs). No number is rounded; a number that is not finite is null. Readers must accept fields that are not described
/// here: they may be added without a new schema name.
#[derive(Serialize, JsonSchema)]
pub(super) struct Predict<'a> {
    #[serde(flatten)]
    prediction: &'a Prediction,
}

impl Answer for Predict<'_> {
    const SCHEMA: &'static str = "busbw.predict/1";
}
