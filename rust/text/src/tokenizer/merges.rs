//! Merges for BPE models.

use std::cmp::Ordering;

use octavo_core::Token;
use tokenizers::models::bpe::{Merges, Vocab};

/// The merges that a file lists as `left right`. Those whose parts or result are
/// not in the vocabulary can never apply and are left out.
pub(super) fn listed(lines: &[String], vocab: &Vocab) -> Merges {
    let merges = lines.iter().filter_map(|line| {
        // The left part is never empty, so it may itself begin with a space.
        let first = line.chars().next()?.len_utf8();
        let (left, right) = line.split_at(first + line[first..].find(' ')?);
        Some((left, &right[1..]))
    });
    merges
        .filter(|(left, right)| {
            vocab.contains_key(*left)
                && vocab.contains_key(*right)
                && vocab.contains_key(&format!("{left}{right}"))
        })
        .map(|(left, right)| (left.to_owned(), right.to_owned()))
        .collect()
}

/// The merges that follow from the scores of a SentencePiece BPE vocabulary: every
/// way to make a piece from two others, best score first.
pub(super) fn from_scores(pieces: &[String], scores: &[f32], vocab: &Vocab) -> Merges {
    struct Merge<'a> {
        left: &'a str,
        right: &'a str,
        score: f32,
        parts: (Token, Token),
    }
    let mut merges = Vec::new();
    for (piece, score) in pieces.iter().zip(scores) {
        for (at, _) in piece.char_indices().skip(1) {
            let (left, right) = piece.split_at(at);
            if let (Some(first), Some(second)) = (vocab.get(left), vocab.get(right)) {
                merges.push(Merge { left, right, score: *score, parts: (*first, *second) });
            }
        }
    }
    merges.sort_by(|a, b| {
        let lengths = |merge: &Merge| (merge.left.chars().count(), merge.right.chars().count());
        let by_score = b.score.partial_cmp(&a.score).unwrap_or(Ordering::Equal);
        by_score.then_with(|| lengths(b).cmp(&lengths(a))).then_with(|| a.parts.cmp(&b.parts))
    });
    merges.into_iter().map(|merge| (merge.left.to_owned(), merge.right.to_owned())).collect()
}
