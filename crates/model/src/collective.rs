//! Collectives, datatypes and reductions, and the factor that turns algbw into busbw.

use crate::units::GBps;

named! {
    /// A collective operation as nccl-tests names and measures it.
    #[allow(missing_docs)] // the names are NCCL's own
    pub enum Collective {
        AllReduce = "all_reduce",
        AllGather = "all_gather",
        ReduceScatter = "reduce_scatter",
        AllToAll = "alltoall",
        AllToAllV = "alltoallv",
        Broadcast = "broadcast",
        Reduce = "reduce",
        SendRecv = "sendrecv",
        Gather = "gather",
        Scatter = "scatter",
        HyperCube = "hypercube",
    }
    /// The name without `_perf`: `all_reduce`, `alltoall` …
    name
}

impl Collective {
    /// Reads a name as people, nccl-tests and NCCL write it: `all_reduce`, `all_reduce_perf`, `AllReduce`, `allreduce`.
    /// Case, `_`, `-` and a trailing `perf` do not matter; a name that is no collective gives `None`.
    ///
    /// ```
    /// use busbw_model::Collective;
    /// assert_eq!(Collective::from_name("all_reduce_perf"), Some(Collective::AllReduce));
    /// assert_eq!(Collective::from_name("AlltoAll"), Some(Collective::AllToAll));
    /// assert_eq!(Collective::from_name("all_confuse"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<Self> {
        let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
        let plain = plain.strip_suffix("perf").unwrap_or(&plain);
        Self::ALL.into_iter().find(|c| c.name().replace('_', "") == plain)
    }

    /// The factor by which busbw exceeds algbw for `nranks` ranks, so that busbw can be compared with the hardware
    /// whatever the number of ranks. With n ranks: 2(n-1)/n for all-reduce; (n-1)/n for all-gather, reduce-scatter,
    /// all-to-all, gather and scatter; 1 for broadcast, reduce, send-receive and hypercube.
    ///
    /// Source: the `*GetBw` functions of nccl-tests 2.19.6 (`src/all_reduce.cu`, `src/alltoall.cu` …) and its
    /// `doc/PERFORMANCE.md`. Zero and one rank give the factor 0 where the formula does.
    ///
    /// ```
    /// use busbw_model::Collective;
    /// assert_eq!(Collective::AllReduce.busbw_factor(16), 1.875);
    /// assert_eq!(Collective::AllGather.busbw_factor(16), 0.9375);
    /// assert_eq!(Collective::Broadcast.busbw_factor(16), 1.0);
    /// ```
    pub fn busbw_factor(self, nranks: u32) -> f64 {
        let n = f64::from(nranks.max(1));
        match self {
            Collective::AllReduce => 2.0 * (n - 1.0) / n,
            Collective::AllGather
            | Collective::ReduceScatter
            | Collective::AllToAll
            | Collective::AllToAllV
            | Collective::Gather
            | Collective::Scatter => (n - 1.0) / n,
            Collective::Broadcast | Collective::Reduce | Collective::SendRecv | Collective::HyperCube => 1.0,
        }
    }

    /// Whether it adds up (or multiplies, compares) what ranks give.
    pub fn reduces(self) -> bool {
        matches!(self, Collective::AllReduce | Collective::Reduce | Collective::ReduceScatter)
    }

    /// Whether one rank, the root, gives or gets all.
    pub fn has_root(self) -> bool {
        matches!(self, Collective::Broadcast | Collective::Reduce | Collective::Gather | Collective::Scatter)
    }

    /// The busbw of an algbw over `nranks` ranks.
    pub fn busbw(self, algbw: GBps, nranks: u32) -> GBps {
        GBps(algbw.0 * self.busbw_factor(nranks))
    }
}

named! {
    /// The type of one element, named as nccl-tests prints it (`test_typenames` in its `src/common.cu`).
    #[allow(missing_docs)] // the names are NCCL's own
    pub enum Datatype {
        Int8 = "int8",
        Uint8 = "uint8",
        Int32 = "int32",
        Uint32 = "uint32",
        Int64 = "int64",
        Uint64 = "uint64",
        Half = "half",
        Float = "float",
        Double = "double",
        Bfloat16 = "bfloat16",
        F8e4m3 = "f8e4m3",
        F8e5m2 = "f8e5m2",
    }
    /// nccl-tests' present name of the datatype.
    name
}

impl Datatype {
    /// Reads nccl-tests' name of a datatype, those of old versions (`char`, `int`, `bf16`, `fp8_e4m3`) included.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|datatype| datatype.name() == name).or(match name {
            "char" => Some(Datatype::Int8),
            "int" => Some(Datatype::Int32),
            "float16" => Some(Datatype::Half),
            "float32" => Some(Datatype::Float),
            "float64" => Some(Datatype::Double),
            "bf16" => Some(Datatype::Bfloat16),
            "fp8_e4m3" | "fp8e4m3" => Some(Datatype::F8e4m3),
            "fp8_e5m2" | "fp8e5m2" => Some(Datatype::F8e5m2),
            _ => None,
        })
    }

    /// Bytes of one element.
    pub fn size(self) -> u64 {
        match self {
            Datatype::Int8 | Datatype::Uint8 | Datatype::F8e4m3 | Datatype::F8e5m2 => 1,
            Datatype::Half | Datatype::Bfloat16 => 2,
            Datatype::Int32 | Datatype::Uint32 | Datatype::Float => 4,
            Datatype::Int64 | Datatype::Uint64 | Datatype::Double => 8,
        }
    }
}

named! {
    /// The reduction of a collective, named as nccl-tests prints it (`test_opnames` in its `src/common.cu`).
    /// A collective without a reduction has none; a table shows that as `none` or as an empty cell.
    #[allow(missing_docs)] // the names are NCCL's own
    pub enum RedOp {
        Sum = "sum",
        Prod = "prod",
        Max = "max",
        Min = "min",
        Avg = "avg",
        MulSum = "mulsum",
    }
    /// nccl-tests' name of the reduction.
    name
}

impl RedOp {
    /// Reads nccl-tests' name of a reduction; `none` and unknown names give `None`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_collective_reads_its_own_name_back() {
        for collective in Collective::ALL {
            assert_eq!(Collective::from_name(collective.name()), Some(collective));
            assert_eq!(Collective::from_name(&format!("{}_perf", collective.name())), Some(collective));
        }
    }

    #[test]
    fn rooted_and_reducing_ones_are_told_apart() {
        let all = |holds: fn(Collective) -> bool| {
            Collective::ALL.into_iter().filter(move |c| holds(*c)).map(Collective::name)
        };
        assert!(all(Collective::reduces).eq(["all_reduce", "reduce_scatter", "reduce"]));
        assert!(all(Collective::has_root).eq(["broadcast", "reduce", "gather", "scatter"]));
    }

    #[test]
    fn factors_are_those_of_nccl_tests() {
        let cases = [
            (Collective::AllReduce, 2, 1.0),
            (Collective::AllReduce, 8, 1.75),
            (Collective::ReduceScatter, 4, 0.75),
            (Collective::AllToAll, 2, 0.5),
            (Collective::Gather, 4, 0.75),
            (Collective::SendRecv, 64, 1.0),
            (Collective::AllGather, 1, 0.0),
            (Collective::AllReduce, 0, 0.0),
        ];
        for (collective, nranks, factor) in cases {
            assert_eq!(collective.busbw_factor(nranks), factor, "{collective} over {nranks}");
        }
    }
}
