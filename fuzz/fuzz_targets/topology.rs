//! Any text as NCCL's topology or graph XML, through the readers of whole documents.

#![no_main]

use busbw_ingest::nccl_topo_xml::{read_graphs, read_system};
use busbw_model::Place;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let place = Place { input: 0, line: 1 };
    let _ = read_system(text, place);
    let _ = read_graphs(text, place);
});
