//! Remedies that fit the input: what it shows to be done, to be the cause, or to be impossible is not advised, and after the cure
//! comes how to see that it worked.

use crate::case::Case;
use busbw_model::{Code, Finding, Library, Severity};

/// Programs and modules of NVIDIA's, which machines with AMD's GPUs do not have; and the other way round.
const OF_NVIDIA: [&str; 7] =
    ["nvidia-smi", "nvidia-peermem", "nvidia_peermem", "fabricmanager", "nvidia-imex", "dcgmi", "NCCL_NVLS_ENABLE"];
const OF_AMD: [&str; 3] = ["rocm-smi", "amd-smi", "RCCL_"];

/// Leaves out what does not fit, and adds to the first finding how to see that its cure worked.
pub(crate) fn fit(case: &Case, findings: &mut [Finding]) {
    for finding in findings.iter_mut() {
        let fitting: Vec<String> = finding.remedy.iter().filter(|remedy| fits(case, remedy)).cloned().collect();
        // Advice that is all done already is still better than none.
        if !fitting.is_empty() {
            finding.remedy = fitting;
        }
    }
    let first = findings.first_mut().filter(|first| first.severity >= Severity::Warning && !first.remedy.is_empty());
    if let Some(first) = first {
        first.remedy.push(proof(case, first.code));
    }
}

fn fits(case: &Case, remedy: &str) -> bool {
    let names = |words: &[&str]| words.iter().any(|word| remedy.contains(word));
    let foreign = match case.run.nccl.library() {
        Library::Rccl => names(&OF_NVIDIA),
        // A kernel log names no library.
        Library::Nccl => names(&OF_AMD) && !case.run.nccl.versions.is_empty(),
    };
    !foreign && !is_done(case, remedy)
}

/// Whether all variables that a remedy exports have the value already, where it exports any.
fn is_done(case: &Case, remedy: &str) -> bool {
    let mut exports = exports(remedy).peekable();
    let set = |(name, value): (&str, &str)| {
        case.run.nccl.env_value(name).is_some_and(|setting| setting.value.trim() == value)
    };
    exports.peek().is_some() && exports.all(set)
}

/// `NAME=VALUE` behind `export`, within backquotes.
fn exports(remedy: &str) -> impl Iterator<Item = (&str, &str)> {
    let commands = remedy.split('`').skip(1).step_by(2);
    let behind = commands.filter_map(|command| command.trim().strip_prefix("export "));
    behind.flat_map(str::split_whitespace).filter_map(|pair| pair.split_once('='))
}

/// How to see that the cure worked.
fn proof(case: &Case, code: Code) -> String {
    match (case.tests.is_empty(), code) {
        (false, _) => "See that it worked: run the same test again, then `busbw compare before.log after.log`".into(),
        (true, Code::HangMismatch | Code::PeerDied) => {
            "See that it worked: run it again past this point, and give the output of all ranks: `busbw explain rank*.log`".into()
        }
        (true, _) => {
            "See that it worked: run it again with `NCCL_DEBUG=INFO`, then `busbw explain after.log` says NO ERRORS".into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_already_is_not_advised() {
        let log = b"n:1:1 [0] NCCL INFO NCCL_IB_GID_INDEX set by environment to 3.\n";
        let run = busbw_ingest::read_bytes(&[("log", log)]).expect("text");
        let case = Case::new(&run);
        assert!(!fits(&case, "Take the routable entry: `export NCCL_IB_GID_INDEX=3`"));
        assert!(fits(&case, "Take the routable entry: `export NCCL_IB_GID_INDEX=1`"));
        assert!(fits(&case, "List the entries: `show_gids`"));
    }

    #[test]
    fn remedies_are_of_the_vendor() {
        let log = b"n:1:1 [0] NCCL INFO RCCL version : 2.27.7-HEAD:29e1567\n";
        let run = busbw_ingest::read_bytes(&[("log", log)]).expect("text");
        let case = Case::new(&run);
        assert!(!fits(&case, "See the links: `nvidia-smi nvlink -s`"));
        assert!(fits(&case, "See the links: `rocm-smi --showtopo`"));
    }
}
