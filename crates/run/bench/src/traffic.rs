//! Who sends how much to whom in all-to-all-v: a pattern by distance, or a matrix from a file.

use crate::{Error, Result};

/// The pattern of all-to-all-v, from nccl-tests' variables.
///
/// | variable | meaning | default |
/// |---|---|---|
/// | `NCCL_TESTS_ALLTOALLV_SPREAD` | 0 (all pairs alike) to 1 (a pair's bytes grow with the distance of its ranks) | 1 |
/// | `NCCL_TESTS_ALLTOALLV_MATRIX_FILE` | a square of bytes, row i what rank i sends; needs `-b` equal to `-e` | none |
/// | `NCCL_TESTS_ALLTOALLV_MATRIX_SCALE` | factor on the values of that file | 1 |
/// | `NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY` | 1: lines with every rank's bytes and bandwidth | 0 |
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    spread: f64,
    matrix: Option<Matrix>,
    /// Whether to print each rank's bytes and bandwidth.
    pub summary: bool,
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
        Traffic { spread: 1.0, matrix: None, summary: false }
    }
}

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
        Ok(Traffic { spread, matrix: matrix.transpose()?, summary })
    }

    /// What ranks must have in common; nothing where they have it anyway.
    pub fn signature(&self) -> String {
        if *self == Traffic::default() { String::new() } else { format!(" with {self:?}") }
    }

    /// Whether a file says it, whatever the size of the sweep.
    pub fn is_matrix(&self) -> bool {
        self.matrix.is_some()
    }

    /// Bytes from rank i to rank j at `[i * nranks + j]`, for a rank that sends about `total` bytes in all.
    ///
    /// # Errors
    /// The matrix is smaller than the number of ranks.
    pub fn bytes(&self, nranks: usize, total: usize) -> Result<Vec<usize>> {
        let pairs = (0..nranks).flat_map(|i| (0..nranks).map(move |j| (i, j)));
        let Some(matrix) = &self.matrix else {
            return Ok(pairs.map(|(i, j)| self.by_distance((j + nranks - i) % nranks, nranks, total)).collect());
        };
        if nranks > matrix.size {
            return Err(Error::Setting(format!(
                "NCCL_TESTS_ALLTOALLV_MATRIX_FILE={}: {nranks} ranks need at least as many rows, the file has {}",
                matrix.file, matrix.size
            )));
        }
        Ok(pairs.map(|(i, j)| matrix.bytes[i * matrix.size + j]).collect())
    }

    fn by_distance(&self, distance: usize, nranks: usize, total: usize) -> usize {
        if nranks == 1 {
            return total & !(ALIGNMENT - 1);
        }
        let distances = (nranks * (nranks - 1) / 2) as f64;
        let even = total as f64 / nranks as f64;
        let uneven = distance as f64 * total as f64 / distances;
        ((1.0 - self.spread) * even + self.spread * uneven) as usize & !(ALIGNMENT - 1)
    }

    /// Whether the sweep of `min` to `max` bytes can follow the pattern.
    ///
    /// # Errors
    /// A matrix has one size: `-b` and `-e` must be equal and not smaller than what the busiest rank sends or receives.
    pub fn check_sizes(&self, min: u64, max: u64, nranks: usize) -> Result<()> {
        let Some(Matrix { file, .. }) = &self.matrix else { return Ok(()) };
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
    ///
    /// # Errors
    /// They do not.
    pub fn check_memory(&self, max: u64, nranks: usize) -> Result<()> {
        let needed = self.matrix_bytes(nranks)?;
        match &self.matrix {
            Some(Matrix { file, .. }) if max < needed => Err(Error::Setting(format!(
                "NCCL_TESTS_ALLTOALLV_MATRIX_FILE={file}: a rank moves {needed} bytes, and its memory allows buffers of {max}; \
                 give a smaller NCCL_TESTS_ALLTOALLV_MATRIX_SCALE, or start fewer ranks on each host"
            ))),
            _ => Ok(()),
        }
    }

    /// Bytes that the busiest rank sends or receives by the matrix; 0 without one.
    fn matrix_bytes(&self, nranks: usize) -> Result<u64> {
        if self.matrix.is_none() {
            return Ok(0);
        }
        let bytes = self.bytes(nranks, 0)?;
        // Saturate: the sum of an absurd matrix must not wrap around to a small number.
        let sum = |sum: u64, bytes: &usize| sum.saturating_add(*bytes as u64);
        let sent = bytes.chunks(nranks).map(|row| row.iter().fold(0, sum));
        let received = (0..nranks).map(|rank| bytes.iter().skip(rank).step_by(nranks).fold(0, sum));
        Ok(sent.chain(received).max().unwrap_or(0))
    }

    /// The mode that the summary of nccl-tests names.
    pub fn mode(&self, nranks: usize, total_bytes: usize) -> String {
        match &self.matrix {
            None => {
                format!("mode=generated nranks={nranks} total_bytes={total_bytes} spread={:.3}", self.spread)
            }
            Some(matrix) => {
                format!("mode=matrix nranks={nranks} matrix_dim={} scale={:.3}", matrix.size, matrix.scale)
            }
        }
    }
}

impl Matrix {
    fn parse(file: &str, text: &str, scale: f64) -> Result<Self> {
        let fail = |what: String| Error::Setting(format!("NCCL_TESTS_ALLTOALLV_MATRIX_FILE={file}: {what}"));
        let mut bytes = Vec::new();
        let mut rows = 0;
        let mut size = 0;
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let before = bytes.len();
            for word in line.split_ascii_whitespace() {
                let value = word.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
                let value =
                    value.ok_or_else(|| fail(format!("line {}: {word} is not a number of bytes", number + 1)))? * scale;
                if value >= usize::MAX as f64 {
                    return Err(fail(format!("line {}: {word} times {scale} is too large", number + 1)));
                }
                bytes.push(value as usize & !(ALIGNMENT - 1));
            }
            let columns = bytes.len() - before;
            if rows == 0 {
                size = columns;
            }
            if columns != size {
                return Err(fail(format!("line {} has {columns} values, the lines before have {size}", number + 1)));
            }
            rows += 1;
        }
        if rows == 0 || rows != size {
            return Err(fail(format!("{rows} rows of {size} values; a row and a column per rank are expected")));
        }
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
            ("1 2\n3", "line 2 has 1 values, the lines before have 2"),
            ("1 2\n", "1 rows of 2 values"),
            ("1 x\n1 1", "line 1: x is not a number of bytes"),
            ("-1", "line 1: -1 is not a number of bytes"),
            ("1e300", "too large"),
        ];
        for (text, says) in cases {
            let error = Matrix::parse("m", text, 1.0).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_matrix_fixes_the_size() {
        let traffic = Traffic { matrix: Some(Matrix::parse("m", "0 160\n80 0", 1.0).unwrap()), ..Default::default() };
        assert!(traffic.check_sizes(160, 160, 2).is_ok());
        assert!(traffic.check_sizes(80, 160, 2).unwrap_err().to_string().contains("the same value"));
        assert!(traffic.check_sizes(144, 144, 2).unwrap_err().to_string().contains("moves 160 bytes"));
        assert!(traffic.bytes(3, 0).unwrap_err().to_string().contains("3 ranks"));
        let huge = Matrix::parse("m", &"9e18 9e18 9e18\n".repeat(3), 1.0).unwrap();
        let traffic = Traffic { matrix: Some(huge), ..Default::default() };
        let error = traffic.check_sizes(1 << 63, 1 << 63, 3).unwrap_err().to_string();
        assert!(error.contains("moves 18446744073709551615"), "{error}");
    }

    #[test]
    fn variables_that_are_no_numbers_are_refused() {
        let error = Traffic::from_env(&env(&[("NCCL_TESTS_ALLTOALLV_SPREAD", "much")])).unwrap_err();
        assert!(error.to_string().starts_with("NCCL_TESTS_ALLTOALLV_SPREAD=much"), "{error}");
        let error = Traffic::from_env(&env(&[("NCCL_TESTS_ALLTOALLV_MATRIX_FILE", "/no/such")])).unwrap_err();
        assert!(error.to_string().contains("/no/such"), "{error}");
    }
}
