//! The panes below the ports: alerts, owners of queue pairs, all counters of a port, help.

use super::Screen;
use crate::known::{Family, Known};
use crate::moment::Alert;
use crate::moment::{Owner, Row};
use crate::time::time_of_day;
use busbw_model::Severity;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Wrap};

/// From this width on alerts and owners stand side by side.
const WIDE: u16 = 160;
/// Columns of the owners, with a command that can be recognised.
const OWNERS: u16 = 88;

const HELP: &str = "\
q, Esc, Ctrl-C  end; what moved in all is printed
Up, Down, j, k  choose a port
Enter           every counter of the port, with what it counts; PgUp and PgDn scroll
s               sort by name, sent, received, lost, congestion
f, Space        freeze the screen; samples go on
m               rates on the mean of the last ten intervals
< and >         sample more often, less often
LOST            out of order, retransmitted, timed out, out of buffer, discarded, with errors
CNP             congestion notifications sent and handled, and ECN marks
*               Soft-RoCE counts no bytes: those of its interface";

pub fn help(frame: &mut Frame, area: Rect) {
    frame.render_widget(Paragraph::new(HELP).block(pane("help")), area);
}

fn pane(title: &str) -> Block<'_> {
    Block::new().borders(Borders::TOP).title(format!(" {title} ").bold()).border_style(Style::new().dim())
}

pub fn alerts_and_owners(frame: &mut Frame, area: Rect, alerts: &[(&str, &Alert, bool)], screen: &Screen) {
    let [left, right] = if area.width >= WIDE {
        Layout::horizontal([Constraint::Min(0), Constraint::Length(OWNERS)]).spacing(1).areas(area)
    } else {
        Layout::vertical([Constraint::Percentage(55), Constraint::Percentage(45)]).areas(area)
    };
    let shown = if alerts.is_empty() {
        vec![Line::from("no error counter increased").dim()]
    } else {
        alerts.iter().flat_map(|(host, alert, stands)| alert_lines(host, alert, *stands)).collect()
    };
    frame.render_widget(Paragraph::new(shown).wrap(Wrap { trim: false }).block(pane("alerts")), left);
    let hosts = screen.hosts.iter().map(|host| host.name.as_str());
    let all =
        hosts.zip(screen.moments()).flat_map(|(host, moment)| moment.owners.iter().map(move |owner| (host, owner)));
    let mut owners: Vec<Line> = all.map(|(host, owner)| owner_line(host, owner)).collect();
    if owners.is_empty() {
        owners.push(Line::from(screen.untold.clone().unwrap_or_else(|| "no queue pairs".into())).dim());
    } else {
        owners.insert(0, Line::from(owner_head(screen.several())).dim());
    }
    frame.render_widget(Paragraph::new(owners).block(pane("queue pairs")), right);
}

pub fn latest_alert(frame: &mut Frame, area: Rect, alerts: &[(&str, &Alert, bool)]) {
    let line = alerts.first().and_then(|(host, alert, stands)| alert_lines(host, alert, *stands).into_iter().next());
    frame.render_widget(Paragraph::new(line.unwrap_or_default()), area);
}

/// What moved; and while it stands, what it means and what to do.
fn alert_lines(host: &str, alert: &Alert, stands: bool) -> Vec<Line<'static>> {
    let color = |span: Span<'static>| match alert.severity {
        _ if !stands => span.dim(),
        Severity::Error => span.red(),
        Severity::Warning => span.yellow(),
        Severity::Info => span,
    };
    let moved = format!(
        "{} {}{} {} +{} ({}/s)",
        time_of_day(alert.last_us),
        if host.is_empty() { String::new() } else { format!("{host} ") },
        alert.device,
        alert.counter,
        alert.moved,
        count(Some(alert.per_second))
    );
    let mut lines = vec![Line::from(vec![color(moved.into()), "  ".into(), Span::from(alert.code.as_str()).bold()])];
    if stands {
        lines.push(Line::from(format!("  {}", alert.meaning)).dim());
    }
    lines
}

fn owner_head(several_hosts: bool) -> String {
    let host = if several_hosts { format!("{:<12} ", "HOST") } else { String::new() };
    format!(
        "{host}{:<13} {:>4} {:>5} {:>7} {:<8} {:>5} {:>8}  COMMAND",
        "DEVICE", "QPS", "READY", "PID", "USER", "CPU%", "MiB"
    )
}

fn owner_line(host: &str, owner: &Owner) -> Line<'static> {
    let pairs = &owner.queue_pairs;
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let line = format!(
        "{}{:<13} {:>4} {:>5} {:>7} {:<8} {:>5} {:>8}  {}",
        if host.is_empty() { String::new() } else { format!("{host:<12} ") },
        pairs.device,
        pairs.count,
        pairs.ready,
        or_dash(pairs.pid.map(|pid| pid.to_string())),
        or_dash(pairs.user.clone()),
        or_dash(owner.cpu_pct.map(|cpu| format!("{cpu:.0}"))),
        pairs.memory_kib / 1024,
        pairs.owner
    );
    if pairs.failed > 0 { Line::from(format!("{line}  ({} in error)", pairs.failed)).red() } else { Line::from(line) }
}

/// Every counter of a port, with what it counts.
pub fn counters(frame: &mut Frame, area: Rect, row: Option<&Row>, scroll: u16) {
    let Some(row) = row else { return };
    let families = if row.is_rdma() { &[Family::Rdma][..] } else { &[Family::Interface, Family::Driver] };
    let known = |name: &str| {
        let at = families.iter().find_map(|family| Known::get().find(*family, name))?;
        Some(&Known::get().counters()[at])
    };
    let lines = row.counters.iter().map(|counter| {
        let known = known(&counter.name);
        let moving = counter.moved.is_some_and(|moved| moved > 0);
        let numbers = format!("{:<32} {:>20} {:>10}/s  ", counter.name, counter.value, count(counter.per_second));
        let numbers = match moving {
            true if known.is_some_and(|known| known.cause.is_some()) => Span::from(numbers).yellow(),
            true => Span::from(numbers),
            false => Span::from(numbers).dim(),
        };
        Line::from(vec![numbers, Span::from(known.map_or("", |known| known.meaning.as_str()))])
    });
    let lines: Vec<Line> = lines.collect();
    // No further than to the last line.
    let most = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_sub(area.height.saturating_sub(1));
    let title = format!("counters of {}", row.device);
    frame.render_widget(Paragraph::new(lines).scroll((scroll.min(most), 0)).block(pane(&title)), area);
}

/// A count in at most six characters.
pub fn count(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(rate) if rate >= 1e9 => format!("{:.1}G", rate / 1e9),
        Some(rate) if rate >= 1e6 => format!("{:.1}M", rate / 1e6),
        Some(rate) if rate >= 1e4 => format!("{:.1}k", rate / 1e3),
        Some(rate) if rate > 0.0 && rate < 1.0 => format!("{rate:.2}"),
        Some(rate) => format!("{rate:.0}"),
    }
}
