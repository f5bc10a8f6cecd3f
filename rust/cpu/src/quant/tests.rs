use super::*;
use crate::{DType, Isa};

pub(super) const FORMATS: [Format; 8] = [
    Format::Q4_0,
    Format::Q4_1,
    Format::Q5_0,
    Format::Q5_1,
    Format::Q8_0,
    Format::Q4K,
    Format::Q5K,
    Format::Q6K,
];

pub(super) struct Random(pub u32);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 8
    }

    pub fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.next() as f32 / 8_388_608.0 - 1.0).collect()
    }
}

/// Blocks of random bits whose 16-bit floats are near 1 / 64.
pub(super) fn random_blocks(format: Format, blocks: usize) -> Vec<u8> {
    let mut random = Random(9);
    let floats: &[usize] = match format {
        Format::Q4_0 | Format::Q5_0 | Format::Q8_0 => &[0],
        Format::Q6K => &[208],
        _ => &[0, 2],
    };
    let mut bytes: Vec<u8> = (0..blocks * format.bytes()).map(|_| random.next() as u8).collect();
    for block in bytes.chunks_exact_mut(format.bytes()) {
        for &at in floats {
            block[at + 1] = 0x24;
        }
    }
    bytes
}

pub(super) fn dense(format: Format, bytes: &[u8]) -> Vec<f32> {
    let (mut out, mut block) = (Vec::new(), Block::default());
    for bytes in bytes.chunks_exact(format.bytes()) {
        format.decode(bytes, &mut block);
        for i in 0..format.weights() {
            let (q, run) = (i32::from(block.q[i]) - format.zero(), i / format.run());
            out.push(block.scale[run] * q as f32 + block.min[run]);
        }
    }
    out
}

pub(super) fn cpus() -> Vec<Cpu> {
    Isa::available().into_iter().map(|isa| Cpu { isa, pool: Pool::new(2) }).collect()
}

fn run(cpu: &Cpu, w: &QuantizedWeight, x: &[f32]) -> Vec<f32> {
    let rows = x.len() / w.k();
    let mut out = vec![f32::NAN; rows * w.n()];
    let x = MatRef { data: x.as_ptr().cast(), dtype: DType::F32, rows, stride: w.k() };
    let y = MatMut { data: out.as_mut_ptr().cast(), dtype: DType::F32, rows, stride: w.n() };
    // SAFETY: the shapes are as the views say.
    unsafe { quantized_linear(cpu, w, x, y) };
    out
}

/// An input of one 1 is quantised exactly, so it shows a weight.
#[test]
fn single_inputs_show_the_weights() {
    for format in FORMATS {
        let (n, k) = (19, 256);
        let bytes = random_blocks(format, n * k / format.weights());
        let weight = dense(format, &bytes);
        let mut x = vec![0.0; k * k];
        (0..k).for_each(|i| x[i * k + i] = 1.0);
        for cpu in cpus() {
            let w = QuantizedWeight::pack(&cpu.pool, format, &bytes, (n, k), None).unwrap();
            for (i, y) in run(&cpu, &w, &x).chunks(n).enumerate() {
                for c in 0..n {
                    let exact = weight[c * k + i];
                    assert!(
                        (y[c] - exact).abs() <= exact.abs() * 1e-5 + 1e-5,
                        "{} {format:?} {exact}",
                        cpu.isa
                    );
                }
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_in_any_batch_and_on_any_instruction_set() {
    for format in FORMATS {
        let (n, k) = (67, 512);
        let bytes = random_blocks(format, n * k / format.weights());
        let x = Random(5).floats(40 * k);
        let mut expected = Vec::new();
        for cpu in cpus() {
            let w = QuantizedWeight::pack(&cpu.pool, format, &bytes, (n, k), None).unwrap();
            if expected.is_empty() {
                expected = x.chunks(k).flat_map(|row| run(&cpu, &w, row)).collect();
            }
            for rows in [1, 2, 3, 7, 8, 9, 33, 40] {
                assert!(
                    run(&cpu, &w, &x[..rows * k]) == expected[..rows * n],
                    "{} {format:?} {rows}",
                    cpu.isa
                );
            }
        }
    }
}

#[test]
fn what_is_not_a_number_stays_so_and_wrong_sizes_are_refused() {
    let cpu = &cpus()[0];
    let bytes = random_blocks(Format::Q8_0, 2);
    let pack = |format, bytes: &[u8], shape| QuantizedWeight::pack(&cpu.pool, format, bytes, shape, None);
    let w = pack(Format::Q8_0, &bytes, (2, 32)).unwrap();
    let mut x = vec![1.0; 32];
    x[7] = f32::NAN;
    assert!(run(cpu, &w, &x).iter().all(|y| y.is_nan()));
    assert!(
        pack(Format::Q8_0, &bytes, (2, 30)).unwrap_err().contains("rows of 30 weights are not whole blocks")
    );
    assert!(pack(Format::Q8_0, &bytes[1..], (2, 32)).unwrap_err().contains("67 bytes for 2 rows of 34"));
    assert_eq!((Format::from_ggml(12), Format::from_ggml(99)), (Some(Format::Q4K), None));
}
