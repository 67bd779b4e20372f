//! Texts of all versions, and the noise of healthy runs.

use super::*;

/// The codes whose signatures match a text that stands alone.
fn codes(text: &str) -> Vec<String> {
    let run = busbw_ingest::read_bytes(&[("log", text.as_bytes())]).expect("text");
    rule(&Case::new(&run)).into_iter().map(|finding| finding.code.to_string()).collect()
}

/// The same trouble in the words of several versions of NCCL.
#[test]
fn wordings_of_all_versions_tell_their_cause() {
    let cases = [
        ("NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129", "ib.transport-error"),
        (
            "NET/IB : Got completion from peer 10.1.0.4<4971> with error 5, opcode 48, len 0, vendor err 244",
            "ib.transport-error",
        ),
        (
            "NET/IB: Got completion from peer 10.1.0.4<4971> with status=12 opcode=0 len=0 vendor err 129 (Send) hca mlx5_0",
            "ib.transport-error",
        ),
        ("NET/IB : Got completion from peer 10.1.0.4<4971> with error 4, opcode 0, len 32, vendor err 81", "pcie.acs"),
        ("NET/IB : mlx5_0:1 Got async error event: port error", "ib.transport-error"),
        ("Net : Connect to 10.1.0.4<4971> failed : No route to host", "net.unreachable"),
        ("socketStartConnect: Connect to 10.1.0.4<4971> failed : Software caused connection abort", "net.unreachable"),
        (
            "socketConnect: connect to 10.1.0.4<4971> returned Connection refused, exceeded error retry count after 35 attempts",
            "net.unreachable",
        ),
        (
            "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, local GID index 3, local GID ::ffff:10.0.0.1, remote GID ::ffff:10.0.1.1",
            "roce.config",
        ),
        ("Call to ibv_modify_qp failed with error Network is unreachable", "roce.config"),
        ("NET/OFI OFI fi_getinfo() call failed: No data available", "net.plugin"),
        ("NET/OFI Request 0x1 completed with error. RC: 20. Error: unknown error.", "net.unreachable"),
        ("socketPollConnect poll() returned 1, no POLLOUT events", "net.unreachable"),
        (
            "NET/IB : Got completion from peer 10.1.0.4<4971> with status=IBV_WC_REM_INV_REQ_ERR(9) opcode=0",
            "ib.transport-error",
        ),
        ("NET/IB :SHARP coll init error: Cannot create SHArP job(-11)", "net.plugin"),
        ("Could not find real path of /sys/class/pci_bus/0000:01/../../0000:01:00.0", "topo.virtualized"),
        ("Call to ibv_modify_qp failed with error Connection timed out", "roce.config"),
        ("Bootstrap : no socket interface found", "net.wrong-interface"),
        ("NET/OFI Couldn't open a fabric domain. RC: -38, ERROR: Function not implemented", "net.plugin"),
    ];
    for (text, code) in cases {
        let line = format!("hostA:100:200 [0] transport/net.cc:1 NCCL WARN {text}");
        assert_eq!(codes(&line), [code], "{text}");
    }
}

/// The same trouble in the words of programs, launchers and the kernel.
#[test]
fn wordings_of_others_tell_their_cause() {
    let cases = [
        (
            "mlx5_core 0000:17:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link",
            "pcie.degraded",
        ),
        ("DMAR: [DMA Read NO_PASID] Request device [17:00.0] fault addr 0x0 [fault reason 0x06]", "pcie.acs"),
        ("There are not enough slots available in the system to satisfy the 16", "mpi.launch"),
        (
            "torch.distributed.DistNetworkError: The client socket has timed out after 600s while trying to connect to (10.0.0.1, 29500).",
            "net.unreachable",
        ),
        (
            "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable MASTER_ADDR expected, but not set",
            "mpi.launch",
        ),
    ];
    let and_also = [
        ("fi_getinfo: -61 (No data available)", "net.plugin"),
        (
            "libfabric:35:cq:rxr_cq_write_tx_error():243<warn> err: 20, prov_err: Not a directory (20)",
            "net.unreachable",
        ),
        ("After disabling ACS in the BIOS it works", "pcie.acs"),
    ];
    for (text, code) in cases.into_iter().chain(and_also) {
        assert_eq!(codes(text).first().map(String::as_str), Some(code), "{text}");
    }
}

#[test]
fn noise_of_healthy_runs_matches_nothing() {
    let noise = [
        "NET/IB : mlx5_0:1 Got async event : client reregistration",
        "NET/IB : Got async event : GID table change",
        "[Service thread] Could not receive type from localRank 3, res=3, closed=0",
        "[Proxy Service 3] Failed to execute operation Close from rank 3, retcode 3",
        "[Service thread] Accept failed Resource temporarily unavailable",
        "MSCCL++: Cannot enable MSCCL++; environment is not MSCCL compatible",
    ];
    for text in noise {
        let line = format!("hostA:100:200 [0] proxy.cc:1 NCCL WARN {text}");
        assert!(codes(&line).is_empty(), "{text}: {:?}", codes(&line));
    }
    let programs = [
        "NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No such file or directory No plugin found (libnccl-net.so), using internal implementation",
        "[W socket.cpp:464] [c10d] The IPv6 network addresses of (node0, 29500) cannot be retrieved (gai error: -2 - Name or service not known).",
        "step 100 | learning rate: 1.000E-04 | loss 2.3",
        "GID[  0]:\t\tfe80:0000:0000:0000:0000:00ff:fe00:0001, RoCE v1",
        "I have run it in two separate software environments.",
        "With the newer image it works with NCCL_P2P_DISABLE=1 only.",
        "I have tried to disable ACS and IOMMU in the BIOS, same result.",
        "We already did disable ACS on all bridges, it changed nothing",
        "GPUDirect RDMA: enabled. PCI ACS: disabled",
        "Do I need to make sure that ACS is enabled or disabled?",
        "Is it possible that there is a deadlock?",
    ];
    for text in programs {
        assert!(codes(text).is_empty(), "{text}: {:?}", codes(text));
    }
}
