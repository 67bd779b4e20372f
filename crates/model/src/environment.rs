//! What is known of the variables that a run was started with.

use crate::nccl::EnvOrigin;
use crate::place::Place;

/// A variable that was seen, and what it means for the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// `NCCL_IB_HCA`.
    pub name: String,
    /// Its value; several hosts may have several.
    pub value: String,
    /// Where the value comes from: NCCL's log or a launch command.
    pub origin: EnvOrigin,
    /// The first line that says so.
    pub place: Place,
    /// Hosts that say so, each once.
    pub hosts: Vec<String>,
    /// What it does, where it is known.
    pub meaning: Option<String>,
    /// Its default, where it has one that is known.
    pub default: Option<String>,
    /// The versions of NCCL that read it: `from 2.4 on`, `from 2.4 to 2.18`.
    pub versions: Option<String>,
    /// Its state in this run.
    pub standing: VariableStanding,
}

/// The state of a variable in a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VariableStanding {
    /// NCCL reads it, and it has no known harm.
    Read,
    /// Something else reads it: a plugin, PyTorch, nccl-tests, MPI.
    OfOthers,
    /// This value takes a choice from NCCL, which may be meant. What it does, in words.
    Overrides(String),
    /// This value hurts such a run. What it does, in words.
    Harmful(String),
    /// Nothing reads it. The reason, and the remedy.
    NoEffect(String),
}

impl VariableStanding {
    /// `read`, `of others`, `overrides`, `harmful` or `no effect`.
    pub fn as_str(&self) -> &'static str {
        match self {
            VariableStanding::Read => "read",
            VariableStanding::OfOthers => "of others",
            VariableStanding::Overrides(_) => "overrides",
            VariableStanding::Harmful(_) => "harmful",
            VariableStanding::NoEffect(_) => "no effect",
        }
    }

    /// Further remarks.
    pub fn remark(&self) -> Option<&str> {
        match self {
            VariableStanding::Read | VariableStanding::OfOthers => None,
            VariableStanding::Overrides(text) | VariableStanding::Harmful(text) | VariableStanding::NoEffect(text) => {
                Some(text)
            }
        }
    }
}
