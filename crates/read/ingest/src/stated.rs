//! Versions as people and the forms of trackers state them: a program's name, marks, and its version (`rules/words.toml`, `names`).
//!
//! They are looked up, never judged by: what a program prints of itself goes before them. So where a name and a number stand
//! apart by words of a sentence, nothing is read.

use crate::evidence::KNOWN;
use crate::versions::{parsed, token, told};
use busbw_model::{Component, PrintedVersion, Version};

/// What may stand between a name and its version.
const MARKS: [char; 15] = [' ', '\t', '`', '*', ':', '=', '|', '~', '≥', '>', '(', '@', '"', '\'', '\u{a0}'];
/// Words of forms that may stand there, too.
const WORDS: [&str; 7] = ["versions", "version", "info", "tested", "is ", "from ", "api server"];
/// What stands between versions of one program: `2.27.5, 2.30.4`.
const NEXT: [&str; 5] = [", ", ",", " / ", "/", " to "];
/// How long an aside may be: `vLLM (failing): 0.27.1`.
const LONGEST_ASIDE: usize = 24;
/// Drivers of NVIDIA's have larger first numbers, all others smaller ones.
const FIRST_OF_DRIVERS: u32 = 300;
/// More versions add nothing new.
const MOST: usize = 64;

/// The versions that a text states, line by line, those of a line in the order of components.
pub fn stated_versions(text: &str) -> Vec<PrintedVersion> {
    let mut found: Vec<PrintedVersion> = Vec::new();
    // A heading that names a program's version, until the next line with text.
    let mut asked: Option<Component> = None;
    for printed in text.lines() {
        let line = printed.to_ascii_lowercase();
        let bare = line.trim_start_matches(MARKS);
        if bare.is_empty() {
            continue;
        }
        let below = asked.take().and_then(|component| Some((component, version(component, bare)?.0)));
        let mut stated: Vec<(Component, Version)> =
            below.into_iter().chain(of_uname(bare)).chain(of_images(&line)).collect();
        for (component, names) in &KNOWN.names {
            for rest in names.iter().flat_map(|name| behind(&line, name)) {
                let form = behind_form(rest);
                asked = asked.or((form.is_empty() && rest.contains("version")).then_some(*component));
                stated.extend(listed(*component, form).into_iter().map(|version| (*component, version)));
            }
        }
        let stated = stated.into_iter().map(|(component, version)| PrintedVersion { component, version });
        found.extend(stated.filter(|_| told(printed.trim_start()).is_none()));
    }
    let mut once: Vec<PrintedVersion> = Vec::new();
    for stated in found {
        if once.len() < MOST && !once.contains(&stated) {
            once.push(stated);
        }
    }
    once
}

/// What stands behind each place of a name that is a word of its own: not in a path, and no part of another name.
fn behind<'a>(line: &'a str, name: &str) -> Vec<&'a str> {
    let is_part = |c: char| c.is_alphanumeric() || "_-/.".contains(c);
    let places = line.match_indices(name).filter(|(at, _)| !line[..*at].ends_with(is_part));
    let rests = places.filter_map(|(at, name)| {
        let rest = &line[at + name.len()..];
        let rest = rest.strip_prefix(".__version__").unwrap_or(rest);
        // `nvshmem-3.5.19`, but not `nccl-tests`.
        let dashed = rest.strip_prefix('-').filter(|rest| starts_a_number(rest));
        let ends = !rest.starts_with(|c: char| c.is_alphabetic() || "_-/.".contains(c));
        dashed.or(ends.then_some(rest))
    });
    rests.collect()
}

fn starts_a_number(text: &str) -> bool {
    text.strip_prefix('v').unwrap_or(text).starts_with(|c: char| c.is_ascii_digit())
}

/// What stands behind marks, the words of a form, and an aside.
fn behind_form(rest: &str) -> &str {
    let mut rest = rest;
    loop {
        let behind = rest.trim_start_matches(MARKS);
        // What is required is not what is there.
        if rest[..rest.len() - behind.len()].contains(">=") {
            return "";
        }
        let opens = rest[..rest.len() - behind.len()].contains('(');
        let aside = behind.split_once(')').filter(|(aside, _)| opens && aside.len() <= LONGEST_ASIDE);
        let aside = aside.filter(|(aside, _)| aside.chars().all(|c| c.is_ascii_lowercase() || c == ' '));
        let word = WORDS.iter().find_map(|word| behind.strip_prefix(word));
        match aside.map(|(_, behind)| behind).or(word) {
            Some(further) => rest = further,
            None => return behind,
        }
    }
}

/// The versions at the start of a text: one, or several that are listed.
fn listed(component: Component, text: &str) -> Vec<Version> {
    let mut versions = Vec::new();
    let mut at = Some(text);
    while let Some((version, behind)) = at.and_then(|text| version(component, text)) {
        versions.push(version);
        at = NEXT.iter().find_map(|mark| behind.strip_prefix(mark));
    }
    versions
}

/// The version at the start of a text, and what stands behind it: two numbers or more, of which the first is one that the component has.
fn version(component: Component, text: &str) -> Option<(Version, &str)> {
    let bare = text.strip_prefix('v').unwrap_or(text);
    let token = token(bare).trim_end_matches(['.', '+']);
    let first: u32 = token.split_once('.')?.0.parse().ok()?;
    let fits = match component {
        Component::Driver => first >= FIRST_OF_DRIVERS,
        // A kernel of Linux, not one of CUDA that takes 3.2 ms.
        Component::Kernel => is_whole(token),
        _ => first < FIRST_OF_DRIVERS,
    };
    Some((parsed(token).filter(|_| fits)?, &bare[token.len()..]))
}

/// Whether a version has three numbers.
fn is_whole(token: &str) -> bool {
    token.split('.').filter(|part| part.starts_with(|c: char| c.is_ascii_digit())).count() >= 3
}

/// The versions of a line's container images: `vllm/vllm-openai:v0.28.0`, `nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc12`. NVIDIA's tags by year and month,
/// `nvcr.io/nvidia/pytorch:25.10-py3`, are no versions of what is in them.
fn of_images(line: &str) -> impl Iterator<Item = (Component, Version)> {
    let words = line.split(|c: char| c.is_whitespace() || "`'\"(),|".contains(c));
    words.filter_map(|word| {
        let (path, tag) = word.rsplit_once(':')?;
        let is_of = |names: &[String]| path.split('/').any(|part| names.iter().any(|name| name == part));
        let (component, _) = KNOWN.names.iter().find(|(_, names)| path.contains('/') && is_of(names))?;
        if is_of_calendar(tag) {
            return None;
        }
        let (version, _) = version(*component, tag)?;
        is_whole(tag.trim_start_matches('v')).then_some((*component, version))
    })
}

/// Whether a tag names a year and a month: `24.06.01`.
fn is_of_calendar(tag: &str) -> bool {
    let part =
        |at: usize| tag.split('.').nth(at).filter(|part| part.len() == 2).and_then(|part| part.parse::<u32>().ok());
    part(0).is_some_and(|year| year >= 20) && part(1).is_some_and(|month| (1..=12).contains(&month))
}

/// That of Linux, as `uname -a` tells it: `Linux node1 6.8.0-31-generic #31-Ubuntu SMP …`.
fn of_uname(line: &str) -> Option<(Component, Version)> {
    let mut words = line.strip_prefix("linux ")?.split(' ').skip(1);
    let (told, _) = version(Component::Kernel, words.next()?)?;
    words.next()?.starts_with('#').then_some((Component::Kernel, told))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_where_a_name_and_marks_stand_before_them() {
        let cases = [
            (
                "We run vLLM 0.26.0, FlashInfer 0.6.14, driver 580.126.09",
                "nvidia-driver=580.126.09 vllm=0.26.0 flashinfer=0.6.14",
            ),
            ("| vLLM Version | v0.28.0 (also tested v0.26.0) |", "vllm=0.28.0"),
            ("- **NCCL versions tested (all fail)**: 2.27.5, 2.30.4", "nccl=2.27.5 nccl=2.30.4"),
            ("### NCCL Version\n\n2.30.7", "nccl=2.30.7"),
            ("vLLM (failing)    : 0.27.1+cu129", "vllm=0.27.1+cu129"),
            ("# [NCCL2.26.2][RAS] it crashes", "nccl=2.26.2"),
            ("NVSHMEM_PREFIX=/opt/nvshmem-3.5.19-1/build", ""),
            ("nvshmem-3.5.19-1", "nvshmem=3.5.19"),
            ("nvidia-nccl-cu13==2.28.9", ""),
            ("docker run vllm/vllm-openai:v0.28.0 --model m", "vllm=0.28.0"),
            ("image: lmsysorg/sglang:v0.5.18-cu130", "sglang=0.5.18"),
            ("`nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc12.post1`", "tensorrt-llm=1.3.0rc12.post1"),
            ("Linux node1 6.8.0-31-generic #31-Ubuntu SMP x86_64", "kernel=6.8.0"),
            ("on kernel `6.17.0-1019-nvidia`", "kernel=6.17.0"),
            ("with nixl-cu12 1.4.1", "nixl=1.4.1"),
            ("nvcr.io/nvidia/pytorch:25.10-py3", ""),
            ("podman run nersc/pytorch:24.06.01 bash", ""),
            ("flashinfer.__version__ = '0.2.7.post1'", "flashinfer=0.2.7.post1"),
            ("the kernel 3.2 ms, vLLM 0.1.dev20073+g8e685d198", ""),
            // Sentences, paths, another program, an address.
            ("NCCL hangs since 2.30", ""),
            ("https://github.com/NVIDIA/nccl/releases/tag/v2.31.2-1", ""),
            ("nccl-tests 2.17.2", "nccl-tests=2.17.2"),
            ("CUDA used to build PyTorch          : 13.0", ""),
            ("DeepSpeed < 0.17.6", ""),
            ("requires torch>=1.13, a torch version >= 1.5", ""),
        ];
        for (text, expected) in cases {
            let told: Vec<String> = stated_versions(text)
                .iter()
                .map(|told| format!("{}={}", told.component.name(), told.version))
                .collect();
            assert_eq!(told.join(" "), expected, "{text}");
        }
    }
}
