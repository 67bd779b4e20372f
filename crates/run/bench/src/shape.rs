//! How large the buffers of a collective are for a size of the sweep, and where its ranks find their parts in place.

use crate::Result;
use crate::traffic::Traffic;
use busbw_model::{Collective, Datatype};

/// Bytes and elements of one collective at one size (the `*GetCollByteCount` functions of nccl-tests' `src/*.cu`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Elements as the collective's function of NCCL counts them, and as the table shows them.
    pub count: usize,
    /// Bytes that a rank gives.
    pub send_bytes: usize,
    /// Bytes that a rank gets.
    pub receive_bytes: usize,
    /// In place, rank r gives what lies at r times this in the receive buffer.
    pub send_offset: usize,
    /// In place, rank r's result lies at r times this in the receive buffer.
    pub receive_offset: usize,
    /// With `--load`, bytes that a rank gives in the mean: the size that the table shows.
    pub mean_bytes: Option<usize>,
    /// For all-to-all-v: elements from rank i to rank j at `[i * nranks + j]`.
    pub counts: Vec<usize>,
}

impl Shape {
    /// The shape for `size` bytes among `nranks` ranks. Where every rank has its part, parts are a multiple of 16
    /// bytes.
    pub fn new(
        collective: Collective,
        datatype: Datatype,
        size: usize,
        nranks: usize,
        traffic: &Traffic,
    ) -> Result<Self> {
        let element = datatype.size() as usize;
        let whole = size / element;
        let part = (whole / nranks) & !(16 / element - 1);
        let all = part * nranks;
        let (count, send, receive, send_offset, receive_offset) = match collective {
            Collective::AllReduce | Collective::Broadcast | Collective::Reduce | Collective::SendRecv => {
                (whole, whole, whole, 0, 0)
            }
            Collective::AllGather | Collective::Gather | Collective::HyperCube => (part, part, all, part, 0),
            Collective::ReduceScatter | Collective::Scatter => (part, all, part, 0, part),
            Collective::AllToAll => (part, all, all, 0, 0),
            Collective::AllToAllV => return Self::uneven(part * element, element, nranks, traffic),
        };
        Ok(Shape {
            count,
            send_bytes: send * element,
            receive_bytes: receive * element,
            send_offset: send_offset * element,
            receive_offset: receive_offset * element,
            mean_bytes: None,
            counts: Vec::new(),
        })
    }

    /// The lines of `NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY`: what each rank moves, and how fast when it takes `seconds`.
    pub fn summary_lines(&self, traffic: &Traffic, element: usize, nranks: usize, seconds: f64) -> Vec<String> {
        let sent = |i: usize| self.counts[i * nranks..][..nranks].iter().sum::<usize>() * element;
        let received = |j: usize| self.counts.iter().skip(j).step_by(nranks).sum::<usize>() * element;
        let mode = traffic.mode(nranks, self.count * nranks * element);
        let mut lines = vec![format!("# NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY: {mode} time_usec={:.2}", seconds * 1e6)];
        lines.extend((0..nranks).map(|rank| {
            let (sent, received) = (sent(rank), received(rank));
            let algbw = sent.max(received) as f64 / 1e9 / seconds;
            let busbw = algbw * (nranks - 1) as f64 / nranks as f64;
            format!("#   rank={rank} send_bytes={sent} recv_bytes={received} alg_bw={algbw:.2} bus_bw={busbw:.2}")
        }));
        lines
    }

    /// All-to-all-v: the buffers hold what the busiest rank gives, or gets.
    fn uneven(part_bytes: usize, element: usize, nranks: usize, traffic: &Traffic) -> Result<Self> {
        let counts: Vec<usize> =
            traffic.bytes(nranks, part_bytes * nranks)?.into_iter().map(|bytes| bytes / element).collect();
        let sent = (0..nranks).map(|i| counts[i * nranks..][..nranks].iter().sum::<usize>());
        let received = (0..nranks).map(|j| counts.iter().skip(j).step_by(nranks).sum::<usize>());
        Ok(Shape {
            count: if traffic.is_matrix() { 0 } else { part_bytes / element },
            send_bytes: sent.max().unwrap_or(0) * element,
            receive_bytes: received.max().unwrap_or(0) * element,
            send_offset: 0,
            receive_offset: 0,
            mean_bytes: traffic.load().map(|_| part_bytes * nranks),
            counts,
        })
    }

    /// The larger of the two buffers.
    pub fn buffer_bytes(&self) -> usize {
        self.send_bytes.max(self.receive_bytes)
    }

    /// The size that the table shows: the larger of the two buffers, but with `--load` what a rank gives in the mean, so that
    /// loads of one size move as much in all.
    pub fn bytes(&self) -> usize {
        self.mean_bytes.unwrap_or_else(|| self.buffer_bytes())
    }

    /// The bytes that algbw is made of (the `*GetBw` functions): the size, but for hypercube what a rank receives from
    /// others.
    pub fn moved_bytes(&self, collective: Collective) -> usize {
        match collective {
            Collective::HyperCube => self.receive_bytes - self.send_bytes,
            _ => self.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Count, send bytes, receive bytes and the two offsets.
    type Row = (usize, usize, usize, usize, usize);

    #[test]
    fn shapes_are_those_of_nccl_tests() {
        let cases: [(Collective, Datatype, usize, usize, Row); 13] = [
            (Collective::AllReduce, Datatype::Float, 1000, 3, (250, 1000, 1000, 0, 0)),
            (Collective::AllReduce, Datatype::Double, 7, 2, (0, 0, 0, 0, 0)),
            (Collective::Broadcast, Datatype::Half, 1001, 3, (500, 1000, 1000, 0, 0)),
            (Collective::Reduce, Datatype::Int8, 5, 4, (5, 5, 5, 0, 0)),
            (Collective::SendRecv, Datatype::Int64, 64, 4, (8, 64, 64, 0, 0)),
            (Collective::AllGather, Datatype::Float, 1000, 3, (80, 320, 960, 320, 0)),
            (Collective::Gather, Datatype::Int8, 1000, 3, (320, 320, 960, 320, 0)),
            (Collective::HyperCube, Datatype::Double, 1024, 4, (32, 256, 1024, 256, 0)),
            (Collective::ReduceScatter, Datatype::Float, 1000, 3, (80, 960, 320, 0, 320)),
            (Collective::Scatter, Datatype::Bfloat16, 1000, 3, (160, 960, 320, 0, 320)),
            (Collective::AllToAll, Datatype::Float, 1000, 3, (80, 960, 960, 0, 0)),
            (Collective::AllGather, Datatype::Float, 32, 4, (0, 0, 0, 0, 0)),
            // 160 bytes per pair, spread by distance 0, 1, 2 over 480: 0, 160, 320.
            (Collective::AllToAllV, Datatype::Float, 500, 3, (40, 480, 480, 0, 0)),
        ];
        for (collective, datatype, size, nranks, row) in cases {
            let shape = Shape::new(collective, datatype, size, nranks, &Traffic::default()).unwrap();
            let got = (shape.count, shape.send_bytes, shape.receive_bytes, shape.send_offset, shape.receive_offset);
            assert_eq!(got, row, "{collective} {size} over {nranks}");
        }
    }

    #[test]
    fn hypercube_counts_what_comes_from_others() {
        let shape = Shape::new(Collective::HyperCube, Datatype::Float, 1024, 4, &Traffic::default()).unwrap();
        assert_eq!((shape.bytes(), shape.moved_bytes(Collective::HyperCube)), (1024, 768));
        assert_eq!(shape.moved_bytes(Collective::AllGather), 1024);
    }
}
