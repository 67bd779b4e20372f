//! Descriptions of clusters, and what is predicted of them, compared with what was published and measured.

#![allow(clippy::unwrap_used)] // what is missing or goes wrong fails its test

mod bad_descriptions;
mod clusters;
mod derived_clusters;
mod example_clusters;
mod field_report;
mod published_tables;
mod traffic;
mod what_if;

use busbw_predict::Cluster;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The clusters that the files of a folder of the repository describe.
fn described(folder: &str) -> BTreeMap<String, Cluster> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..").join(folder);
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let descriptions = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    let parsed = descriptions.map(|path| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let cluster = busbw_predict::cluster::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        (name, cluster)
    });
    parsed.collect()
}
