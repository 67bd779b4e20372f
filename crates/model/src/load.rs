//! An exchange between all ranks that is not even: what each sends to each, and who is busiest.

/// What each rank sends to each.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    name: String,
    ranks: usize,
    /// Of each sender to each receiver, as a share of what a rank sends in the mean.
    shares: Vec<f64>,
}

/// Why figures are no load.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// Neither a list nor a square of figures.
    #[error(
        "{figures} figures are no load of {ranks} ranks; give one for what each rank receives ({ranks}, or as many for the \
         experts of each), or {ranks} lines of {ranks} for what each sends to each"
    )]
    #[allow(missing_docs)]
    Count { figures: usize, ranks: usize },
    /// Something that is no amount.
    #[error("line {line}: \"{word}\" is no amount; give numbers of bytes or tokens, none below zero")]
    #[allow(missing_docs)]
    Figure { line: usize, word: String },
    /// Nothing is sent, or nothing that can be added up.
    #[error("the load is zero, or too large to add up; give numbers of bytes or tokens")]
    Empty,
    /// Larger than is worth the time.
    #[error("there are {0} ranks; a load has {most} at most", most = Load::MOST_RANKS)]
    TooManyRanks(usize),
    /// Neither a shape nor a file.
    #[error("no shape (W0 to {last}) and no file that can be read: {0}", last = SHAPES[SHAPES.len() - 1].0)]
    NoFile(String),
}

/// The shapes of Megatron-LM's benchmark of imbalance (NVIDIA/Megatron-LM pull request 7488, `benchmarks/moe/token_imbalance`),
/// where each rank has the same number of experts, in order.
pub const SHAPES: [(&str, &str); 8] = [
    ("W0", "even"),
    ("W1", "three of four choices fall on the first quarter of the experts"),
    ("W2", "as W1: the hot experts are those of the first quarter of the ranks"),
    ("W3", "three of four choices fall on every second expert; ranks with several experts are even"),
    ("W4", "ranks send from none to twice the mean, receivers are even"),
    ("W5", "the first half of the experts is never chosen"),
    ("W6", "as W1, with the hot quarter moving on every three steps: a step"),
    ("W7", "two of four choices fall on the first quarter of the experts in one step of four: that step"),
];

/// The part of the experts that is hot.
const HOT: f64 = 0.25;

impl Load {
    /// The most ranks of a load.
    pub const MOST_RANKS: usize = 4096;

    /// The load that `--load` names: a shape, else a file, whose text `text_of` gives.
    ///
    /// # Errors
    /// There is no such shape and no such file, or the file is no load of as many ranks.
    ///
    /// ```
    /// use busbw_model::Load;
    /// let load = Load::named("tokens.txt", 2, |_| Ok("100 300".to_owned())).unwrap();
    /// assert_eq!((load.share(0, 0), load.share(0, 1)), (0.25, 0.75));
    /// ```
    pub fn named(
        named: &str,
        ranks: usize,
        text_of: impl FnOnce(&str) -> std::io::Result<String>,
    ) -> Result<Load, LoadError> {
        if let Some(shape) = Load::shape(named, ranks)? {
            return Ok(shape);
        }
        let text = text_of(named).map_err(|error| LoadError::NoFile(error.to_string()))?;
        Load::read(named.rsplit('/').next().unwrap_or(named), &text, ranks)
    }

    /// A shape by its name, `W2`.
    ///
    /// # Errors
    /// There are too many ranks. None of the shapes has the name: `Ok(None)`.
    pub fn shape(name: &str, ranks: usize) -> Result<Option<Load>, LoadError> {
        let Some((known, _)) = SHAPES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) else {
            return Ok(None);
        };
        let at = |rank: usize| (rank as f64 + 0.5) / ranks as f64;
        let even = vec![1.0; ranks];
        // A part of the choices falls on the hot experts, the rest on all.
        let hot = |part: f64| -> Vec<f64> {
            (0..ranks).map(|rank| 1.0 - part + part * share_below(rank, ranks, HOT) / HOT).collect()
        };
        let (from, to): (Vec<f64>, Vec<f64>) = match *known {
            "W1" | "W2" | "W6" => (even, hot(0.75)),
            "W4" => ((0..ranks).map(|rank| 2.0 * at(rank)).collect(), even),
            "W5" => (even, (0..ranks).map(|rank| 2.0 * (1.0 - share_below(rank, ranks, 0.5))).collect()),
            "W7" => (even, hot(0.5)),
            _ => (even.clone(), even),
        };
        Load::of(known, &from, &to).map(Some)
    }

    /// Each rank sends as much to each.
    ///
    /// # Errors
    /// There are no ranks, or too many.
    pub fn even(ranks: usize) -> Result<Load, LoadError> {
        let even = vec![1.0; ranks];
        Load::of("W0", &even, &even)
    }

    /// Figures apart from each other by spaces, commas or lines: what each rank receives (or each expert, where all ranks have as
    /// many), or in a square what each rank sends (a line) to each.
    ///
    /// # Errors
    /// They are no amounts, or another number of them.
    pub fn read(name: &str, text: &str, ranks: usize) -> Result<Load, LoadError> {
        check_ranks(ranks)?;
        let lines = amounts(text)?;
        let is_square = ranks > 1 && lines.len() == ranks && lines.iter().all(|line| line.len() == ranks);
        let figures = lines.concat();
        match figures.len() {
            _ if is_square => Load::new(name, ranks, figures),
            count if count > 0 && ranks > 0 && count.is_multiple_of(ranks) => {
                let to: Vec<f64> = figures.chunks(count / ranks).map(|experts| experts.iter().sum()).collect();
                Load::of(name, &vec![1.0; ranks], &to)
            }
            figures => Err(LoadError::Count { figures, ranks }),
        }
    }

    /// All senders alike but for how much, and receivers.
    fn of(name: &str, from: &[f64], to: &[f64]) -> Result<Load, LoadError> {
        check_ranks(from.len())?;
        Load::new(name, from.len(), from.iter().flat_map(|from| to.iter().map(move |to| from * to)).collect())
    }

    fn new(name: &str, ranks: usize, mut shares: Vec<f64>) -> Result<Load, LoadError> {
        let total: f64 = shares.iter().sum();
        if total <= 0.0 || !total.is_finite() {
            return Err(LoadError::Empty);
        }
        shares.iter_mut().for_each(|share| *share *= ranks as f64 / total);
        Ok(Load { name: name.to_owned(), ranks, shares })
    }

    /// The shape's name, or the file's.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many ranks take part.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// What a rank sends to another, as a share of what a rank sends in the mean. A rank also keeps a part for itself.
    pub fn share(&self, from: usize, to: usize) -> f64 {
        self.shares[from * self.ranks + to]
    }

    /// What the busiest rank sends or receives, its own part included, over what a rank sends in the mean. nccl-tests counts sizes of
    /// alltoallv by the former (`src/alltoallv.cu` of 2.19.6), `--load` by the latter.
    pub fn busiest_buffer(&self) -> f64 {
        let sent = self.shares.chunks(self.ranks.max(1)).map(|row| row.iter().sum::<f64>());
        let received = (0..self.ranks).map(|to| self.shares.iter().skip(to).step_by(self.ranks).sum::<f64>());
        sent.chain(received).fold(0.0, f64::max)
    }

    /// Every pair of different ranks with its share: sender, receiver, share.
    pub fn pairs(&self) -> impl Iterator<Item = (usize, usize, f64)> {
        let ranks = self.ranks;
        let pairs = self.shares.iter().enumerate().map(move |(at, share)| (at / ranks, at % ranks, *share));
        pairs.filter(|(from, to, _)| from != to)
    }
}

/// The figures of each line that has some, apart from each other by spaces, commas or semicolons.
///
/// # Errors
/// A word is no amount: a number that is not negative.
pub fn amounts(text: &str) -> Result<Vec<Vec<f64>>, LoadError> {
    let amount = |line: usize, word: &str| {
        let amount = word.parse::<f64>().ok().filter(|amount| amount.is_finite() && *amount >= 0.0);
        amount.ok_or_else(|| LoadError::Figure { line, word: word.chars().take(20).collect() })
    };
    let figures = |(number, line): (usize, &str)| {
        let words = line.split(|c: char| c.is_whitespace() || c == ',' || c == ';').filter(|word| !word.is_empty());
        words.map(|word| amount(number, word)).collect::<Result<Vec<f64>, LoadError>>()
    };
    let lines = (1..).zip(text.lines()).map(figures).collect::<Result<Vec<_>, _>>()?;
    Ok(lines.into_iter().filter(|line| !line.is_empty()).collect())
}

fn check_ranks(ranks: usize) -> Result<(), LoadError> {
    if ranks > Load::MOST_RANKS { Err(LoadError::TooManyRanks(ranks)) } else { Ok(()) }
}

/// How much of a rank's experts is below a part of all.
fn share_below(rank: usize, ranks: usize, part: f64) -> f64 {
    (part * ranks as f64 - rank as f64).clamp(0.0, 1.0)
}

named! {
    /// Towards a rank or away from it.
    #[allow(missing_docs)]
    pub enum Direction {
        Sends = "sends",
        Receives = "receives",
    }
    /// `sends`, `receives`.
    name
}

impl Direction {
    /// The direction of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|direction| direction.name() == name)
    }
}

/// What each of several (ranks, hosts, NICs) sends and receives.
#[derive(Debug, Clone, PartialEq)]
pub struct Sums {
    sent: Vec<f64>,
    received: Vec<f64>,
}

/// The busiest of several.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peak {
    /// Which, from 0.
    pub at: usize,
    /// What it does most of.
    pub direction: Direction,
    /// How much it sends, or receives.
    pub amount: f64,
}

/// Amounts are sums of parts: what differs by less is the same.
const SAME: f64 = 1.0 + 1e-9;

impl Sums {
    /// Nothing, for each of `count`.
    pub fn none(count: usize) -> Self {
        Sums { sent: vec![0.0; count], received: vec![0.0; count] }
    }

    /// Adds what one sends to another.
    pub fn add(&mut self, from: usize, to: usize, amount: f64) {
        self.sent[from] += amount;
        self.received[to] += amount;
    }

    /// What each sends and receives.
    pub fn each(&self) -> impl Iterator<Item = (f64, f64)> {
        self.sent.iter().copied().zip(self.received.iter().copied())
    }

    /// The first of those that send or receive most; a receiver where as much is sent. `None` where there is nobody.
    pub fn peak(&self) -> Option<Peak> {
        let peak = |direction: Direction, amounts: &[f64]| {
            let each = amounts.iter().copied().enumerate();
            let (at, amount) = each.reduce(|best, next| if next.1 > best.1 * SAME { next } else { best })?;
            Some(Peak { at, direction, amount })
        };
        let (sent, received) = (peak(Direction::Sends, &self.sent)?, peak(Direction::Receives, &self.received)?);
        Some(if received.amount >= sent.amount / SAME { received } else { sent })
    }

    /// How much more the busiest moves than the busiest of an even exchange; 1 where that moves nothing.
    pub fn times(&self, even: &Sums) -> f64 {
        let amount = |sums: &Sums| sums.peak().map_or(0.0, |peak| peak.amount);
        let even = amount(even);
        if even > 0.0 { amount(self) / even } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_per_rank_per_expert_and_per_pair_are_read() {
        for (text, shares) in [
            ("0 3\n1 0", [0.0, 1.5, 0.5, 0.0]),
            ("1, 0, 0, 1, 1, 1", [0.25, 0.75, 0.25, 0.75]),
            ("1 3", [0.25, 0.75, 0.25, 0.75]),
            ("1;3\n\n", [0.25, 0.75, 0.25, 0.75]),
            // Four figures in one line are those of two experts per rank.
            ("1 0 1 2", [0.25, 0.75, 0.25, 0.75]),
            ("1\n0\n1\n2\n", [0.25, 0.75, 0.25, 0.75]),
        ] {
            assert_eq!(Load::read("x", text, 2).unwrap().shares, shares, "{text}");
        }
        for (text, error) in [
            ("1 2 3", "3 figures are no load of 2 ranks"),
            ("", "0 figures"),
            ("1 2\n1 many", "line 2: \"many\" is no amount"),
            ("-1 2", "line 1: \"-1\" is no amount"),
            ("0 0", "the load is zero"),
            ("1e308 1e308", "the load is zero, or too large"),
        ] {
            let said = Load::read("x", text, 2).unwrap_err().to_string();
            assert!(said.starts_with(error), "{text}: {said}");
        }
        assert_eq!(Load::read("x", "0 3\n1 0", 2).unwrap().busiest_buffer(), 1.5);
        assert!(matches!(Load::shape("W2", 5000), Err(LoadError::TooManyRanks(5000))));
        assert_eq!(Load::shape("W9", 16), Ok(None));
    }

    #[test]
    fn a_name_is_a_shape_or_a_file() {
        let none = |_: &str| Err(std::io::ErrorKind::NotFound.into());
        assert_eq!(Load::named("w2", 4, none).unwrap().name(), "W2");
        assert_eq!(Load::named("a/b.txt", 2, |_| Ok("1 2".into())).unwrap().name(), "b.txt");
        let error = Load::named("W9", 4, none).unwrap_err().to_string();
        assert!(error.starts_with("no shape (W0 to W7) and no file that can be read: "), "{error}");
    }

    #[test]
    fn what_each_sends_adds_up_to_one_in_the_mean() {
        for (name, _) in SHAPES {
            for ranks in [1, 2, 3, 8] {
                let load = Load::shape(name, ranks).unwrap().unwrap();
                let total: f64 = load.shares.iter().sum();
                assert!((total - ranks as f64).abs() < 1e-9, "{name} of {ranks} ranks");
            }
        }
    }

    #[test]
    fn the_busiest_receives_where_as_much_is_sent() {
        let mut sums = Sums::none(3);
        assert_eq!(sums.peak().map(|peak| peak.direction), Some(Direction::Receives));
        sums.add(0, 2, 2.0);
        sums.add(1, 2, 1.0);
        assert_eq!(sums.peak(), Some(Peak { at: 2, direction: Direction::Receives, amount: 3.0 }));
        sums.add(1, 0, 3.0);
        assert_eq!(sums.peak(), Some(Peak { at: 1, direction: Direction::Sends, amount: 4.0 }));
        assert_eq!(Sums::none(0).peak(), None);
    }
}
