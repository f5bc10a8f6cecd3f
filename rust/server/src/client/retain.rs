//! What of a prompt is kept in the prefix cache, in tokens.

use std::time::Duration;

use octavo_core::{Result, Retain, Token};

use super::{CachePrefix, Client, Prompt};

/// Tokens of a beginning of the prompt, and how long they are kept.
pub(super) type TokenPrefix = (Vec<Token>, Duration);

impl Client {
    /// The tokens of `prefixes`, made as those of the first of `prompts` are.
    pub(super) async fn tokenize_prefixes(
        &self,
        prompts: &[Prompt],
        prefixes: &[CachePrefix],
    ) -> Result<Vec<TokenPrefix>> {
        let (false, Some(&Prompt::Text { add_special_tokens, .. })) = (prefixes.is_empty(), prompts.first())
        else {
            return Ok(Vec::new());
        };
        let most_s = self.config().max_cache_ttl_s;
        let ttl = |prefix: &CachePrefix| Duration::try_from_secs_f64(prefix.ttl_s.min(most_s));
        let texts = prefixes.iter().map(|prefix| (prefix.text.clone(), add_special_tokens)).collect();
        let tokens = self.encode(texts, None).await?;
        Ok(tokens.into_iter().zip(prefixes.iter().map(|prefix| ttl(prefix).unwrap_or_default())).collect())
    }
}

/// What of `prompt` is kept: all of it for `ttl`, and as much as it has in common
/// with each of `prefixes`. Shortest first.
pub(super) fn retain(prompt: &[Token], ttl: Duration, prefixes: &[TokenPrefix]) -> Vec<Retain> {
    let common = |tokens: &[Token]| prompt.iter().zip(tokens).take_while(|(a, b)| a == b).count();
    let parts = prefixes.iter().map(|(tokens, ttl)| (common(tokens), *ttl));
    let mut kept: Vec<Retain> = parts
        .chain([(prompt.len(), ttl)])
        .filter(|(_, ttl)| !ttl.is_zero())
        .map(|(tokens, ttl)| Retain {
            tokens: tokens as u32,
            ttl_ns: u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX),
        })
        .collect();
    kept.sort_by_key(|retain| retain.tokens);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_common_is_kept_and_the_shortest_comes_first() {
        let [one, two] = [1, 2].map(Duration::from_nanos);
        // The last token of a prefix may differ: it was merged with what follows.
        let prefixes = [(vec![1, 2, 9], two), (vec![], one)];
        let kept = |ttl| retain(&[1, 2, 3, 4], ttl, &prefixes);
        let tokens = |kept: &[Retain]| kept.iter().map(|r| (r.tokens, r.ttl_ns)).collect::<Vec<_>>();
        assert_eq!(tokens(&kept(Duration::ZERO)), [(0, 1), (2, 2)]);
        assert_eq!(tokens(&kept(one)), [(0, 1), (2, 2), (4, 1)]);
    }
}
