//! Which datatypes, reductions and roots a run measures, in nccl-tests' order (the `*RunTest` functions of its
//! `src/*.cu`).

use crate::backend::Backend;
use crate::flags::{Flags, OneOrAll, Root};
use crate::{Error, Result};
use busbw_model::{Collective, Datatype, RedOp};

/// One sweep over sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Test {
    pub datatype: Datatype,
    /// The reduction, where the collective reduces.
    pub redop: Option<RedOp>,
    /// The cell `redop`: `none` without reduction, nothing for hypercube; send-receive shows what `-o` says.
    pub redop_cell: &'static str,
    /// The root, where the collective has one.
    pub root: Option<usize>,
}

/// The sweeps that the flags ask for.
pub fn tests(collective: Collective, flags: &Flags, backend: &dyn Backend) -> Result<Vec<Test>> {
    let nranks = backend.nranks();
    if collective == Collective::HyperCube && !nranks.is_power_of_two() {
        let text =
            format!("hypercube needs a number of ranks that is a power of two, not {nranks}; change --np or -t and -g");
        return Err(Error::Job(text));
    }
    let reduces = matches!(collective, Collective::AllReduce | Collective::Reduce | Collective::ReduceScatter);
    let mut tests = Vec::new();
    let mut lacking = None;
    for datatype in chosen(flags.datatype, &Datatype::ALL) {
        for (redop, redop_cell) in redops(collective, flags) {
            if let Some(why) = backend.lacks(datatype, reduces.then_some(redop)) {
                lacking = lacking.or(Some(why));
                continue;
            }
            for root in roots(collective, flags.root, nranks)? {
                tests.push(Test { datatype, redop: reduces.then_some(redop), redop_cell, root });
            }
        }
    }
    if let (true, Some(why)) = (tests.is_empty(), lacking) {
        return Err(match (flags.op, flags.datatype) {
            (OneOrAll::One(op), OneOrAll::One(datatype)) if reduces => {
                Error::flag("-o,--op", format!("{} of {}", op.name(), datatype.name()), why)
            }
            (_, OneOrAll::One(datatype)) => Error::flag("-d,--datatype", datatype.name(), why),
            (OneOrAll::One(op), OneOrAll::All) => Error::flag("-o,--op", op.name(), why),
            (OneOrAll::All, OneOrAll::All) => Error::flag("-d,--datatype", "all", why),
        });
    }
    Ok(tests)
}

fn chosen<T: Copy>(pick: OneOrAll<T>, all: &[T]) -> Vec<T> {
    match pick {
        OneOrAll::One(one) => vec![one],
        OneOrAll::All => all.to_vec(),
    }
}

fn redops(collective: Collective, flags: &Flags) -> Vec<(RedOp, &'static str)> {
    match collective {
        Collective::AllReduce | Collective::Reduce | Collective::ReduceScatter | Collective::SendRecv => {
            chosen(flags.op, &RedOp::ALL).into_iter().map(|redop| (redop, redop.name())).collect()
        }
        Collective::HyperCube => vec![(RedOp::Sum, "")],
        _ => vec![(RedOp::Sum, "none")],
    }
}

fn roots(collective: Collective, root: Root, nranks: usize) -> Result<Vec<Option<usize>>> {
    if !matches!(collective, Collective::Broadcast | Collective::Reduce | Collective::Gather | Collective::Scatter) {
        return Ok(vec![None]);
    }
    match root {
        Root::One(root) if root < nranks => Ok(vec![Some(root)]),
        Root::One(root) => {
            Err(Error::flag("-r,--root", root, format!("ranks are 0 to {}; give one of them, or all", nranks - 1)))
        }
        Root::All => Ok((0..nranks).map(Some).collect()),
    }
}
