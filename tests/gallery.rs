//! The gallery of solved cases in the docs, and its pictures: made of the repository's inputs, and held to be today's answers.
//! `INSTA_UPDATE=always cargo test --profile tests -p busbw --test all gallery` makes all of it anew.

use crate::support::command::{BUSBW, busbw};
use crate::support::process::Ended;
use crate::support::skip::root_folder;
use crate::support::terminal::OnTerminal;
use crate::support::tree::Tree;
use anstyle_svg::Term;
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// More of a line is cut.
const MOST_OF_A_LINE: usize = 150;

/// What shows the cause.
enum Shown {
    /// The page's first picture of this class.
    Picture(&'static str),
    /// The lines of the input.
    Lines,
}

struct Solved {
    name: &'static str,
    title: &'static str,
    /// What the user saw, in two sentences.
    seen: &'static str,
    /// Below tests/data.
    folder: &'static str,
    files: &'static [&'static str],
    shown: &'static [Shown],
}

const CURVE: Shown = Shown::Picture("curve");
const MACHINES: Shown = Shown::Picture("nodes");

const GALLERY: [Solved; 10] = [
    Solved {
        name: "falling",
        title: "busbw falls as messages grow",
        seen: "Two servers of eight H20 with four 400 Gbit/s NICs each reach 48 GB/s at 256 MiB, and only 34 GB/s at 16 GiB. No \
               error is logged.",
        folder: "runs/h20-2x8-roce-cross-switch",
        files: &["run.log"],
        shown: &[CURVE, MACHINES],
    },
    Solved {
        name: "sockets",
        title: "RDMA is there, and TCP is used",
        seen: "The same kind of servers reach 9 GB/s where others reach 480. The run ends well and no result is wrong.",
        folder: "runs/h20-2x8-tcp",
        files: &["run.log"],
        shown: &[CURVE],
    },
    Solved {
        name: "lossy",
        title: "RoCE without flow control",
        seen: "Over RoCE, busbw climbs to 9.75 GB/s at 32 MiB and then collapses to below 1 GB/s. NCCL prints no error.",
        folder: "cases-2/267-roce-without-flow-control/input",
        files: &["context.txt", "run.log"],
        shown: &[CURVE],
    },
    Solved {
        name: "half",
        title: "One of two NICs",
        seen: "Two GB10 machines have two RDMA devices each, and both are up. They exchange 98 Gbit/s, half of what the port can.",
        folder: "cases-2/241-gb10-one-of-two-hcas/input",
        files: &["ibdev2netdev.txt", "run.log"],
        shown: &[Shown::Lines],
    },
    Solved {
        name: "acs",
        title: "Error 4 between two nodes",
        seen: "A test on two nodes of H100 fails with a completion error and a vendor code. With GPUDirect RDMA switched off it works.",
        folder: "cases/027-acs-error4-vendor81-h100/input",
        files: &["context.txt", "run.log"],
        shown: &[Shown::Lines],
    },
    Solved {
        name: "shm",
        title: "A container with 64 MB of shared memory",
        seen: "The job worked with an older NCCL. With 2.7.3, in Docker, it ends with an error of shared memory.",
        folder: "cases/006-shm-docker-64mb/input",
        files: &["run.log"],
        shown: &[Shown::Lines],
    },
    Solved {
        name: "versions",
        title: "Two versions of NCCL in one job",
        seen: "A job on two hosts does not come up. Each process prints its version of NCCL once, far apart in the log.",
        folder: "logs-nccl",
        files: &["F21-versions-230-227.log"],
        shown: &[Shown::Lines],
    },
    Solved {
        name: "plugin",
        title: "A variable that reached one host",
        seen: "A job on two hosts does not come up. The log says that the network plugin was set and assigned.",
        folder: "logs-nccl",
        files: &["F09-plugin-busbw-missing-node2.log"],
        shown: &[Shown::Lines],
    },
    Solved {
        name: "timeout",
        title: "A collective that times out",
        seen: "PyTorch's watchdog ends a training run. Five ranks print time-outs, and none says which rank is at fault.",
        folder: "logs",
        files: &["058-sirius-2205-ofi-vae-timeout.log"],
        shown: &[Shown::Lines],
    },
    Solved {
        name: "gpu",
        title: "Two ranks on one GPU",
        seen: "Two processes start on one machine, each as a rank of its own. Neither gets a communicator.",
        folder: "logs",
        files: &["046-bluerdma-2277-duplicate-gpu.log"],
        shown: &[Shown::Lines],
    },
];

#[test]
fn the_gallery_is_todays_answers() {
    let mut page = String::from(
        "# Ten solved cases\n\n\
         What `busbw explain` answers on recorded runs, on logs of published jobs and of NCCL in our labs, and on cases of public issue \
         threads, retold in the lines that the programs print. All are in the repository, below `tests/data`, and a test holds that these \
         are the answers of this version.\n",
    );
    for (number, solved) in (1..).zip(&GALLERY) {
        page += &entry(number, solved);
    }
    kept("docs/gallery.md", &page);
}

fn entry(number: usize, solved: &Solved) -> String {
    let answer = explain(solved, "json").json();
    let word = |value: &Value| value.as_str().expect("a text").to_owned();
    let verdict = word(&answer["verdict"]).to_uppercase();
    let first = &answer["findings"][0];
    let show = |what: &Shown| match what {
        Shown::Picture(class) => picture(solved, class),
        Shown::Lines => lines(first),
    };
    let shown = solved.shown.iter().map(show).collect::<Vec<_>>().join("\n");
    format!(
        "\n## {number}. {}\n\n{}\n\n{shown}\n**{verdict}** {} ([{code}](findings/{code}.md))\n\n**First remedy:** {}\n\n\
         `busbw explain {}`\n",
        solved.title,
        solved.seen,
        escaped(&word(&answer["summary"])),
        escaped(&word(&first["remedy"][0])),
        solved.files.join(" "),
        code = word(&first["code"]),
    )
}

/// Text between backquotes stays; `<` and `*` outside them would be markup.
fn escaped(text: &str) -> String {
    let part = |(at, part): (usize, &str)| {
        if at % 2 == 1 { part.to_owned() } else { part.replace('<', "&lt;").replace('*', "\\*") }
    };
    text.split('`').enumerate().map(part).collect::<Vec<_>>().join("`")
}

fn explain(solved: &Solved, format: &str) -> Ended {
    let folder = root_folder().join("tests/data").join(solved.folder);
    busbw(&folder, &[&["explain", "--format", format], solved.files].concat(), None)
}

/// The evidence of a finding.
fn lines(finding: &Value) -> String {
    let mut block = String::from("```text\n");
    for evidence in finding["evidence"].as_array().expect("evidence") {
        let words: Vec<&str> = evidence["text"].as_str().expect("a text").split_whitespace().collect();
        let text: String = words.join(" ").chars().take(MOST_OF_A_LINE).collect();
        let _ = writeln!(block, "{}:{}  {text}", evidence["path"].as_str().expect("a path"), evidence["line"]);
    }
    block + "```\n"
}

/// Keeps the picture, and shows it: as wide as the page, but never so small that it cannot be read.
fn picture(solved: &Solved, class: &str) -> String {
    let page = explain(solved, "html").stdout;
    kept(&format!("docs/gallery/{}-{class}.svg", solved.name), &standing_alone(&page, class));
    format!(
        "<div style=\"overflow-x: auto\"><img src=\"gallery/{}-{class}.svg\" alt=\"{}\" style=\"width: 100%; min-width: 680px\"></div>\n",
        solved.name, solved.title
    )
}

/// A picture of a page with the rules that it needs, without what a pointer would show.
fn standing_alone(page: &str, class: &str) -> String {
    let begin = page.find(&format!("<svg class=\"{class}\"")).unwrap_or_else(|| panic!("a picture {class}"));
    let end = begin + page[begin..].find("</svg>").expect("its end");
    let drawn = Regex::new("<title>[^<]*</title>").expect("a pattern").replace_all(&page[begin..end], "");
    let body = without_groups(&drawn);
    let body = body.replacen("<svg ", "<svg xmlns=\"http://www.w3.org/2000/svg\" ", 1);
    let (head, body) = body.split_once('\n').expect("lines");
    let style = rules(page, head, body);
    format!(
        "{head}\n<style>\n{style}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"var(--back)\"/>\n{body}</svg>\n"
    )
}

/// Leaves out the groups that only a pointer or a button shows, and the points of curves.
fn without_groups(drawn: &str) -> String {
    let (mut kept, mut depth) = (String::new(), 0);
    for line in drawn.lines() {
        let (opened, closed) = (line.matches("<g").count(), line.matches("</g>").count());
        let is_hidden = line.starts_with("<g class=\"at\"")
            || line.starts_with("<g class=\"lit l") && !line.starts_with("<g class=\"lit l0\"");
        if depth > 0 || is_hidden {
            depth = (depth + opened).saturating_sub(closed);
        } else if !line.starts_with("<circle cx") {
            kept += line;
            kept.push('\n');
        }
    }
    kept
}

/// The colours of the page, and its rules for the classes of a picture.
fn rules(page: &str, head: &str, body: &str) -> String {
    let class = Regex::new("class=\"([^\"]*)\"").expect("a pattern");
    let used: BTreeSet<&str> = [head, body]
        .iter()
        .flat_map(|text| class.captures_iter(text))
        .filter_map(|found| found.get(1))
        .flat_map(|classes| classes.as_str().split_whitespace())
        .collect();
    let style = page.split_once("<style>").and_then(|(_, rest)| rest.split_once("</style>")).expect("a style").0;
    let colours = style.split_once("* { box-sizing").expect("the colours come first").0;
    let selected = Regex::new(r"\.([a-zA-Z][\w-]*)").expect("a pattern");
    let serves = |line: &&str| {
        let Some((selector, _)) = line.split_once(" { ") else { return false };
        let classes: Vec<&str> =
            selected.captures_iter(selector).filter_map(|found| found.get(1)).map(|found| found.as_str()).collect();
        let shows = !selector.contains(':') && !selector.contains(".lit");
        let is_used = |class: &&str| used.contains(class);
        shows
            && (selector.starts_with("svg text")
                || selector.starts_with("marker")
                || !classes.is_empty() && classes.iter().any(is_used) && {
                    // `svg .tick, svg .axis`: one of several is enough; `.curve .peak` needs both.
                    selector.contains(',') || classes.iter().all(is_used)
                })
    };
    let rules: String = style.lines().filter(serves).map(|line| format!("{line}\n")).collect();
    format!("{}\nsvg {{ font-family: system-ui, \"Segoe UI\", Roboto, Arial, sans-serif; }}\n{rules}", colours.trim())
}

/// `busbw check` on a terminal, of a node with a port that is down and bridges that redirect.
#[test]
fn the_picture_of_check_is_its_screen() {
    let tree = Tree::unpack(crate::check::H100);
    crate::check::break_port_and_bridge(&tree);
    let mut command = Command::new(BUSBW);
    command.current_dir(tree.path().parent().expect("a folder")).env_remove("NO_COLOR");
    let folder = tree.path().file_name().expect("a name").to_str().expect("UTF-8").to_owned();
    command.args(["check", "--color", "always", "--root", &folder]);
    let shown = OnTerminal::sized(command, 40, 92).whole();
    assert!(shown.contains("FAIL") && shown.lines().count() < 40, "{shown}");
    let drawn = Term::new().render_svg(&format!("$ busbw check --root node1\n{shown}"));
    // Dim text can be read, too.
    let drawn = drawn.replace(".dimmed { opacity: 0.4; }", ".dimmed { opacity: 0.7; }");
    kept("docs/check.svg", &drawn);
}

/// What the docs have must be what was made now.
fn kept(file: &str, made: &str) {
    let path = root_folder().join(file);
    if std::env::var("INSTA_UPDATE").as_deref() == Ok("always") {
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).expect("a folder");
        std::fs::write(&path, made).expect("the file can be written");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == made, "{file} is not today's answer; the head of tests/gallery.rs says how to make it anew");
}
