//! Steps under way: parts are kept until every member of the group has given its own.

use crate::wire::{Key, Part, Step, ToRank};
use std::collections::HashMap;

struct UnderWay {
    step: Step,
    /// By index in the group: who gave what.
    given: Vec<Option<(usize, Vec<u8>)>>,
    missing: usize,
}

/// Ranks, and what each of them is sent.
pub(super) type Delivery = (Vec<usize>, ToRank);

pub(super) struct Steps {
    ranks: usize,
    under_way: HashMap<Key, UnderWay>,
}

impl Steps {
    pub fn of(ranks: usize) -> Self {
        Steps { ranks, under_way: HashMap::new() }
    }

    /// Takes a rank's part; when it was the last, whom to send what. `Err` says what is wrong, to be read after the rank.
    pub fn take(&mut self, rank: usize, part: Part) -> Result<Vec<Delivery>, String> {
        let Part { key, step, members, index, data } = part;
        let (members, index) = (members as usize, index as usize);
        if members > self.ranks {
            return Err(format!("gave part {index} of a {step:?} of {members}, in a job of {} ranks", self.ranks));
        }
        let fresh = || UnderWay { step, given: (0..members).map(|_| None).collect(), missing: members };
        let under_way = self.under_way.entry(key.clone()).or_insert_with(fresh);
        if under_way.step != step || under_way.given.len() != members {
            let (theirs, there) = (under_way.step, under_way.given.len());
            return Err(format!("asked for {step:?} among {members} where others asked for {theirs:?} among {there}"));
        }
        match under_way.given.get_mut(index) {
            Some(slot @ None) => *slot = Some((rank, data)),
            Some(Some(_)) => return Err(format!("gave its part of {step:?} twice")),
            None => return Err(format!("gave part {index} of a {step:?} of {members}")),
        }
        under_way.missing -= 1;
        if under_way.missing > 0 {
            return Ok(Vec::new());
        }
        let given = self.under_way.remove(&key).map_or(Vec::new(), |done| done.given);
        let (ranks, mut parts): (Vec<usize>, Vec<Vec<u8>>) = given.into_iter().flatten().unzip();
        match step {
            Step::AllGather => {}
            Step::Barrier => parts.clear(),
            Step::Gather(root) => {
                let Some(&taker) = ranks.get(root as usize) else {
                    return Err(format!("asked for a gathering at {root} among {members}"));
                };
                let others = ranks.into_iter().filter(|&rank| rank != taker).collect();
                let nothing = ToRank::Take { key: key.clone(), parts: Vec::new() };
                return Ok(vec![(vec![taker], ToRank::Take { key, parts }), (others, nothing)]);
            }
        }
        Ok(vec![(ranks, ToRank::Take { key, parts })])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_cannot_be_are_refused() {
        let key = Key { group: Vec::new(), number: 1 };
        let part = |members, index, step| Part { key: key.clone(), step, members, index, data: Vec::new() };
        let mut steps = Steps::of(3);
        assert!(steps.take(0, part(3, 0, Step::Barrier)).unwrap().is_empty());
        for (part, says) in [
            (part(3, 0, Step::Barrier), "gave its part of Barrier twice"),
            (part(3, 3, Step::Barrier), "gave part 3 of a Barrier of 3"),
            (part(2, 1, Step::Barrier), "asked for Barrier among 2 where others asked for Barrier among 3"),
            (part(3, 1, Step::AllGather), "asked for AllGather among 3"),
            (part(u32::MAX, 1, Step::Barrier), "of a Barrier of 4294967295, in a job of 3 ranks"),
        ] {
            let error = steps.take(1, part).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
