//! The exponential that all kernels share.

use super::{EXP, cpus, pow2};
use octavo_cpu::simd::{F32x16, Kernel, LANES, dispatch};

struct Exp([f32; LANES]);

impl Kernel for Exp {
    type Output = [f32; LANES];
    #[inline(always)]
    #[allow(clippy::inline_always)]
    unsafe fn run<V: F32x16>(self) -> [f32; LANES] {
        let mut out = [0.0; LANES];
        // SAFETY: the set is available; both arrays have 16 elements.
        unsafe { V::load(self.0.as_ptr()).exp().store(out.as_mut_ptr()) };
        out
    }
}

/// Every 1009th of all floats from -87 to 88, and the ends.
#[test]
fn exp_is_within_two_units_in_the_last_place() {
    let floats =
        |end: f32, sign: f32| (0..=end.to_bits()).step_by(1009).map(move |b| sign * f32::from_bits(b));
    let all: Vec<f32> = floats(88.0, 1.0).chain(floats(87.0, -1.0)).chain([-87.0, 88.0]).collect();
    let isa = cpus().pop().unwrap().isa;
    for chunk in all.chunks(LANES) {
        let x = std::array::from_fn(|i| chunk[i.min(chunk.len() - 1)]);
        // SAFETY: the set is available.
        for (x, y) in x.into_iter().zip(unsafe { dispatch(isa, Exp(x)) }) {
            let exact = f64::from(x).exp();
            let unit = pow2(exact.log2().floor() as i64 - 23);
            let error = (f64::from(y) - exact).abs();
            assert!(error <= 2.0 * unit && error <= EXP * exact, "exp({x:e}) = {y:e}, not {exact:e}");
        }
    }
}

#[test]
fn exp_of_what_lies_beyond_is_that_of_the_ends() {
    for cpu in cpus() {
        let x = [-88.0, -1e30, f32::NEG_INFINITY, -87.0, 89.0, 1e30, f32::INFINITY, 88.0];
        // SAFETY: the set is available.
        let y = unsafe { dispatch(cpu.isa, Exp(std::array::from_fn(|i| x[i % x.len()]))) };
        assert_eq!(y[..4], [y[3]; 4], "{}", cpu.isa);
        assert_eq!(y[4..8], [y[7]; 4], "{}", cpu.isa);
        assert!(f64::from(y[3]) < pow2(-125) && f64::from(y[7]) > pow2(126), "{y:?}");
    }
}
