//! The finding of a fault, in the words of `rules/findings.toml`.

use super::places::stack_of;
use super::{Class, Fault, MOST, either, ranks};
use crate::case::Case;
use crate::rules::{found, hang};
use crate::words::{capital, listed};
use busbw_model::{CulpritClass, Evidence, Finding, Suspects, counted};
use std::fmt::Display;

impl Fault<'_> {
    pub(super) fn finding(self, case: &Case) -> Finding {
        let id = match self.class {
            Class::Failed => "watch.failed",
            Class::Killed => "watch.killed",
            Class::Left => "watch.left",
            Class::Stopped => "watch.stopped",
            Class::Unreachable => "watch.unreachable",
            Class::Device => "watch.device",
            Class::Elsewhere if self.ranks.is_empty() => "watch.apart",
            Class::Elsewhere => "watch.elsewhere",
            Class::Busy => "watch.busy",
            Class::Deaf => "watch.deaf",
            Class::Followed => "watch.followed",
            Class::Unknown => "watch.unknown",
        };
        let waiting: Vec<u32> =
            self.seen.there().map(|one| one.rank.rank).filter(|rank| !self.ranks.contains(rank)).collect();
        let unseen = self.seen.unseen();
        let others = match (waiting.len(), unseen) {
            (0, 0) => "no other rank is left".to_owned(),
            (0, unseen) => format!("{} elsewhere wait", counted(unseen as usize, "rank")),
            (1, 0) => format!("rank {} waits", waiting[0]),
            (_, 0) => format!("ranks {} wait", listed(waiting.iter(), MOST)),
            (1, unseen) => format!("rank {} waits, and {unseen} elsewhere", waiting[0]),
            (_, unseen) => format!("{} wait, and {unseen} elsewhere", ranks(&waiting)),
        };
        let mut evidence = self.evidence.clone();
        // The program's own words are the better evidence.
        if let (Class::Failed | Class::Followed, Some(cause)) = (self.class, case.ends.cause())
            && (cause.ranks.is_empty() || cause.ranks == self.ranks)
        {
            evidence.insert(0, Evidence::new(cause.source.clone()));
        }
        if evidence.is_empty() {
            evidence.extend(self.seen.there().take(4).map(|one| one.evidence()));
        }
        let on = self.host.as_ref().filter(|host| !host.is_empty());
        let named = |those: &[u32]| if self.class == Class::Failed { either(those) } else { ranks(those) };
        let who = match (self.ranks.as_slice(), on) {
            ([], Some(host)) => format!("Host {host}"),
            ([], None) => "A rank".into(),
            (those, Some(host)) => format!("{} on {host}", capital(&named(those))),
            (those, None) => capital(&named(those)),
        };
        let several = self.ranks.len() > 1;
        let host = on.cloned().unwrap_or_else(|| "its host".into());
        let there = if self.ranks.is_empty() { String::new() } else { format!(" ({})", ranks(&self.ranks)) };
        let lasts = self.seen.documents.iter().filter_map(|(_, of)| of.stall).map(|stall| stall.limit_us).max();
        let pid = self.seen.ranks.iter().find(|one| self.ranks.contains(&one.rank.rank)).map(|one| one.rank.pid);
        let loads = self.class_of_stack(case) == Some(CulpritClass::Data);
        let words: [(&str, &dyn Display); 14] = [
            ("who", &who),
            ("is", &if several { "are" } else { "is" }),
            ("place", &if loads { "in its data loader" } else { "elsewhere in the program" }),
            ("in_loader", &if loads { " in its data loader" } else { "" }),
            ("host", &host),
            ("there", &there),
            ("since", &clock(self.since_us)),
            ("doing", &self.doing),
            ("others", &others),
            ("all", &ranks(&waiting)),
            (
                "unseen",
                &if unseen > 0 {
                    format!(
                        " {} of the job {} not seen here: give `busbw explain` the folders of all hosts.",
                        counted(unseen as usize, "rank"),
                        if unseen > 1 { "are" } else { "is" }
                    )
                } else {
                    String::new()
                },
            ),
            ("limit", &lasts.map_or(0, |limit| limit / 1_000_000)),
            ("pid", &pid.map_or("PID".to_owned(), |pid| pid.to_string())),
            ("waits", &if waiting.len() == 1 { "waits" } else { "wait" }),
        ];
        Finding { suspects: self.suspects(case), ..found(id, &words, evidence) }
    }

    /// The ranks that it accuses: none, where nobody is told from the others, or who failed followed another.
    fn suspects(&self, case: &Case) -> Option<Suspects> {
        let of_stack = self.class_of_stack(case);
        let class = match self.class {
            Class::Followed | Class::Unknown => return None,
            Class::Failed => Some(CulpritClass::Exception),
            Class::Killed => Some(CulpritClass::Killed),
            Class::Left => Some(CulpritClass::Divergence),
            Class::Stopped => Some(CulpritClass::Stopped),
            Class::Unreachable => Some(CulpritClass::Network),
            Class::Elsewhere => of_stack,
            // A loader may compute as well: it cuts, decodes, tokenizes.
            Class::Busy => of_stack.filter(|class| *class == CulpritClass::Data).or(Some(CulpritClass::Busy)),
            Class::Device | Class::Deaf => None,
        };
        (!self.ranks.is_empty()).then(|| Suspects::of(self.ranks.clone(), class))
    }

    /// What keeps those that it accuses, by the first stack.
    fn class_of_stack(&self, case: &Case) -> Option<CulpritClass> {
        let mut accused = self.seen.ranks.iter().filter(|one| self.ranks.contains(&one.rank.rank));
        accused.find_map(|one| stack_of(case, *one)).map(hang::class_of_stack)
    }
}

/// The time of day, in UTC: `14:03:22`.
fn clock(time_us: u64) -> String {
    let seconds = time_us / 1_000_000 % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
