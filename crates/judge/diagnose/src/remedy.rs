//! Remedies that fit the input: what it shows to be done, to be the cause, or to be impossible is not advised, and after the cure
//! comes how to see that it worked. `rules/surroundings.toml` says what belongs to which launcher, network and cloud.

use crate::case::Case;
use crate::data::{self, Kind, Surrounding, Surroundings};
use aho_corasick::AhoCorasick;
use busbw_model::{Code, Finding, InputKind, Library, Severity};
use std::collections::BTreeSet;
use std::sync::LazyLock;

static SURROUNDINGS: LazyLock<Vec<Surrounding>> = LazyLock::new(|| {
    data::built_in::<Surroundings>("surroundings.toml", include_str!("../../../../rules/surroundings.toml")).surrounding
});

/// What shows each of them in a line, and a searcher for all of it.
static SIGNS: LazyLock<(Vec<usize>, Option<AhoCorasick>)> = LazyLock::new(|| {
    let signs = SURROUNDINGS.iter().enumerate().flat_map(|(of, entry)| entry.shown.iter().map(move |text| (of, text)));
    let (whose, texts): (Vec<usize>, Vec<&String>) = signs.unzip();
    (whose, AhoCorasick::new(texts).ok())
});

/// What machines with NVIDIA's GPUs do not have. The other way round, [`crate::vendor`] sees to it.
const OF_AMD: [&str; 3] = ["rocm-smi", "amd-smi", "RCCL_"];

/// What makes PyTorch write dumps: not for whom has them.
const FOR_DUMPS: [&str; 2] = ["TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DUMP_ON_TIMEOUT"];

/// Leaves out what does not fit, and adds to the first finding how to see that its cure worked.
pub(crate) fn fit(case: &Case, findings: &mut [Finding]) {
    let around = ShownSurroundings::of(case);
    for finding in findings.iter_mut() {
        let fitting = finding.remedy.iter().filter(|remedy| fits(case, remedy) && !around.excludes(remedy));
        let mut fitting: Vec<String> = fitting.map(|remedy| around.of_launcher(remedy)).collect();
        // What it was an alternative to is done.
        if let Some(rest) = fitting.first().and_then(|first| first.strip_prefix("Or ")) {
            fitting[0] = rest[..1].to_uppercase() + &rest[1..];
        }
        // If every remedy is done already, show them anyway: better than none.
        if !fitting.is_empty() {
            finding.remedy = fitting;
        }
    }
    let first = findings.first_mut().filter(|first| first.severity >= Severity::Warning && !first.remedy.is_empty());
    if let Some(first) = first {
        first.remedy.extend(around.hand_on(case, &first.remedy));
        if !first.remedy.iter().any(|remedy| remedy.starts_with("Check the fix: ")) {
            first.remedy.push(proof(case, first.code));
        }
    }
}

/// The vendor whose GPUs the input shows, or that is known otherwise.
pub(crate) fn vendor_shown(case: &Case, is_known: bool) -> Option<&'static Surrounding> {
    let all: Vec<&Surrounding> = if is_known { SURROUNDINGS.iter().collect() } else { shown(case) };
    all.into_iter().find(|entry| entry.kind == Kind::Vendor)
}

/// What lines of the input show, in the order of the rules.
fn shown(case: &Case) -> Vec<&'static Surrounding> {
    let (whose, searcher) = &*SIGNS;
    let Some(searcher) = searcher else { return Vec::new() };
    let found = case.lines.iter().flat_map(|line| searcher.find_overlapping_iter(&*line.source.text));
    let shown: BTreeSet<usize> = found.map(|found| whose[found.pattern().as_usize()]).collect();
    shown.into_iter().map(|of| &SURROUNDINGS[of]).collect()
}

/// What the input shows of the launcher, network and cloud.
struct ShownSurroundings(Vec<&'static Surrounding>);

/// What remedies say for Open MPI.
const ON_EACH_HOST: &str = "mpirun --map-by ppr:1:node";

impl ShownSurroundings {
    fn of(case: &Case) -> Self {
        ShownSurroundings(shown(case))
    }

    /// Whether a remedy belongs to a network or cloud of which the input shows another, or does not work on one that it shows.
    fn excludes(&self, remedy: &str) -> bool {
        let names = |words: &[String]| words.iter().any(|word| remedy.contains(word.as_str()));
        let shown = self.0.iter().filter(|surrounding| surrounding.kind == Kind::Network);
        let at_home = shown.clone().any(|surrounding| names(&surrounding.only));
        let of_others = SURROUNDINGS.iter().any(|surrounding| names(&surrounding.only));
        let mut never = shown.clone();
        !at_home && (never.any(|surrounding| names(&surrounding.never)) || of_others && shown.count() > 0)
    }

    fn launcher(&self) -> Option<&'static Surrounding> {
        self.0.iter().find(|surrounding| surrounding.kind == Kind::Launcher).copied()
    }

    /// A command on every host, and one that hands a variable on, as the launcher at hand has them.
    fn of_launcher(&self, remedy: &str) -> String {
        let Some(launcher) = self.launcher() else { return remedy.into() };
        let one = launcher.pass.as_deref().filter(|_| remedy.matches("-x ").count() == 1);
        let own =
            |form: Option<&str>, mpirun: &str, text: String| form.map_or(text.clone(), |own| text.replace(mpirun, own));
        own(one, "mpirun -x ", own(launcher.each.as_deref(), ON_EACH_HOST, remedy.into()))
    }

    /// How the first variable that is advised reaches all ranks. Those of one host have the shell's.
    fn hand_on(&self, case: &Case, remedies: &[String]) -> Option<String> {
        let said = self.launcher()?.hand_on.as_deref()?;
        // Open MPI's own variables are for the launcher, which hands them on itself.
        let is_for_ranks = |(name, _): &(&str, &str)| !name.starts_with("OMPI_");
        let (name, value) = remedies.iter().find_map(|remedy| exports(remedy).find(is_for_ranks))?;
        let passed = remedies.iter().any(|remedy| remedy.contains("mpirun -x "));
        (case.run.nodes.len() != 1 && !passed).then(|| said.replace("{name}", name).replace("{value}", value))
    }
}

fn fits(case: &Case, remedy: &str) -> bool {
    let names = |words: &[&str]| words.iter().any(|word| remedy.contains(word));
    if names(&FOR_DUMPS) && case.run.flight_dumps.iter().any(|dump| !dump.cut) {
        return false;
    }
    // A kernel log names no library.
    let of_nvidia = case.run.nccl.library() == Library::Nccl && !case.run.nccl.versions.is_empty();
    let is_foreign = of_nvidia && names(&OF_AMD);
    !is_foreign && !is_done(case, remedy)
}

/// Whether all variables that the first command of a remedy exports have the value already: others are in place of it, or go further.
fn is_done(case: &Case, remedy: &str) -> bool {
    let set = |(name, value): (&str, &str)| {
        case.run.nccl.env_value(name).is_some_and(|setting| setting.value.trim() == value)
    };
    exported(remedy).next().is_some_and(|command| pairs(command).all(set))
}

/// `NAME=VALUE` behind `export`, within backquotes.
fn exports(remedy: &str) -> impl Iterator<Item = (&str, &str)> {
    exported(remedy).flat_map(pairs)
}

/// What stands behind `export` in each command.
fn exported(remedy: &str) -> impl Iterator<Item = &str> {
    remedy.split('`').skip(1).step_by(2).filter_map(|command| command.trim().strip_prefix("export "))
}

fn pairs(exported: &str) -> impl Iterator<Item = (&str, &str)> {
    exported.split_whitespace().filter_map(|pair| pair.split_once('='))
}

/// How to see that the cure worked.
fn proof(case: &Case, code: Code) -> String {
    let of_hosts = case.run.inputs.iter().any(|input| input.kinds.contains(&InputKind::HostFacts));
    match (case.tests.is_empty(), code) {
        (_, Code::MpiLaunch) if of_hosts => {
            "Check the fix: every host answers: `busbw check --hosts HOST1,HOST2`".into()
        }
        (false, _) => "Check the fix: run the same test again, then `busbw compare before.log after.log`".into(),
        (true, Code::HangMismatch | Code::PeerDied) => {
            "Check the fix: run it again past this point, and give the output of all ranks: `busbw explain rank*.log`"
                .into()
        }
        (true, _) => {
            "Check the fix: run it again with `NCCL_DEBUG=INFO`, then `busbw explain after.log` says NO ERRORS".into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_are_of_the_vendor() {
        for (version, fitting) in
            [("RCCL version : 2.27.7-HEAD:29e1567", true), ("NCCL version 2.27.7+cuda12.4", false)]
        {
            let log = format!("n:1:1 [0] NCCL INFO {version}\n");
            let run = busbw_ingest::read_bytes(&[("log", log.as_bytes())]).expect("text");
            assert_eq!(fits(&Case::new(&run), "See the links: `rocm-smi --showtopo`"), fitting);
        }
    }

    /// The remedies of two hosts whose log begins with a line.
    fn fitted(line: &str, remedies: &[&str]) -> Vec<String> {
        let hosts = ["a", "b"].map(|host| format!("{host}:1:1 [0] NCCL INFO cudaDriverVersion 12040\n"));
        let log = line.to_string() + "\n" + &hosts.concat();
        let run = busbw_ingest::read_bytes(&[("log", log.as_bytes())]).expect("text");
        let remedy = remedies.iter().map(ToString::to_string).collect();
        let mut findings = [Finding { remedy, ..Finding::new(Code::IbTransportError, Severity::Error, 0.9, "", "") }];
        fit(&Case::new(&run), &mut findings);
        findings[0].remedy.drain(..findings[0].remedy.len() - 1).collect()
    }

    #[test]
    fn commands_are_the_launchers() {
        let told =
            fitted("$ srun -N 2 ./x", &["See it: `mpirun --map-by ppr:1:node ulimit -l`", "Set it: `mpirun -x A=1 …`"]);
        assert_eq!(told, ["See it: `srun --ntasks-per-node=1 ulimit -l`", "Set it: `srun --export=ALL,A=1 …`"]);
    }

    #[test]
    fn what_is_of_another_network_is_left_out() {
        let efa = "a:1:1 [0] NCCL INFO NET/OFI Selected Provider is efa";
        let ib = "a:1:1 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB ; OOB eth0:10.0.0.1<0>";
        let (verbs, aws, both) =
            ("Try `ib_write_bw -d mlx5_0`", "Try `fi_info -p efa`", "`fi_info -p efa`, `fi_info -p cxi`");
        let any = "Look at the first error";
        let cases = [
            (efa, vec![verbs, aws, both, any], vec![aws, both, any]),
            (ib, vec![verbs, aws, any], vec![verbs, any]),
            ("nothing", vec![verbs, aws, any], vec![verbs, aws, any]),
            (efa, vec![verbs], vec![verbs]),
        ];
        for (line, given, left) in cases {
            assert_eq!(fitted(line, &given), left, "{line}");
        }
    }
}
