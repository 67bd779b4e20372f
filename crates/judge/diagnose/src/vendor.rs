//! Answers in the terms of the GPUs that there are: remedies are written for NVIDIA's, and what an AMD job reads names AMD's programs,
//! links and variables. `rules/surroundings.toml` has the words.

use crate::case::Case;
use crate::data::Surrounding;
use crate::remedy::vendor_shown;
use busbw_model::{Advice, Code, Expected, Finding, Judged, Library};

/// The vendor of the run's GPUs, where it is not NVIDIA.
pub(crate) struct Vendor(&'static Surrounding);

impl Vendor {
    pub fn of(case: &Case) -> Option<Self> {
        let names = case.run.nodes.iter().flat_map(|node| &node.gpus).filter_map(|gpu| gpu.name.as_deref());
        let by_name = names.into_iter().any(|name| name.starts_with("AMD "));
        vendor_shown(case, by_name || case.run.nccl.library() == Library::Rccl).map(Vendor)
    }

    /// Puts findings into the vendor's terms. What cannot be is left out: a sentence, a remedy.
    pub fn put(&self, findings: &mut [Finding]) {
        for finding in findings {
            finding.title = self.sentence(&finding.title).unwrap_or_else(|| self.words(finding.code.meaning()));
            finding.explanation = self.sentences(&finding.explanation, finding.code);
            finding.alternatives.retain(|other| self.fits(&self.words(&other.cause)));
            for other in &mut finding.alternatives {
                other.cause = self.words(&other.cause);
                other.tell = self.sentence(&other.tell).unwrap_or_else(|| self.words(other.code.meaning()));
            }
            let had_any = !finding.remedy.is_empty();
            finding.remedy = finding.remedy.iter().filter_map(|remedy| self.sentence(remedy)).collect();
            if had_any && finding.remedy.is_empty() {
                finding.remedy.extend(self.0.last_resort.clone());
            }
        }
    }

    pub fn put_judged(&self, judged: &mut [Judged]) {
        for one in judged {
            one.what = self.sentence(&one.what).unwrap_or_default();
            one.how = self.sentence(&one.how).unwrap_or_default();
            one.question = one.question.as_deref().and_then(|question| self.sentence(question));
        }
    }

    pub fn put_advice(&self, advice: &mut Vec<Advice>) {
        for one in advice.iter_mut() {
            one.question = self.sentence(&one.question).unwrap_or_default();
            // A command line is several commands.
            let commands: Vec<String> =
                self.words(&one.command).split("; ").filter(|part| self.fits(part)).map(Into::into).collect();
            one.command = commands.join("; ");
            one.then = self.sentence(&one.then).unwrap_or_default();
        }
        advice.retain(|one| !one.question.is_empty() && !one.command.is_empty());
    }

    pub fn put_expected(&self, expected: Expected) -> Expected {
        Expected { bottleneck: self.words(&expected.bottleneck), why: self.words(&expected.why), ..expected }
    }

    fn words(&self, text: &str) -> String {
        self.0.words.iter().fold(text.to_owned(), |text, [theirs, own]| text.replace(theirs.as_str(), own))
    }

    fn fits(&self, text: &str) -> bool {
        let text = text.to_ascii_lowercase();
        !self.0.never.iter().any(|word| text.contains(&word.to_ascii_lowercase()))
    }

    fn sentence(&self, text: &str) -> Option<String> {
        Some(self.words(text)).filter(|text| self.fits(text))
    }

    fn sentences(&self, text: &str, code: Code) -> String {
        let text = self.words(text);
        let kept: Vec<&str> = text.split_inclusive(". ").filter(|sentence| self.fits(sentence)).collect();
        match kept.concat() {
            none if none.trim().is_empty() => format!("{}.", self.words(code.meaning())),
            kept => kept.trim_end().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{UserFacts, diagnose_with};
    use std::path::{Path, PathBuf};

    /// What only machines with NVIDIA's GPUs have.
    const OF_NVIDIA: [&str; 11] = [
        "nvidia",
        "nvlink",
        "nvswitch",
        "fabric manager",
        "fabricmanager",
        "imex",
        "dcgm",
        "nvrm",
        "xid",
        "nvml",
        "libcuda",
    ];

    fn words_of_nvidia(text: &str) -> Vec<&'static str> {
        let text = text.to_ascii_lowercase();
        OF_NVIDIA.into_iter().filter(|word| text.contains(word)).collect()
    }

    fn data(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/data").join(name)
    }

    /// What the answer says in words of its own, but for the evidence, which is the log's.
    fn said(log: &[u8]) -> Vec<String> {
        let run = busbw_ingest::read_bytes(&[("log", log)]).expect("text");
        let told = diagnose_with(&run, &UserFacts::default());
        let findings =
            told.findings.into_iter().flat_map(|one| [vec![one.title, one.explanation], one.remedy].concat());
        let judged = told.judged.into_iter().flat_map(|one| [one.what, one.how, one.question.unwrap_or_default()]);
        let advice = told.advice.into_iter().flat_map(|one| [one.question, one.command, one.then]);
        findings.chain(judged).chain(advice).chain([told.summary]).collect()
    }

    #[test]
    fn real_logs_of_rccl_get_no_remedy_for_nvidia() {
        for name in [
            "logs/038-mlperf50-mango-mi300x-4node-rccl.log",
            "cases-2/217-rccl-mixed-gfx1200-1201/input/run.log",
            "cases-2/259-three-communicators-deadlock/input/run.log",
        ] {
            let log = std::fs::read(data(name)).expect("it is there");
            for text in said(&log) {
                assert_eq!(words_of_nvidia(&text), [""; 0], "{name}: {text}");
            }
        }
    }

    /// Every rule's words, as an AMD job would get them.
    #[test]
    fn no_rule_has_words_of_nvidia_for_amd() {
        let log = b"n:1:1 [0] NCCL INFO RCCL version : 2.27.7-HEAD:29e1567\n";
        let run = busbw_ingest::read_bytes(&[("log", log)]).expect("text");
        let vendor = super::Vendor::of(&crate::Case::new(&run)).expect("AMD");
        let mut findings = crate::findings::every();
        assert!(findings.len() > 200, "{}", findings.len());
        let had: Vec<bool> = findings.iter().map(|finding| !finding.remedy.is_empty()).collect();
        vendor.put(&mut findings);
        for (finding, had) in findings.iter().zip(had) {
            assert_eq!(!finding.remedy.is_empty(), had, "{}", finding.title);
            assert!(!finding.title.is_empty() && !finding.explanation.is_empty(), "{}", finding.title);
            for text in [&finding.title, &finding.explanation].into_iter().chain(&finding.remedy) {
                assert_eq!(words_of_nvidia(text), [""; 0], "{text}");
            }
        }
    }

    #[test]
    fn a_log_that_names_no_library_is_known_by_its_errors() {
        for (line, is_amd) in [
            ("RuntimeError: HIP error: out of memory", true),
            ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB", true),
            ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", false),
        ] {
            let told = said(
                format!("Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\n{line}\n")
                    .as_bytes(),
            );
            let nvidia: Vec<&String> = told.iter().filter(|text| !words_of_nvidia(text).is_empty()).collect();
            assert_eq!(nvidia.is_empty(), is_amd, "{line}: {nvidia:?}");
        }
    }
}
