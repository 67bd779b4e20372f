//! JUnit XML, as Jenkins and GitLab read it: a test case for each thing that was checked, judged or found. What fails there is
//! what makes the exit status 1; what could not be checked is skipped.

use busbw_model::{CheckItem, Checked, Diagnosis, Finding, Judged, Judgement, OddOne, Outcome, Severity, Verdict};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use std::io;

/// Writes the JUnit XML of a check: a suite for each host, and one for what differs between hosts.
pub fn write_check(checked: &Checked, out: &mut dyn io::Write) -> io::Result<()> {
    let of_host = |host: &String| {
        let items = checked.items.iter().filter(|item| item.host == *host);
        suite(host, items.map(of_item).collect())
    };
    let mut suites: Vec<TestSuite> = checked.hosts.iter().map(of_host).collect();
    suites.push(suite("differences between hosts", checked.odd_ones.iter().map(of_difference).collect()));
    write("busbw check", suites, out)
}

/// Writes the JUnit XML of a diagnosis: the verdict, what was judged, and the findings.
pub fn write_explain(diagnosis: &Diagnosis, out: &mut dyn io::Write) -> io::Result<()> {
    let verdict = case("verdict", "verdict", of_verdict(diagnosis), "");
    let judged = diagnosis.judged.iter().map(of_judged).collect();
    let findings = diagnosis.findings.iter().map(of_finding).collect();
    let suites = vec![suite("verdict", vec![verdict]), suite("what was judged", judged), suite("findings", findings)];
    write("busbw explain", suites, out)
}

fn write(name: &str, mut suites: Vec<TestSuite>, out: &mut dyn io::Write) -> io::Result<()> {
    suites.retain(|suite| !suite.test_cases.is_empty());
    let mut report = Report::new(name);
    report.add_test_suites(suites);
    report.serialize(out).map_err(io::Error::other)
}

fn suite(name: &str, cases: Vec<TestCase>) -> TestSuite {
    let mut suite = TestSuite::new(name);
    suite.add_test_cases(cases);
    suite
}

/// A case of a class; Jenkins takes what is before a class's last dot for its package. GitLab and Jenkins follow a case from one
/// run to the next by class and name, so that neither has a measured value in it.
fn case(class: &str, name: &str, status: TestCaseStatus, output: &str) -> TestCase {
    let mut case = TestCase::new(name, status);
    case.set_classname(format!("busbw.{class}"));
    if !output.is_empty() {
        case.set_system_out(output);
    }
    case
}

fn failure(message: &str, kind: &str, text: String) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
    status.set_message(message).set_type(kind).set_description(text);
    status
}

fn skipped(why: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::skipped();
    status.set_message(why);
    status
}

fn of_item(item: &CheckItem) -> TestCase {
    let class = format!("{}.{}", item.host.replace('.', "_"), item.area.title());
    let name = [&item.item, item.device.as_deref().unwrap_or_default()].join(" ");
    let remedy = item.remedy.clone().unwrap_or_default();
    match item.outcome {
        Outcome::Ok => case(&class, name.trim(), TestCaseStatus::success(), &item.detail),
        Outcome::Warn => {
            let told = format!("warning: {}\n{remedy}", item.detail);
            case(&class, name.trim(), TestCaseStatus::success(), told.trim())
        }
        Outcome::Fail => {
            let kind = item.code.map_or("check", |code| code.as_str());
            case(&class, name.trim(), failure(&item.detail, kind, remedy), "")
        }
        Outcome::Skip => case(&class, name.trim(), skipped(item.why.as_deref().unwrap_or(&item.detail)), ""),
    }
}

fn of_difference(odd: &OddOne) -> TestCase {
    let differ: Vec<String> = odd.differ.iter().map(|(host, value)| format!("{host}: {value}")).collect();
    let most = odd.majority.as_ref().map(|value| format!("most hosts: {value}; ")).unwrap_or_default();
    let told = format!("{most}{}", differ.join(", "));
    let class = format!("differences.{}", odd.area.title());
    if odd.fails {
        let kind = odd.code.map_or("check", |code| code.as_str());
        return case(&class, &odd.item, failure(&told, kind, odd.remedy.clone()), "");
    }
    case(&class, &odd.item, TestCaseStatus::success(), &format!("warning: {told}\n{}", odd.remedy))
}

fn of_verdict(diagnosis: &Diagnosis) -> TestCaseStatus {
    match diagnosis.verdict {
        Verdict::Healthy | Verdict::NoErrors => TestCaseStatus::success(),
        Verdict::Degraded | Verdict::Failed => {
            failure(&diagnosis.summary, diagnosis.verdict.as_str(), diagnosis.summary.clone())
        }
        Verdict::Inconclusive => skipped(&diagnosis.summary),
    }
}

fn of_judged(judged: &Judged) -> TestCase {
    let status = match judged.outcome {
        Judgement::Passed => TestCaseStatus::success(),
        Judgement::Failed => failure(&judged.how, "judged", judged.how.clone()),
        Judgement::Undecided => skipped(judged.question.as_deref().unwrap_or(&judged.how)),
    };
    case("judged", &judged.what, status, &judged.how)
}

fn of_finding(finding: &Finding) -> TestCase {
    let shown = finding.evidence.iter().map(|line| line.source.text.trim()).collect::<Vec<_>>().join("\n");
    let told = [finding.explanation.as_str(), &shown, &finding.remedy.join("\n")].join("\n\n");
    let name = finding.code.as_str();
    match finding.severity {
        Severity::Info => case("findings", name, TestCaseStatus::success(), &format!("{}\n\n{told}", finding.title)),
        Severity::Warning | Severity::Error => {
            case("findings", name, failure(&finding.title, finding.severity.as_str(), told), "")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use busbw_model::{Area, Code};

    /// The class and name of each case, and what it came out as: an element of JUnit's, or none, with its message.
    fn cases(xml: &[u8]) -> Vec<String> {
        let text = std::str::from_utf8(xml).expect("UTF-8");
        let document = roxmltree::Document::parse(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let cases = document.descendants().filter(|node| node.has_tag_name("testcase"));
        cases
            .map(|case| {
                let result = case.children().find(|child| ["failure", "skipped"].contains(&child.tag_name().name()));
                let result = result
                    .map(|child| format!(" {}: {}", child.tag_name().name(), child.attribute("message").unwrap_or("")));
                let of = |name| case.attribute(name).unwrap_or_default();
                format!("{} / {}{}", of("classname"), of("name"), result.unwrap_or_default())
            })
            .collect()
    }

    fn item(item: &'static str, device: Option<&str>, outcome: Outcome) -> CheckItem {
        let ok = CheckItem::ok(
            Area::Rdma,
            item,
            "gpu1.example.com",
            device.map(str::to_owned),
            "1: DOWN <\u{1b}[31m&>".into(),
        );
        let why = (outcome == Outcome::Skip).then(|| "needs root".to_owned());
        CheckItem { outcome, why, remedy: Some("run `ibstat`".into()), code: Some(Code::NicRate), ..ok }
    }

    #[test]
    fn an_item_of_a_check_is_a_case() {
        let checked = Checked {
            hosts: vec!["gpu1.example.com".into()],
            items: vec![
                item("port state", Some("mlx5_0/1"), Outcome::Fail),
                item("port rate", None, Outcome::Ok),
                item("errors", None, Outcome::Warn),
                item("ACS", None, Outcome::Skip),
            ],
            odd_ones: vec![OddOne {
                area: Area::Net,
                item: "MTU of eth0".into(),
                majority: Some("9000".into()),
                differ: vec![("b".into(), "1500".into())],
                fails: true,
                remedy: "set it".into(),
                code: None,
            }],
        };
        let mut xml = Vec::new();
        write_check(&checked, &mut xml).expect("memory");
        // Control characters are no XML, not even escaped.
        assert_eq!(
            cases(&xml),
            [
                "busbw.gpu1_example_com.RDMA / port state mlx5_0/1 failure: 1: DOWN <&>",
                "busbw.gpu1_example_com.RDMA / port rate",
                "busbw.gpu1_example_com.RDMA / errors",
                "busbw.gpu1_example_com.RDMA / ACS skipped: needs root",
                "busbw.differences.Network interfaces / MTU of eth0 failure: most hosts: 9000; b: 1500",
            ]
        );
    }

    #[test]
    fn the_case_of_the_verdict_is_as_the_exit_status() {
        for (verdict, ends) in [
            (Verdict::Healthy, "verdict"),
            (Verdict::NoErrors, "verdict"),
            (Verdict::Degraded, "verdict failure: so it is"),
            (Verdict::Failed, "verdict failure: so it is"),
            (Verdict::Inconclusive, "verdict skipped: so it is"),
        ] {
            let mut xml = Vec::new();
            let diagnosis = Diagnosis { verdict, summary: "so it is".into(), ..Diagnosis::default() };
            write_explain(&diagnosis, &mut xml).expect("memory");
            assert_eq!(cases(&xml), [format!("busbw.verdict / {ends}")]);
            assert_eq!(verdict.exit_status() == 1, ends.contains("failure"));
        }
    }
}
