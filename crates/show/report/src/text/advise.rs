//! Known faults as text: what the versions can do, the worst first, and the version to take.

use super::Style;
use super::page::{Page, paint};
use crate::style::{left, wrap};
use crate::words::counted;
use busbw_model::{Advised, BestVersion, Bytes, Consequence, Exposure, KnownFact, KnownFault};
use std::collections::BTreeMap;

/// Columns of the word that says what a fault does.
const DOES: usize = 15;
/// Faults that a screen has room for.
const MOST_BRIEF: usize = 2;
/// Faults that are shown because they fit what was seen.
const MOST_FITS: usize = 5;
/// Ids that a line names.
const MOST_IDS: usize = 6;

/// What versions can do to a job, ready to print.
///
/// ```
/// let text = busbw_report::text::advise(&busbw_model::Advised::default(), &Default::default());
/// assert!(text.starts_with("UNDECIDED  No version is known"), "{text}");
/// ```
pub fn advise(advised: &Advised, style: &Style) -> String {
    let mut page = Page::new(*style);
    lead(&mut page, advised);
    known(&mut page, advised);
    let fits: Vec<&KnownFault> = advised.faults.iter().filter(|fault| fits(fault)).take(MOST_FITS).collect();
    let is_told = |fault: &&KnownFault| fits.iter().any(|told| told.id == fault.id);
    let rest = |exposure| advised.of(exposure).filter(|fault| !is_told(fault)).collect::<Vec<&KnownFault>>();
    section(&mut page, style, "Hit you", &rest(Exposure::HitYou));
    section(&mut page, style, "Fits what was seen", &fits);
    section(&mut page, style, "Can hit you", &rest(Exposure::CanHitYou));
    undecided(&mut page, &rest(Exposure::CannotKnow));
    if !advised.take.is_empty() {
        page.heading("Version to take");
        advised.take.iter().for_each(|best| take(&mut page, best));
    }
    if style.brief {
        page.end_line();
        page.more_by("-v for all of them; --json for programs");
    }
    page.finish_with(style.rows, |page| lead(page, advised))
}

/// What would show as what was seen; of what hit that is clear.
fn fits(fault: &KnownFault) -> bool {
    fault.fits && fault.exposure != Exposure::HitYou
}

fn section(page: &mut Page, style: &Style, heading: &str, faults: &[&KnownFault]) {
    if faults.is_empty() {
        return;
    }
    let shown = if style.brief { MOST_BRIEF.min(faults.len()) } else { faults.len() };
    page.heading(heading);
    faults.iter().take(shown).for_each(|fault| entry(page, fault));
    page.more(faults.len(), shown);
    open_range(page, &faults[..shown]);
}

/// The first line: what there is to fear.
fn lead(page: &mut Page, advised: &Advised) {
    let number = |exposure| advised.of(exposure).count();
    let (hit, can) = (number(Exposure::HitYou), number(Exposure::CanHitYou));
    let (word, paint, text) = match (hit, can) {
        _ if !advised.knows_a_version() => {
            ("UNDECIDED", paint::WARNING, "No version is known; tell one: --versions nccl=2.28.9".to_owned())
        }
        _ if !advised.is_judged() => (
            "UNDECIDED",
            paint::WARNING,
            "Nothing was judged: the tables name no release near these versions".to_owned(),
        ),
        (1.., _) => ("HIT", paint::ERROR, format!("{} hit this run", counted(hit, "known fault"))),
        (0, 1..) if advised.is_grave() => ("AT RISK", paint::ERROR, at_risk(advised, can)),
        (0, 1..) => (
            "EXPOSED",
            paint::WARNING,
            format!("{} can hit you; none hangs or spoils results{}", counted(can, "known fault"), open(advised)),
        ),
        (0, 0) => (
            "CLEAR",
            paint::GOOD,
            format!("no known fault of these versions can hit you, as far as is known{}", open(advised)),
        ),
    };
    page.styled(paint, word);
    page.hanging(word.len() + 2, paint::BOLD, &text);
}

/// How many faults that hang or spoil results depend on what was not told.
fn open(advised: &Advised) -> String {
    match advised.of(Exposure::CannotKnow).filter(|fault| fault.consequence.is_grave()).count() {
        0 => String::new(),
        1 => "; 1 more that hangs or spoils results depends on what you have not told".into(),
        open => format!("; {open} more that hang or spoil results depend on what you have not told"),
    }
}

fn at_risk(advised: &Advised, can: usize) -> String {
    let grave = advised.of(Exposure::CanHitYou).filter(|fault| fault.consequence.is_grave()).count();
    let others = match can - grave {
        0 => String::new(),
        rest => format!("; {rest} more do less"),
    };
    format!("{} can hang a job or spoil its results{others}", counted(grave, "known fault"))
}

fn known(page: &mut Page, advised: &Advised) {
    let facts: Vec<String> = advised.known.iter().map(|fact| format!("{} {}", fact.what, values(fact))).collect();
    if !facts.is_empty() {
        page.indented(2, &format!("Known: {}", facts.join("; ")));
    }
    let outside: Vec<String> =
        advised.not_covered.iter().map(|fact| format!("{} {}", fact.what, values(fact))).collect();
    if !outside.is_empty() && advised.knows_a_version() {
        page.indented(2, &format!("Not judged, older or newer than all that the tables name: {}", outside.join("; ")));
    }
}

/// Of many sizes in bytes, from where to where; else a list.
fn values(fact: &KnownFact) -> String {
    let sizes: Option<Vec<u64>> = fact.values.iter().map(|value| value.parse().ok()).collect();
    let ends = sizes.filter(|sizes| sizes.len() > 1 && fact.what == "size");
    match ends.and_then(|sizes| Some((*sizes.iter().min()?, *sizes.iter().max()?))) {
        Some((least, most)) => format!("{} to {}", Bytes(least), Bytes(most)),
        None => listed(&fact.values),
    }
}

fn listed(names: &[String]) -> String {
    let shown = names.iter().take(MOST_IDS).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > MOST_IDS { format!("{shown} and {} more", names.len() - MOST_IDS) } else { shown }
}

fn entry(page: &mut Page, fault: &KnownFault) {
    page.text("  ");
    let paint = if fault.consequence.is_grave() { paint::ERROR } else { paint::WARNING };
    page.styled(paint, &left(fault.consequence.name(), DOES));
    let title = format!("{}: {}", fault.component.title(), fault.title);
    for (number, line) in wrap(&title, page.width() - 2 - DOES).iter().enumerate() {
        page.text(&" ".repeat(if number == 0 { 0 } else { 2 + DOES }));
        page.styled_line(paint::BOLD, line);
    }
    let fixed: Vec<String> = fault.fixed.iter().map(ToString::to_string).collect();
    let fixed = if fixed.is_empty() {
        "no release with a mend is known".into()
    } else {
        format!("fixed in {}", fixed.join(", "))
    };
    let workaround = fault.workaround.iter().map(|text| format!(" {text}")).collect::<String>();
    page.indented(2 + DOES, &format!("{}: {}; {fixed}.{workaround}", fault.id, fault.affected));
    if !fault.unknown.is_empty() {
        page.indented(2 + DOES, &format!("Cannot know: it depends on {}", fault.unknown.join(", and ")));
    }
    if !page.is_brief() {
        fault.note.iter().for_each(|note| page.indented(2 + DOES, note));
        fault.source.iter().for_each(|source| page.clipped(2 + DOES, source));
    }
}

/// What `before` means, where a line says it.
fn open_range(page: &mut Page, faults: &[&KnownFault]) {
    let open = |fault: &&KnownFault| ["before ", "up to "].iter().any(|word| fault.affected.starts_with(word));
    if faults.iter().any(open) && !page.is_brief() {
        page.styled_line(paint::DIM, "  before, up to: no source tells since which version");
    }
}

/// What to tell, and how many faults it decides.
fn undecided(page: &mut Page, faults: &[&KnownFault]) {
    let mut by_question: BTreeMap<String, Vec<&KnownFault>> = BTreeMap::new();
    for fault in faults.iter().copied() {
        by_question.entry(fault.unknown.join(", and ")).or_default().push(fault);
    }
    if by_question.is_empty() {
        return;
    }
    let all = faults.len();
    let grave = faults.iter().filter(|fault| fault.consequence.is_grave()).count();
    if page.is_brief() {
        let depend = if all == 1 { "depends" } else { "depend" };
        return page.styled_line(
            paint::DIM,
            &format!("  {all} more {depend} on what is not known here; -v says what to tell"),
        );
    }
    page.heading("Cannot know");
    let (known, need) = (counted(all, "more known fault"), if all == 1 { "needs" } else { "need" });
    let bad =
        if grave == 1 { "1 of them hangs or spoils".to_owned() } else { format!("{grave} of them hang or spoil") };
    let how = "Give a log, or what is so: --features, --fabric, --nodes, --arch, --gpu, --when KEY=VALUE.";
    page.indented(2, &format!("{known} {need} more facts; {bad} results. {how}"));
    let mut questions: Vec<(String, Vec<&KnownFault>)> = by_question.into_iter().collect();
    questions.sort_by_key(|(_, faults)| faults.iter().map(|fault| fault.consequence).min());
    for (question, faults) in questions {
        let does = |fault: &&KnownFault| format!("{} ({})", fault.id, fault.consequence.name());
        let faults: Vec<String> = faults.iter().map(does).collect();
        page.indented(2, &format!("{question}: {}", faults.join(", ")));
    }
}

fn take(page: &mut Page, best: &BestVersion) {
    let BestVersion { component, now, take, .. } = best;
    page.indented(2, &format!("{} {take} instead of {now}: ends {}", component.title(), listed(&best.ends)));
    if !best.brings.is_empty() {
        page.indented(4, &format!("brings {}", listed(&best.brings)));
    }
    if !best.leaves.is_empty() {
        page.indented(4, &format!("no release is free of {}", listed(&best.leaves)));
    }
}

/// Which faults need a machine of their own: by GPU, architecture and network, with links.
fn machines(faults: &[&(String, KnownFault)]) -> String {
    let mut by_machine: BTreeMap<(usize, &str), Vec<&str>> = BTreeMap::new();
    for (when, fault) in faults {
        for (kind, key) in ["gpu: ", "arch: ", "fabric: "].iter().enumerate() {
            let values = when.split("; ").find_map(|part| part.strip_prefix(key)).into_iter();
            for value in values.flat_map(|values| values.split(" or ")) {
                by_machine.entry((kind, value)).or_default().push(&fault.id);
            }
        }
    }
    let link = |id: &&str| format!("[{id}](#{id})");
    let rows = by_machine.iter().map(|((_, machine), ids)| {
        format!("| {machine} | {} |\n", ids.iter().map(link).collect::<Vec<_>>().join(", "))
    });
    let rows: String = rows.collect();
    match rows.is_empty() {
        true => rows,
        false => format!(
            "\nThese need such a GPU, processor or network (GB200, GB300 and GH200 are `aarch64`, too); the others do not depend on it.\n\n| only on | what |\n| --- | --- |\n{rows}"
        ),
    }
}

/// The pages of the book: for each consequence, the versions that can do it.
pub fn known_faults(consequence: Consequence, faults: &[(String, KnownFault)]) -> String {
    let title = match consequence {
        Consequence::WrongResults => "Versions that can return wrong results",
        Consequence::Hang => "Versions that can hang",
        Consequence::Crash => "Versions that can crash",
        Consequence::Refused => "Versions that can refuse to run",
        Consequence::Slow => "Versions that can be slow",
        Consequence::Leak => "Versions that can lose memory",
    };
    let mut page = format!(
        "# {title}\n\nMade from `rules/known-faults`. `busbw advise` tells which of them can hit you. Where a line says\n`before` or `up to`, its sources do not say since which version.\n"
    );
    let listed: Vec<&(String, KnownFault)> =
        faults.iter().filter(|(_, fault)| fault.consequence == consequence).collect();
    page.push_str(&machines(&listed));
    let mut component = None;
    for (when, fault) in listed {
        if component != Some(fault.component) {
            component = Some(fault.component);
            page.push_str(&format!("\n## {}\n\n| versions | fixed in | what happens | only with | until then |\n| --- | --- | --- | --- | --- |\n", fault.component.title()));
        }
        let fixed: Vec<String> = fault.fixed.iter().map(ToString::to_string).collect();
        let cell = |text: &str| text.replace('|', "\\|");
        let sources: Vec<String> =
            fault.source.iter().enumerate().map(|(at, url)| format!("[{}]({url})", at + 1)).collect();
        page.push_str(&format!(
            "| {} | {} | <a id=\"{id}\"></a>{}. {note}({}) | {} | {} |\n",
            fault.affected,
            if fixed.is_empty() { "–".into() } else { fixed.join(", ") },
            cell(&fault.title),
            sources.join(", "),
            cell(when),
            cell(fault.workaround.as_deref().unwrap_or("–")),
            id = fault.id,
            note = fault.note.iter().map(|note| format!("{} ", cell(note))).collect::<String>(),
        ));
    }
    page
}
