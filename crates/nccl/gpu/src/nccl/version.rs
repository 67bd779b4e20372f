//! Versions of NCCL, and since which one it has what.

use std::fmt;

/// A version of NCCL: 2.27.7.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// 2.
    pub major: i32,
    /// 27.
    pub minor: i32,
    /// 7.
    pub patch: i32,
}

impl Version {
    /// The oldest that is used.
    pub const OLDEST: Version = Version::new(2, 18, 0);

    const fn new(major: i32, minor: i32, patch: i32) -> Self {
        Version { major, minor, patch }
    }

    /// Of `ncclGetVersion`'s number since 2.9, 22707; before, 2.8.4 was 2804.
    pub fn of_code(code: i32) -> Self {
        if code < 10_000 {
            return Version::new(code / 1000, code % 1000 / 100, code % 100);
        }
        Version::new(code / 10_000, code % 10_000 / 100, code % 100)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// What later versions brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// `ncclCommRegister` and `ncclMemAlloc`.
    LocalRegistration,
    /// `ncclFloat8e4m3` and `ncclFloat8e5m2`.
    Float8,
    /// `ncclCommWindowRegister`.
    SymmetricRegistration,
    /// `CTAPolicy` of the configuration.
    CtaPolicy,
    /// `NCCL_CTA_POLICY_ZERO`, and `nvlinkCentricSched`.
    ZeroCtaPolicy,
    /// `NCCL_MULTI_RANK_GPU_ENABLE`: ranks of one process on one GPU.
    SharedGpu,
}

impl Feature {
    /// The version that brought it (`src/nccl.h.in` and, for the last, `src/init.cc` of the tags).
    pub fn since(self) -> Version {
        match self {
            Feature::LocalRegistration => Version::new(2, 19, 0),
            Feature::Float8 => Version::new(2, 24, 0),
            Feature::SymmetricRegistration | Feature::CtaPolicy => Version::new(2, 27, 0),
            Feature::ZeroCtaPolicy => Version::new(2, 28, 0),
            Feature::SharedGpu => Version::new(2, 30, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_versions() {
        for (code, shown) in [(22707, "2.27.7"), (21806, "2.18.6"), (23007, "2.30.7"), (2804, "2.8.4")] {
            assert_eq!(Version::of_code(code).to_string(), shown);
        }
        assert!(Version::of_code(21806) > Version::OLDEST && Version::of_code(2804) < Version::OLDEST);
    }
}
