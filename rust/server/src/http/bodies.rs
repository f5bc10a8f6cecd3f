//! Room for long request bodies, which bounds the memory that they take together.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bodies of the longest allowed length that are held at once.
const LONGEST_AT_ONCE: usize = 8;
/// Bytes in one permit.
const UNIT: usize = 1024;

/// Room for long bodies: as much as a few of the longest take.
#[derive(Debug)]
pub struct Bodies {
    max_body_bytes: usize,
    room: Arc<Semaphore>,
}

/// Room that is given back when this is dropped.
pub type Room = OwnedSemaphorePermit;

impl Bodies {
    /// Room for bodies of at most `max_body_bytes` bytes each.
    pub fn new(max_body_bytes: usize) -> Self {
        let units = LONGEST_AT_ONCE.saturating_mul(units(max_body_bytes) as usize);
        Self { max_body_bytes, room: Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS))) }
    }

    /// Longest body, bytes.
    pub fn max_body_bytes(&self) -> usize {
        self.max_body_bytes
    }

    /// Waits for room for `bytes` bytes, at most a longest body.
    pub async fn room(&self, bytes: usize) -> Option<Room> {
        // The semaphore is never closed.
        Arc::clone(&self.room).acquire_many_owned(units(bytes)).await.ok()
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}
