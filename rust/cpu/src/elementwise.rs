//! Row by row operators: norms, gated activation, embedding. Arithmetic is f32 whatever the tensors' types.

use crate::pool::AssumeSync;
use crate::simd::{F32x16, Kernel, LANES, dispatch};
use crate::{Cpu, DType, MatMut, MatRef};
use half::{bf16, f16};
use std::ops::Range;

/// Below this many elements one thread is faster than two.
const ALONE: usize = 1 << 14;

/// Loads `n` elements from index `i` on.
#[inline(always)]
pub(crate) unsafe fn load<V: F32x16>(dtype: DType, p: *const u8, i: usize, n: usize) -> V {
    // SAFETY: the caller's.
    unsafe {
        match dtype {
            DType::F32 => V::load_some(p.cast::<f32>().add(i), n),
            DType::Bf16 => V::load_some(p.cast::<bf16>().add(i), n),
            DType::F16 => V::load_some(p.cast::<f16>().add(i), n),
        }
    }
}

/// Stores `n` elements from index `i` on, rounded to nearest even.
#[inline(always)]
pub(crate) unsafe fn store<V: F32x16>(v: V, dtype: DType, p: *mut u8, i: usize, n: usize) {
    // SAFETY: the caller's.
    unsafe {
        match dtype {
            DType::F32 => v.store_some(p.cast::<f32>().add(i), n),
            DType::Bf16 => v.store_some(p.cast::<bf16>().add(i), n),
            DType::F16 => v.store_some(p.cast::<f16>().add(i), n),
        }
    }
}

/// Runs `part` over all rows, cut into a few ranges when there is enough work for several threads.
pub(crate) fn over_rows(cpu: &Cpu, rows: usize, width: usize, part: impl Fn(Range<usize>) + Sync) {
    if rows * width < ALONE || rows == 1 {
        return part(0..rows);
    }
    let chunks = rows.min(4 * cpu.pool.threads());
    cpu.pool.run(chunks, |chunk, _| part(rows * chunk / chunks..rows * (chunk + 1) / chunks));
}

/// A vector that someone else owns.
#[derive(Clone, Copy, Debug)]
pub struct VecRef {
    /// The first element.
    pub data: *const u8,
    /// Its type.
    pub dtype: DType,
    /// Elements.
    pub len: usize,
}

/// `out = x / sqrt(mean(x^2) + eps) * weight` for each row of `weight.len` elements. With `residual`, `x` is first
/// added to it, in place and rounded to its type, and the sum is what is normalised.
///
/// # Safety
/// Rows of all matrices have `weight.len` elements; `out` and `residual` overlap nothing else (`out` may be `x`).
///
/// # Panics
/// When the matrices differ in rows.
pub unsafe fn rms_norm(
    cpu: &Cpu,
    x: MatRef,
    residual: Option<MatMut>,
    weight: VecRef,
    eps: f32,
    out: MatMut,
) {
    // SAFETY: the caller's.
    unsafe { rms_norm_parts(cpu, x, residual, 1, weight, eps, out) }
}

/// The same for rows that hold `parts` vectors side by side, each normalised by itself: the heads of a token.
///
/// # Safety
/// As of [`rms_norm`], with `parts * weight.len` elements in a row.
///
/// # Panics
/// When the matrices differ in rows.
pub unsafe fn rms_norm_parts(
    cpu: &Cpu,
    x: MatRef,
    residual: Option<MatMut>,
    parts: usize,
    weight: VecRef,
    eps: f32,
    out: MatMut,
) {
    assert!(x.rows == out.rows && residual.is_none_or(|r| r.rows == x.rows), "rms_norm: rows differ");
    let call = AssumeSync(RmsNorm { x, residual, parts, weight, eps, out, range: (0, 0) });
    over_rows(cpu, x.rows * parts, weight.len, |vectors| {
        let call = RmsNorm { range: (vectors.start, vectors.end), ..call.get() };
        // SAFETY: the set is available; matrices are as the caller promises and ranges do not overlap.
        unsafe { dispatch(cpu.isa, call) }
    });
}

#[derive(Clone, Copy)]
struct RmsNorm {
    x: MatRef,
    residual: Option<MatMut>,
    parts: usize,
    weight: VecRef,
    eps: f32,
    out: MatMut,
    /// Vectors: row times `parts` plus part.
    range: (usize, usize),
}

impl Kernel for RmsNorm {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: F32x16>(self) {
        let n = self.weight.len;
        for vector in self.range.0..self.range.1 {
            let (row, first) = (vector / self.parts, vector % self.parts * n);
            // SAFETY: the caller's: rows have `parts * n` elements.
            unsafe {
                let mut from = (self.x.dtype, self.x.row(row).add(first * self.x.dtype.size()));
                if let Some(residual) = self.residual {
                    let to = residual.row(row).add(first * residual.dtype.size());
                    for i in (0..n).step_by(LANES) {
                        let count = LANES.min(n - i);
                        let sum = load::<V>(residual.dtype, to, i, count).add(load(from.0, from.1, i, count));
                        store(sum, residual.dtype, to, i, count);
                    }
                    from = (residual.dtype, to);
                }
                let mut squares = V::zero();
                for i in (0..n).step_by(LANES) {
                    let x = load::<V>(from.0, from.1, i, LANES.min(n - i));
                    squares = x.fma(x, squares);
                }
                let scale = V::splat(1.0 / (squares.sum() / n as f32 + self.eps).sqrt());
                let to = self.out.row(row).add(first * self.out.dtype.size());
                for i in (0..n).step_by(LANES) {
                    let count = LANES.min(n - i);
                    let x = load::<V>(from.0, from.1, i, count);
                    let w = load::<V>(self.weight.dtype, self.weight.data, i, count);
                    store(x.mul(scale).mul(w), self.out.dtype, to, i, count);
                }
            }
        }
    }
}

/// `out = silu(gate) * up` where a row of `x` is `gate` then `up`, `n` elements each.
///
/// # Safety
/// Rows of `x` have `2 n` elements, rows of `out` have `n`; they do not overlap.
///
/// # Panics
/// When the matrices differ in rows.
pub unsafe fn silu_and_mul(cpu: &Cpu, x: MatRef, n: usize, out: MatMut) {
    assert_eq!(x.rows, out.rows, "silu_and_mul: rows differ");
    over_rows(cpu, x.rows, 4 * n, |rows| {
        // SAFETY: the set is available; matrices are as the caller promises and ranges do not overlap.
        unsafe { dispatch(cpu.isa, GateAndMul::<false> { x, n, out, rows }) }
    });
}

/// The same with `gelu(gate)` in place of `silu(gate)`, by its approximation with tanh.
///
/// # Safety
/// As of [`silu_and_mul`].
///
/// # Panics
/// When the matrices differ in rows.
pub unsafe fn gelu_and_mul(cpu: &Cpu, x: MatRef, n: usize, out: MatMut) {
    assert_eq!(x.rows, out.rows, "gelu_and_mul: rows differ");
    over_rows(cpu, x.rows, 4 * n, |rows| {
        // SAFETY: the set is available; matrices are as the caller promises and ranges do not overlap.
        unsafe { dispatch(cpu.isa, GateAndMul::<true> { x, n, out, rows }) }
    });
}

struct GateAndMul<const GELU: bool> {
    x: MatRef,
    n: usize,
    out: MatMut,
    rows: Range<usize>,
}

impl<const GELU: bool> Kernel for GateAndMul<GELU> {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: F32x16>(self) {
        for row in self.rows {
            // SAFETY: the caller's: rows have `2 n` and `n` elements.
            unsafe {
                let (from, to) = (self.x.row(row), self.out.row(row));
                for i in (0..self.n).step_by(LANES) {
                    let count = LANES.min(self.n - i);
                    let gate = load::<V>(self.x.dtype, from, i, count);
                    let up = load::<V>(self.x.dtype, from, self.n + i, count);
                    // x sigmoid(x); and x (1 + tanh(y)) / 2 is x sigmoid(2 y).
                    let slope = if GELU { gelu_slope(gate) } else { gate };
                    let gated = gate.div(V::splat(1.0).add(V::zero().sub(slope).exp()));
                    store(gated.mul(up), self.out.dtype, to, i, count);
                }
            }
        }
    }
}

/// `2 sqrt(2 / pi) (x + 0.044715 x^3)`.
#[inline(always)]
unsafe fn gelu_slope<V: F32x16>(x: V) -> V {
    const FACTOR: f32 = 1.595_769_2;
    // SAFETY: the caller runs where the set is available.
    unsafe {
        let inner = V::splat(1.0).add(V::splat(0.044_715).mul(x.mul(x)));
        V::splat(FACTOR).mul(x.mul(inner))
    }
}

/// Multiplies rows of `n` elements by `factor` in place.
///
/// # Safety
/// Rows have `n` elements.
pub unsafe fn scale_rows(cpu: &Cpu, x: MatMut, n: usize, factor: f32) {
    over_rows(cpu, x.rows, n, |rows| {
        // SAFETY: the set is available; the matrix is as the caller promises and ranges do not overlap.
        unsafe { dispatch(cpu.isa, Scale { x, n, factor, rows }) }
    });
}

struct Scale {
    x: MatMut,
    n: usize,
    factor: f32,
    rows: Range<usize>,
}

impl Kernel for Scale {
    type Output = ();
    #[inline(always)]
    unsafe fn run<V: F32x16>(self) {
        for row in self.rows {
            // SAFETY: the caller's: rows have `n` elements.
            unsafe {
                let at = self.x.row(row);
                for i in (0..self.n).step_by(LANES) {
                    let count = LANES.min(self.n - i);
                    let x = load::<V>(self.x.dtype, at, i, count);
                    store(x.mul(V::splat(self.factor)), self.x.dtype, at, i, count);
                }
            }
        }
    }
}

/// Integers of 32 or 64 bits that someone else owns.
#[derive(Clone, Copy, Debug)]
pub enum Ints {
    /// 32 bits.
    I32(*const i32),
    /// 64 bits.
    I64(*const i64),
}

impl Ints {
    /// The integer at `i`.
    ///
    /// # Safety
    /// There are more than `i`.
    #[inline(always)]
    pub unsafe fn at(self, i: usize) -> i64 {
        // SAFETY: the caller's.
        unsafe {
            match self {
                Self::I32(p) => i64::from(*p.add(i)),
                Self::I64(p) => *p.add(i),
            }
        }
    }
}

/// Says which of the first `count` ids is not one of `rows` rows.
pub(crate) unsafe fn check_ids(ids: Ints, count: usize, rows: usize) -> Result<(), String> {
    for i in 0..count {
        // SAFETY: the caller has so many ids.
        let id = unsafe { ids.at(i) };
        if id < 0 || id as usize >= rows {
            return Err(format!("embedding: token id {id} at {i} is not below {rows}"));
        }
    }
    Ok(())
}

/// Copies row `ids[i]` of `table` to row `i` of `out`, `n` elements of one type.
///
/// # Errors
/// An id is not a row of the table.
///
/// # Safety
/// `ids` has `out.rows` elements; rows have `n`; types are equal.
///
/// # Panics
/// When the types differ.
pub unsafe fn embedding(cpu: &Cpu, table: MatRef, n: usize, ids: Ints, out: MatMut) -> Result<(), String> {
    assert_eq!(table.dtype, out.dtype, "embedding: types differ");
    // SAFETY: there are `out.rows` ids.
    unsafe { check_ids(ids, out.rows, table.rows)? };
    let ids = AssumeSync(ids);
    over_rows(cpu, out.rows, n, |rows| {
        for row in rows {
            // SAFETY: ids are rows of the table; rows have `n` elements.
            unsafe {
                let from = table.row(ids.get().at(row) as usize);
                out.row(row).copy_from_nonoverlapping(from, n * out.dtype.size());
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::{Element, with_element};
    use crate::{Isa, Pool};

    fn cpus() -> Vec<Cpu> {
        Isa::available().into_iter().map(|isa| Cpu { isa, pool: Pool::new(2) }).collect()
    }

    fn ramp(count: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 37 % 101) as f32 - 50.0) / 9.0).collect()
    }

    fn pack(values: &[f32], dtype: DType) -> Vec<u8> {
        let mut out = vec![0u8; values.len() * dtype.size()];
        with_element!(dtype, T => for (i, &x) in values.iter().enumerate() {
            // SAFETY: the vector has room for each element.
            unsafe { out.as_mut_ptr().cast::<T>().add(i).write_unaligned(T::from_f32(x)) };
        });
        out
    }

    fn unpack(bytes: &[u8], dtype: DType) -> Vec<f32> {
        with_element!(dtype, T => (0..bytes.len() / size_of::<T>())
            // SAFETY: the index is below the number of elements.
            .map(|i| unsafe { bytes.as_ptr().cast::<T>().add(i).read_unaligned() }.to_f32())
            .collect())
    }

    fn view(bytes: &[u8], dtype: DType, stride: usize) -> MatRef {
        MatRef { data: bytes.as_ptr(), dtype, rows: bytes.len() / (stride * dtype.size()), stride }
    }

    fn view_mut(bytes: &mut [u8], dtype: DType, stride: usize) -> MatMut {
        MatMut { data: bytes.as_mut_ptr(), dtype, rows: bytes.len() / (stride * dtype.size()), stride }
    }

    /// One unit in the last place of the type, relative, with room for the f32 arithmetic before.
    fn unit(dtype: DType) -> f64 {
        match dtype {
            DType::F32 => 1e-6,
            DType::Bf16 => 2f64.powi(-8),
            DType::F16 => 2f64.powi(-11),
        }
    }

    fn assert_close(got: f32, exact: f64, dtype: DType, what: &str) {
        let bound = unit(dtype) * exact.abs() * 1.01 + 1e-7;
        assert!((f64::from(got) - exact).abs() <= bound, "{what}: {got} for {exact}");
    }

    #[test]
    fn rms_norm_matches_f64_and_has_the_same_bits_everywhere() {
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            for n in [1, 15, 64, 100, 576] {
                let rows = 61;
                let x = pack(&ramp(rows * n), dtype);
                let weight = pack(&ramp(n), dtype);
                let w = VecRef { data: weight.as_ptr(), dtype, len: n };
                let run = |cpu: &Cpu, x: &[u8]| {
                    let mut out = vec![0u8; x.len()];
                    // SAFETY: rows of n elements, as the views say.
                    unsafe { rms_norm(cpu, view(x, dtype, n), None, w, 1e-5, view_mut(&mut out, dtype, n)) };
                    out
                };
                let cpus = cpus();
                let expected = run(&cpus[0], &x);
                let (xs, ws, ys) = (unpack(&x, dtype), unpack(&weight, dtype), unpack(&expected, dtype));
                for (x, y) in xs.chunks(n).zip(ys.chunks(n)) {
                    let mean = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / n as f64;
                    for i in 0..n {
                        let exact = f64::from(x[i]) / (mean + 1e-5).sqrt() * f64::from(ws[i]);
                        assert_close(y[i], exact, dtype, "rms_norm");
                    }
                }
                for cpu in &cpus {
                    assert!(run(cpu, &x) == expected, "{} {dtype:?} {n}", cpu.isa);
                    let row = n * dtype.size();
                    assert!(run(cpu, &x[7 * row..8 * row]) == expected[7 * row..8 * row], "a row alone");
                }
            }
        }
    }

    #[test]
    fn add_rms_norm_rounds_the_sum_and_normalises_it() {
        let (n, rows) = (50, 9);
        for cpu in cpus() {
            let (x, r) = (pack(&ramp(n * rows), DType::Bf16), pack(&vec![0.3; n * rows], DType::Bf16));
            let weight = pack(&ramp(n), DType::F32);
            let w = VecRef { data: weight.as_ptr(), dtype: DType::F32, len: n };
            let (mut residual, mut out, mut alone) = (r.clone(), vec![0u8; x.len()], vec![0u8; x.len()]);
            let (dtype, xs) = (DType::Bf16, unpack(&x, DType::Bf16));
            // SAFETY: rows of n elements, as the views say.
            unsafe {
                let sum = view_mut(&mut residual, dtype, n);
                rms_norm(&cpu, view(&x, dtype, n), Some(sum), w, 1e-6, view_mut(&mut out, dtype, n));
                rms_norm(&cpu, view(&residual, dtype, n), None, w, 1e-6, view_mut(&mut alone, dtype, n));
            }
            let sums: Vec<f32> =
                xs.iter().zip(unpack(&r, dtype)).map(|(a, b)| bf16::from_f32(a + b).to_f32()).collect();
            assert_eq!(unpack(&residual, dtype), sums);
            assert_eq!(out, alone);
        }
    }

    #[test]
    fn gates_match_f64() {
        gate_matches_f64(silu_and_mul, |x| x / (1.0 + (-x).exp()));
        let gelu = |x: f64| {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
        };
        gate_matches_f64(gelu_and_mul, gelu);
    }

    fn gate_matches_f64(op: unsafe fn(&Cpu, MatRef, usize, MatMut), gate: impl Fn(f64) -> f64) {
        for dtype in [DType::F32, DType::Bf16, DType::F16] {
            for (n, rows) in [(1, 3), (40, 5), (1536, 40)] {
                let x = pack(&ramp(2 * n * rows), dtype);
                let xs = unpack(&x, dtype);
                let mut first = Vec::new();
                for cpu in cpus() {
                    let mut out = vec![0u8; x.len() / 2];
                    // SAFETY: rows of 2 n and n elements, as the views say.
                    unsafe { op(&cpu, view(&x, dtype, 2 * n), n, view_mut(&mut out, dtype, n)) };
                    if first.is_empty() {
                        for (i, &y) in unpack(&out, dtype).iter().enumerate() {
                            let input = f64::from(xs[i / n * 2 * n + i % n]);
                            let up = f64::from(xs[i / n * 2 * n + n + i % n]);
                            assert_close(y, gate(input) * up, dtype, "gate_and_mul");
                        }
                        first.clone_from(&out);
                    }
                    assert!(out == first, "{} {dtype:?} {n}", cpu.isa);
                }
            }
        }
    }

    #[test]
    fn embedding_copies_rows_and_names_a_wrong_id() {
        let cpu = Cpu { isa: Isa::Scalar, pool: Pool::new(2) };
        let table = pack(&ramp(7 * 3), DType::Bf16);
        let mut out = vec![0u8; 4 * 3 * 2];
        let view = view(&table, DType::Bf16, 3);
        let mut run = |ids: Ints| {
            // SAFETY: four ids, rows of three elements.
            unsafe { embedding(&cpu, view, 3, ids, view_mut(&mut out, DType::Bf16, 3)) }.map(|()| out.clone())
        };
        let expected: Vec<u8> =
            [6usize, 0, 3, 3].iter().flat_map(|i| table[i * 6..i * 6 + 6].to_vec()).collect();
        assert_eq!(run(Ints::I32([6, 0, 3, 3].as_ptr())).unwrap(), expected);
        assert_eq!(run(Ints::I64([6, 0, 3, 3].as_ptr())).unwrap(), expected);
        let message = |id: i64| format!("embedding: token id {id} at 1 is not below 7");
        for id in [7, -1] {
            assert_eq!(run(Ints::I64([0, id, 0, 0].as_ptr())).unwrap_err(), message(id));
        }
    }
}
