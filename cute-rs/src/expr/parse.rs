//! The parser: text to a tree. Each node records its range of bytes in the text.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use super::Fault;

/// The largest nesting depth of an expression, so that no text exhausts the stack.
const MAX_DEPTH: usize = 64;

/// A node of the tree of an expression.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// The range of bytes in the source.
    pub(super) span: Range<usize>,
    pub(super) kind: Kind,
}

/// The kind of a node.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// `12`.
    Int(i64),
    /// `_`.
    Keep,
    /// `(a,b)`.
    Tuple(Vec<Node>),
    /// `<a,b>`.
    Tiler(Vec<Node>),
    /// `shape:stride`.
    Layout(Box<[Node; 2]>),
    /// `Sw<b,m,s>`.
    Swizzle([i64; 3]),
    /// `2@1@0` or `E<0,1>`: the scale, and the path to its component from the outermost mode.
    Basis(i64, Vec<i64>),
    /// `a o b o c`.
    Chain(Vec<Node>),
    /// `name(a,b)`.
    Call { name: String, name_span: Range<usize>, arguments: Vec<Node> },
}

impl Node {
    /// Whether the node is a shape: an integer or a tuple of shapes.
    pub(super) fn is_shape(&self) -> bool {
        match &self.kind {
            Kind::Int(_) => true,
            Kind::Tuple(members) => members.iter().all(Self::is_shape),
            Kind::Keep
            | Kind::Tiler(_)
            | Kind::Layout(_)
            | Kind::Swizzle(_)
            | Kind::Basis(..)
            | Kind::Chain(_)
            | Kind::Call { .. } => false,
        }
    }
}

/// Parses the whole text as one expression.
pub(super) fn parse(source: &str) -> Result<Node, Fault> {
    let mut parser = Parser { source, end: 0, last: 0, token: Token::End, span: 0..0, depth: 0 };
    parser.advance()?;
    let node = parser.chain()?;
    if parser.token == Token::End {
        Ok(node)
    } else {
        Err(parser.unexpected(parser.token, "the end of the expression, `o` or `:`"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'s> {
    Int(i64),
    Name(&'s str),
    Sign(char),
    End,
}

struct Parser<'s> {
    source: &'s str,
    /// The end of the current token, in bytes.
    end: usize,
    /// The end of the token before it, in bytes.
    last: usize,
    token: Token<'s>,
    span: Range<usize>,
    depth: usize,
}

impl<'s> Parser<'s> {
    /// Reads the next token.
    fn advance(&mut self) -> Result<(), Fault> {
        let rest = &self.source[self.end..];
        let start = self.source.len() - rest.trim_start().len();
        let rest = &self.source[start..];
        let other = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        // `_4` and `_-4` are CuTe's way to print a static integer.
        let number = rest.strip_prefix('_').unwrap_or(rest);
        let (token, length) = match rest.chars().next() {
            None => (Token::End, 0),
            Some(_)
                if number.strip_prefix('-').unwrap_or(number).starts_with(|c: char| c.is_ascii_digit()) =>
            {
                let sign = number.len() - number.trim_start_matches('-').len();
                let number =
                    &number[..number[sign..].find(other).map_or(number.len(), |length| sign + length)];
                let length = number.len() + usize::from(rest.starts_with('_'));
                let span = start..start + length;
                if !number[sign..].chars().all(|c| c.is_ascii_digit()) {
                    return Err(Fault::new(span, format!("`{number}` is not a number")));
                }
                let Ok(value) = number.parse() else {
                    return Err(Fault::new(span, "the number does not fit into 64 bits"));
                };
                (Token::Int(value), length)
            }
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let length = rest.find(other).unwrap_or(rest.len());
                (Token::Name(&rest[..length]), length)
            }
            Some('∘') => (Token::Name("o"), '∘'.len_utf8()),
            Some(c @ ('(' | ')' | '<' | '>' | ',' | ':' | '@')) => (Token::Sign(c), 1),
            Some(c) => {
                let message = format!("`{}` has no meaning here", c.escape_debug());
                return Err(Fault::new(start..start + c.len_utf8(), message));
            }
        };
        self.last = self.end;
        self.token = token;
        self.span = start..start + length;
        self.end = start + length;
        Ok(())
    }

    fn unexpected(&self, found: Token<'_>, wanted: &str) -> Fault {
        let message = match found {
            Token::End => format!("the expression ends where {wanted} should follow"),
            Token::Int(value) => format!("found {value} where {wanted} should follow"),
            Token::Name(name) => format!("found `{name}` where {wanted} should follow"),
            Token::Sign(sign) => format!("found `{sign}` where {wanted} should follow"),
        };
        Fault::new(self.span.clone(), message)
    }

    /// Whether the token is this sign. If so, reads the next token.
    fn accept(&mut self, sign: char) -> Result<bool, Fault> {
        let found = self.token == Token::Sign(sign);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    /// Runs a rule one level deeper.
    fn nested<T>(&mut self, rule: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
        if self.depth == MAX_DEPTH {
            let message = format!("nested deeper than {MAX_DEPTH} levels");
            return Err(Fault::new(self.span.clone(), message));
        }
        self.depth += 1;
        let result = rule(self);
        self.depth -= 1;
        result
    }

    /// `term o term o …`.
    fn chain(&mut self) -> Result<Node, Fault> {
        let first = self.term()?;
        if self.token != Token::Name("o") {
            return Ok(first);
        }
        let start = first.span.start;
        let mut terms = Vec::from([first]);
        while self.token == Token::Name("o") {
            self.advance()?;
            terms.push(self.term()?);
        }
        let end = terms.last().map_or(start, |last| last.span.end);
        Ok(Node { span: start..end, kind: Kind::Chain(terms) })
    }

    /// `primary`, or `primary:primary`.
    fn term(&mut self) -> Result<Node, Fault> {
        let shape = self.primary()?;
        if !self.accept(':')? {
            return Ok(shape);
        }
        let stride = self.primary()?;
        Ok(Node { span: shape.span.start..stride.span.end, kind: Kind::Layout(Box::new([shape, stride])) })
    }

    fn primary(&mut self) -> Result<Node, Fault> {
        let (token, span) = (self.token, self.span.clone());
        let wanted = "a layout, a shape, a swizzle or an operation";
        match token {
            Token::Int(value) => {
                self.advance()?;
                self.scaled(value, span)
            }
            Token::Name("_") => {
                self.advance()?;
                Ok(Node { span, kind: Kind::Keep })
            }
            Token::Sign('(') => {
                self.advance()?;
                let (members, end) = self.members(span.clone(), ')')?;
                Ok(Node { span: span.start..end, kind: Kind::Tuple(members) })
            }
            Token::Sign('<') => {
                self.advance()?;
                let (modes, end) = self.members(span.clone(), '>')?;
                let span = span.start..end;
                if modes.is_empty() {
                    return Err(Fault::new(span, "a tiler has at least one mode"));
                }
                Ok(Node { span, kind: Kind::Tiler(modes) })
            }
            Token::Name("Sw") => {
                self.advance()?;
                self.swizzle(span)
            }
            Token::Name("E") => {
                self.advance()?;
                self.basis(span)
            }
            Token::Name("o") => Err(self.unexpected(token, wanted)),
            Token::Name(name) => {
                self.advance()?;
                let opening = self.span.clone();
                if !self.accept('(')? {
                    let message = format!("`{name}` is not a value; an operation is written `{name}(…)`");
                    return Err(Fault::new(span, message));
                }
                let (arguments, end) = self.members(opening, ')')?;
                let kind = Kind::Call { name: name.into(), name_span: span.clone(), arguments };
                Ok(Node { span: span.start..end, kind })
            }
            Token::Sign(_) | Token::End => Err(self.unexpected(token, wanted)),
        }
    }

    /// Parses `a,b,…` up to the closing sign. Also returns the end of that sign.
    fn members(&mut self, opening: Range<usize>, closing: char) -> Result<(Vec<Node>, usize), Fault> {
        let mut members = Vec::new();
        let mut end = self.span.end;
        if self.accept(closing)? {
            return Ok((members, end));
        }
        loop {
            members.push(self.nested(Self::chain)?);
            end = self.span.end;
            if self.accept(closing)? {
                return Ok((members, end));
            }
            if self.token == Token::End {
                let open = &self.source[opening.clone()];
                return Err(Fault::new(opening, format!("`{open}` is never closed by `{closing}`")));
            }
            if !self.accept(',')? {
                return Err(self.unexpected(self.token, &format!("`,` or `{closing}`")));
            }
        }
    }

    /// `12`, or `12@1@0`.
    fn scaled(&mut self, value: i64, mut span: Range<usize>) -> Result<Node, Fault> {
        let mut path = Vec::new();
        while self.accept('@')? {
            path.push(self.int("the number of a mode, as in `2@1@0`")?);
            span.end = self.last;
        }
        if path.is_empty() {
            return Ok(Node { span, kind: Kind::Int(value) });
        }
        path.reverse();
        Ok(Node { span, kind: Kind::Basis(value, path) })
    }

    /// `<i,j,…>` after `E`.
    fn basis(&mut self, name: Range<usize>) -> Result<Node, Fault> {
        let mut path = Vec::new();
        let mut sign = '<';
        while path.is_empty() || self.token != Token::Sign('>') {
            if !self.accept(sign)? {
                return Err(self.unexpected(self.token, &format!("`{sign}` of a component `E<i,j>`")));
            }
            path.push(self.int("the number of a mode, as in `E<0,1>`")?);
            sign = ',';
        }
        self.advance()?;
        Ok(Node { span: name.start..self.last, kind: Kind::Basis(1, path) })
    }

    /// Returns an integer and reads the next token.
    fn int(&mut self, wanted: &str) -> Result<i64, Fault> {
        let Token::Int(value) = self.token else { return Err(self.unexpected(self.token, wanted)) };
        self.advance()?;
        Ok(value)
    }

    /// `<b,m,s>` after `Sw`.
    fn swizzle(&mut self, name: Range<usize>) -> Result<Node, Fault> {
        let mut numbers = [0; 3];
        let mut end = name.end;
        for (sign, number) in ['<', ',', ','].into_iter().zip(&mut numbers) {
            if !self.accept(sign)? {
                return Err(self.unexpected(self.token, &format!("`{sign}` of a swizzle `Sw<B,M,S>`")));
            }
            *number = self.int("a number of a swizzle `Sw<B,M,S>`")?;
            end = self.span.end;
        }
        if !self.accept('>')? {
            return Err(self.unexpected(self.token, "`>` of a swizzle `Sw<B,M,S>`"));
        }
        Ok(Node { span: name.start..end, kind: Kind::Swizzle(numbers) })
    }
}
