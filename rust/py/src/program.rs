//! A forward pass as one call: the kernel calls of one small step, with addresses and row counts left open.
//!
//! Python runs a model once on a few tokens while its kernel calls are kept. Memory that was made during that pass has
//! a number of bytes for each token; [`Program::new`] gives it a place in one arena, shared by what is never needed at
//! the same time. A step then costs one call from Python and no allocation, whatever the model.

use octavo_cpu::{Buffer, Cpu, DType};

use crate::call::{Call, Form, Live, Matrix, Rename, Sequences};

/// Places in the arena begin at cache lines.
const LINE: usize = 64;

/// What a step gives: addresses of int64 ids and positions `[tokens]`, of each group of layers, and of the output.
pub(crate) struct Inputs<'a> {
    pub tokens: usize,
    pub ids: usize,
    pub positions: usize,
    pub groups: &'a [Group],
    pub out: usize,
}

/// A group of layers with the same block tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub sequences: Sequences,
    /// Address of int64 slots `[tokens]`.
    pub slots: usize,
}

/// Memory that was made while recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub address: usize,
    pub bytes: usize,
}

#[derive(Debug)]
struct Symbolic;

impl Form for Symbolic {
    type Matrix = Rows;
    type Ids = Ids;
    /// A group of layers.
    type Sequences = usize;
}

/// Rows of activations: `per_token` of them for each token.
#[derive(Clone, Copy, Debug)]
struct Rows {
    place: Place,
    dtype: DType,
    per_token: usize,
    stride: usize,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    /// So many bytes into a row of the output.
    Out(usize),
    /// In the arena, this many bytes for each token, and so many bytes further.
    Arena(usize, usize),
}

#[derive(Clone, Copy, Debug)]
enum Ids {
    Tokens,
    Positions,
    Slots(usize),
}

/// The calls of a forward pass.
#[derive(Debug)]
pub(crate) struct Program {
    calls: Vec<Call<Symbolic>>,
    groups: usize,
    /// Bytes of the arena for each token.
    bytes_per_token: usize,
    arena: Buffer,
}

impl Program {
    /// From the calls that a pass on `inputs` made. `inputs.out` is the address of what the pass returned.
    ///
    /// # Errors
    /// A call works on memory that is neither an input nor `made`: what it was made by was not recorded.
    pub fn new(calls: &[Call<Live>], inputs: &Inputs<'_>, made: &[Made]) -> Result<Self, String> {
        let mut names =
            Names { inputs, made, uses: vec![None; made.len()], places: vec![0; made.len()], call: 0 };
        // Once to learn when what was made is used, and again when it has its place.
        for (number, call) in calls.iter().enumerate() {
            names.call = number;
            call.rename(&mut names)?;
        }
        let bytes_per_token;
        (names.places, bytes_per_token) = share(made, &names.uses, inputs.tokens);
        let calls = calls.iter().map(|call| call.rename(&mut names)).collect::<Result<_, _>>()?;
        Ok(Self { calls, groups: inputs.groups.len(), bytes_per_token, arena: Buffer::zeroed(0) })
    }

    /// Runs the pass.
    ///
    /// # Errors
    /// What a kernel finds wrong with ids, positions, slots or blocks.
    ///
    /// # Safety
    /// The inputs' addresses are of live memory with the shapes that [`Inputs`] names, the output has a row of the
    /// recorded width for each token, and the weights and caches of the recorded pass are where they were.
    pub unsafe fn run(&mut self, cpu: &Cpu, inputs: &Inputs<'_>) -> Result<(), String> {
        if inputs.groups.len() != self.groups {
            return Err(format!("{} groups of layers for a model of {}", inputs.groups.len(), self.groups));
        }
        let arena = self.arena.reserve(self.bytes_per_token * inputs.tokens) as usize;
        for call in &self.calls {
            let call = call.rename(&mut Bind { inputs, arena })?;
            // SAFETY: the caller's for inputs, output, weights and caches; places in the arena are as large as what
            // was made for each token, and overlap only where their times of use do not.
            unsafe { call.run(cpu) }?;
        }
        Ok(())
    }

    /// How many kernel calls a pass has.
    pub fn len(&self) -> usize {
        self.calls.len()
    }
}

/// Addresses to names.
struct Names<'a> {
    inputs: &'a Inputs<'a>,
    made: &'a [Made],
    /// First and last call that uses what was made.
    uses: Vec<Option<(usize, usize)>>,
    /// Where it lies in the arena, in bytes for each token.
    places: Vec<usize>,
    call: usize,
}

impl Rename<Live, Symbolic> for Names<'_> {
    fn matrix(&mut self, matrix: &Matrix) -> Result<Rows, String> {
        let &Matrix { data, dtype, rows, stride } = matrix;
        let tokens = self.inputs.tokens;
        let found =
            self.made.iter().position(|made| (made.address..made.address + made.bytes).contains(&data));
        let Some(index) = found else {
            return Err(format!("call {} uses memory that no kernel made", self.call));
        };
        let Made { address, bytes } = self.made[index];
        let per_token = bytes / tokens;
        let end = (data - address) + ((rows - 1) * stride + 1) * dtype.size();
        if !bytes.is_multiple_of(tokens)
            || !rows.is_multiple_of(tokens)
            || data - address >= per_token
            || rows / tokens * stride * dtype.size() != per_token
            || end > bytes
        {
            return Err(format!("call {} uses rows that are not a token's", self.call));
        }
        let place = if address == self.inputs.out {
            Place::Out(data - address)
        } else {
            let (first, last) = self.uses[index].unwrap_or((self.call, self.call));
            self.uses[index] = Some((first, last.max(self.call)));
            Place::Arena(self.places[index], data - address)
        };
        Ok(Rows { place, dtype, per_token: rows / tokens, stride })
    }

    fn ids(&mut self, ids: &usize) -> Result<Ids, String> {
        let slots = || self.inputs.groups.iter().position(|group| group.slots == *ids).map(Ids::Slots);
        if *ids == self.inputs.ids {
            Ok(Ids::Tokens)
        } else if *ids == self.inputs.positions {
            Ok(Ids::Positions)
        } else {
            slots().ok_or_else(|| format!("call {} uses integers that are no input", self.call))
        }
    }

    fn sequences(&mut self, sequences: &Sequences) -> Result<usize, String> {
        let mut groups = self.inputs.groups.iter();
        groups
            .position(|group| group.sequences.tables == sequences.tables)
            .ok_or_else(|| format!("call {} uses block tables that are no input", self.call))
    }
}

/// A place for each of `made`, in bytes for each token, and the bytes of all: the lowest that is free while it is used.
fn share(made: &[Made], uses: &[Option<(usize, usize)>], tokens: usize) -> (Vec<usize>, usize) {
    let mut places = vec![0; made.len()];
    let mut order: Vec<_> = (0..made.len()).filter_map(|index| uses[index].map(|of| (of, index))).collect();
    order.sort_unstable();
    // Places in use, by start: (start, end, last call).
    let mut taken: Vec<(usize, usize, usize)> = Vec::new();
    let mut all = 0;
    for ((first, last), index) in order {
        let size = (made[index].bytes / tokens).next_multiple_of(LINE);
        taken.retain(|&(_, _, until)| until >= first);
        let mut start = 0;
        for &(from, to, _) in &taken {
            if start + size <= from {
                break;
            }
            start = start.max(to);
        }
        taken.push((start, start + size, last));
        taken.sort_unstable();
        places[index] = start;
        all = all.max(start + size);
    }
    (places, all)
}

/// Names to the addresses of a step.
struct Bind<'a> {
    inputs: &'a Inputs<'a>,
    arena: usize,
}

impl Rename<Symbolic, Live> for Bind<'_> {
    fn matrix(&mut self, rows: &Rows) -> Result<Matrix, String> {
        let tokens = self.inputs.tokens;
        let data = match rows.place {
            Place::Out(offset) => self.inputs.out + offset,
            Place::Arena(start, offset) => self.arena + start * tokens + offset,
        };
        Ok(Matrix { data, dtype: rows.dtype, rows: rows.per_token * tokens, stride: rows.stride })
    }

    fn ids(&mut self, ids: &Ids) -> Result<usize, String> {
        Ok(match *ids {
            Ids::Tokens => self.inputs.ids,
            Ids::Positions => self.inputs.positions,
            Ids::Slots(group) => self.inputs.groups[group].slots,
        })
    }

    fn sequences(&mut self, group: &usize) -> Result<Sequences, String> {
        Ok(self.inputs.groups[*group].sequences)
    }
}
