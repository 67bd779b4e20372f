//! Who sends how much to whom in all-to-all-v: a pattern by distance, a matrix from a file, or the load of `--load`.

use crate::{Error, Result};
use busbw_model::{Load, amounts};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The pattern of all-to-all-v, from `--load`, else from nccl-tests' variables.
///
/// | variable | meaning | default |
/// |---|---|---|
/// | `NCCL_TESTS_ALLTOALLV_SPREAD` | 0 (all pairs alike) to 1 (a pair's bytes grow with the distance of its ranks) | 1 |
/// | `NCCL_TESTS_ALLTOALLV_MATRIX_FILE` | a square of bytes, row i what rank i sends; needs `-b` equal to `-e` | none |
/// | `NCCL_TESTS_ALLTOALLV_MATRIX_SCALE` | factor on the values of that file | 1 |
/// | `NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY` | 1: lines with every rank's bytes and bandwidth | 0 |
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    pattern: Pattern,
    /// Whether to print each rank's bytes and bandwidth.
    pub summary: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Pattern {
    /// From 0, where all pairs are alike, to 1, where a pair's bytes grow with the distance of its ranks.
    Spread(f64),
    Matrix(Matrix),
    /// Shares of the size.
    Load(Load),
}

/// Bytes from rank to rank.
#[derive(Debug, Clone, PartialEq)]
struct Matrix {
    file: String,
    size: usize,
    scale: f64,
    bytes: Vec<usize>,
}

impl Default for Traffic {
    fn default() -> Self {
        Traffic { pattern: Pattern::Spread(1.0), summary: false }
    }
}

/// Variables that say what ranks send, as `--load` does.
pub const PATTERNS: [&str; 2] = ["NCCL_TESTS_ALLTOALLV_MATRIX_FILE", "NCCL_TESTS_ALLTOALLV_SPREAD"];
/// What a pair of ranks exchanges is a multiple of this many bytes, as in the other tests.
const ALIGNMENT: usize = 16;

impl Traffic {
    /// Reads the variables of `NAME=VALUE` pairs, and the file that they name.
    ///
    /// # Errors
    /// A variable is no number, or the file cannot be read or is no square of numbers that are not negative.
    pub fn from_env(env: &[(String, String)]) -> Result<Self> {
        let value = |name: &str| env.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let number = |name: &'static str| {
            value(name).map_or(Ok(1.0), |text| {
                let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
                number.ok_or_else(|| Error::Setting(format!("{name}={text}: a number such as 0.5 is expected")))
            })
        };
        let spread = number("NCCL_TESTS_ALLTOALLV_SPREAD")?.clamp(0.0, 1.0);
        let scale = number("NCCL_TESTS_ALLTOALLV_MATRIX_SCALE")?.max(0.0);
        let summary = value("NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY").is_some_and(|text| text.trim() != "0");
        let matrix = value("NCCL_TESTS_ALLTOALLV_MATRIX_FILE").map(|file| {
            let text = std::fs::read_to_string(file)
                .map_err(|error| Error::Setting(format!("NCCL_TESTS_ALLTOALLV_MATRIX_FILE={file}: {error}")))?;
            Matrix::parse(file, &text, scale)
        });
        let pattern = matrix.transpose()?.map_or(Pattern::Spread(spread), Pattern::Matrix);
        Ok(Traffic { pattern, summary })
    }

    /// That of `--load`, among `nranks` ranks.
    pub fn from_load(named: &str, nranks: usize, env: &[(String, String)]) -> Result<Self> {
        let fail = |why: String| Error::flag("--load", named, why);
        if let Some((other, _)) = env.iter().find(|(name, _)| PATTERNS.contains(&name.as_str())) {
            return Err(fail(format!("and {other} both say what ranks send; leave one of them out")));
        }
        if nranks < 2 {
            return Err(fail("needs 2 ranks or more; start them with --np".to_owned()));
        }
        let load = Load::named(named, nranks, |file| std::fs::read_to_string(file));
        let load = load.map_err(|error| fail(error.to_string()))?;
        Ok(Traffic { pattern: Pattern::Load(load), ..Traffic::from_env(env)? })
    }

    pub fn load(&self) -> Option<&Load> {
        match &self.pattern {
            Pattern::Load(load) => Some(load),
            _ => None,
        }
    }

    /// What the load of `--load` is held against.
    pub fn even() -> Self {
        Traffic { pattern: Pattern::Spread(0.0), summary: false }
    }

    fn matrix(&self) -> Option<&Matrix> {
        match &self.pattern {
            Pattern::Matrix(matrix) => Some(matrix),
            _ => None,
        }
    }

    /// What ranks must have in common; nothing where they have it anyway.
    pub fn signature(&self) -> String {
        match &self.pattern {
            _ if *self == Traffic::default() => String::new(),
            Pattern::Load(load) => {
                let mut hasher = DefaultHasher::new();
                load.pairs().for_each(|(.., share)| share.to_bits().hash(&mut hasher));
                format!(" --load {} ({:x})", load.name(), hasher.finish())
            }
            _ => format!(" with {self:?}"),
        }
    }

    /// Whether a file says it, whatever the size of the sweep.
    pub fn is_matrix(&self) -> bool {
        self.matrix().is_some()
    }

    /// Bytes from rank i to rank j at `[i * nranks + j]`, for a rank that sends about `total` bytes in all.
    pub fn bytes(&self, nranks: usize, total: usize) -> Result<Vec<usize>> {
        let pairs = (0..nranks).flat_map(|i| (0..nranks).map(move |j| (i, j)));
        let matrix = match &self.pattern {
            Pattern::Spread(spread) => {
                let distance = |i: usize, j: usize| (j + nranks - i) % nranks;
                return Ok(pairs.map(|(i, j)| by_distance(*spread, distance(i, j), nranks, total)).collect());
            }
            Pattern::Load(load) => {
                let bytes = |share: f64| (share * total as f64) as usize & !(ALIGNMENT - 1);
                return Ok(pairs.map(|(i, j)| bytes(load.share(i, j))).collect());
            }
            Pattern::Matrix(matrix) => matrix,
        };
        if nranks > matrix.size {
            return Err(Error::Setting(format!(
                "NCCL_TESTS_ALLTOALLV_MATRIX_FILE={}: {nranks} ranks need at least as many rows, the file has {}",
                matrix.file, matrix.size
            )));
        }
        Ok(pairs.map(|(i, j)| matrix.bytes[i * matrix.size + j]).collect())
    }

    /// What buffers must hold for sizes up to `max`: with `--load`, the busiest rank moves more than the size.
    pub fn buffer_bytes(&self, max: u64, nranks: usize) -> Result<u64> {
        if self.load().is_none() {
            return Ok(max);
        }
        Ok(busiest(&self.bytes(nranks, max as usize)?, nranks).max(max))
    }

    /// Whether the sweep of `min` to `max` bytes can follow the pattern.
    ///
    /// # Errors
    /// A matrix has one size: `-b` and `-e` must be equal and not smaller than what the busiest rank sends or receives.
    pub fn check_sizes(&self, min: u64, max: u64, nranks: usize) -> Result<()> {
        let Some(Matrix { file, .. }) = self.matrix() else { return Ok(()) };
        if min != max {
            return Err(Error::Setting(format!(
                "NCCL_TESTS_ALLTOALLV_MATRIX_FILE={file} has one size: give -b and -e the same value, not {min} and {max}"
            )));
        }
        let needed = self.matrix_bytes(nranks)?;
        if max < needed {
            return Err(Error::Setting(format!(
                "NCCL_TESTS_ALLTOALLV_MATRIX_FILE={file}: a rank moves {needed} bytes; give at least that with -b and -e"
            )));
        }
        Ok(())
    }

    /// Whether buffers of `max` bytes, which the memory here allows, hold what the busiest rank sends or receives by a matrix.
    /// Sweeps without one end earlier where memory does.
    pub fn check_memory(&self, max: u64, nranks: usize) -> Result<()> {
        let needed = self.matrix_bytes(nranks)?;
        match self.matrix() {
            Some(Matrix { file, .. }) if max < needed => Err(Error::Setting(format!(
                "NCCL_TESTS_ALLTOALLV_MATRIX_FILE={file}: a rank moves {needed} bytes, and its memory allows buffers of {max}; \
                 give a smaller NCCL_TESTS_ALLTOALLV_MATRIX_SCALE, or start fewer ranks on each host"
            ))),
            _ => Ok(()),
        }
    }

    /// Bytes that the busiest rank sends or receives by the matrix; 0 without one.
    fn matrix_bytes(&self, nranks: usize) -> Result<u64> {
        if self.matrix().is_none() {
            return Ok(0);
        }
        Ok(busiest(&self.bytes(nranks, 0)?, nranks))
    }

    /// The mode that the summary of nccl-tests names.
    pub fn mode(&self, nranks: usize, total_bytes: usize) -> String {
        match &self.pattern {
            Pattern::Spread(spread) => {
                format!("mode=generated nranks={nranks} total_bytes={total_bytes} spread={spread:.3}")
            }
            Pattern::Load(load) => format!("mode=load nranks={nranks} total_bytes={total_bytes} load={}", load.name()),
            Pattern::Matrix(matrix) => {
                format!("mode=matrix nranks={nranks} matrix_dim={} scale={:.3}", matrix.size, matrix.scale)
            }
        }
    }
}

fn by_distance(spread: f64, distance: usize, nranks: usize, total: usize) -> usize {
    if nranks == 1 {
        return total & !(ALIGNMENT - 1);
    }
    let distances = (nranks * (nranks - 1) / 2) as f64;
    let even = total as f64 / nranks as f64;
    let uneven = distance as f64 * total as f64 / distances;
    ((1.0 - spread) * even + spread * uneven) as usize & !(ALIGNMENT - 1)
}

/// Bytes that the busiest rank sends or receives, its own part included.
fn busiest(bytes: &[usize], nranks: usize) -> u64 {
    // Saturate: the sum of an absurd matrix must not wrap around to a small number.
    let sum = |sum: u64, bytes: &usize| sum.saturating_add(*bytes as u64);
    let sent = bytes.chunks(nranks).map(|row| row.iter().fold(0, sum));
    let received = (0..nranks).map(|rank| bytes.iter().skip(rank).step_by(nranks).fold(0, sum));
    sent.chain(received).max().unwrap_or(0)
}

impl Matrix {
    fn parse(file: &str, text: &str, scale: f64) -> Result<Self> {
        let fail = |what: String| Error::Setting(format!("NCCL_TESTS_ALLTOALLV_MATRIX_FILE={file}: {what}"));
        let lines = amounts(text).map_err(|error| fail(error.to_string()))?;
        let (rows, size) = (lines.len(), lines.first().map_or(0, Vec::len));
        if let Some((row, line)) = lines.iter().enumerate().find(|(_, line)| line.len() != size) {
            let (row, columns) = (row + 1, line.len());
            return Err(fail(format!("row {row} has {columns} values, the rows before have {size}")));
        }
        if rows == 0 || rows != size {
            return Err(fail(format!("{rows} rows of {size} values; a row and a column per rank are expected")));
        }
        let bytes = |value: f64| match value * scale {
            bytes if bytes < usize::MAX as f64 => Ok(bytes as usize & !(ALIGNMENT - 1)),
            _ => Err(fail(format!("{value} times {scale} is too large"))),
        };
        let bytes = lines.concat().into_iter().map(bytes).collect::<Result<_>>()?;
        Ok(Matrix { file: file.to_string(), size, scale, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    #[test]
    fn bytes_grow_with_the_distance() {
        let traffic = Traffic::default();
        assert_eq!(traffic.bytes(3, 480).unwrap(), [0, 160, 320, 320, 0, 160, 160, 320, 0]);
        assert_eq!(traffic.bytes(1, 100).unwrap(), [96]);
        let even = Traffic::from_env(&env(&[("NCCL_TESTS_ALLTOALLV_SPREAD", "0")])).unwrap();
        assert_eq!(even.bytes(2, 64).unwrap(), [32; 4]);
    }

    #[test]
    fn a_matrix_is_a_square_of_bytes() {
        let matrix = Matrix::parse("m", "0 100\n\n 33 0\n", 2.0).unwrap();
        assert_eq!((matrix.size, matrix.bytes), (2, vec![0, 192, 64, 0]));
        let cases = [
            ("", "0 rows of 0 values"),
            ("1 2\n3", "row 2 has 1 values, the rows before have 2"),
            ("1 2\n", "1 rows of 2 values"),
            ("1 x\n1 1", "line 1: \"x\" is no amount"),
            ("-1", "line 1: \"-1\" is no amount"),
            ("1e300", "too large"),
        ];
        for (text, says) in cases {
            let error = Matrix::parse("m", text, 1.0).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_matrix_fixes_the_size() {
        let traffic =
            Traffic { pattern: Pattern::Matrix(Matrix::parse("m", "0 160\n80 0", 1.0).unwrap()), ..Default::default() };
        assert!(traffic.check_sizes(160, 160, 2).is_ok());
        assert!(traffic.check_sizes(80, 160, 2).unwrap_err().to_string().contains("the same value"));
        assert!(traffic.check_sizes(144, 144, 2).unwrap_err().to_string().contains("moves 160 bytes"));
        assert!(traffic.bytes(3, 0).unwrap_err().to_string().contains("3 ranks"));
        let huge = Matrix::parse("m", &"9e18 9e18 9e18\n".repeat(3), 1.0).unwrap();
        let traffic = Traffic { pattern: Pattern::Matrix(huge), ..Default::default() };
        let error = traffic.check_sizes(1 << 63, 1 << 63, 3).unwrap_err().to_string();
        assert!(error.contains("moves 18446744073709551615"), "{error}");
    }

    #[test]
    fn a_load_is_a_share_of_the_size() {
        let traffic = Traffic::from_load("W1", 4, &[]).unwrap();
        let bytes = traffic.bytes(4, 1024).unwrap();
        assert_eq!(bytes[..4], [832, 64, 64, 64]);
        assert_eq!((busiest(&bytes, 4), traffic.buffer_bytes(1024, 4).unwrap()), (3328, 3328));
        assert_eq!(Traffic::even().bytes(4, 1024).unwrap(), [256; 16]);
        assert_eq!(Traffic::default().buffer_bytes(1024, 4).unwrap(), 1024);
        let other = Traffic::from_load("W5", 4, &[]).unwrap();
        assert_ne!(traffic.signature(), other.signature());
    }

    #[test]
    fn what_is_no_load_is_refused() {
        let spread = [("NCCL_TESTS_ALLTOALLV_SPREAD", "0")];
        for (named, ranks, variables, says) in [
            ("W9", 4, &[][..], "--load W9: no shape (W0 to W7) and no file that can be read"),
            ("W1", 1, &[], "--load W1: needs 2 ranks or more"),
            ("W1", 4, &spread, "--load W1: and NCCL_TESTS_ALLTOALLV_SPREAD both say what ranks send"),
        ] {
            let error = Traffic::from_load(named, ranks, &env(variables)).unwrap_err().to_string();
            assert!(error.starts_with(says), "{error}");
        }
    }

    #[test]
    fn variables_that_are_no_numbers_are_refused() {
        let error = Traffic::from_env(&env(&[("NCCL_TESTS_ALLTOALLV_SPREAD", "much")])).unwrap_err();
        assert!(error.to_string().starts_with("NCCL_TESTS_ALLTOALLV_SPREAD=much"), "{error}");
        let error = Traffic::from_env(&env(&[("NCCL_TESTS_ALLTOALLV_MATRIX_FILE", "/no/such")])).unwrap_err();
        assert!(error.to_string().contains("/no/such"), "{error}");
    }
}
