//! Compares runs of one test: which is faster at which sizes, by how much, and what else differs.

mod contest;
mod differences;
mod measured;
mod proven;
mod subject;

pub use proven::{ProofError, tuning_table};
pub use subject::{Subject, SubjectError};

use crate::statistics::{INTERVAL, TEST};
use busbw_model::{
    BenchTable, Bytes, Carrier, Collective, ComparedCell, ComparedRow, ComparedRun, Contest, Faster, LargestCompared,
    RunComparison, short_names,
};
use measured::Measured;
use std::collections::BTreeSet;

/// How sure to be that speeds differ, where repetitions tell.
const CONFIDENCE: f64 = 0.95;

/// Why runs are not compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// Nothing to hold against each other.
    #[error("a comparison needs two runs or more")]
    OnlyOne,
    /// A run without a table of the test.
    #[error("{name}: no table{of}; give the output of nccl-tests or of busbw bench")]
    NoTable {
        name: String,
        /// ` of all_reduce`, where one was asked for.
        of: String,
    },
    #[error("{name}: holds several tests: {tests}; choose one with --collective, or give files with one test each")]
    SeveralTests { name: String, tests: String },
    /// A run whose rows of one size are no repetitions.
    #[error("{name}: measured {size} with several {what}, which are not repetitions; measure one of them")]
    SeveralKinds {
        name: String,
        size: Bytes,
        /// `datatypes (-d)`.
        what: &'static str,
    },
    #[error(
        "{first} measured {first_test} and {other} {other_test}: their speeds are not comparable; compare runs of one \
         collective, or use --anyway"
    )]
    Collectives {
        first: String,
        first_test: String,
        other: String,
        /// What that measured.
        other_test: String,
    },
    #[error(
        "{first} has {first_ranks} ranks and {other} {other_ranks}: their times are not comparable; compare runs with the same number of ranks, or use --anyway"
    )]
    Ranks { first: String, first_ranks: u32, other: String, other_ranks: u32 },
    /// Runs without a size in common.
    #[error("no size was measured in {first} and in {other}; measure both with the same -b, -e and -f")]
    NoCommonSize { first: String, other: String },
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted {
    /// The collective, of runs that hold several.
    pub collective: Option<Collective>,
    /// Compare different collectives and rank counts too.
    pub anyway: bool,
}

/// Compares runs with the first of them.
pub fn compare(subjects: &[Subject], wanted: Wanted) -> Result<RunComparison, CompareError> {
    let measured: Vec<Measured> =
        subjects.iter().map(|subject| Measured::of(subject, wanted.collective)).collect::<Result<_, _>>()?;
    let [first, others @ ..] = measured.as_slice() else { return Err(CompareError::OnlyOne) };
    if others.is_empty() {
        return Err(CompareError::OnlyOne);
    }
    for other in others {
        if !wanted.anyway {
            comparable(first, other)?;
        }
        if !first.sizes().any(|size| other.at(size).is_some()) {
            return Err(CompareError::NoCommonSize { first: first.name().into(), other: other.name().into() });
        }
    }
    let contests: Vec<Contest> =
        others.iter().enumerate().map(|(index, other)| contest::between(first, other, index + 1)).collect();
    let runs: Vec<ComparedRun> = measured.iter().map(Measured::describe).collect();
    Ok(RunComparison {
        summary: summary(&runs, &contests),
        rows: rows(&measured),
        differences: differences::between(&measured),
        method: method(&measured),
        contests,
        runs,
    })
}

fn comparable(first: &Measured, other: &Measured) -> Result<(), CompareError> {
    let (a, b) = (first.table(), other.table());
    if a.collective != b.collective {
        let test = |table: &BenchTable| table.collective.map_or("an unknown collective", Collective::name).to_string();
        return Err(CompareError::Collectives {
            first: first.name().into(),
            first_test: test(a),
            other: other.name().into(),
            other_test: test(b),
        });
    }
    match (a.nranks, b.nranks) {
        (Some(first_ranks), Some(other_ranks)) if first_ranks != other_ranks => Err(CompareError::Ranks {
            first: first.name().into(),
            first_ranks,
            other: other.name().into(),
            other_ranks,
        }),
        _ => Ok(()),
    }
}

fn rows(measured: &[Measured]) -> Vec<ComparedRow> {
    let sizes: BTreeSet<_> = measured.iter().flat_map(Measured::sizes).collect();
    let row = |size| {
        let cells: Vec<Option<ComparedCell>> = measured.iter().map(|run| run.cell(size)).collect();
        let ratios = measured[1..].iter().map(|other| contest::ratio(&measured[0], other, size)).collect();
        ComparedRow { size, cells, ratios }
    };
    sizes.into_iter().map(row).collect()
}

fn method(measured: &[Measured]) -> String {
    let even = contest::EVEN_PCT;
    if measured.iter().all(|run| run.repetitions() > 1) {
        format!(
            "{TEST} at {:.0}% confidence; differences under {even:.0}% are ignored; intervals: {INTERVAL}, 95%",
            CONFIDENCE * 100.0
        )
    } else {
        format!(
            "Differences under {even:.0}% are ignored: not every run was repeated, so there is no significance test."
        )
    }
}

/// `A used RDMA and B sockets: A is 53× faster at 8 GiB; up to 64 KiB B takes 2.1× to 5.4× the time`.
fn summary(runs: &[ComparedRun], contests: &[Contest]) -> String {
    let names = short_names(runs);
    let run = |index: usize| Named { name: &names[index], network: runs[index].network };
    contests.iter().map(|contest| verdict(run(0), run(contest.other), contest)).collect::<Vec<_>>().join(". ")
}

/// A run as a sentence speaks of it.
#[derive(Clone, Copy)]
struct Named<'a> {
    name: &'a str,
    network: Option<Carrier>,
}

fn verdict(first: Named, other: Named, contest: &Contest) -> String {
    let mut parts = Vec::new();
    if let Some(LargestCompared { size_bytes: size, ratio }) = contest.largest {
        let (faster, times) = if ratio < 1.0 { (other, 1.0 / ratio) } else { (first, ratio) };
        parts.push(match contest.ranges.last().map(|range| range.faster) {
            Some(Faster::Neither) => format!("neither is faster at {size}"),
            _ => format!("{} is {} faster at {size}", faster.name, factor(times)),
        });
    }
    if let Some(small) = contest.small {
        let (least, most) = small.time_ratio;
        let takes = match (factor(least), factor(most)) {
            (one, most) if one != most => format!("{} takes {one} to {most} the time", other.name),
            (one, _) if one == factor(1.0) => format!("{} takes as long", other.name),
            (one, _) => format!("{} takes {one} the time", other.name),
        };
        parts.push(format!("up to {} {takes}", small.up_to));
    }
    let networks = match (first.network, other.network) {
        (Some(a), Some(b)) if a != b => format!("{} used {} and {} {}: ", first.name, a.name(), other.name, b.name()),
        (Some(Carrier::Rdma), None) => format!("{} used RDMA: ", first.name),
        (None, Some(Carrier::Sockets)) => format!("{} used sockets: ", other.name),
        _ => String::new(),
    };
    networks + &parts.join("; ")
}

/// `53×`, `1.5×`, `1.04×`: two digits, or three where it is close to one.
fn factor(ratio: f64) -> String {
    match ratio {
        r if r >= 10.0 => format!("{r:.0}×"),
        r if r >= 1.2 => format!("{r:.1}×"),
        r => format!("{r:.2}×"),
    }
}
