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
        ("Error while attaching to shared memory segment /dev/shm/nccl-m7PZ2y (size 9637892)", "limits.shm"),
        (
            "Error: failed to extend /dev/shm/nccl-m7PZ2y to 33030532 bytes, error: No space left on device (28)",
            "limits.shm",
        ),
        (
            "Error while attaching to shared memory segment /dev/shm/nccl-m7PZ2y (size 9637892), error: No such file or directory (2)",
            "limits.shm",
        ),
        (
            "Error while attaching to shared memory segment /dev/shm/nccl- (size 0), error: No such file or directory (2)",
            "version.mismatch",
        ),
        ("Cuda failure 217 'peer access is not supported between these two devices'", "p2p.disabled"),
        ("Cuda failure 'API call is not supported in the installed CUDA driver'", "version.mismatch"),
        ("Cuda failure 'named symbol not found'", "version.mismatch"),
        ("Error : no algorithm/protocol available", "version.mismatch"),
        ("Error : no algorithm/protocol available for function Broadcast. NCCL_ALGO was set to NVLS.", "env.override"),
        ("XML Import Channel : dev 2 not found.", "env.override"),
        ("Attribute arch of node cpu not found", "version.mismatch"),
        ("Attribute busid of node nic not found", "version.mismatch"),
        ("Cuda failure 'out of memory'", "gpu.error"),
        ("Cuda failure 802 'system not yet initialized'", "nvlink.fabric"),
        ("Failed to CUDA calloc async 4194304 bytes", "gpu.error"),
        ("Mismatched NCCL version detected : rank 0 version 22703 rank 1 version 22203", "version.mismatch"),
        ("Call to ibv_create_cq failed with error Cannot allocate memory", "limits.memlock"),
        (
            "MNNVL (cliqueSize 4) is available but not working on this system. Check the IMEX configuration (nvidia-imex-ctl -N).",
            "nvlink.fabric",
        ),
        (
            "Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1 to enable this",
            "gpu.duplicate",
        ),
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
        ("[ 1234.5] NVRM: Xid (PCI:0000:4e:00): 79, pid=1, GPU has fallen off the bus.", "gpu.error"),
        ("OSError: [Errno 24] Too many open files", "limits.files"),
        ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "version.mismatch"),
    ];
    let and_also =
        [("Signal: Bus error (7)", "limits.shm"), ("NVRM: GPU 0000:4e:00.0: GPU has fallen off the bus.", "gpu.error")];
    for (text, code) in cases.into_iter().chain(and_also) {
        assert_eq!(codes(text).first().map(String::as_str), Some(code), "{text}");
    }
}

#[test]
fn noise_of_healthy_runs_matches_nothing() {
    let noise = [
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
        "step 100 | learning rate: 1.000E-04 | loss 2.3",
        "I have run it in two separate software environments.",
        "With the newer image it works with NCCL_P2P_DISABLE=1 only.",
        "Is it possible that there is a deadlock?",
    ];
    for text in programs {
        assert!(codes(text).is_empty(), "{text}: {:?}", codes(text));
    }
}
