//! A page of docs/walks: what it needs, and its commands with the output that it promises.

use super::promise::{Promise, Wording};
use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};
use std::path::PathBuf;

/// What opens the comment that says what a page needs. mdBook does not show it.
const HEADER: &str = "<!-- walk:";

/// A page of docs/walks.
#[derive(Debug)]
pub struct Page {
    pub needs: Needs,
    pub commands: Vec<Command>,
}

/// What must be there before a page's first command runs.
#[derive(Debug, Default, PartialEq)]
pub struct Needs {
    /// Files and folders of the repository, and the names that they have on the page.
    pub files: Vec<(PathBuf, String)>,
    pub lab: Lab,
    pub programs: Vec<String>,
}

/// Where a page's commands run.
#[derive(Debug, Default, PartialEq)]
pub enum Lab {
    /// On this machine.
    #[default]
    None,
    /// On host 1 of the net lab, with these options of `tests/lab/netlab up`.
    Net { hosts: usize, options: Vec<String> },
    /// The same, with a Slurm cluster whose nodes are these hosts.
    NetSlurm { hosts: usize, options: Vec<String> },
    /// Beside the Slurm lab.
    Slurm { nodes: usize },
    /// In the RDMA guest, each by its `sh`.
    Rdma,
}

/// A command of a page.
#[derive(Debug)]
pub struct Command {
    /// The page's line on which it stands.
    pub line: usize,
    pub text: String,
    pub promise: Promise,
}

impl Page {
    pub fn read(markdown: &str) -> Result<Self, String> {
        let mut needs = None;
        let mut commands = Vec::new();
        let mut block: Option<Block> = None;
        for (event, range) in Parser::new(markdown).into_offset_iter() {
            let line = 1 + markdown[..range.start].matches('\n').count();
            match event {
                Event::Html(html) if html.starts_with(HEADER) => {
                    needs = Some(Needs::read(&html).map_err(|error| format!("{line}: {error}"))?);
                }
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(kind))) => block = Block::open(&kind, line)?,
                Event::Text(text) => {
                    if let Some(block) = &mut block {
                        block.text.push_str(&text);
                    }
                }
                Event::End(TagEnd::CodeBlock) => {
                    if let Some(block) = block.take() {
                        commands.extend(block.commands()?);
                    }
                }
                _ => {}
            }
        }
        let needs = needs.ok_or_else(|| format!("1: a page opens with `{HEADER} … -->`"))?;
        Ok(Page { needs, commands })
    }
}

impl Needs {
    /// `<!-- walk: files=PATH[:NAME],…; lab=…; needs=PROGRAM,… -->`
    fn read(comment: &str) -> Result<Self, String> {
        let inside = comment.trim().strip_prefix(HEADER).and_then(|rest| rest.strip_suffix("-->"));
        let inside = inside.ok_or("the comment that says what the page needs is one line")?;
        let mut needs = Needs::default();
        for part in inside.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').ok_or_else(|| format!("`{part}` is no KEY=VALUE"))?;
            match key {
                "files" => needs.files = value.split(',').map(file).collect(),
                "lab" => needs.lab = Lab::read(value)?,
                "needs" => needs.programs = value.split(',').map(|name| name.trim().to_owned()).collect(),
                _ => return Err(format!("a page has files=, lab= and needs=, and no `{key}=`")),
            }
        }
        Ok(needs)
    }
}

/// PATH, known on the page by its last part, or PATH:NAME.
fn file(entry: &str) -> (PathBuf, String) {
    let (path, name) = entry.trim().split_once(':').unwrap_or((entry.trim(), ""));
    let last = path.rsplit('/').next().unwrap_or(path);
    (path.into(), if name.is_empty() { last } else { name }.to_owned())
}

impl Lab {
    fn read(value: &str) -> Result<Self, String> {
        let words: Vec<&str> = value.split_whitespace().collect();
        let count = |number: &str| number.parse().map_err(|_| format!("`{number}` is no number of hosts"));
        match words[..] {
            ["none"] => Ok(Lab::None),
            ["rdma"] => Ok(Lab::Rdma),
            ["slurm", nodes] => Ok(Lab::Slurm { nodes: count(nodes)? }),
            [kind @ ("net" | "net-slurm"), hosts, ref options @ ..] => {
                let (hosts, options) = (count(hosts)?, options.iter().map(ToString::to_string).collect());
                Ok(if kind == "net" { Lab::Net { hosts, options } } else { Lab::NetSlurm { hosts, options } })
            }
            _ => Err(format!(
                "lab={value}: a lab is none, net HOSTS [OPTION…], net-slurm HOSTS [OPTION…], slurm NODES or rdma"
            )),
        }
    }
}

/// A block of code that is run.
struct Block {
    /// The page's line of the fence.
    line: usize,
    wording: Wording,
    text: String,
}

impl Block {
    /// The block that such a fence opens, if what is in it is run.
    fn open(kind: &str, line: usize) -> Result<Option<Self>, String> {
        let wording = match kind {
            "console" => Wording::Exact,
            "console,measured" => Wording::Measured,
            other if ["bash", "sh", "shell", "console"].contains(&other.split([',', ' ']).next().unwrap_or(other)) => {
                return Err(format!(
                    "{line}: a walk's commands stand in ```console or ```console,measured: ```{other}"
                ));
            }
            _ => return Ok(None),
        };
        Ok(Some(Block { line, wording, text: String::new() }))
    }

    /// The commands, each with the lines behind it.
    fn commands(&self) -> Result<Vec<Command>, String> {
        let mut lines = self.text.lines().zip(self.line + 1..).peekable();
        let mut commands: Vec<(usize, String, Vec<&str>)> = Vec::new();
        while let Some((text, line)) = lines.next() {
            if let Some(first) = text.strip_prefix("$ ") {
                let mut command = first.to_owned();
                while let Some((next, _)) = lines.next_if(|(next, _)| command.ends_with('\\') || next.starts_with("> "))
                {
                    command.push('\n');
                    command.push_str(next.strip_prefix("> ").unwrap_or(next));
                }
                commands.push((line, command, Vec::new()));
            } else {
                let (_, _, output) = commands.last_mut().ok_or_else(|| format!("{line}: output before any `$ `"))?;
                output.push(text);
            }
        }
        let promised = |(line, text, output): (usize, String, Vec<&str>)| {
            let promise = Promise::read(&output, self.wording).map_err(|error| format!("{line}: {error}"))?;
            Ok(Command { line, text, promise })
        };
        commands.into_iter().map(promised).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_what_it_needs_and_what_to_type() {
        let page = Page::read(
            "<!-- walk: files=tests/a/run.log, tests/b/run.log:b.log; lab=net 2 --rate 1gbit; needs=awk, sed -->\n\
             # A title\n\n```text\n$ not run\n```\n\n1. In a list:\n   ```console\n   $ busbw explain \\\n       run.log\n   \
             DEGRADED …\n   ? 1\n   $ cat <<END\n   > a\n   > END\n   a\n   ```\n",
        )
        .unwrap();
        let files = [("tests/a/run.log", "run.log"), ("tests/b/run.log", "b.log")];
        assert_eq!(page.needs.files, files.map(|(path, name)| (PathBuf::from(path), name.to_owned())));
        assert_eq!(page.needs.lab, Lab::Net { hosts: 2, options: vec!["--rate".into(), "1gbit".into()] });
        assert_eq!(page.needs.programs, ["awk", "sed"]);
        let commands: Vec<(usize, &str)> =
            page.commands.iter().map(|command| (command.line, command.text.as_str())).collect();
        assert_eq!(commands, [(10, "busbw explain \\\n    run.log"), (14, "cat <<END\na\nEND")]);
        assert_eq!(page.commands[0].promise.broken_by("DEGRADED  busbw falls\n", Some(1)), None);
    }

    #[test]
    fn what_would_not_be_run_is_refused() {
        let header = "<!-- walk: lab=none -->\n\n";
        for (page, says) in [
            ("# No header\n", "1: a page opens with"),
            ("<!-- walk: lab=cluster -->\n", "1: lab=cluster: a lab is none"),
            ("<!-- walk: host=a -->\n", "1: a page has files=, lab= and needs="),
            (&format!("{header}```bash\ntrue\n```\n"), "3: a walk's commands stand in ```console"),
            (&format!("{header}```console,hidden\n$ true\n```\n"), "3: a walk's commands"),
            (&format!("{header}```console\ntrue\n```\n"), "4: output before any `$ `"),
            (&format!("{header}```console\n$ true\n? yes\n```\n"), "4: `? yes` is no exit status"),
        ] {
            let error = Page::read(page).unwrap_err();
            assert!(error.starts_with(says), "{page:?}: {error}");
        }
    }
}
