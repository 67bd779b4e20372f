//! What printed lines of a shell do to variables of NCCL's: `mpirun -x NCCL_ALGO=ring`, `export NCCL_IB_HCA=mlx5`, `unset NCCL_IB_HCA`,
//! `NCCL_DEBUG=INFO ./all_reduce_perf`. A name and a value in other places (prose, comments, numbered history, found lines) set nothing.

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct ShellLine {
    pub led_by: Leader,
    pub acts: Vec<Act>,
    /// It ends with a backslash: the next line is of the same command.
    pub goes_on: bool,
}

/// What stands in front of a command.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leader {
    #[default]
    Nothing,
    /// A shell's prompt.
    Prompt,
    /// The `+` of `set -x`.
    Trace,
    /// `# `: a comment, or the prompt of a root shell without a name.
    Hash,
}

/// What a line does, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Act {
    /// A variable holds from here on.
    Export(String, String),
    /// It holds for one command.
    Give(String, String),
    Unset(String),
    /// A program starts: the words of its command.
    Run(String),
    /// What follows is the text of files, or of a history: the words of the command.
    Print(String),
}

/// Programs that start others, and what is named by its place: `./a`, `/bin/a`, `all_reduce_perf`, `train.py`.
const STARTERS: [&str; 20] = [
    "mpirun",
    "mpiexec",
    "mpiexec.hydra",
    "prterun",
    "srun",
    "sbatch",
    "torchrun",
    "python",
    "python3",
    "deepspeed",
    "accelerate",
    "horovodrun",
    "docker",
    "podman",
    "singularity",
    "apptainer",
    "bash",
    "sh",
    "ssh",
    "numactl",
];
/// Programs whose output are texts that were written before.
const PRINTERS: [&str; 14] =
    ["cat", "less", "more", "head", "tail", "grep", "egrep", "rg", "git", "diff", "history", "vim", "sed", "echo"];
/// Words in front of a command that change nothing of it.
const BEFORE: [&str; 10] = ["env", "sudo", "time", "exec", "nohup", "command", "then", "do", "else", "ENV"];
/// Options that a variable follows.
const GIVING: [&str; 7] = ["-x", "-e", "-env", "-genv", "--env", "--export", "mca_base_env_list"];

/// What a line does that may be of a shell; `None` where it does nothing to variables and starts nothing.
pub(crate) fn read(line: &str) -> Option<ShellLine> {
    let line = line.trim();
    let (led_by, text) = without_prompt(line);
    let goes_on = text.ends_with('\\');
    let commands = commands(text.trim_end_matches('\\'));
    let is_alone = commands.len() == 1;
    let mut acts = Vec::new();
    for (at, command) in commands.iter().enumerate() {
        let is_first = at == 0 || !acts.is_empty();
        let reader = Reader { led_by, is_alone, is_first, goes_on };
        if !command.piped {
            reader.read(&command.words, &mut acts);
        }
    }
    (!acts.is_empty()).then_some(ShellLine { led_by, acts, goes_on })
}

/// A line parted from its prompt: `$`, `root@node01:~#`, `[me@node01 run]$`, `node01:~ #`, `+`.
fn without_prompt(line: &str) -> (Leader, &str) {
    // A diff's `+` stands before more blanks, or none.
    let traced = line.trim_start_matches('+').strip_prefix(' ').filter(|_| line.starts_with('+'));
    if let Some(traced) = traced.filter(|traced| !traced.starts_with(' ')) {
        return (Leader::Trace, traced);
    }
    // The prompt of a command that goes on.
    if let Some(more) = line.strip_prefix('>').map(str::trim_start).filter(|more| more.starts_with('-')) {
        return (Leader::Nothing, more);
    }
    let Some(at) = line.find(['$', '#', '%']).filter(|at| line[at + 1..].starts_with(' ')) else {
        return (Leader::Nothing, line);
    };
    let (before, rest) = (line[..at].trim_end(), &line[at + 1..]);
    match before {
        "" if line.starts_with('#') => (Leader::Hash, rest),
        "" => (Leader::Prompt, rest),
        _ if before.contains('=') || before.len() > 80 => (Leader::Nothing, line),
        _ if before.contains('@') || before.ends_with(['~', ']', '/']) || before.contains(":/") => {
            (Leader::Prompt, rest)
        }
        _ => (Leader::Nothing, line),
    }
}

/// A command of a line, as the shell parts it.
#[derive(Default)]
struct Command {
    words: Vec<Word>,
    /// It takes what another prints.
    piped: bool,
}

#[derive(Default)]
struct Word {
    text: String,
    quoted: bool,
}

/// The commands of a line, up to its comment. Quotes and backslashes are removed.
fn commands(text: &str) -> Vec<Command> {
    let mut all = vec![Command::default()];
    let mut word = Word::default();
    let mut chars = text.chars();
    let mut before = ' ';
    while let Some(c) = chars.next() {
        let starts = word.text.is_empty() && !word.quoted;
        match c {
            '"' | '\'' => {
                word.quoted = true;
                word.text.extend(chars.by_ref().take_while(|inner| *inner != c));
            }
            '\\' => word.text.extend(chars.next()),
            '#' if starts => break,
            ';' | '|' | '(' | ')' | '`' | '&' if c != '&' || starts => {
                end_word(&mut all, &mut word);
                let piped = c == '|' && before != '|';
                match all.last_mut() {
                    Some(last) if last.words.is_empty() => last.piped = piped,
                    _ => all.push(Command { piped, ..Command::default() }),
                }
            }
            c if c.is_whitespace() => end_word(&mut all, &mut word),
            c => word.text.push(c),
        }
        before = c;
    }
    end_word(&mut all, &mut word);
    all.retain(|command| !command.words.is_empty());
    all
}

fn end_word(all: &mut [Command], word: &mut Word) {
    let ended = std::mem::take(word);
    if let Some(last) = all.last_mut().filter(|_| !ended.text.is_empty()) {
        last.words.push(ended);
    }
}

/// Where a command stands.
struct Reader {
    led_by: Leader,
    /// The line has no other command.
    is_alone: bool,
    /// Nothing that is no command stands before it.
    is_first: bool,
    goes_on: bool,
}

impl Reader {
    fn read(&self, words: &[Word], acts: &mut Vec<Act>) {
        let mut given: Vec<(String, String)> = Vec::new();
        let mut at = 0;
        while let Some(word) = words.get(at).map(|word| word.text.as_str()) {
            let rest = &words[at + 1..];
            match word {
                _ if let Some(set) = assignment(word) => given.extend(of_nccl(set)),
                "export" | "declare" | "typeset" if self.is_first => {
                    let sets = rest.iter().filter_map(|word| of_nccl(assignment(&word.text)?));
                    return acts.extend(sets.map(|(name, value)| Act::Export(name, value)));
                }
                "unset" if self.is_first => {
                    let names = rest.iter().filter(|word| word.text.starts_with("NCCL_"));
                    return acts.extend(names.map(|word| Act::Unset(word.text.clone())));
                }
                // An item of a list in YAML.
                "-" if self.is_alone && at == 0 && rest.len() == 1 => {}
                _ if BEFORE.contains(&word) => {}
                _ => break,
            }
            at += 1;
        }
        let Some(program) = words.get(at) else {
            // A trace shows what stands in front of a command in lines of their own.
            let act = if self.goes_on || self.led_by == Leader::Trace { Act::Give } else { Act::Export };
            return acts.extend(given.into_iter().filter(|_| self.is_alone).map(|(name, value)| act(name, value)));
        };
        self.run(program, (words, at), given, acts);
    }

    fn run(&self, first: &Word, (words, at): (&[Word], usize), given: Vec<(String, String)>, acts: &mut Vec<Act>) {
        let rest = &words[at..];
        let is_option = GIVING.iter().any(|option| first.text.split('=').next() == Some(option));
        if is_option && at == 0 {
            return acts.extend(gives(rest));
        }
        let (name, has_prompt) = (first.text.as_str(), matches!(self.led_by, Leader::Prompt | Leader::Trace));
        if self.is_first && has_prompt && PRINTERS.contains(&name) {
            return acts.push(Act::Print(joined(rest)));
        }
        if let Some((name, value)) = words.windows(3).find_map(told) {
            return acts.push(Act::Export(name, value));
        }
        let is_started = |word: &Word| STARTERS.contains(&word.text.as_str()) || word.text.ends_with("_perf");
        let has_options = || !given.is_empty() && rest.iter().any(|word| word.text.starts_with("--"));
        let starts = if has_prompt || is_program(name) || has_options() {
            at
        } else {
            // A program names the command that it starts: `cmd: mpirun -x …`.
            let labelled = |pair: &[Word]| pair[0].text.ends_with([':', ']', '=']) && is_started(&pair[1]);
            // So does a field that holds it: `command = "mpirun -x …"`.
            let field = rest.windows(2).find(|pair| pair[0].text.ends_with([':', '=']) && pair[1].quoted);
            if let Some(line) = field.filter(|_| self.led_by == Leader::Nothing).and_then(|pair| read(&pair[1].text))
                && line.acts.iter().any(|act| matches!(act, Act::Run(_)))
            {
                return acts.extend(line.acts);
            }
            let label = rest.windows(2).position(labelled).filter(|_| self.led_by == Leader::Nothing);
            let Some(label) = label else { return };
            at + label + 1
        };
        acts.push(Act::Run(joined(&words[starts..])));
        acts.extend(given.into_iter().map(|(name, value)| Act::Give(name, value)));
        acts.extend(gives(&words[starts..]));
    }
}

/// What NCCL's plugin of libfabric and DeepSpeed's launcher, which counts hosts, say of the environment: `NET/OFI Adding NAME=value`,
/// `[launch.py:155:main] 0 NAME=value`.
fn told(words: &[Word]) -> Option<(String, String)> {
    let [tag, verb, set] = words else { return None };
    let by_plugin = tag.text == "NET/OFI" && matches!(verb.text.as_str(), "Adding" | "Setting");
    let by_deepspeed = tag.text.ends_with(":main]") && crate::text::is_number(&verb.text);
    assignment(&set.text).filter(|_| by_plugin || by_deepspeed).and_then(of_nccl)
}

fn joined(words: &[Word]) -> String {
    words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
}

/// Whether a command starts a run: what a list above it tells was before.
pub(crate) fn starts_run(command: &str) -> bool {
    const BATCH: [&str; 4] = ["bsub", "qsub", "jsrun", "flux"];
    let mut words = command.split(' ');
    let program = words.next().unwrap_or_default();
    match program.rsplit('/').next().unwrap_or(program) {
        "docker" | "podman" | "nerdctl" | "kubectl" | "oc" => {
            words.any(|word| ["run", "exec", "start", "apply", "create"].contains(&word))
        }
        name => BATCH.contains(&name) || is_program(program),
    }
}

fn is_program(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    let is_path = ["./", "../"].iter().any(|start| word.starts_with(start)) && !word.contains(':');
    STARTERS.contains(&name)
        || is_path
        || ["_perf", ".py", ".sh"].iter().any(|end| name.len() > end.len() && name.ends_with(end))
}

/// The variables that a command hands to what it starts.
fn gives(words: &[Word]) -> Vec<Act> {
    let mut acts = Vec::new();
    let mut gives = false;
    for word in words {
        let set = assignment(&word.text).filter(|_| gives).and_then(of_nccl);
        let handed = word.text.split_once('=').filter(|(option, _)| GIVING.contains(option));
        let is_line = word.quoted && word.text.contains([' ', ';']) && word.text.contains("NCCL_");
        if is_line {
            let inner = read(&word.text).into_iter().flat_map(|line| line.acts);
            acts.extend(inner.filter_map(|act| match act {
                Act::Export(name, value) | Act::Give(name, value) => Some(Act::Give(name, value)),
                _ => None,
            }));
            let list = word.text.split(';').filter(|_| gives).filter_map(|item| of_nccl(assignment(item.trim())?));
            acts.extend(list.map(|(name, value)| Act::Give(name, value)));
        } else if let Some((_, list)) = handed {
            let sets = list.split(',').filter_map(|item| of_nccl(assignment(item)?));
            acts.extend(sets.map(|(name, value)| Act::Give(name, value)));
        } else if let Some((name, value)) = set {
            acts.push(Act::Give(name, value));
            continue;
        }
        gives = word.text == "env" || GIVING.contains(&word.text.as_str());
    }
    acts
}

/// `NAME=value`.
fn assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    is_name.then_some((name, value))
}

/// Of a variable of NCCL's with a value that is written out; a full stop or the like behind it is of the text around.
fn of_nccl((name, value): (&str, &str)) -> Option<(String, String)> {
    let value = value.trim_end_matches([':', ',', '.']);
    let is_known = !value.is_empty() && !value.contains(['$', '<', '{']);
    (name.starts_with("NCCL_") && name.len() > 5 && is_known).then(|| (name.to_string(), value.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_shell_lines_are_found() {
        for (line, expected) in crate::text::cases::<(String, Vec<(String, String)>)>("variables") {
            let acts = read(&line).into_iter().filter(|line| line.led_by != Leader::Hash).flat_map(|line| line.acts);
            let told = acts.filter_map(|act| match act {
                Act::Export(name, value) | Act::Give(name, value) => Some((name, value)),
                Act::Unset(name) => Some((name, String::new())),
                Act::Run(_) | Act::Print(_) => None,
            });
            assert_eq!(told.collect::<Vec<_>>(), expected, "{line}");
        }
    }
}
