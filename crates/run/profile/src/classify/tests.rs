//! Plays of a ring whose truth is known: who is slow, and how.
//!
//! A GPU takes a chunk that came, and fills the next buffer with it; a proxy offers buffers, sends what is full when the receiver has
//! room, and offers that room. A step is posted while `WINDOW` are under way, as NCCL's are (`sendProxyProgress`, `recvProxyProgress` in
//! `src/transport/net.cc`, 2.30.7).

use super::*;

const WINDOW: usize = 8;

/// Numbers that look like chance, and are the same each time.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as f64 / (1_u64 << 31) as f64
    }

    fn among(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.next()
    }

    fn index(&mut self, below: usize) -> usize {
        (self.next() * below as f64) as usize % below
    }
}

/// A job's ring; times in nanoseconds.
struct Play {
    /// When each rank begins.
    begin: Vec<f64>,
    /// A GPU's time for a chunk.
    gpu: Vec<f64>,
    /// A chunk's time on the way from each rank.
    network: Vec<f64>,
    /// How late a proxy notices anything.
    proxy: f64,
    /// How late each rank offers room that its GPU has freed.
    offer: Vec<f64>,
    steps: usize,
    /// By how much single times differ.
    noise: f64,
}

impl Play {
    fn run(&self, chance: &mut Chance) -> Vec<Part> {
        let n = self.begin.len();
        let zeros = || vec![vec![0.0_f64; self.steps + 1]; n];
        let (mut filled, mut came, mut done) = (zeros(), zeros(), zeros());
        let mut steps = vec![Steps::default(); n];
        for k in 0..self.steps {
            let vary = |chance: &mut Chance, time: f64| time * (1.0 + self.noise * chance.among(-1.0, 1.0));
            let before = |times: &[f64], at: usize| if k >= at { times[k - at] } else { 0.0 };
            let posted: Vec<f64> = (0..n).map(|r| self.begin[r].max(before(&done[r], WINDOW)) + self.proxy).collect();
            // The room of a chunk is free when the GPU has filled the next buffer with it.
            let offered: Vec<f64> = (0..n)
                .map(|r| {
                    self.begin[r].max(if k >= WINDOW { filled[r][k - WINDOW + 1] + self.offer[r] } else { 0.0 })
                        + self.proxy
                })
                .collect();
            for r in 0..n {
                let chunk = before(&came[r], 1);
                let start = self.begin[r].max(chunk).max(posted[r]).max(before(&filled[r], 1));
                filled[r][k] = start + vary(chance, self.gpu[r]);
                if k > 0 {
                    steps[r].receive_gpu += (filled[r][k] - chunk) as u64;
                }
            }
            for r in 0..n {
                let to = (r + 1) % n;
                let full = filled[r][k] + self.proxy;
                let sent = full.max(offered[to]);
                came[to][k] = sent.max(before(&came[to], 1)) + vary(chance, self.network[r]);
                done[r][k] = came[to][k];
                steps[r].send_gpu += (full - posted[r]) as u64;
                steps[r].send_peer += (sent - full) as u64;
                steps[r].send_network += (done[r][k] - sent) as u64;
                steps[to].receive_network += (came[to][k] - offered[to]).max(0.0) as u64;
                steps[r].count += 1;
                steps[to].count += 1;
            }
        }
        let part = |r: usize| Part {
            rank: r as u32,
            begin_ns: (1e9 + self.begin[r]) as u64,
            end_ns: (1e9 + filled[r][self.steps - 1].max(came[r][self.steps - 1])) as u64,
            peer: Some(((r + 1) % n) as u32),
            steps: steps[r],
        };
        (0..n).map(part).collect()
    }
}

/// A ring in which nobody is slow.
fn sound(chance: &mut Chance) -> Play {
    let n = 3 + chance.index(14);
    let (gpu, network) = (chance.among(2e4, 2e5), chance.among(2e4, 2e5));
    let proxy = chance.among(500.0, 3000.0);
    Play {
        begin: (0..n).map(|_| chance.among(0.0, 3e4)).collect(),
        gpu: (0..n).map(|_| gpu * chance.among(0.9, 1.1)).collect(),
        network: (0..n).map(|_| network * chance.among(0.9, 1.1)).collect(),
        proxy,
        offer: vec![0.0; n],
        steps: 16 + chance.index(100),
        noise: 0.4,
    }
}

/// A ring with one that is slow, and who.
fn slowed(class: StragglerClass, chance: &mut Chance) -> (Play, u32) {
    let mut play = sound(chance);
    let rank = chance.index(play.begin.len());
    let slowest = play.gpu[0].max(play.network[0]);
    let longer = slowest * chance.among(1.6, 6.0);
    match class {
        StragglerClass::Late => play.begin[rank] += longer * play.steps as f64 * 0.7,
        StragglerClass::SlowGpu => play.gpu[rank] = longer,
        StragglerClass::SlowReceiver => play.offer[rank] = longer * WINDOW as f64,
        StragglerClass::Network => play.network[rank] = longer,
    }
    (play, rank as u32)
}

#[test]
fn who_is_slow_and_how_is_named_in_95_of_100_plays() {
    let classes =
        [StragglerClass::Late, StragglerClass::SlowGpu, StragglerClass::SlowReceiver, StragglerClass::Network];
    for class in classes {
        let mut chance = Chance(4711 + class as u64);
        let mut wrong = Vec::new();
        for _ in 0..500 {
            let (play, rank) = slowed(class, &mut chance);
            let found = judge(&play.run(&mut chance), 0.0).map(|verdict| (verdict.class, verdict.rank));
            if found != Some((class, rank)) {
                wrong.push((rank, found));
            }
        }
        println!("{class:?}: {} of 500 are wrong", wrong.len());
        assert!(wrong.len() <= 25, "{class:?}: {} of 500 are wrong: {:?}", wrong.len(), &wrong[..wrong.len().min(8)]);
    }
}

#[test]
fn of_sound_rings_nobody_is_named() {
    let mut chance = Chance(42);
    let named: Vec<_> = (0..500).filter_map(|_| judge(&sound(&mut chance).run(&mut chance), 0.0)).collect();
    println!("{} of 500 are named", named.len());
    assert!(named.len() <= 25, "{} of 500: {:?}", named.len(), &named[..named.len().min(8)]);
}
