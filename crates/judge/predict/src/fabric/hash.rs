//! The hash by which switches choose among equal links.
//!
//! A choice depends on the seed, the flow, and how many choices its way has had before, so that switches choose
//! independently of each other; and on nothing that a name or a number of a node enters, so that renaming nodes changes no
//! choice.

/// What one seed makes of a flow; [`FlowHash::choices`] draws from it.
#[derive(Debug, Clone, Copy)]
pub struct FlowHash(u64);

impl FlowHash {
    /// The hash of flow number `flow` (and of one of its streams) under `seed`.
    pub fn new(seed: u64, flow: u64) -> Self {
        FlowHash(mix(mix(seed) ^ flow))
    }

    /// The choices on a flow's way, one after the other: called with the number of equal links, it says which.
    pub fn choices(self) -> impl FnMut(u32) -> u32 {
        let mut made = 0;
        move |choices| {
            if choices <= 1 {
                return 0;
            }
            made += 1;
            self.choose(made, choices)
        }
    }

    /// One of `choices` equal links as the flow's choice number `number`.
    fn choose(self, number: u64, choices: u32) -> u32 {
        // Multiply and shift instead of a remainder (Lemire 2019): the bias is 2^-32 x choices.
        let draw = mix(self.0.wrapping_add(number.wrapping_mul(GOLDEN))) >> 32;
        ((draw * u64::from(choices)) >> 32) as u32
    }
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The finaliser of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chi-square of counts against an even distribution.
    fn unevenness(counts: &[u32]) -> f64 {
        let expected = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
        counts.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum()
    }

    /// Over seeds, flows and ways, and of two flows and two choices together.
    #[test]
    fn choices_are_even_and_independent() {
        let over_seeds = |i| FlowHash::new(i, 3).choose(0, 8);
        let over_flows = |i| FlowHash::new(3, i).choose(0, 8);
        let over_choices = |i| FlowHash::new(3, 3).choose(i, 8);
        let flows = |seed| FlowHash::new(seed, 0).choose(0, 4) * 4 + FlowHash::new(seed, 1).choose(0, 4);
        let choices = |seed| FlowHash::new(seed, 0).choose(0, 4) * 4 + FlowHash::new(seed, 0).choose(1, 4);
        // Passed by 1 in 10,000 with 7 and with 15 degrees of freedom.
        let (of_8, of_16) = ((8, 29.9), (16, 44.3));
        let cases: [&dyn Fn(u64) -> u32; 5] = [&over_seeds, &over_flows, &over_choices, &flows, &choices];
        for (draw, (ways, most)) in cases.into_iter().zip([of_8, of_8, of_8, of_16, of_16]) {
            let mut counts = vec![0; ways];
            (0..80_000).for_each(|i| counts[draw(i) as usize] += 1);
            assert!(unevenness(&counts) < most, "{counts:?}");
        }
    }
}
