//! Criterion's entry to the hot paths that `octavo-bench micro` times.

use criterion::{Criterion, criterion_group, criterion_main};
use octavo_bench::micro::BENCHES;

fn hot_paths(criterion: &mut Criterion) {
    for bench in &BENCHES {
        // Set up on first use, so that a filter on the command line costs nothing.
        let mut runner = None;
        criterion.bench_function(bench.name, |bencher| {
            bencher.iter_custom(|times| {
                let runner = runner.get_or_insert_with(|| (bench.start)().expect("the engine starts"));
                runner(times).expect("the engine runs")
            });
        });
    }
}

criterion_group!(benches, hot_paths);
criterion_main!(benches);
