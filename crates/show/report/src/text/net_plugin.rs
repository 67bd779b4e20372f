//! Net plugins as text: the rules that each keeps, and what each reaches beside the first.

use super::Style;
use super::page::{Page, paint};
use crate::style::{clip, columns, left, right, widest};
use busbw_model::{Breach, PartOffer, PluginDevice, PluginReport, PluginRun, RuleOutcome, RuleReport};

/// A label is cut to this.
const MAX_LABEL: usize = 24;

/// The text of plugins that were tried, ready to print.
pub fn net_plugins(run: &PluginRun, style: &Style) -> String {
    let mut page = Page::new(*style);
    for plugin in &run.plugins {
        verdict(&mut page, plugin);
    }
    offers(&mut page, run);
    rules(&mut page, run);
    breaches(&mut page, run);
    figures(&mut page, run);
    page.finish()
}

fn verdict(page: &mut Page, plugin: &PluginReport) {
    let (style, word, why) = match (&plugin.offer, &plugin.figures) {
        (Err(unusable), _) => (paint::ERROR, "UNUSABLE", unusable.why.clone()),
        (Ok(_), Err(why)) => (paint::ERROR, "FAILED", format!("while it was measured: {why}")),
        (Ok(_), Ok(_)) if plugin.keeps_the_rules() => match plugin.rules.len() {
            0 => (paint::GOOD, "WORKS", "no rule was tried".into()),
            _ => (paint::GOOD, "KEEPS THE RULES", all_kept(plugin)),
        },
        _ => (paint::ERROR, "BREAKS RULES", broken_names(plugin)),
    };
    page.styled(style, word);
    page.hanging(word.len() + 2, paint::PLAIN, &format!("{}: {why}", plugin.label));
}

fn all_kept(plugin: &PluginReport) -> String {
    let kept = |rule: &&RuleReport| matches!(rule.outcome, RuleOutcome::Kept(_) | RuleOutcome::Noted(_));
    let count = plugin.rules.iter().filter(kept).count();
    let notes = names(plugin, |outcome| matches!(outcome, RuleOutcome::Noted(_)));
    let notes = if notes.is_empty() { String::new() } else { format!("; notes on {notes}") };
    format!("all {count} of NCCL's that it offers something for{notes}")
}

fn broken_names(plugin: &PluginReport) -> String {
    let broken = names(plugin, |outcome| matches!(outcome, RuleOutcome::Broken(_)));
    let stumbles = names(plugin, |outcome| outcome.breach().is_some_and(|breach| breach.stumbles));
    let stumbles = if stumbles.is_empty() { "none of them" } else { &stumbles };
    format!("{broken}; NCCL would stumble over {stumbles}")
}

fn names(plugin: &PluginReport, chosen: impl Fn(&RuleOutcome) -> bool) -> String {
    let rules = plugin.rules.iter().filter(|rule| chosen(&rule.outcome));
    rules.map(|rule| rule.rule).collect::<Vec<_>>().join(", ")
}

fn offers(page: &mut Page, run: &PluginRun) {
    page.heading("Plugins");
    for plugin in &run.plugins {
        page.clipped(2, &format!("{}: {}", plugin.label, plugin.path));
        for (name, value) in &plugin.settings {
            page.clipped(4, &format!("{name}={value}"));
        }
        let offer = match &plugin.offer {
            Ok(offer) => offer,
            Err(unusable) => {
                logged(page, &unusable.logged);
                continue;
            }
        };
        if let Some(network) = &offer.network {
            page.clipped(
                4,
                &format!("network {}, used by v{} of {}", network.name, network.version, versions(&network.versions)),
            );
            network.devices.iter().for_each(|device| page.clipped(4, &described(device)));
        }
        for (part, offered) in [("tuner", &offer.tuner), ("profiler", &offer.profiler)] {
            if let Some(PartOffer { name, versions: exported }) = offered {
                page.clipped(4, &format!("{part} {name}, {}", versions(exported)));
            }
        }
    }
}

fn versions(versions: &[u8]) -> String {
    versions.iter().map(|version| format!("v{version}")).collect::<Vec<_>>().join(", ")
}

fn described(device: &PluginDevice) -> String {
    let place = device.pci_path.as_deref().unwrap_or("no PCI device");
    let memory = if device.gpu_memory { "GPU memory" } else { "host memory only" };
    let (name, speed, grouped) = (&device.name, f64::from(device.speed_mbps) / 1e3, device.most_grouped);
    format!("{name}: {speed} Gbit/s, {grouped} receives per call, {memory}, {place}")
}

/// The whole log: the line that says why is seldom the last one.
fn logged(page: &mut Page, lines: &[String]) {
    page.indented(4, "NCCL would go on without it, with its own InfiniBand or socket transport.");
    page.indented(4, if lines.is_empty() { "It logged nothing." } else { "It logged:" });
    lines.iter().for_each(|line| page.indented(6, line));
}

fn rules(page: &mut Page, run: &PluginRun) {
    let usable: Vec<&PluginReport> = run.plugins.iter().filter(|plugin| !plugin.rules.is_empty()).collect();
    let all = tried(&usable);
    let Some(name_width) = all.iter().map(|rule| rule.rule.len() + 2).max() else { return };
    page.heading("NCCL's rules");
    let widths: Vec<usize> = usable.iter().map(|plugin| columns(&label(plugin)).max(8)).collect();
    let heads: Vec<String> = usable.iter().zip(&widths).map(|(plugin, width)| left(&label(plugin), *width)).collect();
    page.clipped(2, &format!("{}{}", left("", name_width), heads.join("  ")));
    for rule in all {
        page.text(&format!("  {}", left(rule.rule, name_width)));
        for (plugin, width) in usable.iter().zip(&widths) {
            let (style, word) = match plugin.rules.iter().find(|own| own.rule == rule.rule).map(|own| &own.outcome) {
                Some(RuleOutcome::Kept(_)) => (paint::GOOD, "kept"),
                Some(RuleOutcome::Noted(_)) => (paint::GOOD, "note"),
                Some(RuleOutcome::Broken(_)) => (paint::ERROR, "BROKEN"),
                Some(RuleOutcome::Untested(_)) => (paint::DIM, "untested"),
                Some(RuleOutcome::NotOffered(_)) | None => (paint::DIM, "n/a"),
            };
            page.styled(style, &left(word, width + 2));
        }
        let taken = 2 + name_width + widths.iter().sum::<usize>() + 2 * widths.len();
        page.styled_line(paint::DIM, &clip(rule.asks, page.width().saturating_sub(taken)));
    }
}

/// Each rule that was tried with any of them, in the order in which they are tried.
fn tried<'a>(plugins: &[&'a PluginReport]) -> Vec<&'a RuleReport> {
    let mut all: Vec<&RuleReport> = Vec::new();
    for rule in plugins.iter().flat_map(|plugin| &plugin.rules) {
        if !all.iter().any(|known| known.rule == rule.rule) {
            all.push(rule);
        }
    }
    all
}

/// What a rule asks for, what happened instead, and what that is to NCCL.
fn breaches(page: &mut Page, run: &PluginRun) {
    for plugin in &run.plugins {
        for rule in &plugin.rules {
            match &rule.outcome {
                RuleOutcome::Broken(found) => {
                    breach(page, &format!("{} breaks {}", plugin.label, rule.rule), rule, found)
                }
                RuleOutcome::Noted(found) => {
                    breach(page, &format!("{}, note on {}", plugin.label, rule.rule), rule, found)
                }
                RuleOutcome::Kept(_) | RuleOutcome::Untested(_) | RuleOutcome::NotOffered(_) => {}
            }
        }
        untested(page, plugin);
    }
}

fn breach(page: &mut Page, heading: &str, rule: &RuleReport, found: &Breach) {
    page.heading(heading);
    page.indented(2, &format!("The rule: {}.", rule.asks));
    page.indented(2, &format!("Seen: {}", found.seen));
    let answer = if found.stumbles { "Yes" } else { "No" };
    page.indented(2, &format!("Would NCCL stumble over it? {answer}: {}.", found.why));
    page.indented(2, &format!("Source: {}", rule.sources.join(", ")));
}

fn untested(page: &mut Page, plugin: &PluginReport) {
    let untested: Vec<String> = plugin
        .rules
        .iter()
        .filter_map(|rule| match &rule.outcome {
            RuleOutcome::Untested(broken) => Some(format!("{} ({broken})", rule.rule)),
            _ => None,
        })
        .collect();
    if !untested.is_empty() {
        page.heading(&format!("{}: not tested, because the same failure stops the test", plugin.label));
        page.indented(2, &untested.join(", "));
    }
}

fn figures(page: &mut Page, run: &PluginRun) {
    let measured: Vec<_> =
        run.plugins.iter().filter_map(|plugin| Some((plugin, plugin.figures.as_ref().ok()?))).collect();
    let Some((_, first)) = measured.iter().find(|(_, figures)| !figures.bandwidth.is_empty()) else { return };
    let [from, to] = &run.hosts;
    let ends = if from == to { format!("within {from}") } else { format!("{from} to {to}") };
    page.heading(&format!("GB/s one way, {ends}, {} messages under way: median (least to greatest)", run.in_flight));
    let width = |label: &str| columns(label).max(24);
    let heads: Vec<String> = measured.iter().map(|(plugin, _)| right(&label(plugin), width(&label(plugin)))).collect();
    page.clipped(2, &format!("{} {}", right("size", 8), heads.join(" ")));
    for row in &first.bandwidth {
        let mut line = right(&row.size.to_string(), 8);
        for (plugin, figures) in &measured {
            let here = figures.bandwidth.iter().find(|here| here.size == row.size);
            let cell = here.map_or("-".into(), |here| {
                let least = here.gb_per_s.iter().copied().fold(f64::INFINITY, f64::min);
                let greatest = here.gb_per_s.iter().copied().fold(0.0, f64::max);
                let beside = here.gb_per_s_median() / row.gb_per_s_median();
                let ratio = if std::ptr::eq(*figures, *first) { String::new() } else { format!(" {beside:.2}×") };
                format!("{:.3} ({least:.2} to {greatest:.2}){ratio}", here.gb_per_s_median())
            });
            line.push(' ');
            line.push_str(&right(&cell, width(&label(plugin))));
        }
        page.clipped(2, &line);
    }
    smaller_figures(page, &measured);
}

fn smaller_figures(page: &mut Page, measured: &[(&PluginReport, &busbw_model::PluginFigures)]) {
    page.heading("8 bytes, and what 10^9 bytes cost");
    let width = widest(measured.iter().map(|(plugin, _)| label(plugin)));
    for (plugin, figures) in measured {
        let latency = figures.latency.map_or("-".into(), |latency| format!("{} (99% {})", latency.median, latency.p99));
        let rate = figures.messages_per_second.map_or("-".into(), |rate| format!("{:.0} k messages/s", rate / 1e3));
        let cpu = figures
            .bandwidth
            .last()
            .map_or("-".into(), |row| format!("{:.2} s of processors", row.cpu_s_per_gb_median()));
        let line = format!("{}  {latency}, {rate}, {cpu}", left(&label(plugin), width));
        page.clipped(2, &line);
    }
}

fn label(plugin: &PluginReport) -> String {
    clip(&plugin.label, MAX_LABEL).into_owned()
}
