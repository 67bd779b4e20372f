//! What `--repeat` and `--nic-traffic` show below the table, in comment lines that parsers of the table pass over.

use crate::row::Row;
use crate::statistics::Spread;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

/// The spread of busbw over whole repetitions of all sizes.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(extend("additionalProperties" = false))]
pub struct Repetitions {
    /// How often everything ran.
    pub count: u32,
    /// One entry per row of the first repetition.
    pub rows: Vec<Repeated>,
}

/// The rows of one size, datatype, reduction and root.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(extend("additionalProperties" = false))]
pub struct Repeated {
    /// Bytes of the larger buffer.
    pub size: usize,
    /// Datatype.
    #[serde(rename = "type")]
    pub datatype: &'static str,
    /// Reduction, as the table shows it.
    pub redop: &'static str,
    /// Root, -1 where there is none.
    pub root: i64,
    /// busbw out of place, in GB/s.
    #[serde(rename = "out_of_place_bus_bw", serialize_with = "finite")]
    #[schemars(with = "Option<Spread>")]
    pub out_of_place: Spread,
    /// busbw in place, in GB/s.
    #[serde(rename = "in_place_bus_bw", serialize_with = "finite")]
    #[schemars(with = "Option<Spread>")]
    pub in_place: Spread,
}

/// Null where a number is none: a size of 0 bytes has no bandwidth.
fn finite<S: Serializer>(spread: &Spread, serializer: S) -> Result<S::Ok, S::Error> {
    spread.mean.is_finite().then_some(spread).serialize(serializer)
}

impl Repetitions {
    /// From the rows of `count` repetitions, one repetition behind the other.
    pub fn of(count: u32, rows: &[Row]) -> Self {
        let per_repetition = rows.len() / count.max(1) as usize;
        let repeated = |index: usize| {
            let same = || rows.iter().skip(index).step_by(per_repetition);
            let spread = |busbw: fn(&Row) -> f64| Spread::of(&same().map(busbw).collect::<Vec<_>>());
            let row = rows.get(index)?;
            Some(Repeated {
                size: row.size,
                datatype: row.test.datatype.name(),
                redop: row.test.redop_cell,
                root: row.test.root.map_or(-1, |root| root as i64),
                out_of_place: spread(|row| row.out_of_place.busbw_gbs)?,
                in_place: spread(|row| row.in_place.busbw_gbs)?,
            })
        };
        Repetitions { count, rows: (0..per_repetition).filter_map(repeated).collect() }
    }

    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            "#".to_string(),
            format!(
                "# Repetitions: {}; busbw in GB/s over whole repetitions (oop: out of place, ip: in place), mean with 95% confidence interval",
                self.count
            ),
        ];
        for row in &self.rows {
            for (placement, spread) in [("oop", row.out_of_place), ("ip", row.in_place)] {
                lines.push(format!(
                    "# Repeated {:>12} {:>8} {:>6} {:>6} {placement:>3}: {:.3} +- {:.3}  min {:.3}  max {:.3}",
                    row.size, row.datatype, row.redop, row.root, spread.mean, spread.ci95, spread.min, spread.max
                ));
            }
        }
        lines
    }
}

/// The lines of `--nic-traffic`: what each NIC carried while a size was timed, and how often over the size that is.
pub fn nic_lines(rows: &[Row], iterations: usize) -> Vec<String> {
    let mut lines = vec![
        "#".to_string(),
        format!(
            "# NICs: bytes sent and received while {iterations} operations were timed (oop: out of place, ip: in place), headers included"
        ),
    ];
    for row in rows {
        for (placement, half) in row.halves() {
            let per_operation = |bytes: u64| bytes as f64 / (iterations.max(1) * row.size.max(1)) as f64;
            lines.extend(half.nics.iter().map(|nic| {
                format!(
                    "# NIC {:>12} {:>8} {placement:>3}: {}/{} sent {} ({:.2} x size) received {} ({:.2} x size)",
                    row.size,
                    row.test.datatype.name(),
                    nic.host,
                    nic.name,
                    nic.sent_bytes,
                    per_operation(nic.sent_bytes),
                    nic.received_bytes,
                    per_operation(nic.received_bytes)
                )
            }));
        }
    }
    lines
}
