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
