//! The book of docs/: it can be built, has every page, and its links lead somewhere.

use crate::skip;
use mdbook_driver::MDBook;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// Where pages of the book link to files that are no part of it.
const REPOSITORY: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/");

/// `BUSBW_BOOK=FOLDER` keeps the book there: make book.
#[test]
fn the_book_is_built_and_has_every_page() {
    let mut book =
        MDBook::load(skip::root_folder().join("docs")).expect("docs/book.toml and docs/SUMMARY.md are sound");
    let temporary = tempfile::tempdir().expect("a temporary folder can be made");
    let wanted = std::env::var_os("BUSBW_BOOK").map(|folder| skip::root_folder().join(folder));
    book.config.build.build_dir = wanted.unwrap_or_else(|| temporary.path().join("book"));
    let built = book.build_dir_for("html");
    book.build().expect("the book can be built");

    let docs = skip::root_folder().join("docs");
    let inside = |page: &Path| page.strip_prefix(&docs).expect("a page of docs").to_owned();
    let pages: Vec<PathBuf> = markdown_below(&docs).iter().map(|page| inside(page)).collect();
    for page in pages.iter().filter(|page| !page.ends_with("SUMMARY.md")) {
        assert!(built.join(page).with_extension("html").is_file(), "docs/SUMMARY.md does not list {}", page.display());
    }
}

#[test]
fn links_lead_somewhere() {
    let root = skip::root_folder();
    let outside = ["README.md", "CONTRIBUTING.md", "benches/README.md", "rules/README.md"].map(|page| root.join(page));
    let pages = markdown_below(&root.join("docs")).into_iter().chain(outside);
    let mut anchors = Anchors::default();
    let dead: Vec<String> = pages.flat_map(|page| dead_links(&root, &page, &mut anchors)).collect();
    assert!(dead.is_empty(), "\n{}", dead.join("\n"));
}

/// Places of links of a page that lead nowhere, or out of the book by a path.
fn dead_links(root: &Path, page: &Path, anchors: &mut Anchors) -> Vec<String> {
    let text = std::fs::read_to_string(page).expect("a page is UTF-8");
    let mut dead = Vec::new();
    for (event, range) in Parser::new_ext(&text, gfm()).into_offset_iter() {
        let (Event::Start(Tag::Link { dest_url, .. }) | Event::Start(Tag::Image { dest_url, .. })) = event else {
            continue;
        };
        if let Err(why) = follow(root, page, &dest_url, anchors) {
            let line = 1 + text[..range.start].matches('\n').count();
            dead.push(format!("{}:{line}: {dest_url}: {why}", page.strip_prefix(root).unwrap_or(page).display()));
        }
    }
    dead
}

fn follow(root: &Path, page: &Path, link: &str, anchors: &mut Anchors) -> Result<(), &'static str> {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let docs = root.join("docs");
    let file = match (path.strip_prefix(REPOSITORY), path) {
        (Some(file), _) => root.join(file),
        (None, "") => page.to_owned(),
        (None, path) if path.contains("://") || path.starts_with("mailto:") => return Ok(()),
        (None, path) => page.parent().expect("a file lies in a folder").join(path),
    };
    let file = file.canonicalize().map_err(|_| "there is no such file")?;
    if page.starts_with(&docs) && !path.starts_with(REPOSITORY) && !file.starts_with(&docs) {
        return Err("the book ends at docs/: link to the file in the repository by its URL");
    }
    if anchor.is_empty() || anchors.of(&file).contains(anchor) {
        Ok(())
    } else {
        Err("no heading there has this anchor")
    }
}

/// The anchors of files, each file read once.
#[derive(Default)]
struct Anchors(HashMap<PathBuf, BTreeSet<String>>);

impl Anchors {
    fn of(&mut self, file: &Path) -> &BTreeSet<String> {
        self.0.entry(file.to_owned()).or_insert_with(|| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            headings(&text).into_iter().fold(marked(&text), |mut anchors, heading| {
                let anchor = anchor(&heading);
                let free = |number: &usize| !anchors.contains(&numbered(&anchor, *number));
                let number = (0..).find(free).expect("numbers do not end");
                anchors.insert(numbered(&anchor, number));
                anchors
            })
        })
    }
}

/// The places that a page marks itself: `<a id="nccl-…"></a>`.
fn marked(text: &str) -> BTreeSet<String> {
    let html = Parser::new_ext(text, gfm()).filter_map(|event| match event {
        Event::InlineHtml(html) | Event::Html(html) => Some(html.into_string()),
        _ => None,
    });
    let ids = html.filter_map(|html| Some(html.split_once("<a id=\"")?.1.split_once('"')?.0.to_owned()));
    ids.collect()
}

fn numbered(anchor: &str, number: usize) -> String {
    if number == 0 { anchor.to_owned() } else { format!("{anchor}-{number}") }
}

/// As GitHub and mdBook name headings.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        letter => letter.is_alphanumeric().then_some(letter),
    });
    kept.collect::<String>().to_lowercase()
}

fn headings(text: &str) -> Vec<String> {
    let mut headings = Vec::new();
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(text, gfm()) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            Event::End(TagEnd::Heading(_)) => headings.extend(heading.take()),
            _ => {}
        }
    }
    headings
}

fn gfm() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS
}

fn markdown_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder is there").flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    let below = |path: PathBuf| match path.extension() {
        _ if path.is_dir() => markdown_below(&path),
        Some(extension) if extension == "md" => vec![path],
        _ => vec![],
    };
    paths.into_iter().flat_map(below).collect()
}

#[test]
fn anchors_are_those_of_github() {
    for (heading, expected) in [
        ("One node, many, later", "one-node-many-later"),
        ("Is it `busbw link`?", "is-it-busbw-link"),
        ("A_b – c", "a_b--c"),
    ] {
        let text = format!("# {heading}\n");
        assert_eq!(headings(&text).iter().map(|heading| anchor(heading)).collect::<Vec<_>>(), [expected]);
    }
}
