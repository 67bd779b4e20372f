//! How the run stands, in a word and in a sentence.

use crate::case::{Case, Network};
use crate::rules::wire_test::{LARGE, port_rate};
use busbw_model::{Code, Communicator, Finding, PerfRow, Severity, Verdict};

/// The verdict that findings and tables give.
pub(crate) fn verdict(case: &Case, findings: &[Finding]) -> Verdict {
    match findings.iter().map(|f| f.severity).max() {
        Some(Severity::Error) => Verdict::Failed,
        Some(Severity::Warning) => Verdict::Degraded,
        _ if tells_of_health(case) || is_answered(findings) => Verdict::Healthy,
        _ => Verdict::Inconclusive,
    }
}

/// Whether the first finding says that the speed is right.
fn is_answered(findings: &[Finding]) -> bool {
    findings.first().is_some_and(|f| f.code == Code::OkAsExpected && f.confidence >= 0.7)
}

/// Whether the inputs show a run that works: a table that reaches bandwidth, a communicator that stands, a program that
/// finished.
fn tells_of_health(case: &Case) -> bool {
    case.tests.iter().any(|t| t.curve.shows_bandwidth())
        || case.run.communicators.iter().any(Communicator::came_up)
        || case.run.remarks.iter().any(|r| r.kind == busbw_model::RemarkKind::Finished)
}

/// One sentence.
pub(crate) fn summary(case: &Case, verdict: Verdict, findings: &[Finding]) -> String {
    if matches!(verdict, Verdict::Failed | Verdict::Degraded)
        && let Some(first) = findings.first()
    {
        return first.title.clone();
    }
    if let Some(test) = case.tests.iter().max_by(|a, b| a.curve.peak.0.total_cmp(&b.curve.peak.0)) {
        let over = match test.network() {
            Some(Network::Rdma) => " over RDMA",
            Some(Network::Socket) => " over sockets",
            _ => "",
        };
        let collective = test.table.collective.map_or("the collective", |c| c.name());
        let at = test.curve.peak_row.size;
        return format!("{collective} peaks at {} ({at}){over}; nothing looks wrong", test.curve.peak);
    }
    if let Some(first) = findings.first().filter(|_| is_answered(findings)) {
        return first.title.clone();
    }
    if let Some(fastest) = fastest_perftest(case) {
        return fastest;
    }
    match verdict {
        Verdict::Healthy => {
            "the communicators stand and nothing looks wrong; there is no table to judge speed by".to_string()
        }
        _ => {
            "the input holds neither a table nor a complete NCCL log; give the output of all ranks with NCCL_DEBUG=INFO"
                .to_string()
        }
    }
}

/// What RDMA tools measured, when nothing else did.
fn fastest_perftest(case: &Case) -> Option<String> {
    let bandwidth = |row: &PerfRow| match row {
        PerfRow::Bandwidth { average_gbit_s, size, .. } => Some((*average_gbit_s, *size)),
        PerfRow::Latency { .. } => None,
    };
    let rows =
        case.run.perftests.iter().flat_map(|test| test.rows.iter().filter_map(bandwidth).map(move |row| (test, row)));
    let (test, (gbit_s, size)) = rows.max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
    let name = test.test.as_deref().unwrap_or("perftest");
    let device = test.device.as_deref().map_or(String::new(), |device| format!(" on {device}"));
    let missing = match test.device.as_deref().and_then(|device| port_rate(case, device)) {
        Some((_, rate)) => format!(
            "messages below {LARGE} do not fill the port's {rate} Gbit/s: measure larger ones, for example with `-s 1048576`"
        ),
        None => {
            "the port's rate is not in the input: add `ibstat`, or what `busbw check --save` writes there".to_string()
        }
    };
    Some(format!("{name} reaches {gbit_s:.2} Gbit/s at {size}{device}; {missing}"))
}
