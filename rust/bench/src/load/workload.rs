//! Which prompts are sent. Conversation `i` of a workload is a function of the
//! seed and `i` alone.

use std::str::FromStr;

use rand::Rng;
use rand::rngs::StdRng;

use super::args::WorkloadArgs;
use super::dataset;
use super::dialogue::Api;
use super::words::WORDS;
use crate::error::{Error, Result};
use crate::random::{Purpose, stream};

/// What one turn adds to a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    /// Text.
    Text(String),
    /// Token ids.
    Ids(Vec<u32>),
    /// Chat messages as the API takes them.
    Messages(Vec<serde_json::Value>),
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// What the user says.
    pub prompt: Prompt,
    /// Most tokens to generate.
    pub output_len: u32,
}

/// Requests of which each waits for the one before: one, or several turns.
pub type Conversation = Vec<Turn>;

/// Ids that random prompts draw from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    low: u32,
    high: u32,
}

impl IdRange {
    /// The lowest and the highest id.
    pub fn ends(self) -> Vec<u32> {
        vec![self.low, self.high - 1]
    }
}

impl FromStr for IdRange {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (low, high) = text.split_once("..").ok_or("write LOW..HIGH, such as 1000..30000")?;
        let bound = |text: &str| text.parse().map_err(|_| format!("`{text}` is not a token id"));
        let (low, high) = (bound(low)?, bound(high)?);
        if low >= high {
            return Err(format!("{low}..{high} is empty"));
        }
        Ok(Self { low, high })
    }
}

/// Where conversations come from.
#[derive(Clone, Debug)]
pub enum Workload {
    /// Drawn at random.
    Random(Random),
    /// Read from a file.
    Dataset(Vec<Turn>),
}

/// The shape of random conversations.
#[derive(Clone, Debug)]
pub struct Random {
    /// Draw ids, else words.
    pub ids: bool,
    id_range: IdRange,
    input_len: u32,
    output_len: u32,
    range_ratio: f64,
    prefix_len: u32,
    num_prefixes: u32,
    turns: u32,
    seed: u64,
}

impl Workload {
    /// The workload of the flags. `ids` says whether random prompts are token ids.
    ///
    /// # Errors
    /// Flags out of range, or a file that cannot be read.
    pub fn new(args: &WorkloadArgs, ids: bool, seed: u64) -> Result<Self> {
        if let Some(path) = &args.dataset_path {
            return Ok(Self::Dataset(dataset::read(path, args.output_len)?));
        }
        for (flag, value) in [
            ("--input-len", args.input_len),
            ("--output-len", args.output_len),
            ("--num-prefixes", args.num_prefixes),
            ("--turns", args.turns),
        ] {
            if value == 0 {
                return Err(Error::invalid(format!("{flag} is 0; it must be at least 1")));
            }
        }
        if !(0.0..1.0).contains(&args.range_ratio) {
            let ratio = args.range_ratio;
            return Err(Error::invalid(format!(
                "--range-ratio is {ratio}; it must be at least 0 and below 1"
            )));
        }
        Ok(Self::Random(Random {
            ids,
            id_range: args.id_range,
            input_len: args.input_len,
            output_len: args.output_len,
            range_ratio: args.range_ratio,
            prefix_len: args.prefix_len,
            num_prefixes: args.num_prefixes,
            turns: args.turns,
            seed,
        }))
    }

    /// Conversation `index`.
    pub fn conversation(&self, index: u64) -> Conversation {
        match self {
            Self::Random(random) => random.conversation(index),
            Self::Dataset(turns) => vec![turns[(index % turns.len() as u64) as usize].clone()],
        }
    }

    /// Checks that the API takes every prompt.
    ///
    /// # Errors
    /// A file whose prompts are not for this API.
    pub fn check(&self, api: Api) -> Result<()> {
        let Self::Dataset(turns) = self else { return Ok(()) };
        let wrong = |turn: &&Turn| match turn.prompt {
            Prompt::Text(_) => false,
            Prompt::Ids(_) => api == Api::Chat,
            Prompt::Messages(_) => api == Api::Completions,
        };
        match turns.iter().find(wrong) {
            None => Ok(()),
            Some(_) => Err(Error::invalid(
                "--dataset-path: `messages` need --endpoint /v1/chat/completions, token ids /v1/completions",
            )),
        }
    }

    /// Requests that a conversation makes.
    pub fn turns(&self) -> u32 {
        match self {
            Self::Random(random) => random.turns,
            Self::Dataset(_) => 1,
        }
    }
}

impl Random {
    fn conversation(&self, index: u64) -> Conversation {
        let mut rng = stream(self.seed, Purpose::Request, index);
        let group = rng.random_range(0..u64::from(self.num_prefixes));
        let mut prefix_rng = stream(self.seed, Purpose::Prefix, group);
        (0..self.turns)
            .map(|turn| {
                let input_len = self.length(&mut rng, self.input_len);
                let output_len = self.length(&mut rng, self.output_len);
                let prefix_len = if turn == 0 { self.prefix_len } else { 0 };
                let parts = [(&mut prefix_rng, prefix_len), (&mut rng, input_len)];
                Turn { prompt: self.prompt(parts), output_len }
            })
            .collect()
    }

    fn length(&self, rng: &mut StdRng, length: u32) -> u32 {
        let spread = (f64::from(length) * self.range_ratio) as u32;
        rng.random_range(length - spread..=length + spread).max(1)
    }

    /// As many tokens as each part says, drawn from its own stream.
    fn prompt(&self, parts: [(&mut StdRng, u32); 2]) -> Prompt {
        let total = parts.iter().map(|part| part.1 as usize).sum::<usize>();
        if self.ids {
            let mut ids = Vec::with_capacity(total);
            for (rng, length) in parts {
                ids.extend((0..length).map(|_| rng.random_range(self.id_range.low..self.id_range.high)));
            }
            return Prompt::Ids(ids);
        }
        let mut text = String::with_capacity(total * 6);
        for (rng, length) in parts {
            for _ in 0..length {
                // Words carry their leading space, as tokens of most vocabularies do.
                text.push(' ');
                text.push_str(WORDS[rng.random_range(0..WORDS.len())]);
            }
        }
        Prompt::Text(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(ids: bool) -> Random {
        let id_range = "10..20".parse().unwrap();
        Random {
            ids,
            id_range,
            input_len: 8,
            output_len: 4,
            range_ratio: 0.5,
            prefix_len: 16,
            num_prefixes: 2,
            turns: 3,
            seed: 7,
        }
    }

    #[test]
    fn a_conversation_is_a_function_of_seed_and_index() {
        let random = random(true);
        assert_eq!(random.conversation(5), random.conversation(5));
        assert_ne!(random.conversation(5), random.conversation(6));
        assert_ne!(random.conversation(5), Random { seed: 8, ..random.clone() }.conversation(5));
    }

    #[test]
    fn there_are_as_many_prefixes_as_asked_and_only_on_the_first_turn() {
        let random = random(true);
        let mut prefixes = std::collections::BTreeSet::new();
        for index in 0..40 {
            let conversation = random.conversation(index);
            assert_eq!(conversation.len(), 3);
            let Prompt::Ids(first) = &conversation[0].prompt else { panic!("ids were asked for") };
            let Prompt::Ids(second) = &conversation[1].prompt else { panic!("ids were asked for") };
            assert!((20..=28).contains(&first.len()) && (4..=12).contains(&second.len()));
            assert!(first.iter().all(|id| (10..20).contains(id)));
            prefixes.insert(first[..16].to_vec());
        }
        assert_eq!(prefixes.len(), 2);
    }

    #[test]
    fn words_are_as_many_as_tokens() {
        let random = Random { range_ratio: 0.0, ..random(false) };
        let Prompt::Text(text) = &random.conversation(0)[0].prompt else { panic!("words were asked for") };
        assert_eq!(text.split_whitespace().count(), 24);
        assert_eq!(text.matches(' ').count(), 24);
    }

    #[test]
    fn id_ranges_are_parsed_or_explained() {
        assert!("5..5".parse::<IdRange>().unwrap_err().contains("empty"));
        assert!("5".parse::<IdRange>().unwrap_err().contains("LOW..HIGH"));
        assert!("a..5".parse::<IdRange>().unwrap_err().contains("not a token id"));
    }
}
