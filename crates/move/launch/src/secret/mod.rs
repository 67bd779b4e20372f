//! How the ranks of a job come by one random token where their launcher has no store.

mod file;
mod munge;

use crate::derive::Words;
use crate::error::SET_TOKEN;
use crate::job_rank::JobRank;
use crate::{Error, Lookup, Result};
use busbw_transport::Token;
use std::path::PathBuf;

/// A way to share a token. Every rank chooses by itself, from what is the same for all of them: a rank that asked rank 0 could be
/// talked into a weaker way by whoever answers in its place.
#[derive(Debug, Clone)]
pub(crate) enum Way {
    /// Every rank has BUSBW_TOKEN.
    Given(Token),
    /// Rank 0 offers a credential that only this user can decode.
    Munge,
    /// Rank 0 writes it into a file that only this user can read.
    File(PathBuf),
    /// It follows from the job's variables, and is no secret.
    Derived(Token),
}

/// What rank 0 has made, for the others.
pub(crate) struct Shared {
    pub token: Token,
    /// What it tells everyone who connects.
    pub offer: Vec<u8>,
    /// Takes back what it has put somewhere, when it is dropped.
    pub kept: Option<file::TokenFile>,
}

impl Way {
    pub fn choose(job_rank: &JobRank, words: &Words, look: Lookup) -> Way {
        if let Some(token) = job_rank.token {
            return Way::Given(token);
        }
        if munge::answers() {
            return Way::Munge;
        }
        match file::folder(look, job_rank.one_host()) {
            Some(folder) => Way::File(folder.join(file::name(words, job_rank.one_host()))),
            None => Way::Derived(words.token()),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Way::Given(_) => "BUSBW_TOKEN",
            Way::Munge => "munge",
            Way::File(_) => "file",
            Way::Derived(_) => "derived",
        }
    }

    /// Rank 0's part.
    pub fn share(&self, words: &Words) -> Result<Shared> {
        let offer = format!("{} {}", words.name(), self.name());
        let (token, offer, kept) = match self {
            Way::Given(token) | Way::Derived(token) => (*token, offer, None),
            Way::Munge => {
                let token = Token::random()?;
                (token, format!("{offer} {}", munge::encode(&token)?), None)
            }
            Way::File(path) => {
                let token = Token::random()?;
                (token, offer, Some(file::TokenFile::write(path, token)?))
            }
        };
        Ok(Shared { token, offer: offer.into_bytes(), kept })
    }

    /// The token, as a rank has it that has heard rank 0's offer. `None`: this listener is not rank 0 of this job.
    pub fn token(&self, words: &Words, offer: &[u8]) -> Option<Result<Token>> {
        let offer = String::from_utf8_lossy(offer);
        let mut offer = offer.split(' ');
        if offer.next()? != words.name() {
            return None;
        }
        let theirs = offer.next()?;
        if theirs != self.name() {
            let known = ["BUSBW_TOKEN", "munge", "file", "derived"].into_iter().find(|name| *name == theirs);
            return Some(Err(disagree(known.unwrap_or("a way that this busbw does not know"), self.name())));
        }
        Some(match self {
            Way::Given(token) | Way::Derived(token) => Ok(*token),
            Way::Munge => munge::decode(offer.next()?),
            Way::File(path) => file::read(path),
        })
    }

    /// Whether the same offer may stand for another token later: a file may be replaced.
    pub fn may_change(&self) -> bool {
        matches!(self, Way::File(_))
    }

    /// What rank 0 has to say about it.
    pub fn warning(&self) -> Option<String> {
        let weak = matches!(self, Way::Derived(_));
        weak.then(|| {
            format!(
                "busbw: anyone who knows this job's id can join it: its ranks share no store, no munge and no home directory, so that its \
                 token follows from the job's variables; {SET_TOKEN}"
            )
        })
    }
}

/// What a rank says whose way is not rank 0's.
pub(crate) fn disagree(theirs: &str, ours: &str) -> Error {
    Error::Join(format!(
        "rank 0 shares this job's token by {theirs}, this rank by {ours}: what one host has, the other lacks (munge, a home directory that \
         all hosts share, BUSBW_TOKEN); {SET_TOKEN}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derive::SLURM;

    fn words(job: &'static str) -> Words {
        Words::of(&move |name| (name == "SLURM_JOB_ID").then(|| job.to_owned()), SLURM)
    }

    #[test]
    fn ranks_that_choose_one_way_have_one_token_and_others_say_which_they_chose() {
        let folder = tempfile::tempdir().unwrap();
        let (given, other) = (Token::random().unwrap(), Token::random().unwrap());
        let file = Way::File(folder.path().join("job"));
        for way in [Way::Given(given), file.clone(), Way::Derived(words("7").token())] {
            let shared = way.share(&words("7")).unwrap();
            let token = way.token(&words("7"), &shared.offer).unwrap().unwrap();
            assert!(token.matches(shared.token.as_bytes()), "{way:?}");
            assert!(way.token(&words("8"), &shared.offer).is_none(), "another job: {way:?}");
            assert!(way.token(&words("7"), b"").is_none() && way.token(&words("7"), &[255; 99]).is_none());
            let unlike = Way::Munge.token(&words("7"), &shared.offer).unwrap().unwrap_err().to_string();
            let says = format!("rank 0 shares this job's token by {}, this rank by munge", way.name());
            assert!(unlike.starts_with(&says) && unlike.contains("BUSBW_TOKEN="), "{unlike}");
        }
        // A stranger who answers in rank 0's place cannot talk a rank into what he knows.
        let public = format!("{} derived", words("7").name());
        assert!(Way::Given(other).token(&words("7"), public.as_bytes()).unwrap().is_err());
        assert!(file.token(&words("7"), public.as_bytes()).unwrap().is_err());
    }

    #[test]
    fn only_the_derived_token_is_warned_of() {
        let token = Token::random().unwrap();
        assert!(Way::Derived(token).warning().unwrap().contains("anyone who knows this job's id"));
        for way in [Way::Given(token), Way::Munge, Way::File("/a".into())] {
            assert!(way.warning().is_none());
        }
    }
}
