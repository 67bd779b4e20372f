//! From what is best at some sizes to choices for the sizes between them.

use super::{TunedChoice, TuningTable};
use crate::Bytes;

impl TuningTable {
    /// The table of what won at some sizes: neighbouring sizes of one winner are one choice, with all that they gain. `won` has the
    /// sizes in order, each with the choice that won there, if any. Where sizes `index` and `index + 1` have different
    /// winners, `border` gives the last size that goes with the first of them. Below the least and above the greatest size
    /// nothing is said.
    pub fn of_sizes(won: &[(Bytes, Option<TunedChoice>)], border: impl Fn(usize) -> Bytes) -> Self {
        let mut choices = Vec::new();
        let mut start = 0;
        for same in won.chunk_by(|(_, a), (_, b)| is_same(a.as_ref(), b.as_ref())) {
            let last = start + same.len() - 1;
            if let Some(choice) = &same[0].1 {
                let gains = same.iter().filter_map(|(_, choice)| choice.as_ref()?.gain_percent);
                choices.push(TunedChoice {
                    from: if start == 0 { same[0].0 } else { Bytes(border(start - 1).0 + 1) },
                    to: if last + 1 == won.len() { won[last].0 } else { border(last) },
                    gain_percent: gains.reduce(|[a, b], [c, d]| [a.min(c), b.max(d)]),
                    ..choice.clone()
                });
            }
            start = last + 1;
        }
        TuningTable { choices }
    }

    /// The border of two sizes where nothing tells a better one: the geometric mean, as sizes are spaced.
    pub fn middle(Bytes(below): Bytes, Bytes(above): Bytes) -> Bytes {
        Bytes((below as f64 * above as f64).sqrt() as u64)
    }
}

/// Whether two are one choice, whatever their sizes and gains.
fn is_same(a: Option<&TunedChoice>, b: Option<&TunedChoice>) -> bool {
    let bare =
        |choice: &TunedChoice| TunedChoice { from: Bytes(0), to: Bytes(0), gain_percent: None, ..choice.clone() };
    a.map(bare) == b.map(bare)
}
