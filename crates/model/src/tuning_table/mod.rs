//! A tuning table: by which algorithm, protocol and channels a collective goes, by size and place.
//!
//! `busbw tune` writes it from what was measured; NCCL's tuner plugin, the CPU engine and `predict` follow it. It is TOML, or the
//! CSV of NCCL's example tuner plugin (`plugins/tuner/example/README.md`, NCCL 2.30). The first choice that fits counts.

mod by_size;

use crate::{Bytes, Collective, Protocol};
use serde::Deserialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// What the first line of a table says.
const FORMAT: &str = "busbw.tuning/1";

/// The largest size of CSV files: NCCL's example writes it for "no limit", so that a collective above 4 GiB is none of its own.
const NO_LIMIT: u64 = 4_294_967_295;

/// Choices, in the order in which they are looked through.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TuningTable {
    /// The first that fits counts.
    pub choices: Vec<TunedChoice>,
}

/// What holds for some operations.
#[derive(Debug, Clone, PartialEq)]
pub struct TunedChoice {
    /// The collective.
    pub collective: Collective,
    /// Least size in bytes, of the larger of a rank's two buffers: nccl-tests' size.
    pub from: Bytes,
    /// Greatest size, itself included.
    pub to: Bytes,
    /// Ranks of the communicator, where only these are meant.
    pub ranks: Option<u32>,
    /// Its nodes, where only these are meant.
    pub nodes: Option<u32>,
    /// Operations of the group that are made into one, where only these are meant.
    pub operations: Option<u32>,
    /// Whether the user's buffers are registered, where only such or only others are meant.
    pub registered: Option<bool>,
    /// The algorithm: one of NCCL's names, or one of the CPU engine's.
    pub algorithm: String,
    /// The protocol; `None` where the engine has none.
    pub protocol: Option<Protocol>,
    /// Channels, where not as many as NCCL takes.
    pub channels: Option<u32>,
    /// Size of chunks, where not as NCCL computes it (tuner interface 6 and later).
    pub chunk: Option<Bytes>,
    /// The 95% interval of what it gains over the default, in percent of the time; `None` where somebody says so without figures.
    pub gain_percent: Option<[f64; 2]>,
    /// Whether that is a prediction and no measurement: such a choice is a proposal, which nothing follows.
    pub predicted: bool,
}

/// An operation, as it is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TunedOperation {
    /// The collective.
    pub collective: Collective,
    /// Its size.
    pub size: Bytes,
    /// Ranks of the communicator.
    pub ranks: u32,
    /// Its nodes.
    pub nodes: u32,
    /// Operations that are made into one.
    pub operations: u32,
    /// Whether the buffers are registered.
    pub registered: bool,
}

/// Why a text is no tuning table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct TuningTableError {
    /// From 1.
    pub line: usize,
    /// What is wrong, and what there is.
    pub reason: String,
}

impl TunedChoice {
    /// Whether it is known to gain: a prediction is no reason to depart from the default, nor is a measured interval that holds zero.
    pub fn is_proven(&self) -> bool {
        !self.predicted && self.gain_percent.is_none_or(|[least, _]| least > 0.0)
    }

    /// Whether it is of communicators like this one, whatever the operation.
    pub fn is_of(&self, ranks: u32, nodes: u32) -> bool {
        self.ranks.is_none_or(|wanted| wanted == ranks) && self.nodes.is_none_or(|wanted| wanted == nodes)
    }

    fn fits(&self, operation: &TunedOperation) -> bool {
        self.collective == operation.collective
            && (self.from..=self.to).contains(&operation.size)
            && self.is_of(operation.ranks, operation.nodes)
            && self.operations.is_none_or(|wanted| wanted == operation.operations)
            && self.registered.is_none_or(|wanted| wanted == operation.registered)
    }
}

impl TuningTable {
    /// The first proven choice that fits, with its place in the table.
    pub fn choose(&self, operation: &TunedOperation) -> Option<(usize, &TunedChoice)> {
        self.choices.iter().enumerate().find(|(_, choice)| choice.fits(operation) && choice.is_proven())
    }

    /// The variable that names a table.
    pub const VARIABLE: &str = "BUSBW_TUNING_TABLE";

    /// Where NCCL's tuner plugin looks for a table that no variable names: the user's, then the machine's. `variable` looks up the
    /// environment.
    pub fn places(variable: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let home = || set("HOME").map(|home| Path::new(&home).join(".config"));
        let own = set("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
        own.into_iter().chain([PathBuf::from("/etc")]).map(|folder| folder.join("busbw/tuning.toml")).collect()
    }

    /// Reads a table: TOML, or lines of CSV.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn parse(text: &str) -> Result<Self, TuningTableError> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let is_csv = lines.next().is_some_and(|first| first.contains(',') && !first.contains('='));
        if is_csv { from_csv(text) } else { from_toml(text) }
    }

    /// The table as TOML.
    ///
    /// ```
    /// use busbw_model::TuningTable;
    /// let table = TuningTable::parse("allreduce,0,65536,tree,ll,-1,2,16").unwrap();
    /// assert_eq!(TuningTable::parse(&table.to_toml("two nodes")).unwrap(), table);
    /// ```
    pub fn to_toml(&self, about: &str) -> String {
        let mut text: String = about.lines().map(|line| format!("# {line}\n")).collect();
        // Writing into a string cannot fail.
        let _ = writeln!(text, "format = \"{FORMAT}\"");
        self.choices.iter().for_each(|choice| text.push_str(&choice.to_toml()));
        text
    }
}

impl TunedChoice {
    fn to_toml(&self) -> String {
        let optional = [
            ("ranks", self.ranks.map(|count| count.to_string())),
            ("nodes", self.nodes.map(|count| count.to_string())),
            ("operations", self.operations.map(|count| count.to_string())),
            ("registered", self.registered.map(|registered| registered.to_string())),
            ("protocol", self.protocol.map(|protocol| format!("\"{protocol}\""))),
            ("channels", self.channels.map(|count| count.to_string())),
            ("chunk", self.chunk.map(|Bytes(bytes)| bytes.to_string())),
            ("gain_percent", self.gain_percent.map(|[least, most]| format!("[{least:.2}, {most:.2}]"))),
            ("predicted", self.predicted.then(|| "true".to_owned())),
        ];
        let mut text = format!("\n[[choice]]\ncollective = \"{}\"\nfrom = {}\n", self.collective, self.from.0);
        if self.to.0 < i64::MAX as u64 {
            let _ = writeln!(text, "to = {}", self.to.0);
        }
        // Other libraries' names may hold anything.
        let _ = writeln!(text, "algorithm = {}", toml::Value::from(self.algorithm.as_str()));
        for (name, value) in optional {
            value.iter().for_each(|value| {
                let _ = writeln!(text, "{name} = {value}");
            });
        }
        text
    }
}

/// A size as people write it.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Size {
    Number(u64),
    Text(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TomlTable {
    format: String,
    #[serde(default)]
    choice: Vec<toml::Spanned<TomlChoice>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct TomlChoice {
    collective: String,
    from: Option<Size>,
    to: Option<Size>,
    ranks: Option<u32>,
    nodes: Option<u32>,
    operations: Option<u32>,
    registered: Option<bool>,
    algorithm: String,
    protocol: Option<String>,
    channels: Option<u32>,
    chunk: Option<Size>,
    gain_percent: Option<[f64; 2]>,
    #[serde(default)]
    predicted: bool,
}

fn from_toml(text: &str) -> Result<TuningTable, TuningTableError> {
    let line_of = |offset: usize| text.get(..offset).unwrap_or(text).lines().count().max(1);
    let table: TomlTable = toml::from_str(text).map_err(|error| TuningTableError {
        line: error.span().map_or(1, |span| line_of(span.start + 1)),
        reason: error.message().replace('\n', " "),
    })?;
    if table.format != FORMAT {
        let reason = format!("this is a table of format \"{}\", and busbw reads \"{FORMAT}\"", table.format);
        return Err(TuningTableError { line: 1, reason });
    }
    let choices = table.choice.iter().map(|choice| {
        let failed = |reason| TuningTableError { line: line_of(choice.span().start + 1), reason };
        TunedChoice::try_from(choice.as_ref().clone()).map_err(failed)
    });
    Ok(TuningTable { choices: choices.collect::<Result<_, _>>()? })
}

impl TryFrom<TomlChoice> for TunedChoice {
    type Error = String;

    fn try_from(choice: TomlChoice) -> Result<Self, String> {
        let size = |size: Option<Size>, or: u64| match size {
            None => Ok(Bytes(or)),
            Some(Size::Number(bytes)) => Ok(Bytes(bytes)),
            Some(Size::Text(text)) => text.parse::<Bytes>().map_err(|error| error.to_string()),
        };
        let has_chunk = choice.chunk.is_some();
        let chunk = size(choice.chunk, 0)?;
        Ok(TunedChoice {
            collective: collective(&choice.collective)?,
            from: size(choice.from, 0)?,
            to: size(choice.to, u64::MAX)?,
            ranks: choice.ranks,
            nodes: choice.nodes,
            operations: choice.operations,
            registered: choice.registered,
            algorithm: choice.algorithm,
            protocol: choice.protocol.as_deref().map(protocol).transpose()?,
            channels: choice.channels.filter(|channels| *channels > 0),
            chunk: has_chunk.then_some(chunk),
            gain_percent: choice.gain_percent,
            predicted: choice.predicted,
        })
    }
}

fn from_csv(text: &str) -> Result<TuningTable, TuningTableError> {
    let rows = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let rows = rows.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let choices = rows.map(|(line, row)| from_row(row).map_err(|reason| TuningTableError { line, reason }));
    Ok(TuningTable { choices: choices.collect::<Result<_, _>>()? })
}

fn from_row(row: &str) -> Result<TunedChoice, String> {
    let fields: Vec<&str> = row.split(',').map(str::trim).collect();
    let [name, from, to, algorithm, proto, channels, rest @ ..] = fields.as_slice() else {
        return Err(format!(
            "{} fields, where there are 8 to 10: collective, least and greatest size, algorithm, protocol, channels, nodes, ranks, \
             operations, registered",
            fields.len()
        ));
    };
    let bytes = |text: &str| text.parse::<u64>().map_err(|_| format!("\"{text}\" is no number of bytes"));
    // -1 is "any", and what is left out is too.
    let any = |text: Option<&&str>| match text.map_or(Ok(-1), |text| text.parse::<i64>()) {
        Ok(number) => Ok(u32::try_from(number).ok()),
        Err(_) => Err(format!("\"{}\" is no number; -1 stands for any", text.unwrap_or(&""))),
    };
    let to = bytes(to)?;
    Ok(TunedChoice {
        collective: collective(name)?,
        from: Bytes(bytes(from)?),
        to: Bytes(if to == NO_LIMIT { u64::MAX } else { to }),
        nodes: any(rest.first())?,
        ranks: any(rest.get(1))?,
        operations: any(rest.get(2))?,
        registered: any(rest.get(3))?.map(|registered| registered != 0),
        algorithm: (*algorithm).to_owned(),
        protocol: Some(protocol(proto)?),
        channels: any(Some(channels))?.filter(|channels| *channels > 0),
        chunk: None,
        gain_percent: None,
        predicted: false,
    })
}

fn collective(name: &str) -> Result<Collective, String> {
    Collective::from_name(name).ok_or_else(|| {
        let known = Collective::ALL.map(Collective::name).join(", ");
        format!("\"{name}\" is no collective; there are {known}")
    })
}

fn protocol(name: &str) -> Result<Protocol, String> {
    Protocol::from_name(name).ok_or_else(|| format!("\"{name}\" is no protocol; there are LL, LL128 and Simple"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TABLE: &str = r#"# measured on two nodes
format = "busbw.tuning/1"

[[choice]]
collective = "all_reduce"
to = "64K"
nodes = 2
ranks = 16
algorithm = "Tree"
protocol = "LL"
gain_percent = [4.0, 9.0]

[[choice]]
collective = "all_reduce"
from = 65537
registered = true
algorithm = "NVLS"
protocol = "Simple"
channels = 8
chunk = "128K"
"#;

    fn operation(size: u64, ranks: u32, registered: bool) -> TunedOperation {
        let size = Bytes(size);
        TunedOperation { collective: Collective::AllReduce, size, ranks, nodes: 2, operations: 1, registered }
    }

    fn algorithm(table: &TuningTable, operation: TunedOperation) -> Option<&str> {
        table.choose(&operation).map(|(_, choice)| choice.algorithm.as_str())
    }

    #[test]
    fn the_first_proven_choice_that_fits_counts() {
        let table = TuningTable::parse(TABLE).unwrap();
        assert_eq!(algorithm(&table, operation(65536, 16, false)), Some("Tree"));
        assert_eq!(algorithm(&table, operation(65536, 8, false)), None);
        assert_eq!(algorithm(&table, operation(65537, 8, false)), None);
        assert_eq!(algorithm(&table, operation(8 << 30, 8, true)), Some("NVLS"));
        let unproven = TuningTable::parse(&TABLE.replace("[4.0", "[-1.0")).unwrap();
        assert_eq!(algorithm(&unproven, operation(65536, 16, false)), None);
        let predicted = TuningTable::parse(&TABLE.replace("[4.0, 9.0]", "[4.0, 9.0]\npredicted = true")).unwrap();
        assert_eq!(algorithm(&predicted, operation(65536, 16, false)), None);
        assert_eq!(TuningTable::parse(&predicted.to_toml("of a test")).unwrap(), predicted);
    }

    #[test]
    fn a_table_survives_being_written() {
        let mut table = TuningTable::parse(TABLE).unwrap();
        for name in ["Ring", "", "a \"quoted\" name", "C:\\ring", "two\nlines", "'\u{7}'", "Ring\"\nranks = 2 # \u{e9}"]
        {
            table.choices[0].algorithm = name.into();
            assert_eq!(TuningTable::parse(&table.to_toml("of a test")).unwrap(), table, "{name}");
        }
    }

    #[test]
    fn reads_the_csv_of_nccls_example() {
        let text = "# collective,…\nallreduce,0,65536,tree,simple,2,1,-1,-1,1\nbroadcast,32769,4294967295,ring,ll128,-1,-1,-1\n";
        let [first, second] = <[TunedChoice; 2]>::try_from(TuningTable::parse(text).unwrap().choices).unwrap();
        assert_eq!((first.nodes, first.ranks, first.registered, first.channels), (Some(1), None, Some(true), Some(2)));
        assert_eq!((second.to, second.protocol, second.channels), (Bytes(u64::MAX), Some(Protocol::Ll128), None));
    }

    proptest! {
        #[test]
        fn any_text_is_a_table_or_an_error(start in 0..TABLE.len(), damage in "[ -~\\n\u{e9}]{0,12}", length in 0usize..40) {
            let end = (start + length).min(TABLE.len());
            let text = format!("{}{damage}{}", &TABLE[..start], &TABLE[end..]);
            if let Err(error) = TuningTable::parse(&text) {
                prop_assert!((1..=text.lines().count().max(1) + 1).contains(&error.line), "{}: {text}", error);
            }
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let cases = [
            (
                "format = \"busbw.tuning/1\"\n[[choice]]\ncollective = \"all_confuse\"\nalgorithm = \"Ring\"",
                2,
                "no collective",
            ),
            (&TABLE.replace("\"LL\"", "\"LL64\""), 4, "no protocol"),
            (&TABLE.replace("busbw.tuning/1", "busbw.tuning/9"), 1, "busbw.tuning/9"),
            (&TABLE.replace("to =", "until ="), 6, "unknown field"),
            (&TABLE.replace("64K", "64X"), 4, "not a size"),
            ("allreduce,0,1\n", 1, "3 fields"),
            ("\nallreduce,0,x,ring,simple,1,1,1\n", 2, "no number of bytes"),
            ("allreduce,0,1,ring,simple,1,1,many\n", 1, "-1 stands for any"),
        ];
        for (text, line, says) in cases {
            let error = TuningTable::parse(text).unwrap_err();
            assert!(error.line == line && error.reason.contains(says), "{error}");
        }
    }
}
