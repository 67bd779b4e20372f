//! Reading the values of flags.

use super::{BackendName, Flags};
use crate::{Error, Result};
use busbw_model::{Bytes, Datatype, RedOp};
use std::time::Duration;

/// One value, or all of them in nccl-tests' order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OneOrAll<T> {
    One(T),
    /// `all`.
    All,
}

/// The root that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Root {
    One(usize),
    /// Every rank in turn: `all`, or -1.
    All,
}

type Parsed<T> = std::result::Result<T, String>;

/// A size as nccl-tests reads it: a number, fractions included, and K, M or G for powers of 1024.
pub(super) fn size(text: &str) -> Parsed<Bytes> {
    if let Ok(bytes) = text.parse::<Bytes>() {
        return Ok(bytes);
    }
    let whole = text.parse::<f64>().ok().filter(|size| (0.0..u64::MAX as f64).contains(size));
    whole.map(|size| Bytes(size as u64)).ok_or_else(|| "a size such as 512, 8M or 1.5G is expected".to_string())
}

fn integer(text: &str, allowed: impl Fn(i64) -> bool, expected: &str) -> Parsed<i64> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let number = match hexadecimal {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    number.filter(|number| allowed(*number)).ok_or_else(|| format!("{expected} is expected"))
}

/// 1 or more.
pub(super) fn positive(text: &str) -> Parsed<u32> {
    integer(text, |n| (1..=i64::from(i32::MAX)).contains(&n), "a whole number of 1 or more").map(|n| n as u32)
}

/// Any whole number.
pub(super) fn any_integer(text: &str) -> Parsed<i64> {
    integer(text, |_| true, "a whole number")
}

/// 0 or more.
pub(super) fn count(text: &str) -> Parsed<u32> {
    integer(text, |n| (0..=i64::from(i32::MAX)).contains(&n), "a whole number of 0 or more").map(|n| n as u32)
}

/// A time, 0 for none. nccl-tests' `-T` takes whole seconds, as every number here also in hexadecimal.
pub(super) fn time(text: &str) -> Parsed<Duration> {
    let seconds = count(text).map(|seconds| Duration::from_secs(seconds.into()));
    seconds.or_else(|_| busbw_model::time(text).map_err(|error| error.to_string()))
}

/// 0 to `MAX`.
pub(super) fn choice<const MAX: i64>(text: &str) -> Parsed<u8> {
    let expected = if MAX == 1 { "0 or 1".to_string() } else { format!("a number from 0 to {MAX}") };
    integer(text, |n| (0..=MAX).contains(&n), &expected).map(|n| n as u8)
}

pub(super) fn redop(text: &str) -> Parsed<OneOrAll<RedOp>> {
    pick(text, RedOp::from_name, "sum, prod, min, max, avg, mulsum or all")
}

pub(super) fn datatype(text: &str) -> Parsed<OneOrAll<Datatype>> {
    let names = "int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, f8e4m3, f8e5m2 or all";
    pick(text, Datatype::from_name, names)
}

fn pick<T>(text: &str, read: fn(&str) -> Option<T>, names: &str) -> Parsed<OneOrAll<T>> {
    if text == "all" {
        return Ok(OneOrAll::All);
    }
    read(text).map(OneOrAll::One).ok_or_else(|| format!("one of {names} is expected"))
}

pub(super) fn root(text: &str) -> Parsed<Root> {
    if text == "all" {
        return Ok(Root::All);
    }
    let number = integer(text, |n| (-1..=i64::from(i32::MAX)).contains(&n), "a rank, or all")?;
    Ok(usize::try_from(number).map_or(Root::All, Root::One))
}

/// Flags that mean something to GPUs only. Values that switch them off are fine everywhere.
pub(super) fn device_only(flags: &Flags) -> Result<()> {
    // What each host will find is not known here.
    if flags.backend == Some(BackendName::Auto) {
        return Ok(());
    }
    if flags.is_on_gpus() {
        if flags.checksum {
            let instead = "is for --backend cpu; with NCCL use busbw's net plugin and BUSBW_NET_CHECKSUM=1";
            return Err(Error::flag("--checksum", "", instead));
        }
        return no_device_code(flags);
    }
    let shown = |given: bool, value: &dyn ToString| given.then(|| value.to_string());
    let path = flags.nccl_library.as_ref().map(|path| path.display().to_string());
    let given = [
        ("-G,--cudagraph", shown(flags.cudagraph > 0, &flags.cudagraph)),
        ("-R,--local_register", shown(flags.local_register > 0, &flags.local_register)),
        ("-D,--device_implementation", shown(flags.device_implementation > 0, &flags.device_implementation)),
        ("-x,--cta_policy", flags.cta_policy.map(|policy| policy.to_string())),
        ("--share-gpus", shown(flags.share_gpus, &"")),
        ("--nccl-library", path),
    ];
    match given.into_iter().find_map(|(flag, value)| value.map(|value| (flag, value))) {
        Some((flag, value)) => Err(Error::flag(flag, value, "is for GPUs and needs --backend nccl; leave it out")),
        None => Ok(()),
    }
}

/// nccl-tests' own kernels with NCCL's device API are not ours. `-V` is about these alone.
fn no_device_code(flags: &Flags) -> Result<()> {
    match flags.device_implementation {
        0 => Ok(()),
        number => Err(Error::flag(
            "-D,--device_implementation",
            number,
            "busbw calls NCCL from the host only; leave it out, or use nccl-tests for this",
        )),
    }
}
