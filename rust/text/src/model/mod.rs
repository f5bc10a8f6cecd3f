//! A model's text side, from its files.

mod folder;
mod gguf;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use octavo_core::Token;
use octavo_gguf::Gguf;

use crate::chat::ChatTemplate;
use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;

/// Largest file of text that is read whole (a tokenizer.json with a large vocabulary has 35 MB).
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Everything about a model that text work needs.
#[derive(Clone, Debug)]
pub struct TextModel {
    /// Text to tokens and back.
    pub tokenizer: Arc<Tokenizer>,
    /// How conversations become text; base models may have none.
    pub chat_template: Option<Arc<ChatTemplate>>,
    /// Tokens that end the output, in ascending order.
    pub eos_token_ids: Vec<Token>,
    /// Sampling values that the model's authors set.
    pub sampling: SamplingDefaults,
    /// Most tokens that the model was made for.
    pub context_len: Option<usize>,
}

/// What the user gives in place of a model's own files.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// A folder, a `tokenizer.json` or a `.gguf` file.
    pub tokenizer: Option<PathBuf>,
    /// A file, or the template itself: anything with a brace or a line break.
    pub chat_template: Option<String>,
}

/// Sampling values that a model sets; `None` where it does not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplingDefaults {
    /// Sampling temperature.
    pub temperature: Option<f32>,
    /// Nucleus sampling.
    pub top_p: Option<f32>,
    /// 0 is off.
    pub top_k: Option<u32>,
    /// Least share of the best token's probability.
    pub min_p: Option<f32>,
    /// Repetition penalty.
    pub repetition_penalty: Option<f32>,
    /// Most output tokens.
    pub max_new_tokens: Option<u32>,
}

/// What a model's files say, before overrides.
#[derive(Debug, Default)]
struct Facts {
    eos_token_ids: Vec<Token>,
    sampling: SamplingDefaults,
    context_len: Option<usize>,
}

/// A tokenizer, the special tokens by name and the templates that came with it.
#[derive(Debug)]
struct Vocabulary {
    tokenizer: Tokenizer,
    specials: BTreeMap<String, String>,
    template: Option<String>,
    tool_use_template: Option<String>,
    eos_token_ids: Vec<Token>,
}

impl TextModel {
    /// Reads the text side of the model at `model_path`: a Hugging Face folder or a `.gguf` file.
    ///
    /// Fails with a message that says which file is missing or wrong, and what to do.
    pub fn open(model_path: &Path, overrides: &Overrides) -> Result<Self> {
        let (facts, own) = match open_kind(model_path)? {
            Place::Gguf => {
                let gguf = Gguf::open(model_path)?;
                let facts = gguf::facts(&gguf)?;
                (facts, overrides.tokenizer.is_none().then(|| gguf::vocabulary(&gguf)))
            }
            Place::Folder => {
                let facts = folder::facts(model_path)?;
                (facts, overrides.tokenizer.is_none().then(|| folder::vocabulary(model_path)))
            }
            Place::TokenizerJson => {
                return Err(Error::Model {
                    path: Some(model_path.to_owned()),
                    message: "is not a model; give a Hugging Face folder or a .gguf file".to_owned(),
                });
            }
        };
        let vocabulary = match (&overrides.tokenizer, own) {
            (_, Some(own)) => own?,
            (Some(path), None) => open_vocabulary(path)?,
            (None, None) => return Err(Error::Internal("no tokenizer was opened".to_owned())),
        };
        Self::assemble(facts, vocabulary, overrides)
    }

    /// The beginning-of-sequence token.
    pub fn bos_token_id(&self) -> Option<Token> {
        self.tokenizer.bos()
    }

    fn assemble(facts: Facts, vocabulary: Vocabulary, overrides: &Overrides) -> Result<Self> {
        let source = match &overrides.chat_template {
            Some(given) => Some(read_template(given)?),
            None => vocabulary.template,
        };
        let chat_template = match source {
            None => None,
            Some(source) => {
                let mut template = ChatTemplate::new(&source, vocabulary.specials)?;
                let tool_use = vocabulary.tool_use_template.filter(|_| overrides.chat_template.is_none());
                if let Some(tool_use) = tool_use {
                    template.add_tool_use(&tool_use)?;
                }
                Some(Arc::new(template))
            }
        };
        let mut eos_token_ids = [facts.eos_token_ids, vocabulary.eos_token_ids].concat();
        eos_token_ids.sort_unstable();
        eos_token_ids.dedup();
        Ok(Self {
            tokenizer: Arc::new(vocabulary.tokenizer),
            chat_template,
            eos_token_ids,
            sampling: facts.sampling,
            context_len: facts.context_len,
        })
    }
}

enum Place {
    Folder,
    Gguf,
    TokenizerJson,
}

fn open_kind(path: &Path) -> Result<Place> {
    let metadata = std::fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::not_found(
            path,
            "there is no such file or folder; give a Hugging Face folder or a .gguf file",
        ),
        _ => Error::model(error.to_string()).at(path),
    })?;
    if metadata.is_dir() {
        return Ok(Place::Folder);
    }
    match path.extension().and_then(|extension| extension.to_str()) {
        Some(extension) if extension.eq_ignore_ascii_case("gguf") => Ok(Place::Gguf),
        Some("json") => Ok(Place::TokenizerJson),
        _ => Err(Error::model("is neither a folder nor a .gguf file").at(path)),
    }
}

fn open_vocabulary(path: &Path) -> Result<Vocabulary> {
    match open_kind(path)? {
        Place::Folder => folder::vocabulary(path),
        Place::Gguf => gguf::vocabulary(&Gguf::open(path)?),
        Place::TokenizerJson => folder::vocabulary(path.parent().unwrap_or(path)),
    }
}

fn read_template(given: &str) -> Result<String> {
    if given.contains(['{', '}', '\n']) {
        return Ok(given.to_owned());
    }
    let path = Path::new(given);
    read_text(path)?.ok_or_else(|| Error::not_found(path, "there is no such chat template file"))
}

/// The file's text, or `None` if it is not there.
fn read_text(path: &Path) -> Result<Option<String>> {
    let fail = |message: String| Error::model(message).at(path);
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.len() > MAX_FILE_BYTES => {
            return Err(fail(format!("has {} bytes; at most {MAX_FILE_BYTES} are read", metadata.len())));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Ok(_) | Err(_) => {}
    }
    std::fs::read_to_string(path).map(Some).map_err(|error| fail(format!("cannot be read: {error}")))
}
