//! Which sizes `test` tells.

use super::{arrived, close, kept, wrong};
use crate::api::{Memory, Receiver, Request, Room, Sender};
use crate::case::{Case, CaseResult, End};
use busbw_model::{Breach, RuleOutcome};
use std::cell::RefCell;
use std::collections::VecDeque;

const ROOM: usize = 1 << 20;
const LENS: [usize; 7] = [0, 1, 8, 1000, 65_537, ROOM - 1, ROOM];
/// Of messages that are received in one group.
const GROUPED: [usize; 4] = [1000, 0, 8, 65_537];
const TAG: i32 = 1;

/// Messages of every size that `test` tells wrongly, or not at all.
#[derive(Default)]
struct Mistakes {
    asked: usize,
    untold: usize,
    first: Option<(usize, usize)>,
    /// A message with bytes was told as empty: to NCCL, a size that is not told is 0.
    as_empty: bool,
}

impl Mistakes {
    fn look(&mut self, len: usize, told: Option<usize>) {
        self.asked += 1;
        match told {
            None => self.untold += 1,
            Some(told) if told != len => drop(self.first.get_or_insert((len, told))),
            Some(_) => {}
        }
        self.as_empty |= len > 0 && told.unwrap_or(0) == 0;
    }

    fn seen(&self, message: &str) -> Option<String> {
        match (self.untold, self.first) {
            (0, None) => None,
            (0, Some((len, told))) => Some(format!("test told {told} bytes for a {message} of {len}")),
            (untold, _) if untold == self.asked => Some(format!("test does not tell the size of a {message}")),
            (untold, _) => Some(format!("test told no size of a {message} in {untold} of {} cases", self.asked)),
        }
    }
}

/// Messages smaller than their rooms, one by one, and grouped where the device takes groups.
pub(super) fn smaller_than_room(case: &mut Case) -> CaseResult<RuleOutcome> {
    let end = case.one_way()?;
    let groups = case.most_grouped()?.min(GROUPED.len());
    let mut mistakes = Mistakes::default();
    for group in LENS.iter().map(std::slice::from_ref).chain((groups > 1).then_some(&GROUPED[..groups])) {
        match end {
            End::Sender(sender) => send(case, sender, group, &mut mistakes)?,
            End::Receiver(receiver) => receive(case, receiver, group, &mut mistakes)?,
        }
    }
    close(case, end)?;
    Ok(match end {
        End::Sender(_) => of_sends(&mistakes),
        End::Receiver(_) => of_receives(&mistakes, case.plugin.properties(case.device())?.gpu_memory),
    })
}

fn send(case: &Case, sender: Sender, group: &[usize], mistakes: &mut Mistakes) -> CaseResult<()> {
    let mistakes = RefCell::new(mistakes);
    let end_one = |(request, len): (Request, usize)| {
        let told = case.finish(request, 1, "a send")?;
        mistakes.borrow_mut().look(len, told[0]);
        Ok(())
    };
    // All of a group are posted before the first is waited for: transports may send a group as one.
    let mut requests = VecDeque::new();
    for (tag, &len) in (TAG..).zip(group) {
        let memory = Memory::filled(len, tag as u64);
        let registration = case.plugin.register_to_send(sender, memory)?;
        let post = || Ok(case.plugin.isend(sender, memory, tag, registration)?);
        let request = case.post(&mut requests, end_one, post)?;
        requests.push_back((request, len));
    }
    requests.into_iter().try_for_each(end_one)
}

fn receive(case: &Case, receiver: Receiver, group: &[usize], mistakes: &mut Mistakes) -> CaseResult<()> {
    let room = |(tag, _)| {
        let memory = Memory::new(ROOM);
        Ok(Room { memory, tag, registration: case.plugin.register_to_receive(receiver, memory)? })
    };
    let rooms = (TAG..).zip(group).map(room).collect::<CaseResult<Vec<Room>>>()?;
    let request = case.receive(receiver, &rooms)?;
    let told = case.finish(request, group.len(), "a receive")?;
    for ((room, &len), told) in rooms.iter().zip(group).zip(told) {
        arrived(room.tag as u64, len, room.memory)?;
        if !room.memory.untouched_from(len) {
            return wrong(format!("a message of {len} bytes changed its room behind its end"));
        }
        mistakes.look(len, told);
    }
    Ok(())
}

fn of_sends(mistakes: &Mistakes) -> RuleOutcome {
    let why = "NCCL does not look at the size of a send".into();
    match mistakes.seen("sent message") {
        Some(seen) => RuleOutcome::Noted(Breach { seen, stumbles: false, why }),
        None => kept(""),
    }
}

fn of_receives(mistakes: &Mistakes, gpu_memory: bool) -> RuleOutcome {
    let Some(seen) = mistakes.seen("received message") else { return kept("") };
    let (stumbles, why) = match (gpu_memory, mistakes.as_empty) {
        (false, _) => {
            (false, "NCCL asks only whether GPU memory is to be flushed, and the device takes host memory only")
        }
        (true, false) => (false, "NCCL asks only whether anything came, to flush GPU memory"),
        (true, true) => (true, "NCCL does not flush what is told as empty: kernels may read stale GPU memory"),
    };
    RuleOutcome::Broken(Breach { seen, stumbles, why: why.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_is_not_told_is_no_size_of_zero() {
        for (told, seen, stumbles) in [
            ([(8, Some(8)), (0, Some(0))], "", false),
            ([(8, None), (0, None)], "test does not tell the size of a received message", true),
            ([(8, Some(16)), (0, Some(16))], "test told 16 bytes for a received message of 8", false),
            ([(8, Some(0)), (0, Some(0))], "test told 0 bytes for a received message of 8", true),
            ([(8, Some(8)), (0, None)], "test told no size of a received message in 1 of 2 cases", false),
        ] {
            let mut mistakes = Mistakes::default();
            told.iter().for_each(|(len, told)| mistakes.look(*len, *told));
            let found = match of_receives(&mistakes, true) {
                RuleOutcome::Broken(breach) => (breach.seen, breach.stumbles),
                _ => (String::new(), false),
            };
            assert_eq!(found, (seen.to_owned(), stumbles), "{told:?}");
        }
    }
}
