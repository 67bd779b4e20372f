//! The tutorials of docs/walks: every command on their pages is run, and prints what the page shows.
//!
//! A page is a comment that says what it needs, prose, and blocks of commands:
//!
//! ```text
//! <!-- walk: files=tests/data/runs/h20-2x8-ib/run.log:with-ib.log; lab=net 2 --rate 1gbit; needs=mpirun.openmpi -->
//! ```
//!
//! - `files`: paths in the repository that lie in the page's folder, by their last part or the name behind the colon;
//!   `lab`: none, `net HOSTS [OPTION…]` (commands run on host h1), `net-slurm` (with a Slurm cluster of these hosts), `slurm NODES` or `rdma` (in the guest, by its `sh`);
//!   `needs`: programs without which the page is skipped; `python` is one with busbw's package.
//! - ```` ```console ```` holds commands behind `$ ` (longer ones go on behind `\`, or on lines that start with `> `) and what
//!   they print; in ```` ```console,measured ```` numbers may differ. `…` stands for any text, alone on a line for any lines.
//!   A last line `? 1` is the exit status, where it is not 0. `bash -o pipefail` runs each by itself, in the page's folder;
//!   what it leaves running ends with it.

mod page;
mod promise;
mod stage;

use self::page::Page;
use crate::support::skip::{self, needed};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// A test for each page, by its file's name.
macro_rules! pages {
    ($($test:ident: $page:literal,)*) => {
        const PAGES: &[&str] = &[$($page),*];
        $(#[test]
        fn $test() {
            walk($page);
        })*
    };
}

pages! {
    falling_busbw: "falling-busbw",
    hang: "hang",
    rdma_used: "rdma-used",
    rdma_stack: "rdma-stack",
    slow_network: "slow-network",
    socket_settings: "socket-settings",
    tuning_table: "tuning-table",
    watched_hang: "watched-hang",
}

fn folder() -> PathBuf {
    skip::root_folder().join("docs/walks")
}

/// Walks a page, one at a time: each measures, and wants the machine to itself.
fn walk(name: &str) {
    static TURN: Mutex<()> = Mutex::new(());
    let shown = format!("docs/walks/{name}.md");
    let markdown = std::fs::read_to_string(folder().join(format!("{name}.md"))).expect("the page is there");
    let page = Page::read(&markdown).unwrap_or_else(|error| panic!("{shown}:{error}"));
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let printed = needed!(stage::play(&page.needs, &page.commands));
    let broken = page.commands.iter().zip(printed).filter_map(|(command, printed)| {
        let why = command.promise.broken_by(&printed.text, printed.status)?;
        Some(format!("{shown}:{}: $ {}\n{why}", command.line, command.text))
    });
    let broken: Vec<String> = broken.collect();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn every_page_is_walked() {
    let files = std::fs::read_dir(folder()).expect("the folder is there").flatten();
    let names = files.filter_map(|file| file.file_name().to_str()?.strip_suffix(".md").map(str::to_owned));
    let walked: BTreeSet<String> = PAGES.iter().map(ToString::to_string).collect();
    assert_eq!(names.collect::<BTreeSet<_>>(), walked, "pages of docs/walks, and those in `pages!` above");
}
