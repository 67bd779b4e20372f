//! Draws the screen: title, load, ports, and the panes below.

use super::panes::count;
use super::{Host, Over, Place, Screen, congested, lost, panes, sum};
use crate::known::Quantity;
use crate::moment::{Moment, Row};
use crate::time::time_of_day;
use busbw_probe::counters::GpuCounters;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row as TableRow, Table, TableState};

const KEYS: &str = "q quit  s sort  f freeze  m mean  Enter counters  < > interval  h help";
/// Below this many lines only title, ports and the latest alert are shown.
const SMALL: u16 = 14;

impl Screen {
    pub fn draw(&self, frame: &mut Frame) {
        let rows = self.rows();
        let area = frame.area();
        let ports = u16::try_from(rows.len()).unwrap_or(u16::MAX).saturating_add(1);
        let panes = if area.height < SMALL { Constraint::Length(1) } else { Constraint::Min(7) };
        // Ports get the lines they need, but leave the panes their minimum.
        let most = area.height.saturating_sub(if area.height < SMALL { 4 } else { 11 });
        let loads = self.loads(usize::from(area.height) / 4);
        let parts = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(loads.len().max(1) as u16),
            Constraint::Length(ports.min(most).max(2)),
            panes,
            Constraint::Length(1),
        ]);
        let [title, load, table, below, keys] = parts.areas(area);
        self.title(frame, title);
        frame.render_widget(Paragraph::new(loads), load);
        self.ports(frame, table, &rows);
        match self.over {
            Over::Help => panes::help(frame, below),
            Over::Counters => {
                panes::counters(frame, below, rows.get(self.selected).map(|place| place.row), self.scroll)
            }
            Over::Nothing if area.height < SMALL => panes::latest_alert(frame, below, &self.alerts()),
            Over::Nothing => panes::alerts_and_owners(frame, below, &self.alerts(), self),
        }
        frame.render_widget(Paragraph::new(KEYS).dim(), keys);
    }

    fn title(&self, frame: &mut Frame, area: Rect) {
        let name = match &self.hosts[..] {
            [one] => one.latest.host.name.clone(),
            several => format!("{} hosts", several.len()),
        };
        let mut left = vec!["busbw monitor".bold(), format!("  {name}").into()];
        if let Some(time_us) = self.moments().map(|moment| moment.time_us).max().filter(|time_us| *time_us > 0) {
            left.push(format!("  {} UTC", time_of_day(time_us)).into());
        }
        if self.frozen.is_some() {
            left.push("  frozen".fg(Color::Yellow));
        }
        let mean = if self.mean { format!("mean of {}, ", super::MEAN_OF) } else { String::new() };
        let right = format!("{mean}by {}, {}", self.order.name(), self.note);
        frame.render_widget(Paragraph::new(Line::from(left)), area);
        frame.render_widget(Paragraph::new(right).dim().alignment(Alignment::Right), area);
    }

    /// A line per host, at most so many: those that tell nothing come first.
    fn loads(&self, most: usize) -> Vec<Line<'static>> {
        let mut hosts: Vec<(&Host, &Moment)> = self.hosts.iter().zip(self.moments()).collect();
        hosts.sort_by_key(|(host, _)| host.silent.is_none());
        let name = |host: &Host| if self.several() { format!("{:<12} ", host.name) } else { String::new() };
        let line = |(host, moment): &(&Host, &Moment)| match &host.silent {
            Some(why) => Line::from(format!("{}{why}", name(host))).red(),
            None if self.several() && moment.time_us == 0 => Line::from(format!("{}not yet", name(host))).dim(),
            None => loads(name(host), moment),
        };
        hosts.iter().take(most.max(1)).map(line).collect()
    }

    fn ports(&self, frame: &mut Frame, area: Rect, rows: &[Place]) {
        let columns = Column::that_fit(area.width, self.several());
        let head = columns.iter().map(|column| Cell::from(column.head().alignment(column.alignment())));
        let cells = |(at, place): (usize, &Place)| {
            let cells = columns.iter().map(|column| {
                let line = Line::from(column.cell(self, *place)).alignment(column.alignment());
                // Of the chosen row, the name alone is reversed: bars would change what they say.
                let chosen = at == self.selected && *column == Column::Name;
                Cell::from(if chosen { line.reversed() } else { line })
            });
            let row = TableRow::new(cells.collect::<Vec<_>>());
            if self.hosts[place.host].silent.is_some() {
                row.style(Style::new().add_modifier(Modifier::DIM))
            } else {
                row
            }
        };
        let widths = columns.iter().map(|column| Constraint::Length(column.width()));
        let table = Table::new(rows.iter().enumerate().map(cells), widths)
            .header(TableRow::new(head.collect::<Vec<_>>()).style(Style::new().add_modifier(Modifier::DIM)))
            .row_highlight_style(Style::new().add_modifier(Modifier::BOLD));
        let mut state = TableState::new().with_selected((!rows.is_empty()).then_some(self.selected));
        frame.render_stateful_widget(table, area, &mut state);
        if rows.is_empty() {
            let none = "no RDMA device and no network interface here; --devices names others";
            frame.render_widget(
                Paragraph::new(none).dim(),
                area.offset(ratatui::layout::Offset { x: 0, y: 1 }).intersection(area),
            );
        }
    }

    /// A bar per interval, as high as the busier direction of it beside the link's rate, or beside the most so far.
    fn sparkline(&self, Place { host, row }: Place, width: usize) -> String {
        const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let Some(past) = self.hosts[host].history.get(&row.device) else { return String::new() };
        let busier: Vec<f64> = past.iter().map(|(tx, rx)| tx.max(*rx)).collect();
        let most = row.link_gbit_s.unwrap_or_else(|| busier.iter().copied().fold(0.0, f64::max));
        let bar = |rate: &f64| {
            let share = if most > 0.0 { (rate / most).clamp(0.0, 1.0) } else { 0.0 };
            if *rate <= 0.0 { ' ' } else { BARS[((share * BARS.len() as f64) as usize).min(BARS.len() - 1)] }
        };
        busier.iter().skip(busier.len().saturating_sub(width)).map(bar).collect()
    }
}

/// A column of the table of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Host,
    Name,
    State,
    Link,
    Sent,
    Received,
    Use,
    History,
    PacketsSent,
    PacketsReceived,
    Pauses,
    Congestion,
    Lost,
    QueuePairs,
}

impl Column {
    /// In the order in which they stand.
    const ALL: [Column; 14] = [
        Column::Host,
        Column::Name,
        Column::State,
        Column::Link,
        Column::Sent,
        Column::Received,
        Column::Use,
        Column::History,
        Column::PacketsSent,
        Column::PacketsReceived,
        Column::Pauses,
        Column::Congestion,
        Column::Lost,
        Column::QueuePairs,
    ];
    /// In the order in which they get room.
    const BY_WORTH: [Column; 14] = [
        Column::Name,
        Column::Host,
        Column::Sent,
        Column::Received,
        Column::Lost,
        Column::State,
        Column::Use,
        Column::Congestion,
        Column::Pauses,
        Column::QueuePairs,
        Column::Link,
        Column::History,
        Column::PacketsSent,
        Column::PacketsReceived,
    ];
    const BARS: usize = 16;

    fn that_fit(width: u16, several_hosts: bool) -> Vec<Column> {
        let mut used = 0;
        let wanted = Self::BY_WORTH.into_iter().filter(|column| several_hosts || *column != Column::Host);
        let fitting = wanted.take_while(|column| {
            used += column.width() + 1;
            used <= width + 1 || *column == Column::Name
        });
        let fitting: Vec<Column> = fitting.collect();
        Self::ALL.into_iter().filter(|column| fitting.contains(column)).collect()
    }

    fn width(self) -> u16 {
        match self {
            Column::Name => 17,
            Column::Host => 12,
            Column::State => 7,
            Column::History => Self::BARS as u16,
            Column::Link | Column::Use | Column::QueuePairs => 5,
            Column::Sent | Column::Received => 9,
            Column::PacketsSent | Column::PacketsReceived | Column::Pauses | Column::Congestion | Column::Lost => 7,
        }
    }

    fn head(self) -> Line<'static> {
        Line::from(match self {
            Column::Host => "HOST",
            Column::Name => "PORT",
            Column::State => "STATE",
            Column::Link => "LINK",
            Column::Sent => "TX Gbit/s",
            Column::Received => "RX Gbit/s",
            Column::Use => "USE",
            Column::History => "HISTORY",
            Column::PacketsSent => "TX pk/s",
            Column::PacketsReceived => "RX pk/s",
            Column::Pauses => "PAUSE/s",
            Column::Congestion => "CNP/s",
            Column::Lost => "LOST/s",
            Column::QueuePairs => "QPS",
        })
    }

    fn alignment(self) -> Alignment {
        match self {
            Column::Host | Column::Name | Column::State | Column::History => Alignment::Left,
            _ => Alignment::Right,
        }
    }

    fn cell(self, screen: &Screen, place: Place) -> Span<'static> {
        let ((sent, received), row) = (screen.rates(place), place.row);
        match self {
            Column::Host => Span::from(screen.hosts[place.host].name.clone()),
            Column::Name => name(row),
            Column::State if screen.hosts[place.host].silent.is_some() => Span::from("silent").red(),
            Column::State if row.is_up() => Span::from(row.state.clone()).green(),
            Column::State => Span::from(row.state.clone()).red(),
            Column::Link => row.link_gbit_s.map_or_else(String::new, |rate| format!("{rate}")).into(),
            Column::Sent => gbit(sent).into(),
            Column::Received => gbit(received).into(),
            Column::Use => {
                let busier = sent.unwrap_or(0.0).max(received.unwrap_or(0.0));
                row.link_gbit_s.map_or_else(String::new, |link| format!("{:.0}%", 100.0 * busier / link)).into()
            }
            Column::History => Span::from(screen.sparkline(place, Self::BARS)).cyan(),
            Column::PacketsSent => count(row.rate(Quantity::TxPackets)).into(),
            Column::PacketsReceived => count(row.rate(Quantity::RxPackets)).into(),
            Column::Pauses => marked(sum(row, &[Quantity::TxPause, Quantity::RxPause]), Color::Yellow),
            Column::Congestion => marked(congested(row), Color::Yellow),
            Column::Lost => marked(lost(row), Color::Red),
            Column::QueuePairs if row.is_rdma() => row.queue_pairs.to_string().into(),
            Column::QueuePairs => "".into(),
        }
    }
}

/// The name, indented below the port that it belongs to; a star where the bytes are the interface's.
fn name(row: &Row) -> Span<'static> {
    let star = if row.bytes_of.is_some() { "*" } else { "" };
    if row.below.is_some() {
        Span::from(format!("  {}", row.device)).dim()
    } else {
        Span::from(format!("{}{star}", row.device)).bold()
    }
}

fn gbit(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.3}"))
}

fn marked(rate: Option<f64>, color: Color) -> Span<'static> {
    let shown = Span::from(count(rate));
    if rate.is_some_and(|rate| rate > 0.0) { shown.fg(color) } else { shown }
}

/// Processor, memory, TCP, GPUs and jobs on one line, after the host's name.
fn loads(name: String, moment: &Moment) -> Line<'static> {
    let host = &moment.host;
    let gib = |kib: u64| format!("{:.1}", kib as f64 / f64::from(1 << 20));
    let mut parts = vec![
        format!("cpu {:.1}% of {}", host.cpu_pct.unwrap_or(0.0), host.cores),
        format!(
            "memory {} of {} GiB",
            gib(host.memory_total_kib - host.memory_available_kib.min(host.memory_total_kib)),
            gib(host.memory_total_kib)
        ),
        format!("TCP retrans {:.2}%", host.tcp_retransmitted_pct.unwrap_or(0.0)),
    ];
    if !moment.gpus.is_empty() {
        let share = |gpu: &GpuCounters| gpu.busy_pct.map_or("?".to_owned(), |busy| busy.to_string());
        let busy: Vec<String> = moment.gpus.iter().map(share).collect();
        parts.push(format!("GPU {}%", busy.join(" ")));
    }
    let mut line: Vec<Span> = vec![name.bold(), parts.join("  ").into()];
    for job in &moment.jobs {
        line.push("  ".into());
        line.push(format!("▶ {} ×{}", job.what, job.processes).magenta());
    }
    Line::from(line)
}
