//! Keeping threads on cores.

use std::io;

use crate::sync::JoinHandle;

/// Keeps a thread on one core.
///
/// # Errors
/// The system refuses: the core does not exist, is offline, or is not among those of this process.
#[cfg(all(target_os = "linux", not(loom)))]
pub fn keep_to_core(thread: &JoinHandle<()>, core: usize) -> io::Result<()> {
    use std::os::unix::thread::JoinHandleExt;

    // As long as it takes: `cpu_set_t` ends at core 1023.
    let mut set = vec![0_u64; core / 64 + 1];
    set[core / 64] = 1 << (core % 64);
    // SAFETY: the thread has not been joined; the call reads so many bytes of the set.
    let code = unsafe {
        libc::pthread_setaffinity_np(thread.as_pthread_t(), size_of_val(&*set), set.as_ptr().cast())
    };
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}

#[cfg(any(not(target_os = "linux"), loom))]
pub fn keep_to_core(_thread: &JoinHandle<()>, _core: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
