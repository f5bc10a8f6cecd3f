use std::path::Path;

use crate::write::Writer;
use crate::{Array, GgmlType, Gguf, Result, Value};

fn read(bytes: &[u8]) -> Result<Gguf> {
    Gguf::read(bytes, bytes.len() as u64, Path::new("test.gguf"))
}

fn message(bytes: &[u8]) -> String {
    read(bytes).unwrap_err().to_string()
}

fn sample() -> Writer {
    let nested = Array::Array(vec![Array::U8(vec![1, 2]), Array::String(vec!["deep".into()])]);
    Writer::new()
        .string("general.architecture", "llama")
        .value("llama.block_count", Value::U32(2))
        .value("llama.context_length", Value::U64(8192))
        .value("llama.rope.freq_base", Value::F32(10000.0))
        .value("tokenizer.ggml.add_bos_token", Value::Bool(true))
        .value("small", Value::I8(-3))
        .value("tokenizer.ggml.tokens", Value::Array(Array::String(vec!["<s>".into(), "é".into()])))
        .value("tokenizer.ggml.scores", Value::Array(Array::F32(vec![0.5, -1.0])))
        .value("tokenizer.ggml.token_type", Value::Array(Array::I32(vec![3, 1])))
        .value("flags", Value::Array(Array::Bool(vec![true, false])))
        .value("nested", Value::Array(nested))
        .tensor("a.weight", GgmlType::F32, &[3, 2], &[7; 24])
        .tensor("b.weight", GgmlType::Q4_0, &[2, 64], &[9; 72])
        .tensor("scalar", GgmlType::I32, &[], &[1, 0, 0, 0])
}

#[test]
fn reads_metadata_as_typed_values() {
    let gguf = read(&sample().to_bytes()).unwrap();
    assert_eq!(gguf.version(), 3);
    assert_eq!(gguf.str("general.architecture").unwrap(), Some("llama"));
    assert_eq!(gguf.u32("llama.block_count").unwrap(), Some(2));
    assert_eq!(gguf.u32("llama.context_length").unwrap(), Some(8192));
    assert_eq!(gguf.f32("llama.rope.freq_base").unwrap(), Some(10000.0));
    assert_eq!(gguf.bool("tokenizer.ggml.add_bos_token").unwrap(), Some(true));
    assert_eq!(gguf.strings("tokenizer.ggml.tokens").unwrap(), Some(&["<s>".to_owned(), "é".to_owned()][..]));
    assert_eq!(gguf.floats("tokenizer.ggml.scores").unwrap(), Some(&[0.5, -1.0][..]));
    assert_eq!(gguf.array("nested").unwrap().map(Array::len), Some(2));
    assert_eq!(gguf.str("missing").unwrap(), None);
    assert_eq!(gguf.iter().next(), Some(("general.architecture", &Value::String("llama".into()))));
    assert_eq!(gguf.iter().len(), 11);
}

#[test]
fn refuses_a_value_of_another_type_and_names_the_key() {
    let gguf = read(&sample().to_bytes()).unwrap();
    let error = gguf.u32("general.architecture").unwrap_err().to_string();
    assert_eq!(
        error,
        "test.gguf: the metadata key general.architecture must be an integer from 0 to 4294967295; its type is string"
    );
    assert!(gguf.u32("small").is_err(), "a negative number is no u32");
}

#[test]
fn gives_tensors_in_torch_order_with_absolute_offsets() {
    let bytes = sample().to_bytes();
    let gguf = read(&bytes).unwrap();
    let b = gguf.tensor("b.weight").unwrap();
    assert_eq!((b.ggml_type, b.shape.as_slice(), b.byte_len), (GgmlType::Q4_0, &[2, 64][..], 72));
    assert_eq!(&bytes[b.offset as usize..][..72], &[9; 72]);
    let scalar = gguf.tensor("scalar").unwrap();
    assert_eq!((scalar.shape.len(), scalar.byte_len), (0, 4));
    assert_eq!(scalar.offset + scalar.byte_len, bytes.len() as u64);
    assert_eq!(gguf.tensors().len(), 3);
}

#[test]
fn opens_from_disk_and_names_a_missing_file() {
    let folder = std::env::temp_dir().join(format!("octavo-gguf-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("sample.gguf");
    std::fs::write(&path, sample().to_bytes()).unwrap();
    assert_eq!(Gguf::open(&path).unwrap().path(), path);
    let missing = Gguf::open(folder.join("missing.gguf")).unwrap_err();
    assert!(missing.to_string().contains("missing.gguf"), "{missing}");
    assert!(missing.io_error().is_some());
    assert!(Gguf::open(&folder).unwrap_err().to_string().contains("not a regular file"));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn says_what_is_wrong_with_the_head() {
    let bytes = sample().to_bytes();
    assert!(message(b"").contains("byte 0: the magic number needs 4 bytes"));
    assert!(message(b"PK\x03\x04").contains("is not a GGUF file"));
    let patched = |at: usize, with: &[u8]| {
        let mut copy = bytes.clone();
        copy[at..at + with.len()].copy_from_slice(with);
        message(&copy)
    };
    assert!(patched(4, &1_u32.to_le_bytes()).contains("byte 4: has GGUF version 1"));
    assert!(patched(4, &3_u32.to_be_bytes()).contains("big-endian"));
    assert!(patched(8, &u64::MAX.to_le_bytes()).contains("tensors, more than the limit"));
    assert!(patched(16, &u64::MAX.to_le_bytes()).contains("metadata values, more than the limit"));
    assert!(patched(24, &u64::MAX.to_le_bytes()).contains("byte 24: a metadata key is"));
}

#[test]
fn refuses_arrays_that_are_longer_than_the_file_or_too_deep() {
    let mut bytes = Writer::new().value("a", Value::Array(Array::U64(vec![1]))).to_bytes();
    let count_at = bytes.len() - 16;
    bytes[count_at..count_at + 8].copy_from_slice(&(u64::MAX / 8).to_le_bytes());
    assert!(message(&bytes).contains("a needs"));
    let mut deep = Array::U8(vec![]);
    for _ in 0..6 {
        deep = Array::Array(vec![deep]);
    }
    assert!(message(&Writer::new().value("d", Value::Array(deep)).to_bytes()).contains("nests arrays"));
}

#[test]
fn refuses_tensors_that_do_not_fit() {
    let cut = sample().to_bytes();
    assert!(message(&cut[..cut.len() - 1]).contains("tensor scalar of 4 bytes"));
    let uneven = Writer::new().tensor("t", GgmlType::Q4_K, &[100], &[0; 144]).to_bytes();
    assert!(message(&uneven).contains("rows of 100 elements, not a multiple of Q4_K's blocks of 256"));
    let huge = Writer::new().tensor("t", GgmlType::F32, &[u64::MAX, 2], &[]).to_bytes();
    assert!(message(&huge).contains("too large"));
    let twice =
        Writer::new().tensor("t", GgmlType::F32, &[1], &[0; 4]).tensor("t", GgmlType::F32, &[1], &[0; 4]);
    assert!(message(&twice.to_bytes()).contains("the tensor t is there twice"));
    let twice = Writer::new().string("k", "a").string("k", "b");
    assert!(message(&twice.to_bytes()).contains("the metadata key k is there twice"));
    let alignment = Writer::new().value("general.alignment", Value::U32(24));
    assert!(message(&alignment.to_bytes()).contains("power of two"));
}

/// Every prefix, and thousands of seeded mutations, give a value or an error: no panic, no huge allocation.
#[test]
fn survives_damage() {
    let bytes = sample().to_bytes();
    for len in 0..bytes.len() {
        assert!(read(&bytes[..len]).is_err(), "a prefix of {len} bytes was accepted");
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let (mut good, mut bad) = (0, 0);
    for _ in 0..20_000 {
        let mut copy = bytes.clone();
        for _ in 0..=random(4) {
            let at = random(copy.len());
            match random(5) {
                0 => copy[at] ^= 1 << random(8),
                1 => copy[at] = [0, 1, 0x7f, 0x80, 0xff][random(5)],
                2 => copy.truncate(at.max(1)),
                3 => {
                    let end = (at + 8).min(copy.len());
                    let number = [u64::MAX, 1 << 63, u64::from(u32::MAX), 1 << 20][random(4)];
                    copy[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
                }
                _ => {
                    copy.remove(at);
                }
            }
            if copy.is_empty() {
                copy.push(0);
            }
        }
        match read(&copy) {
            Ok(gguf) => {
                good += 1;
                for tensor in gguf.tensors() {
                    assert!(tensor.offset + tensor.byte_len <= copy.len() as u64);
                }
            }
            Err(error) => {
                bad += 1;
                assert!(error.to_string().starts_with("test.gguf"));
            }
        }
    }
    assert!(good > 100 && bad > 1000, "{good} accepted, {bad} refused: the mutations prove little");
}

#[test]
fn block_sizes_agree_with_names() {
    for ggml_type in GgmlType::ALL {
        assert_eq!(GgmlType::from_code(*ggml_type as u32), Some(*ggml_type));
        let bits = 8.0 * ggml_type.type_size() as f64 / ggml_type.block_size() as f64;
        assert!((1.0..=64.0).contains(&bits), "{} has {bits} bits an element", ggml_type.name());
    }
    assert_eq!(GgmlType::from_code(4), None);
}
