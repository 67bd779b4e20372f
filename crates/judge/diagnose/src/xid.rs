//! What Xid errors of NVIDIA's driver are about (NVIDIA, "XID Errors").

/// Where the fault lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// With the program: an exception, a page fault, work that was stopped or cleaned up.
    Program,
    /// Nowhere yet: memory that was replaced (63), errors that ECC corrects (92).
    Noted,
    NvLink,
    /// With the GPU, its memory, its slot or its driver.
    Gpu,
}

/// The number of "preemptive cleanup, due to previous errors", which the driver also logs of a program that is killed.
pub(crate) const CLEAN_UP: u32 = 45;

/// The fault that a number shows.
pub(crate) fn fault(code: u32) -> Fault {
    match code {
        13 | 31 | 43 | CLEAN_UP => Fault::Program,
        63 | 92 => Fault::Noted,
        74 | 136 | 137 | 144..=150 => Fault::NvLink,
        _ => Fault::Gpu,
    }
}

/// What happened by a number, and what helps: a sentence.
pub(crate) fn meaning(code: u32) -> Option<&'static str> {
    Some(match code {
        48 => "Memory lost two bits (ECC): reset the GPU; if it comes again, replace it",
        61 | 62 => "A controller inside the GPU stopped: reset the GPU; if it comes again, replace it",
        64 => "A bad row of memory could not be replaced: reset the GPU, and replace it if spare rows are used up",
        74 => {
            "An NVLink failed: see the links with `nvidia-smi nvlink -e`, and reset all GPUs and NVSwitches of the host"
        }
        79 => {
            "The GPU has fallen off the bus: restart the host; if it comes again, look at its power, its seat and its heat"
        }
        94 => "Memory was lost that one program used (ECC): start the program again, and reset the GPU when it is idle",
        95 | 140 => "Memory was lost (ECC): reset the GPU before anything runs on it",
        119 | 120 => {
            "The GPU's own processor (GSP) no longer answers: reset the GPU; if it comes again, update the driver"
        }
        144..=150 => {
            "An NVLink of the fifth generation failed: see `nvidia-smi nvlink -e` and the fabric manager's log, and reset the GPU"
        }
        _ => return None,
    })
}
