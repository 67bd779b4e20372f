//! What to run next when the input cannot decide: exact command lines, with the subsystems of NCCL's log that answer the
//! question at hand.

use crate::case::{Case, Test};
use crate::data::{self, Question, Questions};
use busbw_model::{Advice, Code, EnvOrigin, Finding, Verdict};
use std::sync::LazyLock;

static BOOK: LazyLock<Vec<Question>> =
    LazyLock::new(|| data::built_in::<Questions>("advice.toml", include_str!("../../../../rules/advice.toml")).advice);

fn advice(question: &str, command: &str, then: &str) -> Advice {
    Advice { question: question.into(), command: command.into(), then: then.into() }
}

/// What to run next, the most telling first; empty when the input shows everything that busbw would ask.
pub(crate) fn advise(case: &Case, verdict: Verdict, findings: &[Finding]) -> Vec<Advice> {
    let first = findings.first().filter(|f| f.code != Code::OkAsExpected).map(|f| f.code);
    let mut found: Vec<Advice> = first.map(for_code).unwrap_or_default();
    let unsure = verdict == Verdict::Inconclusive || findings.first().is_none_or(|f| f.confidence < 0.7);
    if unsure {
        found.extend(missing_evidence(case));
    }
    found.retain(|advice| !known(case, advice));
    found.dedup_by(|later, earlier| later.command == earlier.command);
    found
}

/// What a log, a table, a topology and a RAS report would add.
fn missing_evidence(case: &Case) -> Vec<Advice> {
    let run = case.run;
    let mut found = Vec::new();
    let level = |name: &str| run.nccl.env_value(name).map(|e| e.value.to_ascii_uppercase()).unwrap_or_default();
    let on_cores = !case.tests.is_empty() && case.tests.iter().all(Test::on_cores);
    if on_cores {
        return found;
    }
    if run.nccl.lines == 0 {
        found.push(advice(
            "What does NCCL itself say?",
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH NCCL_DEBUG_FILE=nccl.%h.%p.log <your command>",
            "Give busbw the files of all ranks: `busbw explain nccl.*.log`",
        ));
    } else if level("NCCL_DEBUG_SUBSYS").is_empty() && run.communicators.is_empty() {
        found.push(advice(
            "Which ranks, rings and transports were there?",
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH,P2P,SHM <your command>",
            "Give busbw the output of all ranks from its first line on",
        ));
    }
    if run.tables.iter().all(|table| table.rows.is_empty()) {
        found.push(advice(
            "How fast is it, by size?",
            "mpirun -np <ranks> -H <nodes> all_reduce_perf -b 8 -e 8G -f 2 -g 1",
            "Give busbw the table; judge it on the largest sizes",
        ));
    }
    if run.topo_matrices.is_empty() && run.topo_xmls.is_empty() {
        found.push(advice(
            "How are GPUs and NICs connected?",
            "nvidia-smi topo -m; NCCL_TOPO_DUMP_FILE=system.xml <your command>",
            "Give busbw both, from a good and a bad node",
        ));
    }
    found
}

/// What answers the open questions about a finding.
fn for_code(code: Code) -> Vec<Advice> {
    let of_code = |entry: &&Question| entry.codes.contains(&code);
    BOOK.iter().filter(of_code).map(|entry| advice(&entry.question, &entry.command, &entry.then)).collect()
}

/// Whether the input shows that this was run already.
fn known(case: &Case, advice: &Advice) -> bool {
    let asked =
        advice.command.strip_prefix("NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=").and_then(|rest| rest.split(' ').next());
    let logged = case.run.nccl.env.iter().find(|e| e.name == "NCCL_DEBUG_SUBSYS" && e.origin == EnvOrigin::NcclLog);
    match (asked, logged) {
        (Some(asked), Some(logged)) => {
            let has: Vec<String> = logged.value.split(',').map(str::to_ascii_uppercase).collect();
            has.iter().any(|s| s == "ALL") || asked.split(',').all(|subsystem| has.iter().any(|s| s == subsystem))
        }
        _ => {
            advice.command.contains("TORCH_NCCL_DUMP_ON_TIMEOUT") && case.run.flight_dumps.iter().any(|dump| !dump.cut)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_asks_for_what_is_missing() {
        let cases = [
            ("GPU 0: broken dreams of 8 x H100", "NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH"),
            (
                "hostA:1:2 [0] transport/net_ib.cc:839 NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129",
                "ib_write_bw",
            ),
            ("[rank3]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12)", "ncclras -v"),
        ];
        for (text, command) in cases {
            let run = busbw_ingest::read_bytes(&[("log", text.as_bytes())]).expect("text");
            let found = crate::diagnose(&run).advice;
            assert!(found.iter().any(|a| a.command.contains(command)), "{text}: {found:?}");
        }
    }

    #[test]
    fn every_code_but_ok_has_advice() {
        for (code, text, _) in Code::ALL {
            assert_eq!(for_code(code).is_empty(), code == Code::OkAsExpected, "{text}");
        }
    }
}
