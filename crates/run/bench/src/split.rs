//! Groups of ranks that test side by side: `NCCL_TESTS_SPLIT` and `NCCL_TESTS_SPLIT_MASK`.

use crate::{Error, Result};

/// How the group of a process follows from its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Split(Option<(Operator, u32)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    And,
    Or,
    Mod,
    Div,
}

impl Split {
    /// Reads the variables with `variable`, which gives the value of a name. The mask, hexadecimal, comes before the
    /// other: `<AND|OR|MOD|DIV or & | % /><value>`, the value decimal, hexadecimal (`0x7`) or binary (`0b111`).
    ///
    /// # Errors
    /// A variable cannot be understood, or divides by zero.
    ///
    /// ```
    /// use busbw_bench::split::Split;
    /// let split = Split::read(|name| (name == "NCCL_TESTS_SPLIT").then(|| "MOD 8".to_string())).unwrap();
    /// assert_eq!((split.color(3), split.color(11)), (3, 3));
    /// ```
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        if let Some(mask) = variable("NCCL_TESTS_SPLIT_MASK") {
            let digits = mask.trim();
            let digits = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")).unwrap_or(digits);
            let value = u32::from_str_radix(digits, 16).map_err(|_| {
                Error::Setting(format!("NCCL_TESTS_SPLIT_MASK={mask}: a hexadecimal number such as 0x7 is expected"))
            })?;
            return Ok(Split(Some((Operator::And, value))));
        }
        let Some(text) = variable("NCCL_TESTS_SPLIT") else { return Ok(Split(None)) };
        match parse(&text) {
            Some((Operator::Mod | Operator::Div, 0)) => {
                Err(Error::Setting(format!("NCCL_TESTS_SPLIT={text}: a number above 0 is expected")))
            }
            Some(split) => Ok(Split(Some(split))),
            None => Err(Error::Setting(format!(
                "NCCL_TESTS_SPLIT={text}: AND, OR, MOD or DIV and a number are expected, for example MOD 8 or AND 0x7"
            ))),
        }
    }

    /// The group of process `process`: processes of one number test together.
    pub fn color(self, process: u32) -> u32 {
        match self.0 {
            None => 0,
            Some((Operator::And, value)) => process & value,
            Some((Operator::Or, value)) => process | value,
            Some((Operator::Mod, value)) => process % value,
            Some((Operator::Div, value)) => process / value,
        }
    }
}

fn parse(text: &str) -> Option<(Operator, u32)> {
    let names = [
        ("AND", Operator::And),
        ("&", Operator::And),
        ("OR", Operator::Or),
        ("|", Operator::Or),
        ("MOD", Operator::Mod),
        ("%", Operator::Mod),
        ("DIV", Operator::Div),
        ("/", Operator::Div),
    ];
    let text = text.trim().to_ascii_uppercase();
    let (rest, operator) = names.iter().find_map(|(name, operator)| Some((text.strip_prefix(name)?, *operator)))?;
    let digits = rest.trim();
    let value = match (digits.strip_prefix("0X"), digits.strip_prefix("0B")) {
        (Some(digits), _) => u32::from_str_radix(digits, 16),
        (_, Some(digits)) => u32::from_str_radix(digits, 2),
        _ => digits.parse(),
    };
    Some((operator, value.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn colors(name: &str, value: &str) -> Result<Vec<u32>> {
        let split = Split::read(|wanted| (wanted == name).then(|| value.to_string()))?;
        Ok((0..6).map(|process| split.color(process)).collect())
    }

    #[test]
    fn groups_are_those_of_nccl_tests() {
        for (name, value, want) in [
            ("OTHER", "", [0; 6]),
            ("NCCL_TESTS_SPLIT", "AND 0x1", [0, 1, 0, 1, 0, 1]),
            ("NCCL_TESTS_SPLIT", "&0b10", [0, 0, 2, 2, 0, 0]),
            ("NCCL_TESTS_SPLIT", "or 0x3", [3, 3, 3, 3, 7, 7]),
            ("NCCL_TESTS_SPLIT", "|1", [1, 1, 3, 3, 5, 5]),
            ("NCCL_TESTS_SPLIT", "MOD 3", [0, 1, 2, 0, 1, 2]),
            ("NCCL_TESTS_SPLIT", "%2", [0, 1, 0, 1, 0, 1]),
            ("NCCL_TESTS_SPLIT", "DIV 4", [0, 0, 0, 0, 1, 1]),
            ("NCCL_TESTS_SPLIT", "/2", [0, 0, 1, 1, 2, 2]),
            ("NCCL_TESTS_SPLIT_MASK", "0x6", [0, 0, 2, 2, 4, 4]),
        ] {
            assert_eq!(colors(name, value).unwrap(), want, "{name}={value}");
        }
    }

    #[test]
    fn what_is_no_split_is_refused() {
        for (name, value) in [
            ("NCCL_TESTS_SPLIT", ""),
            ("NCCL_TESTS_SPLIT", "8"),
            ("NCCL_TESTS_SPLIT", "MOD"),
            ("NCCL_TESTS_SPLIT", "MOD 0"),
            ("NCCL_TESTS_SPLIT", "DIV x"),
            ("NCCL_TESTS_SPLIT_MASK", "xyz"),
        ] {
            let error = colors(name, value).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{name}={value}: ")), "{error}");
        }
    }
}
