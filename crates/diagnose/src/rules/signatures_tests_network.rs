//! One line per cause of network.toml, rdma.toml, pcie.toml and launch.toml, as the program prints it, and lines that are none.

use super::rule;
use crate::case::Case;
use crate::rules::signatures::book::Role;
use std::collections::BTreeSet;

/// The causes whose texts a log holds.
fn causes(log: &str) -> BTreeSet<String> {
    let run = busbw_ingest::read_bytes(&[("log", log.as_bytes())]).expect("text");
    let case = Case::new(&run);
    let found = case.lines.iter().flat_map(|line| case.book.read(line.speaker, &line.text));
    let printed = found.filter(|(_, role)| matches!(role, Role::Printed(_)));
    printed.map(|(cause, _)| case.book.cause(cause).id.clone()).collect()
}

/// The codes of what a log raises.
fn codes(log: &str) -> Vec<String> {
    let run = busbw_ingest::read_bytes(&[("log", log.as_bytes())]).expect("text");
    rule(&Case::new(&run)).into_iter().map(|finding| finding.code.to_string()).collect()
}

/// A warning of NCCL's, or of a plugin below it.
fn warn(message: &str) -> String {
    format!("hostA:1000:1100 [0] transport/net.cc:839 NCCL WARN {message}")
}

fn info(message: &str) -> String {
    format!("hostA:1000:1100 [0] NCCL INFO {message}")
}

const INTERFACES: [(&str, &str); 8] = [
    ("Bootstrap : no socket interface found", "net.no-interface"),
    ("no device found matching eth7, verify NCCL_OOB_NET_IFNAME", "net.no-interface"),
    ("socketStartConnect: Connect to 127.0.0.1<4971> failed : Connection refused", "net.loopback"),
    (
        "ncclOsSocketPollConnect: connect to 172.17.0.2<4971> returned Connection refused, exceeded error retry count after 35 attempts",
        "net.loopback",
    ),
    ("Net : Connect to 10.1.0.4<4971> failed : No route to host", "net.connect-failed"),
    (
        "socketPollConnect: connect returned Connection timed out, exceeded error retry count (20000)",
        "net.connect-failed",
    ),
    ("Net : error encountered when getting address info : Name or service not known", "net.comm-id"),
    ("Socket creation failed : Address family not supported by protocol", "net.no-ip"),
];

const PLUGINS: [(&str, &str); 11] = [
    ("Failed to open libibverbs.so[.1]", "net.no-ibverbs"),
    ("Failed to initialize any NET plugin", "plugin.none"),
    ("NET/OFI Could not find any optimal provider", "plugin.ofi-no-device"),
    ("NET/OFI aws-ofi-nccl initialization failed", "plugin.ofi-no-device"),
    ("NET/OFI OFI fi_getinfo() call failed: No data available", "plugin.ofi-call"),
    ("NET/OFI Unable to register memory (type = 2) for device 3. RC: -22, Error: Invalid argument", "plugin.ofi-call"),
    (
        "NET/OFI Request 0x1 completed with error. RC: 20. Error: unknown error. Completed length: 0, Request: {}",
        "efa.no-answer",
    ),
    ("NET/OFI Unable to insert remote address into address vector for device 1. RC: 0", "efa.address"),
    (
        "NET/OFI Request 0x1 completed with error. RC: 5. Error: Input/output error. Completed length: 0",
        "plugin.ofi-request",
    ),
    ("NET/IB : SHARP coll init error: Cannot create SHARP job(-11)", "plugin.sharp-off"),
    ("NET/Socket : NCCL_SOCKET_NTHREADS is greater than the maximum allowed, setting to 16", "socket.too-many-threads"),
];

const QUEUE_PAIRS: [(&str, &str); 10] = [
    ("Call to ibv_modify_qp failed with error Connection timed out", "roce.qp-timeout"),
    (
        "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, curr state INIT, next state RTR, local GID index 0, local GID fe80::1, remote GID fe80::2",
        "roce.qp-timeout",
    ),
    (
        "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, curr state INIT, next state RTR, local GID index 3, local GID ::ffff:10.0.0.1, remote GID ::ffff:10.0.1.1",
        "roce.no-route",
    ),
    ("Call to ibv_modify_qp failed with error Invalid argument errno 22", "roce.gid-index"),
    ("Call to ibv_modify_qp failed with 19 No such device, on dev mlx5_0:1", "roce.gid-index"),
    ("NET/IB: NCCL_IB_SUBNET_PREFIX_LEN=64 is out of range [1,32]", "roce.address-range"),
    (
        "NET/IB : Attempted to connect incompatible devices: [0]mlx5_0:1/IB and [1]mlx5_1:1/RoCE. Try selecting NICs of only one link type using NCCL_IB_HCA",
        "roce.mixed-links",
    ),
    ("Call to ibv_reg_dmabuf_mr failed with error Operation not supported", "gdr.dmabuf"),
    ("Call to ibv_reg_mr_iova2 failed with error Bad address", "gdr.register"),
    (
        "Detected mixed local Net device counts across ranks (min 1, max 2). Set NCCL_IGNORE_NET_MISMATCH=1 to continue.",
        "nic.counts-differ",
    ),
];

/// Status 12 in the words of four ranges of versions, then the other numbers.
const COMPLETIONS: [(&str, &str); 18] = [
    ("NET/IB : Got completion with error 13, opcode 1, len 0, vendor err 135", "ib.receiver-not-ready"),
    (
        "NET/IB : Got completion from peer 10.1.0.4<4971> with error 9, opcode 0, len 0, vendor err 138",
        "ib.remote-invalid-request",
    ),
    (
        "NET/IB: Got completion from peer 10.1.0.4<4971> with status=IBV_WC_REM_INV_REQ_ERR(9) opcode=IBV_WC_SEND(0) vendor_err=138 hca mlx5_0",
        "ib.remote-invalid-request",
    ),
    ("NET/IB : Got completion from peer 10.1.0.4<4971> with error 5, opcode 48, len 0, vendor err 244", "ib.flushed"),
    (
        "NET/IB: Got completion from peer 10.1.0.4<4971> with status=5 opcode=0 len=0 vendor err 249 (Recv) hca mlx5_0",
        "ib.flushed",
    ),
    (
        "NET/IB: Got completion from peer 10.1.0.4<4971> with status=1 opcode=0 len=0 vendor err 0 (Recv) hca mlx5_0",
        "ib.completion-error",
    ),
    (
        "NET/IB : Got completion from peer 10.1.0.4<4971> with error 4, opcode 0, len 32, vendor err 12",
        "ib.completion-error",
    ),
    ("NET/IB : Got completion from peer 10.1.0.4<4971> with error 4, opcode 0, len 32, vendor err 81", "acs.local"),
    (
        "NET/IB: Got completion from peer 10.1.0.4<4971> with status=IBV_WC_LOC_PROT_ERR(4) opcode=IBV_WC_SEND(0) vendor_err=81 hca mlx5_0",
        "acs.local",
    ),
    (
        "NET/IB: Got completion from peer 10.1.0.4<4971> with status=10 opcode=0 len=0 vendor err 136 (Send) hca mlx5_0",
        "acs.remote",
    ),
    ("NET/IB : Got async event : port error", "ib.port-down"),
    ("NET/IB : mlx5_0:1 Got async error event: port error", "ib.port-down"),
    ("NET/IB : mlx5_0:1 Got non-fatal async event: port error(10)", "ib.port-down"),
    ("NET/IB : mlx5_0:1 Got async event : local catastrophic error", "ib.nic-fault"),
    ("NET/IB : mlx5_0:1 async fatal event on QP (0x7f): local work queue catastrophic error", "ib.nic-fault"),
    (
        "NET/IB: Device 1 marked as failed. Initiating recovery? 1 (send comm=0x7f, outstandingRecovery=1)",
        "ib.failover",
    ),
    ("Missing \"iommu=pt\" from kernel command line which can lead to system instablity or hang!", "iommu.rccl"),
    ("Could not find real path of /sys/class/pci_bus/0000:01/../../0000:01:00.0", "topo.no-pci"),
];

#[test]
fn warnings_of_nccl_and_plugins_tell_their_cause() {
    for (message, cause) in [&INTERFACES[..], &PLUGINS, &QUEUE_PAIRS, &COMPLETIONS].concat() {
        let found = causes(&warn(message));
        let wanted = match cause {
            "net.no-ibverbs" => vec![cause, "net.no-ibverbs-wanted"],
            _ => vec![cause],
        };
        assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), wanted, "{message}");
    }
}

/// NCCL speaks of an HCA's absence, a plugin's trouble or GPUDirect in passing.
#[test]
fn notes_of_nccl_tell_their_cause() {
    let cases = [
        (
            "socketPollConnect: connect returned Connection refused, retrying (1/34) after sleep for 100 msec",
            "net.connect-retries",
        ),
        (
            "NET/Plugin : dlerror=/opt/amazon/efa/lib/libfabric.so.1: version `FABRIC_1.7' not found (required by libnccl-net.so) No plugin found (libnccl-net.so), using internal implementation",
            "plugin.does-not-load",
        ),
        (
            "NET/Plugin: libnccl-net.so: libfabric.so.1: cannot open shared object file: No such file or directory",
            "plugin.does-not-load",
        ),
        ("NET/OFI Selected provider is tcp, fabric is 10.0.0.0/16 (found 1 nics)", "plugin.ofi-tcp"),
        (
            "NET/IB : There are mismatched physical devices between local (mlx5_0) and remote (mlx5_0+mlx5_1). To disable this warning, set NCCL_IB_WARN_RAIL_LOCAL=0",
            "nic.differ",
        ),
        ("Could not get speed from /sys/class/net/bond0/speed. Defaulting to 10 Gbps.", "nic.rate-unknown"),
        ("NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", "gdr.off"),
        ("GPU Direct RDMA Disabled for GPU 0 / HCA 1 (distance 7 > 4)", "gdr.far"),
        ("Could not open XML topology file /etc/nccl/topo.xml : No such file or directory", "topo.file-missing"),
    ];
    for (message, cause) in cases {
        assert_eq!(causes(&info(message)), BTreeSet::from([cause.to_string()]), "{message}");
    }
}

/// Retries used up: on RoCE it is another cause than on InfiniBand, in the words of every version.
#[test]
fn retries_used_up_are_told_by_the_fabric() {
    let cases = [
        "NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129",
        "NET/IB : Got completion from peer 10.1.0.4<4971> with error 12, opcode 1, len 0, vendor err 129",
        "NET/IB: Got completion from peer 10.1.0.4<4971> with status=12 opcode=0 len=0 vendor err 129 (Send) hca mlx5_0",
        "NET/IB: Got completion from peer 10.1.0.4<4971> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129 hca mlx5_0",
    ];
    for message in cases {
        assert_eq!(codes(&warn(message)), ["ib.transport-error"], "{message}");
        for told in
            ["NCCL_IB_GID_INDEX set by environment to 3.", "NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.1.0.1<0>"]
        {
            let roce = format!("{}\n{}", info(told), warn(message));
            assert_eq!(codes(&roce), ["roce.config"], "{message}");
        }
    }
    let flushed = warn(
        "NET/IB: Got completion from peer 10.1.0.4<1> with status=5 opcode=0 len=0 vendor err 249 (Send) hca mlx5_0",
    );
    assert_eq!(codes(&flushed), ["ib.transport-error"]);
    let after_local =
        format!("{}\n{flushed}", warn("NET/IB : Got completion with error 4, opcode 0, len 0, vendor err 81"));
    assert_eq!(codes(&after_local), ["pcie.acs"], "what was flushed follows from what failed before");
}

#[test]
fn other_programs_tell_their_cause() {
    let cases = [
        ("RuntimeError: Unable to find address for: ib0", "net.gloo-interface"),
        (
            "[W ProcessGroupGloo.cpp:721] Warning: Unable to resolve hostname to a (local) address. Using the loopback address as fallback. Manually",
            "net.gloo-loopback",
        ),
        ("ValueError: host not found: Name or service not known", "net.name"),
        (
            "[rank8]:[E ProcessGroupGloo.cpp:144] Gloo connectFullMesh failed with [pair.cc:144] timed out connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:14215",
            "net.loopback",
        ),
        (
            "[rank8]:[E ProcessGroupGloo.cpp:144] Gloo connectFullMesh failed with [pair.cc:144] timed out connecting: SO_ERROR: No route to host, remote=[10.0.0.1]:14215",
            "net.gloo-mesh",
        ),
        (
            "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (10.0.0.1, 29500).",
            "net.tcpstore",
        ),
        (
            "[E1012 10:00:00.000000000 socket.cpp:1028] [c10d] The client socket has timed out after 60000ms while trying to connect to (n1, 29500).",
            "net.tcpstore",
        ),
        (
            "libibverbs: Warning: no userspace device-specific driver found for /sys/class/infiniband_verbs/uverbs0",
            "net.no-ib-provider",
        ),
        (
            "libfabric:35:1:efa:cq:rxr_cq_write_tx_error():243<warn> err: 20, prov_err: Not a directory (20)",
            "efa.no-answer",
        ),
        (
            "[n1:77:0:77] ib_mlx5_log.c:143  Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)",
            "roce.retry-exceeded",
        ),
        (
            "[n1:77:0:77] ib_mlx5_log.c:143  Transport retry count exceeded on mlx5_0:1/IB (synd 0x15 vend 0x81 hw_synd 0/0)",
            "ib.retry-exceeded",
        ),
        (
            "[ 12.345678] mlx5_core 0000:17:00.0: poll_health:801:(pid 0): device's health compromised - reached miss count",
            "ib.nic-health",
        ),
        ("[ 12.345678] mlx5_core 0000:17:00.0 ens1f0np0: Link down", "ib.link-down"),
        ("[ 12.345678] nvidia_peermem: Unknown symbol ib_register_peer_memory_client (err -2)", "gdr.module"),
        (
            "[ 12.345678] DMAR: [DMA Read NO_PASID] Request device [17:00.0] fault addr 0x0 [fault reason 0x06]",
            "iommu.fault",
        ),
        (
            "[ 12.345678] mlx5_core 0000:17:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at 0000:00:01.0",
            "pcie.narrow",
        ),
        ("[ 12.345678] pcieport 0000:16:01.0: AER: Uncorrected (Fatal) error received: 0000:17:00.0", "pcie.errors"),
    ];
    let launchers = [
        ("There are not enough slots available in the system to satisfy the 16", "mpi.slots"),
        ("ssh: connect to host n2 port 22: Connection refused", "mpi.ssh"),
        ("me@n2: Permission denied (publickey,password).", "mpi.ssh"),
        ("ORTE was unable to reliably start one or more daemons.", "mpi.daemon"),
        ("bash: line 1: orted: command not found", "mpi.daemon"),
        ("slurmstepd: error: execve(): ./all_reduce_perf: No such file or directory", "mpi.executable"),
        (
            "[proxy:0:0@n1] HYDU_create_process (utils/launch.c:74): execvp error on file ./x (No such file or directory)",
            "mpi.executable",
        ),
        (
            "./x: error while loading shared libraries: libmpi.so.40: cannot open shared object file: No such file or directory",
            "mpi.library",
        ),
        ("mpirun has detected an attempt to run as root.", "mpi.root"),
        ("srun: error: Invalid MPI type 'pmix', --mpi=list for acceptable types", "mpi.pmi"),
        ("srun: error: Unable to create step for job 77: Requested nodes are busy", "slurm.step"),
        (
            "[1693.123456] [n1:77:0]  select.c:722  UCX  ERROR no active messages transport to <no debug data>: self/memory",
            "mpi.unreachable",
        ),
        (
            "Sat Apr 20 22:59:55 2019[1,22]<stderr>:[n1:77] pml_ucx.c:447  Error: Failed to resolve UCX endpoint for rank 219",
            "mpi.unreachable",
        ),
        (
            "[1700554343.440877] [n1:77:0]  sock.c:323  UCX  ERROR   connect(fd=48, dest_addr=172.17.0.1:42887) failed: Connection refused",
            "mpi.loopback",
        ),
        (
            "[n1][[38971,1],2][btl_tcp_endpoint.c:796:mca_btl_tcp_endpoint_complete_connect] connect() to 172.17.0.1 failed: Connection refused (111)",
            "mpi.loopback",
        ),
        (
            "[1693.123456] [n1:77:0] sock.c:323 UCX ERROR connect(fd=8, dest_addr=172.17.0.1:47133) failed: Connection refused",
            "mpi.loopback",
        ),
        ("[n1:77] pml_ucx.c:419 Error: ucp_ep_create(proc=9) failed: Destination is unreachable", "mpi.unreachable"),
        ("[n1:77] pml_ucx.c:291  Error: Failed to create UCP worker", "mpi.ucx-worker"),
        (
            "[1693.123456] [n1:77:0]      ib_device.c:670  UCX  ERROR ibv_query_gid(dev=mlx5_an0 port=1 index=0) failed: Invalid argument",
            "roce.ucx-gid",
        ),
        ("[1693.123456] [n1:77:0]      ib_device.c:918  UCX  ERROR Invalid gid[0] on mlx5_6:1", "roce.ucx-gid"),
        ("Failed to modify QP 59 to RTR", "roce.perftest-qp"),
        (" Port number 1 state is Down", "nic.perftest-port"),
        ("Unable to determine the device handle for GPU0000:03:00.0: Unknown Error", "gpu.lost"),
        (
            "Abort(2139535) on node 0 (rank 0 in comm 0): Fatal error in PMPI_Init: Other MPI error, error stack:",
            "mpi.init",
        ),
        (
            "find_provider(2683)..........: OFI fi_getinfo() failed (ofi_init.c:2683:find_provider:No data available)",
            "mpi.provider",
        ),
        ("Failed to initialize NVML: Driver/library version mismatch", "driver.mixed"),
        ("ORTE has lost communication with a remote daemon.", "peer.daemon"),
        ("If srun is being used to launch application, 4 singletons will be started.", "mpi.pmi"),
        ("ssh: Could not resolve hostname nccl-worker-3.nccl: Name or service not known", "mpi.name"),
        ("It looks like MPI_INIT failed for some reason; your parallel process is", "mpi.init"),
        (
            "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable MASTER_ADDR expected, but not set",
            "torch.env",
        ),
        (
            "[E socket.cpp:435] [c10d] The server socket has failed to listen on any local network address.",
            "torch.port",
        ),
        ("torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError", "torch.rendezvous"),
    ];
    for (line, cause) in cases.into_iter().chain(launchers) {
        assert_eq!(causes(line), BTreeSet::from([cause.to_string()]), "{line}");
    }
}

/// What healthy runs print, and the same words from people and other programs.
#[test]
fn harmless_lines_have_no_cause() {
    let warnings = [
        "NET/IB : mlx5_0:1 Got async event : client reregistration",
        "NET/IB : Got async event : GID table change",
        "NET/IB : mlx5_0:1 GID table changed",
        "NET/IB: Got completion from peer 10.1.0.4<4971> with status=0 opcode=0 len=0 vendor err 0 (Recv) hca mlx5_0",
    ];
    let notes = [
        "NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
        "NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No such file or directory No plugin found (libnccl-net.so), using internal implementation",
        "NET/Plugin: Plugin load returned 2 : libnccl-net.so: cannot open shared object file: No such file or directory : when loading libnccl-net.so",
        "NET/Plugin: Failed to find ncclCollNetPlugin_v6 symbol.",
        "ncclOsDlopen(libnccl-net.so) failed: libnccl-net.so: cannot open shared object file: No such file or directory",
        "Failed to initialize NET plugin IB",
        "NET/IB : No device found.",
        "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, retrying 1/8 after 100 msec of sleep",
        "Could not find real path of /sys/class/pci_bus/0000:01/../../0000:01:00.0",
        "NET/OFI Selected provider is efa, fabric is efa (found 4 nics)",
    ];
    let others = [
        "[W socket.cpp:601] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 99 - Cannot assign requested address).",
        "[W1012 10:00:00.000000000 socket.cpp:752] [c10d] The IPv6 network addresses of (n0, 29500) cannot be retrieved (gai error: -2 - Name or service not known).",
        "If srun is being used to launch application, 1 singletons will be started.",
        "libibverbs: Warning: couldn't load driver 'librxe-rdmav34.so': librxe-rdmav34.so: cannot open shared object file",
        "After disabling ACS in the BIOS it works",
        "We run RoCE v1 with jumbo frames, and PFC is not configured",
        "State: Down",
        "GID[  0]:\t\tfe80:0000:0000:0000:0000:00ff:fe00:0001, RoCE v1",
        "srun: Job 77 step creation temporarily disabled, retrying (Requested nodes are busy)",
        "the docs say: There are not enough slots available in the system to satisfy the 16",
        "ibv_query_gid is documented in the manual page",
        "Only 2 channels are used, NICs stay idle in the VM",
    ];
    let lines = warnings.map(warn).into_iter().chain(notes.map(info)).chain(others.map(str::to_string));
    for line in lines {
        assert_eq!(causes(&line), BTreeSet::new(), "{line}");
    }
}
