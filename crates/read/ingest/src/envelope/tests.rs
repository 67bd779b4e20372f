use super::laid_out::laid_out;
use super::*;
use busbw_model::{Ended, Run};
use serde_json::json;

/// Two ranks start, and one fails.
const OUTPUT: [&str; 11] = [
    "n1:41:41 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>",
    "n1:41:77 [0] NCCL INFO ncclCommInitRank comm 0x5a10 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0xabc1 - Init START",
    "n1:42:78 [1] NCCL INFO ncclCommInitRank comm 0x5a20 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 2000 commId 0xabc1 - Init START",
    "n1:41:77 [0] NCCL INFO ncclCommInitRank comm 0x5a10 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0xabc1 - Init COMPLETE",
    "n1:42:78 [1] NCCL INFO ncclCommInitRank comm 0x5a20 rank 1 nranks 2 cudaDev 1 nvmlDev 1 busId 2000 commId 0xabc1 - Init COMPLETE",
    "epoch 1, loss 2.71, \"warm\", 118 ms",
    "Traceback (most recent call last):",
    "  File \"/srv/fit.py\", line 31, in <module>",
    "    fit(next(batches))",
    "ValueError: shape, (7, 3) is \"odd\"",
    "",
];

fn read(text: &str) -> Run {
    crate::read_bytes(&[("log", text.as_bytes())]).expect("a log")
}

/// How many ranks came up, and what failed where.
fn facts(text: &str) -> (usize, Vec<String>) {
    let run = read(text);
    let ranks = run.communicators.iter().flat_map(|comm| comm.ranks.values()).filter(|rank| rank.up.is_some()).count();
    let ends = run.ends.iter().map(|end| match &end.how {
        Ended::Exception { kind, message, at, .. } => format!("{kind}: {message} {}", at.as_deref().unwrap_or("?")),
        other => format!("{other:?}"),
    });
    (ranks, ends.collect())
}

fn failed() -> (usize, Vec<String>) {
    (2, vec!["ValueError: shape, (7, 3) is \"odd\" fit.py:31".to_string()])
}

fn time(number: usize) -> String {
    format!("2027-02-03T04:05:{number:02}.250Z")
}

/// What a collector writes of a line with a number.
type Wrapper = fn(&str, usize) -> String;

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// Loki's answer to a query, with the newest line first, as it gives them.
#[test]
fn lines_of_streams_are_read_in_the_order_of_time() {
    let lines: Vec<_> =
        OUTPUT.iter().enumerate().rev().map(|(n, line)| json!([format!("{}", 100 + n), line])).collect();
    let answer = json!({"status": "success", "data": {"result": [{"stream": {"pod": "fit-0"}, "values": lines}]}});
    assert_eq!(facts(&answer.to_string()), failed());
    assert_eq!(facts(&serde_json::to_string_pretty(&answer).expect("JSON")), failed());
}

#[test]
fn lines_are_read_in_every_wrapper() {
    let wrappers: &[(&str, Wrapper)] = &[
        ("docker", |l, n| json!({"log": format!("{l}\n"), "stream": "stderr", "time": time(n)}).to_string()),
        ("journald", |l, n| {
            json!({"MESSAGE": l, "_HOSTNAME": "n1", "PRIORITY": "6", "__REALTIME_TIMESTAMP": n}).to_string()
        }),
        ("journald, bytes", |l, n| json!({"PRIORITY": "6", "_PID": n, "MESSAGE": l.as_bytes()}).to_string()),
        ("events", |l, n| json!({"timestamp": 1_770_000_000 + n, "message": l, "ingestionTime": 1}).to_string()),
        ("at names", |l, n| json!({"@timestamp": time(n), "@message": l, "@logStream": "algo-1"}).to_string()),
        ("payload", |l, n| json!({"insertId": n, "textPayload": l, "severity": "ERROR"}).to_string()),
        ("payload of JSON", |l, n| {
            json!({"jsonPayload": {"message": l, "levelname": "ERROR"}, "ts": time(n)}).to_string()
        }),
        ("labels", |l, n| json!({"labels": {"pod": "fit-0"}, "line": l, "timestamp": time(n)}).to_string()),
        ("source", |l, n| json!({"_id": n, "_source": {"message": l, "host": {"name": "n1"}}}).to_string()),
        ("content", |l, n| json!({"id": n, "content": {"message": l, "tags": ["a b", "c"]}}).to_string()),
        ("result", |l, n| json!({"preview": false, "result": {"_raw": l, "_time": time(n)}}).to_string()),
        ("entry", |l, n| json!({"TimeGenerated": time(n), "LogEntry": l, "PodName": "fit-0"}).to_string()),
        ("tables of Azure", |l, n| json!({"TimeGenerated [UTC]": time(n), "LogMessage_s": l}).to_string()),
        ("unknown names", |l, n| json!({"wann": time(n), "Zeile": l, "wo": "Rechner 1"}).to_string()),
        ("a logger", |l, n| json!({"ts": n, "level": "info", "logger": "out", "msg": l}).to_string()),
        ("members", |l, n| json!({"date": n, "kubernetes": {"pod_name": "fit-0", "host": "n1"}, "log": l}).to_string()),
        ("behind CRI", |l, n| format!("{} stdout F {}", time(n), json!({"level": "info", "msg": l}))),
        ("behind compose", |l, _| format!("fit-1  | {}", json!({"level": "info", "msg": l}))),
        ("an array", |l, n| format!("{}{},", if n == 0 { "[" } else { "" }, json!({"line": l, "ts": n}))),
        ("logfmt", |l, n| format!("time={} level=info msg={} rank=0", time(n), json!(l))),
        ("logfmt, one quoted", |l, n| format!("ts={n} caller=pump.go:12 line={}", json!(l))),
        ("fields", |l, n| format!("{},{},{}", quoted(&time(n)), quoted("fit-0"), quoted(l))),
        ("numbers and a field", |l, n| format!("{},{}", 1_770_000_000 + n, quoted(l))),
    ];
    for (name, wrapper) in wrappers {
        let text: String = OUTPUT.iter().enumerate().map(|(n, line)| wrapper(line, n) + "\n").collect();
        assert_eq!(facts(&text), failed(), "{name}:\n{text}");
        // Lines keep their numbers.
        assert_eq!(read(&text).ends[0].source.place.line, 10, "{name}");
    }
}

#[test]
fn a_head_names_the_column() {
    let rows = |head: &str, row: Wrapper| -> String {
        let rows = OUTPUT.iter().enumerate().map(|(n, line)| row(line, n) + "\r\n");
        std::iter::once(format!("{head}\r\n")).chain(rows).collect()
    };
    for (head, row) in [
        (
            "timestamp,message",
            (|l, n| format!("{n},{}", if l.contains(['"', ',']) { quoted(l) } else { l.into() })) as Wrapper,
        ),
        ("\"Date\",\"Host\",\"Message\"", |l, n| format!("{},{},{}", quoted(&time(n)), quoted("n1"), quoted(l))),
        ("Time\tpod\tLine", |l, n| format!("{n}\tfit-0\t{l}")),
        ("timestamp,host,message", |l, n| format!("{n},n1,{l}")),
        ("message;level", |l, _| format!("{};info", quoted(l))),
    ] {
        let text = rows(head, row);
        assert_eq!(facts(&text), failed(), "{head}:\n{text}");
    }
}

#[test]
fn documents_are_laid_out() {
    let records: Vec<Value> =
        (0..).zip(OUTPUT).map(|(n, line)| json!({"labels": [{"k": "v"}], "n": n, "textPayload": line})).collect();
    let events = json!({"events": records, "nextToken": "f/1"});
    let pretty = |value: &Value| serde_json::to_string_pretty(value).expect("JSON");
    let several: String = records.iter().map(|record| pretty(record) + "\n").collect();
    let cut = pretty(&json!(records));
    for text in [
        pretty(&json!(records)),
        pretty(&events),
        json!(records).to_string(),
        events.to_string(),
        several,
        cut[..cut.len() - 8].to_string(),
    ] {
        assert_eq!(facts(&text), failed(), "{text}");
    }
    let run = read(&pretty(&events));
    let line = run.ends[0].source.place.line as usize;
    assert!(pretty(&events).lines().nth(line - 1).is_some_and(|line| line.contains("ValueError")), "{line}");
    assert_eq!(laid_out(b"{\"log\":\"a b\"}\n{\"log\":\"c d\"}\n"), None);
    let why = "ORTE was unable to reliably start one or more daemons.";
    let facts = |schema| json!({"schema": schema, "hello": {"absent": [{"host": "h3", "why": why}, {"host": "h4", "why": why}]}});
    assert_eq!(laid_out(pretty(&facts("busbw.facts/1")).as_bytes()), None);
    assert!(laid_out(pretty(&facts("others/1")).as_bytes()).is_some());
    assert_eq!(laid_out(b"[1,0]<stdout>: x"), None);
    assert_eq!(laid_out(b"{'loss': 1}\n{'loss': 2}\n"), None);
    assert_eq!(laid_out(pretty(&json!({"nodes": [{"name": "n1"}, {"name": "n2"}]})).as_bytes()), None);
}

#[test]
fn records_are_read_from_the_oldest() {
    let record = |n: usize| json!({"timestamp": time(n), "severity": "INFO", "message": OUTPUT[n]});
    let latest_first = |lay: fn(Vec<Value>) -> String| lay((0..OUTPUT.len()).rev().map(record).collect());
    let lines = |records: Vec<Value>| records.iter().map(|record| format!("{record}\n")).collect();
    let table = |records: Vec<Value>| {
        let rows = records.iter().map(|record| {
            format!("{},{}\n", record["timestamp"].as_str().unwrap(), quoted(record["message"].as_str().unwrap()))
        });
        std::iter::once("time,message\n".to_string()).chain(rows).collect()
    };
    for text in [latest_first(lines), latest_first(|records| format!("{:#}", json!(records))), latest_first(table)] {
        assert_eq!(facts(&text), failed(), "{text}");
        assert_eq!(read(&text).problems.len(), 1, "{text}");
    }
}

#[test]
fn records_tell_whose_line_it_is() {
    let line = |rank: usize, text: &str| {
        json!({"rank": rank, "pod": format!("fit-{}", rank / 2), "log": text}).to_string() + "\n"
    };
    let of_all = |number: usize| (0..4).map(move |rank| line(rank, OUTPUT[5 + number]));
    let text: String = (0..5).flat_map(of_all).collect();
    let ends = read(&text).ends;
    let ranks: Vec<_> = ends.iter().map(|end| (end.ranks.clone(), end.source.place.line)).collect();
    assert_eq!(ranks, [(vec![0], 17), (vec![1], 18), (vec![2], 19), (vec![3], 20)]);
}

#[test]
fn a_level_is_the_loggers_or_the_streams() {
    let levels = |lines: &[(&str, &str)]| {
        let records = lines.iter().map(|(level, text)| json!({"level": level, "message": text}).to_string() + "\n");
        let run = read(&records.collect::<String>());
        run.statements.iter().filter(|one| one.level == Some(busbw_model::LogLevel::Error)).count()
    };
    assert_eq!(levels(&[("info", "step 1 of 2"), ("error", "the disk is full"), ("info", "step 2 of 2")]), 1);
    assert_eq!(
        levels(&[("info", "step 1 of 2"), ("error", "slow data"), ("error", "  warn(text)"), ("info", "step 2")]),
        0
    );
}

#[test]
fn other_lines_stay() {
    for text in [
        "step=1 loss=2.5 lr=0.1\nstep=2 loss=2.4 lr=0.1\n",
        "1,2,3\n4,5,6\n",
        "{\"coll_perf\": {\"coll\": \"AllReduce\", \"name\": \"a b\"}}\n{\"coll_perf\": {\"coll\": \"AllReduce\", \"name\": \"a b\"}}\n",
        "epoch, loss, message\n",
        "message board, then, more\nmessage board, then\n",
    ] {
        assert_eq!(Envelope::of(text.as_bytes()), None, "{text}");
    }
}

proptest::proptest! {
    #[test]
    fn any_text_is_opened_without_panic(text in "[\\PC\n]{0,120}", bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..120)) {
        let _ = laid_out(&bytes);
        let _ = laid_out(format!("[{{\"message\": \"a b\"}},{text}").as_bytes());
        for head in ["{\"message\": \"a b\"}", "ts=1 msg=\"a b\"", "time,message\n1,a b", "1,\"Traceback (most recent call last):\""] {
            if let Some(envelope) = Envelope::of(format!("{head}\n{head}\n").as_bytes()) {
                let _ = envelope.open(text.as_bytes());
                let _ = envelope.open(&bytes);
            }
        }
    }
}
