//! NCCL's own words for a failure that no rule names.

use super::super::{Basis, found as said};
use super::rests_on;
use crate::case::Case;
use crate::lines::Line;
use crate::refute::is_after;
use crate::words::KNOWN;
use busbw_model::{Code, Communicator, Ended, ErrorStep, Evidence, Finding, RankEnd, Severity, SourceLine, Warning};

/// What a failure of NCCL's is: its id in rules/findings.toml.
type Kind = &'static str;

const SYSTEM: Kind = "quote.system";
const INTERNAL: Kind = "quote.internal";
const OTHER: Kind = "quote.other";

/// By the number of `ncclResult_t`.
fn of_result(result: u32) -> Kind {
    match result {
        1 => "quote.cuda",
        2 => SYSTEM,
        3 => INTERNAL,
        _ => OTHER,
    }
}

/// By the words of `ncclGetErrorString`, which PyTorch and nccl-tests print.
fn of_words(text: &str) -> Kind {
    KNOWN.results.iter().find(|(words, _)| text.contains(words)).map_or(OTHER, |(_, result)| of_result(*result))
}

/// By the file of NCCL's, or the plugin, that warns.
fn of_place(warning: &Warning) -> Option<Code> {
    const PLACES: [(&str, Code); 6] = [
        ("NET/OFI", Code::NetPlugin),
        ("ibvwrap", Code::IbTransportError),
        ("net_ib", Code::IbTransportError),
        ("nvls.cc", Code::NvlinkFabric),
        ("mnnvl.cc", Code::NvlinkFabric),
        ("p2p.cc", Code::P2pDisabled),
    ];
    let site = warning.site.as_deref().unwrap_or_default();
    PLACES.iter().find(|(place, _)| site.contains(place) || warning.message.contains(place)).map(|(_, code)| *code)
}

/// As much of a message as a title holds.
pub(super) fn in_short(words: &str) -> String {
    const LONGEST: usize = 110;
    match words.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} …", words[..end].trim_end()),
        None => words.to_string(),
    }
}

/// A warning of NCCL's, or what PyTorch repeats below `Last error:`.
pub(super) struct Quote<'a> {
    words: &'a str,
    source: &'a SourceLine,
    kind: Kind,
    /// The code, where its place tells more than the kind.
    code: Option<Code>,
    /// NCCL's calls returned with an error after it.
    returned: bool,
}

impl<'a> Quote<'a> {
    /// The finding for an end of which NCCL says more, or nothing.
    pub fn of_end(case: &Case, end: &RankEnd, found: &[(Basis, Finding)]) -> Finding {
        let of_end = match &end.how {
            Ended::Failure(said) => of_words(said),
            _ => of_words(&end.source.text),
        };
        let quote = Quote::find(case, found);
        let known = quote.as_ref().filter(|_| of_end == OTHER);
        let kind = known.map_or(of_end, |quote| quote.kind);
        let quoted = quote.as_ref().map(|quote| Evidence::new(quote.source.clone()));
        let evidence = quoted.into_iter().chain([Evidence::new(end.source.clone())]).collect();
        let words = quote.as_ref().map_or(", and the input does not show why".into(), Quote::words);
        let finding = said(kind, &[("said", &words)], evidence);
        let code = known.and_then(|quote| quote.code).unwrap_or(finding.code);
        Finding { code, confidence: if quote.is_some() { finding.confidence } else { 0.35 }, ..finding }
    }

    /// `: Call to connect failed`.
    fn words(&self) -> String {
        format!(": {}", in_short(self.words))
    }

    /// What a warning says where no process is seen to fail: an error if NCCL's calls returned with it and nothing came up; else worth a
    /// look, if nothing else is.
    pub fn alone(case: &Case, found: &[(Basis, Finding)]) -> Option<Finding> {
        let came_up = case.run.communicators.iter().any(Communicator::came_up)
            || case.run.tables.iter().any(|table| !table.rows.is_empty())
            || case.refuters.ended_well();
        let quote = Quote::find(case, found).filter(|_| !came_up)?;
        let told = found.iter().any(|(_, finding)| finding.severity >= Severity::Warning);
        let words = quote.words();
        let evidence = || vec![Evidence::new(quote.source.clone())];
        let returned = said(quote.kind, &[("said", &words)], evidence());
        let returned = Finding { code: quote.code.unwrap_or(returned.code), ..returned };
        if quote.returned {
            return Some(returned);
        }
        let Finding { code, remedy, .. } = returned;
        (!told).then(|| Finding { code, remedy, ..said("quote.alone", &[("said", &words)], evidence()) })
    }

    /// The first warning after which NCCL's calls returned an error, else what PyTorch repeats, else any; where no finding rests
    /// on it.
    fn find(case: &'a Case, found: &[(Basis, Finding)]) -> Option<Self> {
        let known = |source: &SourceLine| found.iter().any(|(_, finding)| rests_on(finding, source.place));
        let (returned, others): (Vec<Self>, Vec<Self>) = Quote::warnings(case).partition(|quote| quote.returned);
        let mut quotes = returned.into_iter().chain(Quote::last_errors(case)).chain(others);
        quotes.find(|quote| !known(quote.source))
    }

    fn warnings(case: &'a Case) -> impl Iterator<Item = Self> {
        let matters = move |warning: &&Warning| !KNOWN.harmless.iter().any(|words| warning.message.contains(words));
        let read = move |warning: &'a Warning| {
            let after = |step: &&ErrorStep| is_after(step.source.place, warning.source.place);
            let step = case.run.nccl.error_steps.iter().find(after);
            let kind = match step {
                _ if warning.site.as_ref().is_some_and(|site| site.starts_with("graph/")) => INTERNAL,
                Some(step) => of_result(step.result),
                None => of_words(&warning.message),
            };
            let code = of_place(warning).filter(|_| [OTHER, SYSTEM].contains(&kind));
            Quote { words: &warning.message, source: &warning.source, kind, code, returned: step.is_some() }
        };
        case.run.nccl.warnings.iter().filter(matters).map(read)
    }

    fn last_errors(case: &'a Case) -> impl Iterator<Item = Self> {
        let is_head = |(_, line): &(usize, &Line)| line.text.trim_end().ends_with("Last error:");
        let below = |(index, head): (usize, &Line)| {
            let rest = case.lines[index..].iter().map(|line| (line, line.source.place));
            let mut next = rest.skip_while(|(_, place)| *place == head.source.place);
            next.next()
                .filter(|(_, place)| is_after(*place, head.source.place) && place.line == head.source.place.line + 1)
        };
        case.lines.iter().enumerate().filter(is_head).filter_map(below).map(|(line, _)| {
            let from = line.text.find("Cuda failure").unwrap_or(0);
            let (words, kind) = (line.text[from..].trim(), of_words(&line.text));
            Quote { words, source: line.source, kind, code: None, returned: false }
        })
    }
}
