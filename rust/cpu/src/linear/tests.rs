use super::*;
use crate::dtype::{Element, with_element};
use crate::elementwise::Ints;
use crate::{DType, Isa, Pool};

const TYPES: [DType; 3] = [DType::F32, DType::Bf16, DType::F16];
const SHAPES: [(usize, usize); 7] = [(1, 1), (16, 2), (33, 7), (31, 64), (96, 75), (48, 576), (37, 4099)];
const ROWS: [usize; 9] = [1, 2, 3, 7, 8, 13, 33, 64, 129];

fn random(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(747_796_405).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 8_388_608.0 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn bytes_of(values: &[f32], dtype: DType) -> Vec<u8> {
    let mut out = vec![0u8; values.len() * dtype.size()];
    with_element!(dtype, T => for (to, &x) in out.chunks_exact_mut(size_of::<T>()).zip(values) {
        // SAFETY: the chunk has the size of T.
        unsafe { to.as_mut_ptr().cast::<T>().write_unaligned(T::from_f32(x)) };
    });
    out
}

struct Case {
    n: usize,
    k: usize,
    dtype: DType,
    weight: Vec<u8>,
    bias: Vec<f32>,
}

impl Case {
    fn new(n: usize, k: usize, dtype: DType) -> Self {
        Self { n, k, dtype, weight: bytes_of(&random(n * k, 1), dtype), bias: random(n, 2) }
    }

    fn pack(&self, pool: &Pool) -> PackedWeight {
        let w = WeightRef { data: self.weight.as_ptr(), dtype: self.dtype, n: self.n, k: self.k };
        // SAFETY: the weight has n * k elements.
        unsafe { PackedWeight::pack(pool, w, Some(&self.bias)) }
    }

    fn run(&self, cpu: &Cpu, w: &PackedWeight, x: &[u8], x_dtype: DType, out_dtype: DType) -> Vec<u8> {
        let rows = x.len() / (self.k * x_dtype.size());
        let mut out = vec![0xffu8; rows * self.n * out_dtype.size()];
        let x = MatRef { data: x.as_ptr(), dtype: x_dtype, rows, stride: self.k };
        let y = MatMut { data: out.as_mut_ptr(), dtype: out_dtype, rows, stride: self.n };
        // SAFETY: the shapes are as the views say.
        unsafe { linear(cpu, w, x, y) };
        out
    }
}

fn cpus() -> Vec<Cpu> {
    Isa::available().into_iter().map(|isa| Cpu { isa, pool: Pool::new(2) }).collect()
}

#[test]
fn a_row_has_the_same_bits_in_any_batch_and_on_any_instruction_set() {
    for dtype in TYPES {
        for (n, k) in SHAPES {
            let case = Case::new(n, k, dtype);
            // Unoptimised builds are slow.
            let most = if k > 1000 { 33 } else { 129 };
            let x = bytes_of(&random(most * k, 4), dtype);
            let row = k * dtype.size();
            let mut alone: Vec<Vec<u8>> = Vec::new();
            for cpu in cpus() {
                let w = case.pack(&cpu.pool);
                if alone.is_empty() {
                    alone = (0..most)
                        .map(|r| case.run(&cpu, &w, &x[r * row..][..row], dtype, DType::F32))
                        .collect();
                }
                for rows in ROWS.into_iter().filter(|&rows| rows <= most) {
                    let first = most - rows;
                    let y = case.run(&cpu, &w, &x[first * row..], dtype, DType::F32);
                    assert!(y == alone[first..].concat(), "{} {dtype:?} {n}x{k}, {rows} rows", cpu.isa);
                }
            }
        }
    }
}

#[test]
fn rows_may_lie_apart_and_types_may_differ() {
    let case = Case::new(33, 20, DType::Bf16);
    for cpu in cpus() {
        let w = case.pack(&cpu.pool);
        let wide = random(5 * 50, 5);
        let dense: Vec<f32> = (0..5).flat_map(|r| wide[r * 50..r * 50 + 20].to_vec()).collect();
        let expected = case.run(&cpu, &w, &bytes_of(&dense, DType::F32), DType::F32, DType::Bf16);
        let mut out = vec![0u16; 5 * 40];
        let x = MatRef { data: wide.as_ptr().cast(), dtype: DType::F32, rows: 5, stride: 50 };
        let y = MatMut { data: out.as_mut_ptr().cast(), dtype: DType::Bf16, rows: 5, stride: 40 };
        // SAFETY: the shapes are as the views say.
        unsafe { linear(&cpu, &w, x, y) };
        let got: Vec<u8> =
            out.chunks(40).flat_map(|r| r[..33].iter().flat_map(|v| v.to_le_bytes())).collect();
        assert_eq!(got, expected);
        assert!(
            out.chunks(40).all(|r| r[33..].iter().all(|&v| v == 0)),
            "nothing beyond the columns is written"
        );
    }
}

#[test]
fn the_packed_weight_takes_the_bytes_of_its_elements() {
    let pool = Pool::new(1);
    let packed = Case::new(64, 128, DType::Bf16).pack(&pool);
    assert_eq!((packed.n(), packed.k(), packed.dtype()), (64, 128, DType::Bf16));
    assert_eq!(packed.size_bytes(), 64 * 128 * 2 + 64 * 4);
}

#[test]
fn rows_of_a_packed_weight_are_those_that_were_packed() {
    for (dtype, (n, k)) in TYPES.into_iter().flat_map(|dtype| SHAPES.map(|shape| (dtype, shape))) {
        let case = Case::new(n, k, dtype);
        let cpu = &cpus()[0];
        let w = case.pack(&cpu.pool);
        let ids = [n as i32 - 1, 0, n as i32 / 2];
        let row = k * dtype.size();
        let mut out = vec![0xffu8; ids.len() * row];
        let view = MatMut { data: out.as_mut_ptr(), dtype, rows: ids.len(), stride: k };
        // SAFETY: three ids, rows of `k` elements.
        unsafe { packed_rows(cpu, &w, Ints::I32(ids.as_ptr()), view) }.unwrap();
        for (got, id) in out.chunks(row).zip(ids) {
            assert_eq!(got, &case.weight[id as usize * row..][..row], "{dtype:?} {n}x{k} {id}");
        }
        // SAFETY: as above.
        let error = unsafe { packed_rows(cpu, &w, Ints::I32([0, 0, n as i32].as_ptr()), view) };
        assert_eq!(error.unwrap_err(), format!("embedding: token id {n} at 2 is not below {n}"));
    }
}
