//! Memory for weights and scratch, aligned for vectors and, when large, for huge pages.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

const LINE: usize = 64;
const HUGE_PAGE: usize = 2 << 20;

/// Zeroed bytes that start at a cache line. From 2 MiB on they are pages of their own that start at a huge page and
/// ask for huge pages; each takes memory when it is first written, on the node of the thread that writes it.
#[derive(Debug)]
pub struct Buffer {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the buffer owns its memory; shared access is read-only unless through raw pointers, whose users say why.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates `bytes` zero bytes.
    pub fn zeroed(bytes: usize) -> Self {
        let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { LINE };
        let layout =
            Layout::from_size_align(bytes.max(LINE), align).expect("a buffer is smaller than isize::MAX");
        // SAFETY: the layout's size is not zero.
        let start = unsafe { if is_mapped(layout) { map(layout) } else { alloc_zeroed(layout) } };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Self { start, layout }
    }

    /// Bytes held.
    pub fn len(&self) -> usize {
        self.layout.size()
    }

    /// Whether nothing is held: never.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// The first byte, to write.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Makes room for `bytes`; the content is lost when it grows.
    pub fn reserve(&mut self, bytes: usize) -> *mut u8 {
        if self.len() < bytes {
            *self = Self::zeroed(bytes.next_power_of_two());
        }
        self.as_mut_ptr()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout and freed once.
        unsafe {
            if is_mapped(self.layout) {
                unmap(self.start.as_ptr(), self.layout.size());
            } else {
                dealloc(self.start.as_ptr(), self.layout);
            }
        }
    }
}

const fn is_mapped(layout: Layout) -> bool {
    cfg!(unix) && layout.align() == HUGE_PAGE
}

/// New pages for a layout, or null. The allocator would write zeros to all of them on the calling thread, and keep
/// the memory when they are freed.
#[cfg(unix)]
unsafe fn map(layout: Layout) -> *mut u8 {
    let (size, room) = (layout.size(), layout.size() + layout.align());
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANON);
    // SAFETY: a new mapping; what is cut off at its ends is within it.
    unsafe {
        let all = libc::mmap(std::ptr::null_mut(), room, access, kind, -1, 0);
        if all == libc::MAP_FAILED {
            return std::ptr::null_mut();
        }
        let before = all.cast::<u8>().align_offset(layout.align());
        let start = all.cast::<u8>().add(before);
        unmap(all.cast(), before);
        let used = size.next_multiple_of(libc::sysconf(libc::_SC_PAGESIZE) as usize);
        unmap(start.add(used), room - before - used);
        #[cfg(target_os = "linux")]
        // A refusal costs speed only.
        libc::madvise(start.cast(), size, libc::MADV_HUGEPAGE);
        start
    }
}

#[cfg(unix)]
unsafe fn unmap(start: *mut u8, bytes: usize) {
    if bytes > 0 {
        // SAFETY: as the caller promises, the pages are ours. There is nothing to do about a refusal.
        unsafe { libc::munmap(start.cast(), bytes) };
    }
}

#[cfg(not(unix))]
unsafe fn map(_layout: Layout) -> *mut u8 {
    std::ptr::null_mut()
}

#[cfg(not(unix))]
unsafe fn unmap(_start: *mut u8, _bytes: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_zero_aligned_and_writable_to_the_last() {
        for bytes in [0, 1, 4096, HUGE_PAGE - 1, HUGE_PAGE, HUGE_PAGE + 1, 3 * HUGE_PAGE + 4097] {
            let mut buffer = Buffer::zeroed(bytes);
            let align = if bytes >= HUGE_PAGE { HUGE_PAGE } else { LINE };
            assert_eq!(buffer.as_ptr().align_offset(align), 0, "{bytes}");
            assert!(buffer.len() >= bytes);
            // SAFETY: within the buffer.
            unsafe {
                let held = std::slice::from_raw_parts_mut(buffer.as_mut_ptr(), buffer.len());
                assert!(held.iter().all(|&byte| byte == 0), "{bytes}");
                held.fill(7);
            }
        }
    }
}
