//! `busbw plugin check` on plugins that keep NCCL's rules, and on the same plugins with one of them broken at a time.

use crate::support::command::BUSBW;
use crate::support::plugin::library;
use crate::support::process::{Ended, LIMIT, run};
use crate::support::shared::Shared;
use crate::support::skip::{Skip, c_compiler, needed, root_folder};
use serde_json::Value;
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

/// A plugin of `tests/plugins`, compiled once for the tests that run at the same time.
struct Simple(TempDir);

impl Simple {
    const FILE: &str = "libnccl-net-simple.so";

    fn network() -> Result<Arc<Simple>, Skip> {
        static BUILT: Shared<Simple> = Shared::new();
        BUILT.get(|| Simple::build("simple.c"))
    }

    fn tuner_and_profiler() -> Result<Arc<Simple>, Skip> {
        static BUILT: Shared<Simple> = Shared::new();
        BUILT.get(|| Simple::build("parts.c"))
    }

    fn build(source: &str) -> Result<Self, Skip> {
        let compiler = c_compiler()?;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new(compiler);
        command.args(["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]);
        command.arg(folder.path().join(Self::FILE)).arg(root_folder().join("tests/plugins").join(source));
        let output = command.output().expect("the compiler runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(Simple(folder))
    }

    fn path(&self) -> String {
        self.0.path().join(Self::FILE).display().to_string()
    }
}

fn net(arguments: &[&str], breaks: Option<&str>) -> Ended {
    let mut command = Command::new(BUSBW);
    command.args(["plugin", "check"]).args(arguments).env_remove("BREAK");
    if let Some(rule) = breaks {
        command.env("BREAK", rule);
    }
    run(command, LIMIT)
}

/// Text that was wrapped to lines.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Names of the rules over whose breach NCCL would stumble.
fn stumbled(plugin: &Value) -> Vec<&str> {
    let rules = plugin["rules"].as_array().expect("rules").iter();
    rules.filter(|rule| rule["stumbles"] == true).filter_map(|rule| rule["rule"].as_str()).collect()
}

/// Names of the rules with an outcome.
fn rules<'a>(plugin: &'a Value, outcome: &str) -> Vec<&'a str> {
    let rules = plugin["rules"].as_array().expect("rules").iter();
    rules.filter(|rule| rule["outcome"] == outcome).filter_map(|rule| rule["rule"].as_str()).collect()
}

fn seen<'a>(plugin: &'a Value, rule: &str) -> &'a str {
    let rules = plugin["rules"].as_array().expect("rules").iter();
    rules.filter(|found| found["rule"] == rule).find_map(|found| found["seen"].as_str()).unwrap_or_default()
}

#[test]
fn the_old_name_still_works() {
    let ended = run(Command::new(BUSBW).args(["net", "--plugin", "/nowhere/libnccl-net.so", "--rules-only"]), LIMIT);
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(ended.stdout.contains("/nowhere/libnccl-net.so"), "{ended:?}");
}

#[test]
fn a_plugin_that_keeps_the_rules_is_measured() {
    let simple = needed!(Simple::network());
    let plugin = simple.path();
    let ended = net(
        &[
            "--plugin",
            &plugin,
            "--plugin",
            &format!("{plugin}@X=1"),
            "--json",
            "--size",
            "8,1M",
            "--repeat",
            "2",
            "--seconds",
            "0.02",
        ],
        None,
    );
    let answer = ended.json();
    assert_eq!((answer["schema"].as_str(), ended.status.code()), (Some("busbw.net/1"), Some(0)), "{ended:?}");
    let plugins = answer["plugins"].as_array().unwrap();
    assert_eq!(
        plugins.iter().map(|plugin| plugin["label"].as_str().unwrap()).collect::<Vec<_>>(),
        ["simple", "simple 1"]
    );
    for plugin in plugins {
        assert_eq!(rules(plugin, "broken"), [""; 0], "{plugin}");
        assert_eq!(rules(plugin, "not-offered"), ["flush", "contexts"]);
        let sizes = plugin["bandwidth"].as_array().unwrap();
        assert_eq!(sizes.iter().map(|row| row["size_bytes"].as_u64().unwrap()).collect::<Vec<_>>(), [8, 1 << 20]);
        for row in sizes {
            assert_eq!(row["repetitions_gb_per_s"].as_array().unwrap().len(), 2);
            assert!(row["gb_per_s"].as_f64().unwrap() > 0.0 && row["cpu_s_per_gb"].as_f64().unwrap() > 0.0, "{row}");
        }
        assert!(plugin["latency_us"]["median"].as_f64().unwrap() > 0.0, "{plugin}");
        assert!(plugin["messages_per_second"].as_f64().unwrap() > 0.0);
        assert_eq!(plugin["offer"]["devices"][0]["name"], "lo");
    }
}

#[test]
fn busbws_own_plugin_keeps_the_rules_in_every_version() {
    let plugin = library();
    for version in 6..=12 {
        let version = version.to_string();
        let path = plugin.to_str().unwrap();
        let ended = net(&["--plugin", path, "--rules-only", "--json", "-T", "30", "--interface", &version], None);
        let answer = ended.json();
        assert_eq!(rules(&answer["plugins"][0], "broken"), [""; 0], "v{version}: {ended:?}");
        assert!(rules(&answer["plugins"][0], "kept").len() >= 10, "v{version}: {ended:?}");
        assert_eq!(ended.status.code(), Some(0), "v{version}");
    }
}

/// What plugins that others wrote do, in a plugin of ours: NCCL's own socket transport first, then Google's FastSocket. Each cause is
/// told once, and what NCCL never does is a note.
#[test]
fn plugins_get_the_verdict_that_nccl_would_give() {
    let simple = needed!(Simple::network());
    let plugin = simple.path();
    for (breaks, requests, broken, stumbles, noted, untested) in [
        ("alone,busy,no-flush", "32", &[][..], &[][..], &["busy"][..], &[][..]),
        ("alone,untold,busy,no-flush", "32", &["sizes"], &[], &["busy"], &[]),
        ("untold,gpu", "64", &["sizes"], &["sizes"], &[], &[]),
        ("alone,busy", "20", &[], &[], &["requests", "busy"], &[]),
        ("alone,busy", "12", &["requests"], &["requests"], &[], &["busy"]),
        ("requests", "64", &[], &[], &["requests"], &[]),
        ("gpu,no-flush", "64", &[], &[], &["flush"], &[]),
        (
            "crash",
            "64",
            &["listen"],
            &["listen"],
            &[],
            &["order", "sizes", "truncation", "tags", "requests", "busy", "both-ways", "peer-death", "close"],
        ),
    ] {
        let plugin = format!("{plugin}@REQUESTS={requests}");
        let ended = net(&["--plugin", &plugin, "--rules-only", "--json", "-T", "20"], Some(breaks));
        let answer = ended.json();
        let plugin = &answer["plugins"][0];
        let outcome = |outcome| rules(plugin, outcome);
        assert_eq!(
            [outcome("broken"), stumbled(plugin), outcome("noted"), outcome("untested")],
            [broken, stumbles, noted, untested].map(<[&str]>::to_vec),
            "{breaks}: {plugin}"
        );
        assert_eq!(ended.status.code(), Some(i32::from(!broken.is_empty())), "{breaks}");
    }
}

#[test]
fn the_answer_says_whether_nccl_would_stumble() {
    let simple = needed!(Simple::network());
    let plugin = simple.path();
    for (breaks, rule, lines) in [
        (
            "untold",
            "sizes",
            ["BREAKS RULES simple: sizes; NCCL would stumble over none of them", "Would NCCL stumble over it? No:"],
        ),
        (
            "untold,gpu",
            "sizes",
            ["BREAKS RULES simple: sizes; NCCL would stumble over sizes", "Would NCCL stumble over it? Yes:"],
        ),
        (
            "busy",
            "busy",
            [
                "KEEPS THE RULES simple: all 1 of NCCL's that it offers something for; notes on busy",
                "Source: src/include/plugin/nccl_net.h:37 (NCCL 2.30.7)",
            ],
        ),
    ] {
        let ended = net(&["--plugin", &plugin, "--rules-only", "--rule", rule], Some(breaks));
        let text = in_one_line(&ended.stdout);
        for line in lines {
            assert!(text.contains(line), "{breaks}: {line} is not in {text}");
        }
    }
}

#[test]
fn each_broken_rule_is_named() {
    let simple = needed!(Simple::network());
    let plugin = simple.path();
    for (breaks, rule, says) in [
        ("connect", "connect", "accept did not come back within"),
        ("listen", "listen", "closeListen gave ncclInternalError"),
        ("order", "order", "a message arrived out of order, cut or changed: message 20 of 513 bytes"),
        ("sizes", "sizes", "test told 1048576 bytes for a received message of 0"),
        ("truncation", "truncation", "without an error"),
        ("overrun", "truncation", "beyond its room"),
        ("tags", "tags", "out of order"),
        ("both-ways", "both-ways", "isend did not come back within"),
        ("close", "close", "did not come back within"),
        ("peer-death", "peer-death", "word that the other end is closed did not come within"),
    ] {
        // Only a silence is waited for to its end.
        let patience = if says.contains("did not come") { "4" } else { "10" };
        let ended = net(&["--plugin", &plugin, "--rules-only", "--rule", rule, "--json", "-T", patience], Some(breaks));
        let answer = ended.json();
        let plugin = &answer["plugins"][0];
        assert_eq!(rules(plugin, "broken"), [rule], "{breaks}: {plugin}");
        let seen = seen(plugin, rule);
        assert!(seen.contains(says), "{breaks}: {seen}");
        assert_eq!(ended.status.code(), Some(1), "{breaks}");
    }
}

#[test]
fn a_plugin_that_cannot_be_used_says_why() {
    let simple = needed!(Simple::network());
    let plugin = &*simple.path();
    for (arguments, breaks, says) in [
        (vec!["--plugin", plugin], Some("init"), "init gave ncclSystemError (2): NET/Simple : no network on day 1"),
        (vec!["--plugin", plugin], Some("devices"), "devices found 0"),
        (vec!["--plugin", plugin], Some("name"), "getProperties gave device 0 no name"),
        (vec!["--plugin", plugin, "--interface", "12"], None, "does not export ncclNetPlugin_v12; it exports v8"),
        (vec!["--plugin", "/nowhere/x.so"], None, "cannot be loaded: /nowhere/x.so: cannot open shared object file"),
        (vec!["--plugin", "/etc/passwd"], None, "cannot be loaded: /etc/passwd: "),
        (vec!["--plugin", BUSBW], None, "cannot be loaded"),
    ] {
        let ended = net(&arguments, breaks);
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert!(ended.stdout.starts_with("UNUSABLE"), "{ended:?}");
        assert!(in_one_line(&ended.stdout).contains(says), "{says}: {ended:?}");
    }
}

#[test]
fn a_plugin_that_does_not_start_is_shown_with_all_it_logged() {
    let simple = needed!(Simple::network());
    let plugin = simple.path();
    let logged =
        ["INFO NET/Simple : looking for lo", "WARN NET/Simple : no network on day 1", "INFO NET/Simple : gave up"];
    let answer = net(&["--plugin", &plugin, "--rules-only", "--json"], Some("init")).json();
    assert_eq!(answer["plugins"][0]["logged"], serde_json::json!(logged));
    let text = net(&["--plugin", &plugin, "--rules-only"], Some("init")).stdout;
    for line in logged {
        assert!(text.contains(&format!("\n      {line}\n")), "{line} is not a line of {text}");
    }
    let answer = net(&["--plugin", &plugin, "--rules-only", "--json"], Some("devices")).json();
    assert_eq!(answer["plugins"][0]["logged"], serde_json::json!(["INFO NET/Simple : Using lo"]));
}

#[test]
fn a_plugin_that_crashes_takes_nothing_with_it() {
    let simple = needed!(Simple::network());
    let plugin = simple.path();
    let ended = net(&["--plugin", &plugin, "--json", "--size", "1K", "--seconds", "0.02", "-T", "5"], Some("crash"));
    let answer = ended.json();
    let plugin = &answer["plugins"][0];
    assert_eq!(seen(plugin, "listen"), "the process that uses the plugin was ended by SIGABRT");
    assert_eq!(plugin["error"], "the process that uses the plugin was ended by SIGABRT");
    assert_eq!(rules(plugin, "kept"), ["connect"], "what needs no message works: {plugin}");
}

#[test]
fn bad_usage_is_refused_before_anything_runs() {
    for (arguments, says) in [
        (vec![], "PLUGIN"),
        (vec!["a", "b"], "name a plugin"),
        (vec!["--plugin", "x.so@Y"], "NAME=VALUE"),
        (vec!["x.so@Y"], "NAME=VALUE"),
        (vec!["x.so", "a"], "name two hosts or none"),
        (vec!["--plugin", "x.so", "--size", "0"], "give sizes"),
        (vec!["--plugin", "x.so", "--interface", "5"], "6..=12"),
    ] {
        net(&arguments, None).refused(says);
    }
}

#[test]
fn a_tuner_and_a_profiler_without_a_network_are_tested() {
    let parts = needed!(Simple::tuner_and_profiler());
    let ended = net(&[&parts.path(), "--json"], None);
    let answer = ended.json();
    let plugin = &answer["plugins"][0];
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let offer = &plugin["offer"];
    assert_eq!((&offer["network"], &offer["tuner"]["name"]), (&Value::Null, &"parts".into()));
    assert_eq!((&offer["tuner"]["versions"], &offer["profiler"]["versions"]), (&[6, 5].into(), &[6, 1].into()));
    // The second `finalize` of a context leaves it ended: choosing then is an error, which NCCL never sees.
    assert_eq!(rules(plugin, "noted"), ["tuner-end"], "{plugin}");
    assert_eq!(rules(plugin, "kept").len(), 20, "{plugin}");
    let text = net(&[&parts.path(), "--rules-only"], None).stdout;
    assert!(text.contains("tuner parts, v6, v5") && text.contains("profiler parts, v6, v1"), "{text}");
}

/// What busbw's own tuner and profiler say of the faults, in every version.
#[test]
fn busbws_own_tuner_and_profiler_keep_the_rules() {
    let all = rule_names_of_parts();
    let plugin = library();
    let arguments = [plugin.to_str().unwrap(), "--rules-only", "--json", "-T", "60", "--rule", &all.join(",")];
    let ended = net(&arguments, None);
    let answer = ended.json();
    let plugin = &answer["plugins"][0];
    assert_eq!(rules(plugin, "kept"), all, "{ended:?}");
    for (rule, says) in [
        ("tuner-choice", "v6, v5, v4, v3, v2: "),
        ("tuner-ranks", "choices are not NCCL's own"),
        ("tuner-no-table", "no such file; NCCL's own choices hold"),
        ("tuner-damaged", "NCCL's own choices hold"),
        ("tuner-other", "0 of 1 choices are for 16 ranks on 2 nodes"),
        ("profiler-events", "it asks for 0x"),
        ("profiler-full", "events found no room"),
        ("profiler-no-place", "nothing is recorded"),
    ] {
        assert!(seen(plugin, rule).contains(says), "{rule}: {}", seen(plugin, rule));
    }
}

fn rule_names_of_parts() -> Vec<&'static str> {
    busbw_plugin_check::rule_names()
        .filter(|name| name.starts_with("tuner-") || name.starts_with("profiler-"))
        .collect()
}

#[test]
fn each_broken_rule_of_a_tuner_or_profiler_is_named() {
    let parts = needed!(Simple::tuner_and_profiler());
    let plugin = parts.path();
    for (breaks, rule, outcome, says) in [
        ("choose", "tuner-choice", "broken", "v6, v5: getCollInfo gave ncclInternalError (3)"),
        ("impossible", "tuner-choice", "broken", "goes by PAT Simple, which NCCL said is not possible"),
        ("none", "tuner-choice", "broken", "left nothing to go by"),
        ("beside", "tuner-choice", "broken", "wrote beside the table of costs"),
        ("chunk", "tuner-choice", "broken", "chunks of 0 bytes"),
        ("ranks", "tuner-ranks", "broken", "one rank says all_reduce of 1 B on 16 ranks: "),
        ("shared", "tuner-contexts", "broken", "getCollInfo gave ncclInternalError (3)"),
        ("table", "tuner-no-table", "broken", "v6, v5: init gave ncclSystemError (2)"),
        ("own", "tuner-other", "noted", "goes by Tree LL, 1 channel, where NCCL goes by Tree LL"),
        ("again", "tuner-again", "broken", "v6, v5: the process that uses the plugin was ended by SIGABRT"),
        ("again", "profiler-again", "broken", "v6, v1: the process that uses the plugin was ended by SIGABRT"),
        ("twice", "tuner-end", "noted", "was ended by SIGABRT"),
        ("events", "profiler-events", "noted", "v6: startEvent gave ncclInternalError (3)"),
        ("mask", "profiler-mask", "broken", "v6: init asks for 0x21a, and then for 0x2"),
        ("parent", "profiler-foreign", "broken", "was ended by SIGSEGV"),
        ("full", "profiler-full", "broken", "startEvent did not come back within"),
        ("child", "profiler-fork", "noted", "v6: a child of a fork gets another answer"),
    ] {
        let patience = if says.contains("did not come") { "4" } else { "20" };
        let ended = net(&[&plugin, "--rules-only", "--rule", rule, "--json", "-T", patience], Some(breaks));
        let answer = ended.json();
        let plugin = &answer["plugins"][0];
        assert_eq!(rules(plugin, outcome), [rule], "{breaks}: {plugin}");
        assert!(seen(plugin, rule).contains(says), "{breaks}: {}", seen(plugin, rule));
        assert_eq!(ended.status.code(), Some(i32::from(outcome == "broken")), "{breaks}");
    }
}
