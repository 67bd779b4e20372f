//! Versions of programs: compared by their numbers, whatever else their names have.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A version: numbers, and what a release was called behind them (`2.28.9`, `5.0.8rc1`, `1.13.2-aws`). Only the numbers count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Version {
    numbers: Vec<u32>,
    text: String,
}

impl FromStr for Version {
    type Err = String;

    /// Reads `2.28.9`, `v2.28.9-1`, `2.27.7+cuda12.4`.
    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.trim().trim_start_matches(['v', 'V']);
        let end = bare.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(bare.len());
        let numbers: Result<Vec<u32>, _> = bare[..end].trim_end_matches('.').split('.').map(str::parse).collect();
        match numbers {
            Ok(numbers) => Ok(Version { numbers, text: bare.to_owned() }),
            Err(_) => Err(format!("{text:?} is no version; write numbers with dots: 2.28.9")),
        }
    }
}

impl TryFrom<String> for Version {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.text
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl Version {
    /// Its first number.
    pub fn major(&self) -> u64 {
        self.numbers.first().copied().unwrap_or(0).into()
    }

    /// Whether it is no release: 0, 0.0.0.
    pub fn is_zero(&self) -> bool {
        self.numbers.iter().all(|number| *number == 0)
    }

    /// NCCL's, from the number of `ncclGetVersion` and `NCCL_VERSION_CODE`: 22703, before 2.9 2804. Others stay.
    pub fn of_nccl_code(self) -> Self {
        let &[code] = self.numbers.as_slice() else { return self };
        let (major, rest) = match code {
            0..1_000 => return self,
            1_000..10_000 => (code / 1_000, code % 1_000),
            10_000.. => (code / 10_000, code % 10_000),
        };
        let numbers = vec![major, rest / 100, rest % 100];
        Version { text: numbers.iter().map(u32::to_string).collect::<Vec<_>>().join("."), numbers }
    }

    /// Whether it is a release of a branch that two numbers name: `2.29.3` of `2.29`.
    pub fn is_release_of(&self, branch: &Version) -> bool {
        branch.numbers.len() == 2 && self.numbers.len() > 2 && self.is_of_branch(branch)
    }

    /// Whether both belong to the same branch of releases: `2.27.3` and `2.27.7`.
    pub fn is_of_branch(&self, other: &Version) -> bool {
        self.numbers.iter().take(2).eq(other.numbers.iter().take(2))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    /// By numbers; `2.28` is `2.28.0`.
    fn cmp(&self, other: &Self) -> Ordering {
        let longest = self.numbers.len().max(other.numbers.len());
        let number = |version: &Version, at: usize| version.numbers.get(at).copied().unwrap_or(0);
        (0..longest)
            .map(|at| number(self, at).cmp(&number(other, at)))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let ordered = ["2.4.8", "2.18", "v2.18.3-1", "2.28.9+cuda12.9", "2.28.10", "2.29.0", "535.54", "535.104.05"];
        let read: Vec<Version> = ordered.iter().map(|text| text.parse().expect("a version")).collect();
        assert!(read.is_sorted() && read[1] < read[2], "{read:?}");
        assert_eq!("2.28".parse::<Version>().map(|v| v.cmp(&"2.28.0".parse().unwrap())), Ok(std::cmp::Ordering::Equal));
        for bad in ["", "latest", "2..3", ".5"] {
            assert!(bad.parse::<Version>().is_err(), "{bad}");
        }
    }

    #[test]
    fn nccls_number_is_a_version() {
        for (code, version) in
            [("22703", "2.27.3"), ("2804", "2.8.4"), ("2.27.3", "2.27.3"), ("2", "2"), ("100", "100")]
        {
            let read = code.parse::<Version>().unwrap().of_nccl_code();
            assert_eq!(read.to_string(), version);
            assert_eq!(read, version.parse().unwrap());
        }
    }

    #[test]
    fn branches_are_the_first_two_numbers() {
        let of = |a: &str, b: &str| a.parse::<Version>().unwrap().is_of_branch(&b.parse().unwrap());
        assert!(of("2.27.3", "2.27.7") && !of("2.27.3", "2.28.3") && of("535.54", "535.54.03"));
    }
}
