//! Kernels that serve language models on CPUs: plain pointers in and out, no framework.
//!
//! Every kernel is written once over a vector of sixteen `f32` lanes ([`simd::F32x16`]) and compiled for each
//! instruction set ([`Isa`]), chosen at run time. Two properties hold everywhere and are tested:
//!
//! * **Batch invariance.** The bits of a row's result never depend on the other rows of the call, on how a prompt
//!   was cut into chunks, or on the number of threads: one thread computes an output element wholly, in one order.
//! * **The same bits on every instruction set** for the floating-point kernels, because the sixteen lanes, the
//!   order of operations and the use of fused multiply-add are the same on all of them.

// Vectors must be inlined into the entry point that is compiled for their instruction set.
#![allow(clippy::inline_always)]
// Matrices of several types are passed as bytes; their elements are aligned.
#![allow(clippy::cast_ptr_alignment)]
// Bits are what is promised.
#![allow(clippy::float_cmp)]

pub mod attention;
mod buffer;
mod bytes;
mod cache;
mod dtype;
pub mod elementwise;
mod isa;
pub mod linear;
mod matrix;
pub mod pool;
pub mod quant;
pub mod rope;
pub mod sampling;
pub mod simd;
mod sync;
mod tile;

pub use buffer::Buffer;
pub use cache::CacheType;
pub use dtype::DType;
pub use isa::Isa;
pub use matrix::{MatMut, MatRef};
pub use pool::Pool;

/// What every kernel needs to run: an instruction set and the threads that share the work.
#[derive(Debug)]
pub struct Cpu {
    /// The instruction set to use.
    pub isa: Isa,
    /// The threads.
    pub pool: Pool,
}

impl Cpu {
    /// The best instruction set of this machine (or the one that `OCTAVO_CPU_ISA` names) on `threads` threads.
    ///
    /// # Errors
    /// `OCTAVO_CPU_ISA` names an instruction set that is unknown or that this machine lacks.
    pub fn new(threads: usize) -> Result<Self, String> {
        Ok(Self { isa: Isa::from_env()?, pool: Pool::new(threads) })
    }
}
