//! Which cores there are, and staying on one.

/// The cores that this process may use, ascending.
#[cfg(target_os = "linux")]
pub fn usable_cores() -> Vec<usize> {
    // SAFETY: an all-zero set is a valid empty set, and the call writes within it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) != 0 {
            return Vec::new();
        }
        (0..libc::CPU_SETSIZE as usize).filter(|&core| libc::CPU_ISSET(core, &set)).collect()
    }
}

/// Keeps the calling thread on one core.
#[cfg(target_os = "linux")]
pub fn bind_to_core(core: usize) {
    // SAFETY: the set is valid and local. A refusal leaves the thread unbound, which costs speed only.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

#[cfg(not(target_os = "linux"))]
pub fn usable_cores() -> Vec<usize> {
    Vec::new()
}

#[cfg(not(target_os = "linux"))]
pub fn bind_to_core(_core: usize) {}
