//! A step in which every sequence decodes allocates nothing.

mod drive;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use drive::{limits, prompt, request};
use octavo_core::fake::FakeWorker;
use octavo_core::frame::Buffer;
use octavo_core::{Engine, EngineLimits, Event, GroupLimits, Keep};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is passed to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[test]
fn decoding_allocates_nothing() {
    let one = EngineLimits { num_blocks: 1024, max_num_seqs: 16, ..limits() };
    let window = GroupLimits { keep: Keep::Last(20), num_blocks: 200 };
    let state = GroupLimits { keep: Keep::State { every: 1 }, num_blocks: 100 };
    let several = EngineLimits { groups: vec![window, state], ..one.clone() };
    for limits in [one, several].iter().flat_map(drive::both_depths) {
        let mut engine = Engine::new(limits.clone()).unwrap();
        let mut worker = FakeWorker::new(&limits);
        let mut frames = [(); 2].map(|()| Buffer::new(engine.layout().frame_bytes));
        let mut result = Buffer::new(engine.layout().result_bytes);
        let mut events: Vec<Event> = Vec::with_capacity(64);
        for id in 0..16 {
            engine.add(request(id, prompt(12, id as u32), 150)).unwrap();
        }
        let mut allocated = 0;
        let mut steps = 0;
        while engine.has_work() {
            events.clear();
            let before = ALLOCATIONS.get();
            while engine.plan(frames[steps % 2].bytes_mut()).unwrap().is_some() {
                steps += 1;
            }
            let planned = ALLOCATIONS.get();
            let oldest = steps - engine.in_flight();
            worker.run(frames[oldest % 2].bytes(), result.bytes_mut()).unwrap();
            let computed = ALLOCATIONS.get();
            engine.commit(result.bytes(), &mut events).unwrap();
            if steps > 10 && engine.has_work() {
                allocated += planned - before + ALLOCATIONS.get() - computed;
            }
        }
        assert!(steps >= 150, "{steps} steps");
        assert_eq!(allocated, 0);
    }
}
