use super::*;
use crate::{DType, Isa};

const SHAPES: [(usize, usize); 8] =
    [(1, 1), (16, 4), (33, 7), (31, 64), (96, 75), (48, 576), (70, 130), (17, 2050)];
const ROWS: [usize; 9] = [1, 2, 3, 5, 8, 12, 13, 33, 64];

struct Random(u32);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 8
    }

    fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.next() as f32 / 8_388_608.0 - 1.0).collect()
    }

    fn bytes(&mut self, count: usize) -> Vec<i8> {
        (0..count).map(|_| (self.next() >> 3) as i8).collect()
    }
}

struct Case {
    n: usize,
    k: usize,
    data: Vec<i8>,
    scale: Vec<f32>,
    bias: Vec<f32>,
}

impl Case {
    fn new(n: usize, k: usize) -> Self {
        let mut random = Random(3);
        let data = random.bytes(n * k);
        let scale = random.floats(n).into_iter().map(|x| x.abs() / 64.0).collect();
        Self { n, k, data, scale, bias: random.floats(n) }
    }

    fn pack(&self, pool: &Pool) -> Int8Weight {
        Int8Weight::pack(pool, &self.data, &self.scale, (self.n, self.k), Some(&self.bias)).unwrap()
    }

    /// The definition, with integers that cannot overflow.
    fn exact(&self, x: &[f32]) -> Vec<f32> {
        let row = |x: &[f32]| {
            let most = x.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            let integers: Vec<i64> =
                x.iter().map(|x| (x * (127.0 / most)).round_ties_even() as i64).collect();
            let output = |c: usize| {
                let row = &self.data[c * self.k..][..self.k];
                let sum: i64 = row.iter().zip(&integers).map(|(&w, x)| i64::from(w) * x).sum();
                (sum as f32).mul_add(self.scale[c] * (most / 127.0), self.bias[c])
            };
            (0..self.n).map(output).collect::<Vec<_>>()
        };
        x.chunks(self.k).flat_map(row).collect()
    }
}

fn run(cpu: &Cpu, w: &Int8Weight, x: &[f32]) -> Vec<f32> {
    let rows = x.len() / w.k();
    let mut out = vec![f32::NAN; rows * w.n()];
    let x = MatRef { data: x.as_ptr().cast(), dtype: DType::F32, rows, stride: w.k() };
    let y = MatMut { data: out.as_mut_ptr().cast(), dtype: DType::F32, rows, stride: w.n() };
    // SAFETY: the shapes are as the views say.
    unsafe { int8_linear(cpu, w, x, y) };
    out
}

fn cpus() -> Vec<Cpu> {
    Isa::available().into_iter().map(|isa| Cpu { isa, pool: Pool::new(2) }).collect()
}

#[test]
fn has_the_bits_of_the_definition_for_every_number_of_rows() {
    for cpu in cpus() {
        for (n, k) in SHAPES {
            let case = Case::new(n, k);
            let w = case.pack(&cpu.pool);
            let x = Random(5).floats(64 * k);
            let expected = case.exact(&x);
            for rows in ROWS {
                let first = 64 - rows;
                let y = run(&cpu, &w, &x[first * k..]);
                assert!(y == expected[first * n..], "{} {n}x{k}, {rows} rows", cpu.isa);
            }
        }
    }
}

/// `-128 * 127 * k` comes within 0.01 % of what 32 bits hold.
#[test]
fn the_longest_sums_of_extremes_do_not_overflow() {
    for cpu in cpus() {
        for (byte, x) in [(-128, 1.0), (-128, -1.0), (127, 1.0), (127, -1.0)] {
            let case = Case { n: 1, k: MAX_K, data: vec![byte; MAX_K], scale: vec![0.5], bias: vec![0.0] };
            let x = vec![x; 2 * MAX_K];
            assert_eq!(run(&cpu, &case.pack(&cpu.pool), &x), case.exact(&x), "{} {byte}", cpu.isa);
        }
    }
}

#[test]
fn rows_may_lie_apart_and_types_may_differ() {
    let case = Case::new(33, 20);
    for cpu in cpus() {
        let w = case.pack(&cpu.pool);
        let wide: Vec<u16> = (0..5 * 50).map(|i| 0x3c00 + (i * 7 % 0x300) as u16).collect();
        let dense: Vec<f32> = wide
            .chunks(50)
            .flat_map(|row| row[..20].iter().map(|&bits| half::f16::from_bits(bits).to_f32()))
            .collect();
        let mut out = vec![0u16; 5 * 40];
        let x = MatRef { data: wide.as_ptr().cast(), dtype: DType::F16, rows: 5, stride: 50 };
        let y = MatMut { data: out.as_mut_ptr().cast(), dtype: DType::Bf16, rows: 5, stride: 40 };
        // SAFETY: the shapes are as the views say.
        unsafe { int8_linear(&cpu, &w, x, y) };
        let expected = case.exact(&dense);
        for (row, expected) in out.chunks(40).zip(expected.chunks(33)) {
            let rounded = expected.iter().map(|&y| half::bf16::from_f32(y).to_bits());
            assert!(row[..33].iter().copied().eq(rounded), "{}", cpu.isa);
            assert!(row[33..].iter().all(|&v| v == 0), "nothing beyond the columns is written");
        }
    }
}

#[test]
fn zeros_give_the_bias_and_what_is_not_a_number_stays_so() {
    let case = Case::new(19, 40);
    for cpu in cpus() {
        let w = case.pack(&cpu.pool);
        for tiny in [0.0, 1e-40] {
            assert_eq!(run(&cpu, &w, &[-tiny; 40]), case.bias, "{}", cpu.isa);
        }
        for strange in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = vec![1.0; 3 * 40];
            x[40 + 39] = strange;
            let y = run(&cpu, &w, &x);
            assert!(y[19..38].iter().all(|y| y.is_nan()), "{} {strange}", cpu.isa);
            assert!(y[..19].iter().chain(&y[38..]).all(|y| y.is_finite()), "{}", cpu.isa);
        }
    }
}

#[test]
fn wrong_sizes_are_refused() {
    let pool = Pool::new(1);
    let pack = |bytes: usize, scales: usize, n, k| {
        Int8Weight::pack(&pool, &vec![0; bytes], &vec![1.0; scales], (n, k), None).unwrap_err()
    };
    assert_eq!(pack(5, 2, 2, 3), "int8: 5 bytes and 2 scales for 2 rows of 3");
    assert!(pack(6, 3, 2, 3).contains("3 scales for 2 rows"));
    assert!(pack(0, 2, 2, 0).contains("0 inputs"));
    assert!(pack(0, 1, 1, MAX_K + 1).contains("must be from 1 to 132096"));
}
