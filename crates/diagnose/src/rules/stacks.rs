//! Where ranks wait, as their stacks show: the files and libraries of the frames tell.

use super::Draft;
use crate::case::Case;
use crate::words::listed;
use busbw_model::{Code, Evidence, Finding, Severity, SourceLine, Stack};

/// Where a stack may stand: what it is called, the file or library of a frame, and what that means.
struct Place {
    name: &'static str,
    files: &'static [&'static str],
    meaning: &'static str,
}

/// The first that a frame names, from the innermost frame on.
const PLACES: [Place; 6] = [
    Place {
        name: "its data loader",
        files: &["torch/utils/data/", "webdataset/", "datasets/iterable_dataset.py", "nvidia/dali/"],
        meaning: "It waits for data, not for NCCL: the other ranks wait for it in their next collective. Look at storage, the number of workers, \
                  and what the workers do.",
    },
    Place {
        name: "a checkpoint",
        files: &[
            "torch/serialization.py",
            "torch/distributed/checkpoint/",
            "safetensors/",
            "megatron/core/dist_checkpointing/",
        ],
        meaning: "It writes or reads a checkpoint: the other ranks wait for it in their next collective, longer than the time-out allows.",
    },
    Place {
        name: "MPI",
        files: &["libmpi.so", "libopen-pal", "libmpich", "libpmix"],
        meaning: "It waits in MPI, not in NCCL: another rank has not called the same MPI operation.",
    },
    Place {
        name: "a network plugin of NCCL's",
        files: &["libnccl-net", "libfabric.so", "librccl-net"],
        meaning: "It is inside NCCL's network plugin: data does not move, or the plugin waits for its peer.",
    },
    Place {
        name: "a collective",
        files: &[
            "torch/distributed/distributed_c10d.py",
            "libnccl.so",
            "librccl.so",
            "torch/cuda/__init__.py",
            "torch/cuda/streams.py",
        ],
        meaning: "It is in a collective or waits for the GPU to end one: it waits for ranks that have not called it yet. See where these are.",
    },
    Place {
        name: "the rendezvous",
        files: &["torch/distributed/rendezvous.py", "torch/distributed/elastic/rendezvous/"],
        meaning: "It waits for other processes to start.",
    },
];

/// One finding for all processes that wait in one place; those outside collectives first, since the others wait for them.
pub fn rule(case: &Case) -> Vec<Finding> {
    let is_main = |stack: &&Stack| matches!(stack.thread.as_str(), "MainThread" | "1");
    let found: Vec<(&Stack, &Place, &SourceLine)> = case.run.stacks.iter().filter(is_main).filter_map(waits).collect();
    let first = PLACES.iter().find(|place| found.iter().any(|(_, here, _)| here.name == place.name));
    let Some(place) = first else { return Vec::new() };
    let here: Vec<_> = found.iter().filter(|(_, known, _)| known.name == place.name).collect();
    let pids: Vec<u64> = here.iter().filter_map(|(stack, ..)| stack.pid).collect();
    let who = match pids.as_slice() {
        [] => "A process waits".to_string(),
        [pid] => format!("Process {pid} waits"),
        _ => format!("Processes {} wait", listed(pids.iter(), 8)),
    };
    let others = found.len() - here.len();
    let others = if others > 0 { format!(", {others} elsewhere") } else { String::new() };
    let draft = Draft {
        code: Code::HangMismatch,
        severity: Severity::Warning,
        confidence: 0.75,
        title: format!("{who} in {}{others}", place.name),
        explanation: format!("The stack of the main thread shows where it is. {}", place.meaning),
    };
    let evidence = here.iter().take(4).map(|(_, _, frame)| Evidence::new((*frame).clone())).collect();
    vec![draft.finding(
        evidence,
        &["Take the stacks of all ranks twice, some seconds apart, and compare: `py-spy dump --pid PID`"],
    )]
}

/// Where a stack waits, and the frame that shows it.
fn waits(stack: &Stack) -> Option<(&Stack, &'static Place, &SourceLine)> {
    stack.frames.iter().find_map(|frame| {
        let place = PLACES.iter().find(|place| place.files.iter().any(|file| frame.text.contains(file)))?;
        Some((stack, place, frame))
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn frames_tell_where_a_process_waits() {
        let cases = [
            (
                "    get (queue.py:171)\n    _next_data (torch/utils/data/dataloader.py:1329)\n    train (train.py:9)",
                "Process 7 waits in its data loader",
            ),
            ("    write (torch/serialization.py:600)\n    save (train.py:9)", "Process 7 waits in a checkpoint"),
            (
                "    barrier (torch/distributed/distributed_c10d.py:4159)\n    main (train.py:9)",
                "Process 7 waits in a collective",
            ),
            (
                "#0  0x00007f12 in epoll_wait () from /lib/libc.so.6\n#1  0x00007f13 in PMPI_Barrier () from /opt/ompi/lib/libmpi.so.40",
                "Process 7 waits in MPI",
            ),
        ];
        for (frames, title) in cases {
            let text = format!(
                "Process 7: python train.py\nPython v3.10.12 (/usr/bin/python3.10)\n\nThread 7 (idle): \"MainThread\"\n{frames}\n"
            );
            let run = busbw_ingest::read_bytes(&[("dump", text.as_bytes())]).expect("text");
            let first = crate::diagnose(&run).findings.first().map(|finding| finding.title.clone());
            assert_eq!(first.as_deref(), Some(title), "{frames}");
        }
    }
}
