//! `busbw advise`: what the versions in use can do to a job, and the version to take.

use crate::flags::{Output, RulesFile, Screen, TableFormat};
use crate::{output, rules};
use busbw_diagnose::known_faults::situation::Situation;
use busbw_diagnose::known_faults::table::{Condition, FEATURES, Fault};
use busbw_diagnose::known_faults::{advise, advise_run, check_plausible, likest, nearest, told};
use busbw_diagnose::{Book, Case, UserFacts};
use busbw_ingest::{ReadOptions, Source, read, stated_versions};
use busbw_model::{Advised, Component, Consequence, KnownFault, Run, Version};
use busbw_predict::cluster::product;
use busbw_probe::Root;
use busbw_report::{json, text};
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Known faults of your versions: what can hit you, what hit you, and the version to take
///
/// Looks up the versions of NCCL, RCCL, PyTorch, the driver and what else is known in tables of faults that their makers
/// and users have described, each with its source. A fault counts where the version has it and all of its conditions are
/// met: architecture, GPU, network, feature. Where a condition is not known, it says what to tell. Without files and
/// versions it looks at this machine.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Advise {
    /// What a run printed, or facts that `busbw check --save` wrote; - is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::AnyPath)]
    files: Vec<PathBuf>,

    /// The same, as a flag
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    from: Vec<PathBuf>,

    /// Versions to ask about: nccl=2.28.9,driver=580.95; NCCL's own number, too: nccl=22809
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = version)]
    versions: Vec<(String, Version)>,

    /// Architecture of the processors
    #[arg(long, value_name = "ARCH", value_parser = PossibleValuesParser::new(["x86_64", "aarch64"]))]
    arch: Option<String>,

    /// Model of the GPUs: H100, GB200
    #[arg(long, value_name = "GPU", value_parser = gpu)]
    gpu: Option<String>,

    /// Number of nodes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    nodes: Option<u32>,

    /// What connects the GPUs and the hosts; of networks between hosts, there are no others
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = fabrics())]
    fabric: Vec<String>,

    /// What the job uses, and nothing else; `none` where it uses none of them
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = features())]
    features: Vec<String>,

    /// What else is so, in the words that "Cannot know" asks with: gpus=512, collective=alltoall, variable=NCCL_CUMEM_ENABLE=0
    #[arg(long, value_name = "KEY=VALUE", value_parser = condition)]
    when: Vec<(Condition, String)>,

    /// What the job does: what does that is shown first
    #[arg(long, value_name = "SYMPTOM", value_parser = symptoms())]
    symptom: Option<String>,

    #[command(flatten)]
    rules: RulesFile,

    #[command(flatten)]
    output: Output<TableFormat>,

    #[command(flatten)]
    screen: Screen,
}

const EXAMPLES: &str = "Examples:
  busbw advise                               this machine's driver, NCCL and kernel
  busbw advise run.log                       the versions and the machine of a run, and whether a known fault hit it
  busbw advise --versions nccl=2.28.9,driver=580.95 --arch aarch64 --gpu GB200
  busbw advise --versions nccl=2.27.3 --gpu H100 --features cuda-graphs,user-buffers
  busbw advise --versions nccl=2.29.7 --gpu GB200 --nodes 4 --symptom slow     what is slow first
  busbw advise --versions nccl=2.26.2 --when gpus=512 --when collective=alltoall
  busbw advise --rules my.toml run.log       with known faults of your own
  busbw advise --json run.log | jq '.take[0]'

Exit status:
  0  no known fault hit, and none that hangs or spoils results can
  1  a known fault hit, or one that hangs or spoils results can
  2  nothing readable, or bad usage
  3  no version is known, or none that the tables are about";

/// A program and its version. Lists of what is installed name programs that have no table as well.
fn version(text: &str) -> Result<(String, Version), String> {
    let (name, version) = text.split_once('=').ok_or("write a name and a version: nccl=2.28.9")?;
    let version: Version = version.parse()?;
    let is_nccl = matches!(Component::from_name(name.trim()), Some(Component::Nccl | Component::Rccl));
    Ok((name.trim().to_owned(), if is_nccl { version.of_nccl_code() } else { version }))
}

fn condition(text: &str) -> Result<(Condition, String), String> {
    let keys = || Condition::TOLD.map(Condition::name).join(", ");
    let told = text.split_once('=').and_then(|(name, value)| {
        let key = Condition::TOLD.into_iter().find(|key| key.name() == name.trim())?;
        Some((key, value.trim().to_owned()))
    });
    let (key, value) = told.ok_or_else(|| format!("write a key and a value, such as gpus=512; keys are {}", keys()))?;
    match key.values() {
        Some(values) if !values.contains(&value.as_str()) => {
            Err(format!("{} is one of {}", key.name(), values.join(", ")))
        }
        _ => Ok((key, value)),
    }
}

/// A model, which need not be known: tables name parts of GPUs, too (`gfx1201`).
fn gpu(name: &str) -> Result<String, String> {
    let is_model = product(name).is_some() || name.contains(|c: char| c.is_ascii_digit());
    is_model.then(|| name.to_owned()).ok_or_else(|| "names no GPU; write H100, GB200, MI300X …".into())
}

fn fabrics() -> PossibleValuesParser {
    PossibleValuesParser::new(Condition::Fabric.values().unwrap_or_default())
}

fn symptoms() -> PossibleValuesParser {
    PossibleValuesParser::new(["wrong-results", "hang", "crash", "refused", "slow", "leak"])
}

fn features() -> PossibleValuesParser {
    PossibleValuesParser::new(FEATURES.iter().chain(&["none"]))
}

pub fn run(flags: &Advise) -> Result<ExitCode, String> {
    flags.say_what_is_not_known();
    let book = rules::book(flags.rules.files())?;
    flags.refuse_what_is_no_release(book.faults())?;
    let files: Vec<&Path> = flags.files.iter().chain(&flags.from).map(PathBuf::as_path).collect();
    let (mut advised, known) = match files.as_slice() {
        [] => {
            let known = flags.told(this_machine(flags));
            (advise(&known, book.faults()), known)
        }
        files => of_files(flags, files, &book)?,
    };
    if let Some(seen) =
        Consequence::ALL.into_iter().find(|seen| flags.symptom.as_ref() == Some(&seen.name().replace(' ', "-")))
    {
        told(&mut advised, seen, &known, book.faults());
    }
    let style = flags.screen.style(flags.output.file());
    let json = |out: &mut dyn Write| json::write(&advised, out);
    output::answer(&flags.output, json, |_, out| out.write_all(text::advise(&advised, &style).as_bytes()))?;
    Ok(ExitCode::from(status(&advised)))
}

/// This machine, unless the question is about another.
fn this_machine(flags: &Advise) -> Situation {
    if flags.versions.is_empty() {
        Situation::of_machine(&busbw_probe::node(&Root::live()))
    } else {
        Situation::default()
    }
}

/// The longest file that is taken for a text of people's: a thread of a tracker, an issue, a mail.
const LONGEST_TEXT: u64 = 1 << 20;

/// The answer for files, and what is known from them.
fn of_files(flags: &Advise, files: &[&Path], book: &Book) -> Result<(Advised, Situation), String> {
    let sources = files.iter().map(|path| Source::all(path)).collect::<Result<Vec<_>, _>>();
    let sources = sources.map_err(|error| error.to_string())?.concat();
    let run = read(&sources, &ReadOptions::default()).map_err(|error| error.to_string())?;
    let case = Case::by(&run, book);
    let given = UserFacts { book: Some(book), ..UserFacts::default() };
    let found = busbw_diagnose::diagnose_with(&run, &given).findings;
    let mut known = Situation::of_case(&case);
    tell_texts(&mut known, files, &run, book);
    let known = flags.told(known);
    Ok((advise_run(&case, &known, &found), known))
}

/// What the files say as texts. NCCL's log tells what it uses, and which plugin; a text without one only names it.
fn tell_texts(known: &mut Situation, files: &[&Path], run: &Run, book: &Book) {
    let is_log = !run.communicators.is_empty();
    for text in texts(files) {
        known.prints(&text);
        let stated = stated_versions(&text).into_iter();
        known.states(stated.filter(|told| !is_log || told.component != Component::OfiPlugin).collect(), book.faults());
        if !is_log {
            known.names(&text);
        }
        known.writes(&text);
    }
}

/// The known fault that files are about which no reader knows: what a person wrote of a failure.
pub fn of_texts(run: &Run, files: &[&Path], book: &Book) -> Option<KnownFault> {
    let mut known = Situation::of_case(&Case::by(run, book));
    tell_texts(&mut known, files, run, book);
    likest(&known, book.faults())
}

/// The short files as texts: a person looks up what he has seen, in whatever form he has it.
fn texts(files: &[&Path]) -> Vec<String> {
    let is_short = |path: &&&Path| path.metadata().is_ok_and(|file| file.is_file() && file.len() <= LONGEST_TEXT);
    let bytes = files.iter().filter(is_short).filter_map(|path| fs::read(path).ok());
    bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect()
}

impl Advise {
    /// Names what the flags tell that no table knows: the answer is without it.
    fn say_what_is_not_known(&self) {
        let has_none = |name: &&String| Component::from_name(name).is_none();
        for name in self.versions.iter().map(|(name, _)| name).filter(has_none) {
            let meant = nearest(name).map_or(String::new(), |near| format!("; did you mean {}?", near.name()));
            output::say(format_args!("{name} is left out: no table of known faults is about it{meant}"));
        }
        for gpu in self.gpu.iter().filter(|gpu| product(gpu).is_none()) {
            output::say(format_args!(
                "busbw does not know the GPU {gpu}: of faults of certain GPUs it cannot say whether they can hit you"
            ));
        }
    }

    /// Refuses versions that no release can have: no fault would be found, and that would look well.
    fn refuse_what_is_no_release(&self, faults: &[Fault]) -> Result<(), String> {
        for (name, version) in &self.versions {
            let Some(component) = Component::from_name(name) else { continue };
            check_plausible(component, version, faults).map_err(|why| format!("--versions {name}={version}: {why}"))?;
        }
        Ok(())
    }

    /// With what the flags tell.
    fn told(&self, mut known: Situation) -> Situation {
        for (name, version) in &self.versions {
            Component::from_name(name).into_iter().for_each(|component| known.uses(component, version.clone()));
        }
        self.arch.iter().for_each(|arch| known.tell_arch(arch));
        self.gpu.iter().for_each(|gpu| known.tell_gpu(gpu));
        // Where no model of that name is known, a table may name it among what shows a fault.
        self.gpu.iter().for_each(|gpu| known.prints(gpu));
        self.nodes.iter().for_each(|nodes| known.tell_nodes(*nodes as usize));
        if !self.fabric.is_empty() {
            known.tell_fabrics(&self.fabric.iter().map(String::as_str).collect::<Vec<_>>());
        }
        self.when.iter().for_each(|(condition, value)| known.tell_user(*condition, value));
        if !self.features.is_empty() {
            known.only_features(self.features.iter().filter(|feature| *feature != "none").cloned());
        }
        known
    }
}

fn status(advised: &Advised) -> u8 {
    match advised.is_judged() {
        false => 3,
        true => u8::from(advised.is_grave()),
    }
}
