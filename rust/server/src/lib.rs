//! See the crate description; contents follow.
