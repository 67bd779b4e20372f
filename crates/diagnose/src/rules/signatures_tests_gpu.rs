//! Texts of GPUs, limits, hangs and versions, as programs print them.

use super::rule;
use crate::case::Case;

/// Code and title of what the signatures find in a text.
fn found(text: &str) -> Vec<(String, String)> {
    let run = busbw_ingest::read_bytes(&[("log", text.as_bytes())]).expect("text");
    rule(&Case::new(&run)).into_iter().map(|finding| (finding.code.to_string(), finding.title)).collect()
}

/// The first code that the signatures find, if any.
fn code(text: &str) -> Option<String> {
    found(text).into_iter().next().map(|(code, _)| code)
}

/// A warning of NCCL's and the code of its cause.
#[test]
fn warnings_of_nccl_tell_their_cause() {
    let cases = [
        ("/x/hipify/src/transport/p2p.cc:239", "hipIpcGetMemHandle failed : invalid argument", "p2p.disabled"),
        ("include/shm.h:28", "Call to posix_fallocate failed : No space left on device", "limits.shm"),
        (
            "misc/shmutils.cc:72",
            "Error while creating shared memory segment /dev/shm/nccl-m7PZ2y (size 9637892)",
            "limits.shm",
        ),
        (
            "misc/shmutils.cc:82",
            "Error: failed to extend /dev/shm/nccl-m7PZ2y to 33030532 bytes, error: No space left on device (28)",
            "limits.shm",
        ),
        (
            "misc/shmutils.cc:72",
            "Error while attaching to shared memory segment /dev/shm/nccl-m7PZ2y (size 9637892)",
            "limits.shm",
        ),
        (
            "os/linux.cc:842",
            "Error while attaching to shared memory segment /dev/shm/nccl-m7PZ2y (size 9637892), error: No such file or directory (2)",
            "limits.shm",
        ),
        (
            "misc/shmutils.cc:87",
            "Error: failed to create shared memory file /dev/shm/nccl-m7PZ2y, error Permission denied (13)",
            "limits.shm",
        ),
        (
            "misc/shmutils.cc:135",
            "Error while attaching to shared memory segment /dev/shm/nccl- (size 0), error: No such file or directory (2)",
            "version.mismatch",
        ),
        ("misc/ibvwrap.cc:160", "Call to ibv_reg_mr failed with error Cannot allocate memory", "limits.memlock"),
        ("misc/ibvwrap.cc:268", "Call to ibv_create_cq failed", "limits.memlock"),
        ("misc/socket.cc:330", "ncclSocketInit: Socket creation failed : Too many open files", "limits.files"),
        (
            "transport/net_socket.cc:70",
            "Call to pthread_create failed: Resource temporarily unavailable",
            "limits.files",
        ),
        ("init.cc:943", "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 10", "gpu.duplicate"),
        (
            "init.cc:1011",
            "Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1 to enable this configuration.",
            "gpu.duplicate",
        ),
        ("misc/argcheck.cc:30", "AllReduce : sendbuff allocated on device 1 mismatchs with NCCL device 0", "gpu.error"),
        ("include/alloc.h:178", "Cuda failure 'out of memory'", "gpu.error"),
        ("include/alloc.h:262", "Failed to CUDA calloc async 4194304 bytes", "gpu.error"),
        ("enqueue.cc:1402", "Cuda failure 700 'an illegal memory access was encountered'", "gpu.error"),
        ("init.cc:330", "Cuda failure 'invalid device ordinal'", "gpu.error"),
        ("init.cc:330", "Cuda failure 'CUDA-capable device(s) is/are busy or unavailable'", "gpu.error"),
        ("misc/nvmlwrap.cc:123", "nvmlDeviceGetHandleByIndex(3) failed: GPU is lost", "gpu.error"),
        ("misc/nvmlwrap.cc:100", "nvmlInit_v2() failed: Unknown Error", "gpu.error"),
        ("transport/p2p.cc:120", "Cuda failure 'peer mapping resources exhausted'", "gpu.error"),
        (
            "transport/p2p.cc:275",
            "Cuda failure 217 'peer access is not supported between these two devices'",
            "p2p.disabled",
        ),
        (
            "graph/paths.cc:343",
            "P2P is disabled between NVLINK connected GPUs 1 and 0. This should not be the case given their connectivity",
            "p2p.disabled",
        ),
        ("misc/cudawrap.cc:33", "Cuda failure 802 'system not yet initialized'", "nvlink.fabric"),
        ("transport/nvls.cc:169", "Cuda failure 1 'invalid argument'", "nvlink.fabric"),
        (
            "transport/nvls.cc:290",
            "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the operation cannot be performed in the present state'.",
            "nvlink.fabric",
        ),
        (
            "mnnvl.cc:62",
            "MNNVL (cliqueSize 4) is available but not working on this system. Check the IMEX configuration (nvidia-imex-ctl -N).",
            "nvlink.fabric",
        ),
        ("misc/cudawrap.cc:33", "Cuda failure 800 'operation not permitted'", "nvlink.fabric"),
        (
            "transport/net_ib.cc:1038",
            "NET/IB : req 0/1 tag 0 peer 192.0.2.6<58683> collective mismatch error, local size 496640 remote size 65536",
            "hang.mismatch",
        ),
        (
            "transport/net_socket.cc:510",
            "NET/Socket : peer 192.0.2.6<58683> message truncated : receiving 65536 bytes instead of 32768",
            "hang.mismatch",
        ),
        ("bootstrap.cc:310", "Bootstrap Root : mismatch in rank count from procs 16 : 8", "hang.mismatch"),
        (
            "init.cc:2100",
            "Attempt to use communicator before the previous operation returned ncclSuccess",
            "hang.mismatch",
        ),
        ("misc/socket.cc:49", "socketProgress: Connection closed by remote peer n2<51159>", "peer.died"),
        (
            "enqueue.cc:101",
            "Cuda failure 'no kernel image is available for execution on the device'",
            "version.mismatch",
        ),
        ("enqueue.cc:1735", "HIP failure 'invalid device function'", "version.mismatch"),
        ("init.cc:320", "Cuda failure 'API call is not supported in the installed CUDA driver'", "version.mismatch"),
        ("misc/nvmlwrap.cc:100", "nvmlInit_v2() failed: Driver/library version mismatch", "version.mismatch"),
        (
            "init.cc:870",
            "Mismatched NCCL version detected : rank 0 version 22703 rank 1 version 22203",
            "version.mismatch",
        ),
        ("bootstrap.cc:95", "Message truncated : received 1024 bytes instead of 256", "hang.mismatch"),
        ("include/alloc.h:300", "CUMEM not supported prior to CUDA 11.3", "version.mismatch"),
        ("graph/xml.h:50", "Attribute busid of node nic not found", "version.mismatch"),
        ("graph/xml.h:50", "Attribute arch of node cpu not found", "version.mismatch"),
        ("bootstrap.cc:610", "[Rem Allocator] Allocation failed (segment 1, fd 63)", "version.mismatch"),
        (
            "transport/net_ib.cc:300",
            "NET/IB: read failed in ncclIbRoceGetVersionNum: Invalid argument",
            "version.mismatch",
        ),
        ("transport.cc:40", "No transport found for rank 0[1000] -> rank 1[2000]", "version.mismatch"),
        ("enqueue.cc:1400", "Error : no algorithm/protocol available", "version.mismatch"),
        (
            "enqueue.cc:1828",
            "Error : no algorithm/protocol available for function Broadcast with datatype ncclFloat32. NCCL_ALGO was set to NVLS.",
            "env.override",
        ),
        ("graph/tuning.cc:103", "Unrecognized element token \"rings\" when parsing \"rings\"", "env.override"),
        ("graph/search.cc:700", "XML Import Channel : dev 2 not found.", "env.override"),
    ];
    for (site, message, expected) in cases {
        let line = format!("hostA:100:200 [0] {site} NCCL WARN {message}");
        assert_eq!(code(&line).as_deref(), Some(expected), "{line}");
    }
}

/// The words of other programs, with what launchers put in front of them.
#[test]
fn other_programs_tell_their_cause() {
    let cases = [
        ("hostA: Test CUDA failure common.cu:941 'system not yet initialized'", "nvlink.fabric"),
        ("# NCCL Tests compiled with NCCL 1.0", "version.mismatch"),
        (
            "[13850.912648] amdgpu 0000:1c:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
            "gpu.error",
        ),
        ("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 10", "gpu.duplicate"),
        ("[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has", "gpu.error"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "gpu.error"),
        ("  what():  CUDA error: unspecified launch failure", "gpu.error"),
        ("RuntimeError: No CUDA GPUs are available", "gpu.error"),
        (
            "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must",
            "gpu.error",
        ),
        ("[ 1843.308145] NVRM: GPU 0000:4e:00.0: GPU has fallen off the bus.", "gpu.error"),
        ("[1,3]<stderr>:OSError: [Errno 24] Too many open files: '/data/x'", "limits.files"),
        ("RuntimeError: can't start new thread", "limits.files"),
        (
            "[1652771210.0] [n1:12345:0]  ib_device.c:1000 UCX  ERROR ibv_create_cq(cqe=4096) failed: Cannot allocate memory",
            "limits.memlock",
        ),
        ("libibverbs: Warning: RLIMIT_MEMLOCK is 65536 bytes.", "limits.memlock"),
        ("[n1:4242] Signal: Bus error (7)", "limits.shm"),
        (
            "RuntimeError: DataLoader worker (pid 42) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.",
            "limits.shm",
        ),
        (
            "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: X, but Rank 1",
            "hang.mismatch",
        ),
        (
            "RuntimeError: DDP expects same model across all ranks, but Rank 1 has 70 params, while rank 0 has inconsistent 72 params.",
            "hang.mismatch",
        ),
        (
            "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This",
            "hang.mismatch",
        ),
        ("RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 2000 ms", "hang.mismatch"),
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=123.0. Some of the step tasks have been OOM Killed.",
            "peer.died",
        ),
        ("srun: error: Node failure on n3", "peer.died"),
        ("(raylet) A worker died or was killed while executing a task by an unexpected system error. To", "peer.died"),
        (
            "(raylet) [2023-07-23 15:21:29,851 E 97 97] (raylet) node_manager.cc:3084: 4 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed",
            "peer.died",
        ),
        (
            "vllm-1  | ERROR 11-08 11:01:29 [multiproc_executor.py:135] Worker proc VllmWorker-3 died unexpectedly, shutting down executor.",
            "peer.died",
        ),
        (
            "2018-07-30 06:41:52.525932: W tensorflow/core/framework/op_kernel.cc:1318] OP_REQUIRES failed: Aborted: Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt",
            "peer.died",
        ),
        (
            "[1,0]<stderr>:[2019-04-13 13:56:31.861697: W horovod/common/stall_inspector.cc:107] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for",
            "hang.mismatch",
        ),
        (
            "[rank3]: torch.distributed.DistBackendError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: wait timeout after 600000ms, keys: /0",
            "hang.mismatch",
        ),
        (
            "[rank3]: torch.distributed.DistBackendError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer",
            "peer.died",
        ),
        ("Libfabric error: (-12) Cannot allocate memory", "limits.memlock"),
        (
            "RuntimeError: The NVIDIA driver on your system is too old (found version 12080). Please update",
            "version.mismatch",
        ),
        ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "version.mismatch"),
        ("ImportError: /x/libtorch_cuda.so: undefined symbol: ncclMemFree", "version.mismatch"),
        (
            "./all_reduce_perf: symbol lookup error: ./all_reduce_perf: undefined symbol: ncclMemAlloc",
            "version.mismatch",
        ),
        (
            "./x: error while loading shared libraries: libcudart.so.12: cannot open shared object file",
            "version.mismatch",
        ),
        (
            "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you x? Error 803: system has unsupported display driver / cuda driver combination",
            "version.mismatch",
        ),
    ];
    for (line, expected) in cases {
        assert_eq!(code(line).as_deref(), Some(expected), "{line}");
    }
}

#[test]
fn what_others_say_in_these_words_is_no_cause() {
    let lines = [
        "We saw Too many open files and a Cuda failure 'out of memory' last week",
        "INFO retry: CUDA out of memory, batch size 4 next",
        "unrelated: worker exited, error 802 in module X",
        "the docs say system not yet initialized means fabric manager",
        "Is it a deadlock? P2P is disabled between GPUs",
        "WARNING data: corrupted data in shard 17, SDC detected: 0",
        "downgrading to NCCL 2.18 solved it, known bug in NCCL",
        "DataLoader worker (pid 4242) is killed by signal: Terminated.",
        "(raylet) node_manager.cc:3040: 0 Workers (tasks / actors) killed due to memory pressure (OOM), 2 Workers crashed",
        "data loader: One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks",
        "max locked memory       (kbytes, -l) 64",
        "RuntimeError: DDP expects same model across all ranks, but Rank 1 has 70 params, while rank 0 has inconsistent 0 params.",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory.",
        "hostA:1:2 [0] NCCL INFO transport/p2p.cc:275 Cuda failure 'peer access is not supported between these two devices'",
        "hostA:1:2 [0] NCCL INFO NVLS multicast support is not available on dev 0",
        "hostA:1:2 [0] graph/search.cc:1123 NCCL WARN Could not find a path for pattern 4, falling back to simple order",
        "[ 12.345678] nvidia-nvswitch0: SXid (PCI:0000:59:00.0): 12028, Non-fatal, Link 12 egress",
    ];
    for line in lines {
        assert_eq!(found(line), [], "{line}");
    }
}

/// Trouble of the start is over once the communicator of the host is up.
#[test]
fn a_communicator_that_came_up_refutes_trouble_of_the_start() {
    let warning = "hostA:100:200 [0] misc/shmutils.cc:72 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x (size 96)";
    let up = "hostA:100:200 [0] NCCL INFO comm 0x1 rank 0 nranks 1 cudaDev 0 nvmlDev 0 busId 1000 commId 0x2 - Init COMPLETE";
    assert_eq!(code(&format!("{warning}\n{up}\n")), None);
    assert_eq!(code(&format!("{up}\n{warning}\n")).as_deref(), Some("limits.shm"));
}
