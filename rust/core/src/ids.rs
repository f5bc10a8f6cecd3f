//! Newtypes for everything that is counted or looked up by number.

/// A token id in the model's vocabulary.
pub type Token = u32;

/// Names a request from submission to its last event. Chosen by the door,
/// never reused while the engine lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// A persistent row on the workers. A running request holds one slot from the
/// step that admits it until it finishes or is preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u32);

/// A block of KV memory on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);
