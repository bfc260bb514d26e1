//! The parser: from words to the syntax tree.
//!
//! It knows no instructions: an instruction is its name, its modifiers and its operands.

mod body;
mod declarations;
mod operands;

use super::error::{At, Read};
use super::lex::{Kind, Number, Token, tokens};
use super::syntax::{Name, Text};

/// The syntax tree of a text.
pub(crate) fn parse(text: &str) -> Read<Text<'_>> {
    let tokens = tokens(text)?;
    Parser { tokens: &tokens, at: 0, depth: 0 }.text()
}

/// Blocks and braces that may be open at once.
const DEEPEST: u32 = 64;

struct Parser<'p, 't> {
    /// At last [`Kind::End`].
    tokens: &'p [Token<'t>],
    at: usize,
    depth: u32,
}

impl<'t> Parser<'_, 't> {
    fn text(&mut self) -> Read<Text<'t>> {
        self.expect_dot("version", "a text begins with `.version`")?;
        self.version()?;
        self.expect_dot("target", "`.target` follows `.version`")?;
        self.name("the name of a target")?;
        while self.takes(',') {
            self.name("an option of the target")?;
        }
        let mut text = Text { files: Vec::new(), variables: Vec::new(), functions: Vec::new() };
        while self.peek().kind != Kind::End {
            self.declaration(&mut text)?;
        }
        Ok(text)
    }

    /// Instructions say more than the version and the target do: those that Hopper does not have are not read.
    fn version(&mut self) -> Read<()> {
        let token = self.next();
        let parts =
            token.text.split_once('.').map(|(major, minor)| (major.parse::<u32>(), minor.parse::<u32>()));
        match parts {
            Some((Ok(_), Ok(_))) => Ok(()),
            _ => token.at.wrong(format!("{}, a version such as 8.4 was needed", found(&token))),
        }
    }

    // ---- words ----

    fn peek(&self) -> Token<'t> {
        self.ahead(0)
    }

    fn ahead(&self, count: usize) -> Token<'t> {
        let end = Token { kind: Kind::End, text: "", at: At(0) };
        self.tokens.get(self.at + count).or(self.tokens.last()).copied().unwrap_or(end)
    }

    fn next(&mut self) -> Token<'t> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn is(&self, sign: char) -> bool {
        self.peek().kind == Kind::Sign(sign)
    }

    /// Takes the sign if it is the next word.
    fn takes(&mut self, sign: char) -> bool {
        let is = self.is(sign);
        self.at += usize::from(is);
        is
    }

    /// Takes the name with a dot if it is the next word.
    fn takes_dot(&mut self, name: &str) -> bool {
        let is = self.peek().kind == Kind::Dot(name);
        self.at += usize::from(is);
        is
    }

    fn expect(&mut self, sign: char, what: &str) -> Read<()> {
        if self.takes(sign) { Ok(()) } else { self.unexpected(&format!("`{sign}` was needed: {what}")) }
    }

    fn expect_dot(&mut self, name: &str, what: &str) -> Read<()> {
        if self.takes_dot(name) { Ok(()) } else { self.unexpected(&format!("`.{name}` was needed: {what}")) }
    }

    fn name(&mut self, what: &str) -> Read<Name<'t>> {
        let token = self.peek();
        if token.kind != Kind::Word {
            return self.unexpected(&format!("{what} was needed"));
        }
        self.at += 1;
        Ok(Name { text: token.text, at: token.at })
    }

    /// A number without a sign before it.
    fn unsigned(&mut self, what: &str) -> Read<u64> {
        if let Kind::Number(Number::Integer(value, false)) = self.peek().kind {
            self.at += 1;
            return Ok(value);
        }
        self.unexpected(&format!("{what} was needed"))
    }

    /// A mistake at the next word.
    fn unexpected<T>(&self, needed: &str) -> Read<T> {
        let token = self.peek();
        token.at.wrong(format!("{}, {needed}", found(&token)))
    }

    /// Reads what stands inside of braces or a block.
    fn inside<T>(&mut self, read: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
        if self.depth == DEEPEST {
            return self.peek().at.wrong(format!("more than {DEEPEST} braces are open"));
        }
        self.depth += 1;
        let inner = read(self);
        self.depth -= 1;
        inner
    }
}

/// Names a word that does not belong where it stands.
fn found(token: &Token<'_>) -> String {
    if token.kind == Kind::End { "the text ends".to_owned() } else { format!("found `{}`", token.text) }
}
