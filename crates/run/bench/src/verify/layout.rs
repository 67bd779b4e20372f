//! What lies where before and after an operation (the `*InitData` functions of nccl-tests' `src/*.cu`).

use crate::shape::Shape;
use busbw_model::Collective;

/// Which data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// What this rank of those that copy has.
    From(usize),
    /// What the rank itself gives to a reduction.
    Given,
    Reduced,
    Zero,
}

impl Stream {
    /// Sets the data of those that copy apart; those of a reduction are its own.
    pub fn source(self) -> u64 {
        match self {
            Stream::From(rank) => 1 + rank as u64,
            Stream::Given | Stream::Reduced | Stream::Zero => 0,
        }
    }
}

/// Elements that follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    pub stream: Stream,
    /// From which of its elements on.
    pub start: usize,
    pub count: usize,
}

/// Whose buffers, in which operation.
#[derive(Debug, Clone, Copy)]
pub struct RankBuffers<'a> {
    pub collective: Collective,
    pub shape: &'a Shape,
    /// Bytes of an element.
    pub element: usize,
    pub rank: usize,
    pub nranks: usize,
    /// The root, for those collectives that have one.
    pub root: usize,
    /// Whether the operation is in place.
    pub in_place: bool,
}

impl RankBuffers<'_> {
    /// What the rank gives; nothing where it only gets.
    pub fn gives(&self) -> Vec<Part> {
        let count = self.shape.send_bytes / self.element;
        let is_root = self.rank == self.root;
        match self.collective {
            Collective::AllReduce | Collective::Reduce | Collective::ReduceScatter => {
                vec![Part { stream: Stream::Given, start: 0, count }]
            }
            Collective::Broadcast | Collective::Scatter if !is_root => Vec::new(),
            Collective::AllToAllV => {
                let row = &self.shape.counts[self.rank * self.nranks..][..self.nranks];
                vec![Part { stream: Stream::From(self.rank), start: 0, count: row.iter().sum() }]
            }
            _ => vec![Part { stream: Stream::From(self.rank), start: 0, count }],
        }
    }

    /// What the rank must find; `None` where the result in place means nothing (all-to-all, all-to-all-v,
    /// send-receive).
    pub fn expects(&self) -> Option<Vec<Part>> {
        let count = self.shape.receive_bytes / self.element;
        let (whole, part) = (|stream| vec![Part { stream, start: 0, count }], self.shape.count);
        let after = |stream, start| vec![Part { stream, start, count: part }];
        let is_root = self.rank == self.root;
        if self.in_place
            && matches!(self.collective, Collective::AllToAll | Collective::AllToAllV | Collective::SendRecv)
        {
            return None;
        }
        Some(match self.collective {
            Collective::AllReduce => whole(Stream::Reduced),
            Collective::Reduce if is_root => whole(Stream::Reduced),
            Collective::Reduce if self.in_place => whole(Stream::Given),
            Collective::Reduce => whole(Stream::Zero),
            Collective::Broadcast => whole(Stream::From(self.root)),
            Collective::ReduceScatter => after(Stream::Reduced, self.rank * part),
            Collective::AllGather | Collective::HyperCube => self.of_all(0),
            Collective::Gather if is_root => self.of_all(0),
            Collective::Gather => self.untouched_gather(),
            Collective::Scatter => after(Stream::From(self.root), self.rank * part),
            Collective::AllToAll => self.of_all(self.rank * part),
            Collective::SendRecv => whole(Stream::From((self.rank + self.nranks - 1) % self.nranks)),
            Collective::AllToAllV => self.uneven_of_all(),
        })
    }

    fn of_all(&self, start: usize) -> Vec<Part> {
        (0..self.nranks).map(|rank| Part { stream: Stream::From(rank), start, count: self.shape.count }).collect()
    }

    /// A rank that is not the root finds what it put there.
    fn untouched_gather(&self) -> Vec<Part> {
        let part = self.shape.count;
        let own = if self.in_place { Stream::From(self.rank) } else { Stream::Zero };
        vec![
            Part { stream: Stream::Zero, start: 0, count: self.rank * part },
            Part { stream: own, start: 0, count: part },
            Part { stream: Stream::Zero, start: 0, count: (self.nranks - 1 - self.rank) * part },
        ]
    }

    /// Behind what this rank gets, up to what the busiest gets, zeros stay.
    fn uneven_of_all(&self) -> Vec<Part> {
        let counts = &self.shape.counts;
        let mut parts: Vec<Part> = (0..self.nranks)
            .map(|source| {
                let row = &counts[source * self.nranks..][..self.nranks];
                Part { stream: Stream::From(source), start: row[..self.rank].iter().sum(), count: row[self.rank] }
            })
            .collect();
        let got: usize = parts.iter().map(|part| part.count).sum();
        parts.push(Part { stream: Stream::Zero, start: 0, count: self.shape.receive_bytes / self.element - got });
        parts
    }
}
