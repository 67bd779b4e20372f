use super::*;
use busbw_model::{Finding, Link, LinkEnd, LinkFigures, LinkTransport};
use proptest::prelude::*;

/// Hosts h0, h1 … and what each sends to each, in Gbit/s.
fn run(ends: usize, gbit_s: impl Fn(usize, usize) -> f64) -> LinkRun {
    let end = |number: usize| LinkEnd {
        host: format!("h{number}"),
        nic: "eth0".into(),
        address: format!("10.0.0.{number}"),
        rate_gbit_s: None,
        quality_of_service: None,
        trouble: None,
    };
    let pairs = (0..ends).flat_map(|from| (0..ends).filter(move |to| *to != from).map(move |to| (from, to)));
    let link = |(from, to)| {
        let outcome = Ok(LinkFigures { gbit_s: gbit_s(from, to), ..LinkFigures::default() });
        Link { from, to, outcome }
    };
    LinkRun {
        transport: LinkTransport::Tcp,
        ends: (0..ends).map(end).collect(),
        links: pairs.map(link).collect(),
        expected_gbit_s: None,
        interrupted: None,
    }
}

fn problems(run: &LinkRun) -> Vec<Finding> {
    judge(run).findings.into_iter().filter(|finding| finding.severity > Severity::Info).collect()
}

/// What the user expects is what is judged, whatever the NICs say of themselves.
#[test]
fn links_are_held_against_what_the_user_expects() {
    let with = |gbit_s: [f64; 2], expected| LinkRun { expected_gbit_s: expected, ..run(2, |from, _| gbit_s[from]) };
    for (gbit_s, expected, verdict, summary) in [
        ([165.6, 191.0], None, Verdict::NoErrors, "the NICs' rate is not known"),
        ([165.6, 191.0], Some(200.0), Verdict::Degraded, "166 of 200 Gbit/s expected (83%) from h0 to h1"),
        ([185.0, 191.0], Some(200.0), Verdict::Healthy, "at least 92% of the 200 expected"),
        ([0.3, 0.3], Some(0.4), Verdict::Degraded, "0.30 of 0.4 Gbit/s expected (75%)"),
    ] {
        let answer = judge(&with(gbit_s, expected));
        assert!(answer.verdict == verdict && answer.summary.contains(summary), "{answer:?}");
    }
    let mut slow_for_its_nic = with([9.0, 9.0], Some(10.0));
    slow_for_its_nic.ends.iter_mut().for_each(|end| end.rate_gbit_s = Some(100.0));
    assert_eq!(judge(&slow_for_its_nic).verdict, Verdict::Healthy);
}

#[test]
fn a_host_that_sends_slowly_is_named() {
    let run = run(3, |from, _| if from == 1 { 0.94 } else { 9.4 });
    let found = problems(&run);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].title, "h1 is slow: it sends 0.94 Gbit/s, where links of the others carry 9.40");
    assert_eq!((found[0].code, judge(&run).verdict), (Code::StragglerNode, Verdict::Degraded));
}

#[test]
fn two_slow_hosts_of_four_are_both_named() {
    let run = run(4, |from, to| if from.min(to) < 2 { 0.9 } else { 9.4 });
    let titles: Vec<String> = problems(&run).into_iter().map(|finding| finding.title).collect();
    let says = "is slow: it sends and receives 0.90 Gbit/s, where links of the others carry 9.40";
    assert_eq!(titles, [format!("h0 {says}"), format!("h1 {says}")]);
}

#[test]
fn a_nic_at_a_lower_rate_is_the_reason() {
    let mut run = run(4, |from, to| if from == 2 || to == 2 { 9.4 } else { 94.0 });
    for (number, end) in run.ends.iter_mut().enumerate() {
        end.rate_gbit_s = Some(if number == 2 { 10.0 } else { 100.0 });
    }
    let found = problems(&run);
    assert_eq!((found.len(), found[0].code), (1, Code::NicRate), "{found:?}");
    assert!(found[0].title.starts_with("h2 is slow: it sends and receives 9.40"), "{}", found[0].title);
}

#[test]
fn all_below_the_rate_of_their_nics() {
    for (transport, gbit_s, found) in [
        (LinkTransport::Rdma, 60.0, 1),
        (LinkTransport::Rdma, 92.0, 0),
        (LinkTransport::Tcp, 60.0, 0),
        (LinkTransport::Tcp, 40.0, 1),
    ] {
        let mut run = run(2, |_, _| gbit_s);
        run.transport = transport;
        run.ends.iter_mut().for_each(|end| end.rate_gbit_s = Some(100.0));
        assert_eq!(problems(&run).len(), found, "{transport:?} {gbit_s}");
    }
}

#[test]
fn a_limit_per_flow_is_told_with_the_remedy() {
    let flows = |flows: &[(u32, f64)]| {
        let mut run = run(2, |_, _| 10.0);
        for link in &mut run.links {
            link.outcome = Ok(LinkFigures { gbit_s: 10.0, flows: flows.to_vec(), ..LinkFigures::default() });
        }
        judge(&run).findings
    };
    let limited = flows(&[(1, 3.0), (2, 5.9), (4, 10.7), (8, 10.9)]).remove(1);
    assert_eq!(limited.code, Code::SocketTuning);
    let title = "a limit per flow of about 3.00 Gbit/s: one flow carries 3.00, 8 carry 10.9 (h0 → h1)";
    assert_eq!(limited.title, title);
    assert!(limited.remedy[0].contains("NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=2"), "{:?}", limited.remedy);
    for unlimited in [&[(1, 9.0), (2, 9.4), (4, 9.5)][..], &[(1, 9.0)], &[(1, 6.0), (4, 11.0)]] {
        let codes: Vec<Code> = flows(unlimited).iter().map(|finding| finding.code).collect();
        assert_eq!(codes, [Code::OkAsExpected], "{unlimited:?}");
    }
}

#[test]
fn losses_and_hosts_that_went_away_are_told() {
    let mut run = run(3, |_, _| 9.0);
    run.transport = LinkTransport::Rdma;
    if let Ok(figures) = &mut run.links[0].outcome {
        figures.losses = vec![("out_of_seq_request".into(), 33)];
    }
    let lossy = problems(&run);
    assert_eq!((lossy.len(), lossy[0].code), (1, Code::RoceConfig));
    assert_eq!(lossy[0].title, "packets were lost between h0 and h1: out_of_seq_request +33");

    let mut late = run.clone();
    if let Ok(figures) = &mut late.links[0].outcome {
        figures.losses = vec![("duplicate_request".into(), 33)];
    }
    assert_eq!(problems(&late), vec![], "{late:?}");

    run.ends[2].trouble = Some("h2: its process has ended; look at its output".into());
    for link in run.links.iter_mut().filter(|link| link.from == 2 || link.to == 2) {
        link.outcome = Err("h2: its process has ended; look at its output".into());
    }
    let diagnosis = judge(&run);
    assert_eq!(diagnosis.verdict, Verdict::Failed);
    let unreachable = diagnosis.findings.iter().filter(|finding| finding.code == Code::NetUnreachable);
    assert_eq!(
        unreachable.map(|finding| finding.title.as_str()).collect::<Vec<_>>(),
        ["h2: its process has ended; look at its output"]
    );
}

proptest! {
    /// Whatever the noise, the host whose links are slow is named, and nobody else.
    #[test]
    fn the_slow_host_and_no_other(
        (ends, slow) in (3usize..12).prop_flat_map(|ends| (Just(ends), 0..ends)),
        side in 0usize..3,
        share in 0.05f64..0.55,
        noise in prop::collection::vec(0.92f64..1.08, 144),
    ) {
        let is_slow = |from: usize, to: usize| (from == slow && side != 1) || (to == slow && side != 0);
        let run = run(ends, |from, to| {
            10.0 * noise[from * 12 + to] * if is_slow(from, to) { share } else { 1.0 }
        });
        let found = problems(&run);
        prop_assert_eq!(found.len(), 1, "{:?}", found);
        let does = ["it sends ", "it receives ", "it sends and receives "][side];
        let named = format!("h{slow} is slow: {does}");
        prop_assert!(found[0].title.starts_with(&named), "{}", found[0].title);
    }

    /// The same for a single pair; a host needs three others to be cleared.
    #[test]
    fn the_slow_link_and_no_other(
        (ends, from, step) in (5usize..12).prop_flat_map(|ends| (Just(ends), 0..ends, 1..ends)),
        both in any::<bool>(),
        share in 0.05f64..0.55,
        noise in prop::collection::vec(0.92f64..1.08, 144),
    ) {
        let to = (from + step) % ends;
        let is_slow = |a: usize, b: usize| (a, b) == (from, to) || (both && (a, b) == (to, from));
        let run = run(ends, |a, b| 10.0 * noise[a * 12 + b] * if is_slow(a, b) { share } else { 1.0 });
        let found = problems(&run);
        prop_assert_eq!(found.len(), 1, "{:?}", found);
        let named = if both {
            format!("the link h{} ↔ h{} is slow", from.min(to), from.max(to))
        } else {
            format!("the link h{from} → h{to} is slow")
        };
        prop_assert!(found[0].title.starts_with(&named), "{}", found[0].title);
    }

    #[test]
    fn nobody_is_named_for_noise(ends in 2usize..12, noise in prop::collection::vec(0.9f64..1.1, 144)) {
        let run = run(ends, |from, to| 10.0 * noise[from * 12 + to]);
        prop_assert_eq!(problems(&run), vec![]);
        let expected = if ends > 2 { Verdict::Healthy } else { Verdict::NoErrors };
        prop_assert_eq!(judge(&run).verdict, expected);
    }
}
