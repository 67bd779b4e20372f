//! The benchmark of racing settings: over many seeds on a simulated workload ([`simulated`]), and on two hosts of the lab
//! whose TCP flows are limited ([`hosts`]).

pub mod hosts;
pub mod simulated;
