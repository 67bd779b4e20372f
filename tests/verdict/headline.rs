//! The first line agrees with the findings, with the tables and with what the log says of its end.

use super::answer::Answer;
use super::held::Held;
use super::inputs::{self, Input};
use busbw_diagnose::BANDWIDTH_FROM;
use busbw_model::{Severity, Verdict};
use regex::Regex;
use std::sync::LazyLock;

/// Exit statuses as torchrun, mpirun and srun print them.
static EXIT_STATUS: LazyLock<Regex> = LazyLock::new(|| {
    let forms = [
        r"exitcode\s*: (-?\d+) \(pid",                  // torchrun's table of failures
        r"^\s*Exit code:\s+(\d+)\s*$",                  // Open MPI's box
        r"\bexited with exit code (\d+)",               // Open MPI
        r"^srun: error: .*Exited with exit code (\d+)", // Slurm
    ];
    Regex::new(&format!("(?m){}", forms.map(|form| format!("(?:{form})")).join("|"))).unwrap()
});

/// What contradicts praise in an input itself.
fn refutes_praise(input: &Input) -> Option<String> {
    let text = input.text();
    let footer = text.lines().find(|line| {
        line.contains("FAILED")
            && ["Out of bounds values", "Avg bus bandwidth"].iter().any(|footer| line.contains(footer))
    });
    let statuses = EXIT_STATUS.captures_iter(&text);
    let bad = |status: &regex::Captures| {
        let number = status.iter().skip(1).flatten().next().map(|number| number.as_str());
        number.is_some_and(|number| number != "0")
    };
    let status = statuses.into_iter().find(bad).map(|status| status[0].to_string());
    footer.map(str::to_string).or(status)
}

/// The best share of what is expected of a table, over the sizes that show bandwidth.
fn best_share(answer: &Answer, table: usize) -> Option<f64> {
    let expected = answer.diagnosis.expected_table(table)?;
    let rows = answer.run.tables[table].rows.iter().filter(|row| row.size >= BANDWIDTH_FROM);
    let shares = rows.filter_map(|row| Some(row.best_busbw()?.0 / expected.at(row.size)?.busbw.0));
    shares.fold(None, |best: Option<f64>, share| Some(best.map_or(share, |best| best.max(share))))
}

/// What is wrong with the first line of an answer.
fn contradiction(input: &Input, answer: &Answer) -> Option<String> {
    let verdict = answer.verdict();
    let worst = answer.diagnosis.findings.iter().map(|finding| finding.severity).max();
    let text = answer.text();
    let exit = match verdict {
        Verdict::Healthy | Verdict::NoErrors => 0,
        Verdict::Degraded | Verdict::Failed => 1,
        Verdict::Inconclusive => 3,
    };
    let asked = match worst {
        Some(Severity::Error) => verdict == Verdict::Failed,
        Some(Severity::Warning) => verdict == Verdict::Degraded,
        _ => !matches!(verdict, Verdict::Failed | Verdict::Degraded),
    };
    if !asked {
        Some(format!("the worst finding is {worst:?}"))
    } else if !text.starts_with(verdict.title()) {
        Some(format!("the text begins with `{}`", text.lines().next().unwrap_or_default()))
    } else if text.contains("nothing looks wrong") {
        Some("the text says that nothing looks wrong".into())
    } else if answer.json()["verdict"].as_str() != Some(verdict.as_str()) || verdict.exit_status() != exit {
        Some(format!("exit status {} and JSON's verdict {}", verdict.exit_status(), answer.json()["verdict"]))
    } else if answer.diagnosis.summary.is_empty() {
        Some("the first line says nothing".into())
    } else if answer.is_praise() && answer.is_slow() {
        Some("a speed was judged and is too low".into())
    } else if answer.is_praise() {
        refutes_praise(input)
    } else {
        None
    }
}

#[test]
fn the_first_line_contradicts_nothing() {
    let mut held = Held::new("the first line contradicts nothing");
    for input in inputs::all().into_iter().chain(inputs::ordinary()) {
        let answer = Answer::to(&input);
        if answer.is_readable() {
            let wrong = contradiction(&input, &answer);
            held.check(wrong.is_none(), || format!("{}: {answer}: {}", input.name, wrong.unwrap_or_default()));
        }
    }
    held.end();
}

#[test]
fn what_is_healthy_reaches_what_is_predicted() {
    let mut held = Held::new("what is healthy reaches what is predicted");
    for input in inputs::all() {
        let answer = Answer::to(&input);
        for table in 0..answer.run.tables.len() {
            let share = best_share(&answer, table);
            let holds = answer.verdict() != Verdict::Healthy || share.is_none_or(|share| share > 0.5);
            held.check(holds, || {
                format!("{}: {answer}: table {table} reaches {share:?} of its prediction", input.name)
            });
        }
    }
    held.end();
}
