//! Memory for weights and scratch, aligned for vectors and, when large, for huge pages.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

const LINE: usize = 64;
const HUGE_PAGE: usize = 2 << 20;

/// Zeroed bytes that start at a cache line. From 2 MiB on they start at a huge page and ask for huge pages.
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
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        #[cfg(target_os = "linux")]
        if align == HUGE_PAGE {
            // SAFETY: the range is ours. A refusal costs speed only.
            unsafe { libc::madvise(start.as_ptr().cast(), layout.size(), libc::MADV_HUGEPAGE) };
        }
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
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}
