//! What copies in this host's memory carry: the yardstick for ranks on its cores.

use busbw_model::{GBps, HostMemory};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// What a core copies from and to: more than its share of the caches.
const BUFFER: usize = 8 << 20;
/// What is timed at once: shorter than a scheduler's turn, so that most are whole on a busy machine too.
const CHUNK: usize = 1 << 20;
/// How long cores copy. All of it, with the buffers' first touch, takes less than 50 ms.
const LASTS: Duration = Duration::from_millis(15);

/// Copies on as many cores at once as ranks will. The fastest tenth of the chunks counts: what a core loses to other processes
/// shows in the load, and not here. `None` where each rank is bound to a core of its own: rank 0 cannot copy on the others.
pub fn measure(ranks: usize) -> Option<HostMemory> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get()).min(ranks.max(1));
    if cores < ranks.min(2) {
        return None;
    }
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    let load = load.and_then(|text| text.split_ascii_whitespace().next()?.parse().ok()).unwrap_or(0.0);
    let ready = Barrier::new(cores);
    let rates: Vec<f64> = std::thread::scope(|scope| {
        let copying: Vec<_> = (0..cores).map(|_| scope.spawn(|| rate(&ready))).collect();
        copying.into_iter().filter_map(|core| core.join().ok()).collect()
    });
    Some(HostMemory { cores: cores as u32, copy: GBps(rates.iter().sum::<f64>() / 1e9), load })
}

/// Bytes per second that this core copies while the others do.
fn rate(ready: &Barrier) -> f64 {
    let (from, mut to) = (vec![1_u8; BUFFER], vec![2_u8; BUFFER]);
    ready.wait();
    let began = Instant::now();
    let mut times = Vec::new();
    while began.elapsed() < LASTS {
        for (from, to) in from.chunks(CHUNK).zip(to.chunks_mut(CHUNK)) {
            let chunk = Instant::now();
            to.copy_from_slice(std::hint::black_box(from));
            std::hint::black_box(&to);
            times.push(chunk.elapsed().as_secs_f64());
        }
    }
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 10).map_or(0.0, |time| CHUNK as f64 / time.max(1e-9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_quick_and_tells_a_rate() {
        let began = Instant::now();
        let Some(memory) = measure(4) else { return };
        assert!(memory.cores >= 1 && memory.copy.0 > 0.1 && memory.copy.0 < 10_000.0, "{memory}");
        assert_eq!(format!("{memory}").parse::<HostMemory>().map(|read| read.cores), Ok(memory.cores));
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    }
}
