//! The tables of known faults: `rules/known-faults`, as types. `rules/README.md` explains every key. The build script includes this file too.

use crate::data::{Template, parse, place};
use busbw_model::{Bytes, Code, Collective, Component, Consequence, Version};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};
use toml::Spanned;

/// A file of known faults, or a file of a person's own, which may hold signatures as well.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default)]
    fault: Vec<Spanned<Fault>>,
    /// Read by the book of causes.
    #[serde(default, rename = "cause")]
    _causes: IgnoredAny,
}

/// A fault of some versions of a program.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Its name, for ever the same: that of the component, and some words.
    pub id: String,
    /// Whose fault it is: the beginning of the id.
    #[serde(skip, default = "nobody")]
    pub component: Component,
    /// What happens, in one sentence.
    pub title: String,
    /// The first version that has it; none where older ones may have it.
    pub first: Option<Version>,
    /// The last version that is known to have it; none where `fixed` tells.
    pub last: Option<Version>,
    /// The first version without it, of each branch that got the mend.
    #[serde(default)]
    pub fixed: OneOrMore<Version>,
    /// How sure the range of versions is.
    pub sure: Sure,
    /// What must hold beside the version.
    #[serde(default)]
    pub when: When,
    /// What a run has, of these one, where `only` is so: flags, names of functions and files.
    #[serde(default)]
    pub shown: Vec<Template>,
    /// Of them, what many entries name beside words of their own: it shows what each is about, and no more.
    #[serde(skip)]
    pub about: Vec<Template>,
    /// The finding that it shows as; none where nothing is printed.
    pub symptom: Option<Code>,
    /// What is printed when it hits.
    pub text: Option<Template>,
    pub consequence: Consequence,
    /// What helps until there is a release without it.
    pub workaround: Option<String>,
    /// What the keys cannot say.
    pub note: Option<String>,
    pub source: Vec<String>,
    /// The date of the source.
    pub date: String,
}

fn nobody() -> Component {
    Component::Nccl
}

/// What must hold beside the version: all of these, of each list one.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct When {
    /// Versions of other components: `{ driver = "<570" }`.
    #[serde(default)]
    pub with: BTreeMap<Other, Bounds>,
    #[serde(flatten)]
    pub conditions: BTreeMap<Condition, OneOrMore<String>>,
}

/// Another component, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Other(pub Component);

impl TryFrom<String> for Other {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Component::from_name(&name).map(Other).ok_or_else(|| format!("{name:?} is no component"))
    }
}

/// How sure it is which versions have a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sure {
    /// The maker names them.
    Stated,
    /// The mend's release tells, or the code.
    Inferred,
    /// A user says it.
    Reported,
}

/// What a fault may depend on beside versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    Arch,
    Gpu,
    Fabric,
    Nodes,
    /// Hosts of one job that are not alike; `ranks`: not as many on each.
    Differ,
    Gpus,
    Processes,
    Launcher,
    Collective,
    Algorithm,
    Protocol,
    Feature,
    Size,
    Variable,
    /// What no machine and no log tells, in words: `after another error`.
    Only,
}

impl Condition {
    /// What a user may tell.
    pub const TOLD: [Condition; 14] = [
        Condition::Arch,
        Condition::Gpu,
        Condition::Fabric,
        Condition::Nodes,
        Condition::Differ,
        Condition::Gpus,
        Condition::Processes,
        Condition::Launcher,
        Condition::Collective,
        Condition::Algorithm,
        Condition::Protocol,
        Condition::Feature,
        Condition::Size,
        Condition::Variable,
    ];

    /// As the table and the command write it.
    pub fn name(self) -> &'static str {
        match self {
            Condition::Arch => "arch",
            Condition::Gpu => "gpu",
            Condition::Fabric => "fabric",
            Condition::Nodes => "nodes",
            Condition::Differ => "differ",
            Condition::Gpus => "gpus",
            Condition::Processes => "processes",
            Condition::Launcher => "launcher",
            Condition::Collective => "collective",
            Condition::Algorithm => "algorithm",
            Condition::Protocol => "protocol",
            Condition::Feature => "feature",
            Condition::Size => "size",
            Condition::Variable => "variable",
            Condition::Only => "only",
        }
    }

    /// The values that a table may give; none where they are open.
    pub fn values(self) -> Option<&'static [&'static str]> {
        match self {
            Condition::Arch => Some(&["x86_64", "aarch64"]),
            Condition::Fabric => {
                Some(&["nvlink", "mnnvl", "infiniband", "roce", "sockets", "efa", "pcie", "slingshot", "tcpx", "xgmi"])
            }
            Condition::Differ => Some(&["cpu", "gpu", "nic", "ranks"]),
            Condition::Nodes | Condition::Processes => Some(&["one", "several"]),
            Condition::Launcher => Some(&["torchrun", "mpirun", "srun", "ray", "kubernetes", "container"]),
            Condition::Algorithm => Some(&["Ring", "Tree", "NVLS", "NVLSTree", "CollNetDirect", "CollNetChain", "PAT"]),
            Condition::Protocol => Some(&["LL", "LL128", "Simple"]),
            Condition::Feature => Some(FEATURES),
            Condition::Gpu
            | Condition::Gpus
            | Condition::Collective
            | Condition::Size
            | Condition::Variable
            | Condition::Only => None,
        }
    }
}

/// What a job may use, or not: users tell it with `--features`.
pub const FEATURES: &[&str] = &[
    "cuda-graphs",
    "user-buffers",
    "symmetric-memory",
    "nvls",
    "sharp",
    "pxn",
    "gdr",
    "dma-buf",
    "cumem",
    "device-api",
    "gin",
    "ras",
    "profiler",
    "tuner-plugin",
    "net-plugin",
    "comm-split",
    "comm-shrink",
    "comm-abort",
    "non-blocking",
    "multi-communicator",
    "zero-cta",
    "copy-engine",
    "mnnvl",
    "flight-recorder",
    "watchdog",
    "fsdp",
    "ddp",
    "compile",
    "functional-collectives",
    "elastic",
];

/// One value, or a list.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

impl<T> Default for OneOrMore<T> {
    fn default() -> Self {
        OneOrMore::More(Vec::new())
    }
}

impl<T> OneOrMore<T> {
    pub fn all(&self) -> &[T] {
        match self {
            OneOrMore::One(value) => std::slice::from_ref(value),
            OneOrMore::More(values) => values,
        }
    }
}

/// Limits of a number or a version: `>=12.4, <13`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Bounds(Vec<(&'static str, String)>);

/// How a value stands to a limit, the longer ones first.
const ORDERS: [&str; 5] = [">=", "<=", ">", "<", "="];

impl TryFrom<String> for Bounds {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bound = |part: &str| {
            let part = part.trim();
            let order = ORDERS.into_iter().find(|order| part.starts_with(order));
            let limit = order.map(|order| (order, part[order.len()..].trim().to_owned()));
            limit.ok_or_else(|| format!("{part:?} is no limit; write >=12.4, <13"))
        };
        text.split(',').map(bound).collect::<Result<_, _>>().map(Bounds)
    }
}

impl Bounds {
    /// Whether a value is within: it is told how to compare itself with a limit.
    pub fn hold(&self, compare: impl Fn(&str) -> Option<Ordering>) -> bool {
        self.0.iter().all(|(order, limit)| match (*order, compare(limit)) {
            (_, None) => false,
            (">=", Some(order)) => order.is_ge(),
            ("<=", Some(order)) => order.is_le(),
            (">", Some(order)) => order.is_gt(),
            ("<", Some(order)) => order.is_lt(),
            (_, Some(order)) => order.is_eq(),
        })
    }

    fn limits(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(_, limit)| limit.as_str())
    }
}

/// The component of an id; of `nccl` and `nccl-tests`, the longer one.
pub fn component_of(id: &str) -> Option<Component> {
    let begins = |component: &Component| id.strip_prefix(component.name()).is_some_and(|rest| rest.starts_with('-'));
    Component::ALL.into_iter().filter(begins).max_by_key(|component| component.name().len())
}

/// Why a fault cannot stand in a file: in the folder of the tables each component has its own.
fn misplaced(path: &str, component: Component) -> Option<String> {
    let mut parts = path.rsplit('/');
    let (file, folder) = (parts.next()?, parts.next()?);
    let is_elsewhere = folder == "known-faults" && file.trim_end_matches(".toml") != component.name();
    is_elsewhere.then(|| {
        format!("faults of {0} stand in {0}.toml; move it, or change the beginning of the id", component.name())
    })
}

/// The faults of files, each with its name and text.
///
/// # Errors
/// What does not fit, with file, line and column.
pub fn faults<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Vec<Fault>, String> {
    let mut all: Vec<Fault> = Vec::new();
    let mut ids = HashSet::new();
    for (name, text) in files {
        for spanned in parse::<Table>(name, text)?.fault {
            let at = spanned.span().start;
            let fault = spanned.into_inner();
            let refuse = |problem: String| format!("{}: {}: {problem}", place(name, text, at), fault.id);
            let names = || Component::ALL.map(Component::name).join(", ");
            let component = component_of(&fault.id).ok_or_else(|| {
                refuse(format!("begin the id with a component and a dash, such as nccl-; there are {}", names()))
            })?;
            let taken = (!ids.insert(fault.id.clone())).then(|| "the id is taken; choose another".to_owned());
            if let Some(problem) = taken.or_else(|| misplaced(name, component)).or_else(|| fault.problem()) {
                return Err(refuse(problem));
            }
            all.push(Fault { component, ..fault });
        }
    }
    Ok(all)
}

/// The longest title: it stands in one line of a terminal with what it does.
const LONGEST_TITLE: usize = 120;

impl Fault {
    /// Why the entry cannot be right.
    fn problem(&self) -> Option<String> {
        let ends = self.last.iter().chain(self.fixed.all());
        let known =
            |fabric: &Condition, value: &String| fabric.values().is_none_or(|all| all.contains(&value.as_str()));
        let values = self.when.conditions.iter().flat_map(|(key, values)| values.all().iter().map(move |v| (key, v)));
        let unknown = values.clone().find(|(key, value)| !known(key, value));
        let unread = values.into_iter().find_map(|(key, value)| {
            key.unread(value).map(|form| format!("{}: cannot read {value:?}; write {form}", key.name()))
        });
        let versions = self.when.with.values().flat_map(Bounds::limits);
        let no_version = versions.filter_map(|limit| limit.parse::<Version>().err()).next();
        let ordered = self.first.as_ref().is_none_or(|first| ends.clone().all(|end| first <= end));
        let mended =
            self.last.as_ref().is_some_and(|last| self.fixed.all().iter().max().is_some_and(|fixed| fixed <= last));
        let dated = self.date.len() == 10 && self.date.chars().all(|c| c.is_ascii_digit() || c == '-');
        let sourced = !self.source.is_empty() && self.source.iter().all(|source| source.starts_with("http"));
        [
            (!sourced, "source: give one address or more: [\"https://…\"]".into()),
            (!dated, "date: write 2026-11-24".into()),
            (!ordered, "first is later than last or fixed: it is the oldest version with the fault".into()),
            (mended, "last is not before fixed: fixed is the first release without the fault".into()),
            (
                self.title.chars().count() > LONGEST_TITLE,
                format!("the title has more than {LONGEST_TITLE} characters; move the rest to note"),
            ),
            (
                !self.shown.is_empty() && !self.when.conditions.contains_key(&Condition::Only),
                "shown: what shows it stands beside `only`".into(),
            ),
            (self.title.is_empty(), "the title is empty; say what happens".into()),
            (unknown.is_some(), unknown.map_or_else(String::new, |(key, value)| key.refuse(value))),
            (unread.is_some(), unread.unwrap_or_default()),
            (no_version.is_some(), no_version.unwrap_or_default()),
        ]
        .into_iter()
        .find_map(|(is_wrong, problem)| is_wrong.then_some(problem))
    }

    /// Whether a version has the fault. Which later ones have it is not known where nothing mended it.
    pub fn affects(&self, version: &Version) -> bool {
        let fixed = self.fixed.all();
        let is_mended = |fix: &Version| version >= fix && fix.is_of_branch(version);
        let after_all = fixed.iter().max().is_some_and(|last| version >= last);
        self.first.as_ref().is_none_or(|first| version >= first)
            && self.last.as_ref().is_none_or(|last| version <= last)
            && !after_all
            && !fixed.iter().any(is_mended)
    }

    /// The versions that have it, in words.
    pub fn affected(&self) -> String {
        match (&self.first, &self.last, self.fixed.all().iter().max()) {
            (Some(first), Some(last), _) if first == last => first.to_string(),
            (Some(first), Some(last), _) => format!("{first} to {last}"),
            (None, Some(last), _) => format!("up to {last}"),
            (Some(first), None, Some(fixed)) => format!("{first} to before {fixed}"),
            (None, None, Some(fixed)) => format!("before {fixed}"),
            (Some(first), None, None) => format!("{first} and later"),
            (None, None, None) => "all so far".into(),
        }
    }
}

impl When {
    /// What must hold, in words.
    pub fn words(&self) -> Vec<String> {
        let conditions = self.conditions.iter().map(|(condition, wanted)| condition.words(wanted));
        let limits = |bounds: &Bounds| {
            let all: Vec<String> = bounds.0.iter().map(|(order, limit)| format!("{order}{limit}")).collect();
            all.join(", ")
        };
        conditions
            .chain(self.with.iter().map(|(other, bounds)| format!("{} {}", other.0.name(), limits(bounds))))
            .collect()
    }
}

impl Condition {
    /// `feature: nvls or sharp`.
    pub fn words(self, wanted: &OneOrMore<String>) -> String {
        format!("{}: {}", self.name(), wanted.all().join(" or "))
    }

    fn refuse(self, value: &str) -> String {
        format!("{}: {value:?} is not among {}", self.name(), self.values().unwrap_or_default().join(", "))
    }

    /// What to write where a value has not the form of its key.
    fn unread(self, value: &str) -> Option<&'static str> {
        let limits =
            |read: fn(&str) -> bool| Bounds::try_from(value.to_owned()).is_ok_and(|bounds| bounds.limits().all(read));
        let (reads, form) = match self {
            Condition::Gpus => (limits(|limit| limit.parse::<u32>().is_ok()), "limits of the ranks: >=512"),
            Condition::Size => (limits(|limit| limit.parse::<Bytes>().is_ok()), "limits of a size: >=4GiB"),
            Condition::Collective => (Collective::from_name(value).is_some(), "a collective: all_reduce"),
            _ => (!value.is_empty(), "a word"),
        };
        (!reads).then_some(form)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(keys: &str) -> Result<Fault, String> {
        let common =
            "id = 'nccl-x'\ntitle = 'Ranks wait'\nconsequence = 'hang'\nsource = ['https://a']\ndate = '2026-11-24'\n";
        let sure = if keys.contains("sure") { "" } else { "sure = 'stated'\n" };
        let text = format!("[[fault]]\n{common}{sure}{keys}\n");
        faults([("rules/known-faults/nccl.toml", text.as_str())]).map(|mut all| all.remove(0))
    }

    #[test]
    fn ranges_hold_by_branch() {
        // What the entry says; versions that have it; versions that have it not.
        let cases: [(&str, &[&str], &[&str]); 6] = [
            ("first = '2.28.3'\nfixed = '2.29.3'", &["2.28.3", "2.28.9", "2.29.2"], &["2.27.7", "2.29.3", "2.30.7"]),
            (
                "first = '2.27.3'\nfixed = ['2.27.7', '2.28.7']",
                &["2.27.5", "2.28.3"],
                &["2.27.7", "2.28.9", "2.26.2", "2.29.2"],
            ),
            ("first = '2.20.3'\nlast = '2.20.5'", &["2.20.3", "2.20.5"], &["2.19.4", "2.21.5"]),
            ("last = '2.20.5'", &["2.4.8", "2.20.5"], &["2.21.5"]),
            ("fixed = '2.20.5'", &["2.4.8", "2.20.3"], &["2.20.5"]),
            ("first = '2.28.3'", &["2.28.3", "2.32.6"], &["2.27.7"]),
        ];
        for (keys, have, have_not) in cases {
            let fault = fault(keys).expect(keys);
            let affects = |text: &&str| fault.affects(&text.parse().expect("a version"));
            assert!(have.iter().all(affects) && !have_not.iter().any(affects), "{keys}");
            assert!(!fault.affected().is_empty());
        }
    }

    #[test]
    fn an_entry_that_cannot_be_right_is_refused_with_its_place() {
        let cases = [
            ("first = '2.29.3'\nfixed = '2.28.3'", "first is later"),
            ("first = '2.27.3'\nlast = '2.28.3'\nfixed = '2.28.3'", "last is not before fixed"),
            ("first = 'new'", "is no version"),
            ("first = '2.1'\nwhen = { arch = 'sparc' }", "not among x86_64, aarch64"),
            ("first = '2.1'\nwhen = { gpus = 'many' }", "gpus: cannot read"),
            ("first = '2.1'\nwhen = { colour = 'red' }", "colour"),
            ("first = '2.1'\nwhen = { with = { driver = 'old' } }", "is no limit"),
            ("first = '2.1'\nwhen = { with = { windows = '>10' } }", "no component"),
            ("first = '2.1'\nfirst_seen = '2.0'", "unknown key `first_seen`"),
        ];
        for (keys, told) in cases {
            let error = fault(keys).expect_err(keys);
            assert!(error.starts_with("rules/known-faults/nccl.toml:1:1:") || error.contains(".toml:"), "{error}");
            assert!(error.contains(told), "{keys}: {error}");
        }
    }

    #[test]
    fn limits_are_all_held() {
        let bounds = Bounds::try_from(">=12.4, <13".to_owned()).expect("limits");
        let holds = |text: &str| {
            let version: Version = text.parse().expect("a version");
            bounds.hold(|limit| Some(version.cmp(&limit.parse().ok()?)))
        };
        assert!(holds("12.4") && holds("12.9.1") && !holds("12.3") && !holds("13.0"));
    }
}
