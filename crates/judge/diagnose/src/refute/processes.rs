//! Which processes are ranks, as far as the input shows, and which commands start ranks.

use crate::words::KNOWN;
use busbw_model::{Ended, RankEnd, Run, Speaker};
use std::collections::HashSet;

/// Which processes are ranks, as far as the input shows.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    pids: HashSet<u64>,
    /// They are PyTorch's: its log speaks.
    of_torch: bool,
}

impl Ranks {
    /// Only for runs in which a line reports a process that ended.
    pub fn of(run: &Run) -> Self {
        let told = run.ends.iter().any(|end| end.command.is_some());
        if !told && run.machines.iter().all(|machine| machine.memory_kills.is_empty()) {
            return Ranks::default();
        }
        let of_torch = run.statements.iter().any(|statement| statement.speaker == Speaker::Torch);
        Ranks { pids: pids(run), of_torch }
    }

    pub fn may_have(&self, pid: Option<u64>, command: &str) -> bool {
        self.pids.is_empty() && !self.of_torch
            || pid.is_some_and(|pid| self.pids.contains(&pid))
            || starts_ranks(command)
    }

    /// Whether a command is a script of Python's under a number that no rank has; a module may be a launcher: `python -m torch.distributed.run`.
    pub fn are_not(&self, pid: Option<u64>, command: &str) -> bool {
        let mut words = command.split(' ').skip_while(|word| !word.contains("python"));
        let is_script = words.nth(1).is_some_and(|file| file.ends_with(".py"));
        is_script && self.are_others(pid)
    }

    /// Whether the numbers of ranks are known, and a process has another.
    pub fn are_others(&self, pid: Option<u64>) -> bool {
        !self.pids.is_empty() && pid.is_some_and(|pid| !self.pids.contains(&pid))
    }

    /// Whether a process goes on, or was none of the run. A crash of a program may be the run's where no number of a rank is known, or a script calls it
    /// by a variable.
    pub fn lives(&self, end: &RankEnd) -> bool {
        let by_variable =
            || end.command.as_ref().is_some_and(|command| command.trim_start_matches('"').starts_with('$'));
        let open = matches!(end.how, Ended::Crash { .. }) && (!self.are_others(end.pid) || by_variable());
        end.went_on || self.is_none(end) && !open
    }

    /// Whether a process is a shell's child that is no rank and starts none, as far as its name tells.
    pub fn is_none(&self, end: &RankEnd) -> bool {
        end.command.as_ref().is_some_and(|command| !self.may_have(end.pid, command))
    }
}

/// The numbers of the processes of ranks.
pub(super) fn pids(run: &Run) -> HashSet<u64> {
    let of_ranks = run.communicators.iter().flat_map(|comm| comm.ranks.values()).filter_map(|rank| rank.pid);
    let of_devices = run.tables.iter().flat_map(|table| &table.devices).map(|device| device.pid);
    of_ranks.chain(of_devices).collect()
}

/// Whether a command, or a process's name in the kernel (15 bytes), is an interpreter's, a launcher's, or what these call their processes.
pub(super) fn starts_ranks(command: &str) -> bool {
    let is_setting = |word: &&str| matches!(*word, "env" | "time" | "nohup" | "exec") || word.contains('=');
    let program = command.split(' ').find(|word| !is_setting(word)).unwrap_or_default();
    let name = program.rsplit_once('/').map_or(program, |(_, name)| name);
    name.contains("_perf") || KNOWN.starters.iter().any(|start| name.starts_with(start))
}

/// Whether a success names a unit of systemd's or a container of which the input tells no failure: any of the machine's ends in order.
pub(super) fn may_be_of_another(run: &Run, success: &RankEnd) -> bool {
    const SAID: [&str; 2] = [".service: ", " exited with code "];
    let named = |end: &RankEnd| {
        let (head, _) = SAID.iter().find_map(|said| end.source.text.split_once(said))?;
        head.rsplit([' ', '|']).find(|word| !word.is_empty()).map(str::to_string)
    };
    let same =
        |name: &String| run.ends.iter().any(|end| end.how != Ended::Success && named(end).as_ref() == Some(name));
    named(success).is_some_and(|name| !same(&name))
}
