//! The host tier's memory, as the store sees it.

/// Memory of `block_bytes * slots` bytes that whoever made it keeps mapped for the life of the store.
#[derive(Debug)]
pub struct HostMemory {
    start: *mut u8,
    len: usize,
}

// SAFETY: it is an address and a length; who may touch which bytes when is the contract of `new`.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Takes note of `len` bytes from `start` on.
    ///
    /// # Safety
    ///
    /// They are readable and writable until the store is dropped. From the submission of a job to the call of `done`
    /// for it, nobody else writes the slot of a store, and nobody else reads or writes the slot of a fetch.
    pub unsafe fn new(start: *mut u8, len: usize) -> Self {
        Self { start, len }
    }

    pub(crate) fn slots(&self, block_bytes: usize) -> usize {
        self.len.checked_div(block_bytes).unwrap_or(0)
    }

    /// # Safety
    ///
    /// A store of this slot is under way, and no other job for the slot.
    pub(crate) unsafe fn read(&self, slot: u32, block_bytes: usize) -> Option<&[u8]> {
        let start = self.offset(slot, block_bytes)?;
        // SAFETY: inside the memory; nobody writes there by the contract of `new`.
        Some(unsafe { std::slice::from_raw_parts(self.start.add(start), block_bytes) })
    }

    /// # Safety
    ///
    /// A fetch into this slot is under way, and no other job for the slot.
    #[allow(clippy::mut_from_ref, reason = "each slot is another piece of memory, lent to one job at a time")]
    pub(crate) unsafe fn write(&self, slot: u32, block_bytes: usize) -> Option<&mut [u8]> {
        let start = self.offset(slot, block_bytes)?;
        // SAFETY: inside the memory; nobody else touches it by the contract of `new`.
        Some(unsafe { std::slice::from_raw_parts_mut(self.start.add(start), block_bytes) })
    }

    fn offset(&self, slot: u32, block_bytes: usize) -> Option<usize> {
        let start = (slot as usize).checked_mul(block_bytes)?;
        (start.checked_add(block_bytes)? <= self.len).then_some(start)
    }
}
