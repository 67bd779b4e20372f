//! What `--load` shows below the table: the bound that the skew sets, and who is busiest.

use crate::row::Row;
use crate::shape::Shape;
use busbw_model::{Load, Micros, Skew};

/// As many ranks are listed; the JSON has all.
const MOST_LISTED: usize = 8;

/// A load of ranks on these hosts against an even exchange that took `even`.
pub fn of(shape: &Shape, load: &Load, hosts: &[String], element: usize, even: Micros) -> Option<Skew> {
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let bytes: Vec<u64> = shape.counts.iter().map(|count| (count * element) as u64).collect();
    Skew::of(load, &hosts, &bytes, even)
}

/// Comment lines, which parsers of the table pass over; busbw reads those with a size.
pub fn skew_lines(rows: &[Row]) -> Vec<String> {
    let skewed: Vec<(&Row, &Skew)> = rows.iter().filter_map(|row| Some((row, row.skew.as_ref()?))).collect();
    let Some((last, largest)) = skewed.iter().copied().max_by_key(|(row, _)| row.size) else { return Vec::new() };
    let mut lines = vec![
        "#".to_owned(),
        "# Skew: out of place, against an even exchange of the same size. The bound is its time, times what the busiest moves of an \
         even share"
            .to_owned(),
    ];
    lines.extend(skewed.iter().map(|(row, skew)| {
        let (size, datatype, time) = (row.size, row.test.datatype.name(), Micros(row.out_of_place.time_us));
        format!("# Skew {size:>12} {datatype:>8}: {:.2} of the bound; {skew}", skew.share(time))
    }));
    lines.extend(ranks(last.size, largest));
    lines
}

/// The busiest ranks at the largest size.
fn ranks(size: usize, skew: &Skew) -> Vec<String> {
    let mut ranks: Vec<_> = skew.ranks.iter().enumerate().collect();
    ranks.sort_by_key(|(_, moved)| std::cmp::Reverse(moved.sent_bytes.max(moved.received_bytes)));
    let listed = ranks.iter().take(MOST_LISTED).map(|(rank, moved)| {
        format!("# Skew rank {rank}: sends {} bytes, receives {} bytes", moved.sent_bytes, moved.received_bytes)
    });
    let listed: Vec<String> = listed.collect();
    let which = if ranks.len() > listed.len() {
        format!("{} busiest of {} ranks; JSON has all", listed.len(), ranks.len())
    } else {
        "ranks, the busiest first".to_owned()
    };
    let hosts = skew.hosts.iter().map(|host| {
        let (sent, received) = (host.moved.sent_bytes, host.moved.received_bytes);
        format!("# Skew host {}: sends {sent} bytes, receives {received} bytes", host.host)
    });
    std::iter::once(format!("# Skew at {size} bytes, to and from others ({which}):"))
        .chain(listed)
        .chain(hosts)
        .collect()
}
