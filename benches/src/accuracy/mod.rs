//! Predictions beside published measurements: how far off they are, by size, and the constants fitted anew.

mod band;
mod choices;
mod figures;
mod fit;
mod machines;
mod measurement;
mod plot;
mod report;

pub use band::print_bands;
pub use choices::{Agreement, choices};
pub use figures::figures;
pub use fit::{Start, fit, left_out};
pub use machines::{Accuracy, Calibrations, calibrations, print_calibrations};
pub use measurement::{Measurement, MeasurementError, Status, load};
pub use plot::{bands, scatter};
pub use report::{Class, Compared, Goal, compare, print_report, summary};
