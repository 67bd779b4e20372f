//! A C program plays NCCL's part for every version of the interface, and a C compiler's layout is compared with Rust's.

use crate::plugin;
use crate::skip::needed;
use crate::support::{self, C};
use busbw_nccl_abi::net::*;
use busbw_nccl_abi::profiler::*;
use busbw_nccl_abi::tuner::{NvlDomains, TunerV2, TunerV5, TunerV6};
use std::collections::HashMap;
use std::mem::{offset_of, size_of};
use std::process::Command;

/// The plugin of this build, under the name that NCCL opens.
fn plays(version: u32) {
    let c = needed!(C::compiler());
    let program = c.compile("play", &["play.c", "versions.c"]);
    let mut command = Command::new(program);
    command.arg(plugin::library()).arg(version.to_string()).env("NCCL_SOCKET_IFNAME", "=lo");
    support::clean(&mut command);
    let output = command.output().expect("the program runs");
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
}

macro_rules! versions {
    ($($name:ident $version:literal)*) => {$(
        #[test]
        fn $name() {
            plays($version);
        }
    )*};
}

versions! {
    a_c_program_uses_version_6 6
    a_c_program_uses_version_7 7
    a_c_program_uses_version_8 8
    a_c_program_uses_version_9 9
    a_c_program_uses_version_10 10
    a_c_program_uses_version_11 11
    a_c_program_uses_version_12 12
}

/// What Rust says of the same types and members.
fn of_rust() -> Vec<(&'static str, usize)> {
    let p9 = offset_of!(PropertiesV11, base);
    vec![
        ("properties_v6", size_of::<PropertiesV6>()),
        ("properties_v6.name", offset_of!(PropertiesV6, name)),
        ("properties_v6.guid", offset_of!(PropertiesV6, guid)),
        ("properties_v6.ptrSupport", offset_of!(PropertiesV6, ptr_support)),
        ("properties_v6.speed", offset_of!(PropertiesV6, speed_mbps)),
        ("properties_v6.latency", offset_of!(PropertiesV6, latency_us)),
        ("properties_v6.maxRecvs", offset_of!(PropertiesV6, most_grouped)),
        ("properties_v7", size_of::<PropertiesV7>()),
        ("properties_v7.netDeviceVersion", offset_of!(PropertiesV7, device_version)),
        ("properties_v8", size_of::<PropertiesV8>()),
        ("properties_v8.regIsGlobal", offset_of!(PropertiesV8, registration_is_global)),
        ("properties_v8.speed", offset_of!(PropertiesV8, speed_mbps)),
        ("properties_v8.latency", offset_of!(PropertiesV8, latency_us)),
        ("properties_v8.maxRecvs", offset_of!(PropertiesV8, most_grouped)),
        ("properties_v9", size_of::<PropertiesV9<4>>()),
        ("properties_v9.speed", offset_of!(PropertiesV9<4>, speed_mbps)),
        ("properties_v9.maxRecvs", offset_of!(PropertiesV9<4>, most_grouped)),
        ("properties_v9.vProps", offset_of!(PropertiesV9<4>, made_of)),
        ("properties_v9.maxCollBytes", offset_of!(PropertiesV9<4>, most_collective_bytes)),
        ("properties_v11", size_of::<PropertiesV11>()),
        ("properties_v11.guid", p9 + offset_of!(PropertiesV9<4>, guid)),
        ("properties_v11.maxMultiRequestSize", offset_of!(PropertiesV11, most_multi_request)),
        ("properties_v12", size_of::<PropertiesV12>()),
        ("properties_v12.maxRecvs", offset_of!(PropertiesV12, base) + offset_of!(PropertiesV9<8>, most_grouped)),
        ("properties_v12.vProps", offset_of!(PropertiesV12, base) + offset_of!(PropertiesV9<8>, made_of)),
        ("properties_v12.maxMultiRequestSize", offset_of!(PropertiesV12, most_multi_request)),
        ("properties_v12.planeId", offset_of!(PropertiesV12, plane)),
        ("attributes_t", size_of::<NetAttributes>()),
        ("config_t", size_of::<CommConfig>()),
        ("net_v6", size_of::<NetV6>()),
        ("net_v6.init", offset_of!(NetV6, init)),
        ("net_v6.regMr", offset_of!(NetV6, register)),
        ("net_v6.test", offset_of!(NetV6, test)),
        ("net_v6.closeListen", offset_of!(NetV6, close_listen)),
        ("net_v7", size_of::<NetV7>()),
        ("net_v8", size_of::<NetV8>()),
        ("net_v9", size_of::<NetV9>()),
        ("net_v10", size_of::<NetV10>()),
        ("net_v11", size_of::<NetV11>()),
        ("net_v12", size_of::<NetV12>()),
        ("net_v12.test", offset_of!(NetV12, test)),
        ("net_v12.finalize", offset_of!(NetV12, more.finalize)),
        ("net_v12.setNetAttr", offset_of!(NetV12, more.set_attributes)),
        ("tuner_v2", size_of::<TunerV2>()),
        ("tuner_v2.getCollInfo", offset_of!(TunerV2, choose)),
        ("tuner_v5", size_of::<TunerV5>()),
        ("tuner_v5.finalize", offset_of!(TunerV5, finalize)),
        ("tuner_v6", size_of::<TunerV6>()),
        ("tuner_v6.getChunkSize", offset_of!(TunerV6, chunk_size)),
        ("domains_t", size_of::<NvlDomains>()),
    ]
}

/// The same of the profiler.
fn of_profiler() -> Vec<(&'static str, usize)> {
    vec![
        ("profiler_v1", size_of::<ProfilerV1>()),
        ("profiler_v1.finalize", offset_of!(ProfilerV1, finalize)),
        ("descr_v1.parentObj", offset_of!(DescriptorV1, parent)),
        ("descr_v1.rank", offset_of!(DescriptorV1, rank)),
        ("descr_v1.coll.count", offset_of!(DescriptorV1, of.collective.count)),
        ("descr_v1.coll.algo", offset_of!(DescriptorV1, of.collective.algorithm)),
        ("descr_v1.coll.proto", offset_of!(DescriptorV1, of.collective.protocol)),
        ("descr_v1.p2p.count", offset_of!(DescriptorV1, of.p2p.count)),
        ("descr_v1.proxyOp.isSend", offset_of!(DescriptorV1, of.proxy_operation.sends)),
        ("descr_v1.coll.datatype", offset_of!(DescriptorV1, of.collective.datatype)),
        ("profiler_v2", size_of::<ProfilerV2>()),
        ("profiler_v2.finalize", offset_of!(ProfilerV2, finalize)),
        ("descr_v2.parentObj", offset_of!(DescriptorV2, parent)),
        ("descr_v2.rank", offset_of!(DescriptorV2, rank)),
        ("descr_v2.coll.count", offset_of!(DescriptorV2, of.collective.what.count)),
        ("descr_v2.coll.algo", offset_of!(DescriptorV2, of.collective.what.algorithm)),
        ("descr_v2.coll.proto", offset_of!(DescriptorV2, of.collective.what.protocol)),
        ("descr_v2.p2p.count", offset_of!(DescriptorV2, of.p2p.what.count)),
        ("descr_v2.proxyOp.isSend", offset_of!(DescriptorV2, of.proxy_operation.sends)),
        ("profiler_v3", size_of::<ProfilerV3>()),
        ("profiler_v3.finalize", offset_of!(ProfilerV3, finalize)),
        ("descr_v3.parentObj", offset_of!(DescriptorV3, parent)),
        ("descr_v3.rank", offset_of!(DescriptorV3, rank)),
        ("descr_v3.coll.count", offset_of!(DescriptorV3, of.collective.what.count)),
        ("descr_v3.coll.algo", offset_of!(DescriptorV3, of.collective.what.algorithm)),
        ("descr_v3.coll.proto", offset_of!(DescriptorV3, of.collective.what.protocol)),
        ("descr_v3.p2p.count", offset_of!(DescriptorV3, of.p2p.what.count)),
        ("descr_v3.proxyOp.isSend", offset_of!(DescriptorV3, of.proxy_operation.sends)),
        ("profiler_v4", size_of::<ProfilerV4>()),
        ("profiler_v4.finalize", offset_of!(ProfilerV4, finalize)),
        ("descr_v4.parentObj", offset_of!(DescriptorV4, parent)),
        ("descr_v4.rank", offset_of!(DescriptorV4, rank)),
        ("descr_v4.coll.count", offset_of!(DescriptorV4, of.collective.count)),
        ("descr_v4.coll.algo", offset_of!(DescriptorV4, of.collective.algorithm)),
        ("descr_v4.coll.proto", offset_of!(DescriptorV4, of.collective.protocol)),
        ("descr_v4.p2p.count", offset_of!(DescriptorV4, of.p2p.count)),
        ("descr_v4.proxyOp.isSend", offset_of!(DescriptorV4, of.proxy_operation.sends)),
        ("descr_v4.kernelCh.pTimer", offset_of!(DescriptorV4, of.kernel.timer)),
        ("descr_v4.netPlugin.data", offset_of!(DescriptorV4, of.net_plugin.data)),
        ("profiler_v5", size_of::<ProfilerV5>()),
        ("profiler_v5.finalize", offset_of!(ProfilerV5, finalize)),
        ("descr_v5.parentObj", offset_of!(DescriptorV5, parent)),
        ("descr_v5.rank", offset_of!(DescriptorV5, rank)),
        ("descr_v5.coll.count", offset_of!(DescriptorV5, of.v4.collective.count)),
        ("descr_v5.coll.algo", offset_of!(DescriptorV5, of.v4.collective.algorithm)),
        ("descr_v5.coll.proto", offset_of!(DescriptorV5, of.v4.collective.protocol)),
        ("descr_v5.p2p.count", offset_of!(DescriptorV5, of.v4.p2p.count)),
        ("descr_v5.proxyOp.isSend", offset_of!(DescriptorV5, of.v4.proxy_operation.sends)),
        ("descr_v5.collApi.graphCaptured", offset_of!(DescriptorV5, of.collective_call.captured)),
        ("descr_v5.p2pApi.graphCaptured", offset_of!(DescriptorV5, of.p2p_call.captured)),
        ("profiler_v6", size_of::<ProfilerV6>()),
        ("profiler_v6.finalize", offset_of!(ProfilerV6, finalize)),
        ("descr_v6.parentObj", offset_of!(DescriptorV6, parent)),
        ("descr_v6.rank", offset_of!(DescriptorV6, rank)),
        ("descr_v6.coll.count", offset_of!(DescriptorV6, of.v5.v4.collective.count)),
        ("descr_v6.coll.algo", offset_of!(DescriptorV6, of.v5.v4.collective.algorithm)),
        ("descr_v6.coll.proto", offset_of!(DescriptorV6, of.v5.v4.collective.protocol)),
        ("descr_v6.p2p.count", offset_of!(DescriptorV6, of.v5.v4.p2p.count)),
        ("descr_v6.proxyOp.isSend", offset_of!(DescriptorV6, of.v5.v4.proxy_operation.sends)),
        ("descr_v6.ceColl.datatype", offset_of!(DescriptorV6, of.copy_engine.datatype)),
        ("descr_v5.coll.parentGroup", offset_of!(DescriptorV5, of.collective.group)),
        ("descr_v5.p2p.nChannels", offset_of!(DescriptorV5, of.p2p.channels)),
        ("descr_v5.p2p.parentGroup", offset_of!(DescriptorV5, of.p2p.group)),
        ("descr_v5.groupApi.groupDepth", offset_of!(DescriptorV5, of.group_call.depth)),
        ("descr_v5", size_of::<DescriptorV5>()),
        ("descr_v6", size_of::<DescriptorV6>()),
        ("state_args", size_of::<StateArguments>()),
    ]
}

#[test]
fn layouts_are_those_of_a_c_compiler() {
    let output = Command::new(needed!(C::compiler()).compile("layout", &["layout.c"])).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let of_c: HashMap<&str, usize> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(what, number)| (what, number.parse().unwrap()))
        .collect();
    for (what, number) in of_rust().into_iter().chain(of_profiler()) {
        assert_eq!(of_c.get(what), Some(&number), "{what}");
    }
}
