//! What threads share: the standard library's, or loom's where `--cfg loom` has it explore every order of events.

#[cfg(not(loom))]
mod real {
    pub use std::hint::spin_loop;
    pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    pub use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
    pub use std::thread::JoinHandle;

    /// A cell with loom's methods.
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }

    /// Starts a thread of this name.
    ///
    /// # Panics
    /// When the system starts none.
    pub fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        std::thread::Builder::new().name(name).spawn(work).expect("the system starts a thread")
    }
}

#[cfg(loom)]
mod real {
    pub use std::sync::PoisonError;

    pub use loom::cell::UnsafeCell;
    pub use loom::hint::spin_loop;
    pub use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub use loom::thread::JoinHandle;

    pub fn spawn(_name: String, work: impl FnOnce() + 'static) -> JoinHandle<()> {
        loom::thread::spawn(work)
    }
}

pub use real::*;
