//! Descriptions of clusters, and what is predicted of them, held against what was published and measured.

#![allow(clippy::unwrap_used)] // what is missing or goes wrong fails its test

mod bad_descriptions;
mod clusters;
mod derived_clusters;
mod example_clusters;
mod field_report;
mod published_tables;
mod traffic;
mod what_if;
