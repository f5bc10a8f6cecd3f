//! The vectors of this machine against the portable one: the same bits from every operation.

use super::*;

/// One number for each operation and lane, from inputs that include every special value.
struct Everything<'a>(&'a [f32; 512]);

impl Kernel for Everything<'_> {
    type Output = Vec<u32>;

    #[inline(always)]
    unsafe fn run<V: F32x16>(self) -> Vec<u32> {
        let mut out = Vec::new();
        let p = self.0.as_ptr();
        // SAFETY: the test dispatches on available sets, and offsets stay within the 512 inputs.
        unsafe {
            let mut keep = |v: V| {
                let mut lanes = [0.0f32; LANES];
                v.store(lanes.as_mut_ptr());
                out.extend(lanes.map(|x| if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() }));
            };
            for i in (0..448).step_by(16) {
                let (a, b, c) = (V::load(p.add(i)), V::load(p.add(i + 16)), V::load(p.add(i + 32)));
                for v in [
                    a.add(b),
                    a.sub(b),
                    a.mul(b),
                    a.div(b),
                    a.fma(b, c),
                    a.max(b),
                    a.min(b),
                    a.round(),
                    a.exp(),
                ] {
                    keep(v);
                }
                keep(a.select(i % 17, i % 13 + 3, b));
                keep(V::load_bf16(p.add(i).cast()));
                keep(V::load_f16(p.add(i).cast()));
                keep(V::load_bf16_pairs(p.add(i).cast())[0]);
                keep(V::load_bf16_pairs(p.add(i).cast())[1]);
                keep(V::load_i8(p.add(i).cast()));
                keep(V::splat(a.sum()));
                keep(V::splat(a.max(V::splat(-5.0)).greatest()));
                keep(V::load_some(p.add(i), i % 17));
                let mut half = [0u16; LANES];
                a.store_bf16(half.as_mut_ptr());
                keep(V::load_bf16(half.as_ptr()));
                a.store_f16(half.as_mut_ptr());
                keep(V::load_f16(half.as_ptr()));
                keep(V::splat(a.greater(b) as f32));
                keep(V::splat(a.unordered() as f32));
                keep(a.at_least(b));
            }
            let mut rows: [V; LANES] = std::array::from_fn(|r| V::load(p.add(16 * r)));
            V::transpose(&mut rows);
            rows.into_iter().for_each(&mut keep);
        }
        out
    }
}

fn inputs() -> [f32; 512] {
    let mut state = 1u32;
    let mut x = [0.0f32; 512];
    for v in &mut x {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *v = (state >> 8) as f32 / 16_777_216.0 * 24.0 - 12.0;
    }
    let special =
        [0.0, -0.0, 1e-40, -1e-40, 70_000.0, -1e30, 3e38, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    for (i, s) in special.into_iter().enumerate() {
        x[37 * (i + 1)] = s;
        x[37 * (i + 1) + 16] = special[(3 * i) % special.len()];
    }
    x
}

#[test]
fn every_set_gives_the_same_bits() {
    let x = inputs();
    // SAFETY: portable code runs everywhere.
    let expected = unsafe { dispatch(Isa::Scalar, Everything(&x)) };
    for isa in Isa::available() {
        // SAFETY: the set is available.
        let got = unsafe { dispatch(isa, Everything(&x)) };
        for (i, (g, e)) in got.iter().zip(&expected).enumerate() {
            assert_eq!(g, e, "{isa}: value {i} (operation {} of round {})", i / 16 % 23, i / 16 / 23);
        }
    }
}
