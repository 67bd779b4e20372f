//! The sizes of a predicted table, by the flags of nccl-tests.

use busbw_model::Bytes;
use clap::Args;

/// More sizes than this are a mistake in the flags, not a table that anybody reads.
const MOST: u64 = 10_000;
/// nccl-tests' step where neither `-f` nor `-i` is given a meaning (`stepBytes` in its `src/common.cu`).
const STEP: Bytes = Bytes(1 << 20);

/// Sizes to predict; the flags are those of nccl-tests.
#[derive(Debug, Clone, Args)]
pub struct Sizes {
    /// Smallest size in bytes; K, M and G are binary [default: 8]
    #[arg(short = 'b', long = "minbytes", value_name = "SIZE", help_heading = "Sizes")]
    smallest: Option<Bytes>,

    /// Largest size in bytes [default: 8G]
    #[arg(short = 'e', long = "maxbytes", value_name = "SIZE", help_heading = "Sizes")]
    largest: Option<Bytes>,

    /// Factor from one size to the next; 1 is off [default: 2]
    #[arg(short = 'f', long = "stepfactor", value_name = "N", conflicts_with = "step", help_heading = "Sizes")]
    factor: Option<u32>,

    /// Bytes added from one size to the next, if -f is not given [default: 1M]
    #[arg(short = 'i', long = "stepbytes", value_name = "SIZE", help_heading = "Sizes")]
    step: Option<Bytes>,
}

impl Sizes {
    /// The sizes, the smallest first. A flag alone sets its end: `-b 1G` goes on to 8 GiB, `-b 16G` is one size.
    pub fn list(&self) -> Result<Vec<Bytes>, String> {
        let smallest = self.smallest.unwrap_or_else(|| Bytes(8).min(self.largest.unwrap_or(Bytes(8))));
        let largest = self.largest.unwrap_or_else(|| Bytes(8 << 30).max(smallest));
        if smallest > largest {
            return Err(format!("-b {} is above -e {}; exchange them", smallest.0, largest.0));
        }
        if smallest.0 == 0 {
            return Err("-b 0: nothing is sent; begin with 1 or more".into());
        }
        let factor = match self.step {
            Some(_) => 1,
            None => u64::from(self.factor.unwrap_or(2)),
        };
        let step = self.step.unwrap_or(STEP);
        if factor <= 1 && step.0 == 0 {
            return Err("-i 0 never reaches -e; give a step of 1 or more".into());
        }
        let next = move |size: &u64| if factor > 1 { size.checked_mul(factor) } else { size.checked_add(step.0) };
        if factor <= 1 && (largest.0 - smallest.0) / step.0 >= MOST {
            let count = (largest.0 - smallest.0) / step.0 + 1;
            return Err(format!("{count} sizes are too many; choose a larger step with -i, or a factor with -f"));
        }
        Ok(std::iter::successors(Some(smallest.0), next).take_while(|size| *size <= largest.0).map(Bytes).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        sizes: Sizes,
    }

    fn list(flags: &str) -> Result<Vec<u64>, String> {
        let command = Command::try_parse_from(std::iter::once("busbw").chain(flags.split_whitespace()));
        let sizes = command.map_err(|e| e.to_string())?.sizes.list()?;
        Ok(sizes.into_iter().map(|size| size.0).collect())
    }

    #[test]
    fn sizes_are_those_that_nccl_tests_would_measure() {
        let cases: [(&str, &[u64]); 7] = [
            ("-b 8 -e 64 -f 2", &[8, 16, 32, 64]),
            ("-b 1K -e 1M -f 32", &[1024, 32768, 1 << 20]),
            ("-b 1000 -e 4000 -f 3", &[1000, 3000]),
            ("-b 512 -e 2K -i 512", &[512, 1024, 1536, 2048]),
            ("-b 1M -e 3M -f 1", &[1 << 20, 2 << 20, 3 << 20]),
            ("--minbytes 16G", &[16 << 30]),
            ("-e 4", &[4]),
        ];
        for (flags, sizes) in cases {
            assert_eq!(list(flags).as_deref(), Ok(sizes), "{flags}");
        }
        let default = list("").unwrap();
        assert_eq!((default.len(), default.first(), default.last()), (31, Some(&8), Some(&(8 << 30))));
    }

    #[test]
    fn sizes_that_make_no_table_are_refused() {
        for (flags, says) in [
            ("-b 2M -e 1M", "exchange them"),
            ("-b 0", "begin with 1 or more"),
            ("-i 0", "a step of 1 or more"),
            ("-b 8 -e 8G -i 8", "choose a larger step"),
            ("-b fast", "not a size"),
            ("-f 2 -i 8", "cannot be used with"),
        ] {
            let error = list(flags).unwrap_err();
            assert!(error.contains(says), "{flags}: {error}");
        }
    }
}
