//! The schema `busbw.predict/1`, described in `docs/schema/predict-1.schema.json`.

use busbw_model::Collective;
use busbw_predict::{Prediction, PredictionRow};
use serde::Serialize;
use std::io;

/// The name of the schema.
const SCHEMA: &str = "busbw.predict/1";

/// Writes the JSON of a prediction, with a closing line feed. No number is rounded; one that is not finite becomes `null`.
///
/// # Errors
/// What the writer returns.
pub fn write_predict(prediction: &Prediction, out: &mut dyn io::Write) -> io::Result<()> {
    super::write(&Document::new(prediction), out)
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    collective: Collective,
    nranks: usize,
    assumptions: &'a [String],
    rows: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    size_bytes: u64,
    time_us: f64,
    algbw_gbs: f64,
    busbw_gbs: f64,
    limit_busbw_gbs: f64,
    algorithm: &'static str,
    protocol: &'static str,
    bottleneck: &'a str,
}

impl<'a> Document<'a> {
    fn new(prediction: &'a Prediction) -> Self {
        Document {
            schema: SCHEMA,
            collective: prediction.collective,
            nranks: prediction.ranks,
            assumptions: &prediction.assumptions,
            rows: prediction.rows.iter().map(Row::new).collect(),
        }
    }
}

impl<'a> Row<'a> {
    fn new(row: &'a PredictionRow) -> Self {
        Row {
            size_bytes: row.size.0,
            time_us: row.time.0,
            algbw_gbs: row.algbw.0,
            busbw_gbs: row.busbw.0,
            limit_busbw_gbs: row.limit.0,
            algorithm: row.algorithm.name(),
            protocol: row.protocol.name(),
            bottleneck: &row.bottleneck,
        }
    }
}
