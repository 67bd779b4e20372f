//! What is wrong with a description is said with its line and what to write instead.

use busbw_predict::cluster::parse;
use proptest::prelude::*;

const FULL: &str = include_str!("../descriptions/full.toml");

const SHORT: &str = include_str!("../descriptions/short.toml");

/// The description with one text replaced is refused with exactly this message.
fn refused(base: &str, cases: &[(&str, &str, &str)]) {
    parse(base).unwrap();
    let mut wrong = Vec::new();
    for (old, new, message) in cases {
        assert_eq!(base.matches(old).count(), 1, "{old}");
        let said = parse(&base.replace(old, new)).map_or_else(|error| error.to_string(), |_| "accepted".to_string());
        if said != *message {
            wrong.push(format!("{new:?}\n  expected {message}\n  said     {said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_full_form() {
    refused(
        FULL,
        &[
            (
                "count = 4\nrate = \"400 Gbit/s\"\ntransport",
                "count = 64\nrate = \"400 Gbit/s\"\ntransport",
                "line 11, column 9: nic.count = 64, but a host has 32 PCIe places for NICs; write count = 32 or less, or the real nic_places in [node]",
            ),
            (
                "gpus = 8",
                "gpus = 8\nnic_places = 2",
                "line 12, column 9: nic.count = 4, but a host has 2 PCIe places for NICs; write count = 2 or less, or the real nic_places in [node]",
            ),
            (
                "from = \"leaf0\"",
                "from = \"leaf7\"",
                "line 30, column 8: there is no switch leaf7; write one of leaf0, leaf1, or a NIC such as node0.nic0",
            ),
            (
                "name = \"leaf1\"",
                "name = \"leaf0\"",
                "line 20, column 8: two switches are called leaf0; write another name for one of them",
            ),
            (
                "name = \"leaf1\"",
                "name = \"node1.nic0\"",
                "line 20, column 8: a switch cannot be called node1.nic0, which is the name of a NIC; write another name",
            ),
            (
                "from = \"node1.nic*\"",
                "from = \"node1.nic0\"",
                "line 15, column 2: node1.nic1 reaches no NIC of node0 over the links; write [[fabric.link]] from node1.nic1 to a switch that leads there",
            ),
            (
                "from = \"node1.nic*\"",
                "from = \"node2.nic*\"",
                "line 26, column 8: node2.nic* is not there: there are 2 nodes with 4 NICs each; count from 0; the last is node1.nic3",
            ),
            (
                "from = \"leaf0\"\nto = \"leaf1\"",
                "from = \"leaf0\"\nto = \"leaf0\"",
                "line 31, column 6: a link joins leaf0 with itself; write the other end",
            ),
            (
                "from = \"leaf0\"\nto = \"leaf1\"",
                "from = \"node*.nic0\"\nto = \"node*.nic1\"",
                "line 31, column 6: both ends of a link stand for several NICs; write * at one end only",
            ),
            (
                "rate = \"400 Gbit/s\"\ntransport",
                "rate = 400\ntransport",
                "line 12, column 8: nic.rate = 400 has no unit; write \"400 Gbit/s\" or \"50 GB/s\"",
            ),
            (
                "rate = \"400 Gbit/s\"\ntransport",
                "rate = \"400\"\ntransport",
                "line 12, column 8: nic.rate = \"400\" has no unit; write \"400 Gbit/s\" or \"50 GB/s\"",
            ),
            (
                "rate = \"400 Gbit/s\"\ntransport",
                "rate = \"0 Gbit/s\"\ntransport",
                "line 12, column 8: nic.rate = \"0 Gbit/s\" is not more than zero; write what one direction carries, for example \"400 Gbit/s\" or \"50 GB/s\"",
            ),
            (
                "rate = \"400 Gbit/s\"\ntransport",
                "rate = \"-400 Gbit/s\"\ntransport",
                "line 12, column 8: nic.rate = \"-400 Gbit/s\" is not more than zero; write what one direction carries, for example \"400 Gbit/s\" or \"50 GB/s\"",
            ),
            (
                "rate = \"400 Gbit/s\"\ntransport",
                "rate = 0\ntransport",
                "line 12, column 8: nic.rate = 0 is not more than zero; write what one direction carries, for example \"400 Gbit/s\" or \"50 GB/s\"",
            ),
            (
                "rate = \"400 Gbit/s\"\ntransport",
                "rate = \"fast\"\ntransport",
                "line 12, column 8: nic.rate = \"fast\" is no bandwidth; write a number and a unit, for example \"400 Gbit/s\" or \"50 GB/s\"",
            ),
            (
                "rate = \"400 Gbit/s\"\ntransport",
                "rate = \"800 Gbit/s\"\ntransport",
                "line 12, column 8: nic.rate is 800 Gbit/s, but PCIe 5.0 x16 carries 504 Gbit/s; write a lower rate, or the pcie that the NIC really has",
            ),
            (
                "count = 4\nrate = \"400 Gbit/s\"\n[nccl",
                "count = 4\nrate = 400.5\n[nccl",
                "line 33, column 8: fabric.link.rate = 400.5 has no unit; write \"400.5 Gbit/s\" or \"50.0625 GB/s\"",
            ),
            (
                "count = 4\nrate = \"400 Gbit/s\"\n[nccl",
                "count = 0\nrate = \"400 Gbit/s\"\n[nccl",
                "line 32, column 9: fabric.link.count = 0 is less than 1; write count = 1",
            ),
            (
                "count = 4\nrate = \"400 Gbit/s\"\n[nccl",
                "count = 4\n[nccl",
                "line 29, column 1: fabric.link.rate is missing; write rate = \"400 Gbit/s\"",
            ),
            (
                "nvls = true",
                "nvls = true\nrate = 450",
                "line 10, column 8: links.rate = 450 has no unit; write \"450 GB/s\" or \"3600 Gbit/s\"",
            ),
            (
                "nvls = true",
                "rate = \"900 GB/s\"",
                "line 9, column 8: links.rate is 900 GB/s, but the NVLinks of H100 carry 450 GB/s per direction; write \"450 GB/s\" or less",
            ),
            (
                "nvls = true",
                "generation = 3",
                "line 9, column 14: links.generation = 3, but H100 has NVLink 4; write generation = 4",
            ),
            (
                "nvls = true",
                "domain = 12",
                "line 9, column 10: links.domain = 12 is no multiple of the 8 GPUs of a host; write whole hosts, for example domain = 16",
            ),
            ("nvls = true", "nvsl = true", "line 9, column 1: nvsl is no key in [links]; write nvls"),
            (
                "nvls = true",
                "nvls = \"yes\"",
                "line 9, column 8: links.nvls = \"yes\" is not true or false; write nvls = true",
            ),
            (
                "model = \"H100\"",
                "model = \"A100\"",
                "line 9, column 8: links.nvls = true needs Hopper or later, and the GPUs are Ampere; write nvls = false, or delete it",
            ),
            (
                "model = \"H100\"",
                "model = \"Gaudi3\"",
                "line 4, column 9: gpu.model = \"Gaudi3\" is no GPU that busbw knows; write a name as nvidia-smi -L shows it, for example model = \"H100\", or add generation = \"hopper\"",
            ),
            (
                "model = \"H100\"",
                "generation = \"hoper\"",
                "line 4, column 14: gpu.generation = \"hoper\" is not known; write generation = \"hopper\"",
            ),
            (
                "model = \"H100\"",
                "model = \"H100\"\ngeneration = \"ampere\"",
                "line 5, column 14: gpu.generation contradicts gpu.model: H100 is hopper; delete it, or write generation = \"hopper\"",
            ),
            (
                "model = \"H100\"",
                "",
                "line 3, column 2: gpu.model is missing; write a name as nvidia-smi -L shows it, for example model = \"H100\", or add generation = \"hopper\"",
            ),
            (
                "model = \"H100\"",
                "model = \"L40S\"",
                "line 8, column 8: links.kind names NVLink, but L40S has none; write kind = \"pcie\"",
            ),
            (
                "gpus = 8",
                "gpus = 16",
                "line 6, column 8: node.gpus = 16, but H100 means 8 GPUs at most; write gpus = 8 or less, and more nodes",
            ),
            (
                "gpus = 8",
                "gpus = 8\nmachine = \"p4d.24xlarge\"",
                "line 4, column 9: gpu.model = \"H100\", but AWS p4d.24xlarge has other GPUs; delete gpu.model or node.machine",
            ),
            (
                "gpus = 8",
                "gpus = 8\nmachine = \"my server\"",
                "line 7, column 11: node.machine = \"my server\" is no machine that busbw knows; delete it and describe the machine in [gpu], [links] and [nic]",
            ),
            (
                "gpus = 8",
                "gpus = \"8\"",
                "line 6, column 8: node.gpus = \"8\" is not a whole number, not negative; write gpus = 8",
            ),
            ("gpus = 8", "", "line 5, column 2: node.gpus is missing; write gpus = 8 in [node]"),
            (
                "kind = \"nvswitch\"",
                "kind = \"pcie\"",
                "line 9, column 8: links.nvls = true needs NVSwitches; write nvls = false, or delete it",
            ),
            (
                "kind = \"nvswitch\"",
                "kind = \"single\"",
                "line 8, column 8: links.kind = \"single\", but a host has 8 GPUs; write \"nvswitch\", \"nvlink\" or \"pcie\"",
            ),
            (
                "kind = \"nvswitch\"",
                "kind = \"switch\"",
                "line 8, column 8: links.kind = \"switch\" is not known; write kind = \"nvswitch\"",
            ),
            (
                "transport = \"roce\"",
                "transport = \"tcp\"\ngpu_direct = true",
                "line 14, column 14: nic.gpu_direct = true, but kernel sockets cannot reach GPU memory; write gpu_direct = false, or transport = \"tcpx\" or \"tcpxo\"",
            ),
            (
                "transport = \"roce\"",
                "transport = \"rocce\"",
                "line 13, column 13: nic.transport = \"rocce\" is not known; write transport = \"roce\"",
            ),
            (
                "transport = \"roce\"",
                "transport = \"roce\"\nflow_limit = \"500 Gbit/s\"",
                "line 14, column 14: nic.flow_limit is 500 Gbit/s, more than the 400 Gbit/s of the NIC; delete it, or write what one flow can carry",
            ),
            (
                "pcie = \"5.0 x16\"",
                "pcie = \"fast\"",
                "line 14, column 8: nic.pcie = \"fast\" is no PCIe connection; write generation and lanes, for example \"5.0 x16\"",
            ),
            (
                "NCCL_ALGO = \"ring\"",
                "NCCL_IB_DISABLE = \"1\"",
                "line 13, column 13: nic.transport names RDMA, but nccl.env.NCCL_IB_DISABLE = \"1\" switches it off; write transport = \"tcp\", or delete NCCL_IB_DISABLE",
            ),
            (
                "NCCL_ALGO = \"ring\"",
                "NCCL_NCHANNELS = [4]",
                "line 35, column 18: nccl.env.NCCL_NCHANNELS = [4] is not a text or a whole number; write NCCL_NCHANNELS = \"1\"",
            ),
            (
                "[nccl.env]",
                "[nccl]\nversion = \"new\"\n[nccl.env]",
                "line 35, column 11: nccl.version = \"new\" is no version; write it as NCCL prints it, for example \"2.27.7\"",
            ),
            (
                "nodes = 2",
                "nodes = -2",
                "line 2, column 9: cluster.nodes = -2 is not a whole number, not negative; write nodes = 2",
            ),
            ("nodes = 2", "", "line 1, column 2: cluster.nodes is missing; write nodes = 2"),
            (
                "nodes = 2",
                "nodes = 2\ncollective = \"allreduce\"",
                "line 3, column 14: cluster.collective = \"allreduce\" is not known; write collective = \"all_reduce\"",
            ),
            (
                "[nccl.env]",
                "[switches]\n[nccl.env]",
                "line 34, column 2: switches is no key here; delete it, or write one of cluster, cpu, fabric, gpu, links, nccl, nic, node",
            ),
            (
                "[cluster]",
                "gpus_per_node = 8\n[cluster]",
                "line 1, column 1: gpus_per_node belongs to the short form, and [cluster] to the full one; write it below its table, or delete [cluster]",
            ),
            (
                "wiring = \"explicit\"",
                "wiring = \"explicit\"\nrouting = \"ecmp\"",
                "line 17, column 11: fabric.routing = \"ecmp\" is not known; write one of hash, adaptive",
            ),
            (
                "wiring = \"explicit\"",
                "wiring = \"single-switch\"",
                "line 17, column 10: switch is no key in [fabric]; delete it, or write one of routing, wiring",
            ),
            (
                "wiring = \"explicit\"",
                "",
                "line 15, column 2: fabric.wiring is missing; write wiring = \"single-switch\", \"rail-optimised\", \"leaf-spine\", \"host-to-switch\" or \"explicit\"",
            ),
        ],
    );
}

#[test]
fn other_wirings() {
    let base = &format!("{}[fabric]\nwiring = \"single-switch\"\n", FULL.split("[fabric]").next().unwrap());
    refused(
        base,
        &[
            (
                "\"single-switch\"",
                "\"leaf-spine\"",
                "line 15, column 2: fabric.nodes_per_leaf is missing; write nodes_per_leaf = 16",
            ),
            (
                "\"single-switch\"",
                "\"leaf-spine\"\nnodes_per_leaf = 1\nspines = 2",
                "line 15, column 2: fabric.uplinks is missing; write uplinks = { count = 4, rate = \"400 Gbit/s\" }",
            ),
            (
                "\"single-switch\"",
                "\"leaf-spine\"\nnodes_per_leaf = 1\nspines = 0",
                "line 18, column 10: fabric.spines = 0 is less than 1; write spines = 4",
            ),
            (
                "\"single-switch\"",
                "\"leaf-spine\"\nnodes_per_leaf = 1\nspines = 2\nuplinks = 4",
                "line 19, column 11: fabric.uplinks = 4 is not a table; write [fabric.uplinks]",
            ),
            (
                "\"single-switch\"",
                "\"leaf-spine\"\nnodes_per_leaf = 1\nspines = 2\nuplinks = { count = 4 }",
                "line 19, column 1: fabric.uplinks.rate is missing; write rate = \"400 Gbit/s\"",
            ),
            (
                "\"single-switch\"",
                "\"host-to-switch\"\nbetween = { count = 4, rate = 400 }",
                "line 17, column 31: fabric.between.rate = 400 has no unit; write \"400 Gbit/s\" or \"50 GB/s\"",
            ),
            (
                "\"single-switch\"",
                "\"rail-optimised\"\nnodes_per_group = 1",
                "line 17, column 19: groups of 1 nodes never meet: fabric.spines is 0 or missing; write spines and uplinks, or delete nodes_per_group",
            ),
            (
                "\"single-switch\"",
                "\"rail-optimised\"\nspine = 4",
                "line 17, column 1: spine is no key in [fabric]; write spines",
            ),
        ],
    );
}

#[test]
fn the_short_form() {
    refused(
        SHORT,
        &[
            (
                "nodes = 2",
                "nodes = \"two\"",
                "line 2, column 9: nodes = \"two\" is not a whole number, not negative; write nodes = 2",
            ),
            ("nodes = 2", "nodes = 0", "line 2, column 9: nodes = 0 is less than 1; write nodes = 2"),
            ("nodes = 2", "", "line 1, column 1: nodes is missing; write nodes = 2"),
            (
                "gpus_per_node = 8",
                "gpus_per_node = 64",
                "line 3, column 17: gpus_per_node = 64, but H100 means 8 GPUs at most; write gpus_per_node = 8 or less, and more nodes",
            ),
            (
                "gpu = \"H100 80GB HBM3\"",
                "gpu = \"TPU v5\"",
                "line 4, column 7: gpu = \"TPU v5\" names no GPU that busbw knows; write a name such as \"H100\", or use the full form, where [gpu] has generation",
            ),
            (
                "gpu = \"H100 80GB HBM3\"",
                "gpu = \"H100\"\ncollective = \"all\"",
                "line 5, column 14: collective = \"all\" is no collective; write one of all_reduce, all_gather, reduce_scatter, alltoall, alltoallv, broadcast, reduce, sendrecv, gather, scatter, hypercube",
            ),
            (
                "nics_per_node = 8",
                "nics_per_node = 100",
                "line 6, column 17: nics_per_node = 100, but such a host has 32 PCIe places for NICs; write nics_per_node = 32 or less",
            ),
            (
                "nics_per_node = 8",
                "nics_per_node = 0",
                "line 6, column 17: nics_per_node = 0, but transport names a network; write the real nics_per_node, or transport = \"none\"",
            ),
            (
                "nic_gbps = 400",
                "nic_gbps = 0",
                "line 7, column 12: nic_gbps = 0, but transport names a network; write the real nic_gbps, or transport = \"none\"",
            ),
            (
                "nic_gbps = 400",
                "nic_gbps = -400",
                "line 7, column 12: nic_gbps = -400 is negative; write the rate of one NIC in Gbit/s, for example nic_gbps = 400",
            ),
            (
                "nic_gbps = 400",
                "nic_gbps = \"400\"",
                "line 7, column 12: nic_gbps = \"400\" is not a number; write nic_gbps = 400",
            ),
            (
                "transport = \"ib\"",
                "transport = \"none\"",
                "line 8, column 1: 2 nodes without a network cannot reach each other; write the transport and the NICs, or nodes = 1",
            ),
            (
                "transport = \"ib\"",
                "transport = \"verbs\"",
                "line 8, column 13: transport = \"verbs\" is not known; write one of ib, roce, efa, tcp, none, other",
            ),
            (
                "transport = \"ib\"",
                "transport = ib",
                "line 8, column 13: this is not TOML: invalid float, expected `inf`; write lines of the form key = value, and texts in quotes",
            ),
        ],
    );
}

#[test]
fn what_is_no_description() {
    let nothing = "line 1, column 1: this describes no cluster; \
                   write nodes, gpus_per_node and gpu, or the tables [cluster], [gpu], [node] …";
    let not_toml = |place: &str, why: &str| {
        format!("{place}: this is not TOML: {why}; write lines of the form key = value, and texts in quotes")
    };
    for (text, message) in [
        ("", nothing),
        ("a = 1\n", nothing),
        ("nodes 2\n", &not_toml("line 1, column 7", "key with no value, expected `=`")),
        ("nodes = 1\nnodes = 2\n", &not_toml("line 2, column 1", "duplicate key")),
    ] {
        let said = parse(text).map_or_else(|error| error.to_string(), |_| "accepted".to_string());
        assert_eq!(said, message, "{text:?}");
    }
}

proptest! {
    #[test]
    fn no_text_breaks_the_reader(text in ".{0,200}") {
        let _ = parse(&text);
    }

    /// Whatever the texts of the short form are, links carry something, and no more than the GPU can send.
    #[test]
    fn words_never_make_links_faster(intra in "(nvlink|NVSwitch|pcie|NV|P2P|no|mesh|[0-9.]{1,6}|GB/s|TB/s|x16|, | ){0,12}") {
        let text = format!("nodes = 1\ngpus_per_node = 8\ngpu = \"H100\"\nintra = \"{intra}\"\n");
        let rate = parse(&text).unwrap().links.per_gpu().0;
        prop_assert!(rate > 0.0 && rate <= 450.0, "{rate}");
    }

    /// Any value at any key is accepted or refused within the file.
    #[test]
    fn no_value_breaks_the_reader(line in 0usize..35, value in prop_oneof![
        Just("0".to_string()), Just("-1".to_string()), Just("true".to_string()), Just("[]".to_string()),
        Just("{}".to_string()), Just("1e300".to_string()), Just("999999999999999999999".to_string()),
        Just("\"\"".to_string()), Just("\"1e308 TB/s\"".to_string()), "\"[a-z0-9 ./*]{0,12}\"".prop_map(|text| text),
    ]) {
        let mut lines: Vec<String> = FULL.lines().map(str::to_string).collect();
        if let Some((key, _)) = lines[line].clone().split_once(" = ") {
            lines[line] = format!("{key} = {value}");
        }
        if let Err(error) = parse(&lines.join("\n")) {
            prop_assert!(error.line >= 1 && error.line <= lines.len() + 1);
            prop_assert!(!error.message.is_empty() && !error.remedy.is_empty());
        }
    }
}
