//! Stop strings over streamed text.

/// Finds the first stop string in a text that comes in pieces, and holds back only
/// what may still become one.
///
/// A match is the one that ends first, whichever way the text was cut into pieces;
/// of several that end together, the longest. Each string is followed with the
/// Knuth–Morris–Pratt automaton, so the work is linear in the text.
#[derive(Clone, Debug)]
pub struct StopStrings {
    patterns: Vec<Pattern>,
    include_in_output: bool,
    /// Text that is not out yet: a proper prefix of some stop string.
    held: String,
    out: String,
    stopped: Option<usize>,
}

/// What a piece of text led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped<'a> {
    /// Text that may go out now.
    pub text: &'a str,
    /// The stop string that ended the output, if one did.
    pub stop: Option<&'a str>,
}

#[derive(Clone, Debug)]
struct Pattern {
    text: String,
    /// `failure[i]`: the longest proper prefix that is also a suffix of the first `i + 1` bytes.
    failure: Vec<usize>,
    /// Bytes of the pattern that the text so far ends with.
    matched: usize,
}

impl StopStrings {
    /// Watches for `stops`; empty ones never match. With `include_in_output` the
    /// stop string itself goes out.
    pub fn new<S: AsRef<str>>(stops: impl IntoIterator<Item = S>, include_in_output: bool) -> Self {
        let patterns = stops
            .into_iter()
            .filter(|stop| !stop.as_ref().is_empty())
            .map(|stop| Pattern::new(stop.as_ref()));
        Self {
            patterns: patterns.collect(),
            include_in_output,
            held: String::new(),
            out: String::new(),
            stopped: None,
        }
    }

    /// Takes the next piece of text. After a match, more text is ignored.
    pub fn push(&mut self, delta: &str) -> Stopped<'_> {
        self.out.clear();
        if self.stopped.is_none() {
            self.held.push_str(delta);
            self.advance(delta);
        }
        Stopped { text: &self.out, stop: self.stop() }
    }

    /// The text still held back, at the end of the output.
    pub fn finish(&mut self) -> &str {
        self.out.clear();
        if self.stopped.is_none() {
            std::mem::swap(&mut self.out, &mut self.held);
        }
        &self.out
    }

    /// The stop string that was found.
    pub fn stop(&self) -> Option<&str> {
        self.stopped.map(|index| self.patterns[index].text.as_str())
    }

    fn advance(&mut self, delta: &str) {
        let old = self.held.len() - delta.len();
        for (offset, byte) in delta.bytes().enumerate() {
            let mut longest = 0;
            for (index, pattern) in self.patterns.iter_mut().enumerate() {
                if pattern.step(byte) && pattern.text.len() > longest {
                    longest = pattern.text.len();
                    self.stopped = Some(index);
                }
            }
            if longest > 0 {
                let end = old + offset + 1;
                let keep = if self.include_in_output { end } else { end - longest };
                self.held.truncate(keep);
                std::mem::swap(&mut self.out, &mut self.held);
                self.held.clear();
                return;
            }
        }
        let hold = self.patterns.iter().map(|pattern| pattern.matched).max().unwrap_or(0);
        self.out.extend(self.held.drain(..self.held.len() - hold));
    }
}

impl Pattern {
    fn new(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut failure = vec![0; bytes.len()];
        let mut prefix = 0;
        for index in 1..bytes.len() {
            while prefix > 0 && bytes[index] != bytes[prefix] {
                prefix = failure[prefix - 1];
            }
            prefix += usize::from(bytes[index] == bytes[prefix]);
            failure[index] = prefix;
        }
        Self { text: text.to_owned(), failure, matched: 0 }
    }

    /// Takes one byte; true when the text now ends with the whole pattern.
    fn step(&mut self, byte: u8) -> bool {
        let bytes = self.text.as_bytes();
        while self.matched > 0 && byte != bytes[self.matched] {
            self.matched = self.failure[self.matched - 1];
        }
        self.matched += usize::from(byte == bytes[self.matched]);
        self.matched == bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds pieces; gives all text that went out and the stop string.
    fn run(stops: &[&str], include: bool, pieces: &[&str]) -> (String, Option<String>) {
        let mut watch = StopStrings::new(stops, include);
        let mut text = String::new();
        for piece in pieces {
            let step = watch.push(piece);
            text.push_str(step.text);
            if let Some(stop) = step.stop {
                return (text, Some(stop.to_owned()));
            }
        }
        text.push_str(watch.finish());
        (text, None)
    }

    #[test]
    fn cuts_before_or_after_the_stop_string() {
        assert_eq!(run(&["STOP"], false, &["one ST", "OP two"]), ("one ".into(), Some("STOP".into())));
        assert_eq!(run(&["STOP"], true, &["one ST", "OP two"]), ("one STOP".into(), Some("STOP".into())));
        assert_eq!(run(&["STOP"], false, &["one ST", "ART"]), ("one START".into(), None));
    }

    #[test]
    fn holds_back_only_what_may_become_a_stop_string() {
        let mut watch = StopStrings::new(["\n\nUser:"], false);
        assert_eq!(watch.push("Hi").text, "Hi");
        assert_eq!(watch.push("!\n").text, "!");
        assert_eq!(watch.push("x").text, "\nx");
        assert_eq!(watch.push("\n\nUse").text, "");
        assert_eq!(watch.finish(), "\n\nUse");
    }

    #[test]
    fn falls_back_within_a_pattern() {
        assert_eq!(run(&["aab"], false, &["a", "a", "a", "b", "c"]), ("a".into(), Some("aab".into())));
        assert_eq!(run(&["abcabd"], false, &["abcabcabd"]), ("abc".into(), Some("abcabd".into())));
    }

    #[test]
    fn the_match_that_ends_first_wins_then_the_longest() {
        assert_eq!(run(&["cdef", "de"], false, &["abcdef"]).1.as_deref(), Some("de"));
        assert_eq!(run(&["c", "abc", "bc"], false, &["xabc"]), ("x".into(), Some("abc".into())));
        assert_eq!(run(&["é"], false, &["caf", "é!"]), ("caf".into(), Some("é".into())));
        assert_eq!(run(&[""], false, &["text"]), ("text".into(), None));
    }

    #[test]
    fn every_way_to_cut_the_text_gives_the_same() {
        let text = "日本ab語aba日abab本";
        for stops in [&["abab"][..], &["本", "aba"], &["zz"], &["b語a", "語ab"]] {
            let whole = run(stops, false, &[text]);
            let bounds: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            for first in &bounds {
                for second in bounds.iter().filter(|second| *second >= first) {
                    let pieces = [&text[..*first], &text[*first..*second], &text[*second..]];
                    assert_eq!(run(stops, false, &pieces), whole, "{stops:?} at {first} and {second}");
                }
            }
        }
    }
}
