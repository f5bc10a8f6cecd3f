//! How fast memory is read.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

/// Bytes a second at best, when so many threads read a buffer of so many MiB, each a part of its own.
pub fn best(threads: usize, mib: usize, tries: usize) -> f64 {
    let words = (mib << 20) / size_of::<u64>() / threads;
    let barrier = Barrier::new(threads);
    let read = || {
        // Written first: pages that were never written are all one page of zeros.
        let part: Vec<u64> = (0..words as u64).collect();
        let mut shortest = f64::INFINITY;
        for _ in 0..=tries {
            barrier.wait();
            let start = Instant::now();
            black_box(fold(black_box(&part)));
            barrier.wait();
            shortest = shortest.min(start.elapsed().as_secs_f64());
        }
        shortest
    };
    let slowest = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(read)).collect();
        let here = read();
        others.into_iter().filter_map(|other| other.join().ok()).fold(here, f64::max)
    });
    (words * threads * size_of::<u64>()) as f64 / slowest
}

/// All words in a few independent chains, so that loads do not wait for each other.
fn fold(words: &[u64]) -> u64 {
    let mut lanes = [0u64; 32];
    let (chunks, _) = words.as_chunks::<32>();
    for chunk in chunks {
        for (lane, word) in lanes.iter_mut().zip(chunk) {
            *lane ^= word;
        }
    }
    lanes.iter().fold(0, |all, lane| all ^ lane)
}
