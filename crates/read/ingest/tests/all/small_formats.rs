//! Readers of the small formats against real files: topology matrices, NCCL's XML and dump, perftest, RDMA tools.

#![allow(clippy::unwrap_used)] // a file that is missing fails its test

use crate::cases;
use busbw_ingest::TextLine;
use busbw_ingest::nccl_system_dump::DumpReader;
use busbw_ingest::nccl_topo_xml::{XmlDocuments, XmlError, XmlReader, read_graphs, read_system};
use busbw_ingest::nvidia_smi_topo::TopoReader;
use busbw_ingest::perftest::{PerftestReader, looks_like_json, read_json};
use busbw_ingest::rdma_check::CheckReader;
use busbw_ingest::rdma_monitor::MonitorReader;
use busbw_model::{
    Bytes, DeviceKind, PathType, PerfRow, PerfTest, Place, RdmaCheckItem, RdmaSample, SystemDump, TopoMatrix,
};
use proptest::prelude::*;
use std::path::{Path, PathBuf};

/// A reader as the pipeline uses it: the filter first, then the line.
macro_rules! reader {
    ($name:ident, $reader:ty, $found:ty) => {
        /// What was found, and the numbers of the lines that were claimed.
        fn $name(text: &str) -> ($found, Vec<u64>) {
            let mut reader = <$reader>::default();
            let mut claimed = Vec::new();
            for (i, text) in text.lines().enumerate() {
                let place = Place { input: 0, line: i as u64 + 1 };
                if <$reader>::may_belong(text.as_bytes()) && reader.feed(&TextLine { place, stream: "", text }) {
                    claimed.push(place.line);
                }
            }
            (reader.finish(), claimed)
        }
    };
}

reader!(matrices, TopoReader, Vec<TopoMatrix>);
reader!(documents, XmlReader, XmlDocuments);
reader!(tests, PerftestReader, Vec<PerfTest>);
reader!(checks, CheckReader, Vec<RdmaCheckItem>);
reader!(samples, MonitorReader, Vec<RdmaSample>);
reader!(dumps, DumpReader, Vec<SystemDump>);

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(data(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn texts_of(folder: &str) -> Vec<String> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(data(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect()
}

/// How many lines each reader has claimed: matrix, XML, perftest, check, monitor, dump.
fn claims(text: &str) -> [usize; 6] {
    let (matrices, xml, perftest) = (matrices(text).1, documents(text).1, tests(text).1);
    [matrices, xml, perftest, checks(text).1, samples(text).1, dumps(text).1].map(|claimed| claimed.len())
}

#[test]
fn topology_matrices() {
    type Case = (String, usize, usize, (String, String, String), String, String);
    let cases: Vec<Case> = cases("matrices");
    assert_eq!(texts_of("smi_topo").len(), cases.len());
    for (file, gpus, nics, (a, b, path), cpus, numa) in cases {
        let (found, _) = matrices(&read(&format!("smi_topo/{file}.txt")));
        assert_eq!(found.len(), 1, "{file}");
        let matrix = &found[0];
        assert_eq!(matrix.of_kind(DeviceKind::Gpu).count(), gpus, "{file}: GPUs");
        assert_eq!(matrix.of_kind(DeviceKind::Nic).count(), nics, "{file}: NICs");
        assert_eq!(matrix.path(&a, &b).map(|path| path.to_string()), Some(path), "{file}: {a} to {b}");
        for gpu in matrix.of_kind(DeviceKind::Gpu) {
            assert_eq!(matrix.path(&gpu.name, &gpu.name), Some(PathType::Same), "{file}: {}", gpu.name);
        }
        let last = matrix.of_kind(DeviceKind::Gpu).last().unwrap();
        assert_eq!(last.cpu_affinity.as_deref().unwrap_or_default(), cpus, "{file}: CPU affinity");
        assert_eq!(last.numa_affinity.as_deref().unwrap_or_default(), numa, "{file}: NUMA affinity");
    }
}

#[test]
fn a_matrix_keeps_its_place_and_its_legends() {
    let (found, claimed) = matrices(&read("smi_topo/dell-r760xa-l40s-smi-topo.txt"));
    assert_eq!(found[0].place.line, 2);
    let hcas: Vec<_> = found[0].devices.iter().map(|device| device.hca.as_deref()).collect();
    assert_eq!(hcas[..3], [None, Some("mlx5_0"), Some("mlx5_1")]);
    // Header and rows, legend, NIC legend; neither the prompt nor the empty lines nor the end of the Markdown block.
    let expected: Vec<u64> = (2..=13).chain([15]).chain(17..=22).chain([24]).chain(26..=35).collect();
    assert_eq!(claimed, expected);
}

#[test]
fn matrices_as_they_are_copied() {
    // what, text, number of matrices, paths of the first one in reading order (`.` for none)
    let cases = [
        ("cut at the right", "\tGPU0\tGPU1\tNIC0\nGPU0\t X \tNV4\nGPU1\tNV4\nNIC0\tPIX", 1, "X NV4 . NV4 . . PIX . ."),
        ("cut at the bottom", "  GPU0 GPU1 CPU Aff\nGPU0 X SYS 0-3", 1, "X SYS . ."),
        ("two matrices", "\tGPU0\tGPU1\nGPU0\tX\tPIX\n\tGPU0\tGPU1\nGPU0\tX\tSYS", 2, "X PIX . ."),
        ("a row without a column", "\tGPU0\tGPU1\nNIC0\tPIX\tPIX\nGPU1\tPIX\tX", 1, ". . PIX X"),
        ("escapes lost", "\t[4mGPU0\thfi1_0\tCPU Affinity[0m\nGPU0\t X \tSOC\t0-7", 1, "X SYS . ."),
        ("escapes kept", "\t\x1b[4mGPU0\trocep1s0\tCPU Affinity\x1b[0m\nGPU0\t X \tPHB\t0-7", 1, "X PHB . ."),
        ("peer access", "\tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n", 0, ""),
        ("no rows", "GPU0 GPU1 GPU2\n", 0, ""),
        ("a device twice", "\tGPU0\tGPU0\nGPU0\tX\tX", 0, ""),
    ];
    for (what, text, count, paths) in cases {
        let (found, _) = matrices(text);
        assert_eq!(found.len(), count, "{what}");
        let cells = found.first().map(|matrix| matrix.paths.concat()).unwrap_or_default();
        let cells: Vec<_> = cells.iter().map(|cell| cell.map_or(".".to_string(), |path| path.to_string())).collect();
        assert_eq!(cells.join(" "), paths, "{what}");
    }
}

#[test]
fn xml_topologies() {
    type Case = (String, usize, usize, usize, usize, usize, usize, i32);
    for (file, cpus, pcis, gpus, nics, nvlinks, nets, numa) in cases::<Case>("topologies") {
        let text = read(&format!("nccl_xml/{file}.xml"));
        let (found, claimed) = documents(&text);
        assert_eq!(found.errors, [], "{file}");
        let topology = &found.systems[0];
        assert_eq!(claimed.first(), Some(&topology.place.line), "{file}");
        assert_eq!(read_system(&text, topology.place).as_ref(), Ok(topology), "{file}: file and lines differ");
        let all = topology.all_pcis();
        let of_class =
            |class: &str| all.iter().filter(|p| p.class.as_deref().is_some_and(|c| c.starts_with(class))).count();
        let links = all.iter().filter_map(|pci| pci.gpu.as_ref()).map(|gpu| gpu.nvlinks.len()).sum::<usize>();
        let nic_entries = topology.cpus.iter().flat_map(|cpu| &cpu.nics).chain(all.iter().flat_map(|pci| &pci.nics));
        let counts = (topology.cpus.len(), all.len(), of_class("0x03"), of_class("0x02"), links);
        let ports = nic_entries.map(|nic| nic.nets.len()).sum::<usize>();
        assert_eq!((counts, ports), ((cpus, pcis, gpus, nics, nvlinks), nets), "{file}");
        assert_eq!(topology.cpus[0].numa_id, Some(numa), "{file}");
    }
}

#[test]
fn xml_attributes() {
    let link = |speed: &str, width: &str| {
        let pci = format!(r#"<pci busid="0000:0f:00.0" link_speed="{speed}" link_width="{width}"/>"#);
        let text = format!(r#"<system version="1"><cpu numaid="-1" familyid="0x6">{pci}</cpu></system>"#);
        let system = read_system(&text, Place::default()).unwrap();
        assert_eq!((system.cpus[0].numa_id, system.cpus[0].family_id), (Some(-1), Some(6)));
        (system.cpus[0].pcis[0].link_speed_gts, system.cpus[0].pcis[0].link_width)
    };
    for (speed, width, expected) in [
        ("16 GT/s", "16", (Some(16.0), Some(16))),
        ("32.0 GT/s PCIe", "8", (Some(32.0), Some(8))),
        ("2.5 GT/s", "1", (Some(2.5), Some(1))),
        ("", "", (None, None)),
        ("Unknown", "0", (None, None)),
        ("Unknown speed", "255", (None, Some(255))),
    ] {
        assert_eq!(link(speed, width), expected, "{speed:?} {width:?}");
    }

    let system = documents(&read("nccl_xml/oci-h100-topology.xml")).0.systems.remove(0);
    let pcis = system.all_pcis();
    let gpu = pcis.iter().find_map(|pci| pci.gpu.as_ref()).unwrap();
    assert_eq!((gpu.dev, gpu.sm, gpu.rank, gpu.gdr), (Some(0), Some(90), Some(0), Some(true)));
    assert_eq!(gpu.nvlinks[0], ("0000:1c:00.0".to_string(), 5));
    let net = &pcis.iter().find(|pci| !pci.nics.is_empty()).unwrap().nics[0].nets[1];
    assert_eq!((net.name.as_deref(), net.dev, net.port), (Some("mlx5_1"), Some(1), Some(2)));
    assert_eq!((net.speed_mbps, net.gdr, net.guid.as_deref()), (Some(180_000), Some(true), Some("0x9a70500003ae6d94")));
}

#[test]
fn xml_graphs() {
    let (found, _) = documents(&read("nccl_xml/azure-ncv4-graph.xml"));
    let graphs = &found.graphs[0].graphs;
    let shapes: Vec<_> = graphs.iter().map(|g| (g.id, g.pattern, g.channels, g.gpu_orders.len())).collect();
    assert_eq!(shapes, [(0, 4, 2, 2), (1, 1, 4, 4), (2, 3, 4, 4)]);
    assert_eq!(graphs[0].gpu_orders[1], [0, 3, 2, 1]);
    assert_eq!((graphs[0].speed_intra, graphs[0].speed_inter), (Some(12.0), Some(12.0)));
    assert_eq!((graphs[0].type_intra.as_deref(), graphs[0].type_inter.as_deref()), (Some("SYS"), Some("PIX")));
}

#[test]
fn xml_wherever_it_stands() {
    let one_line = r#"topo: <system version="1"><cpu numaid="0"/></system> and <graphs version="1"/> end"#;
    let commented = "<system version=\"1\"> <!-- GPUs of\nthe left half =\n --> <cpu\n  numaid=\"0\"\n/>\n</system>";
    let interleaved =
        "<system version=\"1\">\nhost:1:2 [0] NCCL INFO Using eth0<0> -> x\n<cpu numaid=\"0\"/>\n</system>";
    let twice = "<system version=\"1\">\n<cpu numaid=\"0\"/>\n</system><system version=\"1\">\n</system>";
    let cut = "<system version=\"1\">\n<cpu numaid=\"0\">";
    let started_again = "<graphs version=\"1\">\n<system version=\"1\">\n</system>";
    let mismatched = "<system version=\"1\">\n<cpu></pci>\n</system>";
    for (what, text, expected) in [
        ("one line", one_line, (1, 1, 0)),
        ("comment and tag over lines", commented, (1, 0, 0)),
        ("a log line in between", interleaved, (1, 0, 0)),
        ("end and start in a line", twice, (2, 0, 0)),
        ("cut", cut, (0, 0, 1)),
        ("started again", started_again, (1, 0, 1)),
        ("wrong end tag", mismatched, (0, 0, 1)),
        ("other elements", "<systems/> <graphs2></graphs2>", (0, 0, 0)),
    ] {
        let (found, _) = documents(text);
        assert_eq!((found.systems.len(), found.graphs.len(), found.errors.len()), expected, "{what}: {found:?}");
    }
    assert_eq!(documents(commented).0.systems[0].cpus[0].numa_id, Some(0));
    assert_eq!(documents(interleaved).1, [1, 3, 4], "the log line is left to its own reader");
}

#[test]
fn hostile_xml_is_an_error() {
    let nested = |depth: usize| {
        let (open, close) = ("<pci busid=\"0\">".repeat(depth), "</pci>".repeat(depth));
        read_system(&format!("<system><cpu>{open}{close}</cpu></system>"), Place::default())
    };
    assert_eq!(nested(200).unwrap().all_pcis().len(), 200);
    assert_eq!(nested(100_000), Err(XmlError::TooDeep));
    let entities = "<!DOCTYPE x [<!ENTITY a \"aaaa\">]><system>&a;</system>";
    assert!(matches!(read_system(entities, Place::default()), Err(XmlError::Malformed(_))));
    let swapped = read_graphs("<system/>", Place::default());
    assert_eq!(swapped, Err(XmlError::WrongRoot { expected: "graphs", found: "system".into() }));
}

/// What the readers make of a file, item by item, and how many lines are claimed.
fn told(path: &str) -> String {
    fn listed<T: std::fmt::Debug>((found, claimed): (Vec<T>, Vec<u64>)) -> String {
        let items: String = found.iter().map(|item| format!("{item:?}\n")).collect();
        format!("{items}claimed: {claimed:?}\n")
    }
    let text = read(path);
    match path.split_once('/') {
        Some(("nccl_xml", _)) => listed(dumps_of_log(&text)),
        _ if path.ends_with(".json") => format!("{:?}\n", read_json(&text, 7)),
        Some(("perftest", _)) => listed(tests(&text)),
        _ if path.ends_with("check.txt") => listed(checks(&text)),
        _ => listed(samples(&text)),
    }
}

/// Each file of the list with what it is read as. `BUSBW_BLESS=1` writes the list anew.
#[test]
fn files_are_read_as_before() {
    let expected = read("small_formats.txt");
    if std::env::var_os("BUSBW_BLESS").is_some() {
        let paths = expected.split("\n\n").filter_map(|case| case.lines().next());
        let list: Vec<String> = paths.map(|path| format!("{path}\n{}", told(path).trim_end())).collect();
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/small_formats.txt");
        return std::fs::write(file, list.join("\n\n") + "\n").unwrap();
    }
    for case in expected.split("\n\n") {
        let (path, items) = case.trim_end().split_once('\n').unwrap();
        assert_eq!(told(path).trim_end(), items, "{path}");
        assert!(!path.ends_with(".json") || looks_like_json(&read(path)), "{path}");
    }
}

#[test]
fn perftest_in_comments_and_json_of_others() {
    let commented = "#  #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n\
                     #  65536      279928           0.00               5830.79               0.093293";
    assert!(matches!(tests(commented).0[0].rows[0], PerfRow::Bandwidth { size: Some(Bytes(65536)), .. }));
    for text in ["", "{", "[]", r#"{"results": {"test_info": 1}}"#, "{\"version\": 3}"] {
        assert!(!looks_like_json(text) && read_json(text, 0).is_err(), "{text}");
    }
}

/// As perftest wrote it before 2024: linux-rdma/perftest#216 has a whole report.
#[test]
fn perftest_json_without_quotes() {
    let latency = "{\ntest_info: {\ntest: RDMA_Write_Latency_Test,\nDual_port: OFF,\nDevice: \"rxe0\",\nNumber_of_qps: 1,\nConnection_type: RC,\n\
                   TX_depth : 1,\nMtu: 1024,\nLink_type: Ethernet,\nGID_index: 1,\nData_ex_method: Ethernet,\n},\nresults: {\nMsgSize: 128,\n\
                   n_iterations: 5000,\nt_min: 2.37,\nt_max: 5.39,\nt_typical: 2.42,\nt_avg: nan,\npercentile_99.9: 4.03,\n},\n}\n";
    assert!(looks_like_json(latency));
    let test = read_json(latency, 0).unwrap();
    assert_eq!((test.test.as_deref(), test.device.as_deref()), (Some("RDMA_Write_Latency_Test"), Some("rxe0")));
    assert_eq!((test.connection.as_deref(), test.mtu, test.gid_index), (Some("RC"), Some(1024), Some(1)));
    let PerfRow::Latency { size, typical, average, p999, .. } = &test.rows[0] else { panic!("{:?}", test.rows) };
    assert_eq!((size.map(|size| size.0), typical.map(|t| t.0), average.map(|t| t.0)), (Some(128), Some(2.42), None));
    assert_eq!(p999.map(|time| time.0), Some(4.03));
    let bandwidth = "{ test_info: { test: RDMA_Write_BW_Test, }, results: { MsgSize: 65536, n_iterations: 5000, BW_peak: 0, \
                     BW_average: 97.9, MsgRate: 0.1867, }, }";
    let rows = read_json(bandwidth, 0).unwrap().rows;
    assert!(matches!(rows[0], PerfRow::Bandwidth { average_gbit_s: 97.9, .. }), "{rows:?}");
}

#[test]
fn rates_without_a_rule_between_are_two_samples() {
    let two = samples("2022-2-18 09:48:59\ntx_rate: 1\nrx_rate: 2\ntx_rate: 3\nrx_rate: 4").0;
    let rates: Vec<_> = two.iter().map(|s| (s.time.is_some(), s.get("tx_rate"))).collect();
    assert_eq!(rates, [(true, Some(1.0)), (false, Some(3.0))]);
}

/// The messages of a log with their NCCL prefix taken off, by thread.
fn dumps_of_log(text: &str) -> (Vec<SystemDump>, Vec<u64>) {
    let mut reader = DumpReader::default();
    for (i, text) in text.lines().enumerate() {
        let (speaker, message) = text.split_once(" NCCL INFO ").unwrap();
        let line = TextLine { place: Place { input: 0, line: i as u64 + 1 }, stream: speaker, text: message };
        assert!(DumpReader::may_belong(message.as_bytes()) && reader.feed(&line), "{text}");
    }
    (reader.finish(), Vec::new())
}

#[test]
fn ordinary_text_is_nobodys() {
    for text in cases::<String>("ordinary") {
        assert_eq!(claims(&text), [0; 6], "{text:?}");
    }
}

#[test]
fn every_file_has_one_reader() {
    for (folder, owner) in [("smi_topo", 0), ("perftest", 2)] {
        for text in texts_of(folder) {
            let mut others = claims(&text);
            others[owner] = 0;
            assert_eq!(others, [0; 6], "{text}");
        }
    }
}

/// The real files with their lines cut, dropped, repeated and overwritten.
fn damaged() -> impl Strategy<Value = String> {
    let texts: Vec<String> = ["smi_topo", "nccl_xml", "perftest", "rdma"].iter().flat_map(|f| texts_of(f)).collect();
    let edits = prop::collection::vec((any::<prop::sample::Index>(), 0..5u8, "\\PC{0,3}"), 0..12);
    (prop::sample::select(texts), edits).prop_map(|(mut text, edits)| {
        for (at, edit, new) in edits {
            let start = text.floor_char_boundary(at.index(text.len() + 1));
            let end = text.floor_char_boundary((start + 40).min(text.len()));
            match edit {
                0 => text.truncate(start),
                1 => text.replace_range(start..end, ""),
                2 => text = [&text[..end], &text[start..]].concat(),
                3 => text.insert_str(start, &new),
                _ => text.replace_range(start..end, &new),
            }
        }
        text
    })
}

fn read_as_everything(text: &str) {
    claims(text);
    let _ = (read_system(text, Place::default()), read_graphs(text, Place::default()), read_json(text, 0));
}

proptest! {
    #[test]
    fn any_text_is_read_without_panic(text in "(?s).{0,300}") {
        read_as_everything(&text);
    }

    #[test]
    fn damaged_files_are_read_without_panic(text in damaged()) {
        read_as_everything(&text);
    }
}
