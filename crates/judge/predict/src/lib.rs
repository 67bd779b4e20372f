//! What a described cluster should reach.
//!
//! A [`Cluster`] says what the machines and the network between them are. [`predict`](fn@predict) gives the time of a
//! collective per size, with the algorithm that NCCL would choose and the part that limits it; [`simulate`]
//! routes the flows of a run over the fabric, for many hash seeds, and says which links they share.
//!
//! Nothing here reads files: descriptions are parsed from text, and derived from a [`busbw_model::Run`].

#![forbid(unsafe_code)]

mod calibrating;
mod calibration;
pub mod cluster;
#[cfg(test)]
#[path = "../tests/all/clusters.rs"]
mod clusters;
mod fabric;
pub mod gradients;
mod load;
mod model;
mod prediction;
mod simulation;
mod traffic;
mod what_if;

// Shared by unit and integration tests, which name the crate as `busbw_predict`.
#[cfg(test)]
extern crate self as busbw_predict;

pub use calibrating::{calibrate, calibrate_with};
pub use calibration::{Calibrated, Calibration, MeasuredTable};
pub use cluster::Cluster;
pub use fabric::simulate;
pub use load::{Busiest, Hot, HotNic, PortOfNode};
pub use model::{Congestion, Constants, predict, predict_load, predict_over, predict_with, proposals, sockets_at_best};
pub use prediction::{Channels, Crossing, FabricEffect, Prediction, PredictionRow};
pub use simulation::{Distribution, FlowEntropy, LinkLoad, Options, Simulation, SimulationError};
pub use traffic::{Flow, Pattern, Port, Traffic};
pub use what_if::{WhatIf, WhatIfError};

/// Cases of a test, from `tests/descriptions/cases.toml`.
#[cfg(test)]
fn cases<T: serde::de::DeserializeOwned>(name: &str) -> Vec<T> {
    let mut lists: toml::Table = toml::from_str(include_str!("../tests/descriptions/cases.toml")).unwrap();
    lists.remove(name).unwrap().try_into().unwrap()
}
