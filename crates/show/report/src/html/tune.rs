//! The page of a sweep: the verdict, a heatmap of two variables, the table of settings.

use super::markup::{escape, section, table};
use super::{Page, tiles};
use crate::words::tuning as words;
use busbw_model::{TunedSetting, Tuning};

/// How strongly the best cell of a heatmap is coloured, in percent.
const STRONGEST: f64 = 60.0;

/// The page of a sweep's result. All text is escaped.
pub fn tune(tuning: &Tuning) -> Page {
    let body = [
        figures(tuning),
        heatmap(tuning),
        section(&words::measured(tuning), &settings(tuning)),
        section("Variables", &variables(tuning)),
        section("Trials", &trials(tuning)),
    ]
    .concat();
    Page { class: "tuned", badge: "tuned", title: tuning.summary.clone(), command: "tune", body }
}

fn figures(tuning: &Tuning) -> String {
    let unit = &tuning.objective.unit;
    let mean = |setting: &TunedSetting| {
        setting.mean.map_or(String::new(), |mean| format!("{} {unit}", words::number(mean)).trim_end().to_string())
    };
    let best = tuning.best().map(|best| (mean(best), format!("best: {}", best.setting.name())));
    let default = tuning
        .default_rank()
        .map(|(rank, default)| (mean(default), format!("the default, number {rank} of {}", tuning.settings.len())));
    let ran = (
        tuning.trials.ran.to_string(),
        format!("trials, where four full rounds take {}", tuning.trials.four_full_rounds),
    );
    tiles(&best.into_iter().chain(default).chain([ran]).collect::<Vec<_>>())
}

/// Means over two variables; nothing for other numbers of variables.
fn heatmap(tuning: &Tuning) -> String {
    let Some(map) = words::heatmap(tuning) else { return String::new() };
    let heads: String =
        map.columns.1.iter().map(|value| format!("<th class=\"number\">{}</th>", escape(value))).collect();
    let cell = |cell: &Option<words::Cell>| match cell {
        None => "<td></td>".to_string(),
        Some(cell) => format!(
            "<td class=\"number\" style=\"background: color-mix(in srgb, var(--good) {:.0}%, transparent)\">{}</td>",
            cell.goodness * STRONGEST,
            words::number(cell.mean)
        ),
    };
    let rows = map.rows.1.iter().zip(&map.cells).map(|(value, cells)| {
        format!("<tr><th class=\"number\">{}</th>{}</tr>\n", escape(value), cells.iter().map(cell).collect::<String>())
    });
    let body = format!(
        "<p class=\"muted\">{}; {} down, {} across; the darker the better.</p>\n<div class=\"scroll\" tabindex=\"0\">\
         <table class=\"heatmap\">\n<thead><tr><th></th>{heads}</tr></thead>\n<tbody>\n{}</tbody>\n</table></div>\n",
        escape(&words::measured(tuning)),
        escape(map.rows.0),
        escape(map.columns.0),
        rows.collect::<String>()
    );
    section("Means of two variables", &body)
}

fn settings(tuning: &Tuning) -> String {
    let names = tuning.variables.iter().map(|variable| variable.name.as_str());
    let head: Vec<&str> = ["", ""].into_iter().chain(names).chain(words::COLUMNS).collect();
    let rows = tuning.settings.iter().enumerate().map(|(index, setting)| {
        let place = [(index + 1).to_string(), words::standing(setting)];
        place.into_iter().chain(words::values(tuning, setting)).chain(words::cells(setting)).collect()
    });
    let failed: String = words::failed(tuning).iter().map(|why| format!("<p>{}</p>\n", escape(why))).collect();
    let method = format!("<p class=\"muted\">Tied with the best by {}.</p>\n", escape(&tuning.method));
    table(&head, rows) + &failed + &method
}

fn variables(tuning: &Tuning) -> String {
    let rows = tuning.variables.iter().map(|variable| {
        vec![variable.name.clone(), variable.values.join(", "), variable.meaning.clone().unwrap_or_default()]
    });
    table(&["variable", "values", "what it does"], rows)
}

fn trials(tuning: &Tuning) -> String {
    format!("<p>{}</p>\n<pre>{}</pre>\n", escape(&words::trials(tuning)), escape(&tuning.command))
}
